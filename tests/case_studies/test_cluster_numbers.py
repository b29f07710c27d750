"""Numbers of clusters chosen by the log joint, and the case study that chooses them."""

import argparse

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse

import pm_match as pmm
from case_studies.cluster_numbers import Choice, choose, score
from case_studies.degree_networks import index, one
from pm_match.datasets import LabelledNetworks


def two_classes(seed=0):
    """Two networks of 30 and 24 rows in two classes, over 12 columns in two."""
    rng = np.random.default_rng(seed)
    networks, labels, objects = {}, {}, {}
    for name, n in (("a", 30), ("b", 24)):
        labels[name] = np.repeat([0, 1], [2 * n // 3, n - 2 * n // 3])
        rates = np.where(labels[name][:, None] == np.repeat([0, 1], [8, 4]), 0.8, 0.05)
        networks[name] = sparse.csr_array((rng.random((n, 12)) < rates).astype(int))
        objects[name] = np.arange(n), np.arange(12)
    return LabelledNetworks(networks, ("document", "word"), labels, ("x", "y"), objects)


def test_the_score_counts_partitions_not_names():
    starts = xr.Dataset(
        {
            "log_joint": ("start", [1.0, 2.0]),
            "cluster_a_word": (("start", "a_word"), [[0, 2, -1], [1, 1, 1]]),
            "cluster_b_word": (("start", "b_word"), [[0, 0], [1, -1]]),
            "cluster_a_film": (("start", "film"), [[3, 1], [0, 0]]),
        }
    )
    # Three names for two clusters, or for one; four for two, or for one.
    expected = np.array([1.0, 2.0]) + np.log([6.0 * 12.0, 3.0 * 4.0])
    np.testing.assert_allclose(score(starts, {"word": 3, "film": 4}), expected)
    with pytest.raises(ValueError, match="found 'tree'"):
        score(starts, {"tree": 2})


def test_the_best_search_chooses_and_is_searched_on(monkeypatch):
    """Twos are better by two searches of each; threes would be, by six."""
    log_joint = {2: [1.0, 5.0, 2.0, 6.0, 0.0, 3.0], 3: [4.0, 0.0, 9.0, 9.0, 9.0, 9.0]}

    def searched(numbers, *, starts, random_seed, **_):
        assert random_seed == 7
        ends = {
            "log_joint": ("start", log_joint[numbers["word"]][:starts]),
            "cluster_a_word": (("start", "object"), [[0, 0]] * starts),
            "agreement": (("start", "other_start"), np.eye(starts)),
        }
        coords = {"start": np.arange(starts)}
        return xr.DataTree.from_dict({"starts": xr.Dataset(ends, coords=coords)})

    monkeypatch.setattr(pmm, "find_matching", searched)
    choice = choose(lambda numbers: numbers, {"word": [3, 2]}, starts=2, random_seed=7)
    # The two best of six, and both of the others.
    expected = np.array([6.0, 5.0, 4.0, 0.0]) + np.log([2.0, 2.0, 3.0, 3.0])
    np.testing.assert_allclose(choice.searches["score"], expected)
    np.testing.assert_allclose(choice.table["score"], expected[[0, 2]])
    assert choice.table["word"].tolist() == [2, 3]
    assert choice.n_clusters == {"word": 2}
    assert choice.found["starts"]["log_joint"].to_numpy().tolist() == log_joint[2]


def test_what_agrees_with_the_best_search_has_something_in_common():
    """Half of the searches have another object wrong each, the others all another matching."""
    right, wrong = np.repeat([0, 1], 5), np.tile([0, 1], 5)
    alike = [np.where(np.arange(10) == k, 1 - right, right) for k in range(5)]
    searches = xr.Dataset(
        {
            "cluster_a_row": (("search", "object"), [*[wrong] * 5, *alike]),
            "score": ("search", [4.0, 4.0, 4.0, 4.0, 4.0, 1.0, 5.0, 3.0, 2.0, 1.0]),
        }
    )

    def labels(found):
        choice = Choice({}, xr.DataTree(), pd.DataFrame(), found)
        return choice.consensus(["cluster_a_row"])["cluster_a_row"].to_numpy()

    def same(one, other):
        return pmm.metrics.adjusted_rand_index({"a": one}, {"a": other}) == 1.0

    assert same(labels(searches), right)
    # The better half would not say so, nor would all.
    common = pmm.partition_estimate(searches, loss="ari", sample_dims=["search"])
    assert same(common["cluster_a_row"].to_numpy(), wrong)
    # Of two that disagree, the better counts more.
    assert same(labels(searches.isel(search=[6, 7, 0])), alike[1])


def test_searches_that_agree_with_the_best_count_by_their_scores():
    """The first object is where the best has it in the worst, and elsewhere in the others."""
    best = np.repeat([0, 1], 15)

    def changed(*objects):
        return np.where(np.isin(np.arange(30), objects), 1 - best, best)

    # The better ones agree less with the best.
    found = [best, changed(0, 1, 2, 16, 17), changed(0, 3, 18, 19), changed(0, 20, 21), changed(4)]
    others = np.random.default_rng(0).integers(2, size=(5, 30))
    searches = xr.Dataset(
        {
            "cluster_a_row": (("search", "object"), [*found, *others]),
            "score": ("search", -np.arange(10.0)),
        }
    )
    labels = Choice({}, xr.DataTree(), pd.DataFrame(), searches).consensus(["cluster_a_row"])
    labels = {"a": labels["cluster_a_row"].to_numpy()}
    assert pmm.metrics.adjusted_rand_index({"a": changed(0)}, labels) == 1.0


def test_candidates_are_checked():
    with pytest.raises(ValueError, match="expected positive numbers of clusters of 'word'"):
        choose(lambda n: None, {"word": []})


def test_a_split_is_matched_with_peers_beside():
    pytest.importorskip("ot")
    pytest.importorskip("sklearn")
    options = argparse.Namespace(rows=(2, 3), columns=(2, 3), starts=2)
    row = one(two_classes(), options, 0)
    assert row["document clusters"] in (2, 3)
    assert row["best"] > 0.7
    assert row["all"] > 0.7
    assert row["with the best"] > 0.7
    assert {"k-means + GW", "object GW", "word clusters", "CPU s"} <= set(row)
    loaded = two_classes()
    assert index(loaded, loaded.labels) == 1.0
