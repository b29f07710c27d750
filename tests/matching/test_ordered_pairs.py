"""Match probabilities by cluster, averaged over runs, beside the matrix of all pairs."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching import ordered_pairs as module
from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.ordered_pairs import ordered_pairs

SIZES = {"a": 23, "b": 17}


def made_up(offset, relevance, seed=0):
    """Draws, and labels some of which are of no cluster."""
    rng = np.random.default_rng(seed)
    true = {name: rng.integers(-1, 4, n) for name, n in SIZES.items()}
    posterior = {}
    for name, label in true.items():
        shape = (2, 30, len(label))
        wrong = rng.random(shape) < 0.4
        draws = np.where(wrong, rng.integers(0, 6, shape), np.maximum(label, 0))
        posterior[f"cluster_{name}"] = (("chain", "draw", name), draws + offset)
        if relevance:
            flags = rng.random(shape) < 0.8
            posterior[f"relevance_{name}"] = (("chain", "draw", name), flags.astype(int))
    return xr.Dataset(posterior), xr.Dataset(
        {f"cluster_{name}": (name, label) for name, label in true.items()}
    )


@pytest.mark.parametrize("offset", [0, 10**7])
@pytest.mark.parametrize("relevance", [True, False])
@pytest.mark.parametrize("pair", ["ab", "aa"])
@pytest.mark.parametrize("most", [6, 23, 40])
def test_runs_have_the_means_of_all_pairs(offset, relevance, pair, most, monkeypatch):
    posterior, labels = made_up(offset, relevance)
    posterior["cluster_a"][0, 0, 0] = 0
    names = [f"cluster_{name}" for name in pair]
    monkeypatch.setattr(module, "_MOST", 300)  # a few draws at a time
    orders, edges, means = ordered_pairs(posterior, *names, labels, most, "posterior", SAMPLE_DIMS)
    every = pmm.match_probability(posterior, *pair).to_numpy()
    rows, columns = (labels[name].to_numpy() for name in names)
    same = (rows[:, None] == columns) & (columns >= 0)
    for axis, own, order in ((1, rows, orders[0]), (0, columns, orders[1])):
        sure = np.round(60 * (every * same).sum(axis=axis))
        np.testing.assert_array_equal(order, np.lexsort((-sure, own, own < 0)))
    for n, own in zip(every.shape, edges, strict=True):
        assert own[-1] == n
        assert len(own) - 1 <= most
        assert len(set(np.diff(own)[:-1])) <= 1
    ordered = every[np.ix_(*orders)]
    for (i, j), found in np.ndenumerate(means):
        block = ordered[edges[0][i] : edges[0][i + 1], edges[1][j] : edges[1][j + 1]]
        assert found == pytest.approx(block.mean(), abs=1e-6)


def test_memory_does_not_grow_with_labels_times_clusters():
    n, rng = 2000, np.random.default_rng(0)
    draws = xr.Dataset(
        {f"cluster_{x}": (("chain", "draw", x), rng.integers(0, n, (1, 2, n))) for x in "ab"}
    )
    labels = xr.Dataset({f"cluster_{x}": (x, rng.permutation(n)) for x in "ab"})
    tracemalloc.start()
    ordered_pairs(draws, "cluster_a", "cluster_b", labels, 5, "posterior", SAMPLE_DIMS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n  # bytes
