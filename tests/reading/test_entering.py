"""Which numbers enter what, from the structure of graphs: held against moving them."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.ops import view_op
from pytensor.tensor.special import log_softmax, softmax

from pm_match.reading.entering import entering

P, LABELS, X = pt.matrix("p"), pt.lvector("labels"), pt.matrix("x")
VALUES = {
    P: np.random.default_rng(0).normal(size=(3, 2)),
    LABELS: np.array([0, 1, 2, 0]),
    X: np.random.default_rng(1).normal(size=(4, 2)),
}
SHARED = pytensor.shared(np.array([2, 0]))

# Graphs, and whether numbers enter just what changes with them.
GRAPHS = {
    "numbers": ((X - P[LABELS]) ** 2, True),
    "sum of a row": (pt.sum(P, axis=1), True),
    "sum of all": (pt.exp(P).sum(), True),
    "product": (P @ P.T, True),
    "product of Dot": (pt.dot(P, P.T), True),
    "products": (pt.stack([X[:3], P]) @ P.T, True),
    "product with a row": (X @ P[0], True),
    "product of rows": (P[0] @ P[1], True),
    "joined": (pt.concatenate([P, P[::-1] ** 2]), True),
    "stacked": (pt.stack([P[0, 0], P[1, 1]]), True),
    "split": (pt.split(P, [1, 2], axis=0)[1], True),
    "softmax": (softmax(P, axis=1), True),
    "softmax of all": (log_softmax(P, axis=None), True),
    "replaced": (pt.set_subtensor(P[0], 1.0), True),
    "added to": (pt.inc_subtensor(P[LABELS[:2]], P[SHARED]), True),
    "chosen by labels": (P[LABELS, LABELS % 2], True),
    "chosen by what is held": (P[SHARED], True),
    "in another shape": (P.reshape((1, -1)), True),
    "repeated": (pt.repeat(P, 2, axis=0), True),
    "turned": (P.T[None], True),
    "filled": (pt.zeros_like(P) + P[0], True),
    "shape": (P.shape * 1.0, True),
    "viewed": (view_op(P)[0], True),
    "running sum": (pt.cumsum(P, axis=1), False),
    "chosen by numbers": (P[LABELS, (P[0, 0] > 0).astype("int64")], False),
    "none": (X + 1.0, True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_changes_with_a_number_is_what_it_enters(name):
    graph, exact = GRAPHS[name]
    call = pytensor.function([*VALUES], graph, on_unused_input="ignore")
    before = call(*VALUES.values())
    places = [*np.ndindex(3, 2)]
    marks = [np.zeros((3, 2), bool) for _ in places]
    for own, place in zip(marks, places, strict=True):
        own[place] = True
    found = entering([graph], VALUES, [{P: own} for own in marks])
    for own, (entered,) in zip(marks, found, strict=True):
        changed = np.zeros(np.shape(before), bool)
        for step in (0.37, -0.37, 5.0, -5.0):
            changed |= call(*{**VALUES, P: VALUES[P] + step * own}.values()) != before
        assert entered.shape == changed.shape
        assert (entered >= changed).all()
        if exact:
            np.testing.assert_array_equal(entered, changed)


def test_what_is_nowhere_near_enters_too():
    graph = pt.minimum(P[:, 0], P[:, 1] + 1e6)
    second = np.array([[False, True]] * 3)
    ((found,),) = entering([graph], VALUES, [{P: second}])
    assert found.all()


def held_against_moving(graph, inputs, moved, number, steps, **kwargs):
    """Marks of what a number enters, and what changes as it is moved."""
    call = pytensor.function([*inputs], graph)
    mark = np.zeros(np.shape(inputs[moved]), bool)
    mark[number] = True
    ((found,),) = entering([graph], inputs, [{moved: mark}], **kwargs)
    before, changed = call(*inputs.values()), False
    for step in steps:
        there = {**inputs, moved: inputs[moved] + np.asarray(step * mark, inputs[moved].dtype)}
        changed = changed | (call(*there.values()) != before)
    return found, changed


def test_what_is_data_and_place_at_once_is_told_by_place():
    y, places = pt.lvector("y"), pt.lvector("places")
    graph = pt.set_subtensor(y[places], places)
    inputs = {y: np.arange(3), places: np.array([1])}
    found, changed = held_against_moving(graph, inputs, y, 0, [5])
    np.testing.assert_array_equal(found, changed)
    assert found.any()


@pytest.mark.parametrize(
    "graph",
    [
        X[0] * pt.nonzero(P[:, 0] > 0)[0].shape[0],
        X[0] * P[P > 0].shape[0],
        X[0] * pt.ones_like(P[P > 0]).sum(),
        X[0] * P[P > 4].sum(),
        X[0] * pt.arange(pt.cast(pt.abs(P[0, 0]) * 4, "int64")).shape[0],
    ],
)
def test_shapes_that_depend_on_numbers_are_numbers(graph):
    inputs = {P: VALUES[P], X: VALUES[X]}
    found, changed = held_against_moving(graph, inputs, P, (0, 0), [5.0, -5.0])
    assert (found >= changed).all()
    assert changed.any()


def test_marks_are_not_lost_where_many_are_added_up():
    small = pt.cast(P[0, 0], "uint8") * np.ones(256, "uint8")
    graph = pt.inc_subtensor(pt.zeros(2, "uint8")[np.zeros(256, int)], small)
    mark = np.zeros((3, 2), bool)
    mark[0, 0] = True
    ((found,),) = entering([graph], {P: VALUES[P]}, [{P: mark}])
    np.testing.assert_array_equal(found, [True, False])


def test_what_other_numbers_choose_may_be_anything():
    graph = P[LABELS, pt.cast(X[0, 0] > 100.0, "int64")]
    second = np.array([[False, True]] * 3)
    ((found,),) = entering([graph], VALUES, [{P: second}], changing=[P, X])
    assert found.all()


def test_what_data_choose_may_be_anything():
    graph = P[LABELS, (X[:, 0] > 0).astype("int64")]
    second = np.array([[False, True]] * 3)
    ((found,),) = entering([graph], VALUES, [{P: second}])
    np.testing.assert_array_equal(found, VALUES[X][:, 0] > 0)
    ((found,),) = entering([graph], VALUES, [{P: second}], changing=[X])
    assert found.all()
