r"""The evidence of features as a function of everything but the assignment.

Given the clusters, the data of a domain enter through sums alone: objects and features per cluster,
and the scatter of all. From these the evidence with latent vectors (and deviations, see
`emission`) integrated out costs nothing that grows with the number of objects,

.. math:: \log p(X \mid s, a, W, \Lambda) = \sum_d \left[ \tfrac{N_d}{2} \log |\Lambda_d / 2\pi|
          - \tfrac12 \mathrm{tr}\, \Lambda_d T_d \right] + \tfrac12 \sum_j \left[ K \log r +
          \log |C_j| + m_j^\top C_j m_j \right]

with :math:`T_d` the scatter about the intercept, :math:`C_j^{-1} = rI + \sum_d N_{dj} W_d^\top
\Lambda_d W_d` and :math:`m_j = \sum_d W_d^\top \Lambda_d (S_{dj} - N_{dj} a_d)`. With missing
values every feature has its own counts if the noise is independent; otherwise objects of which the
same features are observed have sums of their own, and a precision :math:`\Lambda_o`. Where
densities count to a power (`coarsen`), every object counts that much of one in all sums.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import lgamma, log, pi

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from pm_match.features.emission import Emission, block_roots
from pm_match.numerics.kept import Kept
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.sums import add_up

_LOG_2PI = log(2.0 * pi)


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Sums of one domain's features over its relevant objects, by cluster.

    Where values are missing and the noise is dependent, by cluster and by what is observed.
    """

    n_clusters: int  # J
    sums: NDArray[np.float64]  # (R, M)
    # (R, M) or (R, 1): observed values behind them, the same for all features if nothing is
    # missing; objects if there are patterns
    counts: NDArray[np.float64]
    # (P, M, M) or (M,): sum of x x' over the objects of each pattern; of x^2 if the noise is
    # independent
    scatter: NDArray[np.float64]
    # cluster, pattern (R,): Of every row. Without patterns, row j is cluster j.
    cluster: NDArray[np.int64]
    pattern: NDArray[np.int64]
    # (P, M): the patterns: one, unless values are missing and the noise is dependent
    observed: NDArray[np.bool_]
    _kept: Kept = field(default_factory=Kept, repr=False)

    @classmethod
    def of(
        cls,
        data: MaskedTable,
        labels: NDArray[np.int64],
        n_clusters: int,
        full: bool = False,
        power: float = 1.0,
    ) -> "ClusterSums":
        """Sum a domain by `labels` (N,) in 0 ... n_clusters - 1, -1 for irrelevant objects.

        `full`: whether the noise of features is dependent; `power`: how much of one each object
        counts.
        """
        x, m = data.values, data.values.shape[1]
        kept = labels >= 0
        everyone = bool(kept.all())
        cluster, pattern = np.arange(n_clusters), np.zeros(n_clusters, np.int64)
        observed = np.ones((1, m), np.bool_)
        by_pattern = full and data.observed is not None
        row = labels
        if by_pattern:
            observed, own = data.patterns, data.index
            codes, place = np.unique(labels[kept] * len(observed) + own[kept], return_inverse=True)
            cluster, pattern = np.divmod(codes, len(observed))
            row = np.full(len(labels), -1)
            row[kept] = place.reshape(-1)
        sums = np.zeros((len(cluster), m))
        add_up(x, row, sums)
        if data.observed is None or by_pattern:
            counts = np.bincount(row[kept], minlength=len(cluster))[:, None].astype(float)
        else:
            counts = np.zeros((len(cluster), m))
            add_up(data.weights, row, counts)
        if not full:
            scatter = data.column_squares if everyone else np.square(x[kept]).sum(axis=0)
        elif by_pattern:
            scatter = np.zeros((len(observed), m, m))
            for p in range(len(observed)):
                rows = x[kept & (own == p)]
                scatter[p] = rows.T @ rows
        else:
            scatter = (data.scatter if everyone else x[kept].T @ x[kept])[None]
        if power != 1.0:
            sums, counts, scatter = power * sums, power * counts, power * scatter
        return cls(n_clusters, sums, counts, scatter, cluster, pattern, observed)

    @property
    def full(self) -> bool:
        """Whether the noise of features is dependent."""
        return self.scatter.ndim == 3

    @property
    def by_pattern(self) -> bool:
        """Whether there are several rows for a cluster."""
        return len(self.observed) > 1 or not self.observed.all()

    @property
    def n_values(self) -> float:
        """How many values are observed of the relevant objects."""
        if self.full:
            return float(self.of_pattern(self.counts[:, 0]) @ self.observed.sum(axis=1))
        return float(np.broadcast_to(self.counts, self.sums.shape).sum())

    def kept(self, clusters: NDArray[np.int64]) -> "ClusterSums":
        """Return the sums of some clusters (J',), the only ones with objects, in their order."""
        if not self.by_pattern:
            return replace(
                self,
                n_clusters=len(clusters),
                sums=self.sums[clusters],
                counts=self.counts[clusters],
                cluster=np.arange(len(clusters)),
                pattern=self.pattern[clusters],
            )
        rank = np.zeros(self.n_clusters, np.int64)
        rank[clusters] = np.arange(len(clusters))
        return replace(self, n_clusters=len(clusters), cluster=rank[self.cluster])

    def renamed(self, names: NDArray[np.int64]) -> "ClusterSums":
        """Return the sums when cluster j has become ``names[j]``, a permutation (J,)."""
        if self.by_pattern:
            return replace(self, cluster=names[self.cluster])
        old = np.argsort(names)
        return replace(self, sums=self.sums[old], counts=self.counts[old])

    def shifted(self, means: NDArray) -> "ClusterSums":
        """Return the sums of what is left when means (M,) or (J, M) of clusters are taken away.

        All but the scatter, and but for what is missing where there are patterns.
        """
        if not means.any():
            return self
        own = means if means.ndim == 1 else means[self.cluster]
        return replace(self, sums=self.sums - self.counts * own)

    def by_cluster(self, rows: NDArray) -> NDArray[np.float64]:
        """Add up what there is for every row (R, ...) by clusters (J, ...)."""
        if not self.by_pattern:
            return rows
        found = np.zeros((self.n_clusters, *rows.shape[1:]))
        np.add.at(found, self.cluster, rows)
        return found

    def precisions(self, emission: Emission) -> NDArray[np.float64]:
        """Noise precisions (P, M, M) of the patterns, zero where something is missing."""
        return self._noise(emission)[0]

    def _noise(self, emission: Emission) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return `precisions`, and half of their log determinants (P,)."""

        def make(root: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            roots = block_roots(root, self.observed)
            diagonal = np.where(self.observed, np.diagonal(roots, axis1=1, axis2=2), 1.0)
            return roots @ roots.transpose(0, 2, 1), np.log(diagonal).sum(axis=1)

        # The root stays the same object while other parameters move.
        return self._kept(make, emission.root)

    def weigh(self, emission: Emission) -> NDArray[np.float64]:
        """Sum of Lambda x by cluster (J, M)."""
        if not self.full:
            return self.sums * emission.precision
        precisions = self.precisions(emission)
        if not self.by_pattern:
            return self.sums @ precisions[0]
        return self.by_cluster(np.einsum("rm,rml->rl", self.sums, precisions[self.pattern]))

    def gains(self, emission: Emission) -> NDArray[np.float64]:
        """Sum of W' Lambda over the objects of each cluster (J, K, M)."""
        w = emission.projection
        if not self.full:
            return self.counts[:, None, :] * (emission.precision[:, None] * w).T
        own = w.T @ self.precisions(emission)
        return self.by_cluster(self.counts[:, :, None] * own[self.pattern])

    def grams(self, emission: Emission) -> NDArray[np.float64]:
        """Sum of W' Lambda W over the objects of each cluster (J, K, K)."""
        w, k = emission.projection, emission.projection.shape[1]
        if self.by_pattern:
            own = w.T @ self.precisions(emission) @ w
            return self.by_cluster(self.counts[:, :, None] * own[self.pattern])
        w = emission.whitened_projection()
        if self.counts.shape[1] == 1:
            return self.counts[:, :, None] * (w.T @ w)
        outer = (w[:, :, None] * w[:, None, :]).reshape(len(w), k * k)
        return (self.counts @ outer).reshape(len(self.counts), k, k)

    def total_precision(self, emission: Emission) -> NDArray[np.float64]:
        """Sum of Lambda over all objects (M, M)."""
        if not self.full:
            n = np.broadcast_to(self.counts.sum(axis=0), emission.intercept.shape)
            return np.diag(emission.precision * n)
        return np.tensordot(self.of_pattern(self.counts[:, 0]), self.precisions(emission), 1)

    def of_pattern(self, rows: NDArray) -> NDArray[np.float64]:
        """Add up what there is for every row (R, ...) by patterns (P, ...)."""
        if not self.by_pattern:
            return rows.sum(axis=0)[None]
        found = np.zeros((len(self.observed), *rows.shape[1:]))
        np.add.at(found, self.pattern, rows)
        return found

    def kronecker(self, emission: Emission, latent: NDArray) -> NDArray[np.float64]:
        """Sum of Lambda (x) z z' over all objects (M K, M K), z the vectors (J, K) of clusters."""
        m, k = emission.projection.shape[0], latent.shape[1]
        outer = (latent[:, :, None] * latent[:, None, :])[self.cluster]
        grams = self.of_pattern(self.counts[:, :, None] * outer)
        whole = np.tensordot(self.precisions(emission), grams, axes=(0, 0))
        return whole.transpose(0, 2, 1, 3).reshape(m * k, m * k)

    def noise(self, emission: Emission) -> tuple[float, float]:
        """Log normaliser of the features, and their squares in units of the noise.

        The latter is what no cluster explains, if none explains anything.
        """
        a = emission.intercept
        if not self.full:
            total, n = self.sums.sum(axis=0), self.counts.sum(axis=0)
            squares = emission.precision @ (self.scatter - 2.0 * total * a + n * a * a)
            return float((n * (emission.log_root - 0.5 * _LOG_2PI)).sum()), float(squares)
        precisions, half = self._noise(emission)
        logs = half - 0.5 * _LOG_2PI * self.observed.sum(axis=1)
        squares = np.einsum("pij,pij->", precisions, self.about(a))
        return float(self.of_pattern(self.counts[:, 0]) @ logs), float(squares)

    def about(self, a: NDArray) -> NDArray[np.float64]:
        """Scatter of every pattern (P, M, M) about an intercept; not of what is missing."""
        n, total = self.of_pattern(self.counts[:, 0]), self.of_pattern(self.sums)
        # Where something is missing, precisions are zero.
        cross = total[:, :, None] * a
        return self.scatter - cross - cross.transpose(0, 2, 1) + n[:, None, None] * np.outer(a, a)


