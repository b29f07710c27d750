"""Tables of features: files of them, the model, and what comes out."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

from pm_match import plots
from pm_match.cli.cells import MISSING, InputError, named, numbers, read_cells, read_links
from pm_match.cli.output import number_of_clusters, write_matches
from pm_match.matching import Diagnosis, cluster_sizes, partition_estimate
from pm_match.matching.chance import beside_chance
from pm_match.models import projected_clusters
from pm_match.report.csv import write_csv
from pm_match.report.html_report import report as write_page
from pm_match.tables.domains import Domain, as_domains
from pm_match.tables.standardise import standardise

__all__ = ["Tables", "read_domains"]

_PREFIX = "cluster_"


class Tables:
    """The work on tables: one a domain, whose objects share clusters.

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
        domains = read_domains(options.files)
        objects = {name: domain.objects for name, domain in domains.items()}
        self.links = read_links(options.links, objects) if options.links else None
        self.tables: dict[str, Any] = {name: _frame(domain) for name, domain in domains.items()}
        if options.standardize:
            self.tables = dict(standardise(self.tables))

    def declare(self) -> pm.Model:
        """Declare the model."""
        options = self.options
        return projected_clusters(
            self.tables,
            n_factors=options.factors or 5,
            n_clusters=options.clusters,
            projection=options.projection or "map",
            links=self.links,
        )

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
        write_page(idata, out / "report.html", data=self.tables, labels=labels, diagnosis=diagnosis)
        found = f"{number_of_clusters(sizes.index)} clusters; objects of each domain in them:"
        worth = "\n".join(beside_chance(idata))
        return f"{found}\n\n{sizes.to_string()}\n\n{worth}", {
            "match_probability": plots.plot_match_matrix(idata, labels=labels),
            "clusters": plots.plot_clusters(labels, self.tables),
            "alluvial": plots.plot_alluvial(labels),
        }


def read_domains(files: Sequence[Path]) -> dict[str, Domain]:
    """Read and check one table a file.

    Parameters
    ----------
    files : sequence of Path
        Comma-separated tables; see ``python -m pm_match --help`` for the rules.

    Returns
    -------
    dict of str to Domain
        Named after the files, made into identifiers.

    Raises
    ------
    InputError
        If a file cannot be read or used, or two give the same name.
    """
    tables: dict[str, pd.DataFrame] = {}
    for name, file in named(files, "domain"):
        tables[name] = _read_table(file)
        try:
            as_domains({name: tables[name]})
        except (ValueError, TypeError) as error:
            raise InputError(f"{file}: {error}") from error
    try:
        return as_domains(tables)
    except ValueError as error:  # names that clash with each other
        raise InputError(str(error)) from error


def _read_table(file: Path) -> pd.DataFrame:
    cells = read_cells(file)
    header = cells.iloc[0].tolist()
    body = cells.iloc[1:]
    values = {i: numbers(body[i]) for i in range(len(header))}
    first = body[0]
    present = ~first.isin(MISSING)
    labelled = header[0] == "" or (present.any() and bool(values[0][present].isna().all()))
    if labelled:
        index = pd.Index(first, name=header[0] or None)
        if not present.all():
            row = int(np.argmin(present)) + 1
            raise InputError(f"{file}: row {row}: the object has no label")
    else:
        index = pd.RangeIndex(1, len(body) + 1)
    names = pd.Series(header[int(labelled) :], dtype=str)
    if len(names) and numbers(names).notna().all():
        raise InputError(
            f"{file}: expected names of columns in the first line; found numbers "
            f"({', '.join(names[:3])}{', …' if len(names) > 3 else ''}): add a line with names, or "
            "let names begin with a letter"
        )
    columns = {}
    for i in range(int(labelled), len(header)):
        if header[i] == "":
            raise InputError(f"{file}: column number {i + 1} has no header")
        # Left as text, the column is refused by name with an example of what it holds.
        text = values[i].isna() & ~body[i].isin(MISSING)
        columns[i] = body[i].where(text) if text.any() else values[i]
    table = pd.DataFrame(columns)
    table.index = index
    table.columns = pd.Index(header[int(labelled) :], dtype=str)
    return table


def _frame(domain: Domain) -> pd.DataFrame:
    """Give the table with its labels, NaN for a missing value."""
    values = np.ma.filled(domain.values, np.nan)
    return pd.DataFrame(values, index=domain.objects, columns=domain.features)
