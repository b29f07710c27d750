import sys

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pm_match as pmm


def declared(sizes, asked):
    """Clusters far apart, of given sizes; the powers that are asked for are appended."""
    rng = np.random.default_rng(0)
    centres = 30.0 * np.eye(2)[[0, 1, 1]] * np.array([[1.0], [1.0], [-1.0]])
    x = centres[np.repeat(np.arange(3), sizes)] + rng.normal(size=(sum(sizes), 2))

    def declare(power):
        asked.append(power)
        with pm.Model() as model:
            precision = pm.Wishart("precision", nu=5, V=np.eye(2), shape=(4, 2, 2))
            within = pm.math.stack([pm.math.matrix_inverse(precision[j]) for j in range(4)])
            mean = pm.MvNormal("mean", np.zeros(2), cov=within / 0.01, shape=(4, 2))
            weights = pm.StickBreakingWeights("weights", 1.0, 3)
            cluster = pm.Categorical("cluster", p=weights, shape=len(x))
            pm.MvNormal("x", mean[cluster], cov=within[cluster], observed=x)
            pmm.coarsen("coarsened", "x", power)
        return model

    return declare


@pytest.mark.parametrize("sizes", [(30, 30, 30), (60, 20, 10)])
def test_the_power_is_by_the_size_of_clusters(sizes):
    asked: list = []
    declare = declared(sizes, asked)
    found = pmm.choose_power(declare, enough=50.0, random_seed=0, progressbar=False)
    # Perplexity as a product, and not by entropy.
    n_clusters = np.prod([(90 / size) ** (size / 90) for size in sizes])
    assert found == pytest.approx(50.0 / (50.0 + 90 / n_clusters))
    assert asked == [0.85]


def test_the_size_is_that_of_the_best_search_s_clusters(monkeypatch):
    asked = {}

    def find_matching(model, **options):
        asked.update(options)
        labels = [[0, 0, 0, 0, 1, -1], [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]]
        starts = {
            "cluster_a": (("start", "object"), labels),
            # Clusters of another set have other objects, though they are numbered alike.
            "words": (("start", "word"), np.abs(labels), {"clusters": "words"}),
            "relevance_a": (("start", "object"), np.greater_equal(labels, 0).astype(int)),
            "log_joint": ("start", [-9.0, -2.0, -5.0]),
            "agreement": (("start", "other_start"), np.eye(3)),
        }
        return xr.DataTree.from_dict({"starts": xr.Dataset(starts)})

    monkeypatch.setattr(sys.modules["pm_match.choose_power"], "find_matching", find_matching)
    found = pmm.choose_power(lambda power: None, enough=6.0, starts=3, progressbar=False)
    assert found == pytest.approx(6.0 / (6.0 + 2.0))
    assert type(found) is float
    assert asked["starts"] == 3


def test_what_is_enough_is_positive():
    with pytest.raises(ValueError, match="enough"):
        pmm.choose_power(lambda power: None, enough=0.0)
