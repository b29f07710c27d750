"""Dependency hierarchies: declarations that are read or refused, and the form of the step."""

import cloudpickle
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.reading import read
from pm_match.views.hierarchy.recognise import Hierarchy
from tests.declared.hierarchies import X, Y, declared

pytestmark = pytest.mark.usefixtures("only_collapsed")


def sticks():
    b = pm.Beta("b", 1.0, 2.0, shape=2)
    return pm.Deterministic(
        "w", pt.concatenate([b, [1.0]]) * pt.concatenate([[1.0], pt.cumprod(1 - b)])
    )


SERVED = {
    "plain": {},
    "precision": {"tau": True},
    "rows in another order": {"order": np.arange(8)[::-1]},
    "some objects": {"seen": [5, 1, 2, 7, 0], "observed": X[:5]},
    "sticks": {"weights": sticks},
    "constant weights": {"weights": lambda: np.array([0.2, 0.3, 0.5])},
    "a prior for each row": {"link_prior": np.arange(1.0, 13.0).reshape(3, 4)},
}


@pytest.mark.parametrize("case", SERVED)
def test_other_ways_to_declare_it_are_read(case):
    model = declared(**SERVED[case])
    structure = read(model)
    (part,) = structure.parts
    assert isinstance(part, Hierarchy)
    assert not structure.refusals
    (step,) = pmm.steps(model)
    log_density = model.compile_fn(model.logp(), mode="FAST_COMPILE")
    point = model.initial_point(0)
    step.setup_chain(np.random.default_rng(0), 0, 0)
    for _ in range(3):
        point, _ = step.step(point)
        assert np.isfinite(log_density(point))
    (view,) = part.views
    if case == "some objects":
        np.testing.assert_array_equal(view.objects, [5, 1, 2, 7, 0])
    np.testing.assert_array_equal(
        view.values, X[::-1] if "order" in SERVED[case] else X[: len(view.objects)]
    )


def two_rows(model):
    pm.MvNormal("y", model["m"][model["u"]], tau=model["k"], observed=X)


REFUSED = {
    "tempered": ({"temper": 0.5}, "not .* rows of 't'|not the rows of 't'"),
    "repeated": ({"seen": [0, 0, 1], "observed": X[:3]}, "several labels of 'u' are of one object"),
    "another child of z": (
        {
            "extra": lambda m: pm.Normal(
                "e", pt.as_tensor([0.0, 1.0, 2.0])[m["z"]], observed=Y[:, 0]
            )
        },
        "'e' depends on 'z' too",
    ),
    "another child of u": (
        {"extra": lambda m: pm.Normal("e", pt.arange(4)[m["u"]], observed=Y[:, 0])},
        "'u'",
    ),
    "two sets of rows": ({"extra": two_rows}, "'u' has"),
    "one cluster": (
        {
            "weights": lambda: pm.Dirichlet("w", np.ones(1)),
            "link_prior": np.ones((1, 4)),
            "n_clusters": 1,
        },
        r"'t' has shape \(1, 4\); expected several clusters",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_means_something_else_is_refused(case):
    options, match = REFUSED[case]
    model = declared(**options)
    structure = read(model)
    assert not any(isinstance(part, Hierarchy) for part in structure.parts)
    with pytest.raises(pmm.UnservedModelError, match=match):
        pmm.HierarchyGibbs([model["z"]], model=model)


def test_labels_of_other_objects_are_refused_in_words():
    with pm.Model() as model:
        school = pm.Categorical("school", pm.Dirichlet("w", np.ones(2)), shape=3)
        within = pm.Dirichlet("within", np.ones(2), shape=(2, 2))
        pupil = pm.Categorical("pupil", within[school[np.repeat([0, 1, 2], 2)]])
        pm.Normal("x", pm.Normal("mean", 0.0, 2.0, shape=2)[pupil], 1.0, observed=X[:6, 0])
    why = read(model).refusals["pupil"]
    assert why.startswith("the weights of 'pupil', of shape (6,), depend on the labels 'school'")


def test_draws_are_the_same_for_the_same_seed_and_after_pickling():
    views = {"a": X, "b": np.where(np.arange(8)[:, None] == 2, np.nan, Y)}
    model = pmm.models.dependency_hierarchy(views, 3, 2)
    (step,) = pmm.steps(model)
    runs = []
    for own in (step, cloudpickle.loads(cloudpickle.dumps(step))):
        own.setup_chain(np.random.default_rng(5), 0, 0)
        point = model.initial_point(0)
        for _ in range(5):
            point, stats = own.step(point)
        runs.append((point, stats))
    for name, value in runs[0][0].items():
        np.testing.assert_array_equal(value, runs[1][0][name])
    assert runs[0][1] == runs[1][1]


def test_sampling_starts_well_and_names_its_set():
    rng = np.random.default_rng(1)
    z = rng.integers(3, size=60)
    x = np.stack([4.0 * z, rng.choice([-3.0, 3.0], size=60)], axis=1)
    views = {"a": x + 0.3 * rng.standard_normal(x.shape), "b": 4.0 * z[:, None] ** 2.0}
    views["b"] = views["b"] + 0.3 * rng.standard_normal((60, 1))
    model = pmm.models.dependency_hierarchy(views, 8, {"a": 6, "b": 4})
    found = pmm.sample(
        50, tune=50, chains=2, cores=1, model=model, random_seed=3, progressbar=False, quiet=True
    )
    assert found["posterior"]["cluster_object"].attrs["clusters"] == "weights"
    assert found["posterior"]["cluster_object"].dtype == np.int16
    assert set(pmm.invariants(found, model)) == {
        "log_joint",
        "n_occupied",
        "precision_a",
        "precision_b",
    }
    best = pmm.partition_estimate(found)["cluster_object"].to_numpy()
    assert pmm.metrics.adjusted_rand_index({"o": z}, {"o": best}) > 0.9


def test_bad_input():
    model = pmm.models.dependency_hierarchy
    with pytest.raises(ValueError, match="object 1: expected all values, or none"):
        model({"a": np.where(np.arange(16).reshape(8, 2) == 3, np.nan, X), "b": Y})
    with pytest.raises(ValueError, match="n_marginal_clusters: expected a number, or one for each"):
        model({"a": X, "b": Y}, 3, {"a": 2})
    with pytest.raises(ValueError, match=r"n_marginal_clusters\['b'\]: expected a whole"):
        model({"a": X, "b": Y}, 3, {"a": 2, "b": 1})
    with pytest.raises(ValueError, match="n_clusters: expected a whole number of at least 2"):
        model({"a": X, "b": Y}, 1)
    with pytest.raises(ValueError, match="within: expected a positive number"):
        model({"a": X, "b": Y}, within=0.0)
    with pytest.raises(ValueError, match="view 'b': column 'loud': expected values that differ"):
        model({"a": X, "b": pd.DataFrame({"high": Y[:, 0], "loud": np.ones(8)})})
    with pytest.raises(ValueError, match="view 'b': expected at least two objects"):
        model({"a": X, "b": np.where(np.arange(8)[:, None] == 3, Y, np.nan)})
    with pytest.raises(ValueError, match="which it uses itself"):
        model({"object": X, "b": Y})
    with pytest.raises(ValueError, match="weights: expected"):
        model({"a": X, "b": Y}, weights="uniform")
    made = model({"a": X, "b": Y})
    with pytest.raises(ValueError, match="n_sweeps"):
        pmm.HierarchyGibbs([made["cluster_object"]], n_sweeps=0, model=made)
