import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match.metrics import adjusted_rand_index, matching_adjusted_rand_index


@pytest.mark.parametrize("seed", range(10))
def test_agrees_with_scikit_learn_on_pooled_labels(seed):
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(seed)
    sizes = {"a": 30, "b": 1, "c": 47}
    true = {name: rng.integers(0, 5, n) for name, n in sizes.items()}
    found = {n: np.where(rng.random(len(t)) < 0.5, t, 9 + t % 2) for n, t in true.items()}
    expected = sklearn_metrics.adjusted_rand_score(
        np.concatenate(list(true.values())), np.concatenate(list(found.values()))
    )
    assert adjusted_rand_index(true, found) == pytest.approx(expected, abs=1e-12)


def test_labels_may_be_text_and_the_order_of_domains_differ():
    true = {"a": ["x", "x", "y"], "b": ["y", "x"]}
    found = {"b": [0, 7], "a": [7, 7, 0]}
    assert adjusted_rand_index(true, found) == 1.0


def test_clusters_that_are_right_but_unmatched_score_between_0_and_1():
    true = {"a": [0, 0, 1, 1], "b": [0, 0, 1, 1]}
    apart = {"a": [0, 0, 1, 1], "b": [2, 2, 3, 3]}
    assert 0 < adjusted_rand_index(true, apart) < 1


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2]], ids=["one cluster", "all apart"])
def test_equal_trivial_partitions(labels):
    assert adjusted_rand_index({"a": labels}, {"a": labels}) == 1.0


def test_opposite_trivial_partitions():
    assert adjusted_rand_index({"a": [0, 0, 0]}, {"a": [0, 1, 2]}) == 0.0


def test_many_clusters_need_no_dense_table():
    labels = {"a": np.arange(100_000)}
    assert adjusted_rand_index(labels, labels) == 1.0


@pytest.mark.parametrize(
    ("true", "found", "error", "message"),
    [
        ([0, 1], {"a": [0, 1]}, TypeError, "true: expected a mapping.*list"),
        (
            {"a": [0]},
            {"b": [0]},
            ValueError,
            r"same domains in true and found; found \['a'\] and \['b'\]",
        ),
        ({"a": [0, 1]}, {"a": [0]}, ValueError, "domain 'a': .* found 2 in true and 1 in found"),
        (
            {"a": [[0, 1]]},
            {"a": [[0, 1]]},
            ValueError,
            "'a': expected one label for each object",
        ),
        ({"a": [0]}, {"a": [0]}, ValueError, "at least two objects; found 1"),
    ],
    ids=["mapping", "domains", "lengths", "dims", "one"],
)
def test_bad_input(true, found, error, message):
    with pytest.raises(error, match=message):
        adjusted_rand_index(true, found)


@pytest.mark.parametrize(
    "labels",
    [
        np.ma.masked_equal([0, 0, 9], 9),
        [0.0, 0.0, np.nan],
        ["x", "x", None],
        pd.Series([0, 0, None], dtype="Int64"),
        pd.Categorical(["x", "x", None]),
    ],
    ids=["masked", "nan", "none", "nullable", "categorical"],
)
def test_labels_that_are_not_known_are_no_cluster(labels):
    message = "'a': expected no missing values; found 1, the first at position 2"
    whole = {"a": [0, 0, 1], "b": [0]}
    for index in (adjusted_rand_index, matching_adjusted_rand_index):
        with pytest.raises(ValueError, match=f"true, .* {message}"):
            index({**whole, "a": labels}, whole)
        with pytest.raises(ValueError, match=f"found, .* {message}"):
            index(whole, {**whole, "a": labels})


def by_pairs(true, found):
    """Count the paper's h_1 to h_4 pair by pair, and put them into eq 19 and 20."""
    h = {1: 0, 2: 0, 3: 0, 4: 0}
    for d, e in itertools.combinations(range(len(true)), 2):
        for n, m in itertools.product(range(len(true[d])), range(len(true[e]))):
            in_true, in_found = true[d][n] == true[e][m], found[d][n] == found[e][m]
            h[
                {(True, True): 1, (False, False): 2, (False, True): 3}.get((in_true, in_found), 4)
            ] += 1
    n_pairs = sum(h.values())
    mu = ((h[1] + h[3]) * (h[1] + h[4]) + (h[2] + h[3]) * (h[2] + h[4])) / n_pairs
    return (h[1] + h[2] - mu) / (n_pairs - mu)


