"""Networks: files of them, the model, and what comes out."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import scipy.io
import scipy.sparse
import xarray as xr

from pm_match import plots
from pm_match.cli.output import number_of_clusters, write_matches
from pm_match.front.cells import InputError, is_market, named, read_links
from pm_match.front.files import NetworkFile, read_network_file
from pm_match.matching import Diagnosis, cluster_sizes, partition_estimate
from pm_match.matching.chance import beside_chance
from pm_match.models import relational_clusters
from pm_match.networks.data import Network, as_network
from pm_match.report.csv import write_csv
from pm_match.report.html_report import report as write_page

__all__ = ["Networks"]

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
        self.words: list[str] = []
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
        read = {
            name: read_network_file(file, n_axes) for name, file in named(options.files, "network")
        }
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

    def _is_symmetric(self, found: Sequence[NetworkFile]) -> bool:
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

    def _types(self, found: Sequence[NetworkFile]) -> tuple[str, ...]:
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

    def _network(self, name: str, read: NetworkFile) -> Network:
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
            n_clusters=options.clusters or 25,
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
