"""Values and their intervals in the shape of the table that they belong to."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.parts import Projected
from pm_match.prediction.axes import object_axis
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictor import NewObjects, Place


def feature_axis(model: Model, domain: Projected) -> tuple[str, NDArray]:
    """Return the dim of a domain's features, and their labels."""
    dims = model.named_vars_to_dims.get(domain.name)
    if dims is None or dims[1] is None:
        return f"{domain.name}_dim_1", np.arange(domain.data.values.shape[1])
    return dims[1], np.asarray(model.coords[dims[1]])


def summary_dataset(
    model: Model,
    points: RecordedPoints,
    place: Place,
    domain: Projected,
    values: NDArray,
    objects: Place | NewObjects,
) -> xr.Dataset:
    """Put a mean and the ends of an interval (3, N, M) into a Dataset.

    Of the features of the `domain` at `place`, for the `objects` of a domain or new ones.
    """
    names = (place.domain, f"{place.domain}_lower", f"{place.domain}_upper")
    dim, coords = object_axis(points, objects)
    feature_dim, features = feature_axis(model, domain)
    return xr.Dataset(
        {key: ((dim, feature_dim), table) for key, table in zip(names, values, strict=True)},
        {**coords, feature_dim: features},
    )