def noisy_labels(sizes, seed, low=0):
    rng = np.random.default_rng(seed)
    true = [rng.integers(low, 4, n) for n in sizes]
    return true, [np.where(rng.random(len(t)) < 0.6, t, rng.integers(low, 6, len(t))) for t in true]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sizes", [(12, 9), (1, 1), (7, 1, 11), (5, 0, 6, 8)])
def test_matching_index_is_that_of_all_pairs(sizes, seed):
    true, found = noisy_labels(sizes, seed)
    if sizes == (1, 1):
        true, found = [[0], [0]], [[0], [1]]  # one pair, and it is wrong
    assert matching_adjusted_rand_index(true, found) == pytest.approx(
        by_pairs(true, found), abs=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_irrelevant_objects_count_as_one_cluster(seed):
    true, found = noisy_labels((15, 11, 6), seed, low=-2)
    expected = by_pairs(*[[np.maximum(v, -1) for v in labels] for labels in (true, found)])
    assert matching_adjusted_rand_index(true, found) == pytest.approx(expected, abs=1e-12)
    # The same by flags, with anything as the irrelevant objects' label: text, a cluster's own.
    names = "abcd"
    text = [["irrelevant" if k < 0 else names[k] for k in labels] for labels in true]
    flags = [labels >= 0 for labels in true]
    other = [np.where(labels < 0, 2, labels) for labels in found]
    assert matching_adjusted_rand_index(
        text, other, true_relevance=flags, found_relevance=[(v >= 0).astype(int) for v in found]
    ) == pytest.approx(expected, abs=1e-12)
    # A cluster of irrelevant objects is not the cluster whose number they carry.
    assert matching_adjusted_rand_index(text, other) != pytest.approx(expected, abs=1e-6)


def test_matching_index_ignores_numbering_order_of_networks_and_pairs_within():
    true, found = noisy_labels((20, 30), 7)
    value = matching_adjusted_rand_index(true, found)
    renamed = [np.array([3, 5, 0, 2, 1, 9])[labels] for labels in found]
    assert matching_adjusted_rand_index(true, renamed) == value
    a, b = ({"x": v[0], "y": v[1]} for v in (true, found))
    assert matching_adjusted_rand_index(a, dict(reversed(b.items()))) == value
    assert matching_adjusted_rand_index(true[::-1], found[::-1]) == value
    # Right within each network, never matched.
    assert matching_adjusted_rand_index([[0, 0, 1], [0, 1]], [[0, 0, 1], [2, 3]]) == 0.0


def test_random_matchings_score_0_on_average():
    rng = np.random.default_rng(0)
    true = [rng.integers(0, 4, 40), rng.integers(0, 4, 30)]
    values = [
        matching_adjusted_rand_index(true, [rng.permutation(labels) for labels in true])
        for _ in range(400)
    ]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize(
    "labels",
    [[[0, 0], [0]], [[0, 1], [2, 3]], [[-1, -1], [-1]], [[0, 1], [0, 1]], [[0], [0]], [[0], [1]]],
    ids=["together", "apart", "irrelevant", "clusters", "one", "one apart"],
)
def test_equal_partitions_score_1_even_if_trivial(labels):
    assert matching_adjusted_rand_index(labels, labels) == 1.0


def test_opposite_trivial_matchings():
    assert matching_adjusted_rand_index([[0, 0], [0]], [[0, 1], [2]]) == 0.0


def test_matching_index_is_exact_for_many_objects():
    labels = [np.arange(300_000), np.arange(300_000)]
    assert matching_adjusted_rand_index(labels, labels) == 1.0
    off = [labels[0], np.roll(labels[1], 1)]
    value = matching_adjusted_rand_index(labels, off)
    assert value == pytest.approx(-1 / 299_999, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[0], [0]], {"a": [0], "b": [0]}), TypeError, "two mappings or two sequences"),
        ((3, 4), TypeError, "true: expected a mapping or a sequence.*found .* int"),
        (
            ([[0], [0]], [[0]]),
            ValueError,
            r"same networks in true and found; found \[0, 1\] and \[0\]",
        ),
        (
            ({"a": [0]}, {"b": [0]}),
            ValueError,
            r"same networks in true and found; found \['a'\] and",
        ),
        (
            ([0, 1], [0, 1]),
            ValueError,
            r"true, network 0: expected one label for each.*\(\)",
        ),
        (([[0], [0]], [[0], [0, 1]]), ValueError, "network 1: .* found 1 in true and 2 in found"),
        (([[0, 1]], [[0, 1]]), ValueError, r"at least two networks with objects.*\[2\]"),
        (([[0, 1], []], [[0, 1], []]), ValueError, r"two networks with objects.*\[2, 0\]"),
        (
            ([[0], [np.nan]], [[0], [0]]),
            ValueError,
            "true, network 1: expected no missing values; found 1, the first at position 0",
        ),
    ],
    ids=["mixed", "type", "number", "names", "dims", "lengths", "one", "empty", "nan"],
)
def test_bad_input_of_the_matching_index(arguments, error, message):
    with pytest.raises(error, match=message):
        matching_adjusted_rand_index(*arguments)


