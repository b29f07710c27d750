"""Where the objects of each known class are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import counted
from pm_match.plots.canvas import SMALL, as_they_are, drawn_names, drawn_titles, panels
from pm_match.plots.labels import irrelevant, labels_by_domain, largest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_COLUMNS = 3  # of panels
_MOST_CLASSES = 30  # more have no room for numbers


def plot_confusion(
    labels: xr.Dataset | Mapping[str, Any],
    true: Mapping[str, Any],
    *,
    n_clusters: int = 12,
    figsize: tuple[float, float] | None = None,
    **kwargs: Any,
) -> Figure:
    """Draw how many objects of each known class are in each cluster, domain by domain.

    The confusion matrices of Iwata & Ishiguro (2017), figure 8. A class of two domains that is in
    the same cluster has been matched.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before. Negative
        labels are irrelevant objects.
    true : mapping of str to array_like, shape (n_objects,)
        Each domain's classes: numbers, or names. Objects without one (None or NaN) are left out.
        Where they and the labels name objects, these are matched by name, in any order.
    n_clusters : int, default 12
        So many clusters have a column, the largest; the objects of the rest share one.
    figsize : tuple of float, optional
        Width and height in inches.
    **kwargs
        To `Axes.imshow`, such as ``cmap``.

    Returns
    -------
    Figure
        One panel for each domain, classes by clusters, in the order that puts most objects of all
        domains on the diagonal; "irr." are irrelevant objects. Numbers are
        objects, the shade is their share of the class.

    Raises
    ------
    ValueError
        If there is no domain, no object has a class, a domain has no labels, or not one for each
        object, or all objects are irrelevant.

    Examples
    --------
    >>> labels = {"a": [0, 0, 1, 1], "b": [0, 1, 1]}
    >>> figure = pmm.plots.plot_confusion(labels, {"a": [0, 0, 1, 1], "b": [1, 1, 0]})
    """
    if not true:
        raise ValueError("true: expected the classes of at least one domain; found none")
    found = labels_by_domain(labels, true)
    classes = {}
    for name, own in true.items():
        given = pd.Series(own)
        classes[name] = given.dropna().to_numpy()
        found[name] = found[name][given.notna()]
    if not any(map(len, classes.values())):
        raise ValueError("true: expected the class of at least one object; found none")
    shown, _ = largest(found, n_clusters)
    kinds = np.unique(np.concatenate(list(classes.values()))).tolist()
    columns, ticks = _columns(found, shown)
    kinds = _diagonal(kinds, classes, columns, len(shown))

    titles = drawn_titles(true)
    n_columns = min(len(true), _MOST_COLUMNS)
    n_rows = -(-len(true) // n_columns)
    width = 0.5 + float(np.clip(0.36 * len(ticks), 1.6, 13 / n_columns))
    height = 1.0 + float(np.clip(0.28 * len(kinds), 0.8, 6.0))
    size = 1.0 + width * n_columns, 0.5 + height * n_rows
    figure, axes = panels(len(true), n_columns, figsize=figsize or size, sharey=True)
    style: dict[str, Any] = {"cmap": "Greys", "vmin": 0, "vmax": 1, **kwargs}
    for axis, (name, own) in zip(axes.flat, classes.items(), strict=False):
        count = np.array(
            [
                np.bincount(columns[name][own == kind], minlength=len(ticks))[: len(ticks)]
                for kind in kinds
            ]
        )
        share = count / count.sum(axis=1, keepdims=True).clip(1)
        image = axis.imshow(share, aspect="auto", **style)
        if len(kinds) <= _MOST_CLASSES:
            for row, column in zip(*np.nonzero(count), strict=True):
                axis.text(
                    column,
                    row,
                    f"{count[row, column]}",
                    ha="center",
                    va="center",
                    fontsize=SMALL - 1,
                    color="white" if share[row, column] > 0.5 else "black",
                )
        axis.set_xticks(range(len(ticks)), ticks, fontsize=SMALL)
        axis.set_yticks(range(len(kinds)), drawn_names(kinds), fontsize=SMALL)
        axis.set_xticks(np.arange(len(ticks) - 1) + 0.5, minor=True)
        axis.set_yticks(np.arange(len(kinds) - 1) + 0.5, minor=True)
        axis.grid(which="minor", color="0.85", lw=0.5)
        axis.tick_params(which="both", length=0)
        axis.set_title(f"{titles[name]}: {counted(len(own), 'object')}", fontsize=10)
        axis.set_xlabel("cluster")
        axis.set_label(name)
    for axis in axes[:, 0]:
        axis.set_ylabel("class")
    figure.colorbar(image, ax=figure.axes, label="share of the class", pad=0.02, ticks=[0, 0.5, 1])
    figure.suptitle("Where the objects of each class are")
    return as_they_are(figure)


def _diagonal(
    kinds: list[Any],
    classes: Mapping[str, np.ndarray],
    columns: Mapping[str, np.ndarray],
    n_clusters: int,
) -> list[Any]:
    """Order classes by the clusters that they have most of, each of another; others come last."""
    count = np.zeros((len(kinds), n_clusters))
    for name, own in classes.items():
        inside = columns[name] < n_clusters
        np.add.at(count, (np.searchsorted(kinds, own[inside]), columns[name][inside]), 1)
    from scipy.optimize import linear_sum_assignment

    rows, chosen = linear_sum_assignment(-count)
    at = np.full(len(kinds), n_clusters)
    at[rows] = np.where(count[rows, chosen] > 0, chosen, n_clusters)
    return [kinds[k] for k in np.argsort(at, kind="stable")]


def _columns(
    found: Mapping[str, np.ndarray], shown: list[Any]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Column of each object, and what the columns are: clusters, other clusters, irrelevance."""
    outside = {name: irrelevant(own) for name, own in found.items()}
    other = {name: ~np.isin(own, shown) & ~outside[name] for name, own in found.items()}
    ticks = [str(cluster) for cluster in shown]
    last = len(ticks)
    if any(own.any() for own in other.values()):
        ticks.append("other")
    columns = {}
    for name, own in found.items():
        column = np.searchsorted(shown, own).clip(0, last)
        column[other[name]] = last
        column[outside[name]] = len(ticks)
        columns[name] = column
    if any(own.any() for own in outside.values()):
        ticks.append("irr.")
    return columns, ticks
