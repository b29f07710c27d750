"""The contract of PyMC's step methods, whose breach goes unnoticed until draws are wrong."""

import copy
from contextlib import nullcontext

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods import STEP_METHODS

import pm_match as pmm
from pm_match.features.projection import ProjectionObjective
from pm_match.serving import register
from tests.declared import features as with_features
from tests.declared.features import Kind, Plain, feature_model
from tests.declared.plain import random_point, tiny_model

KINDS = {
    "clusters": (pmm.ClusterGibbs, {"missing": True}),
    "map": (pmm.ProjectionMAP, {"projection": "map", "missing": True}),
    "gibbs": (pmm.FeatureGibbs, {"missing": True}),
}


@pytest.fixture(params=KINDS)
def step(request):
    kind, arguments = KINDS[request.param]
    model = tiny_model(**arguments)
    made = [s for s in pmm.steps(model) if isinstance(s, kind)]
    assert len(made) == 1
    made[0].setup_chain(np.random.default_rng(5), 0, 0)
    return made[0]


def run(step, point, n=4):
    for _ in range(n):
        point, stats = step.step(point)
    return point, stats


def equal(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def test_input_is_untouched_and_output_has_its_form(step):
    point = random_point(step.model, np.random.default_rng(1))
    before = copy.deepcopy(point)
    for value in point.values():
        value.setflags(write=False)
    new, _ = step.step(point)
    assert equal(point, before)
    assert list(new) == list(point)
    assert not equal(new, point)
    for name, value in new.items():
        assert isinstance(value, np.ndarray), name
        assert value.dtype == point[name].dtype, name
        assert value.shape == point[name].shape, name


def test_changes_only_what_it_says(step):
    point = random_point(step.model, np.random.default_rng(1))
    new, _ = run(step, point)
    changed = {name for name in new if not np.array_equal(new[name], point[name])}
    own = {variable.name for variable in step.vars}
    assert own <= changed
    # Projection steps integrate these out, and redraw them so that the point stays consistent.
    redrawn = {
        pmm.ClusterGibbs: set(),
        pmm.ProjectionMAP: {"precision_log__", "latent", "a_unobserved", "b_unobserved"},
        pmm.FeatureGibbs: {
            *("latent", "a_unobserved", "b_unobserved"),
            # Where clusters of a domain have exchanged their labels.
            *("cluster_a", "cluster_b", "weights_simplex__"),
        },
    }
    assert changed <= own | redrawn[type(step)]


def test_stats_are_the_declared_ones(step):
    _, (stats,) = step.step(random_point(step.model, np.random.default_rng(1)))
    assert set(stats) == set(step.stats_dtypes_shapes)
    for name, (dtype, shape) in step.stats_dtypes_shapes.items():
        assert np.asarray(stats[name]).dtype == np.dtype(dtype), name
        assert list(np.shape(stats[name])) == shape, name


def test_sampling_state_restores_the_step(step):
    point = random_point(step.model, np.random.default_rng(1))
    state = step.sampling_state
    first, _ = run(step, point)
    second, _ = run(step, point)
    assert not equal(first, second)
    step.sampling_state = state
    again, _ = run(step, point)
    assert equal(first, again)


def test_a_copy_in_another_process_goes_on_alike(step):
    other = cloudpickle.loads(cloudpickle.dumps(step))
    point = random_point(step.model, np.random.default_rng(1))
    assert equal(run(step, point)[0], run(other, point)[0])
    assert other.sampling_state.started == step.sampling_state.started


def test_degenerate_starts_are_dispersed_once():
    model = tiny_model(projection="map")
    point = model.initial_point()
    assert not point["cluster_a"].any()
    assert not point["projection_a"].any()
    for made in pmm.steps(model):
        # One instance serves all chains that run in one process: each starts anew.
        for _ in range(2):
            made.setup_chain(np.random.default_rng(3), 0, 0)
            assert not made.started
            point, _ = made.step(point)
            assert made.started
    assert point["projection_a"].any()


def test_a_start_off_the_links_is_refused():
    model = tiny_model(linked=True)
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model)
    point = model.initial_point()
    point["cluster_a"] = np.array([0, 1, 2])
    with pytest.raises(ValueError, match="start contradicts must_link"):
        step.step(point)


@pytest.mark.parametrize("kind", [pmm.ClusterGibbs, pmm.FeatureGibbs])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 3], "expected labels in 0 ... 2; found 0 to 3"),
        ([0, 1, 10**6], "expected labels in 0 ... 2; found 0 to 1000000"),
        ([0, -1, 1], "expected labels in 0 ... 2; found -1 to 1"),
        ([0, 1], r"expected 3 labels; found an array of shape \(2,\)"),
        ([[0, 1, 2]], r"expected 3 labels; found an array of shape \(1, 3\)"),
    ],
)
def test_labels_that_are_none_are_refused(kind, labels, message):
    model = tiny_model()
    variables = ["cluster_a"] if kind is pmm.ClusterGibbs else ["projection_a"]
    step = kind([model[name] for name in variables], model=model)
    point = model.initial_point()
    point["cluster_b"] = np.array(labels)
    with pytest.raises(ValueError, match=f"'cluster_b': {message}"):
        step.step(point)


