"""EM of shared factors against plain formulas, a general optimiser and canonical correlations."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from pm_match.views.em import fit_shared_factors
from pm_match.views.em.ascent import ascent
from pm_match.views.em.shared_factors import (
    SharedFactors,
    _parameters,
    _read,
    _start,
    _step,
    latent_means,
)
from tests.views.em.ascending import best_of_random, check_ascent, gain_by_climbing
from tests.views.em.factors import covariance, made_up, plain


def canonical_correlations(x, y):
    x, y = (np.linalg.qr(v - v.mean(axis=0))[0] for v in (x, y))
    return np.linalg.svd(x.T @ y, compute_uv=False)


def unpacked(free, d, m, k) -> SharedFactors:
    found, place = [], 0
    for shape in [s for n in d for s in ((n,), (n, m), (n, k))]:
        size = int(np.prod(shape))
        found.append(free[place : place + size].reshape(shape))
        place += size
    return SharedFactors(
        tuple(found[0::3]), tuple(found[1::3]), tuple(found[2::3]), np.exp(free[place:])
    )


def packed(p: SharedFactors):
    parts = [v.ravel() for three in zip(*p[:3], strict=True) for v in three]
    return np.concatenate([*parts, np.log(p.variances)])


@pytest.mark.parametrize(("missing", "n_private"), [(False, 0), (False, 2), (True, 1)])
def test_the_likelihood_climbs_to_a_maximum(missing, n_private):
    d = (4, 3)
    views = made_up(d=d, missing=missing)
    fit = fit_shared_factors(views, 1, [n_private] * 2, random_seed=1, starts=3, tolerance=1e-9)
    check_ascent(fit, plain(views, fit.parameters))

    def log_likelihood(free):
        return plain_fast(views, unpacked(free, d, 1, n_private))

    free = packed(fit.parameters)
    assert log_likelihood(free) == pytest.approx(fit.log_likelihood, rel=1e-9)
    assert gain_by_climbing(log_likelihood, free) < 1e-4


def plain_fast(views, p: SharedFactors) -> float:
    """As `plain`, by groups of samples of which the same is seen."""
    x, mean, whole = np.concatenate(views, axis=1), np.concatenate(p.intercepts), covariance(p)
    seen = ~np.isnan(x)
    total = 0.0
    for kind in np.unique(seen, axis=0):
        rows = (seen == kind).all(axis=1)
        away = x[np.ix_(rows, kind)] - mean[kind]
        own = whole[np.ix_(kind, kind)]
        total -= 0.5 * np.sum(away.T * np.linalg.solve(own, away.T))
        total -= 0.5 * rows.sum() * np.linalg.slogdet(2.0 * np.pi * own)[1]
    return float(total)


def test_no_general_optimiser_finds_more():
    views = made_up(d=(3, 2))
    fit = fit_shared_factors(views, 1, [1, 1], random_seed=1, starts=5, tolerance=1e-9)
    rng = np.random.default_rng(2)
    n_parameters = len(packed(fit.parameters))
    best = best_of_random(
        lambda free: plain_fast(views, unpacked(free, (3, 2), 1, 1)), rng, n_parameters, 6
    )
    assert fit.log_likelihood == pytest.approx(best, abs=1e-3)


def test_without_intercepts_they_are_zero():
    views = made_up()
    fit = fit_shared_factors(views, 1, [1, 1], intercept=False, random_seed=1, starts=2)
    assert not np.concatenate(fit.parameters.intercepts).any()
    check_ascent(fit, plain(views, fit.parameters))
    missing = made_up(missing=True)
    fit = fit_shared_factors(missing, 1, [1, 1], intercept=False, random_seed=1, starts=2)
    assert not np.concatenate(fit.parameters.intercepts).any()
    check_ascent(fit, plain(missing, fit.parameters))


@pytest.mark.parametrize("n_private", [2, 3])
def test_with_full_private_rank_it_is_canonical_correlation_analysis(n_private):
    rng = np.random.default_rng(3)
    z = rng.standard_normal((300, 1))
    x, y = (
        np.concatenate([z, rng.standard_normal((300, 2))], axis=1) @ rng.standard_normal((3, 3))
        + 0.5 * rng.standard_normal((300, 3))
        for _ in range(2)
    )
    expected = canonical_correlations(x, y)[0] ** 2
    data = _read([x, y], [n_private] * 2, True)
    # From a random start, which knows nothing of canonical correlations.
    found = ascent(lambda s: _step(data, s), _start(rng, data, 1), 1e-9, 20_000)
    p = _parameters(data, found.parameters)
    unseen = np.full((300, 3), np.nan)
    (of_x, _), (of_y, _) = latent_means([x, unseen], p), latent_means([unseen, y], p)
    assert (canonical_correlations(of_x, of_y) ** 2).sum() == pytest.approx(expected, abs=1e-3)
    fit = fit_shared_factors([x, y], 1, [n_private] * 2, starts=1)
    assert fit.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-3)
    assert fit.log_likelihood >= found.log_likelihood - 1e-6


def test_three_views():
    views = made_up(d=(3, 2, 4))
    fit = fit_shared_factors(views, 2, [1, 0, 2], random_seed=1, starts=3)
    check_ascent(fit, plain(views, fit.parameters))
    assert [b.shape for b in fit.parameters.privates] == [(3, 1), (2, 0), (4, 2)]


def test_means_of_latent_vectors_are_those_given_what_is_seen():
    views = made_up(missing=True)
    p = fit_shared_factors(views, 1, [1, 1], random_seed=1, starts=1, max_iterations=50).parameters
    z, own = latent_means(views, p)
    loadings = np.concatenate([np.concatenate(p.projections), block_diag(*p.privates)], axis=1)
    x, mean = np.concatenate(views, axis=1), np.concatenate(p.intercepts)
    for n in (0, 4, 21, 40):
        seen = ~np.isnan(x[n])
        across = loadings[seen].T
        inside = covariance(p)[np.ix_(seen, seen)]
        expected = across @ np.linalg.solve(inside, x[n, seen] - mean[seen])
        np.testing.assert_allclose([*z[n], *own[0][n], *own[1][n]], expected, atol=1e-10)


def test_the_papers_own_update_leaves_the_maximum():
    """Figure 2 fits every view's marginal covariance in turn, which is no step of one EM."""
    views = [v - v.mean(axis=0) for v in made_up(n=40, d=(3, 2), seed=5)]
    x = np.concatenate(views, axis=1)
    moment, ends = x.T @ x / len(x), [slice(0, 3), slice(3, 5)]
    fit = fit_shared_factors(views, 1, [1, 1], random_seed=1, tolerance=1e-10)
    w, b = np.concatenate(fit.parameters.projections), list(fit.parameters.privates)
    s = fit.parameters.variances.copy()
    for _ in range(500):
        psi = block_diag(*[b[v] @ b[v].T + s[v] * np.eye(len(b[v])) for v in (0, 1)])
        w = _paper_update(w, psi, moment)
        for v, own in enumerate(ends):
            rest = w[own] @ w[own].T + s[v] * np.eye(len(b[v]))
            a = _regression(b[v], rest)
            b[v] = _paper_update(b[v], rest, moment[own, own])
            left = moment[own, own] - moment[own, own] @ a.T @ b[v].T - w[own] @ w[own].T
            s[v] = np.trace(left) / len(left)
    end = SharedFactors((np.zeros(3), np.zeros(2)), (w[:3], w[3:]), tuple(b), s)
    assert plain_fast(views, end) < fit.log_likelihood - 1e-3


def _regression(loading, psi):
    whitened = np.linalg.solve(psi, loading)
    return np.linalg.solve(np.eye(loading.shape[1]) + loading.T @ whitened, whitened.T)


def _paper_update(loading, psi, moment):
    a = _regression(loading, psi)
    inner = np.eye(loading.shape[1]) + loading.T @ np.linalg.solve(psi, loading)
    return moment @ a.T @ np.linalg.inv(np.linalg.inv(inner) + a @ moment @ a.T)


def test_bad_input():
    x, y = made_up()
    with pytest.raises(ValueError, match=r"n_private of view '1': expected .* from 0 to 2"):
        fit_shared_factors([x, y], 1, [1, 3])
    with pytest.raises(ValueError, match="noise goes to zero"):
        fit_shared_factors([np.concatenate([x, x[:, :1]], axis=1), y], 1, [3, 1])
    with pytest.raises(ValueError, match="tolerance: expected a positive number"):
        fit_shared_factors([x, y], 1, [1, 1], tolerance=0.0)
    with pytest.raises(ValueError, match="starts: expected a whole number"):
        fit_shared_factors([x, y], 1, [1, 1], starts=0)
