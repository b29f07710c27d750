"""New objects of a matching: their tables, as the model takes them, and where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pm_match.checks import warn
from pm_match.front.columns import LEFT_OUT
from pm_match.front.files import read_table_file
from pm_match.front.prepare import PreparedData, look_at_table
from pm_match.tables.standardise import principal_components, standardise

__all__ = ["as_the_model_takes_them", "placed"]


def as_the_model_takes_them(prepared: PreparedData, model: pm.Model, name: str, table: Any) -> Any:
    """Bring new objects of a domain to what `pm_match.assign` expects of them.

    Parameters
    ----------
    prepared : PreparedData
    model : pymc.Model
        Declared of it.
    name : str
        The domain, as variables call it.
    table : table or path
        With columns of those that the domain has; those that it lacks are not seen.

    Returns
    -------
    table, or dict of str to table
        By observed variable, where there are several.

    Raises
    ------
    ValueError
        If the data are networks, or the table has no column that is used.
    """
    if prepared.kind != "tables":
        raise ValueError("new objects: expected a matching of tables; pm_match.assign takes edges")
    looked = {column: own.use for column, own in prepared.columns[name].items()}
    used = [column for column, use in looked.items() if use != LEFT_OUT]
    where = f"new objects of {prepared.titles[name]!r}"
    if isinstance(table, str | PathLike):
        where, table = str(table), read_table_file(Path(table))
    frame, _ = look_at_table(where, table, prepared.ids.get(name), looked, new=True)
    if missing := [column for column in used if column not in frame]:
        warn(f"{where}: columns {missing} are not there, and count as not seen.")
    frame = frame.reindex(columns=used)
    if prepared.model == "mixture":
        return _by_variable(model, name, frame, where)
    like = prepared.raw or prepared.numeric()
    new = {name: frame[list(like[name].columns)]}
    n_components = prepared.options.get("n_components")
    if prepared.model == "aligned_clusters":
        return principal_components(new, n_components, like=like)[name]
    if prepared.model == "table_clusters" or prepared.raw:
        return standardise(new, n_components, like=like)[name]
    return new[name]


def _by_variable(model: pm.Model, name: str, frame: pd.DataFrame, where: str) -> dict[str, Any]:
    """Deal columns to the variables that observe them; write categories by their numbers."""
    found: dict[str, Any] = {}
    for variable, dims in model.named_vars_to_dims.items():
        if dims[0] != f"{name}_object" or variable.startswith("cluster_"):
            continue
        if len(dims) == 2:
            found[variable] = frame[list(model.coords[dims[1]])]
            continue
        column = variable.removeprefix(f"{name}_")
        categories = next(
            list(model.coords[dim])
            for parameter, (_, *others) in model.named_vars_to_dims.items()
            for dim in others
            if dim.startswith(f"category_{column}") and parameter.startswith("probability_")
        )
        values = frame[column].astype(object)
        codes = values.map({category: k for k, category in enumerate(categories)})
        strange = values[codes.isna() & values.notna()]
        if len(strange):
            warn(
                f"{where}, column {column!r}: {strange.iloc[0]!r} is none of the categories that "
                "were seen, and counts as not seen."
            )
        found[variable] = codes.astype(np.float64)
    return found


def placed(found: xr.Dataset, titles: Mapping[str, str]) -> pd.DataFrame:
    """Say of every new object where it belongs: its cluster, and its likeliest partners.

    Parameters
    ----------
    found : Dataset
        What `pm_match.assign` says of a domain, ``top`` given.
    titles : mapping of str to str
        What to call the domains.

    Returns
    -------
    DataFrame
        See `MatchResult.assign`.
    """
    probability = found["probability"]
    best = probability.argmax("cluster")
    objects = probability.dims[0]
    columns: dict[str, Any] = {
        "cluster": found["cluster"].to_numpy()[best.to_numpy()],
        "probability": probability.max("cluster").to_numpy(),
        "unseen": found["unseen"].to_numpy(),
        "log_predictive": found["log_predictive"].to_numpy(),
    }
    for name, title in titles.items():
        if f"match_{name}" in found:
            columns[title] = found[f"partner_{name}"].to_numpy()[:, 0]
            columns[f"{title}_probability"] = found[f"match_{name}"].to_numpy()[:, 0]
    index = pd.Index(found[objects].to_numpy(), name="object")
    return pd.DataFrame(columns, index)
