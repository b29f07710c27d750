"""Log densities by hand, and of several variables, against the model's own."""

import numpy as np
import pymc as pm
import pytest

from pm_match.reading.priors import log_density_function
from pm_match.reading.probe import value_density

ONE = np.float64(1.0)


def declared():
    with pm.Model() as model:
        mean = pm.Normal("mean", ONE, 2.0 * ONE)
        width = pm.HalfNormal("width", 1.3 * ONE, shape=2)
        pm.LogNormal("log_normal", mean, width, shape=(3, 2))
        rate = pm.Gamma("rate", 2.0 * ONE, 1.5 * ONE)
        shape = pm.Exponential("shape", 0.7 * ONE)
        pm.Gamma("by_rate", shape, rate, shape=2)
        pm.Gamma("by_moments", mu=2.0 * ONE, sigma=rate)
        pm.Normal("by_precision", mean, tau=rate**2, shape=(2, 3))
        pm.Normal("wide", np.zeros((2, 1)), np.ones(3), shape=(2, 3))
        pm.HalfNormal("by_tau", tau=rate)
        pm.Normal("may_fail", 0.0, 1.0 + mean)
        # By the compiled way.
        pm.Laplace("other", mean, rate)
        pm.HalfNormal("otherwise", 1.0, transform=pm.distributions.transforms.Interval(0, 3))
    return model


@pytest.fixture(scope="module")
def model():
    return declared()


def points(model):
    rng = np.random.default_rng(0)
    for _ in range(4):
        yield {
            name: rng.normal(0.0, 1.5, np.shape(v)) for name, v in model.initial_point(0).items()
        }


@pytest.mark.parametrize("name", [rv.name for rv in declared().free_RVs])
def test_density_is_the_declared_one(model, name):
    log_density = log_density_function(model, name)
    expected = model.compile_logp(vars=[model[name]], mode="FAST_COMPILE")
    for point in points(model):
        if name == "may_fail" and 1.0 + point["mean"] <= 0.0:
            assert log_density(point) == -np.inf
            continue
        assert log_density(point) == pytest.approx(float(expected(point)), rel=1e-10)


@pytest.mark.parametrize("jacobian", [True, False])
def test_joint_density_is_the_declared_one(model, jacobian):
    variables = [model[name] for name in ("mean", "rate", "log_normal")]
    expected = model.compile_logp(vars=variables, jacobian=jacobian, mode="FAST_COMPILE")
    for point in points(model):
        found = value_density(model, variables, jacobian)(point)
        assert found == pytest.approx(float(expected(point)), rel=1e-10)
    assert value_density(model, [])({}) == 0.0
