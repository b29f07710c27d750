"""The hinge's conditionals and the moves of frequencies, against formulas that look otherwise."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from pm_match.views.hinge import carry
from pm_match.views.hinge.carry import approximate
from pm_match.views.hinge.frequencies import EvidenceTerm, FrequencyEvidence, FrequencyPrior
from pm_match.views.hinge.scales import (
    LostPrecision,
    draw_coefficients,
    draw_precision,
    draw_scales,
    factorise,
    gram,
    log_marginal,
    lost,
    observe,
)
from pm_match.views.hinge.split_hmc import move_together


@pytest.mark.parametrize("x", [-3.0, -0.4, 0.0, 0.2, 2.5])
def test_the_hinge_is_a_mixture_of_normals(x):
    def augmented(scale):
        return np.exp(-((scale + x) ** 2) / (2.0 * scale)) / np.sqrt(2.0 * np.pi * scale)

    found = quad(augmented, 0.0, 1.0)[0] + quad(augmented, 1.0, np.inf)[0]
    assert found == pytest.approx(np.exp(-2.0 * max(0.0, x)), rel=1e-6)


@pytest.mark.parametrize("distance", [0.05, 1.0, 7.0, 200.0])
def test_scales_are_inverse_of_inverse_gaussians(distance):
    drawn = draw_scales(np.random.default_rng(4), np.full(20_000, distance))
    # scipy's invgauss(mu / shape, scale=shape).
    assert stats.kstest(1.0 / drawn, stats.invgauss(1.0 / distance).cdf).pvalue > 1e-3


@pytest.mark.parametrize("distance", [0.0, 1e-300, 1e-12, 1e-8, 1e8, 1e12])
def test_extreme_scales_stay_positive_and_finite(distance):
    drawn = draw_scales(np.random.default_rng(5), np.full(100_000, distance))
    assert np.isfinite(drawn).all()
    assert (drawn > 0.0).all()
    if distance < 1e-6:
        # The limit: the square of a standard normal number.
        assert stats.kstest(drawn, stats.chi2(1).cdf).pvalue > 1e-3
    if distance > 1e6:
        root = np.sqrt(distance)
        assert stats.kstest((drawn - distance) / root, stats.norm.cdf).pvalue > 1e-3


def test_observations_have_the_augmented_density():
    """Differences of the log density in f are those of the normal observation."""
    rng = np.random.default_rng(6)
    C, labels = 0.7, np.array([[1.0], [-1.0], [0.0]])
    state = rng.bit_generator.state
    scores = np.array([[0.3], [0.8], [0.1]])
    weights, pulls = observe(rng, scores, labels, C)
    rng.bit_generator.state = state
    scales = draw_scales(rng, C * np.abs(1.0 - labels * scores))
    assert weights[2, 0] == pulls[2, 0] == 0.0
    for f in (-1.0, 0.4, 3.0):

        def augmented(score):
            x = C * (1.0 - labels * score)
            return -((scales + x) ** 2) / (2.0 * scales)

        found = -0.5 * weights * f**2 + pulls * f
        np.testing.assert_allclose(found[:2], (augmented(f) - augmented(0.0))[:2], rtol=1e-12)


def test_coefficients_are_drawn_from_their_normal():
    rng = np.random.default_rng(7)
    design, weights, v = rng.normal(size=(6, 3)), rng.gamma(1.0, size=6), 0.8
    pull = rng.normal(size=3)
    precision = design.T @ np.diag(weights) @ design + v * np.eye(3)
    lower = factorise(gram(design, weights), v)
    np.testing.assert_allclose(lower @ lower.T, precision, rtol=1e-12)
    drawn = np.array([draw_coefficients(rng, lower, pull) for _ in range(20_000)])
    covariance = np.linalg.inv(precision)
    errors = (drawn.mean(0) - covariance @ pull) / np.sqrt(np.diag(covariance) / len(drawn))
    assert np.abs(errors).max() < 4.0
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.05 * covariance.max())


def test_log_marginal_is_that_of_normal_observations():
    rng = np.random.default_rng(8)
    differences = []
    for v in (0.3, 1.0, 4.0):
        for n in (2, 5):
            design, weights, values = rng.normal(size=(7, n)), rng.gamma(1.0, size=7), np.ones(7)
            covariance = design @ design.T / v + np.diag(1.0 / weights)
            exact = stats.multivariate_normal(np.zeros(7), covariance).logpdf(values)
            found = log_marginal(factorise(gram(design, weights), v), design.T @ weights, v)
            # What does not depend on the design.
            found += stats.norm.logpdf(values, 0.0, weights**-0.5).sum()
            differences.append(found - exact)
    np.testing.assert_allclose(differences, 0.0, atol=1e-10)


def test_precision_is_conjugate():
    rng = np.random.default_rng(9)
    coefficients = rng.normal(size=(4, 2))
    drawn = np.array([draw_precision(rng, (1.5, 0.7), coefficients) for _ in range(20_000)])
    grid = np.linspace(1e-4, 8.0, 4001)
    density = stats.gamma(1.5, scale=1.0 / 0.7).pdf(grid)
    for beta in coefficients.ravel():
        density *= stats.norm(0.0, grid**-0.5).pdf(beta)
    cdf = np.cumsum(density) / density.sum()
    assert stats.kstest(drawn, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


def problem(n_objects=12, m=2, n=4, n_columns=1, seed=0, unlabelled=0):
    rng = np.random.default_rng(seed)
    latent, frequencies = rng.normal(size=(n_objects, m)), rng.normal(size=(n, m))
    labels = np.sign(rng.normal(size=(n_objects, n_columns)))
    labels[:unlabelled] = 0.0
    weights, pulls = observe(rng, 0.5 * rng.normal(size=labels.shape), labels, 0.9)
    return rng, FrequencyEvidence(latent, frequencies, weights, pulls, 1.3)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_a_sweep_gains_what_the_evidence_says(n, n_columns):
    rng, evidence = problem(n=n, n_columns=n_columns, unlabelled=2)
    for _ in range(5):
        candidates = rng.normal(size=evidence.frequencies.shape)
        # All at once, each compared on top of those that were accepted before it.
        gains, now = [], evidence
        for j in range(n):
            other = now.frequencies.copy()
            other[j] = candidates[j]
            moved = now.at(other)
            gains.append(moved.log_evidence - now.log_evidence)
            now = moved
        tight = np.array(gains)
        last = int(rng.integers(n))
        for shift, expected in ((-1e-8, True), (1e-8, False)):
            levels = tight - 1e-8
            levels[last] = tight[last] + shift
            copy = evidence.at(evidence.frequencies)
            accepted = copy.sweep(candidates, levels)
            assert accepted[: last + 1].tolist() == [True] * last + [expected]
        copy = evidence.at(evidence.frequencies)
        assert copy.sweep(candidates, tight - 1e-8).all()
        np.testing.assert_array_equal(copy.frequencies, candidates)
        assert copy.log_evidence == pytest.approx(now.log_evidence, abs=1e-9)
        evidence = copy


def test_the_inverse_does_not_drift_over_a_long_sweep():
    """What updates of rank two leave behind is as good as a fresh factorisation."""
    rng, evidence = problem(n_objects=60, m=3, n=100)
    for _ in range(20):
        candidates = rng.normal(size=evidence.frequencies.shape)
        copy = evidence.at(evidence.frequencies)
        copy.sweep(candidates, np.append(np.full(99, -np.inf), np.inf))
        other = candidates.copy()
        other[99] = copy.frequencies[99]
        last = evidence.at(candidates).log_evidence - evidence.at(other).log_evidence
        for shift, expected in ((-1e-7, True), (1e-7, False)):
            again = evidence.at(evidence.frequencies)
            levels = np.append(np.full(99, -np.inf), last + shift)
            assert again.sweep(candidates, levels)[99] == expected
        evidence = copy


def test_another_precision():
    _, evidence = problem(n_columns=2)
    found, factors = evidence.try_precision(0.4)
    evidence.set_precision(0.4, found, factors)
    fresh = evidence.at(evidence.frequencies)
    assert fresh.log_evidence == pytest.approx(found, abs=1e-10)
    for own, other in zip(evidence.coefficients(), fresh.coefficients(), strict=True):
        np.testing.assert_allclose(own[0], other[0], rtol=1e-12)
        np.testing.assert_allclose(own[1], other[1], rtol=1e-12)


@pytest.mark.parametrize("step", [1.0, 0.5, 0.2])
def test_proposals_leave_the_prior_alone(step):
    rng = np.random.default_rng(10)
    means, factor = np.array([1.0, -2.0]), np.array([[0.5, 0.0], [0.3, 0.2]])
    n = 40_000
    now = means + rng.standard_normal((n, 2)) @ factor.T
    tiled = np.tile(means, (n, 1)), np.tile(factor, (n, 1, 1))
    new = FrequencyPrior(*tiled).propose(rng, now, np.full(n, step))
    np.testing.assert_allclose(new.mean(0), means, atol=0.015)
    np.testing.assert_allclose(np.cov(new.T), factor @ factor.T, atol=0.01)
    together = (now - means).T @ (new - means) / n
    np.testing.assert_allclose(together, np.sqrt(1.0 - step**2) * factor @ factor.T, atol=0.01)


class Standard:
    """Standard normal, in its own coordinates."""

    def coloured(self, z):
        return z

    whitened = pulled = coloured


def test_hamiltonian_moves_are_corrected():
    """With steps so large that a move that is always accepted is far off."""
    rng = np.random.default_rng(12)

    def term(x):
        return -0.25 * np.sum(x**4, axis=(1, 2)), -(x**3)

    x, squares, accepted = np.zeros((1, 2)), [], []
    for _ in range(20_000):
        x, probability = move_together(rng, Standard(), term, x, rng.uniform(0.7, 1.1), 3)
        squares.append(np.square(x).mean())
        accepted.append(probability)
    assert 0.4 < np.mean(accepted) < 0.97
    grid = np.linspace(-6.0, 6.0, 4001)
    density = np.exp(-0.5 * grid**2 - 0.25 * grid**4)
    expected = (grid**2 * density).sum() / density.sum()
    assert np.mean(squares) == pytest.approx(expected, abs=0.01)


def test_coordinates_of_the_prior_are_those_of_dense_algebra():
    rng = np.random.default_rng(2)
    prior = FrequencyPrior(rng.normal(size=(3, 2)), np.tile([[0.5, 0.0], [0.3, 0.2]], (3, 1, 1)))
    z, gradient = rng.normal(size=(2, 4, 3, 2))
    frequencies = prior.coloured(z)
    np.testing.assert_allclose(frequencies, prior.means + z @ prior.factors[0].T)
    np.testing.assert_allclose(prior.whitened(frequencies), z, atol=1e-12)
    np.testing.assert_allclose(prior.pulled(gradient), gradient @ prior.factors[0])


@pytest.mark.parametrize("n_columns", [1, 3])
def test_gradient_without_the_coefficients(n_columns):
    rng, evidence = problem(n=3, n_columns=n_columns, unlabelled=2)
    term = EvidenceTerm(evidence)
    frequencies = rng.normal(size=(1, 3, 2))
    (value,), gradient = term(frequencies)
    there = evidence.at(frequencies[0])
    assert value == pytest.approx(there.log_evidence)
    assert term.evidence.log_evidence == there.log_evidence
    expected = np.empty_like(gradient)
    for at in np.ndindex(gradient.shape):
        away = np.zeros_like(frequencies)
        away[at] = 1e-6
        expected[at] = (term(frequencies + away)[0][0] - term(frequencies - away)[0][0]) / 2e-6
    np.testing.assert_allclose(gradient, expected, atol=1e-5)


def test_where_numbers_end_is_no_place_to_go(monkeypatch):
    _, evidence = problem()
    term = EvidenceTerm(evidence)

    def refuse(self, frequencies):
        raise np.linalg.LinAlgError

    for frequencies in (np.full((1, 4, 2), np.inf), np.zeros((1, 4, 2))):
        (value,), gradient = term(frequencies)
        assert value == -np.inf
        assert not gradient.any()
        assert term.evidence is evidence
        monkeypatch.setattr(FrequencyEvidence, "at", refuse)


# -- a precision that may be lost beside what labels say -------------------------------------------


def with_precision(evidence, frequencies, precision):
    """Return the evidence at another v and other frequencies, made anew."""
    weights = np.square(evidence._roots)
    return FrequencyEvidence(evidence.latent, frequencies, weights, evidence._pulls, precision)


def test_where_v_may_be_lost_sweeps_are_the_same(monkeypatch):
    """One candidate after the other, evaluated anew, where all of them can be."""
    rng, fast = problem(seed=3, n_columns=2)
    slow = fast.at(fast.frequencies)
    assert fast.safe
    candidates, levels = rng.normal(size=(4, 2)), np.array([-9.0, 9.0, -np.inf, -9.0])
    expected = fast.sweep(candidates, levels)
    monkeypatch.setattr(FrequencyEvidence, "safe", False)
    np.testing.assert_array_equal(slow.sweep(candidates, levels), expected)
    assert 0 < expected.sum() < 4
    np.testing.assert_array_equal(slow.frequencies, fast.frequencies)
    assert slow.log_evidence == pytest.approx(fast.log_evidence, rel=1e-9)


def test_only_what_v_is_lost_beside_is_refused():
    """What another frequency nearly is leaves few digits; the other candidates are taken."""
    rng, evidence = problem(n_objects=30)
    candidates = rng.normal(size=(4, 2))
    candidates[2] = candidates[0] + 3e-7
    found = with_precision(evidence, evidence.frequencies, 1e-14)
    assert not found.safe
    accepted = found.sweep(candidates, np.full(4, -np.inf))
    np.testing.assert_array_equal(accepted, [True, True, False, True])
    candidates[2] = evidence.frequencies[2]
    np.testing.assert_array_equal(found.frequencies, candidates)
    fresh = with_precision(evidence, candidates, 1e-14)
    assert found.log_evidence == pytest.approx(fresh.log_evidence, rel=1e-9)


@pytest.mark.parametrize("n", [1, 5, 50])
def test_what_is_safe_can_be_factorised(n):
    """Where all features are alike too, and v alone is left."""
    _, evidence = problem(n_objects=20, n=n, n_columns=2)
    least = lost(2 * n + 1, np.square(evidence._roots).sum(axis=0).max())
    alike = np.zeros((n, 2))
    assert with_precision(evidence, evidence.frequencies, 2.1 * least).safe
    assert with_precision(evidence, alike, 2.1 * least).safe
    assert not with_precision(evidence, alike, 1.9 * least).safe
    with pytest.raises(LostPrecision, match="is lost beside"):
        with_precision(evidence, alike, 0.4 * least)


@pytest.mark.parametrize("C", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("size", [0.5, 30.0])
def test_the_normal_approximation_for_one_label_has_the_right_moments(C, size, monkeypatch):
    monkeypatch.setattr(carry, "_CLOSE", 1e-9)  # where it ends, and not how near it is stopped
    # Of the score alone; across it the prior stays.
    x, precision = size * np.array([0.6, -0.8]), 0.7
    mean, lower = approximate(x[None], C, precision)
    spread = size / np.sqrt(precision)

    def moment(power):
        def density(g):
            return g**power * np.exp(-2.0 * C * max(0.0, 1.0 - g)) * stats.norm.pdf(g, 0.0, spread)

        low, high = -9.0 * spread, 9.0 * spread
        return quad(density, low, 1.0, limit=200)[0] + quad(density, 1.0, high, limit=200)[0]

    whole, first, second = map(moment, range(3))
    assert mean @ x == pytest.approx(first / whole, rel=1e-5)
    covariance = np.linalg.inv(lower @ lower.T)
    assert x @ covariance @ x == pytest.approx(second / whole - (first / whole) ** 2, rel=1e-5)
    across = np.array([0.8, 0.6])
    assert across @ covariance @ across == pytest.approx(1.0 / precision)
    assert mean @ across == pytest.approx(0.0, abs=1e-9)


def test_the_normal_approximation_for_many_labels(monkeypatch):
    monkeypatch.setattr(carry, "_CLOSE", 1e-9)
    rng = np.random.default_rng(9)
    x = rng.normal(size=(6, 1)) + 0.5
    mean, lower = approximate(x, 0.8, 0.5)
    grid = np.linspace(-12.0, 12.0, 20_001)
    logs = -1.6 * np.maximum(0.0, 1.0 - x * grid).sum(axis=0) - 0.25 * grid**2
    law = np.exp(logs - logs.max())
    law /= law.sum()
    middle = law @ grid
    variance = law @ (grid - middle) ** 2
    assert mean[0] == pytest.approx(middle, abs=0.03 * np.sqrt(variance))
    assert lower[0, 0] ** -2 == pytest.approx(variance, rel=0.03)
