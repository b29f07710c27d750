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
from scipy import sparse

from pm_match import datasets
from pm_match.domains import as_domains
from pm_match.matching import (
    assignment_sets,
    map_objects,
    match_probability,
    partition_estimate,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "plot_clusters",
    "plot_gallery",
    "plot_mapped_images",
    "plot_match_matrix",
    "plot_networks",
    "plot_trace",
]

# Least distance between two drawn borders, as a part of the axis.
_LEAST_GAP = 0.006
_PREFIX = "cluster_"
_BORDER = "#d95f02"
_EDGE, _FRAME = "#7d8a99", "#a50f15"
_MOST_BINS = 500  # along a side of a panel: about its pixels
_SMALL = 8  # font size of ticks and notes
_THINNEST = 0.035  # a cluster under this share of an axis cannot carry its number
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
        Names of two assignment variables, such as ``"cluster_upright"``. Default: every pair
        whose clusters are of one set.
    labels : Dataset, optional
        The partition that orders the objects. Default: `pm_match.partition_estimate`.
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
        pairs = []
        for names in assignment_sets(idata, group=group).values():
            pairs += list(combinations(names, 2)) or [(name, name) for name in names]
    else:
        pairs = [(a, b)]
    if labels is None:
        labels = partition_estimate(idata, **options)

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
        same = (rows[:, None] == columns) & (columns >= 0)
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


def plot_networks(
    networks: Mapping[str, Any],
    labels: xr.Dataset | Mapping[str, Any],
    *,
    types: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw adjacency matrices ordered by relevance and cluster, side by side.

    Rows and columns are ordered by cluster, the largest (over all networks) first, so that a
    cluster comes in the same place in every network. Lines frame the blocks of clusters;
    irrelevant objects come last, outside of the lines. In matrices too large for a
    dot an edge, the shade is the share of cells with an edge. A sparse matrix stays sparse.

    Parameters
    ----------
    networks : mapping of str to matrix, shape (n_rows, n_columns)
        Sparse or dense. What is neither 0, missing nor masked is an edge.
    labels : Dataset or mapping
        As `pm_match.partition_estimate` gives them, in variables ``cluster_<network>_<type>``; or
        for each network a pair of label vectors, of rows and columns, or one vector for a network
        with the same objects as rows and columns. Negative labels are irrelevant objects. None in
        place of a vector leaves the order as it is.
    types : sequence of str, optional
        What rows and columns are, or one name for both. Default: the types in the names of a
        Dataset's variables; else "row" and "column", or "object".
    title : str, optional
        Title of the figure.

    Returns
    -------
    Figure
        One panel a network.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there is no network, a matrix is not two-dimensional, or the labels do not fit it.
    """
    plt = _pyplot()
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    if not networks:
        raise ValueError("networks: expected at least one; found none")
    edges = {name: _edges(name, network) for name, network in networks.items()}
    found, names = _labels_by_type(labels, edges, types)
    layouts = _layouts(found, edges)
    shades = {name: _shade(edges[name], *layouts[name]) for name in edges}
    binned = any(shade.shape != edges[name].shape for name, shade in shades.items())
    top = 1.0
    if binned:  # sparse networks fill few cells of a bin; the fullest bins are off the scale
        filled = np.concatenate([shade[shade > 0] for shade in shades.values()])
        top = float(np.quantile(filled, 0.9)) if len(filled) else 1.0

    n_columns = 2 if len(edges) == 4 else min(len(edges), 3)
    n_rows = -(-len(edges) // n_columns)
    figure, axes = plt.subplots(
        n_rows,
        n_columns,
        figsize=(0.7 + 4.0 * n_columns + 0.5 * binned, 0.6 + 4.2 * n_rows),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(edges) :]:
        axis.remove()
    # Edges in half-tone and lines dark: lines show on full blocks, in colour and in grey.
    half_tone = LinearSegmentedColormap.from_list("edges", ["white", _EDGE])
    for axis, (name, shade) in zip(axes.flat, shades.items(), strict=False):
        height, width = edges[name].shape
        image = axis.imshow(
            shade,
            cmap=half_tone,
            vmin=0,
            vmax=top,
            aspect="auto",
            extent=(0, width, height, 0),
        )
        rows, columns = layouts[name]
        lines = [[(0, y), (columns.framed, y)] for y in _apart(rows.borders, height)]
        lines += [[(x, 0), (x, rows.framed)] for x in _apart(columns.borders, width)]
        weight = float(np.clip(14 / max(len(lines), 1), 0.5, 1.2))
        axis.add_collection(
            LineCollection(lines, colors=_FRAME, linewidths=weight, clip_on=False, zorder=3),
            autolim=False,
        )
        for side, layout, what in (
            (axis.yaxis, rows, names[0]),
            (axis.xaxis, columns, names[-1]),
        ):
            layout.mark(side)
            side.set_label_text(f"{what}: {layout.summary}")
        axis.set_title(f"{name}: {_count(edges[name], found[name])}", fontsize=10)
        axis.spines[:].set_color("0.7")
    if binned:
        figure.colorbar(
            image,
            ax=axes,
            label="share of cells with an edge",
            extend="max" if top < 1 else "neither",
            shrink=0.8,
            pad=0.02,
            aspect=30,
        )
    if title is None:
        some = any(layout.irrelevant for pair in layouts.values() for layout in pair)
        title = "Networks ordered by cluster" + ", irrelevant objects last" * some
    figure.suptitle(title)
    return figure


def _apart(borders: Sequence[int], size: int) -> list[int]:
    """Leave out borders that would touch: of many tiny clusters only a solid band would show.

    The last one, between relevant and irrelevant objects, stays.
    """
    kept: list[int] = []
    for border in reversed(borders):
        if not kept or kept[-1] - border >= _LEAST_GAP * size:
            kept.append(border)
    return kept[::-1]


def _count(edges, labels) -> str:
    """Say how many edges there are: an undirected one, which fills two cells, counts once."""
    one_mode = edges.shape[0] == edges.shape[1] and labels[0] is labels[-1]
    cells = edges.tocsr()
    if one_mode and (cells != cells.T).nnz == 0:
        loops = int(np.count_nonzero(cells.diagonal()))
        return f"{(edges.nnz + loops) // 2:,} undirected edges"
    return f"{edges.nnz:,} edges"


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
    """Order objects by cluster, and within a cluster with the most certain matches first.

    Irrelevant objects, whose label is negative, come last.
    """
    return np.lexsort((-certainty, found, found < 0))


def _mark_clusters(axis: Any, ordered: np.ndarray, line: Callable[..., Any]) -> None:
    """Draw borders between the clusters of ordered labels and put their numbers on the axis."""
    starts, sizes = _runs(ordered)
    for start in starts[1:]:
        line(start - 0.5, color=_BORDER, lw=0.6)
    # A cluster too thin to carry its number goes without one.
    wide = sizes >= _THINNEST * len(ordered)
    names = [k if k >= 0 else "irrelevant" for k in ordered[starts[wide]].tolist()]
    axis.set_ticks((starts + (sizes - 1) / 2)[wide], names, fontsize=_SMALL)
    axis.set_tick_params(length=0)


def _runs(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find where the runs of equal labels start, and how long they are."""
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return starts, np.diff(np.r_[starts, len(ordered)])


def _edges(name: str, network: Any) -> sparse.coo_array:
    """Where the edges of a network are."""
    if sparse.issparse(network):
        matrix: Any = network
    else:
        matrix = np.ma.filled(np.ma.asarray(network), 0)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"network {name!r}: expected a matrix with rows and columns; found shape {matrix.shape}"
        )
    edges = sparse.csr_array(matrix).tocoo()
    edge = (edges.data != 0) & (edges.data == edges.data)  # NaN is none
    row, column = (place[edge] for place in edges.coords)
    return sparse.coo_array((np.ones(len(row), dtype=bool), (row, column)), shape=edges.shape)


