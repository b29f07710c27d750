"""What models of dependency find: the experiments of Klami & Kaski, with what they are beside.

Two views of the same objects; what is wanted is what they share, and not what varies in one alone.

- ``cca``: maximum likelihood of factors shared by two views and private ones, by EM, against
  classical canonical correlation analysis: the sum of squared canonical correlations between
  E[z | x] and E[z | y], which with full private rank are classical.
- ``rank``: the same for fewer private factors, from principal components to canonical correlation
  (the paper's figure 3).
- ``correlated``: six clusters of the same design; how far the clusters' means spread in the
  subspace of the canonical variates. Paper: .26 for dependency clusters, .09 for a mixture.
- ``yeast``: six clusters of genes under two treatments; share of genes that are of the majority of
  their cluster, stress response or not, in ten halves. Paper: 86.0% and 81.1%.
- ``digits``: ten clusters of images of digits, two principal components and bimodal noise a view;
  share of the majority's digits. Paper: 15.4% for a mixture, 17.5% for dependency clusters, 27.4%
  for their hierarchy, which has 15 clusters in each view.
- ``correlated-free``, ``yeast-free``, ``digits-free``: the same three with the number of clusters
  free: posteriors under stick-breaking weights, by Gibbs sampling, and the partition nearest to
  their draws. More clusters are purer whatever they mean: see also their number, and the adjusted
  Rand index to the classes. Where clusters of one covariance are not normal, as those of genes,
  they fill any truncation (a warning says so), and the partition may have a few clusters more.
- ``toys``: the paper's figure 4.

The paper does not say whether the clusters of its mixture with full covariance share it. Here are
both: a covariance of its own for every cluster (scikit-learn's mixture), and one for all.

``yeast`` and ``digits`` need a folder with the files that `pm_match.datasets` describes. What is
missing is skipped, and said so.

Run ``python -m case_studies.dependency FOLDER --out dependency``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import NDArray
from scipy import stats
from threadpoolctl import threadpool_limits

import pm_match as pmm
from pm_match import datasets
from pm_match.views import em
from pm_match.views.em import dependency
from pm_match.views.em.shared_factors import latent_means

Array = NDArray[np.float64]
# How many clusters, of the whole and of a view in the hierarchy; starts of every EM.
CORRELATED, YEAST, DIGITS, MARGINAL = 6, 6, 10, 15
STARTS = 10
# Where the number of clusters is free: the most there may be, and draws of each of two chains.
MOST, TUNE, DRAWS = 20, 200, 200
# Nats that an iteration of EM must gain to go on: clusters do not change for less.
_TOLERANCE = 1e-2
# Sets of each study where it is not said, as in the paper.
SETS = {
    "cca": 100,
    "rank": 10,
    "correlated": 100,
    "yeast": 10,
    "digits": 20,
    "correlated-free": 20,
    "yeast-free": 10,
    "digits-free": 20,
    "toys": 1,
}

CLUSTERS, HIERARCHY = "dependency clusters", "dependency hierarchy"
MIXTURE, TIED = "mixture", "mixture, one covariance"
# From views to learn from, the number of clusters and a seed to a function of views that gives
# probabilities of clusters, of all their objects.
Fitted = Callable[[Sequence[Array]], Array]


def canonical_variates(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Find the classical canonical correlations of two views.

    Parameters
    ----------
    x, y : ndarray, shapes (n_objects, D_x) and (n_objects, D_y)

    Returns
    -------
    to_x, to_y : ndarray, shapes (D_x, k) and (D_y, k)
        Centred views times these have variance 1; k is the least of the two ranks.
    correlations : ndarray, shape (k,)
        In descending order.
    """
    bases, inverses = [], []
    for view in (x, y):
        u, s, vt = np.linalg.svd(view - view.mean(axis=0), full_matrices=False)
        kept = s > 1e-10 * s[0]
        bases.append(u[:, kept])
        inverses.append(vt[kept].T / s[kept] * np.sqrt(len(view)))
    left, correlations, right = np.linalg.svd(bases[0].T @ bases[1], full_matrices=False)
    return inverses[0] @ left, inverses[1] @ right.T, np.minimum(correlations, 1.0)


