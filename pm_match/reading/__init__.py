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
from pm_match.reading.known_labels import with_free_labels
from pm_match.reading.parts import Structure, UnservedModelError
from pm_match.reading.probe import without_c
from pm_match.reading.recognise import Reader

__all__ = ["Structure", "UnservedModelError", "as_read", "read"]


class _Reading(NamedTuple):
    """What was read, and everything that it depends on."""

    variables: list
    shared: list
    contents: list
    structure: Structure
    model: Model | None


_CACHE: WeakKeyDictionary[Model, _Reading] = WeakKeyDictionary()
on_registration(_CACHE.clear)


@without_c()
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
    structure, seen = _with_known_labels(model)
    # Of the model itself, nothing is kept that would keep it.
    own = None if seen is model else seen
    _CACHE[model] = _Reading(variables, shared, contents, structure, own)
    return structure


def as_read(model: Model) -> Model:
    """Return the model that was read: with labels free that are observed in the one given."""
    read(model)
    return _CACHE[model].model or model


def _with_known_labels(model: Model) -> tuple[Structure, Model]:
    """Read observed labels as labels of clusters; where that fails, as data, if that does not."""
    seen, known = with_free_labels(model)
    structure = Reader(seen, known).read()
    if structure.refusals and known:
        other, less = with_free_labels(model, complete=False)
        found = Reader(other, less).read()
        if not found.refusals and not found.empty:
            return found, other
    return structure, seen


def _same(old: list, new: list) -> bool:
    return len(old) == len(new) and not any(map(is_not, old, new))
