"""The declared models: what they are, and parameters that cannot be."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.reading.probe import log_densities
from tests.declared.plain import tiny_data

VIEWS = {name: np.random.default_rng(n).normal(size=(6, n)) for name, n in {"a": 2, "b": 3}.items()}
ALL = {
    "aligned_clusters": lambda own: own({"a": VIEWS["a"], "b": VIEWS["a"]}, n_components=2),
    "dependency_clusters": lambda own: own(VIEWS),
    "dependency_hierarchy": lambda own: own(VIEWS),
    "max_margin_views": lambda own: own(VIEWS, np.arange(6) % 2, 2, 4),
    "mixture": lambda own: own(pd.DataFrame(VIEWS["a"], columns=["x", "y"])),
    "normal_clusters": lambda own: own(VIEWS),
    "projected_clusters": lambda own: own(VIEWS, projection="isometric"),
    "relational_clusters": lambda own: own({"a": VIEWS["a"] > 0.0}, types=("row", "column")),
    "shared_factors": lambda own: own(VIEWS, 1),
    "table_clusters": lambda own: own(VIEWS),
}


@pytest.mark.parametrize("name", pmm.models.__all__)
def test_pymc_can_copy_every_model(name):
    """As for `pm.observe` and log likelihoods; it cannot where variables have starts."""
    model = ALL[name](getattr(pmm.models, name))
    copy, point = model.copy(), model.initial_point(0)
    for own in (model, copy):
        assert np.isfinite(sum(v.sum() for v in log_densities(own, own.basic_RVs)(point).values()))


@pytest.mark.parametrize("name", pmm.models.__all__)
def test_models_are_no_parts_of_others(name):
    """Nor are those that `match` declares to compare them, one after another."""
    with pm.Model(name="own") as own:
        model = ALL[name](getattr(pmm.models, name))
    assert not own.named_vars
    assert not own.coords
    assert not model.name
    assert not any("::" in v for v in model.named_vars)


def test_projected_clusters_declares_the_papers_model():
    frame = pd.DataFrame(tiny_data()["a"], index=["u", "v", "w"], columns=["x", "y"])
    model = pmm.models.projected_clusters({"first": frame, "second": tiny_data()["b"]}, 3, 7)
    names = {rv.name for rv in model.free_RVs}
    assert names == {
        "weights",
        "precision",
        "latent",
        "cluster_first",
        "projection_first",
        "cluster_second",
        "projection_second",
    }
    assert list(model.coords["first_object"]) == ["u", "v", "w"]
    assert list(model.coords["first_feature"]) == ["x", "y"]
    assert model.named_vars_to_dims["projection_first"] == ("first_feature", "factor")
    assert model.initial_point()["latent"].shape == (7, 3)


@pytest.mark.parametrize("weights", ["dirichlet", "uniform"])
def test_a_known_number_of_clusters(weights):
    model = pmm.models.projected_clusters(tiny_data(), 2, 4, weights=weights, projection="normal")
    assert ("weights" in model.named_vars) == (weights == "dirichlet")
    (point,) = [model.initial_point(0)]
    for step in pmm.steps(model):
        point, _ = step.step(point)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


def test_one_domain_is_a_mixture():
    model = pmm.models.projected_clusters({"only": tiny_data()["a"]}, n_factors=1)
    assert len(pmm.steps(model)) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_factors": 0}, "n_factors: expected a whole number of at least 1; found 0"),
        ({"n_clusters": 1}, "n_clusters: expected a whole number of at least 2; found 1"),
        ({"n_clusters": 2.5}, "n_clusters: expected a whole number of at least 2; found 2.5"),
        ({"concentration": 0.0}, "concentration: expected a positive number; found 0.0"),
        ({"latent_precision": -1.0}, "latent_precision: expected a positive number"),
        ({"precision_prior": (1.0,)}, r": expected \(shape, rate\); found \(1.0,\)"),
        ({"precision_prior": 1.0}, r": expected \(shape, rate\); found 1.0"),
        ({"precision_prior": (1.0, np.inf)}, "rate: expected a positive number; found inf"),
        (
            {"projection": "laplace"},
            "projection: expected 'map', 'normal' or 'isometric'; found 'laplace'",
        ),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        pmm.models.projected_clusters(tiny_data(), **arguments)