def shared_correlation(views: Sequence[Array], parameters: em.SharedFactors) -> float:
    """Sum the squared canonical correlations between E[z | x] and E[z | y] over all objects."""
    x, y = views
    seen = [(x, np.full_like(y, np.nan)), (np.full_like(x, np.nan), y)]
    means = [latent_means(own, parameters)[0] for own in seen]
    return float(np.sum(canonical_variates(*means)[2] ** 2))


def purity(labels: Array, classes: Array) -> float:
    """Share of objects that are of the majority class of their cluster.

    Parameters
    ----------
    labels, classes : ndarray of int, shape (n_objects,)

    Returns
    -------
    float
    """
    counts = np.zeros((labels.max() + 1, classes.max() + 1))
    np.add.at(counts, (labels, classes), 1)
    return float(counts.max(axis=1).sum() / len(labels))


def spread(probabilities: Array, views: Sequence[Array], n_shared: int = 3) -> float:
    """Variance of the clusters' means along the canonical variates.

    Parameters
    ----------
    probabilities : ndarray, shape (n_objects, n_clusters)
    views : sequence of ndarray, shape (n_objects, n_features)
        Two.
    n_shared : int
        How many variates of each view count, the most correlated ones.

    Returns
    -------
    float
        Mean over the variates of both views, of which each has variance 1 in all, so from 0 to 1.
    """
    to_x, to_y, _ = canonical_variates(*views)
    variates = np.hstack(
        [
            (view - view.mean(axis=0)) @ to[:, :n_shared]
            for view, to in zip(views, (to_x, to_y), strict=True)
        ]
    )
    sizes = np.maximum(probabilities.sum(axis=0), 1e-12)
    means = probabilities.T @ variates / sizes[:, None]
    return float(np.mean(sizes @ means**2 / len(variates)))


# -- what clusters ---------------------------------------------------------------------------------


def _clusters(views: Sequence[Array], n_clusters: int, seed: int) -> Fitted:
    found = em.fit_dependency(
        views, n_clusters, starts=STARTS, tolerance=_TOLERANCE, random_seed=seed
    ).parameters
    return lambda new: dependency.responsibilities(new, found)[0]


def _hierarchy(views: Sequence[Array], n_clusters: int, seed: int) -> Fitted:
    found = em.fit_dependency(
        views,
        n_clusters,
        [MARGINAL] * len(views),
        starts=STARTS,
        tolerance=_TOLERANCE,
        random_seed=seed,
    ).parameters
    return lambda new: dependency.responsibilities(new, found)[0]


def _tied(views: Sequence[Array], n_clusters: int, seed: int) -> Fitted:
    fitted = _clusters([np.hstack(views)], n_clusters, seed)
    return lambda new: fitted([np.hstack(new)])


