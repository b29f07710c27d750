import numpy as np
import pandas as pd
import pytest

from pm_match.views import as_views

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 2))


def test_arrays_are_paired_row_by_row():
    found = as_views({"x": X, "y": Y})
    assert list(found) == ["x", "y"]
    for table, values in zip(found.values(), (X, Y), strict=True):
        np.testing.assert_array_equal(table.values, values)
        np.testing.assert_array_equal(table.objects, range(4))


def test_labelled_tables_are_paired_by_their_labels():
    labels = ["d", "b", "a", "c"]
    y = pd.DataFrame(Y, index=labels).sort_index()
    found = as_views({"x": X, "y": pd.DataFrame(Y, index=labels), "z": y})
    for table in found.values():
        np.testing.assert_array_equal(table.objects, labels)
    np.testing.assert_array_equal(found["z"].values, Y)
    np.testing.assert_array_equal(found["x"].values, X)


def test_a_view_may_lack_objects():
    x = X.copy()
    x[1] = np.nan
    found = as_views({"x": x, "y": Y})
    assert found["x"].missing[1].all()
    with pytest.raises(ValueError, match="object 1 is missing from every view"):
        as_views({"x": x, "y": np.where(np.arange(4)[:, None] == 1, np.nan, Y)})


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ([X, Y], TypeError, "expected a mapping"),
        ({}, ValueError, "at least one view"),
        ({1: X}, TypeError, "view 1: expected a string"),
        ({"a b": X}, ValueError, "must be an identifier"),
        ({"latent": X}, ValueError, "the model uses the name 'latent'"),
        ({"x": X, "x_feature": Y}, ValueError, "a second 'x_feature'"),
        ({"x": X, "y": Y[:3]}, ValueError, "view 'y': expected the 4 objects of view 'x'; found 3"),
        ({"x": X, "y": np.where(Y[0, 0] == Y, np.inf, Y)}, ValueError, "view 'y'.*infinite"),
        ({"x": X, "y": Y.astype(str)}, TypeError, "view 'y'.*text"),
        ({"x": np.zeros((4, 2))}, ValueError, "view 'x': all its values are equal"),
        (
            {"x": pd.DataFrame(X, index=list("abcd")), "y": pd.DataFrame(Y, index=list("abce"))},
            ValueError,
            "view 'y': expected the objects of the other views; found no row 'd'",
        ),
    ],
)
def test_bad_views(views, error, message):
    with pytest.raises(error, match=message):
        as_views(views, reserved=("latent",))
