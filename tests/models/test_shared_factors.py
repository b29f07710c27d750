"""Shared factors, as they are declared: names, coords, priors, and bad input."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.reading import read
from pm_match.tables.paired_views import as_paired_views

OBJECTS = ["ann", "bob", "cid", "dee", "eve", "fay"]


def tables(missing=True):
    rng = np.random.default_rng(1)
    a = pd.DataFrame(rng.normal(size=(6, 4)), index=OBJECTS, columns=list("wxyz"))
    b = rng.normal(size=(6, 3))
    if missing:
        a.iloc[0] = np.nan
        b[2, 1] = np.nan
    return {"a": a, "b": b}


def test_the_declared_model():
    model = pmm.models.shared_factors(tables(), 2, {"a": 1, "b": 0})
    names = [rv.name for rv in model.free_RVs]
    assert set(names) == {
        "latent", "column_precision_a", "projection_a", "private_a", "private_latent_a",
        "intercept_a", "precision_a", "a_unobserved", "column_precision_b", "projection_b",
        "intercept_b", "precision_b", "b_unobserved",
    }  # fmt: skip
    assert list(model.coords["object"]) == OBJECTS
    assert list(model.coords["a_feature"]) == list("wxyz")
    dims = model.named_vars_to_dims
    assert dims["latent"] == ("object", "factor")
    assert dims["projection_a"] == ("a_feature", "factor")
    assert dims["private_latent_a"] == ("object", "a_factor")
    assert dims["private_a"] == ("a_feature", "a_factor")
    (part,) = read(model).parts
    assert set(part.names) == set(names)


def test_every_option_is_declared_and_served():
    options = {
        "noise_prior": (3.0, 2.0),
        "projection_prior": (4.0, 5.0),
        "private_precision": 6.0,
        "intercept": False,
    }
    model = pmm.models.shared_factors(tables(False), 2, 2, **options)
    assert "intercept_a" not in model.named_vars
    (part,) = read(model).parts
    assert set(part.names) == {rv.name for rv in model.free_RVs}
    priors = {p.name: p.prior({}) for p in part.precisions}
    assert np.allclose(priors["precision_b"], (3.0, 2.0))
    assert np.allclose(np.transpose(priors["column_precision_a"]), (4.0, 5.0))
    assert np.allclose(part.views[0].loadings[1].prior({})[1], 6.0)


def test_by_default_views_have_private_factors():
    model = pmm.models.shared_factors(tables(), 1)
    assert model["private_a"].eval().shape == (4, 2)
    assert model["private_b"].eval().shape == (3, 1)


def test_intercepts_are_around_the_means_of_columns():
    views = tables()
    model = pmm.models.shared_factors(views, 1)
    part = read(model).parts[0]
    mean, precision = part.views[0].intercept.prior({})
    values = views["a"].to_numpy()
    assert np.allclose(mean[:, 0], np.nanmean(values, axis=0))
    assert np.allclose(precision, 1.0 / np.nanmean((values - np.nanmean(values, axis=0)) ** 2))


def test_tables_of_other_kinds():
    a = xr.DataArray(np.arange(12.0).reshape(6, 2), dims=("n", "d"), coords={"n": OBJECTS})
    masked = np.ma.masked_greater(np.arange(18.0).reshape(6, 3), 16.0)
    found = as_paired_views({"a": a, "b": masked})
    assert list(found["b"].objects) == OBJECTS
    assert found["b"].missing.sum() == 1
    assert not found["a"].missing.any()


@pytest.mark.parametrize("index", [range(6), range(7, 1, -1), list("uvwxyz")])
def test_rows_without_labels_take_those_of_another_view(index):
    plain, frame = np.eye(6), pd.DataFrame(np.eye(6), index=index)
    for views in ({"a": plain, "b": frame}, {"a": frame, "b": plain}):
        assert list(as_paired_views(views)["a"].objects) == list(index)
        assert list(as_paired_views(pmm.standardise(views))["a"].objects) == list(index)


def test_an_index_that_nobody_set_is_no_label_where_there_are_names():
    frames = {"a": pd.DataFrame(np.eye(6)), "b": pd.DataFrame(np.eye(6), index=OBJECTS)}
    for order in ("ab", "ba"):
        assert list(as_paired_views({k: frames[k] for k in order})["a"].objects) == OBJECTS


def test_a_constant_column_is_no_harm():
    views = tables(False)
    views["b"][:, 0] = 2.0
    assert "precision_b" in pmm.models.shared_factors(views, 1).named_vars


def with_view(**changes):
    return tables(False) | changes


def numbered(change, other=lambda table: table):
    a, b = (pd.DataFrame(x) for x in np.random.default_rng(2).normal(size=(2, 6, 3)))
    return {"a": other(a), "b": change(b)}


WRONG = {
    "no mapping": (lambda: {"views": [np.ones((6, 2))]}, TypeError, "expected a mapping"),
    "no view": (lambda: {"views": {}}, ValueError, "at least one view"),
    "a name": (lambda: {"views": {1: np.ones((6, 2))}}, TypeError, "view 1: expected a string"),
    "no identifier": (
        lambda: {"views": with_view(**{"a b": np.ones((6, 2))})}, ValueError, "expected an identi"),
    "a name of the model": (
        lambda: {"views": with_view(latent=np.ones((6, 2)))}, ValueError,
        "found 'latent', which it uses itself"),
    "a name twice": (
        lambda: {"views": with_view(latent_a=np.ones((6, 2)))},
        ValueError, "a second 'private_latent_a' beside that of view 'a'"),
    "numbers of objects": (
        lambda: {"views": with_view(c=np.ones((5, 2)))},
        ValueError, r"view 'c': expected 6 objects \(rows\), as in view 'a'; found 5"),
    "labels of objects": (
        lambda: {"views": with_view(c=pd.DataFrame(np.eye(6), index=[*OBJECTS[:5], "gus"]))},
        ValueError, "expected the objects of view 'a'; found 'gus' for 'fay' in row number 5"),
    "numbers for labels": (
        lambda: {"views": with_view(c=pd.DataFrame(np.eye(6), index=range(2, 8)))},
        ValueError, "expected the objects of view 'a'; found 2 for 'ann' in row number 0"),
    "order of objects": (
        lambda: {"views": with_view(c=pd.DataFrame(np.eye(6), index=OBJECTS[::-1]))},
        ValueError, "in the order of"),
    "order of numbered objects": (
        lambda: {"views": numbered(lambda table: table.sample(frac=1.0, random_state=0))},
        ValueError, "view 'b': expected objects .* in the order of view 'a'"),
    "numbered objects left out": (
        lambda: {"views": numbered(lambda table: table.drop(index=0), lambda table: table[:-1])},
        ValueError, "expected the objects of view 'a'; found 1 for 0 in row number 0"),
    "text": (
        lambda: {"views": with_view(c=np.array([["x"]] * 6))}, TypeError,
        "view 'c': expected numbers in column 0; found text"),
    "infinite": (
        lambda: {"views": with_view(c=np.full((6, 1), np.inf))}, ValueError,
        "view 'c': .* found 6 infinite"),
    "an empty column": (
        lambda: {"views": with_view(c=np.full((6, 1), np.nan))},
        ValueError, "view 'c': column 0: expected an observed value; found none"),
    "an object without values": (
        lambda: {"views": {"a": np.where(np.arange(6)[:, None] == 4, np.nan, np.ones((6, 2)))}},
        ValueError, "views: object 4: expected an observed value in some view; found none"),
    "n_shared": (lambda: {"n_shared": 0}, ValueError, "n_shared: expected a whole number"),
    "n_private": (lambda: {"n_private": -1}, ValueError, "n_private: expected a whole number"),
    "n_private of no view": (
        lambda: {"n_private": {"a": 1, "b": 1, "c": 1}}, ValueError, r"each of \['a', 'b'\]"),
    "n_private of one view": (
        lambda: {"n_private": {"a": 1}}, ValueError, r"for each of \['a', 'b'\]; found"),
    "n_private of a view": (
        lambda: {"n_private": {"a": 1, "b": 1.5}}, ValueError, r"n_private\['b'\]: expected"),
    "noise_prior": (lambda: {"noise_prior": (1.0, 0.0)}, ValueError, "noise_prior's rate"),
    "projection_prior": (lambda: {"projection_prior": 1.0}, ValueError, "projection_prior: exp"),
    "private_precision": (lambda: {"private_precision": np.nan}, ValueError, "private_precision"),
    "intercept": (lambda: {"intercept": "yes"}, TypeError, "intercept: expected True or False"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_bad_input_is_refused(what):
    arguments, error, message = WRONG[what]
    with pytest.raises(error, match=message):
        pmm.models.shared_factors(**{"views": tables(), "n_shared": 2} | arguments())


def test_what_is_shared_is_found():
    """Two views that share one dimension, each with a stronger one of its own."""
    rng = np.random.default_rng(3)
    h, u, v = rng.normal(size=(3, 80, 1))
    views = {
        "a": 0.7 * h @ rng.normal(size=(1, 6)) + 1.5 * u @ rng.normal(size=(1, 6)),
        "b": 0.7 * h @ rng.normal(size=(1, 5)) + 1.5 * v @ rng.normal(size=(1, 5)),
    }
    views = {name: x + 0.3 * rng.normal(size=x.shape) for name, x in views.items()}
    views["a"][rng.random((80, 6)) < 0.1] = np.nan
    views["b"][5] = np.nan
    model = pmm.models.shared_factors(views, 1, 1)
    idata = pmm.sample(300, tune=200, chains=2, cores=1, model=model, random_seed=1,
                       progressbar=False, compute_convergence_checks=False)  # fmt: skip
    drawn = idata["posterior"]["latent"].to_numpy()[..., 0].reshape(-1, 80)
    shared = np.abs([np.corrcoef(one, h[:, 0])[0, 1] for one in drawn])
    own = np.abs([np.corrcoef(one, u[:, 0])[0, 1] for one in drawn])
    assert np.median(shared) > 0.9
    assert np.median(own) < 0.3
    assert set(pmm.invariants(idata, model)) >= {"log_likelihood", "precision_a", "intercept_b"}
    assert not {"latent", "projection_a", "private_b"} & set(pmm.invariants(idata, model))
    assert isinstance(model, pm.Model)
