"""Which views are read as linear factor models, however they are written, and which are refused."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from pymc.initial_point import make_initial_point_fn

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.ancestry import scale
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import PLAIN, point_function
from pm_match.views.factors.recognise import FactorModel
from tests.declared.factor_ways import EQUAL, D, M, N, declare
from tests.declared.factors import FactorKind, factor_kind_model
from tests.declared.plain import tiny_model

pytestmark = pytest.mark.usefixtures("only_collapsed")


def part_of(model) -> FactorModel:
    structure = read(model)
    assert not structure.refusals, structure.refusals
    (part,) = structure.parts
    assert isinstance(part, FactorModel)
    return part


@pytest.mark.parametrize("how", EQUAL)
def test_ways_of_writing_it_are_read_alike(how):
    part = part_of(declare(**EQUAL[how]))
    (view,) = part.views
    assert set(part.names) == {"latent", "loading", "intercept", "noise"}
    assert [latent.name for latent in part.latents] == ["latent"]
    assert [loading.name for loading in view.loadings] == ["loading"]
    assert view.intercept.name == "intercept"
    assert [precision.name for precision in part.precisions] == ["noise"]
    # Which of the two is which is certain even where shapes do not tell.
    assert part.latents[0].transposed == (how == "transposed latent")
    assert view.loadings[0].transposed == (how == "transposed loading")


def started(model, seed=1):
    """Return a chain's start, and the log density there."""
    values = pmm.initial_points(model, 1, seed)[0]
    point = make_initial_point_fn(model=model, overrides=values)(0)
    return values, model.compile_logp(mode=PLAIN)(point)


@pytest.mark.parametrize("how", EQUAL)
def test_ways_of_writing_it_have_starts_of_their_shapes(how):
    model = declare(**EQUAL[how])
    shapes = {rv.name: rv.type.shape for rv in model.free_RVs}
    values, log_density = started(model)
    assert {name: value.shape for name, value in values.items()} == shapes
    assert np.isfinite(log_density)


GIVEN = {
    "positive": lambda: pm.HalfNormal("latent", 1.0, shape=(N, M)),
    "in an interval": lambda: pm.Uniform("latent", 2.0, 3.0, shape=(N, M)),
    "positive, as it is": lambda: pm.HalfNormal(
        "latent", 1.0, shape=(N, M), default_transform=None
    ),
    "transposed": lambda: pm.HalfNormal("latent", 1.0, shape=(M, N)).T,
}


@pytest.mark.parametrize("how", GIVEN)
def test_latents_that_are_no_components_start_as_pymc_starts_them(how):
    model = declare(latent=GIVEN[how])
    values, log_density = started(model)
    assert np.isfinite(log_density)
    other, _ = started(model, 2)
    z, w, a = (values[name] for name in ("latent", "loading", "intercept"))
    assert not np.array_equal(z, other["latent"])
    # Loadings are the ridge regression on just these.
    z = z.T if how == "transposed" else z
    gram = z.T @ z + (1.0 + 1e-6 * np.square(z).sum()) * np.eye(M)
    x = model.rvs_to_values[model["x"]].eval()
    assert np.allclose(w, np.linalg.solve(gram, z.T @ (x - x.mean(axis=0))).T)
    assert np.allclose(a, x.mean(axis=0))


def test_latents_of_any_values_start_at_components():
    for latent in (
        lambda: pm.Laplace("latent", 0.0, 1.0, shape=(N, M)),
        lambda: pm.StudentT("latent", 4.0, shape=(N, M)),
        lambda: pm.MvNormal("latent", np.zeros(M), np.eye(M), shape=(N, M)),
    ):
        model = declare(latent=latent)
        values, log_density = started(model)
        x = model.rvs_to_values[model["x"]].eval()
        components = np.linalg.svd(x - x.mean(axis=0))[0][:, :M]
        # But for jitter.
        correlation = np.corrcoef(components.T, values["latent"].T)[:M, M:]
        assert np.allclose(np.abs(correlation).max(axis=1), 1.0, atol=0.1)
        assert np.isfinite(log_density)


