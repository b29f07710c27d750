r"""Projected clusters: objects of several domains around projections of shared latent vectors.

.. math:: s_{dn} \sim \mathrm{Mult}(\theta), \quad x_{dn} \sim N(W_d z_{s_{dn}}, \alpha^{-1} I),

the many-to-many matching model of Iwata, Hirao & Ueda (2016), by a regular EM in which the latent
vectors z are parameters, as projections are: given the responsibilities, the two are least squares
in turn,

.. math::

    z_t = \Bigl(\sum_d n_{dt} W_d^\top W_d\Bigr)^{-1} \sum_d W_d^\top s_{dt}, \quad
    W_d = \sum_t s_{dt} z_t^\top \Bigl(\sum_t n_{dt} z_t z_t^\top\Bigr)^{-1},

with :math:`n_{dt}` the responsibilities' sums and :math:`s_{dt}` those of the objects they weigh.
Only products :math:`W_d z_t` are identified.
"""

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from pm_match.views.em.ascent import Ascent, Fit, best_of
from pm_match.views.em.views import log_weights, normalised, softened

Array = NDArray[np.float64]
# Least squares in turn, an iteration.
_TURNS = 3


class ProjectedClusters(NamedTuple):
    """Parameters of the model."""

    weights: Array  # (T,)
    latent: Array  # (T, K)
    projections: tuple[Array, ...]  # tuple of (M_d, K)
    precision: float


def fit_projected_clusters(
    tables: Sequence[Array],
    matchings: Sequence[Sequence[NDArray[np.integer]]],
    n_clusters: int,
    n_factors: int,
    **options: Unpack[Ascent],
) -> Fit[ProjectedClusters]:
    """Maximise the likelihood of weights, latent vectors, projections and precision by EM.

    There are as many starts as `matchings`, each of which has labels (N_d,) of every domain's
    objects (see `find_matching`); the seed is of the projections that the first least squares start
    from. Clusters that no object is in have latent vector 0.

    `tables`, arrays (N_d, M_d); `n_clusters`, `n_factors`: T and K; `**options`: see `Ascent`.
    Raise `ValueError` if the likelihood has no maximum, or a setting is none.
    """
    options["starts"] = len(matchings)
    return best_of(
        lambda parameters: _step(tables, parameters),
        lambda rng, number: _start(rng, tables, matchings[number], n_clusters, n_factors),
        **options,
    )


def expected(tables: Sequence[Array], parameters: ProjectedClusters) -> tuple[float, list[Array]]:
    """Log likelihood, and probabilities (N_d, T) of the clusters of every domain's objects."""
    total, found = 0.0, []
    for x, w in zip(tables, parameters.projections, strict=True):
        means = parameters.latent @ w.T
        squares = np.einsum("ij,ij->i", x, x)[:, None] - 2.0 * (x @ means.T)
        squares += np.einsum("ij,ij->i", means, means)
        logs = log_weights(parameters.weights) - 0.5 * parameters.precision * squares
        log_likelihood, shares = normalised(logs)
        total += log_likelihood
        total += 0.5 * x.size * np.log(parameters.precision / (2.0 * np.pi))
        found.append(shares)
    return total, found


def _step(tables, parameters: ProjectedClusters) -> tuple[float, ProjectedClusters]:
    log_likelihood, shares = expected(tables, parameters)
    return log_likelihood, _maximise(tables, shares, parameters.latent, parameters.projections)


def _maximise(tables, shares, latent, projections) -> ProjectedClusters:
    """Least squares of latent vectors and projections in turn; then weights and precision."""
    counts = [share.sum(axis=0) for share in shares]
    sums = [share.T @ x for share, x in zip(shares, tables, strict=True)]
    for _ in range(_TURNS):
        gram = sum(n[:, None, None] * (w.T @ w) for n, w in zip(counts, projections, strict=True))
        linear = sum(s @ w for s, w in zip(sums, projections, strict=True))
        latent = _solve(gram, linear)
        projections = tuple(
            (s.T @ latent)
            @ np.linalg.pinv((latent * n[:, None]).T @ latent, rcond=1e-12, hermitian=True)
            for n, s in zip(counts, sums, strict=True)
        )
    squares = 0.0
    for x, n, s, w in zip(tables, counts, sums, projections, strict=True):
        means = latent @ w.T
        squares += float((x * x).sum() - 2.0 * (s * means).sum() + n @ (means * means).sum(axis=1))
    n_values = sum(x.size for x in tables)
    if not squares > 1e-12 * sum(float((x * x).sum()) for x in tables):
        raise ValueError(
            "expected values that clusters leave some noise of; found none, so that the likelihood "
            "has no maximum; use fewer clusters or factors."
        )
    weights = sum(counts) / sum(len(x) for x in tables)
    return ProjectedClusters(np.asarray(weights), latent, projections, n_values / squares)


def _solve(gram: Array, linear: Array) -> Array:
    """Solve (T, K, K) systems; where one is singular, the shortest solution."""
    return np.einsum("tkl,tl->tk", np.linalg.pinv(gram, rcond=1e-12, hermitian=True), linear)


def _start(rng, tables, labels, n_clusters: int, n_factors: int) -> ProjectedClusters:
    shares = [softened(own, n_clusters) for own in labels]
    projections = tuple(rng.standard_normal((x.shape[1], n_factors)) for x in tables)
    found = None
    for _ in range(10):
        found = _maximise(tables, shares, None, projections)
        projections = found.projections
    assert found is not None
    return found
