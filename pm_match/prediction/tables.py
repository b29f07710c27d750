"""Values and their intervals in the shape of the table that they belong to."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.prediction.new_objects import Place


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


def summary_dataset(
    name: str,
    values: NDArray,
    dims: tuple[Hashable, Hashable],
    coords: Mapping[Any, Any],
) -> xr.Dataset:
    """Put a mean and the ends of an interval (3, N, M) into a Dataset."""
    names = (name, f"{name}_lower", f"{name}_upper")
    return xr.Dataset(
        {key: (dims, table) for key, table in zip(names, values, strict=True)}, dict(coords)
    )
