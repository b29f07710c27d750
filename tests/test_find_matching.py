"""`pmm.find_matching`, and chains that start where searches end."""

import warnings

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.find_matching import _warn_if_alone
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.prediction.points import RecordedPoints
from pm_match.reading import read
from pm_match.reading.probe import PLAIN, evaluate
from pm_match.search.chain import Chain
from pm_match.search.coarse import coarse_climb, polish
from tests.declared.networks import network_model
from tests.declared.plain import tiny_model

QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")


def found_by(model, seed=0, starts=2, **kwargs):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only one of")
        return pmm.find_matching(
            model, starts=starts, random_seed=seed, progressbar=False, **kwargs
        )


@pytest.fixture(scope="module")
def drawn():
    return pmm.datasets.synthetic_networks(
        n_relevant=30, n_irrelevant=6, n_clusters=3, random_seed=8
    )


@pytest.fixture(scope="module")
def model(drawn):
    return pmm.models.relational_clusters(drawn.networks, n_clusters=8)


@pytest.fixture(scope="module")
def found(model):
    return found_by(model, starts=3)


def test_the_result_is_in_the_form_of_sample(model, found):
    sampled = pmm.sample(2, tune=0, chains=1, random_seed=0, model=model, cores=1, **QUIET)
    one, other = found["posterior"], sampled["posterior"]
    assert list(one.data_vars) == list(other.data_vars)
    assert one.attrs["projections"] == other.attrs["projections"]
    for name in one.data_vars:
        assert one[name].dims == other[name].dims
        assert one[name].dtype == other[name].dtype
        assert one[name].attrs == other[name].attrs
        assert one[name].shape == (1, 1, *other[name].shape[2:])
    for name in one.coords:
        if name not in ("chain", "draw"):
            np.testing.assert_array_equal(one[name], other[name])
    assert {"log_joint", "n_occupied"} <= set(found["sample_stats"].data_vars)
    assert set(found.children) == {*sampled.children, "starts"}


def test_summaries_take_it(found, tmp_path):
    matches = pmm.match_probability(found, "cluster_a_row", "cluster_b_row")
    assert set(np.unique(matches)) <= {0.0, 1.0}
    estimate = pmm.partition_estimate(found)
    posterior = found["posterior"]
    for name in ("cluster_a_row", "cluster_b_column"):
        flags = posterior[name.replace("cluster", "relevance")].to_numpy()[0, 0]
        labels = np.where(flags, posterior[name].to_numpy()[0, 0], -1)
        same = pmm.metrics.adjusted_rand_index({"x": labels}, {"x": estimate[name].to_numpy()})
        assert same == 1.0
    assert pmm.best_chain(found)["posterior"].sizes["chain"] == 1


def test_starts_tell_what_each_found(found):
    starts, posterior = found["starts"], found["posterior"]
    assert starts["log_joint"].dims == ("start",)
    best = int(starts["log_joint"].to_numpy().argmax())
    assert float(starts["log_joint"][best]) == float(found["sample_stats"]["log_joint"].squeeze())
    agreement = starts["agreement"].to_numpy()
    np.testing.assert_array_equal(agreement, agreement.T)
    np.testing.assert_array_equal(np.diag(agreement), 1.0)
    flags = posterior["relevance_a_row"].to_numpy()[0, 0]
    labels = np.where(flags == 1, posterior["cluster_a_row"].to_numpy()[0, 0], -1)
    np.testing.assert_array_equal(starts["cluster_a_row"][best], labels)
    np.testing.assert_array_equal(starts["relevance_a_row"][best], flags)
    by_set = []
    for t in ("row", "column"):
        names = [f"cluster_{d}_{t}" for d in "ab"]
        by_set.append(
            pmm.metrics.adjusted_rand_index(
                {name: starts[name][0].to_numpy() for name in names},
                {name: starts[name][1].to_numpy() for name in names},
            )
        )
    assert agreement[0, 1] == pytest.approx(np.mean(by_set))
    occupied = {
        (t, label)
        for t in ("row", "column")
        for d in "ab"
        for label in starts[f"cluster_{d}_{t}"][best].to_numpy()
        if label >= 0
    }
    assert len(occupied) == int(starts["n_occupied"][best])


