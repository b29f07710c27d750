"""Values that name their objects, brought into the order of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import xarray as xr

from pm_match.checks import did_you_mean, label_text
from pm_match.tables.domains import as_labels


def in_order(where: str, given: Any, objects: Any, partial: bool = False) -> Any:
    """Bring values to the order of the objects that their index, coords, or keys name.

    `objects` (N,): their labels. Values without labels, and those that are only numbered where no
    number names an object, are in that order already. `partial`: whether values may lack objects,
    of which they are then missing. If not, labels that are none of those of objects which are only
    numbered say nothing either. Raise `ValueError` if labels are those of other objects.
    """
    if isinstance(given, Mapping):
        given = pd.Series(given)
    if isinstance(given, xr.DataArray) and given.ndim == 1:
        given = given.to_series() if given.dims[0] in given.indexes else given.to_numpy()
    if not isinstance(given, pd.Series):
        return given
    labels, there = _as_text(where, given.index), _as_text(where, objects)
    strange = labels[~labels.isin(there)]
    every = not partial and len(given) == len(there)
    numbered = _is_numbered(given.index) or (every and _is_numbered(pd.Index(objects)))
    if numbered and len(strange) == len(labels):
        return given.to_numpy()
    said = (
        " (values that are in the order of the objects are given without an index, by to_numpy())"
    )
    if len(strange):
        raise ValueError(
            f"{where}: expected labels of objects in the index; found {strange[0]!r}"
            f"{did_you_mean(strange[0], there)}{said}"
        )
    lacking = there[~there.isin(labels)]
    if len(lacking) and not partial:
        raise ValueError(
            f"{where}: expected a value for each of {len(there)} objects; found none for "
            f"{lacking[0]!r}{said}"
        )
    return given.set_axis(labels).reindex(there).to_numpy()


def _is_numbered(labels: pd.Index) -> bool:
    return labels.equals(pd.RangeIndex(len(labels)))


def _as_text(where: str, labels: Any) -> pd.Index:
    index = pd.Index(as_labels(where, "row", labels))
    return index.map(label_text) if index.dtype.kind == "f" else index.astype(str)
