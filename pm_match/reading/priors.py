"""Log densities of free variables at a point, fast for the families that priors are made of.

Slices ask for a prior at every candidate, and a compiled graph of a dozen small operations costs
more than the evidence. Other families than those here are compiled.
"""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.transforms import LogOddsTransform, LogTransform
from pymc.logprob.utils import CheckParameterValue
from pymc.model.core import Model
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import toposort
from pytensor.tensor.random.basic import (
    ExponentialRV,
    GammaRV,
    HalfNormalRV,
    LogNormalRV,
    NormalRV,
)
from scipy.special import gammaln

from pm_match.reading.ancestry import RV, parameters
from pm_match.reading.label_tables import parts
from pm_match.reading.laws import is_constant
from pm_match.reading.probe import point_function, value_density

_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


def _normal(x, mean, deviation):
    squares = np.square((x - mean) / deviation)
    return -0.5 * squares - np.log(deviation) - _HALF_LOG_2PI, deviation > 0.0


# With t the log of the variable: log densities of the variable itself, and where they are defined.
def _half_normal(t, loc, deviation):
    found = -0.5 * np.square(np.exp(t) / deviation) - np.log(deviation)
    return found - _HALF_LOG_2PI + np.log(2.0), (deviation > 0.0) & (loc == 0.0)


def _log_normal(t, mean, deviation):
    found, fine = _normal(t, mean, deviation)
    return found - t, fine


def _gamma(t, shape, scale):
    found = (shape - 1.0) * t - np.exp(t) / scale - shape * np.log(scale) - gammaln(shape)
    return found, (shape > 0.0) & (scale > 0.0)


def _exponential(t, scale):
    return -np.exp(t) / scale - np.log(scale), scale > 0.0


_ON_LOG_SCALE: dict[type, Callable] = {
    HalfNormalRV: _half_normal,
    LogNormalRV: _log_normal,
    GammaRV: _gamma,
    ExponentialRV: _exponential,
}


def log_density_function(model: Model, name: str) -> Callable[[Any], float]:
    """Make the log density of a variable at a point, on the scale that is sampled."""
    rv = model[name]
    transform, key = model.rvs_to_transforms[rv], model.rvs_to_values[rv].name
    kind = type(rv.owner.op)
    if transform is None and kind is NormalRV:
        formula = _normal
    elif type(transform) is LogTransform and kind in _ON_LOG_SCALE:
        formula = _ON_LOG_SCALE[kind]
    else:
        return value_density(model, [rv])
    read = point_function(model, parameters(rv))

    def log_density(point) -> float:
        # Numbers rather than arrays without axes, of which NumPy takes several times as long.
        x, *given = (v[()] for v in (np.asarray(point[key]), *read(point)))
        with np.errstate(all="ignore"):
            found, fine = formula(x, *given)
        if not fine.all():
            return -np.inf
        if transform is not None:
            found = found + x
        elif found.shape != x.shape:
            # A density of many entries may have fewer parameters.
            found = np.broadcast_to(found, x.shape)
        return float(found.sum())

    return log_density


# Of positive numbers, such results are positive.
_POSITIVE = (
    "Add",
    "Mul",
    "TrueDiv",
    "Pow",
    "Reciprocal",
    "Sqrt",
    "Sqr",
    "Exp",
    "Cast",
    "DimShuffle",
)


def _operation(graph: RV) -> str:
    """Name what makes a graph, number by number or as a whole; an empty string if nothing does."""
    op = getattr(graph.owner, "op", None)
    return "" if op is None else type(getattr(op, "scalar_op", op)).__name__


def _is_positive(model: Model, graph: RV) -> bool:
    """Whether a graph shows that it is positive everywhere."""
    if isinstance(graph, Constant):
        return bool((np.asarray(graph.data) > 0).all())
    if graph in model.rvs_to_transforms:
        return isinstance(model.rvs_to_transforms[graph], LogTransform | LogOddsTransform)
    operation = _operation(graph)
    inputs = graph.owner.inputs[: 1 if operation == "Pow" else None] if graph.owner else []
    return operation in _POSITIVE and all(_is_positive(model, own) for own in inputs)


def _is_met_anyway(model: Model, condition: RV) -> bool:
    """Whether a condition is that something is positive, and that is so everywhere."""
    if _operation(condition) != "GT":
        return False
    left, right = condition.owner.inputs
    return is_constant(right, 0) and _is_positive(model, left)


class Conditions:
    """PyMC's conditions on parameters of distributions: where one is not met there is no density.

    Formulas for what is integrated out have finite results for a negative concentration or standard
    deviation, too.

    `variables`: whose densities are meant.
    """

    def __init__(self, model: Model, variables: Sequence[RV]):
        self._messages: list[str] = []
        found: dict[RV, None] = {}
        for rv in variables:
            for node in toposort([pm.logp(rv, rv)], blockers=[rv, *rv.owner.inputs]):
                if isinstance(node.op, CheckParameterValue):
                    own = [part for condition in node.inputs[1:] for part in parts(condition)]
                    own = [p for p in own if p not in found and not _is_met_anyway(model, p)]
                    found |= dict.fromkeys(own)
                    self._messages += [f"{rv.name!r} is defined where {node.op.msg}"] * len(own)
        self._read = point_function(model, [*found])

    def met(self, point: Any) -> bool:
        """Whether all are met at a point."""
        return all(own.all() for own in self._read(point))

    def never_met(self, points: Sequence[Any]) -> str:
        """Name a condition that is met at none of some points; an empty string if there is none."""
        found = [[own.all() for own in self._read(point)] for point in points]
        nowhere = ~np.array(found, bool).reshape(len(found), -1).any(axis=0)
        return next(compress(self._messages, nowhere), "")