LEFT = {
    "half-normal noise": {"noise": lambda: {"sigma": pm.HalfNormal("noise", 1.0)}},
    "known noise": {"noise": lambda: {"sigma": 0.7}},
    "precision shared with latents": {
        "noise": lambda: {"tau": pm.Gamma("noise", 2.0, 1.0)},
        "extra": lambda model: pm.Normal("other", 0.0, tau=model["noise"]),
    },
    "precision plus a constant": {"noise": lambda: {"tau": 1.0 + pm.Gamma("noise", 2.0, 1.0)}},
}


@pytest.mark.parametrize("how", LEFT)
def test_other_noise_is_read_from_the_point(how):
    model = declare(**LEFT[how])
    part = part_of(model)
    assert part.names == ["latent", "loading", "intercept"]
    point = model.initial_point(0)
    declared = point_function(model, [scale(model["x"])], {})(point)[0]
    assert np.allclose(part.views[0].noise(point), np.broadcast_to(declared, (N, D))[0] ** -2.0)


def test_latents_that_are_not_normal_are_given():
    for latent in (
        lambda: pm.Laplace("latent", 0.0, 1.0, shape=(N, M)),
        lambda: pm.HalfNormal("latent", 1.0, shape=(N, M)),
    ):
        part = part_of(declare(latent=latent))
        assert part.latents[0].foreign
        assert set(part.names) == {"loading", "intercept", "noise"}


def test_latents_that_something_else_depends_on_are_given():
    part = part_of(factor_kind_model(FactorKind(seen=True)))
    assert [latent.foreign for latent in part.latents] == [True, False, False]
    assert "latent" not in part.names
    assert {"private_latent_a", "private_latent_b"} <= set(part.names)
    assert part.own == [1, 2]


def test_views_are_one_part_if_latents_connect_them():
    part = part_of(factor_kind_model(FactorKind()))
    assert [view.name for view in part.views] == ["a", "b"]
    assert [view.missing for view in part.views] == ["a_unobserved", "b_unobserved"]
    assert [part.private(number) for number in range(3)] == [False, True, True]
    with pm.Model() as model:
        for name in "ab":
            z = pm.Normal(f"z_{name}", 0.0, 1.0, shape=(N, M))
            w = pm.Normal(f"w_{name}", 0.0, 1.0, shape=(D, M))
            pm.Normal(name, z @ w.T, 1.0, observed=np.ones((N, D)))
    assert [len(part.views) for part in read(model).parts] == [1, 1]


def test_precisions_of_columns():
    part = part_of(factor_kind_model(FactorKind(columns="shared", private="gamma")))
    found = {precision.name: precision.of for precision in part.precisions}
    assert found["column_precision"] == ((0, 0), (1, 0))
    assert found["private_precision"] == ((0, 1), (1, 1))
    assert found["precision_a"] == ((0, -1),)
    with_mean = declare(
        loading=lambda: pm.Normal("loading", (r := pm.Gamma("r", 2.0, 1.0)), tau=r, shape=(D, M))
    )
    # It moves the mean too, so that its conditional is not Gamma.
    assert "r" not in part_of(with_mean).names


def test_a_precision_that_is_cut_off_is_left_to_other_steps():
    model = declare(noise=lambda: {"tau": pt.maximum(pm.Gamma("noise", 2.0, 1.0), 0.01)})
    assert "noise" not in part_of(model).names


