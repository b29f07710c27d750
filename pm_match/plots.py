"""Figures people look at.

Every function returns the matplotlib Figure, so that a user can change or save it. The objects'
numbers mean nothing by themselves: figures order them by cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match import datasets
from pm_match.domains import as_domains
from pm_match.matching import (
    assignment_names,
    map_objects,
    match_probability,
    point_estimate,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "plot_clusters",
    "plot_gallery",
    "plot_mapped_images",
    "plot_match_matrix",
    "plot_trace",
]

_PREFIX = "cluster_"
_BORDER = "#d95f02"
_SMALL = 8  # font size of ticks and notes
_MOST_LABELS = 40  # more tick labels than this cannot be read

# Beyond this, colours repeat and a legend says nothing.
_MOST_NAMED_CHAINS = 10


def plot_match_matrix(
    idata: xr.DataTree | xr.Dataset,
    a: str | None = None,
    b: str | None = None,
    *,
    labels: xr.Dataset | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = ("chain", "draw"),
) -> Figure:
    """Draw the match probabilities of two domains, or of all pairs, ordered by cluster.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str, optional
        Names of two assignment variables, such as ``"cluster_upright"``. Default: every pair.
    labels : Dataset, optional
        The partition that orders the objects. Default: `pm_match.point_estimate`.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    Figure
        One panel a pair: objects of the one domain by objects of the other, with borders between
        the clusters and the clusters' numbers on the axes.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If only one of `a` and `b` is given.
    """
    plt = _pyplot()
    if (a is None) != (b is None):
        raise ValueError("a, b: give both assignment variables, or neither for every pair")
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    if a is None or b is None:
        names = assignment_names(idata, group=group)
        pairs = list(combinations(names, 2)) or [(name, name) for name in names]
    else:
        pairs = [(a, b)]
    if labels is None:
        labels = point_estimate(idata, **options)

    n_columns = min(len(pairs), 3)
    n_rows = -(-len(pairs) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(0.9 + 3.9 * n_columns, 0.5 + 3.9 * n_rows),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(pairs) :]:
        axis.remove()
    for axis, (first, second) in zip(axes.flat, pairs, strict=False):
        probability = match_probability(idata, first, second, **options).to_numpy()
        rows, columns = labels[first].to_numpy(), labels[second].to_numpy()
        same = rows[:, None] == columns
        row_order = _by_cluster(rows, (probability * same).sum(axis=1) / same.sum(axis=1).clip(1))
        column_order = _by_cluster(
            columns, (probability * same).sum(axis=0) / same.sum(axis=0).clip(1)
        )
        image = axis.imshow(
            probability[row_order][:, column_order],
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
        )
        _mark_clusters(axis.yaxis, rows[row_order], axis.axhline)
        _mark_clusters(axis.xaxis, columns[column_order], axis.axvline)
        axis.set_ylabel(f"{first.removeprefix(_PREFIX)}: {len(rows)} objects, by cluster")
        axis.set_xlabel(f"{second.removeprefix(_PREFIX)}: {len(columns)} objects, by cluster")
    figure.colorbar(image, ax=axes, label="P(same cluster)", shrink=0.8, pad=0.02)
    figure.suptitle(
        "Objects of one domain in the same cluster"
        if all(first == second for first, second in pairs)
        else "Match probability of objects in different domains"
    )
    return figure


def plot_gallery(
    labels: xr.Dataset | Mapping[str, Any],
    domains: Mapping[str, Any],
    *,
    image_of: Callable[[Any], np.ndarray] = datasets.images,
    n_images: int = 8,
    n_clusters: int | None = None,
) -> Figure:
    """Draw examples of the matched clusters: one row a cluster, one block a domain.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before.
    domains : mapping of str to table
        The tables of which the labels are.
    image_of : callable
        Turns a table into images, an array of shape (n_objects, height, width).
    n_images : int
        At most so many images of a cluster in a domain: the first.
    n_clusters : int, optional
        At most so many clusters, the largest. Default: all.

    Returns
    -------
    Figure

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If a domain has no labels, or not one an object.
    """
    plt = _pyplot()
    found = _labels_by_domain(labels, domains)
    pictures = {name: np.asarray(image_of(table)) for name, table in domains.items()}
    shown, omitted = _largest(found, n_clusters)
    low = min(float(picture.min()) for picture in pictures.values())
    high = max(float(picture.max()) for picture in pictures.values())

    figure, axes = plt.subplots(
        len(shown),
        len(domains),
        figsize=(0.6 + 0.42 * n_images * len(domains), 0.8 + 0.68 * len(shown)),
        squeeze=False,
        layout="constrained",
    )
    figure.get_layout_engine().set(wspace=0.03, hspace=0.02)
    for row, cluster in zip(axes, shown, strict=True):
        for axis, (name, picture) in zip(row, pictures.items(), strict=True):
            members = np.flatnonzero(found[name] == cluster)
            axis.imshow(
                _strip(picture[members[:n_images]], n_images, picture.shape[1:]),
                cmap="gray_r",
                vmin=low,
                vmax=high,
            )
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
            axis.set_xlabel(f"n = {len(members)}", fontsize=_SMALL, loc="left", labelpad=2)
        row[0].set_ylabel(
            str(cluster), rotation=0, ha="right", va="center", fontsize=12, fontweight="bold"
        )
    for axis, name in zip(axes[0], domains, strict=True):
        axis.set_title(name, loc="left")
    figure.suptitle("Matched clusters" + omitted)
    return figure


def plot_clusters(
    labels: xr.Dataset | Mapping[str, Any],
    domains: Mapping[str, Any],
    *,
    n_clusters: int | None = None,
) -> Figure:
    """Draw what sets the matched clusters apart: their mean profiles in each domain.

    Each feature is standardised over its domain; missing values are left out of the means.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before.
    domains : mapping of str to table
        The tables of which the labels are, as `pm_match.models` takes them.
    n_clusters : int, optional
        At most so many clusters, the largest. Default: all.

    Returns
    -------
    Figure
        One panel a domain, clusters by features.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If a domain has no labels, or not one an object.
    """
    plt = _pyplot()
    tables = as_domains(domains)
    found = _labels_by_domain(labels, {name: table.values for name, table in tables.items()})
    shown, omitted = _largest(found, n_clusters)
    widths = [float(np.clip(0.28 * table.n_features, 2.2, 7)) for table in tables.values()]
    widths = [width * min(1, 12 / sum(widths)) for width in widths]
    tall = any(table.n_features <= _MOST_LABELS for table in tables.values())
    figure, axes = plt.subplots(
        1,
        len(tables),
        figsize=(1.8 + sum(widths) + 0.8 * len(tables), 1.6 + 0.6 * tall + 0.32 * len(shown)),
        width_ratios=widths,
        squeeze=False,
        layout="constrained",
    )
    means = {name: _profiles(table.values, found[name], shown) for name, table in tables.items()}
    top = max(float(np.nanmax(np.abs(mean))) for mean in means.values())
    for axis, (name, table) in zip(axes[0], tables.items(), strict=True):
        image = axis.imshow(
            np.ma.masked_invalid(means[name]),
            cmap="RdBu_r",
            vmin=-top,
            vmax=top,
            aspect="auto",
            interpolation="nearest",
        )
        axis.set_facecolor("0.85")  # a cluster without objects here
        sizes = [int(np.sum(found[name] == cluster)) for cluster in shown]
        axis.set_yticks(
            range(len(shown)),
            [f"{c}  (n = {n})" for c, n in zip(shown, sizes, strict=True)],
            fontsize=_SMALL,
        )
        if table.n_features <= _MOST_LABELS:
            axis.set_xticks(range(table.n_features), table.features, rotation=90, fontsize=_SMALL)
        axis.set(title=name, xlabel="feature")
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[0, 0].set_ylabel("cluster")
    figure.colorbar(image, ax=axes, label="mean (standard deviations)", shrink=0.9, pad=0.02)
    figure.suptitle("Mean profiles of the matched clusters" + omitted)
    return figure


def plot_mapped_images(
    idata: xr.DataTree | xr.Dataset,
    x: Any,
    *,
    source: str,
    targets: Sequence[str],
    image_of: Callable[[Any], np.ndarray] = datasets.images,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = ("chain", "draw"),
) -> Figure:
    """Draw images and what `pm_match.map_objects` makes of them in other domains.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    x : table, shape (n_objects, n_features)
        Images of the source domain, one a row.
    source : str
        The domain they come from.
    targets : sequence of str
        Domains to carry them to.
    image_of : callable
        Turns a table into images, an array of shape (n_objects, height, width).
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    Figure
        One column an image: the original on top, one row a target below.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    plt = _pyplot()
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    rows = {f"original\n({source})": np.asarray(image_of(x))} | {
        f"carried to\n{target}": np.asarray(
            image_of(map_objects(idata, x, source=source, target=target, **options))
        )
        for target in targets
    }
    n_images = len(next(iter(rows.values())))
    figure, axes = plt.subplots(
        len(rows),
        n_images,
        figsize=(1.3 + 1.0 * n_images, 0.6 + 1.0 * len(rows)),
        squeeze=False,
        layout="constrained",
    )
    for row, (title, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(row, pictures, strict=True):
            # Each image on its own scale: a map through few factors is fainter than its source.
            axis.imshow(picture, cmap="gray_r", vmin=0, vmax=max(float(picture.max()), 1e-12))
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color("0.8")
        row[0].set_ylabel(title, rotation=0, ha="right", va="center", labelpad=8)
    figure.suptitle("Objects carried from one domain to others")
    return figure


def plot_trace(
    idata: xr.DataTree,
    *,
    var_names: Sequence[str] = ("log_joint", "n_occupied"),
    group: str = "sample_stats",
) -> Figure:
    """Draw sampler statistics that do not depend on the labels, one line a chain.

    Chains that stay at different levels of the log joint have found different matchings.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.
    var_names : sequence of str
        Statistics to draw.
    group : str
        The group of the DataTree that holds them.

    Returns
    -------
    Figure

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    KeyError
        If there is no such group or statistic.
    """
    plt = _pyplot()
    if group not in idata.children:
        raise KeyError(f"no group {group!r}; there are {sorted(idata.children)}")
    stats = idata.children[group].to_dataset()
    for name in var_names:
        if name not in stats:
            raise KeyError(f"no statistic {name!r}; there are {sorted(map(str, stats.data_vars))}")
    titles = {"log_joint": "collapsed log joint", "n_occupied": "occupied clusters"}
    figure, axes = plt.subplots(
        len(var_names),
        1,
        figsize=(8, 0.6 + 2.1 * len(var_names)),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axis, name in zip(axes[:, 0], var_names, strict=True):
        values = stats[name]
        for chain in values["chain"].to_numpy():
            axis.plot(
                values["draw"],
                values.sel(chain=chain),
                lw=0.8,
                label=f"{chain}",
                drawstyle="steps-mid" if values.dtype.kind in "iu" else "default",
            )
        axis.set_ylabel(titles.get(name, name))
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.spines[["top", "right"]].set_visible(False)
        if values.dtype.kind in "iu":
            axis.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axis.set_ylim(int(values.min()) - 0.8, int(values.max()) + 0.8)
    axes[-1, 0].set_xlabel("draw")
    figure.suptitle("Chains")
    handles, names = axes[0, 0].get_legend_handles_labels()
    if len(names) <= _MOST_NAMED_CHAINS:
        figure.legend(handles, names, title="chain", loc="outside right upper", frameon=False)
    return figure


def _by_cluster(found: np.ndarray, certainty: np.ndarray) -> np.ndarray:
    """Order objects by cluster, and within a cluster with the most certain matches first."""
    return np.lexsort((-certainty, found))


def _mark_clusters(axis: Any, ordered: np.ndarray, line: Callable[..., Any]) -> None:
    """Draw borders between the clusters of ordered labels and put their numbers on the axis."""
    clusters, starts, sizes = np.unique(ordered, return_index=True, return_counts=True)
    for start in starts[1:]:
        line(start - 0.5, color=_BORDER, lw=0.6)
    # A cluster too thin to carry its number goes without one.
    wide = sizes >= 0.035 * len(ordered)
    axis.set_ticks((starts + (sizes - 1) / 2)[wide], clusters[wide], fontsize=_SMALL)
    axis.set_tick_params(length=0)


def _labels_by_domain(
    labels: xr.Dataset | Mapping[str, Any], domains: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    result = {}
    for name, table in domains.items():
        key = next((k for k in (f"{_PREFIX}{name}", name) if k in labels), None)
        if key is None:
            raise ValueError(f"domain {name!r}: no labels; there are {sorted(map(str, labels))}")
        result[name] = np.asarray(labels[key])
        if result[name].shape != (table.shape[0],):
            raise ValueError(
                f"domain {name!r}: expected a label for each of its {table.shape[0]} objects; "
                f"found shape {result[name].shape}"
            )
    return result


def _largest(found: Mapping[str, np.ndarray], n_clusters: int | None) -> tuple[list[Any], str]:
    """List the clusters to show in the order of their labels, and say what is left out."""
    clusters, sizes = np.unique(np.concatenate(list(found.values())), return_counts=True)
    if n_clusters is None or len(clusters) <= n_clusters:
        return clusters.tolist(), ""
    kept = np.sort(np.argsort(-sizes, kind="stable")[:n_clusters])
    return clusters[kept].tolist(), f" (the {n_clusters} largest of {len(clusters)})"


def _strip(pictures: np.ndarray, n_images: int, shape: tuple[int, ...]) -> np.ndarray:
    """Put images beside each other, a pixel apart; NaN (drawn as nothing) where there is none."""
    height, width = shape
    strip = np.full((height, n_images * (width + 1) - 1), np.nan)
    for position, picture in enumerate(pictures):
        strip[:, position * (width + 1) : position * (width + 1) + width] = picture
    return strip


def _profiles(
    values: np.ndarray | np.ma.MaskedArray, found: np.ndarray, clusters: Sequence[Any]
) -> np.ndarray:
    """Means of the standardised features in each cluster, NaN where nothing is observed."""
    table = np.ma.asarray(values)
    standardised = (table - table.mean(axis=0)) / table.std(axis=0)
    return np.array([np.ma.filled(standardised[found == c].mean(axis=0), np.nan) for c in clusters])


def _pyplot() -> ModuleType:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'figures need matplotlib, which is not installed: pip install "pm_match[examples]"'
        ) from error
    return plt
