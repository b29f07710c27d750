"""Coordinates of a network's rows: what methods for tables can be given."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pm_match.checks import check_count


def row_coordinates(
    networks: Mapping[str, ArrayLike | sparse.sparray],
    n_dimensions: int,
    *,
    unit_length: bool = False,
) -> dict[str, np.ndarray]:
    r"""Compute spectral coordinates of the rows of every network, each on its own.

    Those of spectral co-clustering (Dhillon 2001): the leading left singular vectors of

    .. math:: D_1^{-1/2} X D_2^{-1/2}

    but for the first, which only says what the degrees are; :math:`D_1` and :math:`D_2` hold the
    rows' and the columns' degrees. Rows are scaled by :math:`D_1^{-1/2}` and columns by the
    singular values, so that distances are those of the rows' profiles (correspondence analysis).
    Rows without an edge are at the origin. The signs of columns mean nothing, as distances do not
    depend on them.

    Parameters
    ----------
    networks : mapping of str to matrix, shape (n_rows, n_columns)
        Sparse or dense, with nonnegative entries.
    n_dimensions : int
    unit_length : bool, default False
        Whether only directions count (Ng, Jordan & Weiss 2001): how far a row is from the origin
        depends most on how few edges it has.

    Returns
    -------
    dict of str to ndarray, shape (n_rows, n_dimensions)

    Raises
    ------
    TypeError
        If `networks` is no mapping.
    ValueError
        If a network is not 2-D, has entries that are negative or not finite, or too few rows or
        columns for so many dimensions.
    """
    if not isinstance(networks, Mapping):
        raise TypeError(
            f"networks: expected a mapping from a network's name to the network; "
            f"found an object of type {type(networks).__name__}"
        )
    check_count("n_dimensions", n_dimensions)
    found = {}
    for name, network in networks.items():
        dense = network.toarray() if sparse.issparse(network) else np.asarray(network)
        if dense.ndim != 2 or min(dense.shape) <= n_dimensions:
            raise ValueError(
                f"network {name!r}: {n_dimensions} dimensions need a matrix with more rows and "
                f"columns than that; found shape {dense.shape}"
            )
        dense = dense.astype(float)
        if not (np.isfinite(dense) & (dense >= 0)).all():
            raise ValueError(f"network {name!r}: expected entries that are finite and at least 0")
        rows, columns = (np.maximum(dense.sum(axis=axis), 1e-300) ** -0.5 for axis in (1, 0))
        left, values, _ = np.linalg.svd(rows[:, None] * dense * columns, full_matrices=False)
        kept = slice(1, n_dimensions + 1)
        coordinates = rows[:, None] * left[:, kept] * values[kept]
        if unit_length:
            lengths = np.linalg.norm(coordinates, axis=1, keepdims=True)
            coordinates /= np.maximum(lengths, 1e-300)
        found[name] = np.where(dense.any(axis=1)[:, None], coordinates, 0.0)
    return found
