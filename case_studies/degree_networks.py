"""Match rows of real networks whose numbers of clusters are chosen, with peers beside.

The degree-corrected model (Poisson rates proportional to degrees, clusters equally probable, any
object possibly irrelevant) of `case_studies.real_networks`, with the numbers of row and column
clusters chosen by `case_studies.cluster_numbers`, its matching found by `pmm.find_matching`; and
what searches with all numbers have in common: all of them, or those that agree most with the best.
The peers are Gromov-Wasserstein of clusters' means and of single rows, and are told the number of
classes.

The folder is that of `case_studies.real_networks`. Run
``python -m case_studies.degree_networks FOLDER --splits 5``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pm_match as pmm
from case_studies.cluster_numbers import choose
from case_studies.peers import network_gromov_wasserstein
from case_studies.real_networks import DATA
from pm_match.datasets import LabelledNetworks

COLUMNS = (4, 8, 12, 16)
ROWS = (2, 3, 4, 5, 6, 8)


def main(argv: Sequence[str] | None = None) -> None:
    """Choose, match and print a row for every split, and means with standard errors.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    rows = []
    for data in options.data:
        for split in range(options.splits):
            loaded = DATA[data](options.folder, options.seed + split)
            rows.append({"data": data, **one(loaded, options, options.seed + split)})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows).groupby("data").agg(["mean", "sem"])
    print(f"\nMatching index of the rows' classes, {options.splits} splits\n")
    print(table.to_string(float_format="{:.3f}".format))


def one(loaded: LabelledNetworks, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Match one split.

    Returns
    -------
    dict
        The indices, and the numbers of clusters that were chosen.
    """
    rows, columns = loaded.types
    start = time.process_time()
    choice = choose(
        lambda n: declare(loaded, n),
        {columns: options.columns, rows: options.rows},
        starts=options.starts,
        random_seed=seed,
    )
    seconds = time.process_time() - start
    starts = choice.found["starts"].to_dataset()
    best = starts.isel(start=int(starts["log_joint"].argmax("start")))
    names = [f"cluster_{name}_{rows}" for name in loaded.networks]
    common = pmm.partition_estimate(
        choice.searches, loss="ari", sample_dims=("search",), var_names=names, progressbar=False
    )

    def matched(labels: xr.Dataset) -> float:
        own = {name: labels[f"cluster_{name}_{rows}"].to_numpy() for name in loaded.networks}
        return index(loaded, own)

    n_classes = len(loaded.label_names)
    peers = {
        "k-means + GW": network_gromov_wasserstein.match_clusters,
        "object GW": network_gromov_wasserstein.match_objects,
    }
    return {
        "best": matched(best),
        "all": matched(common),
        "with the best": matched(choice.consensus(names)),
        **{k: index(loaded, peer(loaded.networks, n_classes, seed)) for k, peer in peers.items()},
        **{f"{t} clusters": n for t, n in choice.n_clusters.items()},
        "CPU s": seconds,
    }


def declare(loaded: LabelledNetworks, n_clusters: dict[str, int]) -> pm.Model:
    """Declare the degree-corrected model with so many clusters of each type."""
    return pmm.models.relational_clusters(
        loaded.networks,
        types=loaded.types,
        n_clusters=n_clusters,
        family="poisson",
        exposure="degree",
        weights="uniform",
    )


def index(loaded: LabelledNetworks, found: dict[str, np.ndarray]) -> float:
    """Compute the matching adjusted Rand index of the rows' classes."""
    return pmm.metrics.matching_adjusted_rand_index(loaded.labels, found)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.degree_networks",
        description="Match rows of real networks whose numbers of clusters are chosen.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="folder with the data")
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA), help="which")
    parser.add_argument("--splits", type=int, default=5, help="of every data set")
    parser.add_argument("--seed", type=int, default=0, help="of the first split")
    parser.add_argument("--starts", type=int, default=3, help="searches of each model")
    parser.add_argument("--columns", type=int, nargs="+", default=COLUMNS, help="clusters to try")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="clusters to try")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
