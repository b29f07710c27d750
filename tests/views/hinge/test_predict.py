"""Labels of new objects, against dense formulas and against what the model declares."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.views.hinge.predict import label_probability
from tests.declared.views import tiny_views

N_DRAWS = 6


def drawn(model, n_draws=N_DRAWS, seed=0, same=False):
    """Made-up draws of every variable that prediction reads."""
    rng = np.random.default_rng(seed)
    shapes = {rv.name: model[rv.name].shape.eval() for rv in model.free_RVs}
    found = {}
    for name, shape in shapes.items():
        values = rng.normal(size=(1, n_draws, *shape))
        if same:
            values[:] = values[:, :1]
        if "precision" in name or "weights" in name:
            values = np.exp(0.3 * values)
        if name == "component":
            values = np.zeros(values.shape, int)
        dims = ("chain", "draw", *(f"{name}_{k}" for k in range(len(shape))))
        found[name] = (dims, values)
    return xr.Dataset(found, {"chain": [0], "draw": range(n_draws)})


@pytest.fixture(scope="module")
def model():
    return tiny_views(m=2, n_private={"x": 1, "y": 1})


RNG = np.random.default_rng(3)
NEW = {"x": RNG.normal(size=(4, 2)), "y": RNG.normal(size=(4, 2))}
NEW["y"][1] = np.nan
NEW["x"][2, 0] = np.nan


def dense_latent(posterior, draw, new):
    """Means and covariances of new latent vectors, by the formula with features by features."""
    at = posterior.isel(chain=0, draw=draw)
    n = len(next(iter(new.values())))
    means, covariances = [], []
    for row in range(n):
        precision, linear = np.eye(2), np.zeros(2)
        for name, table in new.items():
            seen = ~np.isnan(table[row])
            w, v = at[f"projection_{name}"].values[seen], at[f"private_{name}"].values[seen]
            noise = np.eye(seen.sum()) / float(at[f"precision_{name}"])
            inverse = np.linalg.inv(v @ v.T + noise)
            precision += w.T @ inverse @ w
            residual = table[row, seen] - at[f"intercept_{name}"].values[seen]
            linear += w.T @ inverse @ residual
        covariances.append(np.linalg.inv(precision))
        means.append(covariances[-1] @ linear)
    return np.array(means), np.array(covariances)


def dense_scores(posterior, draw, latent):
    at = posterior.isel(chain=0, draw=draw)
    angles = latent @ at["frequencies"].values.T
    waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=-1) / np.sqrt(2.0)
    beta = at["coefficients"].values
    return waves @ beta[:-1] + beta[-1]


@pytest.mark.parametrize("names", [("x", "y"), ("y", "x"), ("x",)])
def test_latent_vectors_are_drawn_given_what_is_seen(model, names):
    new = {name: NEW[name] for name in names}
    n_draws = 1500
    posterior = drawn(model, n_draws, same=True)
    found = pmm.predict(posterior, model, new, random_seed=0, progressbar=False)
    means, covariances = dense_latent(posterior, 0, new)
    rng = np.random.default_rng(5)
    for row in range(4):
        h = rng.multivariate_normal(means[row], covariances[row], size=20_000)
        scores = dense_scores(posterior, 0, h)
        own = found["decision"].values[0, :, row]
        for function in (np.tanh, np.square, lambda f: (f > 0.3) * 1.0):
            a, b = function(own), function(scores)
            error = np.sqrt(a.var() / len(a) + b.var() / len(b))
            assert abs(a.mean() - b.mean()) <= 4.5 * error


def test_own_objects_have_the_latent_vectors_of_the_draws(model):
    posterior = drawn(model)
    found = pmm.predict(posterior, model, progressbar=False)
    for draw in range(N_DRAWS):
        latent = posterior["latent"].values[0, draw]
        expected = dense_scores(posterior, draw, latent)
        np.testing.assert_allclose(found["decision"].values[0, draw], expected)
    np.testing.assert_array_equal(found["object"], model.coords["object"])


def test_probability_is_that_of_the_declared_labels():
    f = np.linspace(-3.0, 3.0, 7)[:, None]
    up, down = -1.6 * np.maximum(0, 1 - f), -1.6 * np.maximum(0, 1 + f)
    np.testing.assert_allclose(label_probability(f, 0.8), 1.0 / (1.0 + np.exp(down - up)))
    scores = np.random.default_rng(0).normal(size=(5, 3))
    log = np.array(
        [
            -1.6 * np.maximum(0.0, 1.0 - np.where(np.arange(3) == k, scores, -scores)).sum(axis=1)
            for k in range(3)
        ]
    ).T
    expected = np.exp(log) / np.exp(log).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(label_probability(scores, 0.8), expected)


def test_summaries(model):
    found = pmm.predict(drawn(model), model, NEW, random_seed=1, ci_prob=0.5, progressbar=False)
    assert found["decision"].dims == ("chain", "draw", "object")
    p = found["probability"]
    np.testing.assert_allclose(found["mean_probability"], p.mean(("chain", "draw")))
    np.testing.assert_allclose(found["probability_upper"], p.quantile(0.75, ("chain", "draw")))
    np.testing.assert_allclose(
        found["decision_lower"], found["decision"].quantile(0.25, ("chain", "draw"))
    )
    assert found.attrs["positive"] == 1
    np.testing.assert_array_equal(
        found["predicted"], np.where(found["mean_probability"] > 0.5, 1, -1)
    )


def test_several_classes():
    model = tiny_views(["a", "b", None, "c", "a"])
    found = pmm.predict(drawn(model), model, {"x": NEW["x"]}, random_seed=1, progressbar=False)
    assert found["probability"].dims == ("chain", "draw", "object", "class")
    np.testing.assert_allclose(found["probability"].sum("class"), 1.0)
    best = np.array(["a", "b", "c"])[found["mean_probability"].argmax("class")]
    np.testing.assert_array_equal(found["predicted"], best)


def test_seeds(model):
    posterior = drawn(model)
    one, two, other = (
        pmm.predict(posterior, model, NEW, random_seed=seed, progressbar=False)
        for seed in (1, 1, 2)
    )
    assert one.identical(two)
    assert not one.equals(other)


def test_features_may_be_in_another_order(model):
    posterior = drawn(model)
    features = model.coords["x_feature"]
    table = pd.DataFrame(NEW["x"], columns=list(features), index=list("pqrs"))
    one = pmm.predict(posterior, model, {"x": table}, random_seed=1, progressbar=False)
    two = pmm.predict(
        posterior, model, {"x": table[table.columns[::-1]]}, random_seed=1, progressbar=False
    )
    assert one.identical(two)
    assert list(one["object"].values) == list("pqrs")


@pytest.mark.parametrize(
    ("new", "error", "message"),
    [
        ({}, TypeError, "new_views: expected a mapping"),
        ([NEW["x"]], TypeError, "new_views: expected a mapping"),
        ({"z": NEW["x"]}, KeyError, "no view 'z' in the model"),
        ({"x": NEW["x"][:, :1]}, ValueError, "new objects of view 'x': expected 2 features"),
        ({"x": NEW["x"], "y": NEW["y"][:2]}, ValueError, "view 'y': expected 4 objects"),
        ({"x": np.full((2, 2), np.inf)}, ValueError, "infinite"),
        (
            {"x": pd.DataFrame(NEW["x"]), "y": pd.DataFrame(NEW["y"], index=[3, 1, 2, 0])},
            ValueError,
            "view 'y': .* in the order of view",
        ),
    ],
)
def test_bad_views(model, new, error, message):
    with pytest.raises(error, match=message):
        pmm.predict(drawn(model), model, new, progressbar=False)


def test_other_bad_input(model):
    posterior = drawn(model)
    with pytest.raises(KeyError, match="no variable 'frequencies'"):
        pmm.predict(posterior.drop_vars("frequencies"), model, NEW, progressbar=False)
    with pytest.raises(KeyError, match="no label 'other'"):
        pmm.predict(posterior, model, NEW, label="other", progressbar=False)
    with pytest.raises(ValueError, match="ci_prob"):
        pmm.predict(posterior, model, NEW, ci_prob=2.0, progressbar=False)
