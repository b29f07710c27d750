"""Numbers of clusters chosen by the log joint, and the case study that chooses them."""

import argparse

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import sparse
from scipy.special import gammaln

import pm_match as pmm
from case_studies.cluster_numbers import Choice, choose, score
from case_studies.degree_networks import declare, index, one
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
    loaded = two_classes()
    numbers = {"document": 3, "word": 3}
    found = pmm.find_matching(declare(loaded, numbers), starts=2, random_seed=0, progressbar=False)
    starts = found["starts"].to_dataset()
    expected = starts["log_joint"].to_numpy().copy()
    for number in range(2):
        for t, size in numbers.items():
            own = [starts[f"cluster_{name}_{t}"].to_numpy()[number] for name in "ab"]
            k = len(set(np.concatenate(own).tolist()) - {-1})
            expected[number] += gammaln(size + 1) - gammaln(size - k + 1)
    assert score(starts, numbers) == pytest.approx(expected)
    with pytest.raises(ValueError, match="found 'film'"):
        score(starts, {"film": 2})


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
