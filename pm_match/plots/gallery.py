"""Examples of the matched clusters, as pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match import datasets
from pm_match.checks import check_count
from pm_match.plots.canvas import SMALL, as_they_are, drawn_titles, panels
from pm_match.plots.labels import labels_by_domain, largest

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_gallery(
    labels: xr.Dataset | Mapping[str, Any],
    domains: Mapping[str, Any],
    *,
    image_of: Callable[[Any], np.ndarray] = datasets.images,
    n_images: int = 8,
    n_clusters: int | None = None,
    figsize: tuple[float, float] | None = None,
) -> Figure:
    """Draw examples of the matched clusters: one row for each cluster, one block for each domain.

    Parameters
    ----------
    labels : Dataset or mapping
        Labels of each domain's objects, named as the domain or with ``cluster_`` before. Where
        they and the tables name objects, these are matched by name, in any order.
    domains : mapping of str to table
        The tables of which the labels are.
    image_of : callable
        Turns a table into images, an array of shape (n_objects, height, width).
    n_images : int
        At most so many images of a cluster in a domain: the first.
    n_clusters : int, optional
        At most so many clusters, the largest. Default: all.
    figsize : tuple of float, optional
        Width and height in inches.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If a domain has no labels, or not one for each object, or all objects are irrelevant.

    Examples
    --------
    >>> domains = pmm.datasets.rotated_digits(50)
    >>> labels = pmm.datasets.true_labels(domains)
    >>> figure = pmm.plots.plot_gallery(labels, domains)
    """
    found = labels_by_domain(labels, domains)
    shown, omitted = largest(found, n_clusters)
    check_count("n_images", n_images)
    pictures = {name: np.asarray(image_of(table)) for name, table in domains.items()}
    low = min(float(picture.min()) for picture in pictures.values())
    high = max(float(picture.max()) for picture in pictures.values())

    size = 0.6 + 0.42 * n_images * len(domains), 0.8 + 0.68 * len(shown)
    figure, axes = panels(len(shown) * len(domains), len(domains), figsize=figsize or size)
    figure.get_layout_engine().set(wspace=0.03, hspace=0.02)
    for row, cluster in zip(axes, shown, strict=True):
        for axis, (name, picture) in zip(row, pictures.items(), strict=True):
            members = np.flatnonzero(found[name] == cluster)
            axis.imshow(
                strip_of(picture[members[:n_images]], n_images, picture.shape[1:]),
                cmap="gray_r",
                vmin=low,
                vmax=high,
            )
            axis.set(xticks=[], yticks=[], label=f"{name} {cluster}")
            axis.spines[:].set_visible(False)
            axis.set_xlabel(f"n = {len(members)}", fontsize=SMALL, loc="left", labelpad=2)
        row[0].set_ylabel(
            str(cluster), rotation=0, ha="right", va="center", fontsize=12, fontweight="bold"
        )
    for axis, title in zip(axes[0], drawn_titles(domains).values(), strict=True):
        axis.set_title(title, loc="left")
    figure.suptitle("Matched clusters" + omitted)
    return as_they_are(figure)


def strip_of(pictures: np.ndarray, n_images: int, shape: tuple[int, ...]) -> np.ndarray:
    """Put images beside each other, a pixel apart; NaN (drawn as nothing) where there is none."""
    height, width = shape
    strip = np.full((height, n_images * (width + 1) - 1), np.nan)
    for position, picture in enumerate(pictures):
        strip[:, position * (width + 1) : position * (width + 1) + width] = picture
    return strip
