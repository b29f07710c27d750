"""Match the clusters of tables: ``python -m pm_match FILE.csv FILE.csv … [options]``."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from pm_match import plots
from pm_match.domains import Domain, as_domains
from pm_match.matching import (
    assignment_names,
    best_chain,
    cluster_sizes,
    log_joint_rhat,
    match_probability,
    point_estimate,
)

_AGREE = 1.05  # R-hat above which chains are said to differ
_MISSING = ["", "NA", "N/A", "NaN", "nan"]

_DESCRIPTION = """\
Match clusters across tables that share no keys: which objects of one table are like which
objects of another, found by posterior sampling. Each FILE is one domain, named after the file:
comma-separated, a header line, one row an object, one column a feature (a number).
"""

_EPILOG = """\
the tables
  The first column holds the objects' labels if its header is empty or none of its cells is a
  number; otherwise it is a feature like the others, and objects are numbered from 1. Empty cells
  (also NA, N/A and NaN) are missing values. Features in different units should be brought to one
  scale: --standardize does.

the links
  LINKS.csv says which objects are known to share a cluster. Its header names domains (files
  without .csv); each row holds one object's label a domain, at least two, the others empty:
      upright,half
      img17,img203
      img4,img11

what comes out, in DIR
  match_A_B.csv           P(same cluster) of each object of A (rows) and of B (columns)
  clusters.csv            the point estimate: domain, object, cluster (0 is the largest)
  cluster_sizes.csv       objects in each cluster and domain
  draws.nc                everything drawn, as netCDF: xarray.open_datatree("draws.nc")
  match_probability.png   the match probabilities, objects ordered by cluster
  clusters.png            what sets the clusters apart: their mean profiles
  trace.png               the chains

example
  python -m pm_match upright.csv half.csv --links links.csv --seed 1 --out result
"""


class InputError(Exception):
    """The user's files or options cannot be used; the message says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.

    Returns
    -------
    int
        Exit status: 0. Bad input exits with status 2 and a message.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        _need_examples()
        domains = read_domains(options.files)
        links = read_links(options.links, domains) if options.links else None
        out = options.out
        out.mkdir(parents=True, exist_ok=True)
        if options.standardize:
            domains = {name: _standardized(domain) for name, domain in domains.items()}
    except (InputError, OSError) as error:
        parser.exit(2, f"pm_match: error: {error}\n")

    import matplotlib as mpl

    import pm_match as pmm

    mpl.use("Agg")
    tables = {name: _frame(domain) for name, domain in domains.items()}
    try:
        model = pmm.models.projected_clusters(
            tables,
            n_factors=options.factors,
            n_clusters=options.clusters,
            projection=options.projection,
            links=links,
        )
    except (ValueError, TypeError) as error:
        parser.exit(2, f"pm_match: error: {error}\n")
    start = time.perf_counter()
    idata = pmm.sample(
        draws=options.draws,
        tune=options.tune,
        chains=options.chains,
        cores=options.cores,
        random_seed=options.seed,
        progressbar=sys.stderr.isatty(),
        model=model,
    )
    seconds = time.perf_counter() - start

    rhat = log_joint_rhat(idata)
    kept = best_chain(idata) if options.best_chain else idata
    labels = point_estimate(kept)
    sizes = cluster_sizes(labels)
    write_tables(kept, labels, out)
    sizes.to_csv(out / "cluster_sizes.csv")
    write_draws(idata, out / "draws.nc")
    for name, figure in {
        "match_probability": plots.plot_match_matrix(kept, labels=labels),
        "clusters": plots.plot_clusters(labels, tables),
        "trace": plots.plot_trace(idata),
    }.items():
        figure.savefig(out / f"{name}.png", dpi=150)

    print(f"{len(sizes)} clusters; objects of each domain in them:\n")
    print(sizes.to_string())
    print("\nMean log joint of each chain\n")
    means = idata["sample_stats"]["log_joint"].mean("draw").to_series()
    print(means.to_string(float_format="{:.1f}".format, header=False))
    print(f"\nR-hat of the log joint  {rhat:.3f}   (chains agree when below {_AGREE})")
    if options.best_chain:
        print(f"reported                chain {int(kept['posterior']['chain'].item())}, the best")
    elif rhat > _AGREE:
        print("                        The chains settled in different modes, and what is reported")
        print("                        averages over them: consider --best-chain.")
    print(f"sampling                {seconds:.1f} s")
    print(f"written to              {out}")
    return 0


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
    source: dict[str, Path] = {}
    for file in files:
        name = _identifier(file.stem)
        if name in source:
            raise InputError(
                f"{file}: gives the domain name {name!r}, as {source[name]} does; rename one"
            )
        source[name] = file
        tables[name] = _read_table(file)
        try:
            as_domains({name: tables[name]})
        except (ValueError, TypeError) as error:
            raise InputError(f"{file}: {error}") from error
    try:
        return as_domains(tables)
    except ValueError as error:  # names that clash with each other
        raise InputError(str(error)) from error


