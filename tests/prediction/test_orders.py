"""Recorded draws are taken as what their labels say that they are."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.prediction.points import RecordedPoints
from tests.declared.few_draws import few_draws

COUNTS = np.array([[0, 9, 1], [1, 8, 0], [7, 0, 30], [9, 1, 28], [8, 2, 33], [0, 11, 2]])
OPTIONS = {"random_seed": 0, "progressbar": False}


def declared(rows=range(6), names=None):
    rows = list(rows)
    table = xr.DataArray(
        COUNTS[rows].astype(float),
        {"person": [10 * row if names is None else names[row] for row in rows], "of": [*"xyz"]},
        ("person", "of"),
    ).to_pandas()
    table[table == 9] = np.nan
    return pmm.models.mixture(table, n_clusters=3, columns=dict.fromkeys("xyz", "count"))


@pytest.fixture(scope="module")
def draws():
    return few_draws(declared(), draws=300, tune=40)


@pytest.mark.parametrize("rows", [[3, 1, 0, 5, 4, 2], [5, 4, 3, 2, 1, 0]])
def test_objects_in_another_order_are_aligned(draws, rows):
    one, there = (pmm.impute(draws, model, **OPTIONS) for model in (declared(), declared(rows)))
    values = one["table_count"]
    np.testing.assert_allclose(there["table_count"].reindex_like(values), values)


def test_columns_in_another_order_are_aligned():
    domains = pmm.datasets.synthetic(8, 3, 2, 2, random_seed=1)
    tables = {name: pd.DataFrame(own, columns=[*"xyz"]) for name, own in domains.items()}
    turned = {name: own[[*"zyx"]] for name, own in tables.items()}
    one, other = (
        pmm.models.projected_clusters(own, n_factors=2, n_clusters=3, projection="normal")
        for own in (tables, turned)
    )
    draws = few_draws(one, draws=5, tune=5)
    found, there = (
        pmm.translate(draws, model, source="a", target="b", progressbar=False)["b"]
        for model in (one, other)
    )
    np.testing.assert_allclose(there.reindex_like(found), found)
    assert found.std() > 0.1


def test_labels_that_became_text_are_aligned(draws):
    (dim,) = (d for d in draws.posterior.dims if d.endswith("object"))
    text = draws.copy()
    own = draws.posterior.to_dataset()
    text["posterior"] = xr.DataTree(own.assign_coords({dim: own[dim].astype(str)}))
    one = pmm.impute(draws, declared(), **OPTIONS)
    other = pmm.impute(text, declared([5, 4, 3, 2, 1, 0]), **OPTIONS)
    for name in one:
        np.testing.assert_array_equal(one[name][::-1], other[name])


def test_draws_of_other_objects_are_refused(draws):
    model = declared(names=[0, 10, 20, 30, 40, 55])
    with pytest.raises(ValueError, match="such as 55; found others, such as 50"):
        pmm.impute(draws, model, **OPTIONS)


def test_labels_that_are_only_equal_are_refused(draws):
    """True is 1, and no label of it."""
    own = draws.posterior.to_dataset().isel(table_object=[0, 1])
    two = pmm.models.mixture(
        pd.DataFrame({name: COUNTS[:2, k] for k, name in enumerate("xyz")}, index=[False, True]),
        n_clusters=3,
        columns=dict.fromkeys("xyz", "count"),
    )
    with pytest.raises(
        ValueError,
        match="such as False; found others, such as 1",
    ):
        RecordedPoints(own.assign_coords(table_object=[1, 0]), two, "", ("chain", "draw"), None)


def test_a_group_is_taken_for_its_draws(draws):
    for one, other in (
        (draws["posterior"], draws),
        (draws["posterior"].to_dataset(), draws),
    ):
        assert pmm.impute(one, declared(), **OPTIONS).equals(
            pmm.impute(other, declared(), **OPTIONS)
        )
    labels = pmm.partition_estimate(draws["posterior"])
    assert labels.equals(pmm.partition_estimate(draws))
    moved = pmm.relabel(draws["posterior"], labels)
    assert isinstance(moved, xr.DataTree)
    assert moved.to_dataset().equals(pmm.relabel(draws, labels)["posterior"].to_dataset())


def test_a_domain_may_be_called_what_new_objects_are():
    tables = {name: pd.DataFrame({"n": own}) for name, own in (("a", [1, 9, 2]), ("a_new", [8, 1]))}
    model = pmm.models.mixture(tables, n_clusters=3, columns={"n": "count"})
    draws = few_draws(model, draws=5, tune=5)
    found = pmm.assign(draws, model, {"a": pd.DataFrame({"n": [7, 7, 7, 0]})}, **OPTIONS)
    assert found["posterior"]["cluster_a_new"].shape[-1] == 2
    assert found["posterior"]["cluster_a_new_object"].shape[-1] == 4


def heavy(rows):
    """Rows of two columns with missing values, which are not integrated out."""
    x = np.array([[0.0, 1.0], [np.nan, 2.0], [5.0, np.nan], [7.0, np.nan], [np.nan, np.nan]])[rows]
    with pm.Model(coords={"person": 10 * np.array(rows), "of": ["u", "v"]}) as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        cluster = pm.Categorical("cluster_p", weights, dims="person")
        mean = pm.Normal("mean", 3.0, 3.0, shape=(2, 2))
        x = np.ma.masked_invalid(x)
        pm.StudentT("x", nu=4, mu=mean[cluster], sigma=0.3, observed=x, dims=("person", "of"))
    return model


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_missing_values_go_with_their_objects():
    draws = few_draws(heavy([0, 1, 2, 3, 4]), draws=20, tune=20)
    rows = [3, 4, 0, 2, 1]
    points = RecordedPoints(draws, heavy(rows), "posterior", ("chain", "draw"), None, True)
    whole = draws.posterior["x"].to_numpy()[0][:, rows]
    # Of persons 30, 40, 20 and 10, in the order of the model's rows.
    places = np.array([[0, 1], [1, 0], [1, 1], [3, 1], [4, 0]]).T
    found = [point["x_unobserved"] for point in points]
    np.testing.assert_array_equal(found, whole[:, places[0], places[1]])
    short = draws.posterior.to_dataset().drop_vars("x")
    with pytest.raises(ValueError, match=r"'x_unobserved': expected draws in the order of"):
        pmm.assign(short, heavy([3, 4, 0, 2, 1]), {"p": np.zeros((1, 2))}, **OPTIONS)
