r"""What a draw says of the features of objects in each cluster, latent vectors integrated out.

Given the assignments, intercepts :math:`a_d`, projections :math:`W_d` and noise precisions
:math:`\Lambda_d` of a draw, the factors of cluster j (deviations included) are
:math:`N(C_j m_j, C_j)` (see `evidence.feature_sums`). A new object whose observed features are
:math:`x_o` joins it with the log predictive

.. math:: \log N(x_o;\, a_o,\, \Lambda_o^{-1}) + \tfrac12 \log \frac{|C_{j+}|}{|C_j|}
          + \tfrac12 (m_{j+}^\top C_{j+} m_{j+} - m_j^\top C_j m_j), \quad
          C_{j+}^{-1} = C_j^{-1} + W_o^\top \Lambda_o W_o, \quad
          m_{j+} = m_j + W_o^\top \Lambda_o (x_o - a_o)

which is eq. (13) of Iwata, Hirao & Ueda (2016) but for the noise precision, which is given here.
With the new object in it, the factors of the cluster are :math:`N(C_{j+} m_{j+}, C_{j+})`.

Where the densities of the data count to a power (`coarsen`), so they do in :math:`C_j` and
:math:`m_j`; the density of a new object counts in full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import contribution, posterior
from pm_match.features.parts import FeatureDomain
from pm_match.numerics.masked import MaskedTable


@dataclass(frozen=True, eq=False)
class Clusters:
    """The factors of all clusters in a draw, and how the features of each domain show them."""

    emissions: Sequence[Emission]  # of every domain with features
    # precision, linear (J, K, K), (J, K): The inverse of C_j, and m_j. All empty clusters are
    # alike, and have one row.
    precision: NDArray[np.float64]
    linear: NDArray[np.float64]
    row: NDArray[np.int64]  # (T,): the row of every cluster

    @classmethod
    def of(
        cls,
        domains: Sequence[FeatureDomain],
        labels: Sequence[NDArray[np.int64]],
        emissions: Sequence[Emission],
        latent_precision: float,
        n_clusters: int,
    ) -> "Clusters":
        """Sum up the features of every domain by its objects' labels, -1 for irrelevant ones."""
        everyone = np.concatenate(labels)
        occupied, place = np.unique(everyone[everyone >= 0], return_inverse=True)
        row = np.full(n_clusters, len(occupied))
        row[occupied] = np.arange(len(occupied))
        rows = np.full(len(everyone), -1)
        rows[everyone >= 0] = place
        parts = np.split(rows, np.cumsum([len(label) for label in labels])[:-1])
        own = [
            contribution(domain.sums(part, len(occupied) + 1), emission)
            for domain, part, emission in zip(domains, parts, emissions, strict=True)
        ]
        return cls(emissions, *posterior(own, latent_precision), row)

    @cached_property
    def _lower(self) -> NDArray[np.float64]:
        return np.linalg.cholesky(self.precision)

    @cached_property
    def _before(self) -> NDArray[np.float64]:
        """Half of log |C_j| + m_j' C_j m_j, without the new object (J,)."""
        explained = np.linalg.solve(self._lower, self.linear[:, :, None])[:, :, 0]
        return 0.5 * np.square(explained).sum(axis=1) - _log_diagonal(self._lower)

    def factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean (J, K) of the factors, and a root R (J, K, K) of their covariance R R'."""
        root = np.linalg.inv(self._lower).transpose(0, 2, 1)
        return np.linalg.solve(self.precision, self.linear[:, :, None])[:, :, 0], root


class Joined:
    """Clusters as they are with each of some objects in them.

    `emission`: of the M features that are observed; `x` (N, M).
    """

    def __init__(self, clusters: Clusters, emission: Emission, x: NDArray):
        own = emission.statistics(MaskedTable(x))
        self.clusters, self._log_noise = clusters, own.constants - 0.5 * own.squares
        self._lower = np.linalg.cholesky(clusters.precision + own.gram[0])
        # L^-1 m_{j+}, for all objects side by side: (J, K, N).
        together = clusters.linear[:, :, None] + own.projected.T[None]
        self._solved = np.linalg.solve(self._lower, together)

    def log_density(self) -> NDArray[np.float64]:
        """Log predictive of every object (N) in every cluster (T)."""
        after = 0.5 * np.square(self._solved).sum(axis=1).T - _log_diagonal(self._lower)
        return (self._log_noise[:, None] + after - self.clusters._before)[:, self.clusters.row]

    def factors(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean (N, J, K) of the factors, and a root R (J, K, K) of their covariance R R'."""
        upper = self._lower.transpose(0, 2, 1)
        return np.linalg.solve(upper, self._solved).transpose(2, 0, 1), np.linalg.inv(upper)


def _log_diagonal(lower: NDArray) -> NDArray[np.float64]:
    """Log determinants of triangular matrices (..., K, K)."""
    return np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)
