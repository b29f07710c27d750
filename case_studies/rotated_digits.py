"""Match handwritten digits across three rotations.

Three domains hold different images of the same digits: upright, turned by 90° and by 180°.
Nothing says which images match, nor how the domains are turned (Iwata, Hirao & Ueda 2016,
figures 4 and 5, there with MNIST).

The tables are reduced to ten principal components, and the model is `aligned_clusters`: whatever is
drawn in one domain could be drawn in any, and domains differ by a rotation, a scale and a shift. It
is not told how many digits there are. Every chain starts at a search of its own; the best by log
joint is reported, and all are printed.

Run ``python -m case_studies.rotated_digits --out demo``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import xarray as xr

import pm_match as pmm
from pm_match import datasets, matching, metrics, plots


def main(argv: Sequence[str] | None = None) -> None:
    """Sample the matchings, print the tables and write the figures.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    mpl.use("Agg")
    began = time.perf_counter()
    domains = datasets.rotated_digits(
        n_objects=options.objects, digits=options.digits, random_seed=options.seed
    )
    print("domains: " + ", ".join(f"{k} {v.shape[0]} x {v.shape[1]}" for k, v in domains.items()))

    model = pmm.models.aligned_clusters(
        domains, n_components=options.components, n_clusters=options.clusters, power=options.power
    )
    start = time.perf_counter()
    idata = pmm.sample(
        draws=options.draws,
        tune=options.tune,
        chains=options.chains,
        cores=os.cpu_count(),
        random_seed=options.seed,
        progressbar=sys.stdout.isatty(),
        model=model,
    )
    seconds = time.perf_counter() - start

    true = datasets.true_labels(domains)
    print("\nEach chain by itself\n")
    print(_chains(idata, true).to_string(float_format="{:.3f}".format))

    # Like the paper, go on with the best by log joint, which knows nothing of the true digits.
    best = matching.best_chain(idata)
    labels = matching.partition_estimate(best)
    sizes = matching.cluster_sizes(labels)
    number = int(best["posterior"]["chain"].item())
    print(f"\nChain {number}, the best by log joint: its clusters, and their objects\n")
    print(sizes.assign(digits=_digits_in(labels, true)).to_string())
    print(f"\nclusters found          {len(sizes)}   (true digits: {len(set(options.digits))})")
    print(f"adjusted Rand index     {_score(labels, true):.3f}")
    print(f"R-hat of the log joint  {matching.log_joint_rhat(idata):.3f}   (all chains)")
    print(f"sampling                {seconds:.1f} s")

    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    for name, figure in {
        "gallery": plots.plot_gallery(labels, domains, n_clusters=10),
        "match_probability": plots.plot_match_matrix(best, labels=labels),
        "alluvial": plots.plot_alluvial(labels),
        "digits": plots.plot_confusion(labels, true),
        "trace": plots.plot_trace(idata),
        "log_joint": plots.plot_log_joint(idata),
    }.items():
        figure.savefig(out / f"{name}.png", dpi=150)
        print(f"figure                  {out / name}.png")
    print(f"everything              {time.perf_counter() - began:.1f} s")


def _score(labels: xr.Dataset, true: dict) -> float:
    found = {name: labels[f"cluster_{name}"].to_numpy() for name in true}
    return metrics.adjusted_rand_index(true, found)


def _digits_in(labels: xr.Dataset, true: dict) -> pd.Series:
    """Say which digits each cluster holds, as '2: 61, 3: 4'."""
    everything = pd.concat(
        [
            pd.DataFrame({"cluster": labels[f"cluster_{name}"].to_numpy(), "digit": digits})
            for name, digits in true.items()
        ]
    )
    return everything.groupby("cluster")["digit"].agg(
        lambda digits: ", ".join(f"{d}: {n}" for d, n in digits.value_counts().items())
    )


def _chains(idata: xr.DataTree, true: dict) -> pd.DataFrame:
    stats = idata["sample_stats"]
    posterior = idata["posterior"].to_dataset()
    rows = {
        int(chain): {
            "log joint (mean)": float(stats["log_joint"].sel(chain=chain).mean()),
            "occupied clusters (mean)": float(stats["n_occupied"].sel(chain=chain).mean()),
            "adjusted Rand index": _score(
                matching.partition_estimate(posterior.sel(chain=[chain])), true
            ),
        }
        for chain in posterior["chain"].to_numpy()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(index="chain")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.rotated_digits",
        description="Match handwritten digits across three rotations.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figures")
    parser.add_argument("--seed", type=int, default=0, help="of the images and of the draws")
    parser.add_argument("--objects", type=int, default=200, help="images in each domain")
    parser.add_argument("--digits", type=int, nargs="+", default=(0, 1, 2, 3), help="which")
    parser.add_argument("--components", type=int, default=10, help="of each domain")
    parser.add_argument("--clusters", type=int, default=20, help="truncation")
    parser.add_argument("--power", type=float, default=0.55, help="of the densities")
    parser.add_argument("--draws", type=int, default=800, help="a chain")
    parser.add_argument("--tune", type=int, default=300, help="thrown away before")
    parser.add_argument("--chains", type=int, default=4, help="independent chains")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
