"""Small functions compiled from a model's graph: what is read from points."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model.core import Model
from pytensor.compile.mode import Mode
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import explicit_graph_inputs

from pm_match.structure.ancestry import RV

# Interpreted and hardly rewritten: these graphs are tiny or run a handful of times, and compiling
# them would take longer than everything else in a start-up.
PLAIN = Mode(linker="py", optimizer="fast_compile")


def evaluate(variable: RV):
    """Evaluate a variable that depends on nothing."""
    return pytensor.function([], variable, mode=PLAIN)()


def point_function(model: Model, outputs: Sequence[RV], givens: Mapping[RV, float]):
    """Compile `outputs` as a function of a point of value variables.

    `givens` are random variables set to constants. What depends on no free variable is evaluated
    once.
    """
    constants = [(rv, pt.constant(value, dtype=rv.dtype)) for rv, value in givens.items()]
    replaced = graph_replace(outputs, constants, strict=False)
    function, names = _compiled(model, [pt.as_tensor(v) for v in replaced])
    if not names:
        constant = [np.asarray(v) for v in function()]
        return lambda point: constant
    return lambda point: [np.asarray(v) for v in function(*[point[name] for name in names])]


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


def _compiled(model, outputs):
    """Compile graphs of random and value variables; return the names of their inputs too."""
    outputs = model.replace_rvs_by_values(outputs)
    values = set(model.value_vars)
    inputs = [v for v in explicit_graph_inputs(outputs) if v in values]
    function = pytensor.function(inputs, outputs, mode=PLAIN, on_unused_input="ignore")
    return function, [v.name for v in inputs]
