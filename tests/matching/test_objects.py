import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match.matching.objects import in_order

LABELS = [0, 0, 1, 2]


def expected(labels):
    return None if labels is None else pd.Index(labels)


def as_array(labels):
    return xr.DataArray(LABELS, {"object": labels}, dims="object")


@pytest.mark.parametrize("make", [lambda labels: pd.Series(LABELS, labels), as_array])
@pytest.mark.parametrize(
    ("found", "draws", "order"),
    [
        (list("wxyz"), list("zxyw"), [3, 1, 2, 0]),
        (list("wxyz"), list("wxyz"), [0, 1, 2, 3]),
        ([7, 5, 6, 4], [4, 5, 6, 7], [3, 1, 2, 0]),
        ([3, 1, 2, 0], [0, 1, 2, 3], [3, 1, 2, 0]),
        ([7, 5, 6, 4], list("4567"), [3, 1, 2, 0]),
        (list("wxyz"), [0, 1, 2, 3], [0, 1, 2, 3]),
        ([0, 1, 2, 3], list("wxyz"), [0, 1, 2, 3]),
        (list("wxyz"), None, [0, 1, 2, 3]),
    ],
    ids=["names", "same", "numbers", "counted", "text", "draws have none", "none", "no coords"],
)
def test_objects_are_matched_by_label(make, found, draws, order):
    own = in_order(make(found), expected(draws), where="labels")
    assert list(own.values) == [LABELS[k] for k in order]


def test_without_labels_place_counts():
    for given in (LABELS, np.array(LABELS), pd.Series(LABELS)):
        assert in_order(given, pd.Index([3, 2, 1, 0]), where="labels") is given


def test_rows_and_columns_are_put_in_order():
    table = pd.DataFrame(np.arange(6).reshape(2, 3), index=["b", "a"], columns=list("yxz"))
    own = in_order(table, pd.Index(["a", "b"]), where="table")
    own = in_order(own, pd.Index(["x", "y", "z"]), axis=1, where="table")
    pd.testing.assert_frame_equal(own, table.loc[["a", "b"], ["x", "y", "z"]])
    array = xr.DataArray(table, dims=("row", "column"))
    np.testing.assert_array_equal(
        in_order(array, pd.Index(["x", "y", "z"]), axis=1, where="table"), table[["x", "y", "z"]]
    )


@pytest.mark.parametrize("levels", [True, False])
def test_labels_of_several_levels_are_joined(levels):
    index = pd.Index([("b", 1), ("a", 2)], tupleize_cols=levels)
    own = in_order(pd.Series([0, 1], index), pd.Index(["a, 2", "b, 1"]), where="labels")
    assert own.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("found", "draws", "message"),
    [
        ("wxyz", "wxyv", "labels of 'a': expected the objects of the draws, such as 'v'; found "
         "others, such as 'z'"),
        ("wxyy", "wxyz", "labels of 'a': expected unique labels of objects; found 'y' more than"),
        ("wxyz", "wwyz", "the draws: expected unique labels of objects; found 'w' more than"),
    ],
)  # fmt: skip
def test_other_objects_are_refused(found, draws, message):
    with pytest.raises(ValueError, match=message):
        in_order(pd.Series(LABELS, list(found)), pd.Index(list(draws)), where="labels of 'a'")


@pytest.fixture
def draws():
    k = np.repeat([0, 1], 5)
    names = {f"{d}_object": [f"{d}{i}" for i in range(10)] for d in "ab"}
    return xr.Dataset(
        {f"cluster_{d}": (("chain", "draw", f"{d}_object"), np.tile(k, (1, 3, 1))) for d in "ab"},
        coords=names,
    )


@pytest.mark.parametrize("kind", ["series", "dataset"])
def test_given_labels_may_be_in_any_order(draws, kind):
    one = draws.isel(chain=0, draw=0)
    order = np.random.default_rng(0).permutation(10)
    mixed = one.isel(a_object=order, b_object=order[::-1])
    if kind == "series":
        mixed = {name: mixed[f"cluster_{name}"].to_series() for name in "ab"}
    assert pmm.partition_loss(draws, mixed).max() == 0.0
    found, known = pmm.match_summary(draws, mixed), pmm.match_summary(draws, one)
    pd.testing.assert_frame_equal(found.objects, known.objects)
    xr.testing.assert_identical(pmm.relabel(draws, mixed), pmm.relabel(draws, one))
