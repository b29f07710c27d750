"""Clusters of new objects, by the same table."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

import pm_match as pmm
from pm_match import testing
from pm_match.declared import row_densities
from pm_match.declared.row_densities import RowDensities
from pm_match.metrics import adjusted_rand_index
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import read
from tests.declared.any_likelihood import (
    FAMILIES,
    N,
    T,
    X,
    counts_and_vectors,
    declared,
    effects,
    rows,
    two_domains,
)


def predicted(model, given, point, domain="cluster"):
    """Log predictives (M, T) of new objects at a point."""
    place = find_place(read(model), domain)
    predictive = Predictive(model, place.component)
    new = read_new_objects(model, predictive, place, given)
    predictive.load(point)
    found = sum(
        predictive.predictors[n].log_predictive(place, seen) for n, seen in new.seen.items()
    )
    assert not found[:, -1].any()
    return found[:, :-1]


def at_random(model, seed=0):
    state = testing.collapsed_of(model)
    point = testing.random_point(model, np.random.default_rng(seed), state)
    state.load(point, state.labels(point))
    return state, point


REFUSED = {
    "regression": "what is known of each object besides",
    "logistic regression": "what is known of each object besides",
    "long": "expected a whole row for each of 6 objects; found values of shape",
    "missing": "found values of shape .10,., of which some are missing",
    "potential": "found 'x', which is not known of new objects",
    "outliers": "found 'x', which is not known of new objects",
    "masked": "found 'x', which is not known of new objects",
}
SERVED = [family for family in FAMILIES if family not in REFUSED]


@pytest.mark.parametrize("family", SERVED)
def test_known_rows_are_worth_what_they_are_in_their_own_places(family):
    """In any order, and more than there are objects."""
    model = declared(FAMILIES[family])
    state, point = at_random(model)
    known = model.rvs_to_values[model["x"]].data
    order = np.random.default_rng(1).integers(N, size=2 * N + 1)
    found = predicted(model, known[order], point)
    worth = state.evidence[0].term.worth[:, 1 : T + 1]
    np.testing.assert_allclose(found, worth[order], rtol=1e-9)
    assert np.ptp(found, axis=0).min() > 0.0


@pytest.mark.parametrize("family", [*REFUSED, "effects"])
def test_what_cannot_be_replaced_is_refused(family):
    model = declared(FAMILIES.get(family, effects))
    _, point = at_random(model)
    message = REFUSED.get(family, "nothing is observed of its objects as such")
    with pytest.raises(pmm.UnservedModelError, match=f"new objects of .*{message}"):
        predicted(model, X, point)


def test_cells_may_be_missing():
    model = declared(FAMILIES["normal"])
    _, point = at_random(model)
    found = predicted(model, np.array([[0.5, np.nan], [np.nan, np.nan]]), point)
    mu, sigma = point["mu"], np.exp(point["sigma_log__"])
    expected = stats.norm.logpdf(0.5, mu[:, 0], sigma)
    np.testing.assert_allclose(found, [expected, np.zeros(T)], rtol=1e-9)


def beside_one_another(c):
    """Log densities of rows that the rows before them enter."""

    def logp(x, mu):
        before = pt.concatenate([x[:1], x[:-1]])
        return pm.logp(pm.Normal.dist(mu + before), x)

    pm.CustomDist("x", rows(shape=T)[c], logp=logp, observed=X[:, 0])


def test_rows_that_others_change_are_refused():
    model = declared(beside_one_another)
    with pytest.raises(pmm.UnservedModelError, match="of an object's row depends on other rows"):
        predicted(model, X[:, 0], at_random(model)[1])


def test_domains_and_kinds_of_numbers():
    model = two_domains()
    _, point = at_random(model)
    counts = np.array([[1, 2], [0, 3], [4, 0], [1, 1]])
    found = predicted(model, {"a": counts}, point, "a")
    rate = np.exp(point["latent"] @ point["w_a"].T)
    expected = stats.poisson.logpmf(counts[:, None], rate)
    np.testing.assert_allclose(found, expected.sum(axis=2), rtol=1e-9)
    with pytest.raises(ValueError, match=r"'b: b', row 0: expected a whole number; found 0.5"):
        predicted(model, np.array([[0.5, 1.0, 0.0, 1.0]]), point, "b")
    with pytest.raises(ValueError, match="expected 4 columns; found 2"):
        predicted(model, np.array([[0.0, 1.0]]), point, "b")
    assert np.isneginf(predicted(model, np.array([[0, 2, 0, 1]]), point, "b")).all()
    model = declared(FAMILIES["full"])
    with pytest.raises(ValueError, match="row 1: expected a whole row; found nan"):
        predicted(model, np.array([[0.5, 1.0], [0.5, np.nan]]), at_random(model)[1])


def test_assigned_by_what_was_sampled():
    model, truth = counts_and_vectors(45)
    idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    new = {"x": np.array([[-4.0, 0.0], [4.0, 0.5], [0.0, 5.0]]), "y": pd.Series([1, 5, 14])}
    found = pmm.assign(idata, model, {"cluster": new}, progressbar=False)["prediction/cluster"]
    total = found["probability"].sum("cluster") + found["unseen"]
    np.testing.assert_allclose(total, 1.0)
    nearest = found["match_cluster"].to_numpy().argmax(axis=1)
    np.testing.assert_array_equal(truth[nearest], [0, 1, 2])
    labels = idata["posterior"]["cluster"].values[0, 0]
    assert adjusted_rand_index({"c": labels}, {"c": truth}) > 0.9


def test_draws_under_which_an_object_is_impossible_have_no_weight():
    with pm.Model() as model:
        label = pm.Categorical("cluster", [0.3, 0.7], shape=4)
        width = pm.Uniform("width", 1.0, 5.0, shape=2)
        pm.Uniform("x", -width[label], width[label], observed=[0.2, 0.4, 0.1, 0.6])
    draws = {"cluster": [[[0, 0, 1, 1]] * 3], "width": [[[4.0, 2.0], [1.0, 2.0], [2.0, 1.0]]]}
    draws = xr.Dataset({n: (("chain", "draw", f"{n}_dim_0"), v) for n, v in draws.items()})

    def assigned(draws, x, **options):
        options |= {"random_seed": 1, "progressbar": False}
        return pmm.assign(draws, model, {"cluster": np.array(x)}, **options)["prediction/cluster"]

    # The first has a density in cluster 0 of the first draw alone, the second in all.
    found = assigned(draws, [2.5, 0.5])
    weight = 0.5 / draws["width"][0].to_numpy() @ [0.3, 0.7]
    np.testing.assert_allclose(found["weight"][0, :, 0], [1, 0, 0])
    np.testing.assert_allclose(found["weight"][0, :, 1], weight / weight.sum())
    np.testing.assert_allclose(found["effective_draws"][0], 1)
    np.testing.assert_allclose(found["log_predictive"], np.log([0.3 / 8 / 3, weight.mean()]))
    for order in ([0, 1, 2], [2, 1, 0]):
        found = assigned(draws.isel(draw=order), [2.5])
        np.testing.assert_allclose(found["probability"], [[1.0, 0.0]])
        np.testing.assert_allclose(found["match_cluster"], [[1, 1, 0, 0]])
    # What has a density in no draw, and in no cluster where all draws count alike.
    with pytest.raises(ValueError, match=r"'cluster', object 1: .* of some draw; found none"):
        assigned(draws, [0.5, 7.0])
    with pytest.raises(ValueError, match=r"object 0: .* of every draw, as all count alike; found"):
        assigned(draws, [2.5, 0.5], reweight=False)


def test_missing_values_of_objects_that_are_impossible_under_some_draws():
    with pm.Model() as model:
        label = pm.Categorical("cluster", [0.3, 0.7], shape=4)
        width = pm.Uniform("width", 1.0, 5.0, shape=2)
        pm.Uniform("x", -width[label], width[label], observed=[0.2, 0.4, 0.1, 0.6])
        rate = pm.Gamma("rate", 2.0, 1.0, shape=2)
        pm.Poisson("y", rate[label], observed=[1, 2, 7, 8])
    draws = {"cluster": [[[0, 0, 1, 1]] * 2], "width": [[[4.0, 2.0], [1.0, 2.0]]]}
    draws = xr.Dataset({n: (("chain", "draw", f"{n}_dim_0"), v) for n, v in draws.items()})
    draws["rate"] = ("chain", "draw", "rate_dim_0"), np.ones((1, 2, 2))

    def imputed(draws, x, **options):
        options |= {"random_seed": 1, "progressbar": False}
        new = {"x": np.array([x]), "y": np.array([np.nan])}
        return pmm.impute(draws, model, {"cluster": new}, **options)

    xr.testing.assert_allclose(imputed(draws, 2.5), imputed(draws.isel(draw=[0]), 2.5))
    with pytest.raises(ValueError, match=r"object 0: .* of some draw; found none"):
        imputed(draws, 7.0)
    with pytest.raises(ValueError, match=r"object 0: .* of every draw, as all count alike; found"):
        imputed(draws, 2.5, reweight=False)


def test_domains_may_observe_the_same_numbers():
    x = np.random.default_rng(3).normal(size=(6, 2))
    found = []
    for other in (x, x + 1.0):
        with pm.Model() as model:
            weights, centre = pm.Dirichlet("w", np.ones(T)), pm.Normal("centre", shape=(T, 2))
            for name, own in (("a", x), ("b", other)):
                label = pm.Categorical(f"cluster_{name}", weights, shape=6)
                pm.StudentT(name, nu=4.0, mu=centre[label], observed=own)
        point = model.initial_point()
        point["centre"] = np.arange(2.0 * T).reshape(T, 2)
        found.append(predicted(model, {"a": x[:3]}, point, "cluster_a"))
    np.testing.assert_array_equal(*found)


@pytest.mark.compiled
def test_many_rows_are_worth_the_same_as_few(monkeypatch):
    """Of many rows PyTensor compiles the densities well, as it does for users."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        labels = pm.Categorical("c", pm.StickBreakingWeights("w", 1.0, K=2), shape=8)
        low = pm.Normal("low", 0.0, 3.0, shape=3)
        pm.Uniform("x", low[labels][:, None], low[labels][:, None] + 2.0, observed=np.ones((8, 2)))
    (evidence,) = read(model).components[0].evidence
    rows = RowDensities(model, evidence, "c", "x", "")
    point = model.initial_point() | {"low": np.array([-0.5, 0.5, 5.0])}
    values, own = rng.uniform(-1.0, 2.0, (50, 2)), rng.integers(3, size=50)
    few = rows.cells(point, values, own)
    monkeypatch.setattr(row_densities, "MANY", 0)
    many = rows.cells(point, values, own)
    # Some rows are impossible in their cluster, and some are not.
    assert np.isneginf(few).any()
    assert np.isfinite(few).any()
    assert len(rows._densities._compiled) == 2
    np.testing.assert_allclose(many, few, rtol=1e-12)
    expected = stats.uniform(point["low"][own][:, None], 2.0).logpdf(values)
    np.testing.assert_allclose(few, expected, rtol=1e-12)
