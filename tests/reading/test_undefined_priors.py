"""Priors that PyMC does not define: formulas have finite results for them, too."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.priors import Conditions

T, N, M = 3, 6, 2
RNG = np.random.default_rng(0)
X, COUNTS = RNG.normal(size=(N, M)), RNG.poisson(2.0, (N, M))


def counts(weights=lambda: pm.Dirichlet("weights", np.ones(T)), rate=(1.0, 1.0)):
    with pm.Model() as model:
        c = pm.Categorical("c", p=weights(), shape=N)
        rates = pm.Gamma("rate", *rate, shape=(T, M))
        pm.Poisson("x", rates[c], observed=COUNTS)
    return model


def numbers(spread):
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        mean = pm.Normal("mean", 0.0, spread(), shape=(T, M))
        pm.Normal("x", mean[c], 1.0, observed=X)
    return model


def features(spread):
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        z, w = pm.Normal("z", shape=(T, 1)), pm.Normal("w", 0.0, spread, shape=(M, 1))
        pm.Normal("x", z[c] @ w.T, 1.0, observed=X)
    return model


def network():
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        density = pm.Beta("density", free(), 1.0, shape=(T, T))
        cells = RNG.integers(0, 2, (N, N))
        pmm.BlockNetwork("x", [c, c], density, observed=cells, self_loops=True)
    return model


def free():
    return pm.Normal("free", 0.2, 1.0)


NOWHERE = {
    "no concentration": (
        lambda: counts(lambda: pm.StickBreakingWeights("weights", 0.0, K=T - 1)),
        "'weights' is defined where alpha > 0",
    ),
    "a negative one": (
        lambda: counts(lambda: pm.StickBreakingWeights("weights", -1.0, K=T - 1)),
        "'weights' is defined where alpha > 0",
    ),
    "one that is no number": (
        lambda: counts(lambda: pm.StickBreakingWeights("weights", np.nan, K=T - 1)),
        "'weights' is defined where alpha > 0",
    ),
    "a share that is none": (
        lambda: counts(lambda: pm.Dirichlet("weights", np.array([1.0, 0.0, 1.0]))),
        "'weights' is defined where a > 0",
    ),
    "a negative shape": (
        lambda: counts(rate=(-1.0, 1.0)),
        "'rate' is defined where alpha > 0, beta > 0",
    ),
    "a negative spread": (lambda: numbers(lambda: -1.0), "'mean' is defined where sigma > 0"),
    "that of a projection": (lambda: features(-1.0), "'w' is defined where sigma > 0"),
}


@pytest.mark.parametrize("case", NOWHERE)
def test_priors_that_are_defined_nowhere_are_refused(case):
    declare, message = NOWHERE[case]
    structure = read(declare())
    assert not structure.components
    assert message in structure.refusals["c"]
    assert structure.refusals["c"].endswith("which is nowhere the case")


def test_data_without_a_density_are_refused():
    """Infinite noise: formulas for what is integrated out take it for data that say nothing."""
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        z, w = pm.Normal("z", shape=(T, 1)), pm.Normal("w", shape=(M, 1))
        pm.Normal("x", z[c] @ w.T, np.inf, observed=X)
    structure = read(model)
    assert not structure.components
    assert "'x'[0, 0] has no density at any of the points" in structure.refusals["c"]


@pytest.mark.filterwarnings("ignore:Data in x contains missing values")
def test_missing_numbers_of_vectors_are_no_priors():
    holes = np.where(np.eye(N, M) > 0, np.nan, X)
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        mean = pm.Normal("mean", shape=(T, M))
        pm.MvNormal("x", mean[c], cov=np.eye(M), observed=holes)
    assert not read(model).refusals


SOMEWHERE = {
    "a spread": lambda: numbers(free),
    "a concentration": lambda: counts(lambda: pm.StickBreakingWeights("weights", free(), K=T - 1)),
    "densities of networks": network,
}


@pytest.mark.parametrize("case", SOMEWHERE)
def test_hyperparameters_stay_where_priors_are_defined(case):
    """Half of their own prior is where the density of the model is zero."""
    model = SOMEWHERE[case]()
    step = pmm.HyperparameterGibbs([model["free"]], model=model, rng=1)
    point, draws = model.initial_point(0), []
    density = model.compile_logp(mode="FAST_COMPILE")
    for _ in range(100):
        point, _ = step.step(point)
        draws.append(float(point["free"]))
    assert min(draws) > 0.0
    assert np.ptp(draws) > 0.5
    assert np.isfinite(density(point))


def test_hyperparameters_do_not_start_at_a_bound():
    """PyMC takes the mean of the gamma distribution for a start."""
    model = counts(
        lambda: pm.StickBreakingWeights(
            "weights", pm.Truncated("free", pm.Gamma.dist(2.0, 1.0), 0.5, 2.0), K=T - 1
        )
    )
    step = pmm.HyperparameterGibbs([model["free"]], model=model, rng=1)
    with pytest.raises(
        ValueError, match="expected a start within bounds; found one at a bound, inf"
    ):
        step.step(model.initial_point(0))


def test_conditions_are_pymcs():
    with pm.Model() as model:
        x = pm.Normal("x")
        y = pm.Gamma("y", 1.0 + x, 2.0)
        z = pm.Normal("z", 0.0, -1.0)
        k = pm.Exponential("k")
        sure = pm.Gamma("sure", 2.0 * k[None] ** -0.5, 1.0 / k, shape=3)
        unsure = pm.Gamma("unsure", k - 1.0, 1.0)
    conditions = Conditions(model, [x, y])
    point = model.initial_point(0)
    assert conditions.met(point | {"x": np.array(-0.9)})
    assert not conditions.met(point | {"x": np.array(-1.1)})
    points = [point | {"x": np.array(value)} for value in (-2.0, -3.0)]
    assert conditions.never_met(points) == "'y' is defined where alpha > 0, beta > 0"
    assert conditions.never_met([*points, point]) == ""
    assert Conditions(model, [x, z]).never_met([point]) == "'z' is defined where sigma > 0"
    # What is always met is not asked: that would take time at every candidate of a slice.
    assert not Conditions(model, [sure])._messages
    assert not Conditions(model, [unsure]).met(point | {"k_log__": np.array(-0.1)})
    assert Conditions(model, [unsure]).met(point | {"k_log__": np.array(0.1)})
