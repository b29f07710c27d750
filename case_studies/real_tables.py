"""Match real tables, the number of clusters unknown, with peers beside it.

Every row of the table is a data set of `case_studies.real_tables_data`, several splits of it, and a
method. Ours are sampled; the chain with the highest log joint is told of, as `pmm.match` does:

- ``table_clusters``: shapes and sizes of clusters match;
- ``table_clusters, coarsened``: the same, every object counting half;
- ``normal_clusters``: sizes match, and every cluster has a covariance of its own in each domain,
  and heavy tails;
- ``aligned_clusters``: domains are turned views of the same kind of thing, its power chosen;

Peers are told the true number of clusters (``J``), or what BIC says (``J by BIC``).

- ``index``: the adjusted Rand index over the objects of all domains;
- ``clusters``: how many there are;
- ``transfer``: the share of objects whose class is that of most of their likely partners in another
  domain;
- ``Brier`` and ``log score``: of the probabilities that two objects of different domains are of one
  class, less those of the base rate, which gives all pairs the same. Below zero, the probabilities
  say something; above, they claim too much. Those of peers are 0 and 1, for the log score .001 and
  .999;
- ``seconds``: of the clock, kernels compiled.

How often pairs match by the probability that they do, in bins of a tenth, goes to
``reliability.csv``, and to a figure.

``glass`` and features of digits need a folder with the files that `pm_match.datasets.load_glass`
and `load_multiple_features` describe. Networks are in `case_studies.real_networks`. Peers need
scikit-learn and POT.

Run ``python -m case_studies.real_tables FOLDER --out real_tables``; of tables of your own,
``python -m case_studies.real_tables --csv vehicle.csv satimage.csv``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

import pm_match as pmm
from case_studies.peers import cluster_gromov_wasserstein, object_gromov_wasserstein
from case_studies.peers.gaussian_mixtures import number_of_clusters
from case_studies.real_tables_data import DATA, RealTables, csv_table, without_folder
from pm_match import datasets, metrics

# Principal components of tables of one kind.
COMPONENTS = 10
# Shares of pairs that are not drawn.
FEW = 0.005
# Probabilities are no nearer than this to 0 and 1, for the log score.
LEAST = 1e-3
# To which densities of coarsened tables count.
POWER = 0.5

Match = Callable[[str, str], np.ndarray]

MODELS = (
    "table_clusters",
    "table_clusters, coarsened",
    "normal_clusters",
    "aligned_clusters",
)
TRANSPORTS = ("plain", "entropic", "semirelaxed", "geodesic", "co-optimal")
PEERS: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "k-means + GW": cluster_gromov_wasserstein.match,
    **{
        f"objects, {transport}": partial(object_gromov_wasserstein.match, transport=transport)
        for transport in TRANSPORTS
    },
}


def main(argv: Sequence[str] | None = None) -> None:
    """Match all splits by all methods, print the table and write it.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    bins: list[pd.DataFrame] = []
    every = {
        file.stem: RealTables(without_folder(partial(csv_table, file)), same_units=False)
        for file in options.csv
    }
    for name, data in (every or {name: DATA[name] for name in options.only or DATA}).items():
        if data.needs_folder and options.folder is None:
            print(f"{name}: skipped, its file is in no FOLDER that was given", flush=True)
            continue
        for seed in range(options.first, options.first + options.splits):
            for row in one_split(data, options.folder, seed, options.draws, options.methods):
                own = {"data": name, "seed": seed}
                bins.append(row.pop("reliability").assign(**own, method=row["method"]))
                found.append(own | row)
                print(", ".join(f"{k} {_short(v)}" for k, v in found[-1].items()), flush=True)
                # After every method, so that a run that is cut short leaves what it has.
                pd.DataFrame(found).to_csv(options.out / "splits.csv", index=False)
                pd.concat(bins).to_csv(options.out / "reliability.csv", index=False)
    if found:
        table = summary(pd.DataFrame(found))
        table.to_csv(options.out / "table.csv")
        print(f"\nMeans over splits\n\n{table.to_string(float_format='{:.3f}'.format)}")
        plot_reliability(pd.concat(bins)).savefig(options.out / "reliability.png", dpi=150)


