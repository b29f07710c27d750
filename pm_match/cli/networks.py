"""Networks: files of them, the model, and what comes out."""

from __future__ import annotations

import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import scipy.io
import scipy.sparse
import xarray as xr

from pm_match import plots
from pm_match.cli.cells import (
    MISSING,
    InputError,
    is_market,
    named,
    numbers,
    read_cells,
    read_links,
)
from pm_match.cli.output import number_of_clusters, write_matches
from pm_match.matching import Diagnosis, cluster_sizes, partition_estimate
from pm_match.matching.chance import beside_chance
from pm_match.models import relational_clusters
from pm_match.networks.data import Network, as_network
from pm_match.report.csv import write_csv
from pm_match.report.html_report import report as write_page

__all__ = ["Networks", "is_matrix"]

_TOP = 10
# How messages say what the command line calls otherwise.
_SPELLED = {
    'family="poisson"': "--family poisson",
    'absent="unknown"': "--absent unknown",
    "self_loops=True": "--self-loops",
}


class Networks:
    """The work on networks, whose objects share the clusters of their type.

    Parameters
    ----------
    options : Namespace
        The command line's.

    Raises
    ------
    InputError
        If a file cannot be used, or options contradict each other or the files.
    """

    def __init__(self, options: Namespace):
        self.options = options
        default = "poisson" if options.degree_correction else "bernoulli"
        self.family: Any = options.family or default
        if options.degree_correction and self.family != "poisson":
            raise InputError(
                "--degree-correction multiplies Poisson rates: expected --family poisson; "
                f"found {self.family}"
            )
        if options.links and not options.no_relevance:
            raise InputError(
                "--links needs --no-relevance: linked objects must be relevant, and otherwise any "
                "object may be irrelevant"
            )
        self.one_mode = bool(
            options.one_mode
            or options.symmetric
            or options.self_loops
            or (options.types and len(options.types) == 1)
        )
        if self.one_mode and options.types and len(options.types) > 1:
            raise InputError(
                "--types: with --one-mode, --symmetric or --self-loops all objects are of one "
                f"type; found {','.join(options.types)}"
            )
        n_axes = 2 if self.one_mode else len(options.types or (1, 2))
        read = {name: _read(file, n_axes) for name, file in named(options.files, "network")}
        self.symmetric = self._is_symmetric(list(read.values()))
        self.types = self._types(list(read.values()))
        self.networks = {name: self._network(name, found) for name, found in read.items()}
        self.links = None
        if options.links:
            objects = {
                f"{name}_{t}": labels
                for name, network in self.networks.items()
                for t, labels in zip(self.types, network.labels, strict=False)
            }
            self.links = read_links(options.links, objects, "axis")

    def _is_symmetric(self, found: Sequence[_Read]) -> bool:
        """Whether networks are undirected: if told, or if the headers of all files say so."""
        folded = [read for read in found if read.symmetric]
        if self.options.symmetric or not folded:
            return bool(self.options.symmetric)
        if not self.one_mode:
            raise InputError(
                f"{folded[0].file}: its header says 'symmetric', so rows and columns are the same "
                "objects; say --symmetric (undirected edges between objects of one type)"
            )
        if len(folded) < len(found):
            other = next(read for read in found if not read.symmetric)
            raise InputError(
                f"{folded[0].file}: its header says 'symmetric', and {other.file} is not said to "
                "be; say --symmetric if edges are undirected in all files"
            )
        return True

    def _types(self, found: Sequence[_Read]) -> tuple[str, ...]:
        """Give the names of the types: those told, or those in the headers of all edge lists."""
        if self.options.types:
            return tuple(self.options.types)
        if self.one_mode:
            return ("object",)
        headers = {read.header for read in found}
        header = headers.pop()
        if headers or len(set(header)) < 2 or not all(t.isidentifier() for t in header):
            return ("row", "column")
        return header

    def _network(self, name: str, read: _Read) -> Network:
        try:
            network = as_network(
                name,
                read.cells,
                family=self.family,
                absent=self.options.absent or "zero",
                one_mode=self.one_mode,
                symmetric=self.symmetric,
                self_loops=bool(self.options.self_loops),
                columns=None if read.columns is None else list(read.columns),
            )
        except (ValueError, TypeError) as error:
            message = str(error)
            for argument, option in _SPELLED.items():
                message = message.replace(argument, option)
            raise InputError(f"{read.file}: {message}") from error
        if is_market(read.file):  # whose rows and columns count from 1
            labels = tuple(pd.RangeIndex(1, n + 1) for n in network.shape)
            network = replace(network, labels=labels)
        return network

    def declare(self) -> pm.Model:
        """Declare the model."""
        options = self.options
        return relational_clusters(
            self.networks,
            relevance=not options.no_relevance,
            n_clusters=options.clusters,
            types=self.types,
            family=self.family,
            weights=options.weights or "stick-breaking",
            one_mode=self.one_mode,
            symmetric=self.symmetric,
            self_loops=bool(options.self_loops),
            exposure="degree" if options.degree_correction else None,
            links=self.links,
        )

    def report(
        self, idata: xr.DataTree, out: Path, diagnosis: Diagnosis
    ) -> tuple[str, dict[str, Any]]:
        """Write tables and a page; return a summary, and figures by name."""
        shown = sys.stderr.isatty()
        labels = partition_estimate(idata, progressbar=shown)
        files = {
            (f"cluster_{a}_{t}", f"cluster_{b}_{t}"): f"{a}_{b}_{t}"
            for t in self.types
            for a in self.networks
            for b in self.networks
        }
        write_matches(idata, out, self.options.top or _TOP, files)
        objects = self._objects(idata, labels)
        write_csv(objects, out / "clusters.csv", index=False, float_format="%.6g")
        sizes = self._sizes(labels)
        write_csv(sizes, out / "cluster_sizes.csv")
        counts = [f"{number_of_clusters(sizes.loc[t].index)} of type {t}" for t in self.types]
        summary = (
            f"clusters: {', '.join(counts)}; objects of each network in them:\n\n"
            f"{sizes.to_string()}\n\n" + "\n".join(beside_chance(idata))
        )
        figures = {"alluvial": plots.plot_alluvial(labels)}
        matrices = None
        if len(self.types) <= 2:
            matrices = {name: self._matrix(network) for name, network in self.networks.items()}
            figures["networks"] = plots.plot_networks(matrices, labels, types=self.types)
        write_page(idata, out / "report.html", data=matrices, labels=labels, diagnosis=diagnosis)
        return summary, figures

    def _objects(self, idata: xr.DataTree, labels: xr.Dataset) -> pd.DataFrame:
        """Every object's cluster, and the probability that it is relevant."""
        rows = []
        for name in self.networks:
            for t in self.types:
                label = labels[f"cluster_{name}_{t}"]
                columns = {
                    "network": name,
                    "type": t,
                    "object": label[label.dims[0]].to_numpy(),
                    "cluster": label.to_numpy(),
                }
                if not self.options.no_relevance:
                    flags = idata["posterior"][f"relevance_{name}_{t}"]
                    columns["p_relevant"] = flags.mean(("chain", "draw")).to_numpy()
                rows.append(pd.DataFrame(columns))
        return pd.concat(rows)

    def _sizes(self, labels: xr.Dataset) -> pd.DataFrame:
        """Objects of every network in every cluster of every type."""
        tables = {}
        for t in self.types:
            own = {f"{name}_{t}": name for name in self.networks}
            counted = cluster_sizes(labels[[f"cluster_{key}" for key in own]])
            tables[t] = counted.rename(columns=own)
        return pd.concat(tables, names=["type", "cluster"])

    def _matrix(self, network: Network) -> scipy.sparse.coo_array:
        """Give the network as a matrix, with both triangles."""
        index, values = network.index, network.values
        if self.symmetric:
            below = index[:, 0] != index[:, 1]
            index = np.concatenate([index, index[below][:, ::-1]])
            values = np.concatenate([values, values[below]])
        return scipy.sparse.coo_array((values, (index[:, 0], index[:, 1])), shape=network.shape)


