r"""Dependency-seeking clusters whose views have clusters of their own below the shared ones.

.. math::

    z \sim \mathrm{Mult}(\theta_z), \quad w_v \mid z \sim \mathrm{Mult}(\theta_v^z), \quad
    x_v \mid w_v \sim N(\mu_v^{w_v}, \Psi_v)

independently for the views v given z: Klami & Kaski, "Generative models that discover dependencies
between data sets", eq. (3), by the EM of their appendix A. What has several modes in one view only
takes several clusters :math:`w_v` of that view, and one z.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.k_means import k_means
from pm_match.views.em.ascent import Fit, ascent, best_of, check_ascent
from pm_match.views.em.views import (
    Seen,
    check_number,
    log_normals,
    log_normals_of_views,
    normal_step,
    normalised,
    numbers_by_view,
    see,
    side_by_side,
    softened,
    uncentred,
    whitened,
)

Array = NDArray[np.float64]
# Probabilities are kept above this, so that no sample is impossible in every cluster.
_LEAST = 1e-300
# In nats: enough for where a chain starts.
_START_TOLERANCE = 0.1


class DependencyHierarchy(NamedTuple):
    """Parameters of the model.

    Attributes
    ----------
    weights : (T,) array
    links : tuple of (T, T_v) array
        Of every view, the probabilities of its clusters given z.
    means : tuple of (T_v, D_v) array
    covariances : tuple of (D_v, D_v) array
    """

    weights: Array
    links: tuple[Array, ...]
    means: tuple[Array, ...]
    covariances: tuple[Array, ...]


def fit_dependency_hierarchy(
    views: Mapping[str, Any] | Sequence[Any],
    n_clusters: int,
    n_marginal_clusters: int | Sequence[int],
    *,
    starts: int = 20,
    tolerance: float = 1e-6,
    max_iterations: int = 5000,
    random_seed: Any = None,
    advance: Callable[[float], None] | None = None,
) -> Fit[DependencyHierarchy]:
    """Maximise the likelihood of weights, links, means and covariances by EM.

    Parameters
    ----------
    views : mapping or sequence of (N, D_v) array
        A row of NaN is a sample that the view has not seen; its other views are used.
    n_clusters : int
        T.
    n_marginal_clusters : int or sequence of int
        T_v, one number for all views or one for each.
    starts : int, default 20
        Every view's clusters start from k-means of the view; z from k-means of all views in every
        other start, and from random links in the rest. The best end is returned.
    tolerance : float, default 1e-6
        An iteration that gains fewer nats is the last.
    max_iterations : int, default 5000
    random_seed : optional
    advance : callable, optional
        Told the best log likelihood so far after every start.

    Returns
    -------
    Fit
        With `DependencyHierarchy` as parameters.

    Raises
    ------
    ValueError
        If views are not tables of the same samples, a sample has some of a view's values only, the
        likelihood has no maximum, or a setting is none.
    """
    seen, n = see(views)
    check_ascent(starts, tolerance, max_iterations)
    check_number("n_clusters", n_clusters, 1, n, "samples")
    marginal = numbers_by_view(
        "n_marginal_clusters",
        n_marginal_clusters,
        1,
        {view.name: len(view.values) for view in seen},
        "samples",
    )
    joint = side_by_side(seen, n)
    found = best_of(
        lambda parameters: _step(seen, n, parameters),
        lambda rng, number: _start(rng, seen, joint, n_clusters, marginal, number % 2 == 0),
        starts,
        tolerance,
        max_iterations,
        random_seed,
        advance,
    )
    return found._replace(parameters=uncentred(found.parameters, seen))


def responsibilities(
    views: Mapping[str, Any] | Sequence[Any], parameters: DependencyHierarchy
) -> tuple[Array, list[Array]]:
    """Probabilities (N, T) of z, and (N, T_v) of every view's clusters.

    Rows of NaN are views that have not seen a sample; there, its clusters' probabilities are those
    given z.
    """
    shares = [
        np.exp(own - own.max(axis=1, keepdims=True))
        for own in log_normals_of_views(views, parameters.means, parameters.covariances)
    ]
    expected = []
    logs = np.tile(np.log(np.maximum(parameters.weights, _LEAST)), (len(shares[0]), 1))
    for share, link in zip(shares, parameters.links, strict=True):
        expected.append(np.maximum(share @ link.T, _LEAST))
        logs += np.log(expected[-1])
    z = normalised(logs)[1]
    w = [
        share * ((z / mean) @ link)
        for share, mean, link in zip(shares, expected, parameters.links, strict=True)
    ]
    return z, w


def start_labels(
    rng: np.random.Generator, views: Sequence[Array], n_clusters: int, n_marginal: Sequence[int]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], list[Array]]:
    """Draw assignments from what EM ends with from one start, of either kind.

    Parameters
    ----------
    rng : numpy.random.Generator
    views : sequence of (N, D_v) array
        A row of NaN is a sample that the view has not seen.
    n_clusters : int
    n_marginal : sequence of int

    Returns
    -------
    z : (N,) integer array
    w : list of (N_v,) integer array
        Of the samples that every view has seen, in their order.
    precisions : list of (D_v, D_v) array

    Raises
    ------
    ValueError
        If the likelihood of the views has no maximum.
    """
    seen, n = see(views)
    joint = side_by_side(seen, n)
    start = _start(rng, seen, joint, n_clusters, list(n_marginal), bool(rng.integers(2)))
    found = ascent(lambda parameters: _step(seen, n, parameters), start, _START_TOLERANCE, 500)
    fitted = uncentred(found.parameters, seen)
    z, w = responsibilities(views, fitted)
    labels = [_draw(rng, p[view.rows]) for p, view in zip(w, seen, strict=True)]
    return _draw(rng, z), labels, [np.linalg.inv(c) for c in fitted.covariances]


def _draw(rng: np.random.Generator, probabilities: Array) -> NDArray[np.int64]:
    """Draw a label for every row of probabilities."""
    cumulative = probabilities.cumsum(axis=1)
    uniform = rng.random(len(cumulative)) * cumulative[:, -1]
    return np.minimum((cumulative < uniform[:, None]).sum(axis=1), cumulative.shape[1] - 1)


def _start(rng, seen: list[Seen], joint, n_clusters, marginal, by_k_means) -> DependencyHierarchy:
    n = len(joint)
    links, means, covariances = [], [], []
    z = k_means(rng, joint, n_clusters) if by_k_means else rng.integers(n_clusters, size=n)
    shared = np.eye(n_clusters)[z]
    for view, t in zip(seen, marginal, strict=True):
        labels = k_means(rng, whitened(view), t)
        start = np.zeros((t, view.values.shape[1]))
        own, covariance = normal_step(view, softened(labels, t), start)
        if by_k_means:
            link = shared[view.rows].T @ np.eye(t)[labels] + 0.5
        else:
            link = rng.dirichlet(np.full(t, 0.5), n_clusters) + 0.5 / t
        links.append(link / link.sum(axis=1, keepdims=True))
        means.append(own)
        covariances.append(covariance)
    weights = (shared.sum(axis=0) + 0.5) / (n + 0.5 * n_clusters)
    return DependencyHierarchy(weights, tuple(links), tuple(means), tuple(covariances))


def _step(seen: list[Seen], n: int, parameters: DependencyHierarchy):
    logs = np.tile(np.log(np.maximum(parameters.weights, _LEAST)), (n, 1))
    shares, expected = [], []
    total = 0.0
    for view, link, means, covariance in zip(
        seen, parameters.links, parameters.means, parameters.covariances, strict=True
    ):
        own = log_normals(view.values, means, covariance, view.name)
        top = own.max(axis=1, keepdims=True)
        share = np.exp(own - top)
        # sum_w p(w | z) p(x | w), of every sample and z
        mean = np.maximum(share @ link.T, _LEAST)
        logs[view.rows] += np.log(mean)
        total += float(top.sum())
        shares.append(share)
        expected.append(mean)
    own_total, z = normalised(logs)
    total += own_total
    links, found = [], []
    for view, share, mean, link, means in zip(
        seen, shares, expected, parameters.links, parameters.means, strict=True
    ):
        ratio = z[view.rows] / mean
        pairs = link * (ratio.T @ share)
        sums = pairs.sum(axis=1, keepdims=True)
        # A cluster without samples keeps its links.
        links.append(np.where(sums > _LEAST, pairs / np.maximum(sums, _LEAST), link))
        found.append(normal_step(view, share * (ratio @ link), means))
    return total, DependencyHierarchy(
        z.mean(axis=0),
        tuple(links),
        tuple(own for own, _ in found),
        tuple(covariance for _, covariance in found),
    )
