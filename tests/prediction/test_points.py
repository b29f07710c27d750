"""Recorded draws become the points that they were recorded from."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.prediction.points import RecordedPoints
from tests.declared import features as tiny_features
from tests.declared import networks as tiny_networks
from tests.declared import plain as tiny
from tests.declared.features import Kind
from tests.declared.few_draws import few_draws
from tests.prediction.made_up import model_of, tree_of

MODELS = {
    "plain": (tiny.tiny_model, tiny),
    "wishart": (lambda: model_of(Kind(noise="wishart", deviations="one")), tiny_features),
    "lkj": (
        lambda: model_of(Kind(projection="rigid", noise="lkj", deviations="vector")),
        tiny_features,
    ),
    "relevance": (lambda: model_of(Kind(relevance="all", noise="vector")), tiny_features),
    "networks": (lambda: tiny_networks.network_model(hyperpriors=True), tiny_networks),
}


@pytest.mark.parametrize("case", MODELS)
def test_points_are_those_that_were_recorded(case):
    declare, module = MODELS[case]
    model, rng = declare(), np.random.default_rng(4)
    points = [module.random_point(model, rng) for _ in range(4)]
    if case == "wishart":
        # What is sampled of a Wishart variable is the matrix itself.
        for point in points:
            for name, value in point.items():
                if name.startswith("precision_"):
                    point[name] = value @ value.T + np.eye(len(value)) if value.ndim == 2 else value
    found = RecordedPoints(tree_of(model, points, chains=2), model, "posterior", SAMPLE_DIMS, None)
    assert len(found) == 4
    start = model.initial_point(0)
    free = {c for part in found.structure.components for c in part.collapsed}
    compared = 0
    for point, other in zip(points, found, strict=True):
        assert list(other) == list(start)
        for name, value in point.items():
            natural = name.split("_logodds__")[0].split("_log__")[0].split("_simplex__")[0]
            if natural in free and not natural.startswith(("cluster_", "relevance_")):
                continue
            compared += 1
            assert other[name].dtype == np.asarray(start[name]).dtype
            np.testing.assert_allclose(other[name], value, rtol=1e-9, atol=1e-9)
    assert compared > 0


def test_draws_of_other_data_tell_nothing_of_new_objects():
    """Labels are of the data: after `pm.set_data`, draws from before were put beside other data."""
    with pm.Model() as model:
        data, hours = pm.Data("data", [1.0, 2.0, 7.0, 9.0]), pm.Data("hours", 2.0)
        odds = pm.Data("odds_observed", [0.4, 0.6])  # no part of a variable
        label = pm.Categorical("cluster", odds, shape=4)
        rate = pm.Gamma("rate", 2.0, 0.5, shape=2)
        pm.Exponential("x", rate[label] * hours, observed=data)
    new = {"cluster": np.array([2.0])}
    idata = few_draws(model)
    found = pmm.assign(idata, model, new, progressbar=False)
    before = {"data": [1.0, 2.0, 7.0, 9.0], "hours": 2.0, "odds_observed": [0.4, 0.6]}
    for name, variable, other in (
        ("data", "x", [1.0, 2.0, 7.0, 8.0]),
        ("hours", "hours", 3.0),
        ("odds_observed", "odds_observed", [0.6, 0.4]),
    ):
        pm.set_data(before | {name: other}, model)
        for predict in (pmm.assign, pmm.impute):
            with pytest.raises(ValueError, match=f"'{variable}': expected the data that draws"):
                predict(idata, model, new, progressbar=False)
        pmm.log_predictive(idata, model, progressbar=False)  # of parameters alone
    pm.set_data(before, model)
    again = pmm.assign(idata, model, new, progressbar=False)
    xr.testing.assert_equal(
        found["prediction/cluster"].dataset, again["prediction/cluster"].dataset
    )


@pytest.mark.parametrize("unit", [1e-10, 1e10])
def test_other_data_are_told_in_any_unit(unit):
    with pm.Model() as model:
        data = pm.Data("data", unit * np.array([1.0, 2.0, 7.0, 9.0]))
        label = pm.Categorical("cluster", np.ones(2) / 2, shape=4)
        pm.Exponential("x", pm.Gamma("rate", 2.0, unit, shape=2)[label], observed=data)
    idata, new = few_draws(model), {"cluster": np.array([2.0 * unit])}
    pmm.assign(idata, model, new, progressbar=False)
    pm.set_data({"data": unit * np.array([1.0, 2.0, 7.0, 8.0])}, model)
    with pytest.raises(ValueError, match="'x': expected the data that draws"):
        pmm.assign(idata, model, new, progressbar=False)


def test_labels_that_are_all_observed_need_no_draws():
    """`pm.sample` records none: what looks at all objects of a set ended with a `KeyError`."""
    rng = np.random.default_rng(0)
    with pm.Model(coords={"known": list("xyz")}) as model:
        weights, rate = pm.Dirichlet("weights", np.ones(2)), pm.Gamma("rate", 1.0, 1.0, shape=2)
        known = pm.Categorical("cluster_known", weights, observed=[0, 1, 1], dims="known")
        free = pm.Categorical("cluster_free", weights, shape=4)
        pm.Poisson("count", rate[known], observed=[1, 5, 7])
        pm.Poisson("other", rate[free], observed=rng.poisson(3.0, 4))
    idata = pmm.sample(9, tune=1, chains=1, random_seed=1, model=model, quiet=True)
    plain = idata["posterior"].to_dataset().drop_vars("cluster_known")
    given, found = (
        pmm.assign(draws, model, {"free": np.array([2.0, 4.0])}, random_seed=1, progressbar=False)
        for draws in (idata["posterior"].to_dataset(), plain)
    )
    for name, values in given["prediction/free"].data_vars.items():
        xr.testing.assert_equal(found["prediction/free"][name], values)
    assert found["prediction/free"]["known"].to_numpy().tolist() == list("xyz")


def test_clusters_that_were_renumbered_are_refused():
    """Weights have their prior by number: new objects had other clusters than in the same draws."""
    tables = pmm.datasets.synthetic(12, 6, 2, 2, random_seed=3)
    model = pmm.models.projected_clusters(tables, n_factors=2, n_clusters=4, projection="normal")
    idata = pmm.sample(9, tune=5, chains=1, random_seed=1, model=model, quiet=True)
    named = pmm.relabel(idata, pmm.partition_estimate(idata))
    with pytest.raises(ValueError, match=r"as they were sampled.*that `relabel` has renumbered"):
        pmm.assign(named, model, {"a": np.zeros((1, 6))}, progressbar=False)
    # Given weights, which go with their clusters, numbers say nothing.
    told = [
        pmm.log_predictive(draws, model, progressbar=False)["log_likelihood"]["objects"]
        for draws in (idata, named)
    ]
    np.testing.assert_allclose(*told)
