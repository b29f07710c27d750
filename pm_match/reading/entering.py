"""Which numbers enter which results of graphs, told from their structure, whatever the values are.

Marks of numbers go through a graph as these do: along, where arrays are taken apart and put
together; joined, where numbers are worked on one by one or added up; and everywhere, where anything
else is done. So some may be said to enter what they do not matter to, and none is overlooked.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import CAReduce, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.special import LogSoftmax, Softmax

from pm_match.reading.ancestry import RV
from pm_match.reading.operations import SHAPES
from pm_match.reading.probe import function, held_value

# Inputs whose numbers are put in other places, by the names of PyTensor's classes, which move
# between its modules. The rest says where.
_MOVED = {
    **dict.fromkeys(
        ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1", "Split", "Alloc", "DimShuffle",
         "Reshape", "JoinDims", "SplitDims", "SpecifyShape", "TensorFromScalar",
         "ScalarFromTensor", "ExtractDiag", "AllocDiag", "Repeat", "ViewOp"),
        slice(1),
    ),
    **dict.fromkeys(("IncSubtensor", "AdvancedIncSubtensor", "AdvancedIncSubtensor1"), slice(2)),
    **dict.fromkeys(("Join", "MakeVector"), slice(None)),
}  # fmt: skip

# Operations on numbers by which shapes follow from shapes.
_SHAPED = Elemwise | CAReduce | Softmax | LogSoftmax | Dot

Marks = NDArray[np.bool_]


def entering(
    graphs: Sequence[RV],
    values: Mapping[RV, NDArray],
    marked: Sequence[Mapping[RV, Marks]],
    changing: Collection[RV] = (),
) -> list[list[Marks]]:
    """Find the entries of graphs that marked numbers enter.

    `values`: of all inputs; `marked`: inputs, and which of their numbers are marked; `changing`:
    inputs, beside those with marks, whose values may be others. What is chosen by them, or has
    their number of entries, may be anything. Return for each of `marked`, marks of the shape of
    each graph.
    """
    nodes = [*toposort(graphs)]
    numbers = [v for node in nodes for v in node.outputs if _is_numbers(v)]
    known, loose = _changing(nodes, {*changing, *(v for own in marked for v in own)})
    wanted = [pt.as_tensor(v) for v in numbers]
    read = function([*values], wanted)
    with np.errstate(all="ignore"):
        at = {**values, **dict(zip(numbers, read(*values.values()), strict=True))}
    found = []
    for own in marked:
        marks = dict(own)
        for node in nodes:
            marks |= dict(zip(node.outputs, _through(node, marks, at, known, loose), strict=True))
        found.append([marks.get(v, np.zeros(np.shape(at[v]), np.bool_)) for v in graphs])
    return found


def _is_numbers(v: RV) -> bool:
    return isinstance(v.type, pt.TensorType | ScalarType)


def _changing(nodes: Sequence[Apply], changing: Collection[RV]) -> tuple[set[RV], set[RV]]:
    """Find what changes with some inputs, and what has a shape that may."""
    known, loose = {*changing}, set[RV]()
    for node in nodes:
        name = type(node.op).__name__
        if name in SHAPES:
            known |= {*node.outputs} if loose.intersection(node.inputs) else set()
            continue
        plain = isinstance(_core(node), _SHAPED)
        asked = () if plain else node.inputs if name not in _MOVED else _parts(node)[1]
        if loose.intersection(node.inputs) or known.intersection(asked):
            loose |= {*node.outputs}
        if known.intersection(node.inputs):
            known |= {*node.outputs}
    return known, loose


def _core(node: Apply) -> Op:
    """Return the operation of a node, or what it does for each of many arrays."""
    return getattr(node.op, "core_op", node.op)


def _parts(node: Apply) -> tuple[range, list[RV]]:
    """Tell which inputs have numbers that are put in other places, and return the rest."""
    places = range(len(node.inputs))
    moved = places[_MOVED.get(type(node.op).__name__, slice(0))]
    return moved, [v for place, v in enumerate(node.inputs) if place not in moved]


def _through(
    node: Apply,
    marks: Mapping[RV, Marks],
    at: Mapping[RV, Any],
    changing: Collection[RV],
    loose: Collection[RV],
) -> list[Marks]:
    """Take marks through a node."""
    shapes = [np.shape(at[v]) if v in at else () for v in node.outputs]
    fixed = type(node.op).__name__ in SHAPES and node.inputs[0] not in loose
    # What has no entries here may have some elsewhere.
    empty = any(v in marks and not marks[v].size and v in loose for v in node.inputs)
    if fixed or not (empty or any(v in marks and marks[v].any() for v in node.inputs)):
        return [np.zeros(shape, np.bool_) for shape in shapes]
    if empty:
        return [np.ones(shape, np.bool_) for shape in shapes]

    def value(v: RV) -> Any:
        return at[v] if v in at else held_value(v)

    def marks_of(v: RV) -> Marks:
        return marks[v] if v in marks else np.zeros(np.shape(value(v)), np.bool_)

    if isinstance(node.op, Elemwise):
        # The second of two fills the shape of the first, which is no number if it is fixed.
        fills = type(node.op.scalar_op).__name__ == "Second" and node.inputs[0] not in loose
        joined = np.zeros((), np.bool_)
        for v in node.inputs[fills:]:
            joined = joined | marks_of(v)
        return [np.broadcast_to(joined, shape) for shape in shapes]
    if isinstance(node.op, CAReduce):
        (own,) = node.inputs
        return [np.asarray(marks_of(own).any(axis=node.op.axis))]
    if isinstance(node.op, Softmax | LogSoftmax):
        (own,) = node.inputs
        joined = marks_of(own).any(axis=node.op.axis, keepdims=True)
        return [np.broadcast_to(joined, shape) for shape in shapes]
    if isinstance(_core(node), Dot):
        one, other = map(marks_of, node.inputs)
        return [one.any(axis=-1)[..., None] | other.any(axis=-2)[..., None, :]]
    moved, beside = _parts(node)
    placed = all(isinstance(v, Constant | SharedVariable) or v in at for v in beside)
    if moved and placed and not any(v in changing or marks_of(v).any() for v in beside):
        # Large whole numbers: marks may be added up.
        given = [
            marks_of(v).astype(np.int64) if place in moved else value(v)
            for place, v in enumerate(node.inputs)
        ]
        storage: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, given, storage)
        return [np.asarray(own) != 0 for (own,) in storage]
    return [np.ones(shape, np.bool_) for shape in shapes]
