"""The conjugate priors that kinds expect, by every distribution of PyMC's that is one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import Interval
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import Reciprocal
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.random.basic import (
    BetaRV,
    DirichletRV,
    ExponentialRV,
    GammaRV,
    NormalRV,
    UniformRV,
)

from pm_match.reading.ancestry import RV, parameters

_ONE = pt.constant(1.0)


@dataclass(frozen=True)
class Law:
    """A family of distributions, under each of the names that PyMC has for it.

    Attributes
    ----------
    name : str
    transforms : dict
        PyMC's default transform of each of its distributions, `NoneType` where there is none.
    arguments : function
        From a variable of one of them to the graphs of the law's own parameters.
    """

    name: str
    transforms: dict[type, type]
    arguments: Callable[[RV], list[RV]] = parameters

    def has(self, rv: RV) -> bool:
        """Whether a variable's distribution is of this law."""
        op = type(rv.owner.op) if rv.owner is not None else None
        return op in self.transforms and (op is not UniformRV or _is_unit(rv))

    def transform(self, rv: RV) -> tuple[type, ...]:
        """Return PyMC's default transform of a variable, in a tuple."""
        return (self.transforms[type(rv.owner.op)],)


def _beta(rv: RV) -> list[RV]:
    """Return both shapes: Uniform(0, 1) is Beta(1, 1)."""
    return parameters(rv) if isinstance(rv.owner.op, BetaRV) else [_ONE, _ONE]


def _gamma(rv: RV) -> list[RV]:
    """Return shape and rate, as they were declared: PyTensor has the scale.

    Exponential(b) is Gamma(1, b).
    """
    *shape, scale = parameters(rv)
    return [*(shape or [_ONE]), _inverse(scale)]


def _is_unit(rv: RV) -> bool:
    return all(is_constant(own, end) for own, end in zip(parameters(rv), (0, 1), strict=True))


def is_constant(graph: RV, number: float) -> bool:
    """Whether a graph is a constant number, however it is broadcast."""
    while graph.owner is not None and isinstance(graph.owner.op, DimShuffle):
        (graph,) = graph.owner.inputs
    return isinstance(graph, Constant) and bool((np.asarray(graph.data) == number).all())


def _inverse(variable: RV) -> RV:
    op = variable.owner.op if variable.owner is not None else None
    if isinstance(op, DimShuffle):
        return op(_inverse(variable.owner.inputs[0]))
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Reciprocal):
        return variable.owner.inputs[0]
    return pt.reciprocal(variable)


NORMAL = Law("Normal", {NormalRV: type(None)})
GAMMA = Law("Gamma", {GammaRV: LogTransform, ExponentialRV: LogTransform}, _gamma)
BETA = Law("Beta", {BetaRV: LogOddsTransform, UniformRV: Interval}, _beta)
DIRICHLET = Law("Dirichlet", {DirichletRV: SimplexTransform})
