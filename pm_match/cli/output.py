"""What is written: match probabilities as tables, and all draws."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.matching import assignment_sets, match_probability
from pm_match.report.csv import write_csv

__all__ = ["netcdf_engine", "number_of_clusters", "write_draws", "write_matches"]

_PREFIX = "cluster_"


def write_matches(
    idata: xr.DataTree,
    out: Path,
    top: int | None = None,
    names: Mapping[tuple[str, str], str] | None = None,
) -> None:
    """Write the match probabilities of every pair of domains whose clusters are of one set.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.
    out : Path
        An existing folder.
    top : int, optional
        Only this many partners of each object, in long form. Default: the matrix of all.
    names : mapping, optional
        What the tables are called, by pairs of assignment variables.
    """
    for members in assignment_sets(idata).values():
        pairs = list(combinations(members, 2)) or [(members[0], members[0])]
        for a, b in pairs:
            first, second = (name.removeprefix(_PREFIX) for name in (a, b))
            file = out / f"match_{names[a, b] if names else f'{first}_{second}'}.csv"
            if top is None:
                table = pd.DataFrame(match_probability(idata, a, b).to_pandas())
                write_csv(table, file, index_label="", float_format="%.6g")
            else:
                best = match_probability(idata, a, b, top=top)
                # Labels of objects are names: they are not rounded.
                best = best.astype({"object": str, "partner": str})
                write_csv(best, file, index=False, float_format="%.6g")


def number_of_clusters(rows: pd.Index) -> int:
    """Count the rows of a table of sizes that are clusters: irrelevant objects are none."""
    return sum(cluster != "irrelevant" for cluster in rows)


def write_draws(idata: xr.DataTree, file: Path) -> None:
    """Write a DataTree as netCDF.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.
    file : Path
        Where to; an existing file is replaced.
    """
    tree = idata.copy()
    for node in tree.subtree:
        dataset = node.to_dataset(inherit=False)
        dataset.attrs = _attributes(dataset.attrs)
        for variable in dataset.variables.values():
            variable.attrs = _attributes(variable.attrs)
        node.dataset = dataset
    tree.to_netcdf(file, engine=netcdf_engine())


def _attributes(attrs: Mapping[Any, Any]) -> dict[Any, Any]:
    """Keep what netCDF can hold: it knows neither None nor truth values nor nested things."""
    result: dict[Any, Any] = {}
    for key, value in attrs.items():
        if isinstance(value, bool | np.bool_):
            result[key] = int(value)
        elif isinstance(value, list | tuple) and not value:
            continue  # no type to store it with
        elif isinstance(value, str | int | float | np.number | np.ndarray | list | tuple):
            result[key] = value
        elif value is not None:
            result[key] = str(value)
    return result


def netcdf_engine() -> Literal["netcdf4", "h5netcdf"] | None:
    """Name what netCDF can be written with, if anything is installed."""
    if _installed("netCDF4"):
        return "netcdf4"
    # h5netcdf by itself cannot write: h5py does that for it.
    return "h5netcdf" if _installed("h5netcdf") and _installed("h5py") else None


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
