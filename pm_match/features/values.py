r"""What draws say of values that were not seen, one normal distribution a draw and cluster.

Given the cluster, its factors :math:`z \sim N(\nu, R R^\top)` (see `clusters`) and the features
:math:`x_o` that were seen of the object itself, features y in the noise of the same domain are

.. math:: y \sim N(a_y + B (x_o - a_o) + D \nu,\; D R R^\top D^\top + \Sigma_{yy} - B
          \Sigma_{oy}), \quad B = \Sigma_{yo} \Sigma_{oo}^{-1}, \quad D = W_y - B W_o

and those of another domain, or of another object of the cluster, the same with B = 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.numerics.masked import MaskedTable


@dataclass(frozen=True, eq=False)
class Outlook:
    """Values as a function of the factors of their cluster."""

    base: NDArray[np.float64]  # (M,) or (N, 1, M): a_y + B (x_o - a_o)
    loading: NDArray[np.float64]  # (M, K): D
    variance: NDArray[np.float64]  # (M,): of the noise that is left

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
    data: MaskedTable,
    factors: NDArray,
    root: NDArray,
    cluster: NDArray[np.int64],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Look at missing entries of a domain's own table.

    `factors`, `root` (J, K), (J, K, K): means of the clusters' factors, and roots of their
    covariances; `cluster` (N,): of every object; `row`, `column` (E,). Return `mean`,
    `standard deviation` (E,).
    """
    if not emission.full:
        outlook = Outlook.fresh(emission)
        own = cluster[row], column
        return outlook.means(factors)[own], outlook.deviations(root)[own]
    observed, pattern = data.patterns, data.index
    mean, sd = np.empty((2, len(row)))
    for p in np.unique(pattern[row]):
        seen, here = observed[p], np.flatnonzero(pattern[row] == p)
        n, place = row[here], (np.cumsum(~observed[p]) - 1)[column[here]]
        outlook = Outlook.unseen(emission, seen, data.values[n][:, seen])
        explained = np.einsum("ek,ek->e", factors[cluster[n]], outlook.loading[place])
        mean[here] = outlook.base[np.arange(len(n)), 0, place] + explained
        sd[here] = outlook.deviations(root)[cluster[n], place]
    return mean, sd


def normals(mean: NDArray, sd: NDArray) -> NDArray[np.float64]:
    """Put means and standard deviations together as parameters (..., 2) of a `NormalLaw`."""
    return np.stack(np.broadcast_arrays(mean, sd), axis=-1)
