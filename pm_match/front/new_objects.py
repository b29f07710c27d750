"""New objects of a matching: their tables, as the model takes them, and where they belong."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import label_text, warn
from pm_match.front.files import read_table_file
from pm_match.front.look import look_at_table
from pm_match.front.prepared import PreparedData
from pm_match.models.mixture import observed_columns
from pm_match.tables.standardise import principal_components, standardise


def as_the_model_takes_them(prepared: PreparedData, name: str, table: Any) -> tuple[pd.Index, Any]:
    """Bring new objects of a domain to what `pm_match.assign` expects of them.

    `prepared`: of tables; `name`: the domain, as variables call it; `table`: with columns of those
    that the domain has. Return the objects' labels; the table, by observed variable where there are
    several. Raise `ValueError` if the table has no column that is used.

    Warn of columns that are not there, or that no known object has, and of categories that were
    never seen.
    """
    looked = {column: own.use for column, own in prepared.columns[name].items()}
    where = f"new objects of {prepared.titles[name]!r}"
    id = prepared.ids.get(name)
    if isinstance(table, str | PathLike):
        text = [
            column
            for column, use in looked.items()
            if use == "category"
            and any(isinstance(cell, str) for cell in prepared.data[name][column].dropna())
        ]
        where, table = str(table), read_table_file(Path(table), looked, text, id)
    frame, found = look_at_table(where, table, id, looked, {}, new=True)
    if strange := [column for column in found if column not in looked]:
        warn(f"{where}: columns {strange} are none that known objects have, and are not used.")
    own = prepared.data if prepared.model == "mixture" else prepared.numeric()
    used = list(own[name].columns)
    if missing := [column for column in used if column not in frame]:
        warn(f"{where}: columns {missing} are not there; their values are taken as missing.")
    return frame.index, _taken(prepared, name, frame.reindex(columns=used), where)


def _taken(prepared: PreparedData, name: str, frame: pd.DataFrame, where: str) -> Any:
    if prepared.model == "mixture":
        return _by_variable(prepared, name, frame, where)
    if prepared.raw:
        frame = pd.DataFrame(standardise({name: frame}, like=prepared.raw)[name].to_pandas())
    n_components, like = prepared.options.get("n_components"), prepared.numeric()
    if prepared.model == "aligned_clusters":
        return principal_components({name: frame}, n_components, like=like)[name]
    if prepared.model in ("table_clusters", "normal_clusters"):
        return standardise({name: frame}, n_components, like=like)[name]
    return frame


def _by_variable(
    prepared: PreparedData, name: str, frame: pd.DataFrame, where: str
) -> dict[str, Any]:
    """Deal columns to the variables that observe them; write categories by their numbers."""
    found: dict[str, Any] = {}
    of_model = observed_columns(prepared.data, prepared.uses(), prepared.options.get("shared"))
    for variable, (columns, categories) in of_model[name].items():
        if categories is None:
            found[variable] = frame[columns]
            continue
        # As text, as a few codes may look like numbers where many do not.
        values = frame[columns[0]].astype(object)
        numbers = {label_text(category): k for k, category in enumerate(categories)}
        said = values.map(label_text, na_action="ignore")
        # Whole numbers are written so where some are missing.
        if all(text.endswith(".0") for text in said.dropna()):
            whole = said.map(lambda text: text.removesuffix(".0"), na_action="ignore")
            said = said.where(said.isin(list(numbers)), whole)
        codes = said.map(numbers)
        strange = values[codes.isna() & values.notna()]
        if len(strange):
            warn(
                f"{where}, column {columns[0]!r}: {strange.iloc[0]!r} is none of the categories "
                "that were seen, and is taken as missing."
            )
        found[variable] = codes.astype(np.float64)
    return found


def placed(found: xr.Dataset, objects: pd.Index, prepared: PreparedData) -> pd.DataFrame:
    """Say of every new object where it belongs: its cluster, and its likeliest partners.

    `found`: what `pm_match.assign` says of a domain, with ``top=1``; `objects`: their labels.
    Return what `MatchResult.assign` does.
    """
    probability = found["probability"]
    best = probability.argmax("cluster").to_numpy()
    columns: dict[str, Any] = {
        "cluster": found["cluster"].to_numpy()[best],
        "probability": probability.max("cluster").to_numpy(),
        "unseen": found["unseen"].to_numpy(),
        "log_predictive": found["log_predictive"].to_numpy(),
    }
    for name, title in prepared.titles.items():
        partners = found[f"partner_{name}"].to_numpy()[:, 0]
        columns[f"partner_{title}"] = prepared.own_labels(name, partners)
        columns[f"match_{title}"] = found[f"match_{name}"].to_numpy()[:, 0]
    return pd.DataFrame(columns, objects)
