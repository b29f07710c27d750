"""EM of dependency-seeking clusters, simple, hierarchical and projected, against plain formulas."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pm_match.metrics import adjusted_rand_index
from pm_match.views.em import (
    DependencyMixture,
    ProjectedClusters,
    dependency,
    fit_dependency,
    fit_projected_clusters,
    projected_clusters,
)
from tests.views.em.ascending import (
    check_ascent,
    covariance_of,
    free_of,
    free_of_weights,
    gain_by_climbing,
    softmax,
)
from tests.views.em.mixtures import log_densities, made_up, plain_clusters, plain_hierarchy

CASES = [False, True]


@pytest.mark.parametrize("unseen", CASES)
def test_clusters_climb_to_a_maximum(unseen):
    _, views = made_up(unseen=unseen)
    fit = fit_dependency(views, 3, random_seed=1, starts=5, tolerance=1e-9)
    p = fit.parameters
    total, logs = plain_clusters(views, p)
    check_ascent(fit, total)
    expected = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    found, _ = dependency.responsibilities(views, p)
    np.testing.assert_allclose(found, expected, atol=1e-9)

    def unpacked(free):
        weights, mx, my, cx, cy = np.split(free, [2, 8, 11, 14])
        return DependencyMixture(
            softmax(weights),
            (mx.reshape(3, 2), my.reshape(3, 1)),
            (covariance_of(cx, 2), covariance_of(cy, 1)),
        )

    free = np.concatenate(
        [
            free_of_weights(p.weights),
            *(m.ravel() for m in p.means),
            *(free_of(c) for c in p.covariances),
        ]
    )
    gained = gain_by_climbing(lambda free: plain_clusters(views, unpacked(free))[0], free)
    assert gained < 1e-4


def test_one_view_is_a_mixture_with_one_covariance():
    mixture = pytest.importorskip("sklearn.mixture")
    _, views = made_up(n=200)
    x = np.concatenate(list(views.values()), axis=1)
    fit = fit_dependency([x], 3, random_seed=1, starts=20)
    other = mixture.GaussianMixture(
        3, covariance_type="tied", n_init=20, tol=1e-9, max_iter=5000, reg_covar=0, random_state=0
    ).fit(x)
    theirs = DependencyMixture(other.weights_, (other.means_,), (other.covariances_,))
    total, _ = plain_clusters({"x": x}, theirs)
    assert total == pytest.approx(other.score(x) * len(x))
    assert fit.log_likelihood > total - 1e-3


@pytest.mark.parametrize("unseen", CASES)
def test_hierarchies_climb_to_a_maximum(unseen):
    _, views = made_up(unseen=unseen)
    fit = fit_dependency(views, 2, [4, 3], random_seed=1, starts=6, tolerance=1e-9)
    p = fit.parameters
    total, states, joint = plain_hierarchy(views, p)
    check_ascent(fit, total)
    z, w = dependency.responsibilities(views, p)
    kinds = np.array(states)
    for place, found in enumerate([z, *w]):
        for label in range(found.shape[1]):
            expected = joint[:, kinds[:, place] == label].sum(axis=1)
            np.testing.assert_allclose(found[:, label], expected, atol=1e-9)

    def unpacked(free):
        parts = np.split(free, np.cumsum([1, 6, 4, 8, 3, 3]))
        return DependencyMixture(
            softmax(parts[0]),
            (parts[3].reshape(4, 2), parts[4].reshape(3, 1)),
            (covariance_of(parts[5], 2), covariance_of(parts[6], 1)),
            (softmax(parts[1].reshape(2, 3)), softmax(parts[2].reshape(2, 2))),
        )

    free = np.concatenate(
        [
            free_of_weights(p.weights),
            *(free_of_weights(link).ravel() for link in p.links),
            *(m.ravel() for m in p.means),
            *(free_of(c) for c in p.covariances),
        ]
    )
    gained = gain_by_climbing(lambda free: plain_hierarchy(views, unpacked(free))[0], free)
    assert gained < 1e-3


def test_a_hierarchy_gathers_what_one_view_splits():
    z, views = made_up(n=400, seed=1)
    fit = fit_dependency(views, 3, [6, 3], random_seed=1, starts=10)
    found, _ = dependency.responsibilities(views, fit.parameters)
    assert adjusted_rand_index({"o": z}, {"o": found.argmax(axis=1)}) > 0.95


def test_projected_clusters_climb_to_a_maximum():
    rng = np.random.default_rng(3)
    latent = 3.0 * rng.standard_normal((4, 2))
    truth = [rng.integers(4, size=n) for n in (40, 30)]
    tables = [
        latent[s] @ rng.standard_normal((2, d)) + 0.5 * rng.standard_normal((len(s), d))
        for s, d in zip(truth, (4, 3), strict=True)
    ]
    random = [rng.integers(4, size=len(s)) for s in truth]
    fit = fit_projected_clusters(tables, [random, truth], 4, 2, random_seed=1, tolerance=1e-10)

    def plain(p: ProjectedClusters):
        total = 0.0
        for x, w in zip(tables, p.projections, strict=True):
            covariance = np.eye(len(w)) / p.precision
            logs = np.log(p.weights) + log_densities(x, p.latent @ w.T, covariance)
            total += float(logsumexp(logs, axis=1).sum())
        return total

    check_ascent(fit, plain(fit.parameters))
    _, found = projected_clusters.expected(tables, fit.parameters)
    labels = {n: s.argmax(axis=1) for n, s in zip("ab", found, strict=True)}
    assert adjusted_rand_index(dict(zip("ab", truth, strict=True)), labels) > 0.9

    def unpacked(free):
        weights, z, a, b, precision = np.split(free, np.cumsum([3, 8, 8, 6]))
        shapes = a.reshape(4, 2), b.reshape(3, 2)
        return ProjectedClusters(
            softmax(weights), z.reshape(4, 2), shapes, float(np.exp(precision[0]))
        )

    p = fit.parameters
    free = np.concatenate(
        [
            free_of_weights(p.weights),
            p.latent.ravel(),
            *(w.ravel() for w in p.projections),
            [np.log(p.precision)],
        ]
    )
    assert gain_by_climbing(lambda free: plain(unpacked(free)), free) < 1e-4


def test_fits_are_the_same_for_the_same_seed():
    _, views = made_up()
    one, other = (fit_dependency(views, 2, [3, 3], random_seed=4, starts=2) for _ in range(2))
    np.testing.assert_array_equal(one.log_likelihoods, other.log_likelihoods)


def test_bad_input():
    _, views = made_up()
    x, y = views.values()
    both = np.where((np.arange(60) == 3)[:, None], np.nan, x)
    with pytest.raises(ValueError, match="sample 3: expected a view that has seen it"):
        fit_dependency({"x": both, "y": np.where(np.isnan(both[:, :1]), np.nan, y)}, 2)
    with pytest.raises(ValueError, match="linearly dependent"):
        fit_dependency({"x": np.concatenate([x, x[:, :1]], axis=1), "y": y}, 2)
    with pytest.raises(ValueError, match="more samples than features"):
        fit_dependency({"x": x[:2], "y": y[:2]}, 2)
    with pytest.raises(ValueError, match="n_clusters: expected a whole number from 1 to 60"):
        fit_dependency(views, 61)
    with pytest.raises(ValueError, match=r"n_marginal_.* of view 'y': expected .* from 1 to 60"):
        fit_dependency(views, 2, [2, 61])
