"""Semi-orthogonal matrices, declared: what makes a projection keep distances."""

from typing import Any

import pytensor.tensor as pt


def semi_orthogonal(raw: Any) -> Any:
    r"""Return the semi-orthogonal matrix nearest to `raw`, its polar factor.

    .. math:: Q = A (A^\top A)^{-1/2}

    With standard normal entries of A, Q is uniform over all matrices with orthonormal columns (or
    rows, if it is wider than tall). `scale * semi_orthogonal(raw)` is a projection that keeps
    distances up to a scale, so that clusters have the same shape in every domain.

    Parameters
    ----------
    raw : tensor_like
        A, of shape (M, K), of full rank.

    Returns
    -------
    TensorVariable
        Q, of shape (M, K).

    Examples
    --------
    >>> with pm.Model():
    ...     raw = pm.Normal("orientation", 0.0, 1.0, shape=(5, 2))
    ...     projection = pmm.semi_orthogonal(raw)
    ...
    >>> projection.type.shape
    (None, None)
    """
    u, _, v = pt.linalg.svd(pt.as_tensor(raw), full_matrices=False)
    return u @ v
