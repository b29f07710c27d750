import numpy as np
import pandas as pd
import pytest

from pm_match import plots
from tests.plots.made_up import panels


def texts(axis):
    """Numbers in the cells, by row and column; empty cells are 0."""
    shape = axis.images[0].get_array().shape
    found = np.zeros(shape, dtype=int)
    for text in axis.texts:
        column, row = text.get_position()
        found[row, column] = int(text.get_text())
    return found


def test_cells_hold_the_counts():
    rng = np.random.default_rng(0)
    true = {"a": rng.choice(["x", "y", "z"], 40), "b": rng.choice(["x", "w"], 30)}
    found = {"cluster_a": rng.integers(-1, 4, 40), "b": rng.integers(0, 3, 30)}
    a, b = panels(plots.plot_confusion(found, true))
    kinds = [tick.get_text() for tick in a.get_yticklabels()]
    assert sorted(kinds) == list("wxyz")
    for axis, name, own in ((a, "a", found["cluster_a"]), (b, "b", found["b"])):
        assert [tick.get_text() for tick in axis.get_xticklabels()] == [*"0123", "irr."]
        expected = [
            [np.sum((true[name] == kind) & (own == cluster)) for cluster in (0, 1, 2, 3, -1)]
            for kind in kinds
        ]
        np.testing.assert_array_equal(texts(axis), expected)
        share = np.array(expected) / np.maximum(np.sum(expected, axis=1), 1)[:, None]
        np.testing.assert_allclose(axis.images[0].get_array(), share)
    assert a.get_title() == "a: 40 objects"


def test_classes_are_on_the_diagonal():
    true = {"a": np.array([*"yyyyxxxzz", "w"])}
    labels = {"a": np.array([0, 0, 0, 1, 1, 1, 0, 2, 2, 0])}
    (axis,) = panels(plots.plot_confusion(labels, true))
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["y", "x", "z", "w"]
    np.testing.assert_array_equal(texts(axis), [[3, 1, 0], [1, 2, 0], [0, 0, 2], [1, 0, 0]])


def test_small_clusters_share_a_column():
    labels = {"a": np.array([0, 0, 0, 5, 5, 2, 3, -1])}
    (axis,) = panels(plots.plot_confusion(labels, {"a": np.zeros(8, int)}, n_clusters=2))
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["0", "5", "other", "irr."]
    np.testing.assert_array_equal(texts(axis), [[3, 2, 2, 1]])


def test_many_classes_have_shades_and_no_numbers():
    true = {"a": np.arange(50)}
    (axis,) = panels(plots.plot_confusion({"a": np.zeros(50, int)}, true))
    assert not axis.texts
    assert axis.images[0].get_array().shape == (50, 1)


@pytest.mark.parametrize(
    ("labels", "true", "message"),
    [
        ({"a": [0]}, {}, "true: expected the classes of at least one domain; found none"),
        ({"a": [0]}, {"b": [0]}, r"domain 'b': no labels; there are \['a'\]"),
        ({"a": [0, 1]}, {"a": [0]}, r"for each of its 1 objects; found shape \(2,\)"),
        ({"a": [-1]}, {"a": [0]}, "found irrelevant objects only"),
    ],
)
def test_bad_input(labels, true, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_confusion(labels, true)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_objects_without_a_class_are_left_out(missing):
    true = {"a": ["x", missing, "y", "y"], "b": pd.Series([missing, "x"], dtype="object")}
    labels = {"a": np.array([0, 5, 1, 1]), "b": np.array([0, 0])}
    a, b = panels(plots.plot_confusion(labels, true))
    assert [tick.get_text() for tick in a.get_yticklabels()] == ["x", "y"]
    assert [tick.get_text() for tick in a.get_xticklabels()] == ["0", "1"]
    np.testing.assert_array_equal(texts(a), [[1, 0], [0, 2]])
    assert b.get_title() == "b: 1 object"
    with pytest.raises(ValueError, match="true: expected the class of at least one object; found"):
        plots.plot_confusion(labels, {"a": [missing] * 4})


def test_numbers_with_gaps_are_whole():
    figure = plots.plot_confusion({"a": np.zeros(3, int)}, {"a": [2.0, np.nan, 1.0]})
    assert {tick.get_text() for tick in panels(figure)[0].get_yticklabels()} == {"1", "2"}
