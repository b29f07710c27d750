r"""Projections given an assignment: the collapsed objective that MAP climbs.

It sees the data only through each cluster's sums and counts *per feature*, :math:`S_{jm} = \sum_{n
\in j} h_{nm} x_{nm}` and :math:`N_{jm} = \sum_{n \in j} h_{nm}`, where :math:`h` marks what is
observed, of data that are shifted and whitened. All domains' features stand one below the other in
one matrix :math:`W` with rows :math:`w_m`.
"""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.projected_normal import draw_latent
from pm_match.numerics.cholesky import factorise, invert, solve_lower, solve_upper
from pm_match.numerics.kernels import entry


@entry
def climb(w, sums, counts, shape, rate, r, precision, linear, work, vectors, gradient):
    r"""Collapsed log joint as a function of the projections, and its gradient.

    .. math:: L(W) = -a' \log b' + \tfrac12 \sum_j \log |C_j|

    (Iwata, Hirao & Ueda 2016, eq. 4, what depends on W), whose gradient in row :math:`m` is

    .. math:: -\sum_j N_{jm} \left(C_j + \tfrac{a'}{b'} \mu_j \mu_j^\top\right) w_m
              + \tfrac{a'}{b'} \sum_j S_{jm} \mu_j .

    With nothing missing this is eq. (18). Eq. (27), for missing values, counts objects where it
    must count each feature's observed values, as here. If no precision is integrated out, the first
    term is :math:`-b'`, and 1 stands for :math:`a' / b'`.

    Parameters
    ----------
    w : (M, K) array
    sums, counts : (J, M) array
        Of the occupied clusters.
    shape : float
        Posterior a'; 0 if no precision is integrated out.
    rate : float
        b plus half the sum of squares: b' before what the clusters explain.
    r : float
        Precision of the latent vectors over that of the noise.
    precision, linear : (J + 1, K, K), (J + 1, K) array
        Filled with the inverse of C_j and m_j in slots 1 ... J; slot 0 with the prior's.
    work, vectors : (3, K, K), (2, K) array
        Scratch.
    gradient : (M, K) array
        Filled.

    Returns
    -------
    value, rate : float
        L(W), and b'.
    """
    n_clusters, n_features = sums.shape
    n_factors = w.shape[1]
    lower, scratch, inverse = work[0], work[1], work[2]
    vector, mean = vectors[0], vectors[1]
    value = 0.0
    for slot in range(n_clusters + 1):
        for k in range(n_factors):
            linear[slot, k] = 0.0
            for i in range(n_factors):
                precision[slot, k, i] = r if i == k else 0.0
        if slot == 0:
            continue
        for m in range(n_features):
            count = counts[slot - 1, m]
            total = sums[slot - 1, m]
            for k in range(n_factors):
                linear[slot, k] += total * w[m, k]
                for i in range(k + 1):
                    precision[slot, k, i] += count * w[m, k] * w[m, i]
        for k in range(n_factors):
            for i in range(k):
                precision[slot, i, k] = precision[slot, k, i]
        value -= 0.5 * factorise(precision[slot], lower)
        rate -= 0.5 * solve_lower(lower, linear[slot], vector)
    ratio = shape / rate if shape > 0.0 else 1.0
    for m in range(n_features):
        for k in range(n_factors):
            gradient[m, k] = 0.0
    for slot in range(1, n_clusters + 1):
        factorise(precision[slot], lower)
        solve_lower(lower, linear[slot], vector)
        solve_upper(lower, vector, mean)
        invert(lower, scratch, inverse)
        for k in range(n_factors):
            for i in range(n_factors):
                inverse[k, i] += ratio * mean[k] * mean[i]
        for m in range(n_features):
            count = counts[slot - 1, m]
            total = ratio * sums[slot - 1, m]
            for k in range(n_factors):
                pull = 0.0
                for i in range(n_factors):
                    pull += inverse[k, i] * w[m, i]
                gradient[m, k] += total * mean[k] - count * pull
    return value - (shape * log(rate) if shape > 0.0 else rate), rate


class ProjectionObjective:
    """L(W) for one assignment, ready for an optimiser; see `climb`.

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
        held = np.sum([own.counts.sum(axis=1) for own in sums], axis=0) > 0.0
        self.slot_of = np.where(held, np.cumsum(held), 0)
        totals, counts, squares, n_values = [], [], 0.0, 0
        for own, emission in zip(sums, emissions, strict=True):
            each = np.broadcast_to(own.counts, own.sums.shape)[held]
            totals.append(emission.whiten(own.shifted(emission.intercept).sums)[held])
            counts.append(each)
            squares += own.noise(emission)[1]
            n_values += int(each.sum())
        self._sums, self._counts = np.hstack(totals), np.hstack(counts)
        shape, rate = (0.0, 0.0) if gamma is None else gamma
        shape += 0.0 if gamma is None else 0.5 * n_values
        self._hyper = float(shape), float(rate + 0.5 * squares), float(latent_precision)
        self._ends = np.cumsum([len(emission.intercept) for emission in emissions])[:-1]
        self._whole = np.concatenate([emission.whitened_projection() for emission in emissions])
        slots, k = int(held.sum()) + 1, self._whole.shape[1]
        self._precision, self._linear = np.empty((slots, k, k)), np.empty((slots, k))
        self._work, self._vectors = np.empty((3, k, k)), np.empty((2, k))

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
        value, _, gradient = self._climb(flat.reshape(-1, self.n_factors))
        return -value, -gradient[:, : self.n_factors].ravel()

    def _climb(self, whitened: NDArray):
        whole, gradient = self._whole, np.empty(self._whole.shape)
        whole[:, : self.n_factors] = whitened
        value, rate = climb(
            whole,
            self._sums,
            self._counts,
            *self._hyper,
            self._precision,
            self._linear,
            self._work,
            self._vectors,
            gradient,
        )
        return value, rate, gradient

    def draw(self, rng: np.random.Generator, whitened) -> tuple[float, NDArray[np.float64]]:
        """Draw the shared precision and the factors (T, K') given the projections."""
        _, rate, _ = self._climb(whitened)
        shape, k = self._hyper[0], self._whole.shape[1]
        factors = np.empty((len(self.slot_of), k))
        alpha = draw_latent(
            rng,
            self._precision,
            self._linear,
            self.slot_of,
            shape,
            rate if shape > 0.0 else 0.0,
            np.empty((k, k)),
            np.empty(k),
            factors,
        )
        return alpha, factors