def _labels_by_type(
    labels: xr.Dataset | Mapping[str, Any],
    networks: Mapping[str, sparse.coo_array],
    types: Sequence[str] | None,
) -> tuple[dict[str, list[np.ndarray | None]], Sequence[str]]:
    """Label vectors of each network's rows and columns, and what those are.

    Networks with the same objects as rows and columns have the same vector twice, and one type.
    """
    types = (types,) if isinstance(types, str) else types
    if types is not None and len(types) not in (1, 2):
        raise ValueError(f"types: expected one name or two; found {list(types)}")
    found: dict[str, list[np.ndarray | None]] = {}
    for name, network in networks.items():
        parts: list[Any]
        if isinstance(labels, xr.Dataset):
            kinds = _types_of(name, labels, networks) if types is None else types
            keys = [f"{_PREFIX}{name}_{kind}" for kind in kinds]
            if len(keys) not in (1, 2) or not set(keys) <= set(labels):
                raise ValueError(
                    f"network {name!r}: expected labels {keys or [f'{_PREFIX}{name}_<type>']} of "
                    f"one or two types (set types=); there are {sorted(map(str, labels))}"
                )
            types, parts = kinds, [labels[key] for key in keys]
        elif name not in labels:
            raise ValueError(f"network {name!r}: no labels; there are {sorted(map(str, labels))}")
        else:
            value = labels[name]
            several = isinstance(value, tuple | list) and any(
                part is None or np.ndim(part) for part in value
            )
            parts = list(value) if several else [value]
        if len(parts) not in (1, 2) or (types is not None and len(parts) != len(types)):
            raise ValueError(
                f"network {name!r}: expected labels of "
                f"{'one or two types' if types is None else f'the types {list(types)}'}; "
                f"found {len(parts)} vectors"
            )
        vectors = [None if part is None else np.asarray(part) for part in parts]
        found[name] = vectors * (2 // len(vectors))
        for size, vector, side in zip(network.shape, found[name], ("row", "column"), strict=True):
            if vector is not None and vector.shape != (size,):
                raise ValueError(
                    f"network {name!r}: expected a label for each of its {size} {side}s; "
                    f"found shape {vector.shape}"
                )
    if types is None:
        types = ("object",) if _one_mode(found) else ("row", "column")
    return found, types


def _types_of(name: str, labels: xr.Dataset, networks: Mapping[str, Any]) -> list[str]:
    """Types of a network's objects, as the names of variables tell them."""
    start = f"{_PREFIX}{name}_"
    # One network's name may begin with another's.
    longer = tuple(f"{_PREFIX}{other}_" for other in networks if other.startswith(f"{name}_"))
    return [
        str(key).removeprefix(start)
        for key in labels
        if str(key).startswith(start) and not str(key).startswith(longer)
    ]


def _one_mode(found: Mapping[str, Sequence[np.ndarray | None]]) -> bool:
    return all(row is column and row is not None for row, column in found.values())


class _Layout:
    """Where the objects of one axis are drawn.

    Attributes
    ----------
    place : ndarray, shape (n_objects,)
        Each object's place.
    borders : list of int
        Where lines are, in units of objects: around every cluster.
    framed : int
        How many objects are within lines: all, or those that are relevant.
    irrelevant : int
        How many are not.
    summary : str
        Numbers of objects.
    """

    def __init__(self, size: int, labels: np.ndarray | None, ranks: Mapping[Any, int]):
        if labels is None:
            self.place, self.borders = np.arange(size), []
            self.framed, self.irrelevant = size, 0
            self.summary, self._ticks = f"{size:,} objects", []
            return
        # Irrelevant objects have no rank, and come after all that have one.
        rank = np.array([ranks.get(label, len(ranks)) for label in labels.tolist()])
        order = np.argsort(rank, kind="stable")
        self.place = np.empty(size, dtype=np.int64)
        self.place[order] = np.arange(size)
        starts, sizes = _runs(rank[order])
        self.framed = int(np.sum(rank < len(ranks)))
        self.irrelevant = size - self.framed
        self.borders = [int(start) for start in starts if start <= self.framed]
        if self.framed and self.framed not in self.borders:
            self.borders.append(self.framed)
        n_clusters = len(starts) - (self.irrelevant > 0)
        self.summary = f"{size:,} objects, {n_clusters} cluster{'s' * (n_clusters != 1)}"
        if self.irrelevant:
            self.summary += f", {self.irrelevant:,} irrelevant"
        self._ticks = [
            (start + count / 2, str(labels[order[start]]))
            for start, count in zip(starts, sizes, strict=True)
            if start < self.framed
        ]

    def mark(self, axis: Any) -> None:
        """Put the clusters' numbers and the word for irrelevant objects on an axis."""
        size = len(self.place)
        vertical = axis.axis_name == "y"
        share = self.irrelevant / size
        last = "irrelevant" if share > 0.15 else "irr." if share > 0.07 else None
        shown: list[tuple[float, str]] = []
        for middle, name in self._ticks:
            # Numbers beside the one before only if both can be read.
            room = _THINNEST * (1 if vertical else 0.5 + 0.5 * len(name))
            if not shown or middle - shown[-1][0] >= room * size:
                shown.append((middle, name))
        if last:
            shown.append(((self.framed + size) / 2, last))
        axis.set_ticks([middle for middle, _ in shown], [name for _, name in shown])
        axis.set_tick_params(length=0, labelsize=_SMALL)
        if last and vertical:
            axis.get_ticklabels()[-1].set(rotation=90, va="center")


def _layouts(
    found: Mapping[str, Sequence[np.ndarray | None]], edges: Mapping[str, sparse.coo_array]
) -> dict[str, list[_Layout]]:
    """Lay out the rows and columns of all networks, with the clusters in the same order."""
    ranks = []
    for side in (0, 1):
        vectors = [part for pair in found.values() if (part := pair[side]) is not None]
        pooled = np.concatenate(vectors) if vectors else np.empty(0, dtype=int)
        if pooled.dtype.kind in "if":
            pooled = pooled[pooled >= 0]
        clusters, sizes = np.unique(pooled, return_counts=True)
        ordered = clusters[np.argsort(-sizes, kind="stable")].tolist()
        ranks.append({cluster: rank for rank, cluster in enumerate(ordered)})
    return {
        name: [_Layout(edges[name].shape[side], pair[side], ranks[side]) for side in (0, 1)]
        for name, pair in found.items()
    }


def _shade(edges: sparse.coo_array, rows: _Layout, columns: _Layout) -> np.ndarray:
    """Share of cells with an edge, in bins of about a pixel; time grows with the edges."""
    bins = [min(size, _MOST_BINS) for size in edges.shape]
    sizes = [
        np.bincount(np.arange(size) * count // size, minlength=count)
        for size, count in zip(edges.shape, bins, strict=True)
    ]
    row, column = (
        layout.place[place] * count // size
        for layout, place, count, size in zip(
            (rows, columns), edges.coords, bins, edges.shape, strict=True
        )
    )
    counts = np.bincount(row * bins[1] + column, minlength=bins[0] * bins[1])
    return counts.reshape(bins) / np.outer(*sizes)


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