def test_a_precision_that_a_flag_switches_off_is_left_to_other_steps():
    def loading():
        flag, precision = (
            pm.Bernoulli("flag", 0.5, shape=M),
            pm.Gamma("precision", 2.0, 1.0, shape=M),
        )
        return pm.Normal("loading", 0.0, tau=pt.switch(flag, precision, 1e4), shape=(D, M))

    model = declare(loading=loading)
    part = part_of(model)
    assert part.names == ["latent", "loading", "intercept", "noise"]
    # All the same, the prior of loadings is that of the flags at a point.
    (read_loading,) = part.views[0].loadings
    for flags in ([0, 1], [1, 0]):
        point = model.initial_point(0) | {"flag": np.array(flags)}
        tau = np.where(flags, np.exp(point["precision_log__"]), 1e4)
        assert np.allclose(read_loading.prior(point)[1], np.broadcast_to(tau, (D, M)))


def noise_of(name):
    """Make noise that depends on the first entry of a variable."""
    return {"sigma": pt.exp(pm.modelcontext(None)[name].flatten()[0])}


def test_noise_that_depends_on_latents_of_another_view_is_refused():
    def extra(model):
        w = pm.Normal("w", 0.0, 1.0, shape=(2, M))
        other = pm.Normal("other", 0.0, 1.0, shape=(N, M))
        pm.Normal("y", other @ w.T, **noise_of("latent"), observed=np.ones((N, 2)))

    structure = read(declare(extra=extra))
    assert not structure.parts
    assert "the noise of 'y' depends on 'latent'" in structure.refusals["y"]


def outliers():
    """Declare noise that is larger for a few objects, none of them at the start."""
    outlier, tau = pm.Bernoulli("outlier", 0.1, shape=N), pm.Gamma("noise", 2.0, 1.0)
    return {"tau": pt.switch(outlier[:, None], 0.01 * tau, tau)}


def noise_of_groups():
    group = pm.Categorical("group", np.full(2, 0.5), shape=N)
    return {"sigma": pm.HalfNormal("noise", 1.0, shape=2)[group][:, None]}


