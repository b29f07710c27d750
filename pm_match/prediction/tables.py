"""Values and their intervals in the shape of the table that they belong to."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.matching.draws import coords_along
from pm_match.prediction.new_objects import NewObjects, Place
from pm_match.prediction.points import RecordedPoints


def feature_axis(model: Model, place: Place) -> tuple[str, NDArray]:
    """Return the dim of a domain's features, and their labels."""
    part, number = place.component.features[place.clustering], place.feature_domain
    assert part is not None
    assert number is not None
    domain = part.domains[number]
    dims = model.named_vars_to_dims.get(domain.name)
    if dims is None or dims[1] is None:
        return f"{domain.name}_dim_1", np.arange(domain.data.values.shape[1])
    return dims[1], np.asarray(model.coords[dims[1]])


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
    place: Place,
    values: NDArray,
    objects: Place | NewObjects,
) -> xr.Dataset:
    """Put a mean and the ends of an interval (3, N, M) into a Dataset.

    Of the features of the domain at `place`, for the `objects` of a domain or new ones.
    """
    names = (place.domain, f"{place.domain}_lower", f"{place.domain}_upper")
    dim, coords = object_axis(points, objects)
    feature_dim, features = feature_axis(model, place)
    return xr.Dataset(
        {key: ((dim, feature_dim), table) for key, table in zip(names, values, strict=True)},
        {**coords, feature_dim: features},
    )