@pytest.mark.parametrize(
    ("relevance", "message"),
    [
        ([[1, 2], [1]], "true_relevance, network 0: expected only 0 and 1"),
        ([[1, 1]], "same networks in true and true_relevance"),
        ([[1], [1]], "network 0: .* 2 in true and 1 in true_relevance"),
    ],
)
def test_bad_relevance(relevance, message):
    with pytest.raises(ValueError, match=message):
        matching_adjusted_rand_index([[0, 0], [0]], [[0, 0], [0]], true_relevance=relevance)


def test_truth_may_be_named_by_domain():
    truth, found = {"a": [0, 0, 1], "b": [1, 1]}, {"cluster_a": [5, 5, 2], "cluster_b": [2, 2]}
    assert adjusted_rand_index(truth, found) == adjusted_rand_index(found, truth) == 1.0
    with pytest.raises(ValueError, match="the same domains in true and found"):
        adjusted_rand_index(truth, {"cluster_a": [5, 5, 2], "cluster_c": [2, 2]})


TRUE = {"a": pd.Series([0, 0, 1, 1], list("wxyz")), "b": pd.Series([1, 0], list("uv"))}


def test_objects_are_matched_by_name():
    mixed = {"a": TRUE["a"].iloc[[2, 0, 3, 1]], "b": TRUE["b"].iloc[::-1]}
    found = xr.Dataset(
        {f"cluster_{name}": (name, own.to_numpy() + 5) for name, own in TRUE.items()},
        {name: own.index for name, own in TRUE.items()},
    )
    assert adjusted_rand_index(mixed, found) == adjusted_rand_index(found, mixed) == 1.0
    assert adjusted_rand_index(found, found.isel(a=[2, 0, 3, 1], b=[1, 0])) == 1.0
    assert matching_adjusted_rand_index(mixed, found) == 1.0
    assert matching_adjusted_rand_index(list(mixed.values()), list(TRUE.values())) == 1.0
    relevance = {name: own.index != "x" for name, own in TRUE.items()}
    expected = matching_adjusted_rand_index(TRUE, TRUE, true_relevance=relevance)
    named = {name: pd.Series(flags, TRUE[name].index) for name, flags in relevance.items()}
    named = {name: named[name].loc[own.index] for name, own in mixed.items()}
    assert matching_adjusted_rand_index(TRUE, mixed, true_relevance=named) == expected < 1.0


def test_objects_without_names_are_matched_by_place():
    mixed = {"a": TRUE["a"].iloc[[1, 2, 3, 0]], "b": TRUE["b"]}
    by_place = {name: own.to_numpy() for name, own in mixed.items()}
    expected = adjusted_rand_index({name: own.to_numpy() for name, own in TRUE.items()}, by_place)
    counted = {name: xr.DataArray(own, {"object": range(len(own))}, dims="object")
               for name, own in by_place.items()}  # fmt: skip
    for found in (by_place, counted, {name: pd.Series(own) for name, own in by_place.items()}):
        assert adjusted_rand_index(TRUE, found) == expected < 1.0


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("wxyq", "expected the objects of 'true', such as 'z'; found others, such as 'q'"),
        ("wxyy", "expected unique labels of objects; found 'y' more than once"),
    ],
)
def test_other_objects_are_refused(names, message):
    found = TRUE | {"a": TRUE["a"].set_axis(list(names))}
    with pytest.raises(ValueError, match=f"domain 'a' of found: {message}"):
        adjusted_rand_index(TRUE, found)
