"""Adjacency matrices, ordered by relevance and cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.plots.canvas import as_they_are, drawn_titles, panels
from pm_match.plots.network_labels import edges_of, labels_by_type
from pm_match.plots.network_layout import apart, layouts_of, shade_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EDGE, _FRAME = "#7d8a99", "#a50f15"


def plot_networks(
    labels: xr.Dataset | Mapping[str, Any],
    networks: Mapping[str, Any],
    *,
    types: Sequence[str] | None = None,
    title: str | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draw adjacency matrices ordered by relevance and cluster, side by side.

    Rows and columns are ordered by cluster, the largest (over all networks) first, so that a
    cluster comes in the same place in every network. Lines frame the blocks of clusters;
    irrelevant objects come last, outside of the lines. In matrices too large for a
    dot an edge, the shade is the share of cells with an edge. A sparse matrix stays sparse.

    Parameters
    ----------
    labels : Dataset or mapping
        As `pm_match.partition_estimate` gives them, in variables ``cluster_<network>_<type>``; or
        for each network a pair of label vectors, of rows and columns, or one vector for a network
        with the same objects as rows and columns. Negative labels are irrelevant objects. None in
        place of a vector leaves the order as it is.
    networks : mapping of str to matrix, shape (n_rows, n_columns)
        Sparse or dense. What is neither 0, missing nor masked is an edge. Where they and the
        labels name objects, these are matched by name, in any order.
    types : sequence of str, optional
        What rows and columns are, or one name for both. Default: the types in the names of a
        Dataset's variables; else "row" and "column", or "object".
    title : str, optional
        Title of the figure.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Figure
        One panel for each network; up to 40 objects are named, if the labels carry their names.

    Raises
    ------
    ValueError
        If there is no network, a matrix is not two-dimensional, or the labels do not fit it.

    Examples
    --------
    >>> data = pmm.datasets.synthetic_networks(n_relevant=20, n_irrelevant=5, random_seed=1)
    >>> figure = pmm.plots.plot_networks(data.clusters, data.networks, types=data.types)
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap

    if not networks:
        raise ValueError("networks: expected at least one; found none")
    edges = {name: edges_of(name, network) for name, network in networks.items()}
    found, names, objects = labels_by_type(labels, networks, types)
    layouts = layouts_of(found, edges, objects)
    shades = {name: shade_of(edges[name], *layouts[name]) for name in edges}
    binned = any(shade.shape != edges[name].shape for name, shade in shades.items())
    top = 1.0
    if binned:  # sparse networks fill few cells of a bin; the fullest bins are off the scale
        filled = np.concatenate([shade[shade > 0] for shade in shades.values()])
        top = float(np.quantile(filled, 0.9)) if len(filled) else 1.0

    n_columns = 2 if len(edges) == 4 else min(len(edges), 3)
    size = 0.7 + 4.0 * n_columns + 0.5 * binned, 0.6 + 4.2 * -(-len(edges) // n_columns)
    figure, axes = panels(len(edges), n_columns, figsize=figsize or size)
    titles = drawn_titles(edges)
    # Edges in half-tone and lines dark: lines show on full blocks, in colour and in grey.
    half_tone = LinearSegmentedColormap.from_list("edges", ["white", _EDGE])
    for axis, (name, shade) in zip(axes.flat, shades.items(), strict=False):
        height, width = edges[name].shape
        # Matplotlib blurs edges of cells as far as these are wide: so none is much wider than high.
        down, across = (max(shade.shape) // size for size in shade.shape)
        image = axis.imshow(
            shade.repeat(down, axis=0).repeat(across, axis=1),
            cmap=half_tone,
            vmin=0,
            vmax=top,
            aspect="auto",
            extent=(0, width, height, 0),
        )
        rows, columns = layouts[name]
        lines = [[(0, y), (columns.framed, y)] for y in apart(rows.borders, height)]
        lines += [[(x, 0), (x, rows.framed)] for x in apart(columns.borders, width)]
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
        axis.set_title(f"{titles[name]}: {_count(edges[name], found[name])}", fontsize=10)
        axis.spines[:].set_color("0.7")
        axis.set_label(name)
    if binned:
        figure.colorbar(
            image,
            ax=figure.axes,
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
    return as_they_are(figure)


def _count(edges, labels) -> str:
    """Say how many edges there are: an undirected one, which fills two cells, counts once."""
    one_mode = edges.shape[0] == edges.shape[1] and labels[0] is labels[-1]
    cells = edges.tocsr()
    if one_mode and (cells != cells.T).nnz == 0:
        loops = int(np.count_nonzero(cells.diagonal()))
        return f"{(edges.nnz + loops) // 2:,} undirected edges"
    return f"{edges.nnz:,} edges"
