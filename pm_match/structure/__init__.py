"""Reads a declared model: which variables form a partition, and which may be integrated out.

Candidates are found by ancestry (who depends on whom); that they mean what they seem to mean is
then checked *numerically*, on the declared log densities at random points, so that every way of
writing the same model is accepted and no other model is. What is not recognised is refused with a
reason that names the variable.
"""

from weakref import WeakKeyDictionary

from pymc.model.core import Model

from pm_match.structure.functions import natural_function, value_function
from pm_match.structure.parts import Projected, ProjectedPartition, Structure, UnservedModelError
from pm_match.structure.recognise import WEIGHTS, Reader

__all__ = [
    "WEIGHTS",
    "Projected",
    "ProjectedPartition",
    "Structure",
    "UnservedModelError",
    "natural_function",
    "read",
    "value_function",
]

_CACHE: WeakKeyDictionary[Model, tuple[tuple, Structure]] = WeakKeyDictionary()


def read(model: Model) -> Structure:
    """Read a model. The result is kept until the model gets another variable.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    Structure
    """
    state = (tuple(map(id, model.basic_RVs)), tuple(map(id, model.potentials)))
    known = _CACHE.get(model)
    if known is None or known[0] != state:
        known = (state, Reader(model).read())
        _CACHE[model] = known
    return known[1]
