"""Independent columns are exact: every family, alone and with all that goes with it."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.clusters.protocol import collected
from pm_match.reading import read
from tests.declared.columns import (
    FAMILIES,
    HOLED,
    T,
    data_of,
    declared,
    observe,
    parameters,
)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    testing.check_kind(declared(family), n_sweeps=60_000)


@pytest.mark.parametrize("family", FAMILIES)
def test_hyperparameters(family):
    model = declared(family, hyperprior=True)
    assert read(model).components[0].hyperparameters == ("theta_hyper",)
    testing.check_hyperparameters(model)
    testing.check_running_state(model, n_moves=300)


@pytest.mark.parametrize("family", HOLED)
def test_missing_values(family):
    model = declared(family, missing=True)
    (evidence,) = read(model).components[0].evidence
    assert evidence.names[-1] == "a_unobserved"
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=1000)
    testing.check_declared_density(model)
    testing.check_draws(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_links(family):
    model = declared(family, links=True)
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=1000)
    testing.check_law(model, n_sweeps=20_000)


@pytest.mark.parametrize("family", ["poisson", "categorical", "normal"])
def test_parameters_of_their_own(family):
    model = declared(family, own=True)
    assert len(read(model).components[0].evidence) == 2
    testing.check_kind(model, n_sweeps=60_000)


def with_free_noise():
    """One number an object, whose noise is a free variable."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=5)
        mean = pm.Normal("mean", 0.0, 2.0, shape=T)
        noise = pm.HalfNormal("noise")
        values = np.ma.masked_array(rng.normal(size=5), [0, 0, 1, 0, 0])
        pm.Normal("x", mean[cluster], noise * np.linspace(0.5, 1.0, 5), observed=values)
    return model


def test_noise_that_is_free():
    model = with_free_noise()
    assert not read(model).refusals
    testing.check_kind(model, n_sweeps=30_000)


def many_together(model, weights, clusters, rng):
    """Other columns, features and a network over the same assignments."""
    own = parameters("categorical", name="kinds")
    observe("categorical", "kind", clusters["a"], own, data_of("categorical", 3, rng))
    latent = pm.Normal("latent", shape=(T, 2))
    for name, cluster in clusters.items():
        loadings = pm.Normal(f"loadings_{name}", shape=(2, 2))
        values = rng.normal(size=(cluster.shape.eval()[0], 2))
        pm.Normal(f"features_{name}", latent[cluster] @ loadings, 0.7, observed=values)
    density = pm.Beta("density", 1.0, 2.0, shape=(T, T))
    axes = [clusters["a"], clusters["b"]]
    pmm.BlockNetwork("network", axes, density, observed=rng.binomial(1, 0.4, (3, 3)))


@pytest.mark.parametrize("family", ["poisson", "normal"])
def test_together_with_features_and_networks(family):
    model = declared(family, beside=many_together)
    structure = read(model)
    assert not structure.refusals
    ((component),) = structure.components
    assert sorted(own.kind for own in component.evidence) == [
        "columns",
        "columns",
        "features",
        "networks",
    ]
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=500)
    testing.check_law(model, n_sweeps=60_000)


def shared_in_part():
    """Two domains that share some columns, one family each; counts and times share a rate."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        a = pm.Categorical("cluster_a", p=weights, shape=4)
        b = pm.Categorical("cluster_b", p=weights, shape=3)
        rate = pm.Gamma("rate", 1.5, 0.5, shape=(T, 3))
        hours = 0.5 + rng.random((4, 1))
        pm.Poisson("counts", hours * rate[a][:, :2], observed=rng.poisson(2.0, (4, 2)))
        pm.Exponential("times", rate[b, 1:], observed=rng.exponential(1.0, (3, 2)))
        chance = pm.Beta("chance", 1.2, 0.8, shape=T)
        pm.Bernoulli("yes", chance[a], observed=rng.binomial(1, 0.4, 4))
        pm.Binomial("successes", 4, chance[b], observed=rng.binomial(4, 0.4, 3))
        # In any order, several of one object.
        own = np.array([2, 0, 0, 1])
        pm.Geometric("tries", chance[b][own], observed=rng.geometric(0.4, 4))
    return model


def test_columns_that_domains_share_in_part():
    model = shared_in_part()
    structure = read(model)
    assert not structure.refusals
    ((component),) = structure.components
    assert [len(own.cells) for own in component.evidence] == [2, 3]
    testing.check_kind(model, n_sweeps=60_000)


def test_the_term_is_chosen_by_the_prior_alone():
    model = shared_in_part()
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model)
    (terms,) = step._collapsed.terms
    assert {type(term).__name__ for term in collected(terms)} == {"ColumnsTerm"}


def test_far_values_are_no_trouble():
    """Statistics far from zero: years, say, whose spread is small."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=5)
        precision = pm.Gamma("precision", 2.0, 1e-6, shape=T)
        mean = pm.Normal("mean", 1e6, tau=1e-3 * precision, shape=T)
        values = 1e6 + 1e-3 * rng.normal(size=5)
        pm.Normal("x", mean[cluster], tau=precision[cluster], observed=values)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    before = state.log_joint()
    labels = state.labels(point)
    for _ in range(2000):
        state.sweep(rng)
    moved = state.log_joint()
    found = state.found()
    state.load(point, found)
    assert state.log_joint() == pytest.approx(moved, abs=1e-7)
    state.load(point, labels)
    assert state.log_joint() == pytest.approx(before, abs=1e-7)