def test_starts_are_summarised_like_draws(found):
    estimate = pmm.partition_estimate(
        found, loss="ari", group="starts", sample_dims=["start"], progressbar=False
    )
    labels = found["starts"]["cluster_a_row"].to_numpy()
    most = np.mean(labels < 0, axis=0) > 0.5
    np.testing.assert_array_equal(estimate["cluster_a_row"] < 0, most)


def test_the_log_joint_is_the_steps_own_and_the_hyperparameters(model, found):
    """At the point that is returned, by another way than the search's."""
    posterior = found["posterior"].isel(chain=0, draw=0)
    natural = {rv.name: posterior[rv.name].to_numpy() for rv in model.free_RVs}
    point = {}
    for rv in model.free_RVs:
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        x = natural[rv.name]
        if transform is not None:
            x = evaluate(transform.forward(x, *rv.owner.inputs))
        point[value.name] = np.asarray(x, value.dtype)
    (component,) = read(model).components
    (step,) = [s for s in pmm.steps(model) if isinstance(s, pmm.ClusterGibbs)]
    collapsed = step._collapsed
    collapsed.load(point, collapsed.labels(point))
    hyper = [model[name] for name in component.hyperparameters]
    expected = collapsed.log_joint() + model.compile_logp(vars=hyper, mode=PLAIN)(point)
    assert float(found["sample_stats"]["log_joint"].squeeze()) == pytest.approx(expected, abs=1e-6)


def test_same_seed_same_matching(model, found):
    again = found_by(model, starts=3)
    for name in found["posterior"].data_vars:
        np.testing.assert_array_equal(found["posterior"][name], again["posterior"][name])
    np.testing.assert_array_equal(found["starts"]["log_joint"], again["starts"]["log_joint"])
    other = found_by(model, starts=3, seed=1)
    assert not np.array_equal(found["posterior"]["density"], other["posterior"]["density"])


def test_the_mode_is_no_lower_than_the_truths(drawn, model, found):
    """Than the one that a chain started at the truth ends in, brought to its top likewise."""
    chain = Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))
    true = [np.concatenate([drawn.clusters[d][axis] for d in "ab"]) for axis in range(2)]
    chain.place(0, true)
    chain.run(10, n_sweeps=5)
    coarse_climb(chain, 0)
    polish(chain, 0)
    assert float(found["sample_stats"]["log_joint"].squeeze()) > chain.log_joint() - 3.0


def overlapping(projection):
    """Vectors whose clusters overlap."""
    rng = np.random.default_rng(2)
    data = {d: np.repeat(rng.normal(size=(3, 3)), 8, 0) + rng.normal(size=(24, 3)) for d in "ab"}
    return tiny_model(data=data, projection=projection)


def overlapping_counts():
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), K=2)
        rate = pm.Gamma("rate", 2.0, 0.5, shape=(3, 2))
        for d in "ab":
            x = rng.poisson(np.repeat([2.0, 4.0, 7.0], 8)[:, None], (24, 2))
            cluster = pm.Categorical(f"cluster_{d}", p=weights, shape=24)
            pm.Poisson(d, rate[cluster], observed=x)
    return model


@pytest.mark.parametrize(
    "declared",
    [overlapping_counts, lambda: overlapping("normal"), lambda: overlapping("map")],
    ids=["counts", "normal projections", "flat projections"],
)
def test_no_object_is_better_in_another_cluster(declared):
    """By the plain formula; chains' last draws had some that are."""
    model = declared()
    found = found_by(model, starts=1)
    (point,) = RecordedPoints(found, model, "posterior", SAMPLE_DIMS, None, everything=True)
    state = testing.collapsed_of(model)
    (labels,) = state.labels(point)
    highest = testing.plain_log_joint(state, point, [labels])
    for i, label in np.ndindex(len(labels), 3):
        other = np.where(np.arange(len(labels)) == i, label, labels)
        assert testing.plain_log_joint(state, point, [other]) < highest + 1e-6