@dataclass(frozen=True, eq=False)
class _Read:
    """What a file says."""

    file: Path
    cells: Any  # a matrix, or a DataFrame
    columns: tuple[str, ...] | None = None  # of an edge list
    header: tuple[str, ...] = ()  # what an edge list calls rows and columns
    symmetric: bool = False  # whether the file says that the matrix is


def is_matrix(file: Path) -> bool:
    """Whether a file is a matrix by its name, and not text with commas."""
    return is_market(file) or file.suffix.lower() == ".npz"


def _read(file: Path, n_axes: int) -> _Read:
    if not is_matrix(file):
        return _read_edges(file, n_axes)
    if n_axes != 2:
        raise InputError(
            f"{file}: a matrix has two types of objects; found {n_axes} (edge lists may have more)"
        )
    return _read_market(file) if is_market(file) else _read_npz(file)


def _read_market(file: Path) -> _Read:
    with _reading(file, "a MatrixMarket file that can be read"), warnings.catch_warnings():
        # SciPy announces that its matrices become arrays: either will do.
        warnings.simplefilter("ignore", DeprecationWarning)
        symmetry = scipy.io.mminfo(file)[-1]
        cells = scipy.io.mmread(file)
    if symmetry not in ("general", "symmetric"):
        raise InputError(f"{file}: expected a general or symmetric matrix; found {symmetry}")
    return _Read(file, cells, symmetric=symmetry == "symmetric")


