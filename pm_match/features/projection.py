r"""Projections given an assignment: the collapsed objective that MAP climbs.

.. math:: L(W) = -a' \log b' + \tfrac12 \sum_j \log |C_j|

(Iwata, Hirao & Ueda 2016, eq. 4, what depends on W), or :math:`-b'` in place of the first term if
no precision is integrated out. It sees the data only through each cluster's sums and counts *per
feature*, :math:`S_{jm} = \sum_{n \in j} h_{nm} x_{nm}` and :math:`N_{jm} = \sum_{n \in j} h_{nm}`,
where :math:`h` marks what is observed, of data that are shifted and whitened. All domains' features
stand one below the other in one matrix :math:`W` with rows :math:`w_m`.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.projection_fit import fill_gradient, new_table


class ProjectionObjective:
    """L(W) for one assignment, ready for an optimiser.

    What is optimised are the projections of shifted and whitened data: see `whitened`.

    Parameters
    ----------
    sums : sequence of ClusterSums
        Of every domain; empty clusters are left out. Not of missing values in dependent noise.
    emissions : sequence of Emission
        Their projections of deviations stay as they are.
    latent_precision : float
    n_factors : int
        K, without those of deviations.
    gamma : (float, float), optional
        Prior of the precision that all noise and the latent vectors share.

    Attributes
    ----------
    occupied : (J,) integer array
        The clusters that are not empty.
    """

    def __init__(
        self,
        sums: Sequence[ClusterSums],
        emissions: Sequence[Emission],
        latent_precision: float,
        n_factors: int,
        gamma: tuple[float, float] | None = None,
    ):
        self.emissions, self.n_factors = emissions, n_factors
        self.occupied = np.flatnonzero(np.sum([own.counts.sum(axis=1) for own in sums], axis=0))
        totals, counts, widths, squares = [], [], [], 0.0
        for own, emission in zip(sums, emissions, strict=True):
            totals.append(emission.whiten(own.shifted(emission.intercept).sums)[self.occupied])
            counts.append(own.counts[self.occupied])
            n_blocks = counts[-1].shape[1]
            widths += [len(emission.intercept) // n_blocks] * n_blocks
            squares += own.noise(emission)[1]
        whole = np.concatenate([emission.whitened_projection() for emission in emissions])
        total, number = np.hstack(totals), np.hstack(counts)
        shape, rate = (0.0, 0.0) if gamma is None else gamma
        shape += 0.0 if gamma is None else 0.5 * float((number @ widths).sum())
        n, k = len(self.occupied), whole.shape[1]
        # What of the log evidence the projections do not enter is left out.
        hyper = shape, rate + 0.5 * squares, latent_precision, -0.5 * n * k * log(latent_precision)
        held, ones = np.ones(n, np.int64), np.ones(n - 1)
        table = new_table(total, number, widths, held, hyper, (ones, ones), k)
        # Every cluster is a group of its own.
        self.table = table._replace(
            total=table.sums, number=table.counts, sorted=np.arange(n), w=whole
        )
        self._ends = np.cumsum([len(emission.intercept) for emission in emissions])[:-1]

    def whitened(self, projections: Sequence[NDArray]) -> NDArray[np.float64]:
        """Return what is optimised (M, K), all domains' one below the other."""
        return np.concatenate(
            [e.root.T @ w if e.full else e.root[:, None] * w for e, w in self._pairs(projections)]
        )

    def projections(self, whitened: NDArray) -> list[NDArray[np.float64]]:
        """Return the projections (M_d, K) of what is optimised."""
        return [
            np.linalg.solve(e.root.T, w) if e.full else w / e.root[:, None]
            for e, w in self._pairs(np.split(whitened, self._ends))
        ]

    def _pairs(self, projections: Sequence[NDArray]):
        return zip(self.emissions, projections, strict=True)

    def __call__(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return -L and its gradient at raveled `whitened` projections (M * K,)."""
        k, gradient = self.n_factors, np.empty(self.table.w.shape)
        self.table.w[:, :k] = flat.reshape(-1, k)
        value = fill_gradient(self.table, len(self.occupied), gradient)
        return -value, -gradient[:, :k].ravel()
