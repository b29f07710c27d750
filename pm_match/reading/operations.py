"""Which operations graphs hold on the way from free variables: analytic ones, or others.

Two analytic functions that agree at random points agree everywhere, for with probability one no
others do. Of what is piecewise, such as `pt.clip`, points say nothing where they are not.
"""

from collections.abc import Iterable

from pymc.model.core import Model
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import toposort
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from pm_match.reading.ancestry import RV

# By the names of PyTensor's classes, which move between its modules. What is done number by number:
_NUMBERS = frozenset((
    "Add", "Sub", "Mul", "TrueDiv", "Neg", "Reciprocal", "Pow", "Sqr", "Sqrt", "Exp", "Exp2",
    "Expm1", "Log", "Log2", "Log10", "Log1p", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh",
    "ArcSin", "ArcCos", "ArcTan", "ArcSinh", "ArcCosh", "ArcTanh", "Erf", "Erfc", "Erfcx",
    "Gamma", "GammaLn", "Psi", "Sigmoid", "Softplus", "Log1mexp", "Identity", "Second",
))  # fmt: skip
# What is done with whole arrays: they are taken apart and put together, multiplied, and solved.
_ARRAYS = frozenset((
    "Subtensor", "AdvancedSubtensor", "AdvancedSubtensor1", "IncSubtensor",
    "AdvancedIncSubtensor", "AdvancedIncSubtensor1", "Join", "Split", "MakeVector", "Alloc",
    "Repeat", "DimShuffle", "Reshape", "JoinDims", "SplitDims", "SpecifyShape",
    "TensorFromScalar", "ScalarFromTensor", "ExtractDiag", "AllocDiag", "Eye", "Sum", "Prod",
    "CumOp", "Dot", "BatchedDot", "Softmax", "LogSoftmax", "KroneckerProduct", "BlockDiagonal",
    "Cholesky", "Solve", "SolveTriangular", "CholeskySolve", "MatrixInverse", "MatrixPinv", "Det",
    "SLogDet", "SVD", "Expm", "CheckAndRaise", "Assert", "CheckParameterValue", "ViewOp",
))  # fmt: skip
# Shapes do not depend on values.
SHAPES = frozenset(("Shape", "Shape_i"))


def not_analytic(model: Model, graphs: Iterable[RV]) -> str | None:
    """Find an operation that is not analytic in the free variables of real numbers.

    `graphs`: what lies between the random variables and these is looked at. Where only constants,
    data and labels enter, it may be anything. Return its name; None if there is none.
    """
    entering = {rv for rv in model.free_RVs if rv.dtype.startswith("float")}
    return _first([*graphs], model.basic_RVs, entering)


def _first(graphs: list[RV], ends: Iterable[RV], entering: set[RV]) -> str | None:
    """Find the first such operation between `ends` and graphs, where `entering` ones move."""
    moving = set(entering)
    nodes = [*toposort(graphs, blockers=[*ends])]
    positive = {v for node in nodes for v in _with_sign(node)}
    for node in nodes:
        if positive.intersection(node.outputs):
            moving.update(node.outputs)
            continue
        own = [v in moving for v in node.inputs]
        if any(own) and type(node.op).__name__ not in SHAPES:
            name = _unfit(node, own)
            if name is not None:
                return name
            moving.update(node.outputs)
    return None


def _with_sign(node: Apply) -> list[RV]:
    """Return |t| and sign(t) of |t|**a * sign(t): what PyMC makes of a precision t.

    It is no scale where t is negative, and analytic where it is one.
    """
    inside = [v.owner for v in node.inputs]
    if _scalar(node) != "Mul" or sorted(map(_scalar, inside)) != ["Pow", "Sign"]:
        return []
    power, sign = sorted(inside, key=_scalar)
    size = power.inputs[0].owner
    same = _scalar(size) == "Abs" and size.inputs[0] is sign.inputs[0]
    return [power.inputs[0], sign.outputs[0]] if same else []


def _scalar(node: Apply | None) -> str:
    """Return the name of what a node does number by number; empty if it does something else."""
    if node is None or not isinstance(node.op, Elemwise):
        return ""
    return type(node.op.scalar_op).__name__


def _unfit(node: Apply, moving: list[bool]) -> str | None:
    """Return the name of a node's operation if it is not analytic in its `moving` inputs."""
    op = node.op
    if isinstance(op, OpFromGraph) and type(op).__name__ not in _ARRAYS:
        inside = op.fgraph
        entering = {v for v, own in zip(inside.inputs, moving, strict=True) if own}
        return _first([*inside.outputs], inside.inputs, entering)
    op = op.core_op if isinstance(op, Blockwise) else op
    known = _ARRAYS
    if isinstance(op, Elemwise):
        op, known = op.scalar_op, _NUMBERS
    name = type(op).__name__
    # What labels or data choose is one of several analytic functions each time.
    chosen = name == "Switch" and not moving[0]
    cast = name == "Cast" and node.outputs[0].type.dtype.startswith("float")
    ours = type(op).__module__.partition(".")[0] in ("pytensor", "pymc")
    return None if ours and (name in known or chosen or cast) else name.lower()
