"""Mean profiles of the matched clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.plots.canvas import (
    ABSENT,
    MOST_LABELS,
    SMALL,
    as_they_are,
    centred,
    drawn_names,
    drawn_titles,
    panels,
    standardised,
    widths_of,
)
from pm_match.plots.labels import labels_by_domain, largest
from pm_match.tables.domains import as_domains

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours reach so many standard deviations at least.
_LEAST = 0.1


def plot_clusters(
    labels: xr.Dataset | Mapping[str, Any],
    domains: Mapping[str, Any],
    *,
    n_clusters: int | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draw what sets the matched clusters apart: their mean profiles in each domain.

    Each feature is standardised over its domain; missing values are left out of the means.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before. Where
        they and the tables name objects, these are matched by name, in any order.
    domains : mapping of str to table
        The tables of which the labels are, as `pm_match.models` takes them.
    n_clusters : int, optional
        At most so many clusters, the largest. Default: all.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Figure
        One panel for each domain, clusters by features.

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
    >>> figure = pmm.plots.plot_clusters(labels, tables)
    """
    tables = as_domains(domains, unseen=True, declared=False)
    found = labels_by_domain(labels, domains)
    shown, omitted = largest(found, n_clusters)
    widths = widths_of([table.n_features for table in tables.values()], 0.28, 2.2, 7, 12)
    tall = any(table.n_features <= MOST_LABELS for table in tables.values())
    size = 1.8 + sum(widths) + 0.8 * len(tables), 1.6 + 0.6 * tall + 0.32 * len(shown)
    figure, axes = panels(len(tables), figsize=figsize or size, width_ratios=widths)
    means = {name: _profiles(table.values, found[name], shown) for name, table in tables.items()}
    # Means that are all near zero, as those of one cluster are, have no colour.
    top = max(_LEAST, *(float(np.nanmax(np.abs(mean))) for mean in means.values()))
    titles = drawn_titles(tables)
    for axis, (name, table) in zip(axes[0], tables.items(), strict=True):
        image = axis.imshow(
            np.ma.masked_invalid(means[name]),
            cmap=centred(),
            vmin=-top,
            vmax=top,
            aspect="auto",
            interpolation="nearest",
        )
        axis.patch.set(**ABSENT)  # a cluster without objects here
        sizes = [int(np.sum(found[name] == cluster)) for cluster in shown]
        axis.set_yticks(
            range(len(shown)),
            [f"{c}  (n = {n})" for c, n in zip(shown, sizes, strict=True)],
            fontsize=SMALL,
        )
        if table.n_features <= MOST_LABELS:
            names = drawn_names(table.features)
            axis.set_xticks(range(table.n_features), names, rotation=90, fontsize=SMALL)
        axis.set(title=titles[name], xlabel="feature", label=name)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[0, 0].set_ylabel("cluster")
    figure.colorbar(
        image,
        ax=figure.axes,
        label="mean (standard deviations)",
        shrink=0.9,
        pad=0.02,
    )
    figure.suptitle("Mean profiles of the matched clusters" + omitted)
    return as_they_are(figure)


def _profiles(
    values: np.ndarray | np.ma.MaskedArray, found: np.ndarray, clusters: Sequence[Any]
) -> np.ndarray:
    """Means of the standardised features in each cluster, NaN where nothing is observed."""
    table = standardised(values)
    return np.array([np.ma.filled(table[found == c].mean(axis=0), np.nan) for c in clusters])
