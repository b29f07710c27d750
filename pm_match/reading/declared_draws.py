r"""Holds what a chain samples against the declared log density, at some of its draws.

With :math:`\theta` all that is integrated out of the data X, drawn from its conditional given the
labels s (J. Besag 1989, "A candidate's formula"),

.. math:: \log p(X, \theta \mid s) = \log p(X \mid s) + \log p(\theta \mid X, s).

The left side is the declared model's, everything that labels or :math:`\theta` enter; the right
side is what labels are drawn by, and the density of what was drawn. A model is read at random
points: where it is another one at the draws of a chain than it was there, this tells. Steps that
integrate nothing out, or draw it without the density of what was drawn, hold all factors of the
density as they read them against the declared ones.
"""

from collections.abc import Collection, Mapping, Sequence

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


def looked_at(number: int) -> bool:
    """Whether draws of this number are looked at: 2, 4, 8, 16, ..."""
    return number > 1 and number & (number - 1) == 0


class DeclaredDensity:
    """The declared density of everything that some variables enter.

    `drawn`: names of the variables; `without`: of those whose own densities are left out.
    """

    def __init__(self, model: Model, drawn: Sequence[str], without: Collection[str] = ()):
        self._names = drawn
        rvs = [rv for rv in [*model.basic_RVs, *model.potentials] if rv.name not in without]
        graphs = entered_densities(model, [model[name] for name in drawn], rvs, jacobian=False)
        total, sizes = (
            pt.add(*[own.sum() for own in [*found, pt.zeros(())]])
            for found in (graphs, [pt.abs(graph) for graph in graphs])
        )
        both = [total, sizes]
        self._at, _ = compiled(model, in_double(both) if float_type() == "float64" else both)
        self.rounding = _least_rounding(model)

    @classmethod
    def of_component(cls, model: Model, component: Component) -> "DeclaredDensity":
        """Make the density of all that labels, or what is integrated out, enter."""
        every = [a for clustering in component.clusterings for a in clustering.assignments]
        known = [f"{a.name}_observed" if a.drawn else a.name for a in every if a.known is not None]
        return cls(model, [*component.collapsed, *known])

    def __call__(self, point: Mapping[str, NDArray]) -> tuple[float, float]:
        """Evaluate it at a point: its log, and the sizes of all entries of that together."""
        total, sizes = map(float, self._at(point))
        return total, sizes

    def check(self, point: Mapping[str, NDArray], found: Sequence[float]) -> None:
        """Raise `UnservedModelError` if a draw has another density than the declared one.

        `point`: to which the draw was written; `found`: what its log density adds up of, as the
        model was read.
        """
        try:
            total, sizes = self(point)
        except ParameterValueError:
            # Of a draw that no float holds, such as a precision of 1e-400 from a vague prior.
            return
        if not np.isfinite([total, sum(found)]).all():
            # Parameters that are too small, or too large, to be told from their bounds.
            return
        rounding = self.rounding + _ROUNDING[float_type()] * (sizes + np.abs(found).sum())
        if abs(total - sum(found)) > rounding:
            raise UnservedModelError(
                f"{', '.join(map(repr, self._names))}: expected draws whose declared log density "
                f"is {sum(found):.8g}, as it would be of the model that was read; found a draw at "
                f"which it is {total:.8g}. {OTHER_STEPS}"
            )


def _least_rounding(model: Model) -> float:
    """How far rounding may take a log density at least.

    Of a count x, it is the difference of numbers as large as x log x.
    """
    data = [np.abs(evaluate(model.rvs_to_values[rv])) for rv in model.observed_RVs]
    sizes = sum(float(np.nansum(x * np.log1p(x))) for x in data)
    return _LEAST + 16.0 * float(np.finfo(float_type()).eps) * sizes
