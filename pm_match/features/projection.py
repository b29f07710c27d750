r"""Projections given an assignment: the collapsed objective that MAP climbs, and the Gibbs draw.

Both see the data of the projected normal term only through each cluster's sums and counts *per
feature*, :math:`S_{jm} = \sum_{n \in j} h_{nm} x_{nm}` and :math:`N_{jm} = \sum_{n \in j} h_{nm}`,
where :math:`h` marks what is observed. All domains' features stand one below the other in one
matrix :math:`W` with rows :math:`w_m`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_match.features.projected_normal import DomainData, draw_latent
from pm_match.numerics.cholesky import factorise, invert, solve_lower, solve_upper
from pm_match.numerics.kernels import entry


@entry
def add_up(values, labels, sums):
    """Add the rows of `values` (N, M) to the rows of `sums` (T, M) that `labels` (N,) name."""
    for n in range(values.shape[0]):
        label = labels[n]
        for m in range(values.shape[1]):
            sums[label, m] += values[n, m]


@entry
def climb(w, sums, counts, shape, rate, r, precision, linear, work, vectors, gradient):
    r"""Collapsed log joint as a function of the projections, and its gradient.

    .. math:: L(W) = -a' \log b' + \tfrac12 \sum_j \log |C_j|

    (Iwata, Hirao & Ueda 2016, eq. 4, what depends on W), whose gradient in row :math:`m` is

    .. math:: -\sum_j N_{jm} \left(C_j + \tfrac{a'}{b'} \mu_j \mu_j^\top\right) w_m
              + \tfrac{a'}{b'} \sum_j S_{jm} \mu_j .

    With nothing missing this is eq. (18). Eq. (27), for missing values, counts objects where it
    must count each feature's observed values, as here.

    Parameters
    ----------
    w : (M, K) array
    sums, counts : (J, M) array
        Of the occupied clusters.
    shape : float
        Posterior a'.
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
    ratio = shape / rate
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
    return value - shape * log(rate), rate


@dataclass
class ClusterSums:
    """Per-feature sums and counts of the clusters of one assignment.

    Attributes
    ----------
    sums, counts : (T, M) array
        All domains' features side by side.
    occupied : (J,) integer array
        The labels that hold something.
    slot_of : (T,) integer array
        1 + position among the occupied ones, 0 for an empty label.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    occupied: NDArray[np.int64]
    slot_of: NDArray[np.int64]

    @classmethod
    def of(cls, domains: Sequence[DomainData], labels: Sequence[NDArray[np.int64]], truncation):
        """Sum the `domains` by their objects' `labels` (N_d,)."""
        sums, counts = [], []
        held = np.zeros(truncation, np.int64)
        for domain, label in zip(domains, labels, strict=True):
            n_features = domain.values.shape[1]
            total = np.zeros((truncation, n_features))
            add_up(domain.values, label, total)
            objects = np.bincount(label, minlength=truncation)
            held += objects
            if domain.observed is None:
                count = np.repeat(objects[:, None].astype(float), n_features, axis=1)
            else:
                count = np.zeros((truncation, n_features))
                add_up(domain.weights, label, count)
            sums.append(total)
            counts.append(count)
        occupied = np.flatnonzero(held)
        slot_of = np.zeros(truncation, np.int64)
        slot_of[occupied] = np.arange(1, len(occupied) + 1)
        return cls(np.hstack(sums), np.hstack(counts), occupied, slot_of)

    def renamed(self, names: NDArray[np.int64]) -> "ClusterSums":
        """Return the sums when label j has become ``names[j]``, a permutation (T,)."""
        old = np.argsort(names)
        occupied = np.sort(names[self.occupied])
        slot_of = np.zeros(len(names), np.int64)
        slot_of[occupied] = np.arange(1, len(occupied) + 1)
        return ClusterSums(self.sums[old], self.counts[old], occupied, slot_of)


