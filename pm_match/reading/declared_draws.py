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

    `drawn`: names of the variables; `apart`: names of those whose own densities are looked at by
    themselves, as they may not be finite where the others are; `scaled`: of those that count on the
    scale that is sampled.
    """

    def __init__(
        self,
        model: Model,
        drawn: Sequence[str],
        apart: Collection[str] = (),
        scaled: Collection[str] = (),
    ):
        self._names, self._parts = drawn, []
        self.rounding = _least_rounding(model)
        variables, rvs = [model[name] for name in drawn], [*model.basic_RVs, *model.potentials]
        for own in (False, True):
            some = [rv for rv in rvs if (rv.name in apart) == own]
            graphs = [
                graph
                for jacobian in (False, True)
                for graph in entered_densities(
                    model,
                    variables,
                    [rv for rv in some if (rv.name in scaled) == jacobian],
                    jacobian,
                )
            ]
            both = [
                pt.add(*[entries.sum() for entries in [*found, pt.zeros(())]])
                for found in (graphs, [pt.abs(graph) for graph in graphs])
            ]
            found, _ = compiled(model, in_double(both) if float_type() == "float64" else both)
            self._parts.append(found)

    @classmethod
    def of_component(cls, model: Model, component: Component) -> "DeclaredDensity":
        """Make the density of all that labels, or what is integrated out, enter.

        Apart are relevance, weights, and labels over weights that are drawn. What depends on labels
        and is drawn by other steps, such as missing values, counts on the scale that these sample.
        """
        apart: set[str] = set()
        for clustering in component.clusterings:
            labels = {name for a in clustering.assignments for name in (a.name, *a.drawn)}
            names = {*clustering.names}
            apart |= names | labels if clustering.weights else names - labels
        apart |= {f"{name}_observed" for name in apart if f"{name}_unobserved" in apart}
        every = [a for clustering in component.clusterings for a in clustering.assignments]
        known = [f"{a.name}_observed" if a.drawn else a.name for a in every if a.known is not None]
        others = {str(rv.name) for rv in model.free_RVs} - {*component.collapsed}
        return cls(model, [*component.collapsed, *known], apart, others)

    def __call__(self, point: Mapping[str, NDArray]) -> float:
        """Evaluate the log of all of it at a point."""
        return sum(float(density(point)[0]) for density in self._parts)

    def check(
        self, point: Mapping[str, NDArray], found: Sequence[float], apart: Sequence[float] = ()
    ) -> None:
        """Raise `UnservedModelError` if a draw has another density than the declared one.

        `point`: to which the draw was written; `found`: what its log density adds up of, as the
        model was read; `apart`: the same of what is looked at by itself.
        """
        for density, own in zip(self._parts, (found, apart), strict=True):
            try:
                total, sizes = map(float, density(point))
            except ParameterValueError:
                # Of a draw that no float holds, such as a precision of 1e-400 from a vague prior.
                continue
            if not np.isfinite([total, sum(own)]).all():
                # Parameters that are too small, or too large, to be told from their bounds.
                continue
            rounding = self.rounding + _ROUNDING[float_type()] * (sizes + np.abs(own).sum())
            if abs(total - sum(own)) > rounding:
                raise UnservedModelError(
                    f"{', '.join(map(repr, self._names))}: expected draws whose declared log "
                    f"density is {sum(own):.8g}, as it would be of the model that was read; found "
                    f"a draw at which it is {total:.8g}. {OTHER_STEPS}"
                )


def _least_rounding(model: Model) -> float:
    """How far rounding may take a log density at least.

    Of a count x, it is the difference of numbers as large as x log x.
    """
    data = [np.abs(evaluate(model.rvs_to_values[rv])) for rv in model.observed_RVs]
    sizes = sum(float(np.nansum(x * np.log1p(x))) for x in data)
    return _LEAST + 16.0 * float(np.finfo(float_type()).eps) * sizes
