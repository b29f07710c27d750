"""Values are brought to the order of the objects that they name."""

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.tables.order import in_order

OBJECTS = list("cab")
GIVEN = pd.Series([1, 2, 3], list("abc"))


@pytest.mark.parametrize(
    ("given", "objects", "expected"),
    [
        (GIVEN, OBJECTS, [3, 1, 2]),
        (GIVEN.to_dict(), OBJECTS, [3, 1, 2]),
        (GIVEN.rename_axis("o").to_xarray(), OBJECTS, [3, 1, 2]),
        (GIVEN.to_numpy(), OBJECTS, [1, 2, 3]),
        (GIVEN.reset_index(drop=True), OBJECTS, [1, 2, 3]),
        (GIVEN, range(3), [1, 2, 3]),
        (GIVEN.set_axis([2, 0, 1]), range(3), [2, 3, 1]),
        (GIVEN.set_axis([7, 8, 9]), [9.0, 8.0, 7.0], [3, 2, 1]),
    ],
)
def test_labels_decide_where_both_sides_have_them(given, objects, expected):
    assert np.asarray(in_order("known", given, objects)).tolist() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (GIVEN.set_axis(list("abx")), "known: expected labels of objects in the index; found 'x'"),
        (GIVEN.iloc[:2], "known: expected a value for each of 3 objects; found none for 'c'"),
    ],
)
def test_labels_of_other_objects_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        in_order("known", given, OBJECTS)


@pytest.mark.parametrize("declare", [pmm.models.mixture, pmm.models.table_clusters])
def test_known_clusters_are_matched_by_labels(declare):
    table = pd.DataFrame({"u": [0.1, 0.9, 0.4, 0.8], "v": [0.3, 0.2, 0.9, 0.1]}, list("dbca"))
    model = declare({"a": table, "b": table}, known={"a": pd.Series([0, 1, 2, 3], list("abcd"))})
    assert model.rvs_to_values[model["cluster_a"]].data.tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(
    "declare",
    [
        pmm.models.mixture,
        pmm.models.table_clusters,
        pmm.models.normal_clusters,
        pmm.models.aligned_clusters,
    ],
)
def test_known_clusters_of_no_table_are_refused(declare):
    table = pd.DataFrame({"u": [0.1, 0.9, 0.4, 0.8], "v": [0.3, 0.2, 0.9, 0.1]})
    with pytest.raises(
        ValueError, match=r"known: expected names among \['north'\]; .*mean 'north'"
    ):
        declare({"north": table}, known={"nort": [0, 1, 2, 3]})
    with pytest.raises(TypeError, match=r"known: expected a mapping .* found .* type list"):
        declare({"north": table}, known=[0, 1, 2, 3])
