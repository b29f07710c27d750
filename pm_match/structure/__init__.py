"""Reads a declared model: which variables form a partition, and which may be integrated out.

Candidates are found by ancestry (who depends on whom); that they mean what they seem to mean is
then checked *numerically*, on the declared log densities at random points, so that every way of
writing the same model is accepted and no other model is. What is not recognised is refused with a
reason that names the variable.
"""

from operator import is_not
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

_CACHE: WeakKeyDictionary[Model, tuple[list, Structure]] = WeakKeyDictionary()


def read(model: Model) -> Structure:
    """Read a model. The result is kept until the model gets another variable or other data.

    Parameters
    ----------
    model : pymc.Model

    Returns
    -------
    Structure
    """
    # Everything that what was read depends on. `pm.set_data` puts another array in its variable.
    state = [*model.basic_RVs, *model.potentials]
    state += [data.get_value(borrow=True) for data in model.data_vars]
    known = _CACHE.get(model)
    if known is None or len(known[0]) != len(state) or any(map(is_not, known[0], state)):
        known = (state, Reader(model).read())
        _CACHE[model] = known
    return known[1]
