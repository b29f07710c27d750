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
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.elemwise import CAReduce, Elemwise

from pm_match.reading.ancestry import RV
from pm_match.reading.probe import function, held_value

# Inputs whose numbers are put in other places, by the names of PyTensor's classes, which move
# between its modules. The rest says where.
_MOVED = {
    **dict.fromkeys(
        ("Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1", "Split", "Alloc", "DimShuffle",
         "Reshape", "JoinDims", "SplitDims", "SpecifyShape", "TensorFromScalar",
         "ScalarFromTensor", "ExtractDiag", "AllocDiag", "Repeat"),
        slice(1),
    ),
    **dict.fromkeys(("IncSubtensor", "AdvancedIncSubtensor", "AdvancedIncSubtensor1"), slice(2)),
    **dict.fromkeys(("Join", "MakeVector"), slice(None)),
}  # fmt: skip
# Of these only the shape enters.
_SHAPES = frozenset(("Shape", "Shape_i"))

Marks = NDArray[np.bool_]


def entering(
    graphs: Sequence[RV],
    values: Mapping[RV, NDArray],
    marked: Sequence[Mapping[RV, Marks]],
    changing: Collection[RV] = (),
) -> list[list[Marks]]:
    """Find the entries of graphs that marked numbers enter.

    Parameters
    ----------
    graphs : sequence of variables
    values : dict of variable to array
        Of all inputs.
    marked : sequence of dict of variable to array of bool
        Inputs, and which of their numbers are marked.
    changing : collection of variables
        Inputs with whose values what is chosen by them may change: their values here show no more
        than shapes.

    Returns
    -------
    list of list of array of bool
        For each of `marked`, marks of the shape of each graph.
    """
    nodes = [*toposort(graphs)]
    known, numbers = {*changing}, [v for node in nodes for v in node.outputs if _is_numbers(v)]
    for node in nodes:
        if type(node.op).__name__ not in _SHAPES and known.intersection(node.inputs):
            known.update(node.outputs)
    wanted = [pt.as_tensor(v) for v in numbers]
    read = function([*values], wanted)
    with np.errstate(all="ignore"):
        at = {**values, **dict(zip(numbers, read(*values.values()), strict=True))}
    found = []
    for own in marked:
        marks = dict(own)
        for node in nodes:
            marks |= dict(zip(node.outputs, _through(node, marks, at, known), strict=True))
        found.append([marks.get(v, np.zeros(np.shape(at[v]), np.bool_)) for v in graphs])
    return found


def _is_numbers(v: RV) -> bool:
    return isinstance(v.type, pt.TensorType | ScalarType)


def _through(
    node: Apply, marks: Mapping[RV, Marks], at: Mapping[RV, Any], changing: Collection[RV]
) -> list[Marks]:
    """Take marks through a node."""
    shapes = [np.shape(at[v]) if v in at else () for v in node.outputs]
    name = type(node.op).__name__
    if name in _SHAPES or not any(marks[v].any() for v in node.inputs if v in marks):
        return [np.zeros(shape, np.bool_) for shape in shapes]

    def value(v: RV) -> Any:
        return at[v] if v in at else held_value(v)

    def marks_of(v: RV) -> Marks:
        return marks[v] if v in marks else np.zeros(np.shape(value(v)), np.bool_)

    if isinstance(node.op, Elemwise):
        # The second of two fills the shape of the first.
        fills = type(node.op.scalar_op).__name__ == "Second"
        joined = np.zeros((), np.bool_)
        for v in node.inputs[fills:]:
            joined = joined | marks_of(v)
        return [np.broadcast_to(joined, shape) for shape in shapes]
    if isinstance(node.op, CAReduce):
        (own,) = node.inputs
        return [np.asarray(marks_of(own).any(axis=node.op.axis))]
    data = node.inputs[_MOVED.get(name, slice(0))]
    beside = [v for v in node.inputs if v not in data]
    placed = all(isinstance(v, Constant | SharedVariable) or v in at for v in beside)
    if data and placed and not any(v in changing or marks_of(v).any() for v in beside):
        given = [
            np.asarray(marks_of(v), v.type.dtype) if v in data else value(v) for v in node.inputs
        ]
        storage: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, given, storage)
        return [np.asarray(own) != 0 for (own,) in storage]
    return [np.ones(shape, np.bool_) for shape in shapes]
