"""Missing values of a matching, in the units and categories of the user's tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.front.columns import Column
from pm_match.front.prepared import PreparedData
from pm_match.models.mixture import observed_columns


def filled(prepared: PreparedData, name: str, found: xr.Dataset) -> pd.DataFrame:
    """Fill missing values of a table in, and say beside them how sure they are.

    `prepared`: of tables; `name`: of one, as variables call it; `found`: what `pm_match.impute`
    says. Return what `MatchResult.impute` does.
    """
    mixed = prepared.model == "mixture"
    variables: dict[str, tuple[list[str], list[Any] | None]]
    if mixed:
        table, shared = prepared.data[name], prepared.options.get("shared")
        variables = observed_columns(prepared.data, prepared.uses(), shared)[name]
    else:
        table = prepared.raw.get(name, prepared.numeric()[name])
        variables = {name: (list(table.columns), None)}
    scaled = prepared.raw or prepared.model in ("table_clusters", "normal_clusters")
    told: dict[str, Any] = dict(table.items())
    for variable, (columns, categories) in variables.items():
        for place, column in enumerate(columns):
            own = table[column]
            hidden = own.isna()
            found_in = prepared.columns[name][column]
            if not hidden.any():
                told[column] = _as_given(own, found_in, whole=True)
                continue
            said = {
                end: found[f"{variable}{end}"].to_numpy().reshape(len(own), -1)[:, place]
                for end in ("", "_lower", "_upper", "_probability")
                if f"{variable}{end}" in found
            }
            if categories is not None:
                said[""] = np.array(categories, object)[said[""].astype(np.int64)]
            elif mixed and found_in.use == "boolean":
                p = said[""]
                said = {"": np.round(p), "_probability": np.maximum(p, 1.0 - p)}
            elif scaled:
                said = {end: x * own.std(ddof=0) + own.mean() for end, x in said.items()}
            whole = own.astype(object).where(~hidden, said.pop(""))
            told[column] = _as_given(whole, found_in, whole=False)
            told |= {_unused(table, f"{column}{end}"): values for end, values in said.items()}
    return pd.DataFrame(told, table.index)


def _as_given(values: pd.Series, column: Column, whole: bool) -> pd.Series:
    """Give values the dtype of their column.

    Numbers are floats where their column holds text or categories, and where it holds whole numbers
    or truth values, unless it is `whole`: means are none of these.
    """
    dtype = column.dtype
    if column.use == "category" and pd.api.types.is_float_dtype(dtype):
        return values.infer_objects()  # codes, some of which are missing
    numeric = pd.api.types.is_numeric_dtype(dtype)
    fits = pd.api.types.is_float_dtype(dtype) or (whole and numeric)
    if column.use not in ("boolean", "category") and not fits:
        nullable = numeric and isinstance(dtype, pd.api.extensions.ExtensionDtype)
        dtype = "Float64" if nullable else float
    return values.astype(dtype)


def _unused(table: pd.DataFrame, name: str) -> str:
    """Name what is said of a column as no column of the table is."""
    while name in table:
        name += "_"
    return name
