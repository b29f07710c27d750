r"""Dependency-seeking clusters, whose views may have clusters of their own below the shared ones.

.. math::

    z \sim \mathrm{Mult}(\theta_z), \quad w_v \mid z \sim \mathrm{Mult}(\theta_v^z), \quad
    x_v \mid w_v \sim N(\mu_v^{w_v}, \Psi_v)

independently for the views v given z: Klami & Kaski, "Generative models that discover dependencies
between data sets", eq. (3), by the EM of their appendix A. What has several modes in one view only
takes several clusters :math:`w_v` of that view, and one z. Without clusters of the views' own
(:math:`w_v = z`) it is their eq. (2); the same of one view is the mixture with one full covariance.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.k_means import k_means
from pm_match.prediction.mixture import draw_categories
from pm_match.views.em.ascent import Ascent, Fit, ascent, best_of
from pm_match.views.em.views import (
    SeenView,
    check_number,
    check_numbers,
    log_normals,
    log_normals_of_views,
    log_weights,
    normal_step,
    normalised,
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


class DependencyMixture(NamedTuple):
    """Parameters of the model."""

    weights: Array  # (T,)
    means: tuple[Array, ...]  # tuple of (T_v, D_v)
    covariances: tuple[Array, ...]  # tuple of (D_v, D_v)
    # tuple of (T, T_v), or None: Of every view, the probabilities of its clusters given z. None if
    # they are those of z.
    links: tuple[Array, ...] | None = None


def fit_dependency(
    views: Mapping[str, Any] | Sequence[Any],
    n_clusters: int,
    n_marginal_clusters: Sequence[int] | None = None,
    **options: Unpack[Ascent],
) -> Fit[DependencyMixture]:
    """Maximise the likelihood of weights, means, covariances and links, if there are any, by EM.

    Every start is by k-means: of all views for z, but from random links in every other start if
    there are links; of each view for its own clusters.

    `views`, arrays (N, D_v): a row of NaN is a sample that the view has not seen; its other views
    are used. `n_clusters`: T; `n_marginal_clusters`: T_v of each; None if views have no clusters of
    their own; `**options`: see `Ascent`. Raise `ValueError` if the likelihood has no maximum, or a
    setting is none.
    """
    seen, n = see(views)
    check_number("n_clusters", n_clusters, 1, n, "samples")
    if n_marginal_clusters is not None:
        counts = {view.name: len(view.values) for view in seen}
        check_numbers("n_marginal_clusters", n_marginal_clusters, 1, counts, "samples")
    joint = side_by_side(seen, n)
    found = best_of(
        lambda parameters: _step(seen, n, parameters),
        lambda rng, number: _start(
            rng, seen, joint, n_clusters, n_marginal_clusters, number % 2 == 0
        ),
        **options,
    )
    return found._replace(parameters=uncentred(found.parameters, seen))


def responsibilities(
    views: Mapping[str, Any] | Sequence[Any], parameters: DependencyMixture
) -> tuple[Array, list[Array]]:
    """Probabilities (N, T) of z, and (N, T_v) of every view's clusters.

    Of samples of the fit or new ones. Rows of NaN are views that have not seen a sample, which may
    be all but one; there, its clusters' probabilities are those given z.
    """
    logs = log_normals_of_views(views, parameters.means, parameters.covariances)
    return _expected(len(logs[0]), [slice(None)] * len(logs), logs, parameters)[1:3]


def start_labels(
    rng: np.random.Generator, views: Sequence[Array], n_clusters: int, n_marginal: Sequence[int]
) -> tuple[NDArray[np.int64], list[NDArray[np.int64]], list[Array]]:
    """Draw assignments from what EM of views (N, D_v) ends with from one start, of either kind.

    Return `z` (N,); `w` list of (N_v,): of the samples that every view has seen, in their order;
    `precisions` list of (D_v, D_v). Raise `ValueError` as of `fit_dependency`.
    """
    seen, n = see(views)
    joint = side_by_side(seen, n)
    start = _start(rng, seen, joint, n_clusters, n_marginal, bool(rng.integers(2)))
    found = ascent(lambda parameters: _step(seen, n, parameters), start, _START_TOLERANCE, 500)
    fitted = uncentred(found.parameters, seen)
    z, w = responsibilities(views, fitted)
    labels = [draw_categories(rng, p[view.rows]) for p, view in zip(w, seen, strict=True)]
    return draw_categories(rng, z), labels, [np.linalg.inv(c) for c in fitted.covariances]


def _start(rng, seen: list[SeenView], joint, n_clusters, marginal, by_k_means) -> DependencyMixture:
    by_k_means = by_k_means or marginal is None
    n = len(joint)
    z = k_means(rng, joint, n_clusters) if by_k_means else rng.integers(n_clusters, size=n)
    if marginal is None:
        shares = softened(z, n_clusters)
        return _maximised(seen, shares.mean(axis=0), [shares[view.rows] for view in seen])
    shared = np.eye(n_clusters)[z]
    own_shares, links = [], []
    for view, t in zip(seen, marginal, strict=True):
        labels = k_means(rng, whitened(view), t)
        own_shares.append(softened(labels, t))
        if by_k_means:
            link = shared[view.rows].T @ np.eye(t)[labels] + 0.5
        else:
            link = rng.dirichlet(np.full(t, 0.5), n_clusters) + 0.5 / t
        links.append(link / link.sum(axis=1, keepdims=True))
    weights = (shared.sum(axis=0) + 0.5) / (n + 0.5 * n_clusters)
    return _maximised(seen, weights, own_shares)._replace(links=tuple(links))


def _step(seen: list[SeenView], n: int, parameters: DependencyMixture):
    logs = [
        log_normals(view.values, means, covariance, view.name)
        for view, means, covariance in zip(
            seen, parameters.means, parameters.covariances, strict=True
        )
    ]
    total, z, shares, pairs = _expected(n, [view.rows for view in seen], logs, parameters)
    better = _maximised(seen, z.mean(axis=0), shares, parameters.means)
    if parameters.links is None:
        return total, better
    links = []
    for own, link in zip(pairs, parameters.links, strict=True):
        sums = own.sum(axis=1, keepdims=True)
        # A cluster without samples keeps its links.
        links.append(np.where(sums > _LEAST, own / np.maximum(sums, _LEAST), link))
    return total, better._replace(links=tuple(links))


def _expected(
    n: int, rows: Sequence[Any], logs: Sequence[Array], parameters: DependencyMixture
) -> tuple[float, Array, list[Array], list[Array]]:
    """Log likelihood; probabilities of z, and of views' clusters; expected numbers of (z, w).

    `logs` (N_v, T_v) are the log densities of the samples `rows` of each view.
    """
    of_z = np.tile(log_weights(parameters.weights), (n, 1))
    if parameters.links is None:
        for at, own in zip(rows, logs, strict=True):
            of_z[at] += own
        total, z = normalised(of_z)
        return total, z, [z[at] for at in rows], []
    inner = []
    for at, own, link in zip(rows, logs, parameters.links, strict=True):
        top = own.max(axis=1, keepdims=True)
        share = np.exp(own - top)
        # sum_w p(w | z) p(x | w), of every sample and z
        mean = np.maximum(share @ link.T, _LEAST)
        of_z[at] += np.log(mean) + top
        inner.append((at, share, mean, link))
    total, z = normalised(of_z)
    ratios = [z[at] / mean for at, _, mean, _ in inner]
    w = [share * (r @ link) for r, (_, share, _, link) in zip(ratios, inner, strict=True)]
    pairs = [link * (r.T @ share) for r, (_, share, _, link) in zip(ratios, inner, strict=True)]
    return total, z, w, pairs


def _maximised(seen: list[SeenView], weights: Array, shares, means=None) -> DependencyMixture:
    """Means and covariances given the probabilities (N_v, T_v) of every view's clusters."""
    if means is None:
        means = [
            np.zeros((own.shape[1], view.values.shape[1]))
            for view, own in zip(seen, shares, strict=True)
        ]
    found = [normal_step(*own) for own in zip(seen, shares, means, strict=True)]
    return DependencyMixture(
        weights, tuple(own for own, _ in found), tuple(covariance for _, covariance in found)
    )
