"""Values, their intervals and the like, in the shape of the table that they belong to."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.matching.draws import coords_along
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictor import NewObjects


def object_axis(
    points: RecordedPoints, objects: str | NewObjects
) -> tuple[Hashable, dict[Any, Any]]:
    """Return the dim of an assignment's objects, or of new ones, and its coordinates."""
    if isinstance(objects, NewObjects):
        name = f"{points.object_dim(objects.place.assignment.name)}_new"
        return name, {name: objects.labels}
    dim = points.object_dim(objects)
    return dim, coords_along(points.posterior[objects], dim)


def summary_dataset(
    model: Model,
    points: RecordedPoints,
    variable: str,
    values: Mapping[str, NDArray],
    objects: NewObjects | Sequence[str],
) -> xr.Dataset:
    """Put what is said of a variable's values into a Dataset.

    `variable`: an observed variable; `values`: by the name that each gets; all of one shape, the
    variable's but for the number of objects; `objects`: new ones, which the first axis is of, or
    the assignments whose objects the first axes are of. Of several axes of the same objects, names
    that belong to all but the first end in "_other".
    """
    (shape,) = {own.shape for own in values.values()}
    first = [objects] if isinstance(objects, NewObjects) else objects
    given = model.named_vars_to_dims.get(variable) or (None,) * len(shape)
    dims: list[Any] = []
    coords: dict[Any, Any] = {}
    for axis, size in enumerate(shape):
        if axis < len(first):
            dim, own = object_axis(points, first[axis])
            ending = ""
            while f"{dim}{ending}" in dims:
                ending += "_other"
            if ending:
                dim = f"{dim}{ending}"
                own = {f"{name}{ending}": (dim, np.asarray(x)) for name, x in own.items()}
        else:
            dim = given[axis] or f"{variable}_dim_{axis}"
            labels = model.coords.get(dim)
            own = {dim: np.arange(size) if labels is None else np.asarray(labels)}
        coords |= own
        dims.append(dim)
    return xr.Dataset({key: (dims, table) for key, table in values.items()}, coords)
