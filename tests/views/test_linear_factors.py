"""Conditionals of linear factor models against dense normal algebra."""

import numpy as np
import pytest
from scipy import stats

from pm_match.numerics.rescale import rescale
from pm_match.views.factors.linear_factors import (
    CanonicalForm,
    MaskedTable,
    draw_log_precision,
    draw_shift,
    likelihood,
    loading_form,
    product,
    summed_to,
)

N, D, M, K = 7, 5, 2, 3
MISSING = ("nothing", "entries", "whole rows", "each row its own")


class Fixed:
    """A generator whose normal variates are given."""

    def __init__(self, values):
        self.values = values

    def standard_normal(self, shape):
        return np.broadcast_to(self.values, shape).copy()


def moments(form: CanonicalForm):
    """Means and covariances of a form's draws, which are affine in their normal variates."""
    mean = form.draw(Fixed(0.0))
    directions = [form.draw(Fixed(unit)) - mean for unit in np.eye(form.size)]
    roots = np.stack(directions, axis=-1)
    return mean, roots @ roots.transpose(0, 2, 1)


@pytest.fixture(params=MISSING)
def problem(request):
    rng = np.random.default_rng(3)
    values, observed = rng.normal(size=(N, D)), np.ones((N, D), bool)
    if request.param == "entries":
        observed[1, 2] = observed[1, 3] = observed[4, 2] = observed[4, 3] = observed[5, 0] = False
    elif request.param == "whole rows":
        observed[[0, 3]] = False
    elif request.param == "each row its own":
        observed = np.array([[(n >> d) & 1 for d in range(D)] for n in range(N)], bool)
    table = MaskedTable(
        np.where(observed, values, 0.0), None if request.param == "nothing" else observed
    )
    loadings = rng.normal(size=(D, M + K))
    noise, intercept = rng.gamma(3.0, size=D), rng.normal(size=D) * 3.0
    return rng, table, observed, loadings, noise, intercept


def value(form: CanonicalForm, z):
    """Log density of vectors (N, k), less that of zeros."""
    matrices = form.matrix[form.index]
    return np.einsum("ni,ni->n", z, form.linear) - 0.5 * np.einsum("ni,nij,nj->n", z, matrices, z)


def test_patterns_are_the_distinct_rows(problem):
    _, table, observed, *_ = problem
    assert np.array_equal(table.patterns[table.index], observed)
    assert len(table.patterns) == len(np.unique(observed, axis=0))
    turned = table.turned
    assert np.array_equal(turned.patterns[turned.index], observed.T)
    assert np.array_equal(table.n_of_feature, observed.sum(axis=0))


def test_a_view_is_the_density_of_what_is_observed(problem):
    rng, table, observed, loadings, noise, intercept = problem
    z = rng.normal(size=(N, M + K))
    for shift in (intercept, None):
        form = likelihood(table, loadings, noise, shift)
        centre = 0.0 if shift is None else shift
        entries = stats.norm.logpdf(table.values, centre + z @ loadings.T, noise**-0.5)
        at_zero = stats.norm.logpdf(table.values, centre, noise**-0.5)
        expected = np.where(observed, entries - at_zero, 0.0).sum(axis=1)
        assert np.allclose(value(form, z), expected)


def private(rng):
    return np.arange(M, M + K), rng.normal(size=(1, K)), rng.gamma(3.0, size=(1, K))


def test_private_latents_are_integrated_out(problem):
    rng, table, observed, loadings, noise, intercept = problem
    places, mean, precision = private(rng)
    form = likelihood(table, loadings, noise, intercept)
    marginal = form.with_prior(mean, precision, places).without(places)
    h = rng.normal(size=(N, M))
    w, v = loadings[:, :M], loadings[:, M:]
    covariance = v @ np.diag(1.0 / precision[0]) @ v.T + np.diag(1.0 / noise)
    for n, (x, seen) in enumerate(zip(table.values, observed, strict=True)):
        expected = 0.0
        if seen.any():
            at_zero, own = intercept + v @ mean[0], covariance[np.ix_(seen, seen)]
            for sign, centre in ((1.0, at_zero + w @ h[n]), (-1.0, at_zero)):
                expected += sign * stats.multivariate_normal.logpdf(x[seen], centre[seen], own)
        assert np.isclose(value(marginal, h)[n], expected)


