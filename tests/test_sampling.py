"""`pmm.sample`, and our steps under PyMC's own: reproducible, composable, honest."""

import inspect
import logging
import re

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr
from scipy.special import digamma

import pm_match as pmm
from pm_match.clusters.units import units
from pm_match.numerics.stick_breaking import draw_log_sticks, log_weights
from pm_match.results import annotate, convergence_warnings
from pm_match.running.chain import all_steps
from pm_match.sampling import _check_spelling
from tests.declared.plain import tiny_data, tiny_model

# Three clusters for six objects: these draws do fill the truncation, and tests below say where.
pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")
QUIET = {"progressbar": False, "quiet": True}
DISPERSED = {"init": "dispersed"}


def draw(model, seed=1, draws=20, tune=5, **kwargs):
    with model:
        return pmm.sample(
            draws, tune=tune, random_seed=seed, **(QUIET | DISPERSED | {"chains": 2} | kwargs)
        )


def same(one, other):
    return all(
        np.array_equal(one["posterior"][name], other["posterior"][name])
        for name in one["posterior"].data_vars
    )


@pytest.fixture(scope="module")
def normal():
    return tiny_model(missing=True)


@pytest.fixture(scope="module")
def one_core(normal):
    return draw(normal, cores=1)


# A spawned process imports and compiles everything anew.
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_draws_do_not_depend_on_processes(normal, one_core, context):
    assert same(one_core, draw(normal, cores=2, mp_ctx=context))


# A spawned process imports and compiles everything anew.
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_projections_by_map_do_not_depend_on_processes(context):
    model = tiny_model(projection="map", linked=True)
    assert same(draw(model, cores=1), draw(model, cores=2, mp_ctx=context))


def test_same_seed_same_draws(normal, one_core):
    assert same(one_core, draw(normal, cores=1))
    assert not same(one_core, draw(normal, cores=1, seed=2))


def test_a_model_may_come_first_as_in_find_matching(normal, one_core):
    settings = {"tune": 5, "random_seed": 1, "chains": 2, "cores": 1}
    assert same(one_core, pmm.sample(normal, draws=20, **settings, **QUIET, **DISPERSED))
    visible = inspect.signature(pmm.sample).parameters
    assert (visible["draws"].default, visible["tune"].default) == (1000, 1000)
    assert visible["cores"].default is None
    for first, given, twice in ((normal, {"model": normal}, "model"), (5, {"draws": 5}, "draws")):
        with pytest.raises(TypeError, match=f"sample: expected one .*{twice}.*; found"):
            pmm.sample(first, **given)
    with pytest.raises(TypeError, match=r"expected a model, or .* draws; found .*str"):
        pmm.sample("normal")


def test_chains_differ(one_core):
    first, second = one_core["posterior"].isel(chain=0), one_core["posterior"].isel(chain=1)
    for name in ("precision", "latent", "projection_a", "weights"):
        assert not np.array_equal(first[name], second[name])


def test_pymc_is_asked_for_no_density_and_compiles_nothing(monkeypatch):
    model, made, asked = tiny_model(missing=True), [], []
    function, density = pytensor.function, pm.Model.logp

    def compiled(*args, **kwargs):
        made.append(args)
        return function(*args, **kwargs)

    def logp(own, *args, **kwargs):
        asked.extend([] if args or kwargs else [own])
        return density(own, *args, **kwargs)

    monkeypatch.setattr(pytensor, "function", compiled)
    monkeypatch.setattr(pm.Model, "logp", logp)
    idata = draw(model, draws=3, cores=1)
    assert idata["posterior"].sizes["chain"] == 2
    assert not made
    assert not asked
    assert not vars(model).keys() & {"logp", "_make_initial_point"}


