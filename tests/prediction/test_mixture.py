import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from pm_match.prediction.averages import WeightedMean
from pm_match.prediction.mixture import CategoryLaw, Law, NormalLaw, mixture_mean, mixture_quantiles


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.01, 0.99), st.floats(0.1, 30.0))
def test_quantiles_are_those_of_the_distribution_function(seed, level, apart):
    rng = np.random.default_rng(seed)
    weight = rng.random(6) ** 4
    mean, sd = apart * rng.normal(size=(6, 3)), rng.uniform(0.3, 2.0, (6, 3))
    found = mixture_quantiles(weight, NormalLaw(mean, sd), np.array([level]))[0]
    for m in range(3):

        def excess(y, m=m):
            return (weight / weight.sum()) @ stats.norm.cdf(y, mean[:, m], sd[:, m]) - level

        assert abs(excess(found[m])) < 1e-7
        reach = 10.0 * (np.abs(mean).max() + sd.max())
        expected = optimize.brentq(excess, -reach, reach)
        # Between components far apart the distribution function is flat.
        assert abs(found[m] - expected) < 1e-4 or abs(excess(expected)) < 1e-12
    np.testing.assert_allclose(mixture_mean(weight, mean), np.average(mean, axis=0, weights=weight))


def test_one_component_is_a_normal_distribution():
    levels = np.array([0.055, 0.5, 0.945])
    law = NormalLaw(np.array([[3.0]]), np.array([[2.0]]))
    found = mixture_quantiles(np.ones(1), law, levels)
    np.testing.assert_allclose(found[:, 0], stats.norm.ppf(levels, 3.0, 2.0), atol=1e-8)


@pytest.mark.parametrize("level", [0.03, 0.5, 0.97])
def test_quantiles_of_counts_are_the_least_that_reach_the_level(level):
    rng = np.random.default_rng(0)
    weight, rate = rng.random(5), rng.gamma(1.0, 20.0, (5, 40))
    (found,) = mixture_quantiles(weight, Law(stats.poisson, rate), np.array([level]))

    def cdf(y):
        return weight / weight.sum() @ stats.poisson.cdf(y, rate)

    assert (found == np.floor(found)).all()
    assert (cdf(found) >= level).all()
    assert (cdf(found - 1.0) < level).all()


def test_quantiles_of_heavy_tails():
    weight, rate = np.array([0.2, 0.8]), np.array([[0.01], [5.0]])
    law = Law(stats.expon, 0.0, 1.0 / rate)
    for level in (0.05, 0.5, 0.95):
        (found,) = mixture_quantiles(weight, law, np.array([level]))
        assert weight @ stats.expon.cdf(found, 0.0, 1.0 / rate) == pytest.approx(level, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-12, 1e6, 1e90, np.inf])
def test_quantiles_where_some_components_are_of_another_scale(scale):
    """As of empty clusters, whose precisions have next to no prior."""
    weight, sd = np.array([0.4, 0.59, 0.01]), np.array([[1.0], [0.5], [scale]])
    law = NormalLaw(np.array([[-3.0], [4.0], [0.0]]), sd)
    for level in (0.03, 0.3, 0.97):
        ((found,),) = mixture_quantiles(weight, law, np.array([level]))
        below = stats.norm.cdf([found + 3.0, (found - 4.0) / 0.5, found / scale])
        assert weight @ below == pytest.approx(level, abs=1e-9)


def test_the_most_probable_category_of_a_mixture():
    law = CategoryLaw(np.array([[[0.6, 0.4, 0.0]], [[0.1, 0.4, 0.5]]]))
    found = law.summaries(np.array([1.0, 1.0]), np.array([]))
    np.testing.assert_allclose(found[:, 0], [1, 0.4])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.0, 400.0))
def test_weighted_means_do_not_overflow(seed, spread):
    rng = np.random.default_rng(seed)
    log_weight = -2000.0 + spread * rng.normal(size=(7, 3))
    values = rng.normal(size=(7, 3, 2))
    running, plain = WeightedMean(3, {"f": 2}), WeightedMean(3, {"f": 2})
    for log_u, value in zip(log_weight, values, strict=True):
        running.add(log_u, {"f": value})
        plain.add(log_u, {"f": value}, weighted=False)
    u = np.exp(log_weight - log_weight.max(axis=0))
    expected = (u[:, :, None] * values).sum(axis=0) / u.sum(axis=0)[:, None]
    np.testing.assert_allclose(running.values()["f"], expected, rtol=1e-9, atol=1e-12)
    expected = np.log(u.mean(axis=0)) + log_weight.max(axis=0)
    for found in (running, plain):
        np.testing.assert_allclose(found.log_mean_weight(), expected)
    np.testing.assert_allclose(plain.values()["f"], values.mean(axis=0))