def test_all_latents_but_one_integrated_out_leave_its_posterior(problem):
    rng, table, observed, loadings, noise, intercept = problem
    mean, precision = rng.normal(size=(N, M + K)), rng.gamma(3.0, size=(N, M + K))
    form = likelihood(table, loadings, noise, intercept).with_prior(mean, precision)
    z = rng.normal(size=(N, 1))
    found = value(form.without(np.arange(1, M + K)), z)
    one, rest = loadings[:, 0], loadings[:, 1:]
    for n, (x, seen) in enumerate(zip(table.values, observed, strict=True)):
        covariance = rest @ np.diag(1.0 / precision[n, 1:]) @ rest.T + np.diag(1.0 / noise)
        expected = 0.0
        for sign, own in ((1.0, z[n, 0]), (-1.0, 0.0)):
            expected += sign * stats.norm.logpdf(own, mean[n, 0], precision[n, 0] ** -0.5)
            if seen.any():
                centre = intercept + rest @ mean[n, 1:] + own * one
                expected += sign * stats.multivariate_normal.logpdf(
                    x[seen], centre[seen], covariance[np.ix_(seen, seen)]
                )
        assert np.isclose(found[n], expected)


@pytest.mark.parametrize("each", [False, True], ids=["one prior", "a prior for each row"])
def test_draws_have_the_conditional_of_the_dense_joint(problem, each):
    rng, table, observed, loadings, noise, intercept = problem
    rows = N if each else 1
    mean, precision = rng.normal(size=(rows, M + K)), rng.gamma(3.0, size=(rows, M + K))
    form = likelihood(table, loadings, noise, intercept).with_prior(mean, precision)
    found_mean, found_covariance = moments(form)
    mean, precision = (np.broadcast_to(p, (N, M + K)) for p in (mean, precision))
    assert np.allclose(found_mean, form.mean)
    for n, (x, seen) in enumerate(zip(table.values, observed, strict=True)):
        # Condition the joint normal of latents and values.
        prior = np.diag(1.0 / precision[n])
        cross = prior @ loadings[seen].T
        gain = cross @ np.linalg.inv(loadings[seen] @ cross + np.diag(1.0 / noise[seen]))
        centre = mean[n] + gain @ (x - intercept - loadings @ mean[n])[seen]
        assert np.allclose(found_mean[n], centre)
        assert np.allclose(found_covariance[n], prior - gain @ cross.T)


def test_given_latents_are_substituted(problem):
    rng, table, _, loadings, noise, intercept = problem
    form = likelihood(table, loadings, noise, intercept)
    known = np.array([0, 3])
    others = np.array([1, 2, 4])
    z, moved = rng.normal(size=(2, N, M + K))
    moved[:, known] = z[:, known]
    reduced = form.given(known, z[:, known])
    found = value(reduced, z[:, others]) - value(reduced, moved[:, others])
    assert np.allclose(found, value(form, z) - value(form, moved))


def test_products_of_views_with_patterns_of_their_own(problem):
    rng, table, _, loadings, noise, intercept = problem
    one = likelihood(table, loadings, noise, intercept)
    observed = rng.random((N, 3)) < 0.6
    other = likelihood(
        MaskedTable(np.where(observed, 1.5, 0.0), observed),
        rng.normal(size=(3, 2)),
        np.ones(3),
    )
    places = [np.array([0, 1, 2, 3, 5]), np.array([4, 1])]
    both = product([one, other], places, 6)
    z = rng.normal(size=(N, 6))
    expected = value(one, z[:, places[0]]) + value(other, z[:, places[1]])
    assert np.allclose(value(both, z), expected)
    alone = product([one], [np.arange(M + K)], M + K)
    assert np.allclose(value(alone, z[:, : M + K]), value(one, z[:, : M + K]))


@pytest.mark.parametrize("each", [False, True], ids=["one noise and prior", "one for each feature"])
def test_loadings_are_drawn_as_by_dense_regression(problem, each):
    rng, table, observed, _, noise, _ = problem
    design = np.hstack([rng.normal(size=(N, K)), np.ones((N, 1))])
    shape = (D, K + 1)
    mean, precision = rng.normal(size=shape), rng.gamma(3.0, size=shape)
    if not each:
        noise, precision = np.full(D, 1.7), np.broadcast_to(precision[:1], shape)
    form = loading_form(table, design, noise, mean, precision)
    found_mean, found_covariance = moments(form)
    for d in range(D):
        seen = observed[:, d]
        inverse = np.diag(precision[d]) + noise[d] * design[seen].T @ design[seen]
        linear = precision[d] * mean[d] + noise[d] * design[seen].T @ table.values[seen, d]
        assert np.allclose(found_covariance[d], np.linalg.inv(inverse))
        assert np.allclose(found_mean[d], np.linalg.solve(inverse, linear))


