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

from pm_match.features.data import DomainData
from pm_match.features.emission import Emission
from pm_match.prediction.mixture import mixture_mean, mixture_quantiles
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive
from pm_match.progress import PATIENCE, SearchProgress

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
    def fresh(cls, emission: Emission) -> "Outlook":
        """Look at the features of another object of a cluster."""
        return cls(emission.intercept, emission.projection, np.diagonal(emission.covariance).copy())

    @classmethod
    def unseen(cls, emission: Emission, seen: NDArray[np.bool_], x: NDArray) -> "Outlook":
        """Look at the features of objects that are not `seen`, next to those (N, M_o) that are."""
        noise, hidden = emission.covariance, ~seen
        b = np.linalg.solve(noise[np.ix_(seen, seen)], noise[np.ix_(seen, hidden)]).T
        base = emission.intercept[hidden] + (x - emission.intercept[seen])[:, None] @ b.T
        loading = emission.projection[hidden] - b @ emission.projection[seen]
        left = noise[np.ix_(hidden, hidden)] - b @ noise[np.ix_(seen, hidden)]
        return cls(base, loading, np.diagonal(left).copy())

    def means(self, factors: NDArray) -> NDArray[np.float64]:
        """Return means (..., J, M) by the factors' means (..., J, K)."""
        return self.base + factors @ self.loading.T

    def deviations(self, root: NDArray) -> NDArray[np.float64]:
        """Return standard deviations (J, M) by the roots (J, K, K) of the factors' covariances."""
        return np.sqrt(np.square(self.loading @ root).sum(axis=2) + self.variance)


def entries(
    emission: Emission,
    data: DomainData,
    factors: NDArray,
    root: NDArray,
    cluster: NDArray[np.int64],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Look at missing entries of a domain's own table.

    Parameters
    ----------
    emission : Emission
    data : DomainData
    factors, root : (J, K), (J, K, K) array
        Means of the clusters' factors, and roots of their covariances.
    cluster : (N,) integer array
        Of every object.
    row, column : (E,) integer array

    Returns
    -------
    mean, standard deviation : (E,) array
    """
    if not emission.full:
        outlook = Outlook.fresh(emission)
        own = cluster[row], column
        return outlook.means(factors)[own], outlook.deviations(root)[own]
    observed, pattern = data.patterns
    mean, sd = np.empty((2, len(row)))
    for p in np.unique(pattern[row]):
        seen, here = observed[p], np.flatnonzero(pattern[row] == p)
        n, place = row[here], (np.cumsum(~observed[p]) - 1)[column[here]]
        outlook = Outlook.unseen(emission, seen, data.values[n][:, seen])
        explained = np.einsum("ek,ek->e", factors[cluster[n]], outlook.loading[place])
        mean[here] = outlook.base[np.arange(len(n)), 0, place] + explained
        sd[here] = outlook.deviations(root)[cluster[n], place]
    return mean, sd


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


def predicted(
    points: RecordedPoints, predictive: Predictive, n: int, n_values: int, progressbar: bool
) -> Iterator[tuple[slice, Iterator[int]]]:
    """Split objects so that the components of a block's mixtures fit into memory.

    Yields
    ------
    slice, iterator of int
        A block, and the numbers of the draws, to each of which `predictive` is brought in turn.
    """
    size = max(1, _MOST_HELD // max(points.n_draws * n_values, 1))
    blocks = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    total = len(blocks) * points.n_draws
    with SearchProgress(total, progressbar, PATIENCE, "Predicting") as progress:

        def draws() -> Iterator[int]:
            for number, point in enumerate(points):
                predictive.load(point)
                yield number
                progress.advance()

        for rows in blocks:
            yield rows, draws()
