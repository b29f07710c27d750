"""Dependency-seeking clusters: declared, searched, sampled; and bad input."""

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.metrics import adjusted_rand_index
from pm_match.normal.parts import Normals
from pm_match.reading import read

pytestmark = pytest.mark.usefixtures("only_collapsed")

declare = pmm.models.dependency_clusters


def views(n=60, seed=0, n_clusters=3, spread=6.0):
    """Two views of objects in clusters far apart, each with much variation of its own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=n)
    tables = {}
    for name, d in (("x", 2), ("y", 3)):
        centres = rng.normal(size=(n_clusters, d)) * spread
        tables[name] = centres[labels] + rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return labels, tables


def test_what_is_declared():
    _, tables = views()
    frames = {
        name: pd.DataFrame(x, index=[f"o{i}" for i in range(60)]) for name, x in tables.items()
    }
    frames["y"].iloc[[3, 5]] = np.nan
    model = declare(frames, n_clusters=4, mean_strength=0.3)
    assert {rv.name for rv in model.free_RVs} == {
        "weights", "cluster_object", "mean_x", "precision_x", "mean_y", "precision_y",
    }  # fmt: skip
    dims = model.named_vars_to_dims
    assert dims["cluster_object"] == ("object",)
    assert dims["mean_y"] == ("cluster", "y_feature")
    assert dims["y"] == ("y_object", "y_feature")
    assert dims["x"] == ("object", "x_feature")
    assert list(model.coords["y_object"][:4]) == ["o0", "o1", "o2", "o4"]
    structure = read(model)
    assert not structure.refusals
    x, y = structure.components[0].of(Normals)
    assert x.shared
    assert len(x.values[0].objects) == 60
    np.testing.assert_array_equal(y.values[0].objects, np.delete(np.arange(60), [3, 5]))
    prior = y.prior(model.initial_point())
    # The covariance within clusters has a mean of a quarter of the columns' variances.
    seen = tables["y"][y.values[0].objects]
    mean = prior.inverse_scale / (prior.degrees - seen.shape[1] - 1)
    np.testing.assert_allclose(mean, np.diag(seen.var(axis=0)) / 4.0)
    np.testing.assert_allclose(prior.center, seen.mean(axis=0))
    assert prior.strength == pytest.approx(0.3)


@pytest.mark.parametrize("weights", ["stick-breaking", "dirichlet", "uniform"])
@pytest.mark.parametrize("within", ["shared", "own"])
def test_every_option_is_served(weights, within):
    _, tables = views(20)
    structure = read(declare(tables, n_clusters=3, weights=weights, within=within))
    assert not structure.refusals
    assert [one.shared for one in structure.of(Normals)] == [within == "shared"] * 2


def test_views_without_labels_have_those_of_the_others():
    _, tables = views(20)
    index = [f"o{i}" for i in range(20)]
    tables["y"][3] = np.nan
    model = declare(tables | {"x": pd.DataFrame(tables["x"], index=index)}, n_clusters=3)
    assert list(model.coords["object"]) == index
    assert list(model.coords["y_object"]) == index[:3] + index[4:]


def test_views_that_are_not_paired():
    _, tables = views(20)
    tables["y"] = tables["y"][:12]
    model = declare(tables, n_clusters=3, paired=False, links={"x": [0, 4], "y": [1, 2]})
    structure = read(model)
    assert not structure.refusals
    (clustering,) = structure.components[0].clusterings
    assert [a.name for a in clustering.assignments] == ["cluster_x", "cluster_y"]
    assert len(clustering.links) == 2


def test_find_matching_and_sample():
    labels, tables = views()
    tables["x"][:5] = np.nan
    tables["y"][-5:] = np.nan
    model = declare(tables)
    best = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)
    found = best["posterior"]["cluster_object"].values.ravel()
    assert adjusted_rand_index({"a": labels}, {"a": found}) > 0.95
    assert np.ptp(best["starts"]["log_joint"].values) < 3.0
    drawn = pmm.sample(
        20, tune=10, chains=2, cores=1, model=model, random_seed=2, progressbar=False, quiet=True
    )
    again = pmm.sample(
        20, tune=10, chains=2, cores=1, model=model, random_seed=2, progressbar=False, quiet=True
    )
    for name in drawn["posterior"]:
        np.testing.assert_array_equal(drawn["posterior"][name], again["posterior"][name])
    estimate = pmm.partition_estimate(drawn)["cluster_object"].values
    assert adjusted_rand_index({"a": labels}, {"a": estimate}) > 0.95
    # Objects given again as new ones, with one view or both, go where they were.
    new = {name: x[10:40] for name, x in tables.items()}
    for seen in ({"x": new["x"]}, new):
        given = pmm.assign(drawn, model, {"object": seen}, progressbar=False)["prediction/object"]
        assert (given["probability"].values.argmax(axis=1) == estimate[10:40]).all()


@pytest.mark.slow
def test_links_match_views_that_are_not_paired():
    labels, tables = views(120, seed=3)
    order = np.random.default_rng(4).permutation(120)
    tables["y"] = tables["y"][order]
    linked = np.arange(0, 120, 6)
    places = np.argsort(order)[linked]
    model = declare(tables, paired=False, links={"x": linked, "y": places})
    best = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)["posterior"]
    found = {name: best[f"cluster_{name}"].values.ravel() for name in "xy"}
    assert adjusted_rand_index({"x": labels, "y": labels[order]}, found) > 0.95


@pytest.mark.slow
def test_clusters_show_what_the_views_share():
    # Two groups that x alone has, along its widest direction; and two that both views have.
    rng = np.random.default_rng(5)
    n = 300
    shared, private = rng.integers(2, size=(2, n))
    x = np.stack([6.0 * private, 3.0 * shared], axis=1) + rng.normal(size=(n, 2))
    y = 3.0 * shared[:, None] + rng.normal(size=(n, 1))
    both = {"x": x, "y": y}
    aside = {"xy": np.concatenate([x, y], axis=1)}
    found = {}
    for name, tables in (("views", both), ("side by side", aside)):
        model = declare(tables, n_clusters=2, weights="dirichlet")
        best = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)
        found[name] = best["posterior"]["cluster_object"].values.ravel()
    for name, right, other in (("views", shared, private), ("side by side", private, shared)):
        own = {"a": found[name]}
        ours = adjusted_rand_index({"a": right}, own)
        assert ours > adjusted_rand_index({"a": other}, own) + 0.5


BAD = {
    "rows": (
        lambda t: {"x": t["x"], "y": t["y"][:10]},
        {},
        "view 'y': expected 20 objects .* found 10; say paired=False",
    ),
    "labels": (
        lambda t: {"x": pd.DataFrame(t["x"]), "y": pd.DataFrame(t["y"], index=range(1, 21))},
        {},
        "view 'y': expected the objects of view 'x'; found 1 for 0 .* say paired=False",
    ),
    "order": (
        lambda t: {"x": pd.DataFrame(t["x"]), "y": pd.DataFrame(t["y"], index=range(19, -1, -1))},
        {},
        "in the order of view .*; say paired=False",
    ),
    "partly missing": (
        lambda t: {"x": np.where(np.eye(20, 2) > 0, np.nan, t["x"])},
        {},
        "object 0: expected all values, or none",
    ),
    "nowhere": (
        lambda t: {k: np.where(np.arange(20)[:, None] == 3, np.nan, x) for k, x in t.items()},
        {},
        "object 3: expected an observed value in some view; found none",
    ),
    "infinite": (lambda t: {"x": np.full((20, 2), np.inf)}, {}, "view 'x'.*infinite"),
    "constant": (
        lambda t: {"x": np.ones((20, 2))},
        {},
        "view 'x': column 0: expected values that differ",
    ),
    "one seen": (
        lambda t: {"x": t["x"], "y": np.where(np.arange(20)[:, None] == 3, t["y"], np.nan)},
        {},
        "'y'",
    ),
    "name": (lambda t: {"object": t["x"]}, {}, "found 'object', which it uses itself"),
    "names": (lambda t: {"x": t["x"], "mean_x": t["y"]}, {}, "second 'mean_x'"),
    "name of the model": (
        lambda t: {"weights": t["x"]},
        {},
        "^view 'weights': .* found 'weights', which it uses",
    ),
    "no identifier": (lambda t: {"a b": t["x"]}, {}, "^view 'a b': expected an identifier"),
    "none": (lambda t: {}, {}, "^views: expected at least one view"),
    "links": (
        lambda t: t,
        {"links": {"x": [0], "y": [1]}},
        "links: expected none with paired=True",
    ),
    "strange link": (lambda t: t, {"links": {"x": [0], "z": [1]}, "paired": False}, "found 'z'"),
    "n_clusters": (lambda t: t, {"n_clusters": 1}, "n_clusters: expected"),
    "concentration": (lambda t: t, {"concentration": 0.0}, "concentration: expected"),
    "mean_strength": (lambda t: t, {"mean_strength": np.inf}, "mean_strength: expected"),
    "weights": (lambda t: t, {"weights": "none"}, "weights: expected"),
    "within": (lambda t: t, {"within": "full"}, "within: expected"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    change, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        declare(change(views(20)[1]), **options)


def test_bad_types():
    with pytest.raises(TypeError, match="paired: expected"):
        declare(views(20)[1], paired="yes")
    with pytest.raises(TypeError, match=r"^views: expected a mapping from a view's name"):
        declare(views(20)[1]["x"])