def test_form_of_the_result(one_core):
    posterior, stats = one_core["posterior"], one_core["sample_stats"]
    assert posterior["cluster_a"].dims == ("chain", "draw", "a_object")
    assert posterior["projection_b"].dims == ("chain", "draw", "b_feature", "factor")
    assert posterior.attrs["projections"] == "drawn"
    assert set(stats.data_vars) >= {"log_joint", "n_occupied", "moved", "swap_accepted"}
    for chain in range(2):
        for step in range(20):
            labels = posterior.isel(chain=chain, draw=step)
            occupied = set(labels["cluster_a"].values) | set(labels["cluster_b"].values)
            assert len(occupied) == stats["n_occupied"].isel(chain=chain, draw=step)


@pytest.mark.compiled
def test_plain_pm_sample_inside_the_model_chooses_our_steps(normal):
    with normal:
        idata = pm.sample(10, tune=0, chains=1, random_seed=0, **QUIET)
    assert "log_joint" in idata["sample_stats"]
    assert "tree_depth" not in idata["sample_stats"]


def test_settings_reach_the_step_by_its_name(normal):
    with normal:
        pm.sample(2, tune=0, chains=1, random_seed=0, cluster_gibbs={"n_sweeps": 2}, **QUIET)


def test_steps_given_by_hand_are_used(normal):
    with normal:
        step = pmm.ClusterGibbs([normal["cluster_a"]], n_sweeps=3)
        ours = pmm.steps(given=[step])
    assert [type(s) for s in ours] == [pmm.FeatureGibbs]
    idata = draw(normal, step=step, cores=1)
    assert "log_joint" in idata["sample_stats"]


def test_given_steps_are_not_overruled(normal):
    with normal:
        step = pm.Metropolis([normal["projection_a"]])
        with pytest.raises(pmm.UnservedModelError, match=r"a given step holds \['projection_a'"):
            pmm.steps(given=[step])


def test_two_partitions_in_one_model():
    data = tiny_data()
    with pm.Model() as model:
        for name, x in data.items():
            weights = pm.StickBreakingWeights(f"weights_{name}", alpha=1.0, K=2)
            tau = pm.Gamma(f"precision_{name}", 2.0, 1.5)
            z = pm.Normal(f"latent_{name}", 0.0, tau=tau, shape=(3, 2))
            s = pm.Categorical(f"cluster_{name}", p=weights, shape=len(x))
            w = pm.Normal(f"projection_{name}", shape=(x.shape[1], 2))
            pm.Normal(name, z[s] @ w.T, tau=tau, observed=x)
    idata = draw(model, cores=1)
    assert idata["sample_stats"]["log_joint"].ndim == 3
    assert pmm.best_chain(idata)["posterior"].sizes["chain"] == 1


def test_observed_by_pm_observe():
    data = tiny_data()
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=2)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=tau, shape=(3, 2))
        s = pm.Categorical("cluster", p=weights, shape=3)
        w = pm.Normal("projection", shape=(2, 2))
        pm.Normal("x", z[s] @ w.T, tau=tau)
    with pytest.raises(pmm.UnservedModelError, match="no observed variable depends on 'cluster'"):
        pmm.steps(model)
    draw(pm.observe(model, {"x": data["a"]}), cores=1)


def with_hyperprior():
    data = tiny_data(n_objects=(12, 10))
    with pm.Model() as model:
        gamma = pm.Gamma("gamma", 4.0, 2.0)
        weights = pm.StickBreakingWeights("weights", alpha=gamma, K=5)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=tau, shape=(6, 2))
        for name, x in data.items():
            s = pm.Categorical(f"cluster_{name}", p=weights, shape=len(x))
            w = pm.Normal(f"projection_{name}", shape=(x.shape[1], 2))
            pm.Normal(name, z[s] @ w.T, tau=tau, observed=x)
    return model