def _read_npz(file: Path) -> _Read:
    with _reading(file, "a sparse matrix as scipy.sparse.save_npz writes it"):
        return _Read(file, scipy.sparse.load_npz(file))


@contextmanager
def _reading(file: Path, what: str) -> Iterator[None]:
    """Say what a file was expected to be where it cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{file}: No such file or directory") from error
    except Exception as error:  # of many kinds, as the file may be anything
        raise InputError(f"{file}: not {what} ({error})") from error


def _read_edges(file: Path, n_axes: int) -> _Read:
    cells = read_cells(file)
    header, body = cells.iloc[0].tolist(), cells.iloc[1:]
    if len(header) not in (n_axes, n_axes + 1):
        more = " (name all types of objects with --types)" if len(header) > n_axes + 1 else ""
        raise InputError(
            f"{file}: an edge list has {n_axes} columns of labels, then perhaps one of values; "
            f"found {len(header)} columns{more}"
        )
    if not len(body):
        raise InputError(f"{file}: the edge list has no edges")
    for i in range(n_axes):
        if header[i] in set(body[i]) or not numbers(cells.loc[[0], i]).isna().all():
            raise InputError(
                f"{file}: expected a header line, such as row,column; found the label "
                f"{header[i]!r} there"
            )
        empty = body[i] == ""
        if empty.any():
            raise InputError(f"{file}: row {empty.idxmax()}: column {i + 1} has no label")
    columns = tuple(f"column {i + 1}" for i in range(len(header)))
    table = pd.DataFrame({columns[i]: body[i] for i in range(n_axes)})
    if len(header) == n_axes:
        table["value"] = 1.0
        columns = (*columns, "value")
    else:
        table[columns[n_axes]] = _values(file, header[n_axes], body[n_axes])
    return _Read(file, table, columns, tuple(header[:n_axes]))


def _values(file: Path, header: str, column: pd.Series) -> pd.Series:
    if not numbers(pd.Series([header])).isna().all():
        raise InputError(
            f"{file}: expected a header line, such as row,column,value; found {header!r}"
        )
    empty = column.isin(MISSING)
    if empty.any():
        raise InputError(
            f"{file}: row {empty.idxmax()}: the edge has no value; leave out what is unknown, and "
            "say --absent unknown"
        )
    values = numbers(column)
    text = values.isna()
    if text.any():
        raise InputError(
            f"{file}: row {text.idxmax()}: expected a number as the edge's value; "
            f"found {column[text].iloc[0]!r}"
        )
    return values
