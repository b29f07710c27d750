"""Small functions compiled from a model's graph: what is read from points, and by probing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.transforms import LogTransform
from pymc.model.core import Model
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs
from pytensor.scalar.basic import Reciprocal, TrueDiv
from pytensor.tensor.elemwise import DimShuffle

from pm_match.reading.ancestry import RV

# Interpreted and hardly rewritten: these graphs are tiny or run a handful of times, and compiling
# them would take longer than everything else in a start-up.
PLAIN = Mode(linker="py", optimizer="fast_compile")


def evaluate(variable: RV):
    """Evaluate a variable that depends on nothing."""
    return pytensor.function([], variable, mode=PLAIN)()


def point_function(model: Model, outputs: Sequence[RV], givens: Mapping[RV, Any]):
    """Compile `outputs` as a function of a point of value variables.

    `givens` are random variables set to constants. What depends on no free variable is evaluated
    once, and numbers that are themselves what is asked for are read without running a graph.
    """
    readers = [] if givens else [_reader(model, output) for output in outputs]
    if readers and None not in readers:
        return lambda point: [reader(point) for reader in readers if reader is not None]
    constants = [(rv, pt.constant(value, dtype=rv.dtype)) for rv, value in givens.items()]
    replaced = graph_replace(outputs, constants, strict=False)
    function, names = _compiled(model, [pt.as_tensor(v) for v in replaced])
    if not names:
        constant = [np.asarray(v) for v in function()]
        return lambda point: constant
    return lambda point: [np.asarray(v) for v in function(*[point[name] for name in names])]


def _reader(model: Model, output: RV):
    """Make a reader of a variable that is one free number (or one over it), or a constant one.

    A compiled function costs fifty times as much, and hyperparameters are read at every candidate.
    Returns None for everything else.
    """
    whole, inverse = output, False
    while output.owner is not None and output not in model.basic_RVs:
        op, inputs = output.owner.op, output.owner.inputs
        scalar_op = getattr(op, "scalar_op", None)
        if isinstance(op, DimShuffle):
            output = inputs[0]
        elif isinstance(scalar_op, Reciprocal):
            output, inverse = inputs[0], not inverse
        elif isinstance(scalar_op, TrueDiv) and _is_one(inputs[0]):
            output, inverse = inputs[1], not inverse
        else:
            return None
    if isinstance(output, Constant):
        value = np.asarray(evaluate(whole))
        return lambda point: value
    if output not in model.free_RVs or output.ndim > 0:
        return None
    transform, name = model.rvs_to_transforms[output], model.rvs_to_values[output].name
    if transform is None:
        return lambda point: np.asarray(1.0 / point[name] if inverse else point[name])
    if type(transform) is LogTransform:
        return lambda point: np.asarray(np.exp(-point[name] if inverse else point[name]))
    return None


def _is_one(variable: RV) -> bool:
    while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
        variable = variable.owner.inputs[0]
    return isinstance(variable, Constant) and bool(np.all(variable.data == 1.0))


def natural_function(model: Model, names: Iterable[str]):
    """Compile the map from a point of value variables to the variables `names` themselves."""
    outputs = []
    for name in names:
        rv = model[name]
        value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
        outputs.append(value if transform is None else transform.backward(value, *rv.owner.inputs))
    function, inputs = _compiled(model, outputs)
    return lambda point: [np.asarray(v) for v in function(*[point[name] for name in inputs])]


def log_densities(model: Model, variables: Sequence[RV]):
    """Compile the declared log densities of `variables`, entry by entry, at a point."""
    outputs = model.logp(vars=list(variables), jacobian=False, sum=False)
    inputs = model.value_vars
    function = pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
    return lambda point: dict(
        zip(variables, function(*[point[v.name] for v in inputs]), strict=True)
    )


def chosen_objects(
    chosen: RV, assignment: RV, givens: Mapping[RV, Any], n_objects: int, unit: float
) -> NDArray[np.int64] | None:
    """Find which object each row of a table is of, by what the objects' labels choose.

    Every object's number is written in binary digits, and each digit used as a label.

    Parameters
    ----------
    chosen : variable
        The table (R, D): rows that the labels of some objects choose.
    assignment : variable
        These labels.
    givens : mapping of variable to array
        Constants for other variables, among them what rows are chosen from: row j is to hold
        `unit` times j.
    n_objects : int
    unit : float

    Returns
    -------
    (R,) integer array, or None
        None if rows are something else; numbers of `n_objects` or more if they are of no object.
    """
    labels = pt.vector(dtype=assignment.dtype)
    replaced = {assignment: labels} | {rv: pt.constant(value) for rv, value in givens.items()}
    graphs = graph_replace([pt.as_tensor(chosen)], replaced, strict=False)
    digit_of = pytensor.function([labels], graphs[0], mode=PLAIN)
    number, found = np.arange(n_objects), np.zeros((), np.int64)
    for place in range(max(int(n_objects - 1).bit_length(), 1)):
        digits = np.asarray(digit_of(((number >> place) & 1).astype(assignment.dtype)))
        if digits.ndim != 2 or not np.isin(digits, (0.0, unit)).all():
            return None
        found = found + ((digits[:, 0] > 0.0).astype(np.int64) << place)
    return found


def _compiled(model, outputs):
    """Compile graphs of random and value variables; return the names of their inputs too."""
    outputs = model.replace_rvs_by_values(outputs)
    values = set(model.value_vars)
    inputs = [v for v in explicit_graph_inputs(outputs) if v in values]
    function = pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
    return function, [v.name for v in inputs]
