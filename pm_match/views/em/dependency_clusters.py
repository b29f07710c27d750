r"""Dependency-seeking clusters: a normal mixture whose covariance is shared, and none across views.

.. math:: z \sim \mathrm{Mult}(\theta), \quad x_v \mid z \sim N(\mu_v^z, \Psi_v)

independently for the views v given z: Klami & Kaski, "Generative models that discover dependencies
between data sets", eq. (2). All variation within a view is left to its :math:`\Psi_v`; clusters are
needed for what views share. The same with all views concatenated into one is the mixture with one
full covariance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.k_means import k_means
from pm_match.views.em.ascent import Fit, best_of, check_ascent
from pm_match.views.em.views import (
    Seen,
    check_number,
    log_normals,
    log_normals_of_views,
    normal_step,
    normalised,
    see,
    side_by_side,
    softened,
    uncentred,
)

Array = NDArray[np.float64]


class DependencyClusters(NamedTuple):
    """Parameters of the model.

    Attributes
    ----------
    weights : (T,) array
    means : tuple of (T, D_v) array
    covariances : tuple of (D_v, D_v) array
    """

    weights: Array
    means: tuple[Array, ...]
    covariances: tuple[Array, ...]


def fit_dependency_clusters(
    views: Mapping[str, Any] | Sequence[Any],
    n_clusters: int,
    *,
    starts: int = 20,
    tolerance: float = 1e-6,
    max_iterations: int = 5000,
    random_seed: Any = None,
    advance: Callable[[float], None] | None = None,
) -> Fit[DependencyClusters]:
    """Maximise the likelihood of weights, means and covariances by EM.

    Parameters
    ----------
    views : mapping or sequence of (N, D_v) array
        A row of NaN is a sample that the view has not seen; its other views are used.
    n_clusters : int
        T.
    starts : int, default 20
        Starts by k-means of all views, each with unit covariance; the best end is returned.
    tolerance : float, default 1e-6
        An iteration that gains fewer nats is the last.
    max_iterations : int, default 5000
    random_seed : optional
    advance : callable, optional
        Told the best log likelihood so far after every start.

    Returns
    -------
    Fit
        With `DependencyClusters` as parameters.

    Raises
    ------
    ValueError
        If views are not tables of the same samples, a sample has some of a view's values only, the
        likelihood has no maximum, or a setting is none.
    """
    seen, n = see(views)
    check_ascent(starts, tolerance, max_iterations)
    check_number("n_clusters", n_clusters, 1, n, "samples")
    joint = side_by_side(seen, n)
    found = best_of(
        lambda parameters: _step(seen, n, parameters),
        lambda rng, number: _start(rng, seen, joint, n_clusters),
        starts,
        tolerance,
        max_iterations,
        random_seed,
        advance,
    )
    return found._replace(parameters=uncentred(found.parameters, seen))


def responsibilities(
    views: Mapping[str, Any] | Sequence[Any], parameters: DependencyClusters
) -> Array:
    """Probabilities (N, T) of the clusters of samples, new ones or those of the fit.

    Rows of NaN are views that have not seen a sample, which may be all but one.
    """
    logs = np.log(np.maximum(parameters.weights, 1e-300))
    for own in log_normals_of_views(views, parameters.means, parameters.covariances):
        logs = logs + own
    return normalised(logs)[1]


def _start(rng, seen: list[Seen], joint: Array, n_clusters: int) -> DependencyClusters:
    shares = softened(k_means(rng, joint, n_clusters), n_clusters)
    return _maximise(
        seen, shares, tuple(np.zeros((n_clusters, view.values.shape[1])) for view in seen)
    )


def _step(seen: list[Seen], n: int, parameters: DependencyClusters):
    logs = np.tile(np.log(np.maximum(parameters.weights, 1e-300)), (n, 1))
    for view, means, covariance in zip(seen, parameters.means, parameters.covariances, strict=True):
        logs[view.rows] += log_normals(view.values, means, covariance, view.name)
    log_likelihood, probabilities = normalised(logs)
    return log_likelihood, _maximise(seen, probabilities, parameters.means)


def _maximise(seen: list[Seen], probabilities: Array, means) -> DependencyClusters:
    found = [
        normal_step(view, probabilities[view.rows], own)
        for view, own in zip(seen, means, strict=True)
    ]
    return DependencyClusters(
        probabilities.mean(axis=0),
        tuple(own for own, _ in found),
        tuple(covariance for _, covariance in found),
    )