@pytest.mark.parametrize("by", ["our step", "NUTS"])
def test_a_free_hyperparameter(by):
    model = with_hyperprior()
    with model:
        step = pm.NUTS([model["gamma"]]) if by == "NUTS" else None
    kinds = [type(s) for s in pmm.steps(model, given=[step] if step else [])]
    assert (pmm.HyperparameterGibbs in kinds) == (by == "our step")
    idata = draw(model, draws=800, tune=400, cores=1, step=step)
    assert ("tree_depth" in idata["sample_stats"]) == (by == "NUTS")
    # E[gamma | ...] against its conditional given the number of sticks and their lengths, averaged.
    w = idata["posterior"]["weights"].values.reshape(-1, 6)
    # p(gamma | w): Gamma(4 + 5, 2 - sum log(1 - v)), and the product of all 1 - v is the last
    # weight.
    expected = 9.0 / (2.0 - np.log(w[:, -1]))
    gamma = idata["posterior"]["gamma"].values.ravel()
    error = (gamma - expected).std() / np.sqrt(float(az.ess(idata["posterior"]["gamma"].values)))
    assert abs((gamma - expected).mean()) < 4 * error
    assert "gamma" in pmm.invariants(idata, model)


def test_predictions_and_summaries_work_on_the_result(normal, one_core):
    with normal:
        prior = pm.sample_prior_predictive(20, random_seed=0)
        predicted = pm.sample_posterior_predictive(one_core, random_seed=0, progressbar=False)
        scored = pm.compute_log_likelihood(one_core.copy(), progressbar=False)
    assert prior["prior"]["cluster_a"].shape == (1, 20, 3)
    assert predicted["posterior_predictive"]["a_observed"].sizes["draw"] == 20
    expected = np.isfinite(scored["log_likelihood"]["b_observed"])
    assert bool(expected.all())
    assert az.summary(one_core, var_names=["precision"]).shape[0] == 1


def test_log_likelihood_is_that_of_the_draws(normal, one_core):
    posterior = one_core["posterior"]
    with normal:
        scored = pm.compute_log_likelihood(one_core.copy(), progressbar=False)
    last = posterior.isel(chain=1, draw=-1)
    mean = last["latent"].values[last["cluster_a"].values] @ last["projection_a"].values.T
    x = tiny_data(missing=True)["a"]
    alpha = float(last["precision"])
    expected = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * (x - mean) ** 2
    np.testing.assert_allclose(
        scored["log_likelihood"]["a_observed"].isel(chain=1, draw=-1).values,
        expected[~np.isnan(x)],
        rtol=1e-9,
    )


def test_projections_by_map_say_so():
    idata = draw(tiny_model(projection="map"), cores=1)
    assert idata["posterior"].attrs["projections"] == "map"
    assert "projection_log_joint" in idata["sample_stats"]


def test_initial_points_are_overdispersed_and_keep_links():
    model = tiny_model(linked=True, projection="map")
    points = pmm.initial_points(model, 6, random_seed=3, init="dispersed")
    assert len({tuple(p["cluster_a"]) + tuple(p["cluster_b"]) for p in points}) > 1
    for point in points:
        assert point["cluster_a"][0] == point["cluster_a"][2] == point["cluster_b"][1]
        assert 0 < np.abs(point["projection_a"]).max() < 0.1
    again = pmm.initial_points(model, 6, random_seed=3, init="dispersed")
    for one, other in zip(points, again, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    with pytest.raises(ValueError, match="chains: expected a whole number of at least 1; found 0"):
        pmm.initial_points(model, 0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"draws": 0}, "draws: expected a whole number of at least 1; found 0"),
        ({"draws": 20.0}, "draws: expected a whole number of at least 1; found 20.0"),
        ({"tune": -1}, "tune: expected a whole number of at least 0; found -1"),
        ({"cores": 0}, "cores: expected a whole number of at least 1; found 0"),
        ({"var_names": "cluster"}, r"var_names: .*found \['cluster'\]"),
    ],
)
def test_what_is_no_count_is_refused(normal, given, found):
    with pytest.raises(ValueError, match=found):
        pmm.sample(model=normal, **given)


