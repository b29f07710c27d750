"""Images carried from one domain to others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match import datasets
from pm_match.matching import map_objects
from pm_match.plots.canvas import as_they_are, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_mapped_images(
    idata: xr.DataTree | xr.Dataset,
    x: Any,
    *,
    source: str,
    targets: Sequence[str],
    image_of: Callable[[Any], np.ndarray] = datasets.images,
    figsize: tuple[float, float] | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = ("chain", "draw"),
) -> Figure:
    """Draw images and what `pm_match.map_objects` makes of them in other domains.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    x : table, shape (n_objects, n_features)
        Images of the source domain, one for each row.
    source : str
        The domain they come from.
    targets : sequence of str
        Domains to carry them to.
    image_of : callable
        Turns a table into images, an array of shape (n_objects, height, width).
    figsize : tuple of float, optional
        Width and height in inches.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.

    Returns
    -------
    Figure
        One column an image: the original on top, one row a target below.

    Examples
    --------
    >>> domains = pmm.datasets.rotated_digits(50)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> images = domains["upright"][:4]
    >>> figure = pmm.plots.plot_mapped_images(idata, images, source="upright", targets=["quarter"])
    """
    targets = [targets] if isinstance(targets, str) else list(targets)
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    rows = {f"original\n({source})": np.asarray(image_of(x))} | {
        f"carried to\n{target}": np.asarray(
            image_of(map_objects(idata, x, source=source, target=target, **options))
        )
        for target in targets
    }
    n_images = len(next(iter(rows.values())))
    size = 1.3 + 1.0 * n_images, 0.6 + 1.0 * len(rows)
    figure, axes = panels(len(rows) * n_images, n_images, figsize=figsize or size)
    for row, (title, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(row, pictures, strict=True):
            # Each image on its own scale: a map through few factors is fainter than its source.
            axis.imshow(picture, cmap="gray_r", vmin=0, vmax=max(float(picture.max()), 1e-12))
            axis.set(xticks=[], yticks=[], label=title.replace("\n", " "))
            axis.spines[:].set_color("0.8")
        row[0].set_ylabel(title, rotation=0, ha="right", va="center", labelpad=8)
    figure.suptitle("Objects carried from one domain to others")
    return as_they_are(figure)