REFUSED = {
    "noise of outliers": (
        {"noise": outliers},
        "the noise of 'x' depends on 'outlier', which is discrete",
    ),
    "noise that depends on latents": (
        {"noise": lambda: noise_of("latent")},
        "the noise of 'x' depends on 'latent'",
    ),
    "noise that depends on loadings": (
        {"noise": lambda: noise_of("loading")},
        "the noise of 'x' depends on 'loading'",
    ),
    "noise that depends on the intercept": (
        {"noise": lambda: noise_of("intercept")},
        "the noise of 'x' depends on 'intercept'",
    ),
    "latents that are cut off": (
        {"mean": lambda z, w, a: z.clip(-9.0, 9.0) @ w.T + a},
        "is not the sum of products",
    ),
    "a mean that is cut off": (
        {"mean": lambda z, w, a: (z @ w.T + a).clip(-99.0, 99.0)},
        "is not the sum of products",
    ),
    "three factors": (
        {
            "intercept": lambda: pm.Normal("scale", 1.0, 1.0, shape=M),
            "mean": lambda z, w, a: (z * a) @ w.T,
        },
        "'latent', 'loading', 'scale' in a way that is not served",
    ),
    "another offset": ({"mean": lambda z, w, a: z @ w.T + a + 1.0}, "is not zero where"),
    "a nonlinear mean": ({"mean": lambda z, w, a: pt.tanh(z @ w.T) + a}, "'latent', 'loading' in"),
    "a product more": ({"mean": lambda z, w, a: z @ w.T + a + z[:, :1] ** 2}, "'x'"),
    "scaled latents": ({"mean": lambda z, w, a: 2.0 * z @ w.T + a}, "in a way that is not served"),
    "loadings with a child": (
        {"extra": lambda model: pm.Normal("child", model["loading"][0], 1.0, shape=M)},
        "'child' depends on 'loading' too",
    ),
    "an intercept with a potential": (
        {"extra": lambda model: pm.Potential("prefer", -(model["intercept"] ** 4).sum())},
        "'prefer' depends on 'intercept' too",
    ),
    "loadings that are not normal": (
        {"loading": lambda: pm.Laplace("loading", 0.0, 1.0, shape=(D, M))},
        "'loading' is a Laplace; expected a Normal",
    ),
    "loadings with a transform": (
        {
            "loading": lambda: pm.Normal(
                "loading",
                0.0,
                1.0,
                shape=(D, M),
                transform=pm.distributions.transforms.Interval(-1.0, 1.0),
            )
        },
        "'loading' has the transform Interval",
    ),
    "noise of objects": (
        {"noise": lambda: {"sigma": np.linspace(0.5, 1.0, N)[:, None]}},
        "the noise of 'x' differs between objects; expected one for each feature",
    ),
    "noise of objects that hardly shows": (
        {"noise": lambda: {"sigma": pm.HalfNormal("s") + 1e-9 * np.arange(N)[:, None]}},
        "the noise of 'x' differs between objects; expected one for each feature",
    ),
    "infinite data": (
        {"data": np.where(np.arange(N * D).reshape(N, D) == 4, np.inf, 0.0)},
        "'x' holds inf",
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_other_models_are_refused_by_name(how):
    arguments, message = REFUSED[how]
    structure = read(declare(**arguments))
    assert not structure.parts
    assert list(structure.refusals) == ["x"]
    assert message in structure.refusals["x"]


@pytest.mark.parametrize("missing", [False, True])
def test_noise_of_objects_that_shows_at_draws_alone_stops_the_chain(missing):
    def noise():
        return {"sigma": pt.maximum(pm.HalfNormal("s"), np.linspace(1e-3, 2e-3, N)[:, None])}

    data = np.random.default_rng(1).normal(size=(N, D))
    if missing:
        data[0, 1] = np.nan
        data = np.ma.masked_invalid(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        model = declare(noise=noise, data=data)
    (view,) = part_of(model).views
    np.testing.assert_array_equal(view.noise({"s_log__": np.array(0.0)}), np.ones(D))
    with pytest.raises(UnservedModelError, match=r"the noise of 'x': expected the same everywhere"):
        view.noise({"s_log__": np.array(-12.0)})


def test_noise_of_groups_of_objects_is_refused():
    structure = read(declare(noise=noise_of_groups))
    assert not structure.parts
    assert structure.refusals["x"] == "the noise of 'x' depends on 'group', which is discrete"
    # As clusters, they are none of ours either.
    assert set(structure.refusals) == {"x", "group"}


def test_missing_values_that_something_depends_on_are_refused():
    data = np.random.default_rng(1).normal(size=(N, D))
    data[1, 2] = np.nan

    def extra(model):
        pm.Normal("later", model["x"][1, 2], 1.0, observed=0.3)

    with pytest.warns(match="imputed"):
        model = declare(data=np.ma.masked_invalid(data), extra=extra)
    assert "later" in read(model).refusals["x"]


def test_a_column_without_values_is_refused():
    data = np.random.default_rng(1).normal(size=(N, D))
    data[:, 2] = np.nan
    with pytest.warns(match="imputed"):
        model = declare(data=np.ma.masked_invalid(data))
    assert "column number 2" in read(model).refusals["x"]


ELSEWHERE = {
    "known loadings": {"mean": lambda z, w, a: z @ np.ones((M, D)) + a},
    "another likelihood": {
        "observe": lambda name, mu, observed, tau: pm.Laplace(name, mu, tau, observed=observed)
    },
}


@pytest.mark.parametrize("how", ELSEWHERE)
def test_what_is_no_factor_model_is_left_alone(how):
    structure = read(declare(**ELSEWHERE[how]))
    assert structure.empty
    assert not structure.refusals


def test_projected_clusters_are_read_as_before():
    structure = read(tiny_model())
    assert not structure.parts
    assert len(structure.components) == 1


def test_a_regression_on_data_is_left_alone():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=(M, D))
        pm.Normal("x", np.ones((N, M)) @ w, 1.0, observed=np.zeros((N, D)))
    assert read(model).empty
    with pytest.raises(UnservedModelError):
        pmm.steps(model)
