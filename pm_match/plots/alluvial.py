"""Clusters flowing from domain to domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.checks import check_count, counted
from pm_match.matching.draws import set_title
from pm_match.plots.canvas import (
    GREY,
    SMALL,
    as_they_are,
    colour_of,
    drawn_titles,
    ink_on,
    panels,
)
from pm_match.plots.labels import labels_by_set

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HALF = 0.11  # of a bar's width, where domains are 1 apart
_THINNEST = 0.026  # a segment under this share of the axis cannot carry its number
_HATCH = {"alone": "////", "irrelevant": "..."}  # in grey, colours do not tell these apart
_TITLE = "Clusters across domains"
_OTHER, _IRRELEVANT = "other clusters", "irrelevant"


def plot_alluvial(
    labels: xr.Dataset | Mapping[str, Any],
    *,
    var_names: Sequence[str] | None = None,
    n_clusters: int = 20,
    share: bool = False,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draw how clusters run through the domains: bars of clusters, with ribbons between them.

    Every domain is a bar of its objects, stacked by cluster from the top, the largest first. A
    ribbon joins a cluster's objects in one domain with those in the next that has any: its ends are
    as high as their numbers. It passes behind the bars of domains that the cluster lacks.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, as `pm_match.partition_estimate` gives them. Negative
        labels are irrelevant objects.
    var_names : sequence of str, optional
        The variables to draw, in the order of the bars. Default: all.
    n_clusters : int, default 20
        So many clusters are drawn, those with the lowest labels, which are the largest; the
        objects of the rest share a segment without ribbons.
    share : bool, default False
        Whether bars show shares of the domain's objects instead of their numbers: for domains of
        very different sizes.
    ax : Axes, optional
        Where to draw, if the clusters are of one set. Default: a new figure.
    figsize : tuple of float, optional
        Width and height in inches of a new figure.

    Returns
    -------
    Figure
        One panel for each set of clusters (see `pm_match.matching.assignment_sets`). Clusters of
        one domain only are hatched, irrelevant objects grey with dots. The patches' `get_gid`
        says what they are: ``"bar <domain> <cluster>"``, ``"ribbon <domain> <domain> <cluster>"``.

    Raises
    ------
    TypeError
        If `labels` are draws.
    ValueError
        If there are no labels, they are not whole numbers, `n_clusters` is not positive, or `ax`
        is given and the clusters are of several sets.

    Examples
    --------
    >>> labels = {"a": [0, 0, 1, 1], "b": [0, 1, 1]}
    >>> figure = pmm.plots.plot_alluvial(labels)
    """
    sets = labels_by_set(labels, var_names)
    check_count("n_clusters", n_clusters)
    if ax is not None and len(sets) > 1:
        raise ValueError(
            f"ax: expected clusters of one set for one panel; found the sets {list(sets)}: name "
            "the variables of one by var_names"
        )
    if ax is None:
        most = max(len(found) for found in sets.values())
        size = figsize or (1.5 + 2.1 * most, 0.7 + 4.3 * len(sets))
        figure, axes = panels(len(sets), 1, figsize=size)
        drawn = list(axes[:, 0])
        figure.suptitle(_TITLE)
    else:
        figure, drawn = ax.figure, [ax]
    for axis, (kind, found) in zip(drawn, sets.items(), strict=True):
        _draw(axis, found, n_clusters, share, above=ax is not None)
        axis.set_label(kind or "clusters")
        if len(sets) > 1:
            axis.set_title(set_title(kind), loc="left", fontsize=10)
        as_they_are(axis)
    return figure


