"""What `pm_match.find_matching` finds on data whose clusters are known, with peers beside it.

Rows are data: the synthetic domains of Iwata, Hirao & Ueda (2016) and variations of them, the
synthetic networks of Iwata & Ishiguro (2017), and real tables and images, whose features are split
between domains or whose objects are. For every row several data sets (or splits) are matched:

- ``index``: the index of the paper, mean ± standard error over data sets. It is the adjusted Rand
  index over the objects of all domains; of networks the matching index, averaged over both types;
- ``over truth``: how much higher the log joint of what was found is than that of a search that
  begins at the true clusters. Where it is above zero, the search did its work: what index is
  missing is the model's;
- ``clusters``: how many were found;
- ``CPU s``: seconds of the search, all starts together, a choice of the number of factors included,
  the declaration and reading of the model too;
- peers, *told the true number of clusters*, which pm_match is not: k-means in every domain with
  Gromov–Wasserstein between the means (``k-means + GW``), and between the objects
  (``object GW``). They are for tables only.

``glass`` needs a folder with the file that `pm_match.datasets.load_glass` describes. Peers need
scikit-learn and POT. What is missing is skipped, and said so.

Run ``python -m case_studies.search --out search``.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm

import pm_match as pmm
from case_studies.peers import cluster_gromov_wasserstein, object_gromov_wasserstein
from case_studies.search_data import ROWS, Problem
from case_studies.truth_start import truth_start
from pm_match import datasets

PEERS = {"k-means + GW": cluster_gromov_wasserstein, "object GW": object_gromov_wasserstein}


def main(argv: Sequence[str] | None = None) -> None:
    """Search, print the table and write it with a figure.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    mpl.use("Agg")
    if min(options.sets, options.starts) < 1:
        raise SystemExit("--sets and --starts must be at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    logging.getLogger("pymc").setLevel(logging.ERROR)
    began = time.perf_counter()
    names = [name for name in ROWS if name in (options.only or ROWS)]

    found: list[dict] = []
    compiled: set[str] = set()
    for name in names:
        row = ROWS[name]
        if row.needs_folder and options.folder is None:
            print(f"{name}: skipped, its file is in no FOLDER that was given", flush=True)
            continue
        for seed in range(options.first, options.first + options.sets):
            try:
                problem = row.make(options.folder, seed)
            except (FileNotFoundError, ImportError) as error:
                print(f"{name}: skipped, {error}", flush=True)
                break
            if row.group not in compiled:
                _compile(row.group)
                compiled.add(row.group)
            found.append({"data": name, "seed": seed} | one_set(problem, options.starts, seed))
            print(_line(found[-1]), flush=True)
            # After every set, so that a run that is cut short leaves what it has.
            pd.DataFrame(found).to_csv(options.out / "sets.csv", index=False)
    if not found:
        return
    table = summary(pd.DataFrame(found))
    table.to_csv(options.out / "table.csv")
    print(f"\nMean ± standard error over data sets, the best of {options.starts} starts each\n")
    print(_readable(table).to_string())
    plot_index(table).savefig(options.out / "index.png", dpi=150)
    print(f"\ntables and figure  {options.out}")
    print(f"everything         {time.perf_counter() - began:.0f} s")


def one_set(problem: Problem, starts: int, seed: int) -> dict[str, float]:
    """Match one data set by search, from the truth, and by peers.

    Parameters
    ----------
    problem : Problem
    starts : int
        Searches, the best of which by log joint counts.
    seed : int
        Of whatever is drawn.

    Returns
    -------
    dict of str to float
        What the columns of the table are made of; NaN for peers that cannot be applied.
    """
    begin = time.process_time()
    model = problem.declare(seed)
    labels, log_joint, n_clusters = _search(model, starts, seed)
    seconds = time.process_time() - begin
    _, height = truth_start(model, problem.truth, seed)
    row = {
        "index": problem.index(labels),
        "over truth": log_joint - height,
        "clusters": n_clusters,
        "CPU s": seconds,
    }
    for name, peer in PEERS.items():
        row[name] = np.nan
        if problem.peers:
            try:
                matched = peer.match(problem.peers, problem.n_clusters, seed)
            except ImportError:
                continue
            row[name] = problem.index({f"cluster_{d}": own for d, own in matched.items()})
    return row


def _search(model: pm.Model, starts: int, seed: int):
    """Return labels by assignment, the log joint, and the number of clusters of the best start."""
    with warnings.catch_warnings():
        # That only one start found the best is what several are for.
        warnings.filterwarnings("ignore", "only one of")
        found = pmm.find_matching(model, starts=starts, random_seed=seed, progressbar=False)
    log_joints = found["starts"]["log_joint"].to_numpy()
    best = found["starts"].to_dataset().isel(start=int(log_joints.argmax()))
    labels = {n: v.to_numpy() for n, v in best.items() if str(n).startswith("cluster_")}
    return labels, float(log_joints.max()), int(best["n_occupied"])


def _compile(group: str) -> None:
    """Search a tiny data set once, so that no clock runs while kernels are compiled."""
    if group == "networks":
        drawn = datasets.synthetic_networks(n_relevant=10, n_irrelevant=2, random_seed=0)
        model = pmm.models.relational_clusters(drawn.networks)
    else:
        domains = datasets.synthetic(n_objects=30, n_features=4, n_clusters=2, random_seed=0)
        if group == "synthetic":
            model = pmm.models.projected_clusters(domains, n_factors=2)
        else:
            model = pmm.models.table_clusters(domains, 3)
    _search(model, 1, 0)


# -- the table -------------------------------------------------------------------------------------


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Give means and standard errors of all columns over the data sets of each kind.

    Parameters
    ----------
    found : DataFrame
        A row for each data set, with its kind in ``data``.

    Returns
    -------
    DataFrame
        A row for each kind, in the order of `ROWS`; a column for each quantity, one with its
        standard error, and ``target``, ``sets`` and ``lowest over truth``.
    """
    columns = ["index", "over truth", "clusters", "CPU s", *PEERS]
    grouped = found.groupby("data", sort=False)
    means, errors = grouped[columns].mean(), grouped[columns].sem()
    table = pd.DataFrame(index=means.index)
    table["target"] = [ROWS[str(name)].target for name in means.index]
    table["sets"] = grouped.size()
    for column in columns:
        table[column] = means[column]
        table[f"{column} s.e."] = errors[column]
    table["lowest over truth"] = grouped["over truth"].min()
    return table.reindex([name for name in ROWS if name in table.index])


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    shown = pd.DataFrame(index=table.index)
    shown["aim"] = [f">= {target:.2f}" for target in table["target"]]
    for column, places in {"index": 3, "over truth": 1, "clusters": 1, "CPU s": 1}.items():
        shown[column] = _with_errors(table, column, places)
    shown.insert(3, "lowest", [f"{value:.1f}" for value in table["lowest over truth"]])
    for column in PEERS:
        shown[column] = _with_errors(table, column, 3)
    shown["sets"] = table["sets"]
    return shown


def _with_errors(table: pd.DataFrame, column: str, places: int) -> list[str]:
    return [
        "-"
        if np.isnan(mean)
        else f"{mean:.{places}f}" + ("" if np.isnan(error) else f" ± {error:.{places}f}")
        for mean, error in zip(table[column], table[f"{column} s.e."], strict=True)
    ]


def _line(row: dict) -> str:
    peers = ", ".join(f"{name} {row[name]:.3f}" for name in PEERS if not np.isnan(row[name]))
    return (
        f"{row['data']}, seed {row['seed']}: index {row['index']:.3f}, log joint over truth's "
        f"{row['over truth']:.1f}, {row['clusters']} clusters, {row['CPU s']:.1f} CPU s"
        + (f"; {peers}" if peers else "")
    )


# -- the figure ------------------------------------------------------------------------------------


def plot_index(table: pd.DataFrame):
    """Draw the index by data, peers beside it.

    Parameters
    ----------
    table : DataFrame
        From `summary`.

    Returns
    -------
    Figure
        Dots with standard errors, told apart by shape and shade.
    """
    from matplotlib import pyplot as plt

    styles = {
        "index": ("pm_match, number of clusters unknown", "o", "black", "black"),
        "k-means + GW": ("k-means + Gromov–Wasserstein, number given", "s", "0.5", "0.75"),
        "object GW": ("Gromov–Wasserstein of objects, number given", "^", "0.5", "white"),
    }
    names = list(table.index)
    figure, axis = plt.subplots(figsize=(7.5, 1.8 + 0.34 * len(names)), layout="constrained")
    place = np.arange(len(names), dtype=float)
    for number, (column, (label, marker, edge, face)) in enumerate(styles.items()):
        given = table[column].notna().to_numpy()
        if not given.any():
            continue
        axis.errorbar(
            table[column][given],
            (place + 0.2 * (number - 0.5 * (len(styles) - 1)))[given],
            xerr=table[f"{column} s.e."].fillna(0.0)[given],
            fmt=marker,
            color=edge,
            markerfacecolor=face,
            markeredgecolor=edge,
            markersize=6,
            capsize=2,
            lw=1,
            label=label,
        )
    axis.scatter(
        table["target"], place, marker="|", s=220, color="black", lw=1, alpha=0.5, label="aimed at"
    )
    for between in place[1:] - 0.5:
        axis.axhline(between, color="0.92", lw=0.8, zorder=0)
    axis.set_yticks(place, names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(min(-0.02, float(table["index"].min()) - 0.05), 1.02)
    axis.set_xlabel("index of the matching: mean ± standard error")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.search",
        description="What the search finds on data whose clusters are known, and what peers find.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="with files of real data sets")
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="DATA", help=", ".join(ROWS))
    parser.add_argument("--sets", type=int, default=10, help="data sets, or splits, of each kind")
    parser.add_argument("--first", type=int, default=3, metavar="SEED", help="of the first set")
    parser.add_argument("--starts", type=int, default=2, help="searches of each data set")
    parser.add_argument("--out", type=Path, default=Path("search"), help="for tables and figure")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