def read_links(file: Path, domains: Mapping[str, Domain]) -> list[dict[str, list[int]]]:
    """Read which objects are known to share a cluster.

    Parameters
    ----------
    file : Path
        Comma-separated: the header names domains, each row one object's label a domain.
    domains : mapping of str to Domain
        The tables that hold the objects.

    Returns
    -------
    list of dict
        Positions of objects by domain; the k-th entries of a dictionary are linked. One
        dictionary for each set of domains that rows link.

    Raises
    ------
    InputError
        If the file cannot be read, or a row links no two objects or names an unknown one.
    """
    cells = _read_cells(file)
    columns = [_identifier(name) for name in cells.iloc[0]]
    for column in columns:
        if column not in domains:
            raise InputError(f"{file}: unknown domain {column!r}; there are {list(domains)}")
        if columns.count(column) > 1:
            raise InputError(f"{file}: domain {column!r} has more than one column")
    position = {
        name: {str(label): i for i, label in enumerate(domain.objects)}
        for name, domain in domains.items()
    }
    groups: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for line, row in zip(cells.index[1:], cells.iloc[1:].to_numpy(), strict=True):
        linked = {
            name: label for name, label in zip(columns, row, strict=True) if label not in _MISSING
        }
        if len(linked) < 2:
            raise InputError(
                f"{file}: row {line}: expected labels of at least two objects; found {len(linked)}"
            )
        group = groups.setdefault(tuple(linked), {name: [] for name in linked})
        for name, label in linked.items():
            if label not in position[name]:
                raise InputError(f"{file}: row {line}: domain {name!r} has no object {label!r}")
            group[name].append(position[name][label])
    return list(groups.values())


def write_tables(idata: xr.DataTree, labels: xr.Dataset, out: Path) -> None:
    """Write the match probabilities of every pair of domains and the clusters, as CSV.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.
    labels : Dataset
        The point estimate of its partition.
    out : Path
        An existing folder.
    """
    names = assignment_names(idata)
    for a, b in list(combinations(names, 2)) or [(name, name) for name in names]:
        first, second = (name.removeprefix("cluster_") for name in (a, b))
        table = match_probability(idata, a, b).to_pandas()
        table.to_csv(out / f"match_{first}_{second}.csv", index_label="", float_format="%.6g")
    rows = [
        pd.DataFrame(
            {
                "domain": name.removeprefix("cluster_"),
                "object": labels[name][labels[name].dims[0]].to_numpy(),
                "cluster": labels[name].to_numpy(),
            }
        )
        for name in names
    ]
    pd.concat(rows).to_csv(out / "clusters.csv", index=False)


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


