"""Values, their intervals and the like, in the shape of the table that they belong to."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.matching.draws import coords_along
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictor import NewObjects, Place


def object_axis(
    points: RecordedPoints, objects: Place | NewObjects
) -> tuple[Hashable, dict[Any, Any]]:
    """Return the dim of a domain's own objects, or of new ones, and its coordinates."""
    place = objects.place if isinstance(objects, NewObjects) else objects
    variable = points.posterior[place.assignment.name]
    dim = points.object_dim(place.assignment.name)
    if isinstance(objects, NewObjects):
        return f"{dim}_new", {f"{dim}_new": objects.labels}
    return dim, coords_along(variable, dim)


def summary_dataset(
    model: Model,
    points: RecordedPoints,
    variable: str,
    values: Mapping[str, NDArray],
    objects: Place | NewObjects | None,
) -> xr.Dataset:
    """Put what is said of a variable's values into a Dataset.

    `variable`: an observed variable; `values`: by the name that each gets; all of one shape, the
    variable's but for the number of objects; `objects`: the objects of a domain, or new ones, that
    the first axis is of; None if it is of none.
    """
    (shape,) = {own.shape for own in values.values()}
    given = model.named_vars_to_dims.get(variable) or (None,) * len(shape)
    dims: list[Any] = []
    coords: dict[Any, Any] = {}
    for axis, (name, size) in enumerate(zip(given, shape, strict=True)):
        if axis == 0 and objects is not None:
            dim, own = object_axis(points, objects)
            coords |= own
        else:
            dim = f"{variable}_dim_{axis}" if name is None else name
            labels = model.coords.get(dim)
            coords[dim] = np.arange(size) if labels is None else np.asarray(labels)
        dims.append(dim)
    return xr.Dataset({key: (dims, table) for key, table in values.items()}, coords)
