"""Links by position and by label, in pairs and in groups, whatever the model."""

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.reading import read


def tables(labels=("u", "v", "w")):
    rng = np.random.default_rng(0)
    return {
        "a": pd.DataFrame(rng.normal(size=(3, 2)), index=labels),
        "b": pd.DataFrame(rng.normal(size=(4, 2)), index=[10, 20, 30, 0]),
    }


def linked(links, **options):
    """Which of the objects of a (0 to 2) and b (3 to 6) the model links."""
    model = pmm.models.projected_clusters(tables(**options), n_clusters=3, links=links)
    return sorted(sorted(pair) for pair in read(model).clusterings[0].links.tolist())


def test_whole_numbers_are_positions_and_text_is_labels():
    assert linked({"a": [0, 2], "b": [1, 3]}) == [[0, 4], [2, 6]]
    assert linked({"a": ["u", "w"], "b": ["20", "0"]}) == [[0, 4], [2, 6]]
    assert linked({"a": np.array(["u", "w"]), "b": pd.Series([1, 3])}) == [[0, 4], [2, 6]]
    assert linked({"a": "w", "b": 1}) == linked({"a": 2, "b": "20"}) == [[2, 4]]
    days = pd.date_range("2020-01-01", periods=3)
    assert linked({"a": days[2], "b": 1}, labels=days) == [[2, 4]]


def test_cells_of_a_frame_are_labels_even_if_numbers():
    # The hole makes floats of the numbers.
    pairs = pd.DataFrame({"a": ["u", "v", "w"], "b": [20, np.nan, 0]})
    assert linked(pairs.dropna()) == linked(pairs.drop(index=1)) == [[0, 4], [2, 6]]
    with pytest.raises(ValueError, match="row 1: expected labels of at least two objects; found 1"):
        linked(pairs)
    assert linked([pairs.dropna(), {"a": [1], "b": [0]}]) == [[0, 4], [1, 3], [2, 6]]
    # As results have labels of several levels.
    levels = [("u", 1), ("u", 2), ("v", 1)]
    pairs = pd.DataFrame({"a": [levels[0], levels[2]], "b": [20, 0]})
    assert linked(pairs, labels=pd.MultiIndex.from_tuples(levels)) == [[0, 4], [2, 6]]


def test_objects_without_labels_are_known_by_number():
    pairs = pd.DataFrame({"a": ["1"], "b": [30]})
    assert linked(pairs, labels=None) == [[1, 5]]


def test_groups_of_one_domain_are_kept_whole():
    assert linked({"b": [[0, 2, 3], [1]]}) == [[3, 5], [3, 6]]
    assert linked([{"a": [["u", "w"], ["v"]]}, {"a": ["u"], "b": ["10"]}]) == [[0, 2], [0, 3]]


def test_groups_have_a_density_and_are_drawn_whole():
    model = pmm.models.projected_clusters(
        tables(), n_factors=1, n_clusters=3, links=[{"b": [[0, 2, 3]]}, {"a": [["u", "v"]]}]
    )
    point = model.initial_point()
    density = model.compile_fn(
        model.logp(vars=model.potentials, sum=False),
        inputs=model.value_vars,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    point["cluster_a"], point["cluster_b"] = np.array([1, 1, 0]), np.array([2, 0, 2, 2])
    assert [float(own) for own in density(point)] == [0.0, 0.0]
    point["cluster_b"] = np.array([2, 0, 2, 1])
    assert [float(own) for own in density(point)] == [-np.inf, 0.0]
    point = model.initial_point()
    step = pmm.ClusterGibbs([model["cluster_a"], model["cluster_b"]], model=model)
    step.setup_chain(np.random.default_rng(0), 0, 0)
    seen = set()
    for _ in range(60):
        point, _ = step.step(point)
        a, b = point["cluster_a"], point["cluster_b"]
        assert a[0] == a[1]
        assert b[0] == b[2] == b[3]
        seen.add((bool(a[0] == b[0]), bool(b[0] == b[1])))
    assert len(seen) == 4  # the groups themselves are free


@pytest.mark.parametrize(
    ("links", "error", "message"),
    [
        ({"a": ["u"], "b": ["40"]}, ValueError, "'b' has no object '40'"),
        ({"a": ["U"], "b": ["10"]}, ValueError, "no object 'U'; did you mean 'u'"),
        ({"a": ["u"], "B": ["10"]}, ValueError, r"among \['a', 'b'\]; found 'B'; did you mean 'b'"),
        ({"a": [[0], [1]]}, ValueError, "expected positions to link; found none"),
        ({"a": [0, 1]}, ValueError, "or of one to groups of positions"),
        ({"a": [[0, 5]]}, ValueError, "positions from 0 to 2 in 'cluster_a'; found 5"),
        ({"a": [0.5], "b": [1]}, TypeError, "whole numbers"),
        (["a"], TypeError, "a DataFrame with a column of labels"),
    ],
)
def test_bad_links(links, error, message):
    with pytest.raises(error, match=message):
        linked(links)
