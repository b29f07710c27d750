"""Tables side by side, matched objects in the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.checks import counted
from pm_match.plots.canvas import (
    ABSENT,
    MOST_LABELS,
    as_they_are,
    centred,
    drawn_names,
    drawn_titles,
    mark_objects,
    mark_readable,
    opposite,
    panels,
    standardised,
    widths_of,
)
from pm_match.plots.labels import irrelevant, labels_by_domain, largest
from pm_match.tables.domains import as_domains

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BORDER = "black"
# Inches that a letter of an object's name takes.
_LETTER = 0.055


def plot_matched_data(
    labels: xr.Dataset | Mapping[str, Any],
    domains: Mapping[str, Any],
    *,
    n_clusters: int | None = None,
    figsize: tuple[float, float] | None = None,
    **kwargs: Any,
) -> Figure:
    r"""Draw the tables with their rows aligned: matched objects lie beside each other.

    What a many-to-many matching makes of tables (Iwata, Hirao & Ueda, figure 1 of the journal's
    paper). A cluster is a band at the same height in every panel. Its height is its share of a
    domain's objects, averaged over the domains :math:`D_j` that have any of it,

    .. math:: h_j \propto \frac{1}{|D_j|} \sum_{d \in D_j} \frac{n_{dj}}{\sum_l n_{dl}},

    with :math:`n_{dj}` objects of domain d in cluster j, which fill the band however many they
    are. A domain without objects in a cluster is hatched there. Irrelevant objects come last, in
    a band of their own.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before. Where
        they and the tables name objects, these are matched by name, in any order.
    domains : mapping of str to table
        The tables of which the labels are, as `pm_match.models` takes them. Each feature is
        standardised over its domain; missing values are hatched too.
    n_clusters : int, optional
        At most so many clusters, the largest. Default: all.
    figsize : tuple of float, optional
        Width and height in inches.
    **kwargs
        To `Axes.imshow`, such as ``cmap`` or ``vmax``.

    Returns
    -------
    Figure
        One panel for each domain, objects by features, with one image for each cluster. Up to 40
        objects and 40 features are named.

    Raises
    ------
    ValueError
        If a domain has no labels, or not one for each object, or all objects are irrelevant.

    Examples
    --------
    >>> labels = {"a": [0, 0, 1, 1], "b": [0, 1, 1]}
    >>> tables = {
    ...     "a": np.array([[0.1, 2.0], [0.2, 2.1], [5.0, 7.2], [5.1, 7.3]]),
    ...     "b": np.array([[0.0, 1.9], [0.3, 2.2], [5.2, 7.0]]),
    ... }
    >>> figure = pmm.plots.plot_matched_data(labels, tables)
    """
    tables = as_domains(domains, unseen=True, declared=False)
    found = labels_by_domain(labels, domains)
    shown, omitted = largest(found, n_clusters)
    shown += [None] * any(irrelevant(own).any() for own in found.values())  # the irrelevant ones
    members = {name: [_members(own, cluster) for cluster in shown] for name, own in found.items()}
    counts = np.array([[len(objects) for objects in own] for own in members.values()])
    totals = counts.sum(axis=1, keepdims=True)
    heights = (counts / totals.clip(1)).sum(axis=0) / (counts > 0).sum(axis=0)
    edges = np.concatenate([[0], np.cumsum(heights / heights.sum())])

    widths = widths_of([table.n_features for table in tables.values()], 0.2, 2.0, 5, 11)
    names = {
        name: drawn_names(table.objects) if table.n_objects <= MOST_LABELS else []
        for name, table in tables.items()
    }
    letters = sum(max(map(len, own), default=0) for own in names.values())
    size = 1.2 + sum(widths) + 0.9 * len(tables) + _LETTER * letters, 5.4
    figure, axes = panels(len(tables), figsize=figsize or size, width_ratios=widths)
    style: dict[str, Any] = {
        "cmap": centred(),
        "vmin": -2.5,
        "vmax": 2.5,
        "interpolation": "nearest",
    } | kwargs
    titles = drawn_titles(tables)
    for axis, (name, table) in zip(axes[0], tables.items(), strict=True):
        values = standardised(table.values)
        axis.patch.set(**ABSENT)  # shows where a value is missing
        places = np.full(len(values), np.nan)
        for top, bottom, objects in zip(edges[:-1], edges[1:], members[name], strict=True):
            axis.axhline(bottom, color=_BORDER, lw=0.8)
            if not len(objects):
                axis.axhspan(top, bottom, **ABSENT)
                continue
            image = axis.imshow(
                values[objects],
                extent=(-0.5, table.n_features - 0.5, bottom, top),
                aspect="auto",
                **style,
            )
            places[objects] = top + (bottom - top) * (np.arange(len(objects)) + 0.5) / len(objects)
        axis.set(xlim=(-0.5, table.n_features - 0.5), ylim=(edges[-1], 0), label=name)
        axis.set_title(f"{titles[name]}: {counted(len(values), 'object')}", fontsize=10)
        if table.n_features <= MOST_LABELS:
            mark_objects(axis.xaxis, range(table.n_features), drawn_names(table.features))
            axis.set_xlabel("feature")
        else:
            axis.set_xticks([])
            axis.set_xlabel(f"{table.n_features:,} features")
        _mark_bands(opposite(axis.yaxis), edges, shown, counts[list(tables).index(name)])
        axis.set_yticks([])
        kept = np.isfinite(places)
        room = np.diff(np.sort(places[kept]), prepend=-1).min() if kept.any() else 0
        if names[name] and room > 0.8 / MOST_LABELS:
            mark_objects(axis.yaxis, places[kept], [names[name][k] for k in np.flatnonzero(kept)])
    axes[0, 0].set_ylabel("objects, by cluster")
    figure.colorbar(
        image,
        ax=figure.axes,
        label="standard deviations from the feature's mean",
        extend="both",
        shrink=0.8,
        pad=0.02,
        aspect=30,
    )
    figure.suptitle("Tables with matched rows aligned" + omitted)
    return as_they_are(figure)


def _members(found: np.ndarray, cluster: Any) -> np.ndarray:
    """Objects of a cluster; with None, the irrelevant ones."""
    return np.flatnonzero(irrelevant(found) if cluster is None else found == cluster)


def _mark_bands(axis: Any, edges: np.ndarray, shown: list[Any], counts: np.ndarray) -> None:
    """Say beside the bands which cluster it is, and its number of objects."""
    names = [
        f"{'irr.' if cluster is None else cluster} (n = {count:,})"
        for cluster, count in zip(shown, counts, strict=True)
    ]
    mark_readable(axis, names, edges)