def test_a_set_of_one_object_agrees_with_itself():
    """It has no pairs, which the index of agreement is about."""
    with pm.Model() as model:
        for d, x in {"a": [[3, 1], [4, 0], [0, 6]], "b": [[2, 2]]}.items():
            cluster = pm.Categorical(f"cluster_{d}", p=np.ones(2) / 2, shape=len(x))
            rate = pm.Gamma(f"rate_{d}", 2.0, 0.5, shape=(2, 2))
            pm.Poisson(d, rate[cluster], observed=np.array(x))
    assert (found_by(model)["starts"]["agreement"] == 1.0).all()


@pytest.mark.parametrize(
    "declared",
    [
        lambda: tiny_model(linked=True),
        lambda: tiny_model(projection="map", missing=True),
        pytest.param(
            lambda: network_model(
                relevance=False,
                truncation=3,
                features={"a": np.random.default_rng(0).normal(size=(3, 2))},
            ),
            marks=pytest.mark.slow,
        ),
        lambda: network_model("undirected", hyperpriors=True),
    ],
    ids=["normal projections", "flat projections", "networks and features", "one mode"],
)
def test_every_model_that_is_served_has_a_matching(declared):
    model = declared()
    found = found_by(model)
    sampled = pmm.sample(2, tune=2, chains=2, random_seed=0, model=model, cores=1, **QUIET)
    assert list(found["posterior"].data_vars) == list(sampled["posterior"].data_vars)
    assert found["posterior"].attrs["projections"] == sampled["posterior"].attrs["projections"]
    assert np.isfinite(found["sample_stats"]["log_joint"]).all()
    assert np.isfinite(sampled["sample_stats"]["log_joint"]).all()


def test_links_are_kept():
    posterior = found_by(tiny_model(linked=True))["posterior"]
    a, b = posterior["cluster_a"].squeeze(), posterior["cluster_b"].squeeze()
    assert a[0] == a[2] == b[1]


def test_two_components_in_one_model():
    with pm.Model() as model:
        for name in "ab":
            weights = pm.StickBreakingWeights(f"weights_{name}", alpha=np.float64(1.0), K=2)
            tau = pm.Gamma(f"precision_{name}", 2.0, 1.5)
            z = pm.Normal(f"latent_{name}", 0.0, tau=tau, shape=(3, 2))
            s = pm.Categorical(f"cluster_{name}", p=weights, shape=4)
            w = pm.Normal(f"projection_{name}", shape=(2, 2))
            x = np.random.default_rng(0).normal(size=(4, 2))
            pm.Normal(name, z[s] @ w.T, tau=tau, observed=x)
    found = found_by(model)
    assert found["sample_stats"]["log_joint"].dims == ("chain", "draw")
    assert {"cluster_a", "cluster_b"} <= set(found["starts"].data_vars)