def test_samplers_of_whole_models_are_refused_before_anything_is_done(normal):
    message = "nuts_sampler: expected 'pymc', as others draw all of a model; found 'nutpie'"
    with pytest.raises(ValueError, match=message):
        draw(normal, nuts_sampler="nutpie")


def test_one_name_may_be_recorded(normal):
    options = {"tune": 1, "chains": 1, "cores": 1, "init": "dispersed", "quiet": True}
    options |= {"model": normal, "compute_convergence_checks": False, "progressbar": False}
    assert list(pmm.sample(2, var_names="latent", **options)["posterior"]) == ["latent"]


def test_a_seed_may_be_an_array(normal):
    options = {"tune": 3, "chains": 2, "cores": 1, "init": "dispersed", "quiet": True}
    options |= {"model": normal, "compute_convergence_checks": False, "progressbar": False}
    one, other = (pmm.sample(3, random_seed=seed, **options) for seed in (np.array([1, 2]), [1, 2]))
    xr.testing.assert_equal(one["posterior"].dataset, other["posterior"].dataset)


def test_initial_points_jitter_what_is_left_to_pymc():
    model = with_hyperprior()
    points = pmm.initial_points(model, 3, random_seed=0, init="dispersed")
    assert len({float(p["gamma"]) for p in points}) == 3


def test_own_starts_are_taken(normal):
    start = {"cluster_a": np.array([2, 1, 0]), "cluster_b": np.array([0, 0, 2])}
    idata = draw(normal, initvals=start, draws=1, tune=0, cores=1)
    assert idata["posterior"].sizes["chain"] == 2


@pytest.mark.parametrize(
    ("start", "error", "message"),
    [
        ({"cluster_a": [0, 1]}, ValueError, r"shape \(3,\) of 'cluster_a'; found \(2,\)"),
        ({"cluster_a": 2}, ValueError, r"shape \(3,\) of 'cluster_a'; found \(\)"),
        ({"cluster_a": [0.0, 1.5, 2.0]}, ValueError, "whole numbers of 'cluster_a'; found 1.5"),
        ({"cluster_a": ["a", "b", "c"]}, TypeError, "numbers of 'cluster_a'; found dtype <U1"),
        ({"cluster_a": [0, 1, 100_000]}, ValueError, r"labels in 0 \.\.\. 2; found 0 to 100000"),
        ({"latent": np.zeros((2, 2))}, ValueError, r"shape \(3, 2\) of 'latent'; found \(2, 2\)"),
        ({"latent": np.full((3, 2), np.nan)}, ValueError, "finite numbers of 'latent'; found nan"),
        ({"nobody": 1.0}, ValueError, r"free variables, which are .*'weights'.*found 'nobody'"),
        ([{}], ValueError, "expected a dict, or one for each of 2 chains; found 1"),
        (5, ValueError, "one for each of 2 chains; found an object of type int"),
    ],
)
def test_starts_that_are_none_are_refused(normal, start, error, message):
    with pytest.raises(error, match=message):
        draw(normal, initvals=start, draws=1, tune=0, cores=1)


def test_starts_may_be_in_any_form_that_pymc_takes(normal):
    value = normal.rvs_to_values[normal["precision"]].name
    starts = {"latent": "prior", normal["cluster_a"]: [2, 1, 0], value: 0.3}
    starts["cluster_b"] = pm.math.stack([0, 0, 2])
    idata = draw(normal, initvals=[starts, None], draws=1, tune=0, cores=1)
    assert idata["posterior"].sizes["chain"] == 2


def test_a_filled_truncation_is_said():
    rng = np.random.default_rng(0)
    x = np.repeat(10.0 * rng.normal(size=(4, 3)), 10, axis=0) + rng.normal(size=(40, 3))
    model = pmm.models.projected_clusters({"a": x}, n_factors=2, n_clusters=3, projection="normal")
    with pytest.warns(UserWarning, match=r"fill the truncation: all 3 clusters of 'weights'"):
        draw(model, draws=200, tune=100, cores=1)


