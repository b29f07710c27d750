"""The MAP step's objective: value against the plain formula, gradient against differences."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime, minimize

from pm_match.features.emission import Emission, with_deviations
from pm_match.features.feature_sums import (
    ClusterSums,
    contribution,
    draw_factors,
    draw_shared,
)
from pm_match.features.projected_normal import log_marginal
from pm_match.features.projection import ProjectionObjective
from pm_match.numerics.masked import MaskedTable
from tests.features.objective import depth, value_and_gradient

SHAPE, RATE, R, T = 2.0, 1.5, 0.7, 6


def case(missing, n_factors, seed=0):
    rng = np.random.default_rng(seed)
    domains, labels = [], []
    for n, m in ((12, 4), (9, 5)):
        x = rng.normal(size=(n, m)) * 1.3
        if missing:
            seen = rng.random((n, m)) > 0.3
            domains.append(MaskedTable(np.where(seen, x, 0.0), seen))
        else:
            domains.append(MaskedTable(x))
        labels.append(rng.choice([0, 2, 3, 5], size=n))
    w = rng.normal(size=(9, n_factors))
    objective = ProjectionObjective(
        [ClusterSums.of(d, own, T) for d, own in zip(domains, labels, strict=True)],
        [Emission.of_projection(w[:4]), Emission.of_projection(w[4:])],
        R,
        n_factors,
        (SHAPE, RATE),
    )
    return domains, labels, w, objective


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n_factors", [1, 3])
def test_gradient(missing, n_factors):
    *_, w, objective = case(missing, n_factors)
    check_gradient(objective, w)


def check_gradient(objective, w):
    _, gradient = depth(objective)(w.ravel())
    found = approx_fprime(w.ravel(), lambda flat: depth(objective)(flat)[0], 1e-6)
    np.testing.assert_allclose(gradient, found, rtol=2e-5, atol=2e-4)


GENERAL = {"own noise": (False, False), "missing": (False, True), "full": (True, False)}


def general(way, rng):
    full, missing = GENERAL[way]
    domains, labels, w, _ = case(missing, 2)
    emissions = []
    for d, m in enumerate((4, 5)):
        root = np.tril(rng.normal(size=(m, m))) + 2.0 * np.eye(m) if full else rng.uniform(1, 2, m)
        own = with_deviations(w[4 * d : 4 + 5 * d], d, [np.full(4, 0.3), np.full(5, 0.4)], R)
        emissions.append(Emission(own, rng.normal(size=m), root))
    sums = [ClusterSums.of(data, own, T, full) for data, own in zip(domains, labels, strict=True)]
    return domains, labels, w, emissions, sums


@pytest.mark.parametrize("way", GENERAL)
def test_what_is_drawn_given_the_projections(way):
    domains, labels, _, emissions, sums = general(way, np.random.default_rng(3))
    own = [contribution(s, e) for s, e in zip(sums, emissions, strict=True)]
    given = np.random.default_rng(1), sums, own, R
    found, factors = draw_shared(*given, (SHAPE, RATE))
    rng = np.random.default_rng(1)
    shape = SHAPE + 0.5 * sum(data.n_values for data in domains)
    rate = rng.standard_gamma(shape) / found

    def log_density(alpha):
        scaled = [emission.scaled(alpha) for emission in emissions]
        value = log_marginal(domains, scaled, np.concatenate(labels), R * alpha)
        return value + stats.gamma.logpdf(alpha, SHAPE, scale=1.0 / RATE)

    expected = (shape - 1.0) * np.log(0.8 / 1.7) - rate * (0.8 - 1.7)
    assert log_density(0.8) - log_density(1.7) == pytest.approx(expected, rel=1e-10)
    # It multiplies the precisions of the factors as well.
    scaled = [contribution(s, e.scaled(found)) for s, e in zip(sums, emissions, strict=True)]
    np.testing.assert_allclose(factors, draw_factors(rng, scaled, found * R))
    # Without a precision that is shared, it is 1.
    one, factors = draw_shared(np.random.default_rng(2), *given[1:], None)
    assert one == 1.0
    np.testing.assert_allclose(factors, draw_factors(np.random.default_rng(2), own, R))


@pytest.mark.parametrize("gamma", [None, (SHAPE, RATE)])
@pytest.mark.parametrize("way", GENERAL)
def test_climbs_to_where_a_general_optimiser_arrives(way, gamma):
    _, _, w, emissions, sums = general(way, np.random.default_rng(3))
    start = 0.3 * np.random.default_rng(4).normal(size=w.shape)
    objective = ProjectionObjective(sums, emissions, R, 2, gamma)
    deviations = objective.table.w[:, 2:].copy()
    objective.w[:] = start
    before, values = value_and_gradient(objective)[0], []
    for most in (1, 2, 5, 12, 500):
        objective.w[:] = start
        values.append(objective.maximise(most))
        # Two kernels: what they round may differ in the last digit.
        assert value_and_gradient(objective)[0] == pytest.approx(values[-1], rel=1e-15, abs=0.0)
    # Every step gains, long after the first are forgotten.
    assert (np.diff([before, *values]) > 0.0).all()
    assert np.abs(value_and_gradient(objective)[1]).max() < 1e-2
    np.testing.assert_array_equal(objective.table.w[:, 2:], deviations)
    found = minimize(depth(objective), start.ravel(), jac=True, options={"gtol": 1e-6})
    assert values[-1] == pytest.approx(-found.fun, abs=1e-5)


@pytest.mark.parametrize("gamma", [None, (SHAPE, RATE)])
@pytest.mark.parametrize("way", GENERAL)
def test_given_noise_intercepts_and_deviations(way, gamma):
    """The same of general emissions, whose factors of deviations stay as they are."""
    rng = np.random.default_rng(3)
    domains, labels, w, emissions, sums = general(way, rng)
    objective = ProjectionObjective(sums, emissions, R, 2, gamma)
    check_gradient(objective, w)
    everyone, differences = np.concatenate(labels), []
    for _ in range(3):
        w = w + rng.normal(size=w.shape)
        negative, _ = depth(objective)(w.ravel())
        own = [
            Emission(np.hstack([p, e.projection[:, 2:]]), e.intercept, e.root)
            for p, e in zip(objective.projections(), emissions, strict=True)
        ]
        whitened = np.concatenate([e.whitened_projection() for e in own])
        np.testing.assert_allclose(whitened[:, :2], w)
        value = log_marginal(domains, own, everyone, R, gamma)
        differences.append(value + negative)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)


def test_counting_objects_instead_of_observed_values_is_wrong():
    """The printed gradient for missing values, eq. (27): the check above would see it."""
    _, labels, w, objective = case(missing=True, n_factors=3)
    right = depth(objective)(w.ravel())[1]
    counts = np.bincount(np.concatenate(labels[:1]), minlength=T)
    objective.table.number[:, :4] = counts[:, None]
    wrong = depth(objective)(w.ravel())[1]
    assert np.abs(wrong - right).max() > 0.05 * np.abs(right).max()


@pytest.mark.parametrize("missing", [False, True])
def test_value_differs_from_the_log_marginal_by_a_constant(missing):
    domains, labels, w, objective = case(missing, 3)
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(4):
        w = w + rng.normal(size=w.shape)
        emissions = [Emission.of_projection(w[:4]), Emission.of_projection(w[4:])]
        plain = log_marginal(domains, emissions, np.concatenate(labels), R, (SHAPE, RATE))
        differences.append(plain + depth(objective)(w.ravel())[0])
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)