def test_a_lonely_best_start_is_said():
    nobody = np.eye(3)
    with pytest.warns(UserWarning, match=r"only one of 3 starts .* 10.0 above the next"):
        _warn_if_alone(np.array([-20.0, -10.0, -30.0]), nobody, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_if_alone(np.array([-12.0, -10.0, -30.0]), nobody, 1)
        agreeing = nobody.copy()
        agreeing[1, 2] = agreeing[2, 1] = 0.995
        _warn_if_alone(np.array([-20.0, -10.0, -30.0]), agreeing, 1)
        _warn_if_alone(np.array([-10.0]), np.eye(1), 0)


def test_arguments_are_checked():
    for starts in (0, 1.5, True):
        with pytest.raises(ValueError, match="starts: expected a whole number of at least 1"):
            pmm.find_matching(tiny_model(), starts=starts)
    with pytest.raises(ValueError, match="init: expected 'search' or 'dispersed'; found 'best'"):
        pmm.initial_points(tiny_model(), init="best")
    with pytest.raises(ValueError, match="init: expected 'search' or 'dispersed'; found 'auto'"):
        pmm.sample(1, model=tiny_model(), init="auto")


def test_chains_start_at_searches_of_their_own(model):
    points = pmm.initial_points(model, 2, random_seed=5, progressbar=False)
    again = pmm.initial_points(model, 2, random_seed=5, progressbar=False)
    for one, other in zip(points, again, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert not all(np.array_equal(points[0][name], points[1][name]) for name in points[0])
    dispersed = pmm.sample(
        1, tune=0, chains=2, random_seed=5, model=model, init="dispersed", cores=1, **QUIET
    )
    searched = pmm.sample(1, tune=0, chains=2, random_seed=5, model=model, cores=1, **QUIET)
    assert (
        float(searched["sample_stats"]["log_joint"].min())
        > float(dispersed["sample_stats"]["log_joint"].max()) + 20.0
    )
    best = found_by(model)["sample_stats"]["log_joint"]
    assert float(searched["sample_stats"]["log_joint"].max()) > float(best.squeeze()) - 30.0


def test_searched_chains_do_not_depend_on_processes(model):
    one, two = (
        pmm.sample(3, tune=1, chains=2, cores=cores, random_seed=2, model=model, **QUIET)
        for cores in (1, 2)
    )
    for name in one["posterior"].data_vars:
        np.testing.assert_array_equal(one["posterior"][name], two["posterior"][name])


def test_interrupted_it_returns_the_best_of_what_is_finished(model, interrupted_at):
    expected = found_by(model, starts=2, seed=4)
    interrupted_at(3)
    with pytest.warns(UserWarning, match="interrupted: the best of 2 finished starts, of 5"):
        found = pmm.find_matching(model, starts=5, random_seed=4, progressbar=False, cores=1)
    assert found["starts"].sizes["start"] == 2
    for name, value in expected["posterior"].data_vars.items():
        np.testing.assert_array_equal(found["posterior"][name], value)
    interrupted_at(1)
    with pytest.raises(KeyboardInterrupt):
        pmm.find_matching(model, starts=5, random_seed=4, progressbar=False, cores=1)


@pytest.mark.parametrize(
    ("model", "gap"),
    [("table_clusters", 1.0), ("aligned_clusters", 25.0), ("projected_clusters", 25.0)],
)
def test_parameters_of_known_labels_are_as_good_as_those_of_found_ones(model, gap):
    """Of table clusters they are maximised, of others drawn."""
    rng = np.random.default_rng(0)
    centre, of_a, of_b = 4.0 * rng.normal(size=(4, 3)), np.arange(60) % 4, np.arange(40) % 4
    turn = 2.0 * np.linalg.qr(rng.normal(size=(3, 3)))[0]
    tables = {"a": centre[of_a], "b": centre[of_b] @ turn}
    tables = {name: own + 0.5 * rng.normal(size=own.shape) for name, own in tables.items()}
    declare, quiet = getattr(pmm.models, model), {"random_seed": 1, "progressbar": False}
    free = pmm.find_matching(declare(tables, n_clusters=6), **quiet)
    best = free["starts"]["log_joint"].max()
    labels = {name: free["posterior"][f"cluster_{name}"].to_numpy()[0, 0] for name in tables}
    for share in (1, 3):
        known = {name: np.where(np.arange(len(n)) % share, -1, n) for name, n in labels.items()}
        found = pmm.find_matching(declare(tables, n_clusters=6, known=known), **quiet)
        assert (abs(found["starts"]["log_joint"] - best) < gap).all()