@pytest.mark.parametrize(("slip", "meant"), [("tun", "tune"), ("random_sed", "random_seed")])
def test_a_slip_is_answered_with_the_word_that_was_meant(slip, meant):
    with pytest.raises(TypeError, match=f"no argument '{slip}'; did you mean '{meant}'"):
        pmm.sample(5, model=tiny_model(), **{slip: 3})


def test_arguments_of_steps_are_no_slips():
    _check_spelling({"target_accept": 0.9, "max_treedepth": 8, "nuts": {}, "tunes": {"n": 1}})


def test_nuts_is_told_how_to_adapt_where_it_has_something_to_draw():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", [1.0, 1.0]), shape=4)
        nu = pm.Gamma("nu", 3.0, 1.0)
        mean = pm.Normal("mean", shape=2)
        pm.StudentT("x", nu=nu, mu=mean[cluster], sigma=1.0, observed=np.arange(4.0))
    told = {"target_accept": 0.9}
    nuts = [own for own in all_steps(model, pmm.steps(model), told) if isinstance(own, pm.NUTS)]
    assert [own.target_accept for own in nuts] == [0.9]
    nuts = all_steps(model, pmm.steps(model), {"target_accept": 0.9, "nuts": {"max_treedepth": 4}})
    assert [(n.target_accept, n.max_treedepth) for n in nuts if isinstance(n, pm.NUTS)] == [
        (0.9, 4)
    ]
    assert draw(model, draws=5, **told).posterior.sizes["draw"] == 5
    with pytest.raises(ValueError, match="target_accept: expected it once"):
        all_steps(model, pmm.steps(model), told | {"nuts": told})
    # Nothing is left to it.
    assert draw(tiny_model(), draws=5, **told).posterior.sizes["draw"] == 5


def test_steps_say_what_they_draw():
    ours = pmm.steps(tiny_model())
    assert any(re.fullmatch(r"ClusterGibbs\(.*cluster_a.*\)", repr(step)) for step in ours)
    assert all(repr(step).startswith(type(step).__name__ + "(") for step in ours)


def test_only_what_is_for_users_is_listed():
    assert dir(pmm) == sorted([*pmm.__all__, "__version__"])
    assert all(hasattr(pmm, name) for name in pmm.__all__)


def test_names_are_known_in_either_spelling():
    assert pmm.standardize is pmm.standardise


def test_a_part_left_to_pymc_is_said():
    model = tiny_model()
    with model:
        p = pm.Dirichlet("p", np.ones(2))
        k = pm.Categorical("k", p=p, shape=3)
        pm.Poisson("counts", 1.0 + k.sum(), observed=[1, 2, 4])
        said = r"left to PyMC's own steps: k: 'counts'\[0\] depends on the labels of more than one"
        with pytest.warns(UserWarning, match=said):
            idata = pmm.sample(5, tune=0, chains=1, random_seed=0, **DISPERSED, **QUIET)
    assert "k" in idata["posterior"]


def fake(log_joint, draws=300):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, draws))
    stats = {
        "log_joint": (("chain", "draw"), noise + np.array(log_joint)[:, None]),
        "n_occupied": (("chain", "draw"), np.full((4, draws), 3)),
    }
    posterior = {
        "precision": (("chain", "draw"), rng.gamma(2.0, size=(4, draws))),
        # Labels that never move: PyMC's own check would fire on them.
        "cluster_a": (("chain", "draw", "n"), np.tile(np.arange(4)[:, None, None], (draws, 3))),
    }
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset(posterior), "sample_stats": xr.Dataset(stats)}
    )


def test_convergence_is_judged_on_what_labels_do_not_change(normal):
    assert convergence_warnings(fake([0, 0, 0, 0]), normal) == []
    messages = [w.message for w in convergence_warnings(fake([0, 0, 0, 9]), normal)]
    assert any("R-hat" in m and "log_joint" in m for m in messages)
    assert any("effective sample size" in m for m in messages)


