"""A chain that is broken off and restored from disk, step by step: every step that we have."""

import numpy as np
import pymc as pm
import pytest
from pymc.initial_point import make_initial_point_fns_per_chain

from pm_match.running.chain import ChainSteps, all_steps
from pm_match.running.checkpoint import Checkpoint, seed_state
from pm_match.running.interrupt import Interrupt
from pm_match.serving import step_classes, steps
from pm_match.starts import initial_points
from tests.declared import any_likelihood, columns, hierarchies, networks, normals, views
from tests.declared.factors import FactorKind, factor_kind_model
from tests.declared.features import Kind, feature_model
from tests.declared.normals import aligned_model
from tests.declared.plain import tiny_model

TUNE, DRAWS = 4, 6
ASKED = {"chains": 1, "every": 1e-9, "seed": seed_state(5)}

# Models, the steps of ours that they get, and whether reading them takes seconds.
MODELS = {
    "plain features": (
        lambda: tiny_model(missing=True, linked=True),
        {"FeatureGibbs", "ClusterGibbs"},
    ),
    "projections by map": (
        lambda: tiny_model(projection="map"),
        {"ProjectionMAP", "ClusterGibbs"},
    ),
    "columns": (
        lambda: columns.declared("poisson", hyperprior=True),
        {"HyperparameterGibbs", "ClusterGibbs"},
    ),
    "aligned": (aligned_model, {"AlignmentGibbs", "ScaleMatrixGibbs", "ClusterGibbs"}),
    "factors": (lambda: factor_kind_model(FactorKind()), {"FactorGibbs"}),
    "hierarchy": (hierarchies.declared, {"HierarchyGibbs"}),
    "any likelihood": (
        lambda: any_likelihood.declared(any_likelihood.FAMILIES["student"]),
        {"ClusterGibbs", "ClusterSlice"},
    ),
    "weights of groups": (any_likelihood.weights_of_groups, {"WeightsGibbs", "ClusterGibbs"}),
    "features": (
        lambda: feature_model(Kind(deviations="one", relevance="first", missing=True)),
        {"FeatureGibbs", "ClusterGibbs"},
    ),
    "networks": (
        lambda: networks.network_model(hyperpriors=True, unknown=True),
        {"HyperparameterGibbs", "ClusterGibbs"},
    ),
    "one mode": (lambda: networks.network_model("directed"), {"ClusterGibbs"}),
    "normal": (lambda: normals.normals_model("own"), {"ClusterGibbs"}),
    "missing": (
        lambda: normals.normals_model("missing in views"),
        {"MissingValueGibbs", "ClusterGibbs"},
    ),
    "tails": (
        lambda: normals.normals_model("tails in views"),
        {"PrecisionFactorGibbs", "MissingValueGibbs", "ClusterGibbs"},
    ),
    "beside features": (
        any_likelihood.beside_features,
        {"FeatureGibbs", "ClusterGibbs", "ClusterSlice"},
    ),
    "max margin": (
        views.tiny_views,
        {"FactorGibbs", "FrequencyMetropolis", "LatentHMC", "HingeGibbs", "ClusterGibbs"},
    ),
}
QUICK = ("plain features", "columns")
CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]


def chain_of(model, checkpoint=None) -> ChainSteps:
    return ChainSteps(all_steps(model, steps(model), {}), Interrupt(), checkpoint)


def run(model, chain, n, start=None):
    """Draw as PyMC's drivers do: points and statistics of the first `n` iterations."""
    if start is None:
        (start,) = initial_points(model, 1, 5, init="dispersed", progressbar=False)
    (point,) = make_initial_point_fns_per_chain(
        model=model, overrides=[start], jitter_rvs=set(), chains=1
    )
    rng = np.random.default_rng(5).spawn(1)[0]
    point = point(rng.integers(2**30))
    chain.setup_chain(rng, TUNE, DRAWS)
    chain.reset_tuning()
    found = []
    for i in range(n):
        if i == TUNE:
            chain.stop_tuning()
        point, stats = chain.step(point)
        found.append((point, stats))
    return found


def assert_same(one, two):
    assert len(one) == len(two)
    for (point, stats), (other, others) in zip(one, two, strict=True):
        assert list(point) == list(other)
        for name in point:
            np.testing.assert_array_equal(point[name], other[name], err_msg=name)
        for own, its in zip(stats, others, strict=True):
            assert own.keys() == its.keys()
            for name in own:
                if not name.startswith(("perf_counter", "process_time")) and name != "warning":
                    np.testing.assert_array_equal(own[name], its[name], err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_a_chain_goes_on_as_if_nothing_had_happened(name, tmp_path):
    declare, expected = MODELS[name]
    model = declare()
    assert {type(step).__name__ for step in steps(model)} == expected
    whole = run(model, chain_of(model), TUNE + DRAWS)
    checkpoint = Checkpoint.create(tmp_path, ASKED)
    # Broken off in tuning, just after it, and among the draws.
    for n in (1, TUNE, TUNE + 2):
        run(model, chain_of(model, checkpoint), n)
    # Nothing is left of what is kept with a model.
    model = declare()
    assert_same(whole, run(model, chain_of(model, checkpoint), TUNE + DRAWS))


def test_all_our_steps_are_in_these_models():
    expected = {name for _, names in MODELS.values() for name in names}
    assert {step.__name__ for step in step_classes()} == expected


def test_a_step_that_is_alone_and_its_divergences(tmp_path):
    with pm.Model() as model:
        pm.Normal("x", shape=2)

    def step():
        # So little may be lost of the energy that many moves diverge.
        return pm.NUTS(step_scale=1.0, adapt_step_size=False, Emax=0.2, model=model)

    whole = run(model, ChainSteps([step()], Interrupt()), TUNE + DRAWS, {})
    checkpoint = Checkpoint.create(tmp_path, ASKED)
    for n in (TUNE, TUNE + 3):
        run(model, ChainSteps([step()], Interrupt(), checkpoint), n, {})
    counted = [stats["divergences"] for _, (stats,) in whole]
    assert 0 < counted[TUNE + 2] < counted[-1]
    resumed = run(model, ChainSteps([step()], Interrupt(), checkpoint), TUNE + DRAWS, {})
    assert_same(whole, resumed)
    of_pymc = pm.sample(
        DRAWS,
        tune=TUNE,
        chains=1,
        cores=1,
        step=step(),
        random_seed=5,
        model=model,
        compute_convergence_checks=False,
        progressbar=False,
    )
    x = np.stack([point["x"] for point, _ in whole[TUNE:]])
    np.testing.assert_array_equal(of_pymc["posterior"]["x"].values[0], x)
    assert len(np.unique(x)) > 4
