"""Mixtures of real tables: bags of words in two halves, latent classes, tables that share columns.

Three studies, each with a short table and figures. What is scored, the models do not see.

- ``words``: documents of four newsgroups in two halves, as bags of words. With the same words in
  both halves the clusters' word probabilities are shared. With words that nobody has paired each
  half has probabilities of its own, and only links, of documents known to be alike, tell which
  clusters belong together. Beside them the network model, which has clusters of words too and needs
  no pairs of words. A document has four words or so: of most, the class is uncertain, and an
  estimate from draws would lump these together. Scored is therefore the best mode that searches
  find: the documents' classes, and how many words are typical of the same cluster in both halves
  (the network model: are in the same cluster).
- ``classes``: films by genres, true or false, some cells hidden. A latent class model, all of whose
  columns are Bernoulli, predicts these; beside it k-modes, and each genre's share alone.
- ``shared``: pieces of glass in two tables, by rows, that have some columns in common and some each
  for itself: numbers and booleans. `pmm.models.mixture` of all columns, of the common columns
  alone, and of all with nothing shared. Scored are the types of glass, and by how much the mean
  match probability of pairs of the same type is above that of others.

The folder must hold ``20news_w100.npz``, ``movielens_latest_small.npz`` and ``glass.npz``, as
`pm_match.datasets` describes them. They are not part of this project; what is missing is skipped.

Run ``python -m case_studies.mixtures FOLDER --out mixtures``.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

import pm_match as pmm
from case_studies.k_modes import KModes
from pm_match import datasets, matching, metrics, plots
from pm_match.datasets import LabelledNetworks
from pm_match.datasets.files import read_arrays

# Documents of the same class that are known to be: pairs, one document of each half.
N_LINKS = 12
HIDDEN = 0.1
# Of glass: columns of both tables, and of each alone.
COMMON = ("Mg", "Al", "has_Ba")
ALONE = {"a": ("Na", "Si", "K"), "b": ("RI", "Ca", "has_Fe")}


@dataclass(frozen=True, eq=False)
class Study:
    """What comes out of a study.

    Attributes
    ----------
    table : DataFrame
        A row for each model or method.
    figures : dict of str to Figure
    """

    table: pd.DataFrame
    figures: dict[str, Figure]


@dataclass(frozen=True, eq=False)
class Fit:
    """Draws of a model (of the best chain by log joint) or its mode, their estimate, and the time.

    Attributes
    ----------
    best : DataTree
    labels : Dataset
    seconds : float
        Of the clock, for all chains or searches, one after the other.
    """

    best: xr.DataTree
    labels: xr.Dataset
    seconds: float


def fit(model: pm.Model, options: argparse.Namespace, seed: int) -> Fit:
    """Sample a model, chain after chain from searched starts."""
    start = time.perf_counter()
    idata = pmm.sample(
        options.draws,
        tune=options.draws // 2,
        chains=options.chains,
        cores=1,
        random_seed=seed,
        model=model,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    seconds = time.perf_counter() - start
    best = matching.best_chain(idata)
    return Fit(best, matching.partition_estimate(best), seconds)


def search(model: pm.Model, options: argparse.Namespace, seed: int) -> Fit:
    """Search a model's best mode, as many times as there are chains elsewhere."""
    start = time.perf_counter()
    best = pmm.find_matching(model, starts=options.chains, random_seed=seed, progressbar=False)
    return Fit(best, matching.partition_estimate(best), time.perf_counter() - start)


# -- bags of words --------------------------------------------------------------------------------


def words_model(
    loaded: LabelledNetworks, shared: bool, links: Mapping[str, Any] | None = None
) -> pm.Model:
    """Declare documents of all halves as bags of words, one cluster a class.

    Parameters
    ----------
    loaded : LabelledNetworks
        Documents by words.
    shared : bool
        Whether words of the same name have the same probabilities in all halves.
    links : mapping, optional
        Documents that are known to be in the same cluster, by half: see `pm_match.must_link`.

    Returns
    -------
    pymc.Model
    """
    n_clusters = len(loaded.label_names)
    bags = {name: bag_of(loaded, name) for name in loaded.networks}
    coords: dict[str, Any] = {"cluster": range(n_clusters)}
    coords |= {f"{name}_document": own.index for name, own in bags.items()}
    coords |= {f"{name}_word": own.columns for name, own in bags.items()}
    with pm.Model(coords=coords) as model:
        weights = pm.Dirichlet("weights", np.ones(n_clusters), dims="cluster")
        p = None
        for name, own in bags.items():
            cluster = pm.Categorical(f"cluster_{name}", p=weights, dims=f"{name}_document")
            if p is None or not shared:
                p = pm.Dirichlet(
                    "p" if shared else f"p_{name}",
                    np.full(own.shape[1], 0.5),
                    shape=(n_clusters, own.shape[1]),
                )
            pm.Multinomial(name, n=own.sum(axis=1).to_numpy(), p=p[cluster], observed=own)
        if links:
            pmm.must_link("links", {model[f"cluster_{name}"]: own for name, own in links.items()})
    return model