def test_matchings_are_judged_whatever_their_variables_are_called():
    data = tiny_data()
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=2)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=tau, shape=(3, 2))
        s = pm.Categorical("group", p=weights, shape=3)
        w = pm.Normal("projection", shape=(2, 2))
        pm.Normal("x", z[s] @ w.T, tau=tau, observed=data["a"])
    idata = fake([0, 0, 0, -9])
    posterior = idata["posterior"].to_dataset().rename(cluster_a="group")
    posterior["group"][3, :, 0] = 1
    idata["posterior"] = posterior
    annotate(idata, model, [])
    messages = [w.message for w in convergence_warnings(idata, model)]
    assert messages[0].startswith("Chain 3 found another matching (log joint 9.")


def test_convergence_warnings_are_logged(normal, caplog):
    with caplog.at_level(logging.INFO, logger="pymc"), normal:
        pmm.sample(
            20, tune=0, chains=2, random_seed=0, init="dispersed", progressbar=False, cores=1
        )
    assert "too small to check convergence" in caplog.text


def test_log_weights_keep_their_law_below_the_smallest_float():
    a, b, counts = np.ones(60), np.full(60, 0.05), np.zeros(61, int)
    counts[0] = 3
    rng = np.random.default_rng(0)
    last = [log_weights(*draw_log_sticks(rng, a, b, counts))[-1] for _ in range(4000)]
    after = counts[::-1].cumsum()[::-1][1:]
    expected = (digamma(b + after) - digamma(a + b + counts[:-1] + after)).sum()
    assert expected < -1000
    assert abs(np.mean(last) - expected) < 4 * np.std(last) / np.sqrt(len(last))


def test_a_weight_too_small_for_a_float_is_said():
    data = tiny_data()
    with pm.Model() as model:
        gamma = pm.Gamma("gamma", 2.0, 40.0)
        weights = pm.StickBreakingWeights("weights", alpha=gamma, K=60)
        tau = pm.Gamma("precision", 2.0, 1.5)
        z = pm.Normal("latent", 0.0, tau=tau, shape=(61, 2))
        s = pm.Categorical("cluster", p=weights, shape=3)
        w = pm.Normal("projection", shape=(2, 2))
        pm.Normal("x", z[s] @ w.T, tau=tau, observed=data["a"])
        step = pmm.ClusterGibbs([s])
    with pytest.warns(UserWarning, match="a weight in 'weights' is too small for a float"):
        point, _ = step.step(model.initial_point())
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


def test_units_are_connected_components():
    grouped = units(6, np.array([[0, 4], [4, 2], [1, 5]]))
    assert grouped.of_object.tolist() == [0, 1, 0, 2, 0, 1]
    assert grouped.size.tolist() == [3, 2, 1]
    assert grouped.first.tolist() == [0, 1, 3]
    np.testing.assert_array_equal(grouped.total(np.arange(6.0)), [6.0, 6.0, 3.0])
    assert [m.tolist() for m in grouped.members()] == [[0, 2, 4], [1, 5], [3]]


def test_a_mixture_of_any_names_is_summarised():
    """Assignments need no prefix, and clusters' dims no name."""
    rng = np.random.default_rng(0)
    true = np.repeat([0, 1], 20)
    with pm.Model():
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", p=w, shape=40)
        mu = pm.Normal("mu", 0.0, 5.0, shape=3)
        rate = pm.Gamma("rate", 1.0, 1.0, shape=(3, 2))
        pm.StudentT("x", nu=5.0, mu=mu[z], sigma=1.0, observed=rng.normal(8.0 * true - 4.0))
        pm.Poisson("counts", rate[z], observed=rng.poisson(2.0 + 6.0 * true[:, None], (40, 2)))
        idata = pmm.sample(20, tune=20, chains=2, random_seed=1, progressbar=False, quiet=True)
    labels = pmm.partition_estimate(idata)
    assert pmm.metrics.adjusted_rand_index({"z": true}, labels) == 1.0
    assert "distance from a partition" in pmm.diagnose(idata).table.index
    named = pmm.relabel(idata, labels)["posterior"]
    before = idata["posterior"]
    for name in ("mu", "rate"):
        for chain, draw in np.ndindex(2, 20):
            one = [posterior.isel(chain=chain, draw=draw) for posterior in (before, named)]
            found = [own[name].to_numpy()[own["z"].to_numpy()] for own in one]
            np.testing.assert_array_equal(*found)
    first, last = named["mu"].mean(["chain", "draw"]).to_numpy()[labels["z"].to_numpy()[[0, -1]]]
    assert abs(first + 4.0) < 1.0
    assert abs(last - 4.0) < 1.0


