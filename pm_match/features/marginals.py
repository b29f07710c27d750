r"""Marginals: how a domain's features vary around the latent vector of a cluster.

.. math:: x_{dn} \sim N(a_d + W_d z_{s_{dn}},\; \Lambda_d^{-1})

with an intercept :math:`a_d` and a noise of its own, private variation within clusters included. A
cluster may also have a *deviation* from what its latent vector says, private to the domain,

.. math:: x_{dn} \sim N(a_d + W_d z_{s_{dn}} + e_{d s_{dn}},\; \Lambda_d^{-1}), \quad
          e_{dj} \sim N(0, \mathrm{diag}(\kappa_d^2)),

which is nothing but more factors, whose projections are known: :math:`\kappa_d` on the domain's own
block and zero elsewhere. Everything below sees one projection of all factors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from pm_match.features.projected_normal import DomainData

_LOG_2PI = log(2.0 * pi)


@dataclass(frozen=True, eq=False)
class Marginal:
    """The parameters of a domain's features at a point.

    Attributes
    ----------
    projection : (M, K) array
        Of all factors, those of deviations included.
    intercept : (M,) array
    root : (M,) or (M, M) array
        L, with the noise precision L L'; or its diagonal if features are independent.
    """

    projection: NDArray[np.float64]
    intercept: NDArray[np.float64]
    root: NDArray[np.float64]

    @property
    def full(self) -> bool:
        """Whether the noise of features is dependent."""
        return self.root.ndim == 2

    @property
    def log_root(self) -> NDArray[np.float64]:
        """Log of the diagonal of L (M,), whose sum is half of log |precision|."""
        return np.log(np.diagonal(self.root) if self.full else self.root)

    def whiten(self, residuals: NDArray) -> NDArray[np.float64]:
        """Scale residuals (..., M) so that their noise is standard normal."""
        return residuals @ self.root if self.full else residuals * self.root

    def whitened_projection(self) -> NDArray[np.float64]:
        """Return L' W, the projection of whitened residuals."""
        return self.root.T @ self.projection if self.full else self.root[:, None] * self.projection

    @property
    def precision(self) -> NDArray[np.float64]:
        """The noise precision (M, M), or its diagonal (M,)."""
        return self.root @ self.root.T if self.full else self.root**2

    def whitened(self, data: DomainData) -> DomainData:
        """Whiten a domain's data; missing values stay zero."""
        values = self.whiten(data.values - self.intercept)
        if data.observed is not None:
            values[~data.observed] = 0.0
        return DomainData(np.ascontiguousarray(values), data.observed)

    def log_constants(self, data: DomainData) -> NDArray[np.float64]:
        """Return the log normaliser of every object (N,)."""
        each = self.log_root - 0.5 * _LOG_2PI
        if data.observed is None:
            return np.full(len(data.values), each.sum())
        return data.weights @ each


def with_deviations(
    projection: NDArray,
    number: int,
    scales: Sequence[NDArray | None],
    latent_precision: float,
) -> NDArray[np.float64]:
    """Append to a domain's projection (M_d, K) the factors of all domains' deviations.

    Parameters
    ----------
    projection : (M_d, K) array
    number : int
        Of the domain.
    scales : sequence of (M_d,) array or None
        Standard deviations of each domain's deviations; None if it has none.
    latent_precision : float
        r: prior precision that all factors have.

    Returns
    -------
    (M_d, K + sum of M_e over domains e with deviations) array
    """
    widths = [0 if s is None else len(s) for s in scales]
    n_factors = projection.shape[1]
    whole = np.zeros((len(projection), n_factors + sum(widths)))
    whole[:, :n_factors] = projection
    own = scales[number]
    if own is not None:
        first = n_factors + sum(widths[:number])
        features = np.arange(len(own))
        whole[features, first + features] = own * np.sqrt(latent_precision)
    return whole


def split_deviations(
    latent: NDArray, n_factors: int, scales: Sequence[NDArray | None], latent_precision: float
) -> tuple[NDArray[np.float64], list[NDArray[np.float64] | None]]:
    """Take drawn factors (T, K') apart: latent vectors (T, K), and each domain's deviations."""
    found: list[NDArray[np.float64] | None] = []
    start = n_factors
    for s in scales:
        if s is None:
            found.append(None)
            continue
        drawn = latent[:, start : start + len(s)]
        found.append(drawn * (s * np.sqrt(latent_precision)))
        start += len(s)
    return np.ascontiguousarray(latent[:, :n_factors]), found