def bag_of(loaded: LabelledNetworks, name: str) -> pd.DataFrame:
    """Give the words of a half's documents, words in the order of the alphabet."""
    rows, columns = loaded.objects[name]
    table = pd.DataFrame(loaded.networks[name].toarray(), index=rows, columns=columns)
    return table.sort_index(axis=1)


def some_links(loaded: LabelledNetworks, n: int, rng: np.random.Generator) -> dict[str, list[int]]:
    """Draw pairs of documents of the same class, one of each half, as many of every class."""
    classes = np.resize(rng.permutation(len(loaded.label_names)), n)
    found: dict[str, list[int]] = {}
    for name, labels in loaded.labels.items():
        free = {c: list(rng.permutation(np.flatnonzero(labels == c))) for c in set(classes)}
        found[name] = [int(free[c].pop()) for c in classes]
    return found


def typical_words(loaded: LabelledNetworks, labels: xr.Dataset) -> float:
    """Share of words that are typical of the same cluster in both halves.

    That is the cluster where a word is most frequent, of those that both halves have.
    """
    found = []
    names = list(loaded.networks)
    own = {name: labels[f"cluster_{name}"].to_numpy() for name in names}
    both = sorted(set.intersection(*(set(v.tolist()) for v in own.values())) - {-1})
    if not both:
        return 0.0
    for name in names:
        bag = bag_of(loaded, name).to_numpy()
        sums = np.stack([bag[own[name] == c].sum(axis=0) for c in both]) + 0.5
        found.append((sums / sums.sum(axis=1, keepdims=True)).argmax(axis=0))
    return float(np.mean(found[0] == found[1]))


def same_word_clusters(loaded: LabelledNetworks, labels: xr.Dataset) -> float:
    """Share of words that the network model has in the same cluster in both halves."""
    own = [
        pd.Series(labels[f"cluster_{name}_word"].to_numpy(), loaded.objects[name][1]).sort_index()
        for name in loaded.networks
    ]
    return float(np.mean(own[0].to_numpy() == own[1].to_numpy()))


def words(folder: Path, options: argparse.Namespace) -> Study:
    """Match documents of two halves of newsgroups, by bags of words and as networks."""
    rows, shown = [], {}
    for split in range(options.splits):
        seed = options.seed + split
        loaded = datasets.load_newsgroups_halves(folder, seed, n_per_category=options.documents)
        links = some_links(loaded, N_LINKS, np.random.default_rng(seed))
        n = len(loaded.label_names)
        models: dict[str, Callable[[], pm.Model]] = {
            "bags, words known": partial(words_model, loaded, True),
            "bags, words unknown": partial(words_model, loaded, False),
            f"bags, words unknown, {N_LINKS} links": partial(words_model, loaded, False, links),
            "network, words unknown": partial(
                pmm.models.relational_clusters,
                loaded.networks,
                types=loaded.types,
                n_clusters={"document": n, "word": 2 * n},
                family="poisson",
                exposure="degree",
                weights="uniform",
            ),
        }
        for name, declare in models.items():
            found = search(declare(), options, seed)
            network = name.startswith("network")
            suffix = "_document" if network else ""
            own = {half: found.labels[f"cluster_{half}{suffix}"] for half in loaded.networks}
            agreed = (same_word_clusters if network else typical_words)(loaded, found.labels)
            rows.append(
                {
                    "model": name,
                    "MARI": metrics.matching_adjusted_rand_index(loaded.labels, own),
                    "ARI within": within(loaded.labels, own),
                    "words alike": agreed,
                    "seconds": found.seconds,
                }
            )
            shown.setdefault(name, (own, loaded.labels, loaded.label_names))
    figures = {}
    for name, place in (("bags, words known", "bags"), ("network, words unknown", "network")):
        own, true, label_names = shown[name]
        figures[f"words_{place}"] = plots.plot_confusion(
            {half: np.asarray(found) for half, found in own.items()},
            {half: np.asarray(label_names)[classes] for half, classes in true.items()},
        )
    return Study(averaged(rows), figures)


