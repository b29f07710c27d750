import numpy as np
import pytest

from pm_match.metrics import adjusted_rand_index


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
        ({"a": [0]}, {"b": [0]}, ValueError, r"only in true: \['a'\], only in found: \['b'\]"),
        ({"a": [0, 1]}, {"a": [0]}, ValueError, r"domain 'a': .*\(2,\) in true and \(1,\)"),
        ({"a": [[0, 1]]}, {"a": [[0, 1]]}, ValueError, "domain 'a': expected one label an object"),
        ({"a": [0]}, {"a": [0]}, ValueError, "at least two objects; found 1"),
    ],
    ids=["mapping", "domains", "lengths", "dims", "one"],
)
def test_bad_input(true, found, error, message):
    with pytest.raises(error, match=message):
        adjusted_rand_index(true, found)