@pytest.mark.parametrize(
    ("kind", "argument", "message"),
    [
        (pmm.ClusterGibbs, "n_sweeps", "n_sweeps: expected a whole number of at least 1; found 0"),
        (
            pmm.ProjectionMAP,
            "n_iterations",
            "ProjectionMAP: n_iterations: expected a whole number of at least 1; found 0",
        ),
    ],
)
def test_counts_must_be_positive(kind, argument, message):
    model = tiny_model(projection="map")
    name = "cluster_a" if kind is pmm.ClusterGibbs else "projection_a"
    with pytest.raises(ValueError, match=message):
        kind([model[name]], model=model, **{argument: 0})


def test_a_step_says_what_it_serves():
    model = tiny_model()
    with pytest.raises(
        ValueError, match=r"cannot serve 'projection_a': it serves 'weights', 'cluster_a'"
    ):
        pmm.ClusterGibbs([model["projection_a"]], model=model)


def test_projections_are_gradual_while_the_chain_warms_up(monkeypatch):
    model = tiny_model(projection="map")
    (step,) = [s for s in pmm.steps(model) if isinstance(s, pmm.ProjectionMAP)]
    asked = []
    maximise = ProjectionObjective.maximise

    def spy(objective, most):
        asked.append(most)
        return maximise(objective, most)

    monkeypatch.setattr(ProjectionObjective, "maximise", spy)
    step.setup_chain(np.random.default_rng(0), 5, 3)
    run(step, model.initial_point(0), 8)
    assert asked == [1] * 4 + [20] * 4
    # Where it is in its warm-up travels with the step.
    assert cloudpickle.loads(cloudpickle.dumps(step)).n_done == 8
    assert step.sampling_state.n_gradual == 4


def test_registered_once_and_first():
    register()
    ours = [
        pmm.FactorGibbs,
        pmm.LatentHMC,
        pmm.ProjectionMAP,
        pmm.FeatureGibbs,
        pmm.AlignmentGibbs,
        pmm.ScaleMatrixGibbs,
        pmm.PrecisionFactorGibbs,
        pmm.MissingValueGibbs,
        pmm.HyperparameterGibbs,
        pmm.WeightsGibbs,
        pmm.FrequencyMetropolis,
        pmm.HingeGibbs,
        pmm.HierarchyGibbs,
        pmm.ClusterGibbs,
    ]
    assert set(STEP_METHODS[: len(ours)]) == set(ours)
    assert len(set(STEP_METHODS)) == len(STEP_METHODS)


def test_other_models_are_not_touched():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        z = pm.Categorical("z", p=p, shape=4)
        pm.Poisson("x", pt_exp(z), observed=[1, 2, 3, 4])
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert not set(chosen) & set(STEP_METHODS[:5])


def pt_exp(z):
    return pm.math.exp(0.3 * z)


@pytest.mark.parametrize("context", [nullcontext, pm.Model], ids=["none", "of another model"])
def test_outside_its_context_ours_decline_and_say_so(context):
    model = tiny_model()
    with context(), pytest.warns(UserWarning, match="cannot see the model") as caught:
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert [str(w.message).split("'")[1] for w in caught] == ["cluster_a", "cluster_b"]
    assert not set(chosen) & set(STEP_METHODS[:5])
    with model:
        _, chosen = pm.sampling.mcmc.assign_step_methods(model)
    assert set(chosen) == {pmm.FeatureGibbs, pmm.ClusterGibbs}


@pytest.mark.parametrize(
    "kind",
    [
        Kind(relevance="all", noise="vector"),
        Kind(powers=(0.6,), relevance="all", noise="vector", deviations="one"),
    ],
)
def test_slices_look_at_the_density_of_all_features(kind):
    model = feature_model(kind)
    step = next(s for s in pmm.steps(model) if isinstance(s, pmm.FeatureGibbs))
    rng = np.random.default_rng(1)
    for _ in range(5):
        point = with_features.random_point(model, rng)
        step._load(point)
        expected = Plain(kind, model, point).log_likelihood()
        assert step._log_likelihood(point) == pytest.approx(expected, rel=1e-9)


def test_features_of_which_no_object_is_relevant():
    model = feature_model(Kind(relevance="first"))
    step = next(s for s in pmm.steps(model) if isinstance(s, pmm.FeatureGibbs))
    step.setup_chain(np.random.default_rng(5), 0, 0)
    point = model.initial_point(0)
    point["relevance_a"] = np.zeros_like(point["relevance_a"])
    for _ in range(8):
        new, _ = step.step(point)
        assert all(np.isfinite(value).all() for value in new.values())