class ProjectionObjective:
    """L(W) for one assignment, ready for an optimiser; see `climb`.

    Parameters
    ----------
    clusters : ClusterSums
    shape, rate, latent_precision : float
        As in `climb`.
    n_factors : int
    """

    def __init__(self, clusters: ClusterSums, shape, rate, latent_precision, n_factors: int):
        self._clusters = clusters
        self._sums = clusters.sums[clusters.occupied]
        self._counts = clusters.counts[clusters.occupied]
        self._hyper = (float(shape), float(rate), float(latent_precision))
        slots = len(clusters.occupied) + 1
        self._precision = np.empty((slots, n_factors, n_factors))
        self._linear = np.empty((slots, n_factors))
        self._work = np.empty((3, n_factors, n_factors))
        self._vectors = np.empty((2, n_factors))
        self._shape = (self._sums.shape[1], n_factors)

    def __call__(self, flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return -L and its gradient at the raveled projections `flat` (M * K,)."""
        gradient = np.empty(self._shape)
        value, _ = self._climb(flat.reshape(self._shape), gradient)
        return -value, -gradient.ravel()

    def _climb(self, w, gradient):
        return climb(
            w,
            self._sums,
            self._counts,
            *self._hyper,
            self._precision,
            self._linear,
            self._work,
            self._vectors,
            gradient,
        )

    def draw(self, rng: np.random.Generator, w) -> tuple[float, NDArray[np.float64]]:
        """Draw the precision and the latent vectors (T, K) given the projections `w` (M, K)."""
        _, rate = self._climb(w, np.empty(self._shape))
        n_factors = self._shape[1]
        latent = np.empty((len(self._clusters.slot_of), n_factors))
        alpha = draw_latent(
            rng,
            self._precision,
            self._linear,
            self._clusters.slot_of,
            self._hyper[0],
            rate,
            np.empty((n_factors, n_factors)),
            np.empty(n_factors),
            latent,
        )
        return alpha, latent


def draw_projection(rng, clusters: ClusterSums, latent, alpha, mean, precision):
    r"""Draw projections under independent normal priors from their exact conditional.

    Row :math:`m` is normal with precision :math:`A_m = \mathrm{diag}(\tau_m) + \alpha \sum_j N_{jm}
    z_j z_j^\top` and mean :math:`A_m^{-1} (\tau_m \circ \mu_m + \alpha \sum_j S_{jm} z_j)`.

    Parameters
    ----------
    rng : numpy.random.Generator
    clusters : ClusterSums
    latent : (T, K) array
    alpha : float
        Noise precision.
    mean, precision : (M, K) array
        Of the prior, entry by entry.

    Returns
    -------
    (M, K) array
    """
    noise = np.full(len(mean), float(alpha))
    return draw_rows(rng, clusters.sums, clusters.counts, latent, noise, mean, precision)


def draw_rows(rng, sums, counts, latent, noise, mean, precision):
    """Draw projections row by row, from cluster sums: `draw_projection`, a precision a feature.

    Parameters
    ----------
    rng : numpy.random.Generator
    sums, counts : (J, M) array
        Of the observed values of every cluster.
    latent : (J, K) array
    noise : (M,) array
        Noise precision of every feature.
    mean, precision : (M, K) array
        Of the prior, entry by entry.

    Returns
    -------
    (M, K) array
    """
    n_features, k = mean.shape
    outer = (latent[:, :, None] * latent[:, None, :]).reshape(len(latent), k * k)
    a = noise[:, None, None] * (counts.T @ outer).reshape(n_features, k, k)
    a[:, np.arange(k), np.arange(k)] += precision
    b = precision * mean + noise[:, None] * (sums.T @ latent)
    lower = np.linalg.cholesky(a)
    deviation = rng.standard_normal((n_features, k))
    whitened = np.linalg.solve(lower, b[:, :, None]) + deviation[:, :, None]
    return np.linalg.solve(lower.transpose(0, 2, 1), whitened)[:, :, 0]
