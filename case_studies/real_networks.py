"""Match clusters across real networks that share no objects, with and without relevance.

Two halves of 20 Newsgroups (documents by words), two halves of MovieLens (films by users), and
LibreOffice's help in two languages (pages by words), after section 6.2 of Iwata & Ishiguro (2017).
The documents, films and pages have classes, which the models do not see. Of each data set, several
splits are drawn; of each model, several chains are started at random, and the best by log joint is
reported, with the mean of all beside it. (`case_studies.degree_networks` searches instead.)

The models are

- ``subset``: the paper's, where objects may be irrelevant;
- ``rematch``: the same without relevance;
- ``degree``: subset with Poisson rates proportional to the objects' degrees, and a known number of
  equally probable clusters: as many of rows as there are classes, twice as many of columns.

Real networks are hard for the first two: what differs most between words is how frequent they are,
and blocks of constant density can only express that by clusters of equally frequent words. Their
log joints say little about how well classes are matched. Log joints of different models, and of
different splits, do not compare.

The folder must hold the files that `pm_match.datasets.load_newsgroups_halves`,
`load_movielens_networks` and `load_help_networks` describe. They are not part of this project.

Run ``python -m case_studies.real_networks FOLDER --out networks``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr

import pm_match as pmm
from pm_match import datasets, matching, metrics, plots
from pm_match.datasets import LabelledNetworks

DATA: dict[str, Callable[[Path, int], LabelledNetworks]] = {
    "newsgroups": datasets.load_newsgroups_halves,
    "movielens": datasets.load_movielens_networks,
    "english-german": lambda folder, seed: datasets.load_help_networks(folder, ("en", "de"), seed),
    "english-italian": lambda folder, seed: datasets.load_help_networks(folder, ("en", "it"), seed),
}
# Data sets whose columns are words that can be read.
READABLE = ("newsgroups", "english-german", "english-italian")


def _subset(loaded: LabelledNetworks, n_clusters: int) -> pm.Model:
    return pmm.models.relational_clusters(
        loaded.networks, types=loaded.types, n_clusters=n_clusters
    )


def _rematch(loaded: LabelledNetworks, n_clusters: int) -> pm.Model:
    return pmm.models.relational_clusters(
        loaded.networks, types=loaded.types, n_clusters=n_clusters, relevance=False
    )


def _degree(loaded: LabelledNetworks, n_clusters: int) -> pm.Model:
    n_classes = len(loaded.label_names)
    rows, columns = loaded.types
    return pmm.models.relational_clusters(
        loaded.networks,
        types=loaded.types,
        n_clusters={rows: n_classes, columns: 2 * n_classes},
        family="poisson",
        exposure="degree",
        weights="uniform",
    )


MODELS: dict[str, Callable[[LabelledNetworks, int], pm.Model]] = {
    "subset": _subset,
    "rematch": _rematch,
    "degree": _degree,
}


@dataclass(frozen=True, eq=False)
class Fit:
    """All chains of a model on one split, and the best of them by log joint.

    Attributes
    ----------
    labels : Dataset
        Point estimate of the best chain's second half.
    index : ndarray, shape (n_starts,)
        Matching adjusted Rand index of the rows' classes, chain by chain.
    log_joint : ndarray, shape (n_starts, n_draws)
        Chain by chain, from the start.
    best : int
        Number of the best chain.
    seconds : float
        Of one chain, on average.
    """

    labels: xr.Dataset
    index: np.ndarray
    log_joint: np.ndarray
    best: int
    seconds: float


def main(argv: Sequence[str] | None = None) -> None:
    """Sample the matchings, print the tables and write tables and figures.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    mpl.use("Agg")
    out = options.out
    if min(options.splits, options.starts) < 1 or options.draws < 2:
        raise SystemExit("--splits and --starts must be at least 1, --draws at least 2")
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    _compile()

    rows, curves = {}, {}
    for data in options.data:
        splits = [DATA[data](options.folder, options.seed + k) for k in range(options.splits)]
        shown: dict[str, xr.Dataset] = {}
        for model in options.models:
            fits = []
            for number, loaded in enumerate(splits):
                declared = MODELS[model](loaded, options.clusters)
                fits.append(_fit(declared, loaded, options, options.seed + number))
                print(f"{data}, {model}, split {number}: {_line(fits[-1])}", flush=True)
            shown[model] = fits[0].labels
            rows[data, model] = _row(fits, splits[0].types)
            curves[data, model] = [fit.log_joint for fit in fits]
        _write_split(data, splits[0], shown, out)

    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(index=["data", "model"])
    table.to_csv(out / "table.csv")
    print(f"\nMeans over {options.splits} splits; MARI is that of the rows' classes, ± its s.e.\n")
    print(table.to_string())
    _long(curves).to_csv(out / "log_joint.csv", index=False)
    figure = plot_log_joints(curves)
    figure.savefig(out / "log_joint.png", dpi=150)
    print(f"\ntables and figures  {out}")
    print(f"everything          {time.perf_counter() - began:.0f} s")