def test_few_patterns_and_one_solve_alike():
    """One pattern goes through BLAS, several through kernels."""
    rng = np.random.default_rng(4)
    root = rng.normal(size=(K, K))
    matrix, linear = root @ root.T + np.eye(K), rng.normal(size=(N, K))
    one = CanonicalForm(matrix[None], linear, np.zeros(N, np.int64))
    two = CanonicalForm(np.stack([matrix, 9.0 * matrix, matrix]), linear, np.arange(N) % 2 * 2)
    noise = rng.normal(size=(N, K))
    assert np.allclose(one.draw(Fixed(noise)), two.draw(Fixed(noise)), rtol=1e-12)
    gone = np.array([1])
    assert np.allclose(one.without(gone).linear, two.without(gone).linear, rtol=1e-12)
    known = rng.normal(size=(N, 1))
    assert np.allclose(one.given(gone, known).linear, two.given(gone, known).linear, rtol=1e-12)


def test_the_shift_is_drawn_from_its_conditional():
    rng = np.random.default_rng(5)
    z, mean = rng.normal(size=(2, N, K))
    precision = rng.gamma(2.0, size=(N, K))
    views = [
        (
            rng.normal(size=(d, K)),
            rng.normal(size=d),
            (rng.normal(size=d), rng.gamma(2.0, size=d)),
        )
        for d in (2, 4)
    ]

    def log_joint(c):
        total = stats.norm.logpdf(z + c, mean, precision**-0.5).sum()
        for w, a, (centre, inverse) in views:
            total += stats.norm.logpdf(a - w @ c, centre, inverse**-0.5).sum()
        return total

    centre = draw_shift(Fixed(0.0), z, (mean, precision), views)
    roots = np.stack(
        [draw_shift(Fixed(unit), z, (mean, precision), views) - centre for unit in np.eye(K)], 1
    )
    law = stats.multivariate_normal(centre, roots @ roots.T)
    places = rng.normal(size=(5, K))
    found = [log_joint(c) - law.logpdf(c) for c in places]
    assert np.allclose(found, found[0])


def test_precisions_are_gamma():
    rng = np.random.default_rng(6)
    shape, rate, n, squares = 1.5, 0.7, 9.0, 4.2
    ones = np.ones(20_000)
    drawn = np.exp(draw_log_precision(rng, shape * ones, rate * ones, n * ones, squares * ones))
    # Prior times normal likelihood, integrated numerically.
    grid = np.linspace(1e-4, 20.0, 40_001)
    log_density = stats.gamma.logpdf(grid, shape, scale=1.0 / rate)
    log_density = log_density + 0.5 * n * np.log(grid) - 0.5 * grid * squares
    cumulative = np.cumsum(np.exp(log_density - log_density.max()))
    cumulative /= cumulative[-1]
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cumulative)).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(), (3,), (1,), (4, 1), (4, 3)])
def test_sums_undo_broadcasting(shape):
    array = np.arange(12.0).reshape(4, 3)
    weights = np.random.default_rng(0).normal(size=shape)
    expected = (array * weights).sum()
    assert np.isclose((summed_to(array, shape) * weights).sum(), expected)
    assert summed_to(array, shape).shape == shape


def test_what_is_not_positive_definite_is_said():
    form = CanonicalForm(-np.eye(2)[None], np.zeros((3, 2)), np.zeros(3, np.int64))
    with pytest.raises(FloatingPointError, match="not positive definite"):
        form.draw(np.random.default_rng(1))


def test_scales_are_exchanged_without_a_change_of_law():
    rng = np.random.default_rng(7)
    mean, precision = rng.normal(size=(3, 2)), rng.gamma(2.0, size=(3, 2))
    tau, found = 1.3, []
    for _ in range(4000):
        w = mean + rng.standard_normal((3, 2)) / np.sqrt(precision)
        z = rng.standard_normal((4, 2)) / np.sqrt(tau)
        moved, latent = w.copy(), z.copy()
        rescale(rng, moved, mean, precision, latent, tau, 4, np.empty(2), np.empty(7))
        assert np.allclose(moved @ latent.T, w @ z.T)
        assert not np.allclose(latent, z, atol=1e-6)
        away = precision * (moved - mean) ** 2
        found.append([tau * (latent**2).sum(), *away.sum(axis=0)])
    # Of the prior, these are squares of independent standard normal numbers.
    for own, degrees in zip(np.transpose(found), (8, 3, 3), strict=True):
        assert stats.kstest(own, stats.chi2(degrees).cdf).pvalue > 1e-3