def _draw(
    axis: Any, found: Mapping[str, np.ndarray], n_clusters: int, share: bool, above: bool
) -> None:
    """Draw one set of clusters, with title and legend above it or none and beside it."""
    from matplotlib.patches import Patch, Rectangle

    clusters = np.unique(np.concatenate(list(found.values())))
    clusters = clusters[clusters >= 0]
    shown = clusters[:n_clusters].tolist()
    # One row a segment from the top: clusters, the others, irrelevant objects.
    counts = np.array(
        [
            [np.sum(own == cluster) for cluster in shown]
            + [np.isin(own, clusters[n_clusters:]).sum(), np.sum(own < 0)]
            for own in found.values()
        ],
        dtype=float,
    ).T
    alone = (counts > 0).sum(axis=1) == 1
    if share:
        counts /= counts.sum(axis=0)
    tops = np.cumsum(counts, axis=0)
    bottoms = tops - counts
    highest = tops[-1].max()
    names = list(found)

    for row, cluster in enumerate(shown):
        for left, right in pairwise(np.flatnonzero(counts[row])):
            patch = _ribbon(
                (left + _HALF, bottoms[row, left], tops[row, left]),
                (right - _HALF, bottoms[row, right], tops[row, right]),
            )
            patch.set(
                facecolor=colour_of(row),
                edgecolor="0.35",
                alpha=0.45,
                linewidth=0.5,
                linestyle="-" if right == left + 1 else "--",
                gid=f"ribbon {names[left]} {names[right]} {cluster}",
            )
            axis.add_patch(patch)
    single = False
    thin: list[list[tuple[float, int]]] = [[] for _ in names]
    for row, cluster in enumerate([*shown, _OTHER, _IRRELEVANT]):
        for place, name in enumerate(names):
            height = counts[row, place]
            if not height:
                continue
            colour = colour_of(row)
            if cluster in (_OTHER, _IRRELEVANT):
                colour = "white" if cluster == _OTHER else GREY
            only = bool(alone[row]) and len(names) > 1 and row < len(shown)
            single |= only
            axis.add_patch(
                Rectangle(
                    (place - _HALF, bottoms[row, place]),
                    2 * _HALF,
                    height,
                    facecolor="white" if only else colour,
                    edgecolor="0.2",
                    hatch=_HATCH["alone"] if only else _HATCH.get(str(cluster)),
                    linewidth=0.6,
                    zorder=3,
                    gid=f"bar {name} {cluster}",
                )
            )
            if row < len(shown) and height < _THINNEST * highest:
                thin[place].append(((bottoms[row, place] + tops[row, place]) / 2, cluster))
            elif row < len(shown):
                axis.text(
                    place,
                    (bottoms[row, place] + tops[row, place]) / 2,
                    f"{cluster}",
                    ha="center",
                    va="center",
                    fontsize=SMALL,
                    zorder=4,
                    color="black" if only else ink_on(colour),
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if only else None,
                )
    for place, beside in enumerate(thin):
        end, gap, last = tops[-1, place], _THINNEST * highest, place == len(names) - 1
        _number_beside(axis, place, beside, end, gap, last)
    axis.set_xlim(-0.3, len(names) - 0.7)
    # Cluster 0 is on top, as it is in the first row of matrices.
    axis.set_ylim(1.02 * highest, 0)
    titles = drawn_titles(found)
    sizes = [f"{titles[name]}\n{counted(len(own), 'object')}" for name, own in found.items()]
    axis.set_xticks(range(len(names)), sizes)
    if not share:
        axis.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    axis.set_ylabel("share of the domain's objects" if share else "number of objects")
    axis.tick_params(axis="x", length=0)
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    handles = [
        Patch(facecolor=face, edgecolor="0.2", hatch=hatch, label=label)
        for face, hatch, label, drawn in (
            (GREY, _HATCH["irrelevant"], _IRRELEVANT, counts[-1].any()),
            ("white", None, f"{len(clusters) - len(shown)} {_OTHER}", counts[-2].any()),
            ("white", _HATCH["alone"], "in one domain only", single),
        )
        if drawn
    ]
    if handles:
        # Axes that were given may have no room beside them.
        where: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)}
        if above:
            where = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": len(handles)}
        axis.legend(handles=handles, frameon=False, fontsize=SMALL, **where)
    if above:
        axis.set_title(_TITLE, pad=22 if handles else None)


def _number_beside(
    axis: Any, place: int, found: Sequence[Any], end: float, gap: float, last: bool
) -> None:
    """Put the numbers of segments that are too thin for them beside the bar, a `gap` apart.

    Numbers that would come more than two gaps below their segments are left out, and those below
    the bar's `end` moved up.
    """
    kept: list[tuple[float, int]] = []
    for middle, cluster in found:
        low = max(middle, kept[-1][0] + gap) if kept else middle
        if low <= middle + 2 * gap:
            kept.append((low, cluster))
    for low, cluster in reversed(kept):
        at = min(low, end)
        end = at - gap
        axis.text(
            place + (1.15 if last else -1.15) * _HALF,
            at,
            f"{cluster}",
            ha="left" if last else "right",
            va="center",
            fontsize=SMALL - 1,
            zorder=4,
        )


def _ribbon(left: tuple[float, float, float], right: tuple[float, float, float]) -> Any:
    """Make a band between two upright edges, each given by its x, bottom and top."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    (x0, low0, high0), (x1, low1, high1) = left, right
    middle = (x0 + x1) / 2
    corners = [
        (x0, low0),
        (middle, low0),
        (middle, low1),
        (x1, low1),
        (x1, high1),
        (middle, high1),
        (middle, high0),
        (x0, high0),
        (x0, low0),
    ]
    curve = [Path.CURVE4] * 3
    return PathPatch(Path(corners, [Path.MOVETO, *curve, Path.LINETO, *curve, Path.CLOSEPOLY]))
