"""A result as files: tables, all draws, figures and a page."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
import pandas as pd
import xarray as xr

from pm_match import plots
from pm_match.checks import check_count, identifier
from pm_match.matching import match_probability
from pm_match.matching.draws import PREFIX, assignment_pairs, titled
from pm_match.plots.canvas import no_figure_left
from pm_match.report.csv import write_csv

_TOP = 10
# Pairs of objects above which their matrices are not written.
_MOST_PAIRS = 4_000_000
# Domains above which nobody looks at every pair of them.
_MOST_DOMAINS = 12
# Bytes of a file's name that all file systems take, and letters that are kept of a longer one.
_LONGEST, _KEPT = 200, 40
_FIGURES = ("alluvial", "networks", "match_probability", "clusters", "trace", "log_joint")
_WRITTEN = ("clusters.csv", "cluster_sizes.csv", "draws.nc", "report.html")


def check_folder(folder: Path, force: bool = False) -> bool:
    """Refuse to write where another result is, or without what is needed for it.

    Return whether there is another, which is to be replaced.
    """
    missing = [name for name in ("matplotlib", "itables") if not importlib.util.find_spec(name)]
    if _netcdf_engine() is None:
        missing.append("h5netcdf with h5py")
    if missing:
        raise ImportError(f'{", ".join(missing)} not installed: pip install "pm_match[examples]"')
    there = [name for name in _WRITTEN if (folder / name).exists()]
    if there and not force:
        raise FileExistsError(
            f"{folder}: there is another result ({', '.join(there)}); name another folder, or say "
            "force=True"
        )
    return bool(there)


def write(result: Any, folder: Path, top: int | None = None, force: bool = False) -> Path:
    """Write everything that a `MatchResult` has, as its method of this name says."""
    if top is not None:
        check_count("top", top)
    if check_folder(folder, force):
        # The other result may have had figures, and pairs of domains, that this one has not.
        for old in (*(f"{name}.png" for name in _FIGURES), *_old_matches(folder)):
            (folder / old).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_draws(result.idata, folder / "draws.nc")
    write_csv(_objects(result), folder / "clusters.csv", index=False, float_format="%.6g")
    write_csv(result.clusters, folder / "cluster_sizes.csv")
    _write_matches(result, folder, top or (None if _whole(result) else _TOP))
    result.report(folder / "report.html", progressbar=False)
    with no_figure_left():
        for name, figure in _figures(result):
            figure.savefig(folder / f"{name}.png", dpi=150)
    return folder


def _whole(result: Any) -> bool:
    """Whether all pairs of objects are written: of tables, unless these are large."""
    labels, pairs = result.labels, assignment_pairs(result.kept, alone=True)
    n_pairs = sum(labels[a].size * labels[b].size for a, b in pairs)
    return result.prepared.kind == "tables" and n_pairs <= _MOST_PAIRS


def _old_matches(folder: Path) -> Iterator[str]:
    """Name the files of match probabilities of the result that is in a folder."""
    try:
        old = pd.read_csv(folder / "clusters.csv", dtype=str, keep_default_na=False)
    except (FileNotFoundError, ValueError):  # ValueError: it is no table
        return
    titles, kinds = (
        old[own].unique() if own in old else [""]
        for own in ("network" if "network" in old else "domain", "type")
    )
    names = [identifier(title) for title in titles]
    for one, other, kind in product(names, names, kinds):
        yield _file_of([one, other, kind] if kind else [one, other])


def _file_of(names: list[str]) -> str:
    """Name the file of match probabilities as domains, and a type, are called, but not too long."""
    name = "_".join(names)
    if len(name.encode()) > _LONGEST:
        name = f"{name[:_KEPT]}_{crc32(name.encode()):08x}"
    return f"match_{name}.csv"


def _objects(result: Any) -> pd.DataFrame:
    """Give the table of objects; of networks with network and type apart."""
    if result.prepared.kind == "tables":
        return result.objects
    parts = {
        result.title(name): (result.prepared.titles[network], kind)
        for name, (network, kind) in result.prepared.axes().items()
    }
    apart = pd.DataFrame(
        [parts[domain] for domain in result.objects["domain"]], columns=["network", "type"]
    )
    return apart.join(result.objects.drop(columns="domain"))


def _write_matches(result: Any, folder: Path, top: int | None) -> None:
    """Write the match probabilities of every pair of domains whose clusters are of one set."""
    axes = result.prepared.axes()
    for a, b in assignment_pairs(result.kept, alone=True):
        (one, kind), (other, _) = (axes[name.removeprefix(PREFIX)] for name in (a, b))
        names = [one, other] if kind is None else [one, other, kind]
        write_matches(result.kept, folder / _file_of(names), a, b, top)


def write_matches(idata: xr.DataTree, file: Path, a: str, b: str, top: int | None = None) -> None:
    """Write the match probabilities of two assignments: a matrix, or the `top` most likely."""
    if top is None:
        table = pd.DataFrame(match_probability(idata, a, b).to_pandas())
        write_csv(table, file, index_label="", float_format="%.6g")
        return
    best = match_probability(idata, a, b, top=top)
    write_csv(best, file, index=False, float_format="%.6g")


def _figures(result: Any) -> Iterator[tuple[str, Any]]:
    """Draw what there is to see."""
    prepared = result.prepared
    titles, axes, drawable = prepared.titles, prepared.axes(), prepared.drawable()
    if drawable is not None:
        drawable = {titles[name]: own for name, own in drawable.items()}
    labels = result.shown_labels
    yield "alluvial", plots.plot_alluvial(labels)
    if prepared.kind == "networks":
        if drawable is not None:
            sides = {name: f"{titles[own]}_{kind}" for name, (own, kind) in axes.items()}
            own = titled(result.labels, sides)
            yield "networks", plots.plot_networks(own, drawable, types=prepared.options["types"])
    else:
        if len(labels.data_vars) <= _MOST_DOMAINS:
            yield "match_probability", plots.plot_match_matrix(result.shown, labels=labels)
        if drawable is not None:
            yield "clusters", plots.plot_clusters(labels, drawable)
    if result.idata["posterior"].sizes["draw"] > 1:
        yield "trace", plots.plot_trace(result.idata)
        yield "log_joint", plots.plot_log_joint(result.idata)


def write_draws(idata: xr.DataTree, file: Path) -> None:
    """Write a DataTree as netCDF; an existing file is replaced."""
    tree = idata.copy()
    for node in tree.subtree:
        dataset = node.to_dataset(inherit=False)
        dataset.attrs = _attributes(dataset.attrs)
        for variable in dataset.variables.values():
            variable.attrs = _attributes(variable.attrs)
        node.dataset = dataset
    tree.to_netcdf(file, engine=_netcdf_engine())


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


def _netcdf_engine() -> Literal["netcdf4", "h5netcdf"] | None:
    """Name what netCDF can be written with, if anything is installed."""
    if importlib.util.find_spec("netCDF4"):
        return "netcdf4"
    # h5netcdf by itself cannot write: h5py does that for it.
    return "h5netcdf" if all(map(importlib.util.find_spec, ("h5netcdf", "h5py"))) else None
