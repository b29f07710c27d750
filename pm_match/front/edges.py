"""Networks as people have them: matrices, files and lists of edges, and what their values are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr

from pm_match.checks import did_you_mean
from pm_match.front.files import read_network_file

__all__ = ["look_at_networks"]


def look_at_networks(
    given: Mapping[str, Any], columns: Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Look at networks: what their values are, and whose rows and columns they have.

    Returns
    -------
    networks : dict
        As `models.relational_clusters` takes them: matrices, and lists of edges with the same
        columns.
    options : dict
        What the data say of the model: `family`, and for lists of edges `types` and `columns`.
    notes : list of str
    """
    notes: list[str] = []
    one_mode = len(options.get("types") or (1, 2)) == 1 or any(
        options.get(option) for option in ("one_mode", "symmetric", "self_loops")
    )
    n_axes = 2 if one_mode else len(options.get("types") or (1, 2))
    networks: dict[str, Any] = {}
    headers: dict[str, list[str]] = {}
    for name, network in given.items():
        if isinstance(network, str | PathLike):
            read = read_network_file(Path(network), n_axes)
            network = read.cells
            if read.columns is not None:
                network = network.set_axis([*read.header, "value"], axis=1)
        if isinstance(network, pd.DataFrame) and _lists_edges(network, columns):
            network = _edges(name, network, columns, n_axes, notes)
            headers[name] = list(network.columns[:n_axes])
            network = network.set_axis([*map(str, range(n_axes)), "value"], axis=1)
        networks[name] = network
    found: dict[str, Any] = {}
    if headers and len(headers) < len(networks):
        other = next(name for name in networks if name not in headers)
        raise ValueError(
            f"network {other!r}: expected a list of edges, as {next(iter(headers))!r} is one"
        )
    if headers:
        found["columns"] = [*map(str, range(n_axes)), "value"]
        if not one_mode and not options.get("types") and options.get("one_mode") is None:
            found["types"] = _types(networks, headers, n_axes)
    if options.get("family") is None:
        found["family"] = _family(networks)
        if found["family"] == "poisson":
            notes.append("Values are counts: family='poisson'.")
    return networks, found, notes


def _lists_edges(table: pd.DataFrame, columns: Sequence[str] | None) -> bool:
    if columns is not None:
        return True
    return not all(pd.api.types.is_numeric_dtype(dtype) for dtype in table.dtypes)


def _edges(name, table, columns, n_axes, notes) -> pd.DataFrame:
    """Give a list of edges its values: ones, or how often each is listed."""
    where = f"network {name!r}"
    chosen = list(table.columns if columns is None else columns)
    for column in chosen:
        if column not in table.columns:
            near = did_you_mean(column, table.columns)
            raise ValueError(f"{where}: no column {column!r}{near}")
    if not n_axes <= len(chosen) <= n_axes + 1:
        raise ValueError(
            f"{where}: expected {n_axes} columns of names, then perhaps one of values; found "
            f"{chosen}. Say which by columns=[…]"
        )
    table, ends = table[chosen], chosen[:n_axes]
    if len(chosen) == n_axes:
        counts = table.groupby(ends, sort=False).size()
        twice = int((counts > 1).sum())
        if twice:
            notes.append(f"{name}: {twice} edges are listed several times, and counted.")
        return counts.rename("value").reset_index().astype({"value": np.float64})
    return table


def _types(networks, headers, n_axes) -> list[str]:
    """Name the types of objects after the columns, unless both ends may be the same objects."""
    for name, own in headers.items():
        if n_axes != 2:
            break
        ends = [set(networks[name][str(axis)].astype(str)) for axis in range(2)]
        both = ends[0] & ends[1]
        if both:
            raise ValueError(
                f"network {name!r}: {len(both)} of the names in {own[0]!r} are in {own[1]!r} too, "
                f"such as {min(both)!r}. If these are the same objects, say types=['object'] "
                "(and symmetric=True if edges have no direction); if not, "
                f"types={[str(end) for end in own]!r}"
            )
    (first, *others) = headers.values()
    names = [str(end) for end in first]
    if any([str(end) for end in other] != names for other in others):
        return ["row", "column"] if n_axes == 2 else [f"axis_{i}" for i in range(n_axes)]
    fine = all(end.isidentifier() for end in names) and len(set(names)) == n_axes
    return names if fine else [f"axis_{i}" for i in range(n_axes)]


def _family(networks: Mapping[str, Any]) -> str:
    """Choose the family of all values."""
    values = np.concatenate([_values(network) for network in networks.values()])
    values = values[~np.isnan(values)]
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli"
    if (values >= 0.0).all() and (values == np.floor(values)).all():
        return "poisson"
    raise ValueError(
        f"networks: values are neither edges (0 and 1) nor counts; found "
        f"{values[(values < 0) | (values != np.floor(values))][0]:g}. Bring weights to mean 0 and "
        "variance about 1 and say family='normal', or make edges of them (x > 0)"
    )


def _values(network: Any) -> np.ndarray:
    if scipy.sparse.issparse(network):
        return np.asarray(network.data, np.float64).ravel()
    if isinstance(network, pd.DataFrame) and "value" in network:
        return network["value"].to_numpy(np.float64)
    if isinstance(network, np.ma.MaskedArray):
        return np.asarray(network.compressed(), np.float64)
    if isinstance(network, np.ndarray | pd.DataFrame | xr.DataArray):
        return np.asarray(network, np.float64).ravel()
    return np.ones(0)
