"""Models with independent columns, from data to matches and predictions."""

import numpy as np
import pytest

import pm_match as pmm
from tests.declared.columns import FAMILIES, M, declared


@pytest.fixture(scope="module")
def sampled():
    model = declared("poisson", n=(30, 20), hyperprior=True, missing=True, truncation=6)
    idata = pmm.sample(20, tune=20, chains=2, model=model, random_seed=1, progressbar=False)
    return model, idata


def test_a_declared_model_is_served(sampled):
    _, idata = sampled
    assert {"theta", "theta_hyper", "weights", "a_unobserved"} <= set(idata["posterior"])
    assert (idata["posterior"]["a_unobserved"] >= 0).all()
    assert pmm.match_probability(idata, "cluster_a", "cluster_b").shape == (30, 20)


def test_new_objects(sampled):
    model, idata = sampled
    new = np.array([[1.0, 2.0], [np.nan, 3.0]])
    found = pmm.assign(idata, model, {"b": new}, progressbar=False)
    total = found["prediction/b/probability"].sum("cluster") + found["prediction/b/unseen"]
    np.testing.assert_allclose(total, 1.0)
    with pytest.raises(ValueError, match=r"'b: b', row 1, column 0: expected a whole number"):
        pmm.assign(idata, model, {"b": np.array([[1.0, 2.0], [-1.0, 3.0]])}, progressbar=False)
    with pytest.raises(ValueError, match=f"expected {M} columns; found 3"):
        pmm.assign(idata, model, {"b": np.ones((2, 3))}, progressbar=False)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "binomial"])
def test_predictives_are_ratios_of_evidence(family):
    """A new object's predictive is what the evidence of the data rises by."""
    from pm_match.prediction.new_objects import find_place, read_new_objects
    from pm_match.prediction.predictive import Predictive
    from pm_match.reading import read
    from pm_match.testing import collapsed_of, random_point

    more, less = declared(family, n=(3, 3)), declared(family, n=(3, 2))
    values = more.rvs_to_values[more["b"]].data
    np.testing.assert_array_equal(values[:2], less.rvs_to_values[less["b"]].data)
    point = random_point(more, np.random.default_rng(1))
    labels = np.concatenate([point["cluster_a"], point["cluster_b"]])
    state, base = collapsed_of(more), collapsed_of(less)
    predictive = Predictive(less, read(less).components[0])
    predictive.load(point | {"cluster_b": point["cluster_b"][:2]})
    new = read_new_objects(less, predictive, find_place(read(less), "b"), values[2:])
    found = predictive.predictors[0].log_predictive(new.place, new.seen[0])[0, :-1]
    before = base.evidence[0].log_marginal(point, [labels[:5]])
    for label in range(3):
        labels[5] = label
        after = state.evidence[0].log_marginal(point, [labels])
        assert found[label] == pytest.approx(after - before, abs=1e-8)
