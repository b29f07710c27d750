r"""What draws say of values that were not seen, one normal distribution a draw and cluster.

Given the cluster, its factors :math:`z \sim N(\nu, R R^\top)` (see `clusters`) and the features
:math:`x_o` that were seen of the object itself, features y in the noise of the same domain are

.. math:: y \sim N(a_y + B (x_o - a_o) + D \nu,\; D R R^\top D^\top + \Sigma_{yy} - B
          \Sigma_{oy}), \quad B = \Sigma_{yo} \Sigma_{oo}^{-1}, \quad D = W_y - B W_o

and those of another domain, or of another object of the cluster, the same with B = 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_match.features.marginals import Marginal
from pm_match.features.predictive import covariance
from pm_match.prediction.mixture import mixture_mean, mixture_quantiles

# How many components' means and deviations are held at a time.
_MOST_HELD = 2**23
# Components with less of a draw's weight than this are left out.
_LOG_NEGLIGIBLE = log(1e-9)


@dataclass(frozen=True, eq=False)
class Outlook:
    """Values as a function of the factors of their cluster.

    Attributes
    ----------
    base : (M,) or (N, 1, M) array
        a_y + B (x_o - a_o).
    loading : (M, K) array
        D.
    variance : (M,) array
        Of the noise that is left.
    """

    base: NDArray[np.float64]
    loading: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def fresh(cls, marginal: Marginal) -> "Outlook":
        """Look at the features of another object of a cluster."""
        return cls(
            marginal.intercept, marginal.projection, np.diagonal(covariance(marginal)).copy()
        )

    @classmethod
    def unseen(cls, marginal: Marginal, seen: NDArray[np.bool_], x: NDArray) -> "Outlook":
        """Look at the features of objects that are not `seen`, next to those (N, M_o) that are."""
        noise, hidden = covariance(marginal), ~seen
        b = np.linalg.solve(noise[np.ix_(seen, seen)], noise[np.ix_(seen, hidden)]).T
        base = marginal.intercept[hidden] + (x - marginal.intercept[seen])[:, None] @ b.T
        loading = marginal.projection[hidden] - b @ marginal.projection[seen]
        left = noise[np.ix_(hidden, hidden)] - b @ noise[np.ix_(seen, hidden)]
        return cls(base, loading, np.diagonal(left).copy())

    def means(self, factors: NDArray) -> NDArray[np.float64]:
        """Return means (..., J, M) by the factors' means (..., J, K)."""
        return self.base + factors @ self.loading.T

    def deviations(self, root: NDArray) -> NDArray[np.float64]:
        """Return standard deviations (J, M) by the roots (J, K, K) of the factors' covariances."""
        return np.sqrt(np.square(self.loading @ root).sum(axis=2) + self.variance)


class Components:
    """The components of N objects' mixtures, collected over draws.

    Parameters
    ----------
    n : int
    n_values : int
        M.
    """

    def __init__(self, n: int, n_values: int):
        self.n, self.n_values = n, n_values
        self._parts: list[tuple[NDArray, ...]] = []

    def add(self, rows: NDArray, log_weight: NDArray, mean: NDArray, sd: NDArray) -> None:
        """Add the components of a draw, but for those that have next to none of its weight.

        Parameters
        ----------
        rows : (N',) integer array
            Whose they are.
        log_weight : (N', J) array
        mean : (N', J, M) or (1, J, M) array
        sd : (J, M) array
        """
        if not log_weight.size:
            return
        top = log_weight.max(axis=1, keepdims=True)
        which, cluster = np.nonzero((log_weight > top + _LOG_NEGLIGIBLE) & np.isfinite(log_weight))
        own = which if len(mean) > 1 else np.zeros_like(which)
        self._parts.append(
            (rows[which], log_weight[which, cluster], mean[own, cluster], sd[cluster])
        )

    def summaries(self, levels: NDArray) -> NDArray[np.float64]:
        """Return every object's mean, then its quantiles (1 + Q, N, M); NaN without components."""
        found = np.full((1 + len(levels), self.n, self.n_values), np.nan)
        if not self._parts:
            return found
        owner, log_weight, mean, sd = (
            np.concatenate(part) for part in zip(*self._parts, strict=True)
        )
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(self.n + 1))
        for i in range(self.n):
            own = order[ends[i] : ends[i + 1]]
            if len(own):
                weight = np.exp(log_weight[own] - log_weight[own].max())
                found[0, i] = mixture_mean(weight, mean[own])
                found[1:, i] = mixture_quantiles(weight, mean[own], sd[own], levels)
        return found


def blocks(n: int, n_draws: int, n_values: int) -> Iterator[slice]:
    """Split objects so that the components of a block's mixtures fit into memory."""
    size = max(1, _MOST_HELD // max(n_draws * n_values, 1))
    for first in range(0, n, size):
        yield slice(first, min(first + size, n))
