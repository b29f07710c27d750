"""What is read from graphs, and who may look into them."""

import ast
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.initial_point import make_initial_point_fn
from pymc.logprob.transforms import Transform
from pytensor.graph.traversal import ancestors, explicit_graph_inputs
from scipy.stats import norm

import pm_match
from pm_match.reading import probe
from pm_match.reading.ancestry import Refusal, parameters
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common
from pm_match.reading.probe import density_graphs
from tests.declared.views import tiny_views

ROOT = Path(pm_match.__file__).parent

# What declares distributions, or parts of models, is written in PyTensor.
DECLARING = {
    "features/semi_orthogonal.py",
    "models/aligned_clusters.py",
    "models/declare.py",
    "models/max_margin_views.py",
    "models/projected_clusters.py",
    "networks/checks.py",
    "networks/declare.py",
    "networks/log_density.py",
    "networks/op.py",
    "views/hinge/distribution.py",
    "views/hinge/fourier.py",
}
# Readers name the types of random variables, and nothing else.
READERS = {
    "kind.py",
    "recognise.py",
    "emission_reader.py",
    "labelled_latents.py",
    "plain.py",
    "trial_points.py",
}
TYPES = {"pytensor.tensor.random.basic"}


def imports(path):
    """Names of modules that a file imports, or takes from a package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_only_reading_looks_into_graphs():
    found = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("reading/") or name in DECLARING:
            continue
        own = {m for m in imports(path) if m == "pymc.pytensorf" or m.split(".")[0] == "pytensor"}
        own -= TYPES if path.name in READERS else set()
        if own:
            found[name] = own
    assert not found


def test_the_list_of_what_declares_is_no_longer_than_needed():
    for name in DECLARING:
        assert any(module.split(".")[0] == "pytensor" for module in imports(ROOT / name)), name


# -- functions of points ---------------------------------------------------------------------------


def declared():
    with pm.Model() as model:
        shift = pm.Normal("shift", 0.5, 2.0)
        scale = pm.Gamma("scale", 2.0, 1.5)
        share = pm.Beta("share", 1.0, 2.0)
        weights = pm.Dirichlet("weights", np.ones(3))
        rates = pm.Gamma("rates", np.array([1.0, 2.0]), 1.0 / scale)
        table = pm.Normal("table", shift, tau=scale * 3.0, shape=(4, 2))
        pm.Normal("by_rate", shift + 2.0, tau=rates, shape=(4, 2))
        pm.Categorical("label", weights, shape=5)
        pm.Normal("seen", table * share, 1.0, observed=np.arange(8.0).reshape(4, 2))
    return model


@pytest.fixture(scope="module")
def model():
    return declared()


@pytest.fixture
def count(monkeypatch):
    """Counts functions that are compiled."""
    made, function = [], pytensor.function
    monkeypatch.setattr(
        pytensor, "function", lambda *args, **kwargs: made.append(1) or function(*args, **kwargs)
    )
    return made


def some_point(model):
    rng = np.random.default_rng(3)
    return {
        name: rng.normal(size=np.shape(v)) if np.asarray(v).dtype.kind == "f" else v
        for name, v in model.initial_point(0).items()
    }


def by_pytensor(model, outputs, point):
    """Evaluate graphs of random variables at a point: what PyTensor compiles says."""
    graphs = model.replace_rvs_by_values(outputs)
    values = {v: point[v.name] for v in explicit_graph_inputs(graphs)}
    function = pytensor.function([*values], graphs, mode="FAST_COMPILE")
    return [np.asarray(v) for v in function(*values.values())]


@pytest.mark.parametrize("name", ["shift", "scale", "rates", "table", "by_rate"])
def test_arithmetic_is_read_without_compiling_it(model, count, name):
    outputs, point = [*parameters(model[name]), model[name]], some_point(model)
    count.clear()
    found = probe.point_function(model, outputs)(point)
    assert not count
    expected = by_pytensor(model, outputs, point)
    assert len(found) == len(expected) == 3
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_what_is_read_is_a_copy(model):
    point = some_point(model)
    before = point["table"].copy()
    (found,) = probe.natural_function(model, ["table"])(point)
    found += 1.0
    assert np.array_equal(point["table"], before)


def test_other_graphs_are_not_compiled_either(model, count):
    point = some_point(model)
    count.clear()
    weights, table = probe.natural_function(model, ["weights", "table"])(point)
    assert not count
    assert weights.sum() == pytest.approx(1.0)
    assert np.array_equal(table, point["table"])


def test_loops_are_compiled(model, count):
    point = some_point(model)
    total = pytensor.scan(
        lambda row, sum: sum + row, model["table"], pt.zeros(2), return_updates=False
    )
    count.clear()
    (found,) = probe.point_function(model, [total[-1]])(point)
    assert count
    np.testing.assert_allclose(found, point["table"].sum(axis=0))


@pytest.mark.parametrize("graph", [lambda rv: rv * 2.0, lambda rv: pt.cumsum(rv)])
def test_variables_are_set_to_constants(model, graph):
    rates = np.array([0.5, 4.0])
    read = probe.point_function(model, [graph(model["rates"])], {model["rates"]: rates})
    (found,) = read({})
    assert np.array_equal(found, graph(pt.as_tensor(rates)).eval())


def test_constants_are_not_compiled(model, count):
    constants, shared = pt.constant(np.arange(3.0)), pytensor.shared(np.arange(4.0))
    for variable, expected in ((constants, np.arange(3.0)), (shared, np.arange(4.0))):
        found = probe.evaluate(variable)
        found += 1.0
        assert np.array_equal(probe.evaluate(variable), expected)
    assert not count
    assert np.array_equal(probe.evaluate(shared.sum()), 6.0)
    assert len(count) == 1


def test_inputs_stand_for_variables(model):
    stand, point = pt.matrix(), some_point(model)
    outputs = [model["table"] * model["share"]]
    function, names = probe.compiled(model, outputs, {model["table"]: stand}, [stand])
    assert names == ["share_logodds__"]
    (found,) = function(point, np.ones((4, 2)))
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp(-point["share_logodds__"])))


@pytest.mark.parametrize("name", ["shift", "scale", "share", "weights", "rates"])
def test_values_go_to_the_scale_that_is_sampled(model, name):
    point = some_point(model)
    (natural,) = probe.natural_function(model, [name])(point)
    found = probe.sampled_function(model, name)({}, natural)
    key = model.rvs_to_values[model[name]].name
    assert found.dtype == point[key].dtype
    np.testing.assert_allclose(found, point[key], rtol=1e-10)


def test_matrices_that_a_graph_is_made_with():
    held = np.arange(6.0).reshape(3, 2)
    graph = pt.exp(pytensor.shared(held)) @ pt.constant(np.ones((2, 5))) + pt.constant(np.ones(5))
    (found,) = probe.held_matrices(graph, 2)
    assert np.array_equal(found, held)


# -- a model that is being read --------------------------------------------------------------------


def test_shapes_are_those_of_variables_and_not_of_their_values(model):
    context = Context.of(model)
    assert context.start["weights_simplex__"].shape == (2,)
    assert context.shapes["weights"] == (3,)
    assert context.shapes["table"] == (4, 2)
    assert context.shapes["label"] == (5,)


def test_conjugate_priors_are_read_at_a_point(model):
    context, point = Context.of(model), some_point(model)
    scale, shift = np.exp(point["scale_log__"]), point["shift"]
    mean, precision = context.normal_prior(model["table"], np.transpose)(point)
    assert mean.shape == precision.shape == (2, 4)
    np.testing.assert_allclose(mean, shift)
    np.testing.assert_allclose(precision, 3.0 * scale)
    shape, rate = context.gamma_prior(model["rates"])(point)
    np.testing.assert_allclose(shape, [1.0, 2.0])
    np.testing.assert_allclose(rate, np.full(2, 1.0 / scale))
    assert [float(p) for p in context.gamma_prior(model["scale"])({})] == [2.0, 1.5]


def test_positive_variables_are_multiplied(model):
    context, point = Context.of(model), some_point(model)
    moved = context.multiplied(point, model["rates"], np.array([2.0, 5.0]))
    read = context.at([model["rates"]])
    np.testing.assert_allclose(read(moved)[0], read(point)[0] * [2.0, 5.0])
    assert {name for name in point if moved[name] is not point[name]} == {"rates_log__"}


def test_a_density_is_normal_or_is_not(model):
    context = Context.of(model)
    table = model["table"]
    check = DensityCheck(context, [table], {})
    prior = context.normal_prior(table)
    assert check.is_normal(table, map(prior, check.points))
    assert not check.is_normal(table, ((mean, 2.0 * tau) for mean, tau in map(prior, check.points)))


def test_tables_are_finite_or_declared_missing():
    values = np.arange(6.0).reshape(3, 2)
    holes = values.copy()
    holes[1, 0] = np.nan
    with pm.Model() as model:
        pm.Normal("whole", 0.0, 1.0, observed=values)
        with pytest.warns(pm.exceptions.ImputationWarning):
            pm.Normal("holes", 0.0, 1.0, observed=holes)
        pm.Normal("endless", 0.0, 1.0, observed=pt.constant(np.array([1.0, np.inf])))
    context = Context.of(model)
    found, seen = context.table([model["whole"]])
    assert np.array_equal(found, values)
    assert seen is None
    found, seen = context.table([model["holes_observed"], model["holes_unobserved"]])
    assert np.array_equal(seen, np.isfinite(holes))
    assert np.array_equal(found, np.where(seen, values, 0.0))
    with pytest.raises(Refusal, match=r"'endless' holds inf where nothing is declared missing"):
        context.table([model["endless"]])


def test_entries_are_all_alike_or_not():
    rows = np.array([[1.0, 2.0], [1.0, 2.0]])
    assert np.array_equal(common(rows, 1), [1.0, 2.0])
    assert common(rows) is None
    assert common(np.ones((2, 3))) == 1.0
    assert common(3.0) == 3.0
    assert common(rows + np.array([[0.0], [1e-9]]), 1) is None


def test_notes_of_rewrites_do_not_multiply():
    model = tiny_views()
    tags = [v.tag for v in ancestors([*model.basic_RVs, *model.value_vars])]

    def n_notes():
        return sum(len(getattr(tag, "trace", None) or []) for tag in tags)

    before = n_notes()
    for _ in range(3):
        density_graphs(model, model.observed_RVs)
    assert n_notes() == before


def hierarchy():
    """A model with transforms, a potential, and an initial value of its own."""
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 1.0, initval=3.0)
        mean = pm.Normal("mean", rate, 1.0, shape=3)
        weights = pm.Dirichlet("weights", np.ones(4))
        pm.Categorical("label", weights, shape=5)
        pm.Potential("tilt", -rate)
        pm.Normal("seen", mean, 1.0, observed=np.arange(3.0))
    return model


def test_initial_points_are_those_of_pymc():
    model = hierarchy()
    expected = make_initial_point_fn(model=model)(0)
    found = probe.starts(model)(0)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12)
        assert found[name].dtype == value.dtype


def test_jittered_starts_differ_by_seed_and_nowhere_else():
    model = hierarchy()
    start = probe.starts(model, [model["mean"]])
    one, same, other = start(1), start(1), start(2)
    np.testing.assert_array_equal(one["mean"], same["mean"])
    assert (one["mean"] != other["mean"]).all()
    assert (np.abs(one["mean"] - 3.0) < 1.0).all()
    assert one["rate_log__"] == other["rate_log__"]


def test_densities_are_those_of_pymc_and_of_what_is_added_too():
    model = hierarchy()
    point = model.initial_point(0)

    def compare(*names):
        variables = [model[name] for name in names]
        for jacobian in (True, False):
            found = density_graphs(model, variables, jacobian)
            parts = density_graphs(model, variables, jacobian, sum=False)
            expected = model.logp(variables, jacobian=jacobian)
            function, _ = probe.compiled(model, [found, expected, *parts])
            found, expected, *parts = function(point)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
            np.testing.assert_allclose(sum(v.sum() for v in parts), expected, rtol=1e-12)

    compare("rate", "mean")
    compare("tilt", "weights", "seen")
    with model:
        pm.Normal("more", model["rate"], 2.0, observed=0.5)
    compare("more")


class Doubled(Transform):
    """One without a name: PyMC gives its log Jacobian none."""

    name, ndim_supp = "", 0

    def forward(self, value, *inputs):
        return 2.0 * value

    def backward(self, value, *inputs):
        return 0.5 * value


def test_densities_without_a_jacobian_that_has_no_name():
    with pm.Model() as model:
        x = pm.Normal("x", transform=Doubled())
    for jacobian, added in ((False, 0.0), (True, np.log(0.5))):
        (graph,) = density_graphs(model, [x], jacobian, sum=False)
        function, _ = probe.compiled(model, [graph])
        (found,) = function({model.rvs_to_values[x].name: np.array(2.0)})
        np.testing.assert_allclose(found, norm.logpdf(1.0) + added)


def test_densities_are_made_anew_for_another_transform():
    with pm.Model() as model:
        x = pm.HalfNormal("x")
        pm.Normal("y", x, observed=np.zeros(3))
    (kept,) = density_graphs(model, [x], sum=False)
    assert density_graphs(model, [x], sum=False)[0] is kept
    model.rvs_to_transforms[x] = type(model.rvs_to_transforms[x])()
    assert density_graphs(model, [x], sum=False)[0] is not kept


def test_densities_of_others_can_be_had_where_one_cannot():
    with pm.Model() as model:
        mean = pm.Normal("mean")
        outside = pm.Normal.dist()
        odd = pm.CustomDist("odd", mean, logp=lambda value, mean: value + mean + outside)
        pm.Normal("seen", mean, 1.0, observed=1.0)
    with pytest.raises(ValueError, match="Random variables detected"):
        density_graphs(model, [odd])
    (graph,) = density_graphs(model, [model["seen"]], sum=False)
    function, _ = probe.compiled(model, [graph])
    np.testing.assert_allclose(function({"mean": 1.0})[0], -0.5 * np.log(2.0 * np.pi))