def _read_cells(file: Path) -> pd.DataFrame:
    """Read all cells as stripped text: the header is row 0 and the index counts rows from 1."""
    try:
        cells = pd.read_csv(
            file,
            header=None,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            encoding="utf-8-sig",
            skipinitialspace=True,
        )
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{file}: the file is empty") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text file in UTF-8 ({error.reason})") from error
    except pd.errors.ParserError as error:
        detail = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise InputError(
            f"{file}: rows differ in their number of cells, or the header is shorter than they "
            f"({detail})"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    # A row that is too short ends in NaN; the cells it lacks are missing values.
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    if cells.shape[1] == 1 and any(mark in cells.iloc[0, 0] for mark in ";\t"):
        raise InputError(f"{file}: expected cells separated by commas; found {cells.iloc[0, 0]!r}")
    return cells


def _read_table(file: Path) -> pd.DataFrame:
    cells = _read_cells(file)
    header = cells.iloc[0].tolist()
    body = cells.iloc[1:]
    numbers = {i: _numbers(body[i]) for i in range(len(header))}
    first = body[0]
    present = ~first.isin(_MISSING)
    labelled = header[0] == "" or (present.any() and bool(numbers[0][present].isna().all()))
    if labelled:
        index = pd.Index(first, name=header[0] or None)
        if not present.all():
            row = int(np.argmin(present)) + 1
            raise InputError(f"{file}: row {row}: the object has no label")
    else:
        index = pd.RangeIndex(1, len(body) + 1)
    columns = {}
    for i in range(int(labelled), len(header)):
        if header[i] == "":
            raise InputError(f"{file}: column number {i + 1} has no header")
        # Left as text, the column is refused by name with an example of what it holds.
        text = numbers[i].isna() & ~body[i].isin([*_MISSING])
        columns[i] = body[i].where(text) if text.any() else numbers[i]
    table = pd.DataFrame(columns)
    table.index = index
    table.columns = pd.Index(header[int(labelled) :], dtype=str)
    return table


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column.mask(column.isin(_MISSING)), errors="coerce").astype(float)


def _standardized(domain: Domain) -> Domain:
    values = (domain.values - domain.values.mean(axis=0)) / domain.values.std(axis=0)
    return Domain(domain.name, values, domain.objects, domain.features)


def _frame(domain: Domain) -> pd.DataFrame:
    """Give the table with its labels, NaN for a missing value."""
    values = np.ma.filled(domain.values, np.nan)
    return pd.DataFrame(values, index=domain.objects, columns=domain.features)


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text)
    return f"_{name}" if name[:1].isdigit() else name


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _netcdf_engine() -> Literal["netcdf4", "h5netcdf"] | None:
    if _installed("netCDF4"):
        return "netcdf4"
    # h5netcdf by itself cannot write: h5py does that for it.
    return "h5netcdf" if _installed("h5netcdf") and _installed("h5py") else None


def _need_examples() -> None:
    missing = [] if _installed("matplotlib") else ["matplotlib"]
    if _netcdf_engine() is None:
        missing.append("h5netcdf with h5py")
    if missing:
        raise InputError(f'{" and ".join(missing)} not installed: pip install "pm_match[examples]"')


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pm_match",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.csv", help="one a domain")
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR", help="default: .")
    parser.add_argument("--links", type=Path, metavar="LINKS.csv", help="objects known to match")
    parser.add_argument(
        "--standardize", action="store_true", help="give each feature mean 0 and variance 1"
    )
    model = parser.add_argument_group("the model")
    count = _at_least(1)
    model.add_argument(
        "--factors", type=count, default=5, metavar="K", help="latent dimensions (default: 5)"
    )
    model.add_argument(
        "--clusters", type=_at_least(2), default=25, metavar="J", help="at most (default: 25)"
    )
    model.add_argument(
        "--projection",
        choices=("map", "normal"),
        default="map",
        help="projections found by maximisation, or sampled under a normal prior (default: map)",
    )
    sampling = parser.add_argument_group("the sampling")
    sampling.add_argument("--seed", type=_at_least(0), help="for the same draws again")
    sampling.add_argument("--draws", type=count, default=1000, help="a chain (default: 1000)")
    sampling.add_argument(
        "--tune", type=_at_least(0), default=1000, help="thrown away before (default: 1000)"
    )
    sampling.add_argument("--chains", type=count, default=4, help="default: 4")
    sampling.add_argument(
        "--best-chain",
        action="store_true",
        help="report only the chain with the highest log joint, as the papers do",
    )
    sampling.add_argument("--cores", type=count, help="chains at a time (default: PyMC's)")
    return parser


def _at_least(low: int) -> Any:
    def whole_number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(
                f"expected a whole number, at least {low}; found {text!r}"
            )
        return value

    return whole_number


if __name__ == "__main__":
    sys.exit(main())
