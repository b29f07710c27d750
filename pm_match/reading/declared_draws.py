r"""Holds what a chain samples against the declared log density, at some of its draws.

With :math:`\theta` all that is integrated out of the data X, drawn from its conditional given the
labels s (J. Besag 1989, "A candidate's formula"),

.. math:: \log p(X, \theta \mid s) = \log p(X \mid s) + \log p(\theta \mid X, s).

The left side is the declared model's, everything that labels or :math:`\theta` enter; the right
side is what labels are drawn by, and the density of what was drawn. A model is read at random
points: where it is another one at the draws of a chain than it was there, this tells.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model

from pm_match.reading.owners import OTHER_STEPS
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.reading.probe import compiled, entered_densities, evaluate, float_type, in_double

# Rounding, as a part of the sizes of all entries together, in double and in single precision; and
# what it is at least.
_ROUNDING = {"float64": 1e-7, "float32": 1e-3}
_LEAST = 0.01

# Of a point: the declared log density, and the sizes of all its entries together.
Density = Callable[[Mapping[str, NDArray]], list[NDArray]]


def looked_at(number: int) -> bool:
    """Whether draws of this number are looked at: 2, 4, 8, 16, ..."""
    return number > 1 and number & (number - 1) == 0


def declared_density(model: Model, component: Component) -> Density:
    """Make the declared density of all that labels, or what is integrated out, enter.

    Without those of relevance and weights themselves, and of labels that are over random weights.
    """
    own: set[str] = set()
    for clustering in component.clusterings:
        labels = {name for a in clustering.assignments for name in (a.name, *a.drawn)}
        own |= {*clustering.names, *labels} if clustering.weights else {*clustering.names} - labels
    own |= {f"{name}_observed" for name in own if f"{name}_unobserved" in own}
    others = [rv for rv in [*model.basic_RVs, *model.potentials] if rv.name not in own]
    every = [a for clustering in component.clusterings for a in clustering.assignments]
    known = [f"{a.name}_observed" if a.drawn else a.name for a in every if a.known is not None]
    drawn = [model[name] for name in [*component.collapsed, *known]]
    graphs = entered_densities(model, drawn, others, jacobian=False)
    total, sizes = (
        pt.add(*[own.sum() for own in [*found, pt.zeros(())]])
        for found in (graphs, [pt.abs(graph) for graph in graphs])
    )
    both = [total, sizes]
    density, _ = compiled(model, in_double(both) if float_type() == "float64" else both)
    return density


def least_rounding(model: Model) -> float:
    """How far rounding may take a log density at least.

    Of a count x, it is the difference of numbers as large as x log x.
    """
    data = [np.abs(evaluate(model.rvs_to_values[rv])) for rv in model.observed_RVs]
    sizes = sum(float(np.nansum(x * np.log1p(x))) for x in data)
    return _LEAST + 4.0 * float(np.finfo(float_type()).eps) * sizes


def check_draw(
    density: Density,
    component: Component,
    point: Mapping[str, NDArray],
    found: Sequence[float],
    least: float,
) -> None:
    """Raise `UnservedModelError` if a draw has another density than the declared one.

    `point`: to which the draw was written; `found`: what its log density adds up of; `least`: what
    `least_rounding` returns.
    """
    try:
        total, sizes = map(float, density(point))
    except ParameterValueError:
        # Of a draw that no float holds, such as a precision of 1e-400 from a vague prior.
        return
    if not np.isfinite([total, sum(found)]).all():
        # Parameters that are too small, or too large, to be told from their bounds.
        return
    if abs(total - sum(found)) <= least + _ROUNDING[float_type()] * (sizes + np.abs(found).sum()):
        return
    names = [repr(own.name) for c in component.clusterings for own in c.assignments]
    raise UnservedModelError(
        f"{', '.join(names)}: expected draws whose declared log density is {sum(found):.8g}, as it "
        f"would be of the model that was read; found a draw at which it is {total:.8g}. "
        f"{OTHER_STEPS}"
    )