def test_relevance_may_have_any_name():
    rng = np.random.default_rng(0)
    edges = (rng.random((12, 12)) < 0.4).astype(int)
    np.fill_diagonal(edges, 0)
    with pm.Model(name="named"):
        w = pm.Dirichlet("w", np.ones(3))
        z = pm.Categorical("z", p=w, shape=12)
        r = pm.Bernoulli("r", p=pm.Beta("lam", 1.0, 1.0), shape=12)
        density = pm.Beta("density", 1.0, 1.0, shape=(3, 3))
        noise = pm.Beta("noise", 1.0, 1.0)
        pmm.BlockNetwork(
            "x", axes=[z, z], density=density, noise=noise, relevance=[r, r], observed=edges
        )
        idata = pmm.sample(20, tune=5, chains=1, random_seed=1, progressbar=False, quiet=True)
    posterior = pmm.matching.draws.read_draws(idata, "posterior")
    relevant = posterior["r"].to_numpy().astype(bool)
    assert not relevant.all()
    z = posterior["z"].to_numpy()
    both = (z[..., None] == z[..., None, :]) & relevant[..., None] & relevant[..., None, :]
    found = pmm.match_probability(idata, "z", "z").to_numpy()
    off = ~np.eye(12, dtype=bool)
    np.testing.assert_allclose(found[off], both.mean(axis=(0, 1))[off])


def test_clusters_of_two_sets_are_renumbered_each_with_its_rows():
    """By their axis, where another has the same length; and in a model with a name."""
    rng = np.random.default_rng(0)
    values = np.r_[rng.normal(-3.0, 1.0, (10, 2)), rng.normal(3.0, 1.0, (10, 2))]
    with pm.Model(name="named"):
        for k in "12":
            w = pm.Dirichlet(f"w{k}", np.ones(2))
            z = pm.Categorical(f"z{k}", p=w, shape=20)
            mu = pm.Normal(f"mu{k}", 0.0, 5.0, shape=(2, 2))
            pm.Laplace(f"y{k}", mu[z], 1.0, observed=values)
        idata = pmm.sample(10, tune=5, chains=2, random_seed=1, progressbar=False, quiet=True)
    drawn = pmm.matching.draws.read_draws
    named = drawn(pmm.relabel(idata, pmm.partition_estimate(idata)), "posterior")
    before = drawn(idata, "posterior")
    for k in "12":
        for chain, draw in np.ndindex(2, 10):
            one = [own.isel(chain=chain, draw=draw) for own in (before, named)]
            found = [own[f"mu{k}"].to_numpy()[own[f"z{k}"].to_numpy()] for own in one]
            np.testing.assert_array_equal(*found)
        assert len(np.unique(named[f"z{k}"].to_numpy()[..., 0])) == 1


def test_kernel_components_are_no_clusters_of_objects():
    views = pmm.datasets.xor_views(20, random_seed=0)
    labels = np.where(views.labels == 1, 1, -1)
    model = pmm.models.max_margin_views(views.views, labels, n_factors=2, n_frequencies=4)
    idata = pmm.sample(2, tune=0, chains=1, model=model, progressbar=False, quiet=True)
    assert pmm.matching.assignment_names(idata) == []