# -- sampling --------------------------------------------------------------------------------------


def _fit(model: pm.Model, loaded: LabelledNetworks, options: argparse.Namespace, seed: int) -> Fit:
    """Sample chains from different starts; the second half of each is its result."""
    start = time.perf_counter()
    idata = pmm.sample(
        options.draws,
        tune=0,
        chains=options.starts,
        cores=1,
        random_seed=seed,
        init="dispersed",
        model=model,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    seconds = (time.perf_counter() - start) / options.starts
    log_joint = idata["sample_stats"]["log_joint"].to_numpy()
    half = slice(options.draws // 2, None)
    posterior = idata["posterior"].to_dataset().isel(draw=half)
    labels = [
        matching.partition_estimate(posterior.isel(chain=[chain]))
        for chain in range(options.starts)
    ]
    best = int(log_joint[:, half].mean(axis=1).argmax())
    return Fit(
        labels=labels[best],
        index=np.array([_index(loaded, found) for found in labels]),
        log_joint=log_joint,
        best=best,
        seconds=seconds,
    )


def _compile() -> None:
    """Sample a little once, so that no clock runs while the kernels are compiled."""
    drawn = datasets.synthetic_networks(n_relevant=10, n_irrelevant=2, random_seed=0)
    loaded = LabelledNetworks(drawn.networks, drawn.types, {}, ("0", "1"), {})
    for model in MODELS.values():
        pmm.sample(
            2, tune=0, chains=1, cores=1, model=model(loaded, 100), progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip


def _index(loaded: LabelledNetworks, labels: xr.Dataset) -> float:
    found = {name: labels[f"cluster_{name}_{loaded.types[0]}"] for name in loaded.networks}
    return metrics.matching_adjusted_rand_index(loaded.labels, found)


# -- tables ----------------------------------------------------------------------------------------


def _row(fits: Sequence[Fit], types: Sequence[str]) -> dict[str, str]:
    """Give the means of a model's fits over splits."""
    index = np.array([fit.index[fit.best] for fit in fits])
    half = fits[0].log_joint.shape[1] // 2
    mari = f"{index.mean():.3f}"
    if len(index) > 1:
        mari += f" ± {index.std(ddof=1) / np.sqrt(len(index)):.3f}"
    row = {
        "MARI": mari,
        "of all starts": f"{np.mean([fit.index.mean() for fit in fits]):.3f}",
        "log joint": f"{np.mean([fit.log_joint[fit.best, half:].mean() for fit in fits]):.0f}",
        "seconds a chain": f"{np.mean([fit.seconds for fit in fits]):.1f}",
    }
    for t, side in zip(types, ("rows", "columns"), strict=True):
        pooled = [
            np.concatenate([v for name, v in fit.labels.items() if str(name).endswith(f"_{t}")])
            for fit in fits
        ]
        row[f"{side}: clusters"] = f"{np.mean([labels.max() + 1 for labels in pooled]):.0f}"
        irrelevant = np.mean([np.sum(labels < 0) for labels in pooled])
        row[f"{side}: irrelevant"] = f"{irrelevant:.0f} of {len(pooled[0])}"
    return row


def _long(curves: Mapping[tuple[str, str], Sequence[np.ndarray]]) -> pd.DataFrame:
    """Give the log joint of every iteration of every chain, in long form."""
    tables = []
    for (data, model), splits in curves.items():
        values = np.stack(splits)
        places = pd.MultiIndex.from_product(
            [[data], [model], *map(range, values.shape)],
            names=["data", "model", "split", "start", "iteration"],
        )
        tables.append(pd.Series(values.reshape(-1), places, name="log_joint").reset_index())
    return pd.concat(tables, ignore_index=True)


def _line(fit: Fit) -> str:
    level = fit.log_joint[:, fit.log_joint.shape[1] // 2 :].mean(axis=1)
    chains = ", ".join(
        f"{joint:.0f} ({index:.3f})" + "*" * (chain == fit.best)
        for chain, (joint, index) in enumerate(zip(level, fit.index, strict=True))
    )
    return f"log joints (MARI) {chains}; {fit.seconds:.1f} s a chain"


def matched_words(loaded: LabelledNetworks, labels: xr.Dataset) -> pd.DataFrame:
    """List the words of each cluster that is in all networks, and the irrelevant ones at the end.

    Parameters
    ----------
    loaded : LabelledNetworks
        Whose columns are words.
    labels : Dataset
        From `pm_match.partition_estimate`.

    Returns
    -------
    DataFrame
        One row for each cluster (the largest first) and network: the number of words, and the
        words, those in most documents first.
    """
    word = loaded.types[1]
    found = {name: labels[f"cluster_{name}_{word}"].to_numpy() for name in loaded.networks}
    shared = set.intersection(*(set(values.tolist()) for values in found.values())) - {-1}
    irrelevant = any((values < 0).any() for values in found.values())
    rows = []
    for cluster in [*sorted(shared), *([-1] if irrelevant else [])]:
        for name, values in found.items():
            degree = np.asarray(loaded.networks[name].sum(axis=0)).reshape(-1)
            members = np.flatnonzero(values == cluster)
            members = members[np.argsort(-degree[members], kind="stable")]
            words = " ".join(map(str, loaded.objects[name][1][members]))
            rows.append(("irrelevant" if cluster < 0 else cluster, name, len(members), words))
    return pd.DataFrame(rows, columns=["cluster", "network", "n_words", "words"])


def _print_words(title: str, table: pd.DataFrame, n_clusters: int = 10, width: int = 100) -> None:
    print(f"\n{title}\n")
    shared = table.loc[table["cluster"] != "irrelevant", "cluster"].unique()
    chosen = [*shared[:n_clusters], "irrelevant"]
    for cluster, rows in table[table["cluster"].isin(chosen)].groupby("cluster", sort=False):
        for row in rows.itertuples():
            head = f"{cluster!s:>10}" if row.Index == rows.index[0] else " " * 10
            start = f"{head}  {row.network:<3}{row.n_words:>5}  "
            print(start + _shorten(row.words, width - len(start)))
    if len(shared) > n_clusters:
        print(f"{'':>10}  and {len(shared) - n_clusters} more matched clusters")


def _shorten(words: str, width: int) -> str:
    """Cut a list of words after the last that fits."""
    return words if len(words) <= width else words[: width + 1].rpartition(" ")[0]


def _write_split(
    data: str, loaded: LabelledNetworks, shown: Mapping[str, xr.Dataset], out: Path
) -> None:
    """Write the first split's figures and words."""
    for model, labels in shown.items():
        figure = plots.plot_networks(
            labels,
            loaded.networks,
            title=f"{data}, {model} model, ordered by relevance and cluster",
        )
        figure.savefig(out / f"adjacency_{data}_{model}.png", dpi=150)
        if data in READABLE:
            table = matched_words(loaded, labels)
            table.to_csv(out / f"words_{data}_{model}.csv", index=False)
            if model != "rematch":
                _print_words(f"Matched word clusters: {data}, {model} model", table)
    figure = plot_confusion(loaded, shown)
    figure.savefig(out / f"confusion_{data}.png", dpi=150)
    print(flush=True)


# -- figures ---------------------------------------------------------------------------------------


def plot_log_joints(curves: Mapping[tuple[str, str], Sequence[np.ndarray]]):
    """Draw the log joint by iteration, averaged over splits and starts (the paper's figure 6).

    Parameters
    ----------
    curves : mapping
        From data set and model to arrays (starts, iterations), one for each split.

    Returns
    -------
    Figure
        A panel for each data set; a band from the lowest to the highest chain, each taken from the
        mean of its split.
    """
    from matplotlib import pyplot as plt

    styles = {"subset": ("C0", "-"), "rematch": ("C1", "--"), "degree": ("0.25", ":")}
    names = list(dict.fromkeys(data for data, _ in curves))
    n_columns = min(len(names), 2)
    n_rows = -(-len(names) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(0.5 + 4.4 * n_columns, 0.6 + 3.0 * n_rows),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(names) :]:
        axis.remove()
    for axis, data in zip(axes.flat, names, strict=False):
        levels: list[float] = []
        for (of, model), found in curves.items():
            if of != data:
                continue
            color, style = styles[model]
            chains = np.concatenate([split - split.mean(axis=0) for split in found])
            mean = np.mean([split.mean(axis=0) for split in found], axis=0)
            x = np.arange(1, len(mean) + 1)
            axis.fill_between(
                x,
                mean + chains.min(axis=0),
                mean + chains.max(axis=0),
                color=color,
                alpha=0.2,
                lw=0,
            )
            axis.plot(x, mean, style, color=color, lw=1.8, label=model)
            highest = (mean + chains.max(axis=0)).max()
            levels += [mean[min(4, len(mean) - 1)], highest]  # without the first steep rise
        bottom, top = min(levels), max(levels)
        axis.set_ylim(bottom, top + 0.06 * max(top - bottom, 1.0))
        axis.set_title(data, fontsize=10)
        axis.set_xlabel("iteration")
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("log joint")
    axes[0, 0].legend(frameon=False, loc="lower right")
    figure.suptitle("Log joint by iteration: mean and, shaded, range of all starts")
    return figure


def plot_confusion(loaded: LabelledNetworks, shown: Mapping[str, xr.Dataset], n_clusters: int = 12):
    """Draw how many of each class are in each row cluster (the paper's figure 8).

    Parameters
    ----------
    loaded : LabelledNetworks
    shown : mapping of str to Dataset
        Labels by model.
    n_clusters : int, default 12
        So many clusters are shown, the largest.

    Returns
    -------
    Figure
        A column of panels for each model, and a row for each network.
    """
    from matplotlib import pyplot as plt

    n_classes = len(loaded.label_names)
    figure, axes = plt.subplots(
        len(loaded.networks),
        len(shown),
        figsize=(1.6 + 3.0 * len(shown), 1.2 + (0.8 + 0.18 * n_classes) * len(loaded.networks)),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axis_row, name in zip(axes, loaded.networks, strict=True):
        for axis, (model, labels) in zip(axis_row, shown.items(), strict=True):
            found = labels[f"cluster_{name}_{loaded.types[0]}"].to_numpy()
            everywhere = np.concatenate(
                [labels[f"cluster_{other}_{loaded.types[0]}"] for other in loaded.networks]
            )
            columns = list(range(min(int(everywhere.max()) + 1, n_clusters)))
            ticks = [str(cluster) for cluster in columns]
            if everywhere.max() >= n_clusters:
                found = np.minimum(found, n_clusters)
                columns.append(n_clusters)
                ticks.append("others")
            if (everywhere < 0).any():
                columns.append(-1)
                ticks.append("irrelevant")
            count = np.array(
                [
                    [np.sum((loaded.labels[name] == label) & (found == c)) for c in columns]
                    for label in range(n_classes)
                ]
            )
            share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
            image = axis.imshow(share, cmap="Greys", vmin=0, vmax=1, aspect="auto")
            axis.set_xticks(range(len(columns)), ticks, fontsize=7, rotation=90)
            axis.set_yticks(range(n_classes), loaded.label_names, fontsize=7)
            axis.set_title(f"{name}: {model}", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel(f"{loaded.types[0]} cluster", fontsize=8)
    figure.colorbar(image, ax=axes, label="share of the class", shrink=0.8, pad=0.02, aspect=30)
    figure.suptitle(f"Where the {loaded.types[0]}s of each class are")
    return figure


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.real_networks",
        description="Match clusters across real networks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="with the files of the data sets")
    parser.add_argument("--out", type=Path, default=Path("networks"), help="for tables and figures")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA), help="data sets")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which")
    parser.add_argument("--splits", type=int, default=3, help="of each data set, drawn at random")
    parser.add_argument("--starts", type=int, default=4, help="chains of each model and split")
    parser.add_argument("--draws", type=int, default=200, help="a chain; the first half is dropped")
    parser.add_argument(
        "--clusters", type=int, default=100, help="truncation of the subset and rematch models"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first split and its draws")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
