"""Reads a declared model: which variables form a partition, and which may be integrated out.

Candidates are found by ancestry (who depends on whom); that they mean what they seem to mean is
then checked *numerically*, on the declared log densities at random points, so that every way of
writing the same model is accepted and no other model is. What is not recognised is refused with a
reason that names the variable.
"""

from operator import is_not
from typing import NamedTuple
from weakref import WeakKeyDictionary

from pymc.model.core import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.random.type import RandomGeneratorType

from pm_match.reading.kinds import on_registration
from pm_match.reading.parts import Structure, UnservedModelError
from pm_match.reading.recognise import Reader

__all__ = ["Structure", "UnservedModelError", "read"]


class _Reading(NamedTuple):
    """What was read, and everything that it depends on."""

    variables: list
    shared: list
    contents: list
    structure: Structure


_CACHE: WeakKeyDictionary[Model, _Reading] = WeakKeyDictionary()
on_registration(_CACHE.clear)


def read(model: Model) -> Structure:
    """Read a model. The result is kept until the model gets another variable or other data.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    Structure

    Raises
    ------
    TypeError
        If `model` is none.
    """
    # PyMC's `modelcontext` lets everything through.
    if not isinstance(model, Model):
        raise TypeError(
            f"model: expected a pm.Model; found an object of type {type(model).__name__}"
        )
    variables = [*model.basic_RVs, *model.potentials]
    known = _CACHE.get(model)
    if (
        known is not None
        and _same(known.variables, variables)
        and _same(known.contents, [v.get_value(borrow=True) for v in known.shared])
    ):
        return known.structure
    # `pm.set_data` puts another array into a shared variable.
    graphs = [*variables, *(model.rvs_to_values[rv] for rv in model.observed_RVs)]
    shared = [
        v
        for v in graph_inputs(graphs)
        if isinstance(v, SharedVariable) and not isinstance(v.type, RandomGeneratorType)
    ]
    contents = [variable.get_value(borrow=True) for variable in shared]
    _CACHE[model] = _Reading(variables, shared, contents, Reader(model).read())
    return _CACHE[model].structure


def _same(old: list, new: list) -> bool:
    return len(old) == len(new) and not any(map(is_not, old, new))