def _mixture(views: Sequence[Array], n_clusters: int, seed: int) -> Fitted:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    mixture = GaussianMixture(n_clusters, n_init=STARTS, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(np.hstack(views))
    return lambda new: mixture.predict_proba(np.hstack(new))


METHODS: dict[str, Callable[[Sequence[Array], int, int], Fitted]] = {
    MIXTURE: _mixture,
    TIED: _tied,
    CLUSTERS: _clusters,
    HIERARCHY: _hierarchy,
}
_FLAT = (MIXTURE, TIED, CLUSTERS)

# The same with priors, and as many clusters as the data call for.
MODELS: dict[str, Callable[[Sequence[Array]], pm.Model]] = {
    MIXTURE: lambda views: pmm.models.dependency_clusters(
        {"both": np.hstack(views)}, MOST, within="own"
    ),
    TIED: lambda views: pmm.models.dependency_clusters({"both": np.hstack(views)}, MOST),
    CLUSTERS: lambda views: pmm.models.dependency_clusters(_named(views), MOST),
    HIERARCHY: lambda views: pmm.models.dependency_hierarchy(_named(views), MOST, MARGINAL),
}


def free_clusters(views: Sequence[Array], method: str, seed: int) -> NDArray[np.int64]:
    """Cluster objects, as many clusters as the data call for.

    Parameters
    ----------
    views : sequence of ndarray, shape (n_objects, n_features)
    method : str
        One of `MODELS`.
    seed : int

    Returns
    -------
    ndarray of int, shape (n_objects,)
        The partition with the least expected variation of information.
    """
    idata = pmm.sample(
        DRAWS,
        tune=TUNE,
        chains=2,
        cores=1,
        model=MODELS[method](views),
        random_seed=seed,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
    )
    return pmm.partition_estimate(idata, progressbar=False)["cluster_object"].to_numpy()


# -- one set of each study -------------------------------------------------------------------------


def cca_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Compare EM with full private rank with classical canonical correlation, on one drawn set."""
    views = _arrays(datasets.correlated_views(random_seed=seed))
    n_private = views[0].shape[1]
    fit = em.fit_shared_factors(views, 3, [n_private] * len(views), starts=3, random_seed=seed)
    classical = float(np.sum(canonical_variates(*views)[2][:3] ** 2))
    by_em = shared_correlation(views, fit.parameters)
    return [
        {
            "CCA": classical,
            "EM": by_em,
            "apart": abs(by_em - classical),
            "starts apart": float(np.ptp(fit.starts)),
        }
    ]


def rank_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Fit all numbers of shared and of private factors to one drawn set."""
    views = _arrays(datasets.correlated_views(random_seed=seed))
    classical = np.cumsum(canonical_variates(*views)[2] ** 2)
    rows = []
    for n_shared in range(1, 6):
        for n_private in range(views[0].shape[1] + 1):
            fit = em.fit_shared_factors(
                views,
                n_shared,
                [n_private] * len(views),
                starts=2,
                tolerance=1e-4,
                random_seed=seed,
            )
            rows.append(
                {
                    "shared": n_shared,
                    "private": n_private,
                    "EM": shared_correlation(views, fit.parameters),
                    "CCA": float(classical[n_shared - 1]),
                }
            )
    return rows


def correlated_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Cluster one drawn set, and measure the spread of means where the views are correlated."""
    views = _arrays(datasets.correlated_views(random_seed=seed))
    return [
        {"method": name, "spread": spread(METHODS[name](views, CORRELATED, seed)(views), views)}
        for name in _FLAT
    ]


def yeast_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Cluster one half of the genes, and tell which of both halves are of the stress response."""
    data = datasets.load_yeast_stress(_given(folder))
    views = _arrays(data.views)
    order = np.random.default_rng(seed).permutation(len(data.labels))
    train, test = np.split(order, [len(order) // 2])
    rows = []
    for name in _FLAT:
        fitted = METHODS[name]([view[train] for view in views], YEAST, seed)
        own, new = (fitted([v[part] for v in views]).argmax(axis=1) for part in (train, test))
        rows.append(
            {
                "method": name,
                "purity": purity(own, data.labels[train]),
                "other half": purity(new, data.labels[test]),
            }
        )
    return rows


def digits_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Cluster images of digits seen through two principal components a view, and noise."""
    data = datasets.load_multiple_features(_given(folder), ("kar", "zer"))
    views = _arrays(datasets.add_bimodal_noise(_principal(data.views), random_seed=seed))
    return [
        {
            "method": name,
            "purity": purity(METHODS[name](views, DIGITS, seed)(views).argmax(axis=1), data.labels),
        }
        for name in METHODS
    ]


def correlated_free_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Do as `correlated_set`, with the number of clusters free."""
    views = _arrays(datasets.correlated_views(random_seed=seed))
    rows = []
    for name in _FLAT:
        labels = free_clusters(views, name, seed)
        found = np.eye(labels.max() + 1)[labels]
        rows.append({"method": name, "spread": spread(found, views), "clusters": labels.max() + 1})
    return rows


def yeast_free_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Cluster the half of the genes that `yeast_set` learns from, the number of clusters free."""
    data = datasets.load_yeast_stress(_given(folder))
    order = np.random.default_rng(seed).permutation(len(data.labels))
    train, _ = np.split(order, [len(order) // 2])
    views = [view[train] for view in _arrays(data.views)]
    return _free_rows(views, data.labels[train], _FLAT, seed)


def digits_free_set(folder: Path | None, seed: int) -> list[dict[str, Any]]:
    """Do as `digits_set`, with the number of clusters free."""
    data = datasets.load_multiple_features(_given(folder), ("kar", "zer"))
    views = _arrays(datasets.add_bimodal_noise(_principal(data.views), random_seed=seed))
    return _free_rows(views, data.labels, MODELS, seed)


def _free_rows(views, classes, methods: Iterable[str], seed: int) -> list[dict[str, Any]]:
    rows = []
    for name in methods:
        labels = free_clusters(views, name, seed)
        rows.append(
            {
                "method": name,
                "purity": purity(labels, classes),
                "clusters": labels.max() + 1,
                "adjusted Rand": pmm.metrics.adjusted_rand_index({"": classes}, {"": labels}),
            }
        )
    return rows


_STUDIES: dict[str, Callable[[Path | None, int], list[dict[str, Any]]]] = {
    "cca": cca_set,
    "rank": rank_set,
    "correlated": correlated_set,
    "yeast": yeast_set,
    "digits": digits_set,
    "correlated-free": correlated_free_set,
    "yeast-free": yeast_free_set,
    "digits-free": digits_free_set,
}


def _arrays(views: Mapping[str, Any]) -> list[Array]:
    return [view.to_numpy() for view in views.values()]


def _named(views: Sequence[Array]) -> dict[str, Array]:
    return {f"view_{number}": view for number, view in enumerate(views)}


def _given(folder: Path | None) -> Path:
    if folder is None:
        raise FileNotFoundError("its file is in no FOLDER that was given")
    return folder


def _principal(views: Mapping[str, Any], n_components: int = 2) -> dict[str, Any]:
    """Reduce views to principal components of standardised features, each of variance 1."""
    reduced = {}
    for name, view in views.items():
        x = view.to_numpy()
        x = (x - x.mean(axis=0)) / x.std(axis=0)
        u, _, _ = np.linalg.svd(x, full_matrices=False)
        reduced[name] = view[:, :n_components].copy(data=u[:, :n_components] * np.sqrt(len(x)))
    return reduced


# -- tables ----------------------------------------------------------------------------------------


def compare(found: pd.DataFrame, score: str) -> pd.DataFrame:
    """Compare methods by a score of the same sets.

    Parameters
    ----------
    found : DataFrame
        A row for each set and method, with ``seed``, ``method`` and the score.
    score : str

    Returns
    -------
    DataFrame
        A row for each method: ``mean`` and ``s.d.`` over sets, ``sets``, in how many of them
        dependency clusters are ``below`` it, and ``p``, of Wilcoxon's signed-rank test between
        both.
    """
    wide = found.pivot(index="seed", columns="method", values=score)[found["method"].unique()]
    table = pd.DataFrame({"mean": wide.mean(), "s.d.": wide.std(), "sets": wide.count()})
    gain = wide.sub(wide[CLUSTERS], axis=0)
    table[f"{CLUSTERS} below"] = (gain > 0).sum()
    table["p"] = [
        stats.wilcoxon(gain[name]).pvalue if gain[name].any() else np.nan for name in wide
    ]
    return table


def _report(name: str, found: pd.DataFrame) -> pd.DataFrame:
    """Make the table of a study."""
    if name == "cca":
        return found[["CCA", "EM", "apart", "starts apart"]].agg(["mean", "max"])
    if name == "rank":
        return found.pivot_table(index="shared", columns="private", values="EM").assign(
            CCA=found.groupby("shared")["CCA"].mean()
        )
    known = ("spread", "purity", "other half", "clusters", "adjusted Rand")
    scores = [score for score in known if score in found]
    return pd.concat({score: compare(found, score) for score in scores}, names=["score"])


# -- figures ---------------------------------------------------------------------------------------


def plot_rank(found: pd.DataFrame):
    """Draw the correlation that is shared against the number of private factors.

    Parameters
    ----------
    found : DataFrame
        Rows of `rank_set`.

    Returns
    -------
    Figure
        A line for each number of shared factors, with standard deviations over sets; dashes where
        canonical correlation analysis is.
    """
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
    for (n_shared, own), marker in zip(found.groupby("shared"), "osD^v", strict=False):
        of = own.groupby("private")["EM"]
        mean, deviation = of.mean(), of.std().fillna(0.0)
        axis.errorbar(
            mean.index, mean, deviation, color="0.15", marker=marker, markerfacecolor="white",
            capsize=2, lw=1, label=f"{n_shared}",
        )  # fmt: skip
        axis.axhline(own["CCA"].mean(), color="0.6", lw=0.8, ls="--", zorder=0)
    axis.legend(title="shared factors", loc="lower right", frameon=False, reverse=True)
    axis.set_xlabel("private factors of each view")
    axis.set_ylabel("squared correlation of E[z | x] and E[z | y]")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def plot_toys(seed: int = 0):
    """Draw both toys of figure 4, with the clusters that the hierarchy finds.

    Parameters
    ----------
    seed : int

    Returns
    -------
    Figure
        A row for each toy, a panel for each view. Marks tell the clusters found; a true cluster
        that is not that of its mark's majority is drawn in red.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(7.4, 6.8), layout="constrained")
    for kind, row in zip(("structured", "multimodal"), axes, strict=True):
        data = datasets.dependent_clusters(kind, random_seed=seed)
        views = _arrays(data.views)
        fit = em.fit_dependency(
            views, 3, [8] * len(views), starts=4 * STARTS, tolerance=_TOLERANCE, random_seed=seed
        )
        labels = dependency.responsibilities(views, fit.parameters)[0].argmax(axis=1)
        share = purity(labels, data.labels)
        for axis, (name, view) in zip(row, data.views.items(), strict=True):
            for cluster, (marker, shade) in enumerate(
                zip("os^", ("0.1", "0.5", "0.75"), strict=True)
            ):
                own = labels == cluster
                majority = np.bincount(data.labels[own]).argmax() if own.any() else 0
                wrong = data.labels[own] != majority
                axis.scatter(
                    view[own, 0], view[own, 1], s=16, marker=marker, lw=0.7, facecolors="none",
                    edgecolors=np.where(wrong, "#c0392b", shade),
                )  # fmt: skip
            axis.set_xlabel(f"view {name}: depends on the cluster")
            axis.set_ylabel("depends on nothing")
        row[0].set_title(f"{kind}: {share:.0%} of the objects", loc="left", fontsize=9)
    return figure


def main(argv: Sequence[str] | None = None) -> None:
    """Run the studies, print their tables and write them with the figures.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments. Default: those of the process.
    """
    options = _options(argv)
    mpl.use("Agg")
    options.out.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):
        for name in options.only or SETS:
            _study(name, options)


def _study(name: str, options: argparse.Namespace) -> None:
    if name == "toys":
        plot_toys(options.first).savefig(options.out / "toys.png", dpi=150)
        print(f"toys: {options.out / 'toys.png'}\n", flush=True)
        return
    found: list[dict[str, Any]] = []
    sets = SETS[name] if options.sets is None else options.sets
    for seed in range(options.first, options.first + sets):
        try:
            found += [{"seed": seed} | row for row in _STUDIES[name](options.folder, seed)]
        except (FileNotFoundError, ImportError) as error:
            print(f"{name}: skipped, {error}", flush=True)
            return
        # After every set, so that a run that is cut short leaves what it has.
        pd.DataFrame(found).to_csv(options.out / f"{name}_sets.csv", index=False)
    table = _report(name, pd.DataFrame(found))
    table.to_csv(options.out / f"{name}.csv")
    print(f"{name}, {sets} sets\n{table.to_string(float_format='{:.4g}'.format)}\n", flush=True)
    if name == "rank":
        plot_rank(pd.DataFrame(found)).savefig(options.out / "rank.png", dpi=150)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m case_studies.dependency",
        description="What models of dependency find, and what others do.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", help="with files of real data sets")
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="STUDY", help=", ".join(SETS))
    parser.add_argument("--sets", type=int, help="sets of each study; if not given, the paper's")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="of the first set")
    parser.add_argument("--out", type=Path, default=Path("dependency"), help="tables and figures")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