Contribution = tuple[NDArray[np.float64], NDArray[np.float64], float, float]


def contribution(own: ClusterSums, emission: Emission) -> Contribution:
    """Return what a domain adds to the inverse of C_j (J, K, K) and to m_j (J, K), and its noise.

    That is its log normaliser, and the squares of its features (see `ClusterSums.noise`).
    """
    return *_of_factors(own, emission), *own.noise(emission)


def _of_factors(own: ClusterSums, emission: Emission) -> tuple[NDArray, NDArray]:
    """Return what of a `contribution` the factors enter: the first two."""
    linear = own.shifted(emission.intercept).weigh(emission) @ emission.projection
    return own.grams(emission), linear


class Contributions:
    """What domains add to the evidence, kept as long as their emissions are the same objects."""

    def __init__(self, sums: Sequence[ClusterSums]):
        self.sums = sums
        self._kept = [Kept() for _ in sums]

    def of(self, emissions: Sequence[Emission]) -> list[Contribution]:
        """Return what every domain adds with its emission."""
        own = zip(self._kept, self.sums, emissions, strict=True)
        return [kept(contribution, sums, emission) for kept, sums, emission in own]


def posterior(
    contributions: Sequence[Contribution | tuple[NDArray, NDArray]], latent_precision: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the inverse of C_j (J, K, K), and m_j (J, K), of the clusters."""
    precision = np.add.reduce([found for found, *_ in contributions])
    linear = np.add.reduce([found for _, found, *_ in contributions])
    diagonal = np.arange(linear.shape[1])
    precision[:, diagonal, diagonal] += latent_precision
    return precision, linear


def log_evidence(
    contributions: Sequence[Contribution],
    latent_precision: float,
    gamma: tuple[float, float] | None = None,
    n_values: int = 0,
) -> float:
    """Log p(X | s, a, W, noise), latent vectors integrated out; -inf where it is not a number.

    Parameters
    ----------
    contributions : sequence of Contribution
        Of every domain.
    latent_precision : float
    gamma : (float, float), optional
        Shape and rate of the prior of a precision that multiplies those of all noise and of the
        latent vectors, and is integrated out.
    n_values : int
        Observed values of all domains, if there is such a precision.
    """
    try:
        total, left = _unexplained(contributions, latent_precision)
    except np.linalg.LinAlgError:
        return -np.inf
    if gamma is None:
        total -= left
    else:
        shape, rate = gamma
        after = shape + 0.5 * n_values
        total += shape * log(rate) - lgamma(shape) + lgamma(after)
        total -= after * log(max(rate + left, rate))
    return float(total) if np.isfinite(total) else -np.inf


def _unexplained(
    contributions: Sequence[Contribution], latent_precision: float
) -> tuple[float, float]:
    """Sum the log determinants of the evidence, and half of what the clusters do not explain."""
    precision, linear = posterior(contributions, latent_precision)
    lower = np.linalg.cholesky(precision)
    explained = np.linalg.solve(lower, linear[:, :, None])
    diagonal = np.diagonal(lower, axis1=1, axis2=2)
    total = sum(constant for *_, constant, _ in contributions)
    total += 0.5 * diagonal.size * log(latent_precision) - np.log(diagonal).sum()
    squares = sum(squares for *_, squares in contributions)
    return total, 0.5 * (squares - np.square(explained).sum())


def draw_intercepts(
    rng: np.random.Generator,
    sums: Sequence[ClusterSums],
    emissions: Sequence[Emission],
    latent_precision: float,
    priors: Sequence[tuple[NDArray, NDArray] | None],
) -> list[NDArray[np.float64]]:
    r"""Draw intercepts under normal priors jointly, with latent vectors integrated out.

    The evidence is quadratic in all intercepts :math:`a` together: with :math:`B_j` the matrices
    :math:`\sum_{n \in j} W_d^\top \Lambda_{dn}` side by side, their precision is the prior's plus
    :math:`\sum_n \Lambda_{dn}` on the diagonal blocks, less :math:`\sum_j B_j^\top C_j B_j`.

    `priors`, sequence of (mean (M_d,), precision (M_d,)) or None: None for intercepts that stay as
    they are. Return a list of (M_d,).
    """
    moving = [number for number, prior in enumerate(priors) if prior is not None]
    # With the moving intercepts at zero, what is left is linear and quadratic in them.
    still = [
        replace(e, intercept=np.zeros_like(e.intercept)) if number in moving else e
        for number, e in enumerate(emissions)
    ]
    pairs = zip(sums, still, strict=True)
    inverse, linear = posterior([_of_factors(*pair) for pair in pairs], latent_precision)
    ends = np.cumsum([0, *(len(emissions[number].intercept) for number in moving)])
    precision = np.zeros((ends[-1], ends[-1]))
    weight = np.zeros(ends[-1])
    pull = np.zeros((len(inverse), inverse.shape[1], ends[-1]))
    for place, number in enumerate(moving):
        own, emission, prior = sums[number], still[number], priors[number]
        assert prior is not None
        here = slice(ends[place], ends[place + 1])
        precision[here, here] = own.total_precision(emission) + np.diag(prior[1])
        weight[here] = own.weigh(emission).sum(axis=0) + prior[0] * prior[1]
        pull[:, :, here] = own.gains(emission)
    solved = np.linalg.solve(inverse, np.concatenate([pull, linear[:, :, None]], axis=2))
    explained = np.tensordot(pull, solved, axes=((0, 1), (0, 1)))
    precision -= explained[:, :-1]
    weight -= explained[:, -1]
    drawn = _draw_normal(rng, 0.5 * (precision + precision.T), weight)
    found = [e.intercept for e in emissions]
    for place, number in enumerate(moving):
        found[number] = drawn[ends[place] : ends[place + 1]]
    return found


def draw_factors(
    rng: np.random.Generator, contributions: Sequence[Contribution], latent_precision: float
) -> NDArray[np.float64]:
    """Draw the factors (J, K) of the clusters from their exact conditional."""
    return _draw_normals(rng, *posterior(contributions, latent_precision))


def draw_shared(
    rng: np.random.Generator,
    sums: Sequence[ClusterSums],
    contributions: Sequence[Contribution],
    latent_precision: float,
    gamma: tuple[float, float] | None,
) -> tuple[float, NDArray[np.float64]]:
    """Draw the precision that all noise and latent vectors share, and then the factors (J, K).

    `gamma`: as of `log_evidence`; the precision is 1 if there is none.
    """
    precision, (own, linear) = 1.0, posterior(contributions, latent_precision)
    if gamma is not None:
        _, left = _unexplained(contributions, latent_precision)
        shape = gamma[0] + 0.5 * sum(one.n_values for one in sums)
        precision = rng.standard_gamma(shape) / (gamma[1] + max(left, 0.0))
    return precision, _draw_normals(rng, precision * own, precision * linear)


def draw_projection(
    rng: np.random.Generator,
    own: ClusterSums,
    emission: Emission,
    latent: NDArray,
    explained: NDArray,
    mean: NDArray,
    precision: NDArray,
) -> NDArray[np.float64]:
    r"""Draw a domain's projection under independent normal priors from its exact conditional.

    In independent noise row :math:`m` is normal with precision :math:`\mathrm{diag}(\tau_m) +
    \lambda_m \sum_j N_{jm} z_j z_j^\top` and mean this inverted times :math:`\tau_m \circ \mu_m +
    \lambda_m \sum_j S_{jm} z_j`. In dependent noise the entries of W are normal together: the
    precision of W, row after row, is :math:`\sum_n \Lambda_n \otimes z_{s_n} z_{s_n}^\top` plus the
    prior's.

    `emission`: of which the projection is not used; `latent` (J, K); `explained` (J, M): what
    deviations add to the mean of each cluster; `mean`, `precision` (M, K): of the prior. Return
    (M, K).
    """
    m, k = mean.shape
    weighed = own.shifted(emission.intercept).shifted(explained).weigh(emission)
    b = weighed.T @ latent + precision * mean
    if own.full:
        a = own.kronecker(emission, latent) + np.diag(precision.ravel())
        return _draw_normal(rng, a, b.ravel()).reshape(m, k)
    outer = (latent[:, :, None] * latent[:, None, :]).reshape(len(latent), k * k)
    a = np.broadcast_to(own.counts, weighed.shape).T @ outer
    a = (emission.precision[:, None] * a).reshape(m, k, k)
    a[:, np.arange(k), np.arange(k)] += precision
    return _draw_normals(rng, a, b)


def _draw_normal(rng, precision: NDArray, linear: NDArray) -> NDArray[np.float64]:
    """Draw a normal vector (n,) with a precision A (n, n) and the mean A^-1 `linear`."""
    lower = np.linalg.cholesky(precision)
    mean = cho_solve((lower, True), linear)
    return mean + solve_triangular(lower.T, rng.standard_normal(len(mean)))


def _draw_normals(rng, precision: NDArray, linear: NDArray) -> NDArray[np.float64]:
    """Draw short normal vectors (J, K) likewise, with precisions (J, K, K)."""
    lower = np.linalg.cholesky(precision)
    noise = rng.standard_normal(linear.shape)[..., None]
    whitened = np.linalg.solve(lower, linear[:, :, None]) + noise
    return np.linalg.solve(lower.transpose(0, 2, 1), whitened)[:, :, 0]
