"""Tables of features: files of them, the model, and what comes out."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pymc as pm
import xarray as xr

from pm_match import plots
from pm_match.cli.output import number_of_clusters, write_matches
from pm_match.front.cells import InputError, named, read_links
from pm_match.front.files import read_table_file
from pm_match.front.prepare import choose_model, left_out_of, look_at_table, prepare
from pm_match.matching import Diagnosis, cluster_sizes, partition_estimate
from pm_match.matching.chance import beside_chance
from pm_match.report.csv import write_csv
from pm_match.report.html_report import report as write_page
from pm_match.tables.standardise import standardise

__all__ = ["Tables"]

_PREFIX = "cluster_"


class Tables:
    """The work on tables: one for each domain, whose objects share clusters.

    Parameters
    ----------
    options : Namespace
        The command line's.

    Raises
    ------
    InputError
        If a file cannot be used.
    """

    def __init__(self, options: Namespace):
        self.options = options
        told = dict.fromkeys(options.ignore or (), "ignore")
        frames = {}
        for name, file in named(options.files, "domain"):
            frames[name] = read_table_file(file)
            try:
                look_at_table(name, frames[name], options.id, told)
            except (ValueError, TypeError) as error:
                raise InputError(f"{file}: {error}") from error
        try:
            self.prepared = prepare(frames, id=options.id, columns=told)
            projected = options.factors or options.projection or options.standardize
            self.model = options.model or (
                "projected_clusters"
                if projected
                else choose_model(self.prepared, options.links is not None)
            )
        except ValueError as error:
            raise InputError(str(error)) from error
        if projected and self.model != "projected_clusters":
            raise InputError(
                "--factors, --projection and --standardize are for --model projected_clusters; "
                f"found {self.model}"
            )
        self.words = [
            *self.prepared.words(),
            *left_out_of(self.prepared, self.model),
            f"The model is {self.model}.",
        ]
        objects = {name: own.index for name, own in self.prepared.data.items()}
        self.links = read_links(options.links, objects) if options.links else None
        if options.standardize:
            scaled = standardise(self.prepared.numeric())
            frames = {name: pd.DataFrame(own.to_pandas()) for name, own in scaled.items()}
            self.prepared = replace(self.prepared, data=frames)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What is matched, by name."""
        return self.prepared.data

    def declare(self) -> pm.Model:
        """Declare the model."""
        options = self.options
        own: dict[str, Any] = {} if options.clusters is None else {"n_clusters": options.clusters}
        if self.model == "projected_clusters":
            own |= {"n_factors": options.factors or 5, "projection": options.projection or "map"}
        return self.prepared.declare(self.model, links=self.links, **own)

    def report(
        self, idata: xr.DataTree, out: Path, diagnosis: Diagnosis
    ) -> tuple[str, dict[str, Any]]:
        """Write tables and a page; return a summary, and figures by name."""
        shown = sys.stderr.isatty()
        labels = partition_estimate(idata, progressbar=shown)
        sizes = cluster_sizes(labels)
        write_matches(idata, out, self.options.top)
        rows = [
            pd.DataFrame(
                {
                    "domain": str(name).removeprefix(_PREFIX),
                    "object": label[label.dims[0]].to_numpy(),
                    "cluster": label.to_numpy(),
                }
            )
            for name, label in labels.items()
        ]
        write_csv(pd.concat(rows), out / "clusters.csv", index=False)
        write_csv(sizes, out / "cluster_sizes.csv")
        data = self.prepared.if_numeric()
        write_page(idata, out / "report.html", data=data, labels=labels, diagnosis=diagnosis)
        found = f"{number_of_clusters(sizes.index)} clusters; objects of each domain in them:"
        worth = "\n".join(beside_chance(idata))
        figures = {
            "match_probability": plots.plot_match_matrix(idata, labels=labels),
            "alluvial": plots.plot_alluvial(labels),
        }
        if data is not None:
            figures["clusters"] = plots.plot_clusters(labels, data)
        return f"{found}\n\n{sizes.to_string()}\n\n{worth}", figures