def one_split(
    data: RealTables, folder: Path | None, seed: int, draws: int, methods: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Match one split by all methods.

    Parameters
    ----------
    data : RealTables
    folder : Path or None
    seed : int
    draws : int
        Of each of four chains, after as many to tune.
    methods : sequence of str
        Of `MODELS` and `PEERS`.

    Yields
    ------
    dict
        A row for each method: its name, what is measured, and its reliability.
    """
    domains = data.load(folder, seed)
    true = datasets.true_labels(domains)
    for name, declare in _models(domains, data.same_units).items():
        if name not in methods:
            continue
        start = time.perf_counter()
        idata = _sampled(declare(), draws, seed)
        seconds = time.perf_counter() - start
        best = pmm.best_chain(idata)
        estimate = pmm.partition_estimate(best, progressbar=False)
        labels = {own: estimate[f"cluster_{own}"].to_numpy() for own in true}
        match = partial(_probability, best)
        yield {"method": name} | measured(true, labels, match) | {"seconds": seconds}
        # All chains together, whichever mode they are in.
        together = partial(_probability, idata)
        yield (
            {"method": f"{name}, all chains"}
            | scores(true, together)
            | {"reliability": reliability(true, together)}
        )
    peers = {name: peer for name, peer in PEERS.items() if name in methods}
    if not peers:
        return
    tables = dict(domains) if data.same_units else pmm.standardise(domains)
    numbers = {"J": len(np.unique(np.concatenate(list(true.values()))))}
    reduced = pmm.standardise(domains, COMPONENTS) if data.same_units else tables
    numbers["J by BIC"] = number_of_clusters(reduced, seed)
    for told, n_clusters in numbers.items():
        for name, peer in peers.items():
            start = time.perf_counter()
            labels = peer(tables, n_clusters, seed)
            seconds = time.perf_counter() - start
            match = partial(_same, labels)
            row = {"method": f"{name}, {told}"} | measured(true, labels, match)
            yield row | {"seconds": seconds}


def _models(domains: Mapping[str, Any], same_units: bool) -> dict[str, Callable[[], Any]]:
    kept = {"n_components": COMPONENTS} if same_units else {}
    aligned = partial(pmm.models.aligned_clusters, domains, **kept)
    return {
        "table_clusters": partial(pmm.models.table_clusters, domains, **kept),
        "table_clusters, coarsened": partial(
            pmm.models.table_clusters, domains, power=POWER, **kept
        ),
        "normal_clusters": partial(pmm.models.normal_clusters, domains, **kept),
        "aligned_clusters": lambda: aligned(
            power=pmm.choose_power(
                lambda power: aligned(power=power), random_seed=0, progressbar=False
            )
        ),
    }


def _sampled(model: Any, draws: int, seed: int) -> xr.DataTree:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pmm.sample(
            draws,
            tune=draws,
            chains=4,
            random_seed=seed,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
            model=model,
        )


# -- what is measured ------------------------------------------------------------------------------


def measured(
    true: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], match: Match
) -> dict[str, Any]:
    """Score a matching.

    Parameters
    ----------
    true : mapping of str to array
        Classes of every domain's objects.
    labels : mapping of str to array
        Their clusters.
    match : callable
        From two domains to the probabilities that objects match.

    Returns
    -------
    dict
    """
    return {
        "index": metrics.adjusted_rand_index(true, labels),
        "clusters": float(len(np.unique(np.concatenate(list(labels.values()))))),
        "transfer": transfer(true, match),
        "reliability": reliability(true, match),
    } | scores(true, match)


def transfer(true: Mapping[str, np.ndarray], match: Match) -> float:
    """Give the share of objects whose class most of their likely partners are of.

    Parameters
    ----------
    true : mapping of str to array
    match : callable
        As of `measured`.

    Returns
    -------
    float
        Over all ordered pairs of domains. Objects without a partner are wrong.
    """
    right: list[np.ndarray] = []
    for one, other in permutations(true, 2):
        classes, code = np.unique(true[other], return_inverse=True)
        votes = match(one, other) @ np.eye(len(classes))[code]
        right.append((classes[votes.argmax(axis=1)] == true[one]) & (votes.max(axis=1) > 0))
    return float(np.concatenate(right).mean())


def scores(true: Mapping[str, np.ndarray], match: Match) -> dict[str, float]:
    """Score match probabilities, less what the base rate of all pairs has.

    Parameters
    ----------
    true : mapping of str to array
    match : callable
        As of `measured`.

    Returns
    -------
    dict of str to float
        "Brier" and "log score", each less that of the base rate: the lower the better.
    """
    together, given = _pairs(true, match)
    base = together.mean()
    inside = np.clip(given, LEAST, 1.0 - LEAST)
    log = -np.where(together, np.log(inside), np.log1p(-inside)).mean()
    log_base = -(base * np.log(base) + (1.0 - base) * np.log1p(-base))
    brier = np.square(given - together).mean()
    return {"Brier": float(brier - base * (1.0 - base)), "log score": float(log - log_base)}


def reliability(true: Mapping[str, np.ndarray], match: Match) -> pd.DataFrame:
    """Compare match probabilities with how often pairs match.

    Parameters
    ----------
    true : mapping of str to array
    match : callable
        As of `measured`.

    Returns
    -------
    DataFrame
        A row for each tenth in which there are probabilities: "pairs", the sum of their
        "probability", and how many "match".
    """
    together, given = _pairs(true, match)
    tenth = np.minimum((given * 10).astype(int), 9)
    pairs = pd.DataFrame({"tenth": tenth, "pairs": 1, "probability": given, "match": together})
    return pairs.groupby("tenth", as_index=False).sum()


def plot_reliability(bins: pd.DataFrame) -> Any:
    """Draw, for each data set, how often pairs match by the probability that they do.

    Parameters
    ----------
    bins : DataFrame
        Rows of `reliability`, with "data", "seed" and "method".

    Returns
    -------
    matplotlib.figure.Figure
        Points are as large as their share of the pairs; those of hardly any are left out.
    """
    import matplotlib.pyplot as plt

    names, methods = list(bins["data"].unique()), list(bins["method"].unique())
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    size = (3.2 * columns, 3.0 * rows + 0.5)
    figure, axes = plt.subplots(
        rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    totals = bins.groupby(["data", "method", "tenth"])[["pairs", "probability", "match"]].sum()
    for axis, name in zip(axes.ravel(), names, strict=False):
        axis.plot([0, 1], [0, 1], color="0.6", lw=0.8)
        for number, method in enumerate(methods):
            if method in totals.loc[name].index:
                own = totals.loc[name, method]
                share = own["pairs"] / own["pairs"].sum()
                own, share = own[share >= FEW], share[share >= FEW]
                x, y = own["probability"] / own["pairs"], own["match"] / own["pairs"]
                style = {"color": f"C{number % 10}", "ls": "-" if number < 10 else "--"}
                axis.plot(x, y, lw=1, label=method, **style)
                axis.scatter(x, y, s=8 + 100 * share, color=style["color"])
        # As the base rate says of any pair.
        whole = totals.loc[name].groupby("method").sum()
        base = (whole["match"] / whole["pairs"]).iloc[0]
        axis.axhline(base, color="0.6", lw=0.8, ls=":")
        axis.set(title=name, xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    for axis in axes.ravel()[len(names) :]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("share that match")
    figure.supxlabel("match probability", fontsize="medium")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _pairs(true: Mapping[str, np.ndarray], match: Match) -> tuple[np.ndarray, np.ndarray]:
    """Return of all pairs whether they are of one class, and how likely that is said to be."""
    pairs = list(combinations(true, 2))
    together = np.concatenate([(true[a][:, None] == true[b]).ravel() for a, b in pairs])
    given = np.concatenate([np.asarray(match(a, b)).ravel() for a, b in pairs])
    return together, given


def _probability(idata: xr.DataTree, a: str, b: str) -> np.ndarray:
    found = pmm.match_probability(idata, min(a, b), max(a, b)).to_numpy()
    return found if a < b else found.T


def _same(labels: Mapping[str, np.ndarray], a: str, b: str) -> np.ndarray:
    return (labels[a][:, None] == labels[b]).astype(float)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Give means over splits.

    Parameters
    ----------
    found : DataFrame
        A row for each data set, split and method.

    Returns
    -------
    DataFrame
        By data set and method, in their order: numbers of splits, means, and the standard error
        of the index.
    """
    grouped = found.drop(columns="seed").groupby(["data", "method"], sort=False)
    table = grouped.mean()
    table.insert(0, "splits", grouped.size())
    table.insert(2, "index s.e.", grouped["index"].sem())
    return table


def _short(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.real_tables",
        description="Match real tables, the number of clusters unknown, with peers beside it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="with files of real data sets")
    parser.add_argument(
        "--csv", nargs="+", type=Path, default=[], metavar="FILE",
        help="instead: tables whose last column is the class, in other halves of rows and columns",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=DATA, metavar="DATA", help=", ".join(DATA))
    every = (*MODELS, *PEERS)
    parser.add_argument(
        "--methods", nargs="+", choices=every, default=every, metavar="METHOD",
        help=", ".join(every),
    )  # fmt: skip
    parser.add_argument("--splits", type=int, default=10, help="of each data set")
    parser.add_argument("--first", type=int, default=3, metavar="SEED", help="of the first split")
    parser.add_argument("--draws", type=int, default=200, help="of each of four chains")
    parser.add_argument("--out", type=Path, default=Path("real_tables"), help="for tables")
    options = parser.parse_args(argv)
    if options.csv and options.only:
        parser.error("--only: expected no --csv beside it; found both")
    for number, file in enumerate(options.csv):
        for other in options.csv[:number]:
            if file.stem == other.stem:
                parser.error(f"--csv: expected files of different names; found {other} and {file}")
    return options


if __name__ == "__main__":
    main()