def within(true: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    """Average the adjusted Rand indices of each domain by itself."""
    return float(np.mean([metrics.adjusted_rand_index({d: true[d]}, {d: found[d]}) for d in found]))


# -- latent classes -------------------------------------------------------------------------------


def genres(folder: Path, n_films: int, rng: np.random.Generator) -> pd.DataFrame:
    """Read which genres films have (boolean), of some films drawn from those that have any."""
    file = read_arrays(
        folder, "movielens_latest_small.npz", ["genres", "genre_names", "titles"], []
    )
    known = ~np.isin(file["genre_names"], ["(no genres listed)", "IMAX"])
    table = pd.DataFrame(file["genres"][:, known] > 0, columns=file["genre_names"][known])
    table = table.rename(columns=lambda name: name.replace("/", "_"))
    chosen = rng.permutation(np.flatnonzero(table.any(axis=1)))[:n_films]
    return table.iloc[np.sort(chosen)]


def hide(
    table: pd.DataFrame, share: float, rng: np.random.Generator
) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Hide a share of the cells of a boolean table; return it, and which (N, M)."""
    hidden = rng.random(table.shape) < share
    return table.astype("boolean").mask(hidden), hidden


def class_probabilities(found: Fit) -> NDArray[np.float64]:
    """Probability that cells are true (N, M), given all that is known: averaged over draws."""
    posterior = found.best["posterior"].to_dataset().stack(sample=("chain", "draw"))
    probability = posterior["probability"].transpose("sample", "cluster", "boolean").to_numpy()
    label = posterior["cluster_table"].transpose("sample", ...).to_numpy()
    total = np.zeros((label.shape[1], probability.shape[2]))
    for p, own in zip(probability, label, strict=True):
        total += p[own]
    return total / len(label)


def log_score(
    probability: NDArray[np.float64], truth: NDArray[np.bool_], where: NDArray[np.bool_]
) -> float:
    """Mean log probability of what is true of some cells."""
    return float(np.log(np.where(truth, probability, 1.0 - probability)[where]).mean())


def classes(folder: Path, options: argparse.Namespace) -> Study:
    """Predict hidden genres of films by latent classes, k-modes and each genre's share."""
    rows, figures = [], {}
    for split in range(options.splits):
        rng = np.random.default_rng(options.seed + split)
        table = genres(folder, options.films, rng)
        seen, hidden = hide(table, HIDDEN, rng)
        truth, known = table.to_numpy(), ~hidden

        def score(name, probability, seconds, truth=truth, hidden=hidden):
            rows.append(
                {
                    "model": name,
                    "log score": log_score(probability, truth, hidden),
                    "of present genres": log_score(probability, truth, hidden & truth),
                    "seconds": seconds,
                }
            )

        begin = time.perf_counter()
        share = ((truth & known).sum(axis=0) + 1.0) / (known.sum(axis=0) + 2.0)
        score("shares of genres", np.tile(share, (len(table), 1)), time.perf_counter() - begin)
        begin = time.perf_counter()
        modes = KModes.chosen(truth, known, (1, 2, 4, 8, 16, 32), rng)
        score("k-modes", modes.probability(truth, known), time.perf_counter() - begin)
        model = pmm.models.mixture(seen, n_clusters=40)
        found = fit(model, options, options.seed + split)
        probability = class_probabilities(found)
        score("latent classes", probability, found.seconds)
        if split == 0:
            figures["classes_calibration"] = plots.plot_calibration(
                probability[hidden], truth[hidden]
            )
            domain = xr.DataArray(
                truth.astype(float),
                coords={"film": table.index, "genre": list(table.columns)},
                dims=("film", "genre"),
            )
            figures["classes"] = plots.plot_clusters(
                {"table": found.labels["cluster_table"].to_numpy()}, {"table": domain}
            )
            figures["classes"].suptitle("Genres of the classes of films")
    return Study(averaged(rows), figures)


# -- tables that share columns --------------------------------------------------------------------


def glass(folder: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Read pieces of glass, barium and iron as true or false, and their types."""
    file = read_arrays(folder, "glass.npz", ["X", "y", "columns"], [])
    table = pd.DataFrame(file["X"], columns=file["columns"])
    for metal in ("Ba", "Fe"):
        table[f"has_{metal}"] = table.pop(metal) > 0
    return table, file["y"]


def halves(
    table: pd.DataFrame, labels: NDArray, rng: np.random.Generator
) -> tuple[dict[str, pd.DataFrame], dict[str, NDArray]]:
    """Split rows in two tables, each with the common columns and its own; and the labels."""
    parts = np.array_split(rng.permutation(len(table)), 2)
    tables = {
        name: table.iloc[rows][[*COMMON, *ALONE[name]]]
        for name, rows in zip(ALONE, parts, strict=True)
    }
    return tables, {name: labels[rows] for name, rows in zip(ALONE, parts, strict=True)}


def shared(folder: Path, options: argparse.Namespace) -> Study:
    """Match two tables of glass by the columns that they have in common."""
    table, types = glass(folder)
    rows, figures = [], {}
    for split in range(options.splits):
        tables, true = halves(table, types, np.random.default_rng(options.seed + split))
        common = {name: own[list(COMMON)] for name, own in tables.items()}
        models = {
            "all columns": pmm.models.mixture(tables),
            "common columns alone": pmm.models.mixture(common),
            "all columns, none shared": pmm.models.mixture(tables, shared=[]),
        }
        for name, model in models.items():
            found = fit(model, options, options.seed + split)
            own = {half: found.labels[f"cluster_{half}"].to_numpy() for half in tables}
            rows.append(
                {
                    "model": name,
                    "MARI": metrics.matching_adjusted_rand_index(true, own),
                    "ARI within": within(true, own),
                    "pairs": pair_probability(found.best, true),
                    "seconds": found.seconds,
                }
            )
            if split == 0 and name == "all columns":
                figures["shared"] = plots.plot_match_matrix(found.best, labels=found.labels)
                figures["shared_types"] = plots.plot_confusion(own, true)
    return Study(averaged(rows), figures)


def pair_probability(idata: xr.DataTree, true: Mapping[str, NDArray]) -> float:
    """Mean match probability of pairs of the same class, above that of other pairs."""
    a, b = true
    match = matching.match_probability(idata, f"cluster_{a}", f"cluster_{b}").to_numpy()
    same = true[a][:, None] == true[b]
    return float(match[same].mean() - match[~same].mean())


# -- all of them ----------------------------------------------------------------------------------

STUDIES: dict[str, Callable[[Path, argparse.Namespace], Study]] = {
    "words": words,
    "classes": classes,
    "shared": shared,
}


def averaged(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Give means over splits, by model, with standard errors."""
    table = pd.DataFrame(rows)
    grouped = table.groupby("model", sort=False)
    found = {}
    for score in table.columns.drop("model"):
        mean, error = grouped[score].mean(), grouped[score].sem()
        digits = 1 if score == "seconds" else 3
        found[score] = [
            f"{m:.{digits}f}" + ("" if np.isnan(e) or score == "seconds" else f" ± {e:.{digits}f}")
            for m, e in zip(mean, error, strict=True)
        ]
    return pd.DataFrame(found, index=pd.Index(grouped.groups, name="model"))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, print their tables and write their figures.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    mpl.use("Agg")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        try:
            if options.folder is None:
                raise FileNotFoundError("no folder is given")
            study = STUDIES[name](options.folder, options)
        except FileNotFoundError as error:
            print(f"{name}: skipped: {error}")
            continue
        print(f"\n{name}: means over {options.splits} splits\n")
        print(study.table.to_string(), flush=True)
        study.table.to_csv(options.out / f"{name}.csv")
        for place, figure in study.figures.items():
            figure.savefig(options.out / f"{place}.png", dpi=150)
            print(f"figure  {options.out / place}.png")


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.mixtures",
        description="Mixtures of real tables.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    folder = os.environ.get("PM_MATCH_DATA")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(folder) if folder else None)
    parser.add_argument("--only", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--out", type=Path, default=Path("mixtures"), help="folder for the figures")
    parser.add_argument("--seed", type=int, default=0, help="of splits and of draws")
    parser.add_argument("--splits", type=int, default=3, help="of rows, or of hidden cells")
    parser.add_argument("--documents", type=int, default=250, help="of a class, in each half")
    parser.add_argument("--films", type=int, default=3000)
    parser.add_argument("--draws", type=int, default=200, help="a chain; half as many before")
    parser.add_argument("--chains", type=int, default=4)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
