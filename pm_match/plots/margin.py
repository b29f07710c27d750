"""The latent space of a max-margin model, coloured by what its classifier says there."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import no_such
from pm_match.matching.draws import SAMPLE_DIMS, needs_tree, read_draws
from pm_match.plots.canvas import SMALL, one_draw, panel
from pm_match.views.hinge import fourier_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 2.0  # scores beyond this have the same colour
_MARKERS = (("-1", "s"), ("+1", "o"), ("not labelled", "."))


def plot_margin(
    idata: xr.DataTree,
    *,
    sel: Mapping[Hashable, Any] | None = None,
    label: str = "label",
    one_class: Any = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] = (5.4, 4.4),
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> Figure:
    r"""Draw one draw's latent vectors and the score of the classifier around them.

    The score is :math:`f(h) = \beta^\top \phi(h)`. The plane is that in which it changes most: of
    the first two eigenvectors of the mean over objects of :math:`\nabla f \, \nabla f^\top`. The
    background is f on this plane, all other directions at the objects' mean; of two factors it is
    all there is. Of an object with label y the margin is y f; where it is below 1, the hinge pulls,
    and the object has a black edge.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns for `pm_match.models.max_margin_views`.
    sel : mapping, optional
        Which draw, by coordinates of `sample_dims`. Default: the last.
    label : str
        The observed variable of labels.
    one_class : optional
        Of several classes, that whose score is drawn. Default: the first.
    ax : Axes, optional
        Where to draw. Default: a new figure.
    figsize : tuple of float
        Width and height in inches of a new figure.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.

    Returns
    -------
    Figure
        Objects coloured by their own score, marked by label.

    Raises
    ------
    KeyError
        If a variable, group or class is missing.
    ValueError
        If `sel` leaves several draws, or there are fewer than two factors.

    Examples
    --------
    >>> data = pmm.datasets.xor_views(40)
    >>> model = pmm.models.max_margin_views(data.views, data.labels)
    >>> idata = pmm.sample(10, tune=10, chains=2, cores=1, model=model, random_seed=1, quiet=True)
    >>> figure = pmm.plots.plot_margin(idata)
    """
    needs_tree(idata)
    needed = ("latent", "frequencies", "coefficients")
    point = one_draw(read_draws(idata, group), sel, sample_dims, needed)
    if "observed_data" not in idata.children or label not in idata["observed_data"]:
        there = idata.children.get("observed_data", xr.DataTree())
        raise KeyError(no_such(f"observed labels {label!r}", sorted(map(str, there.data_vars))))
    latent, omega = point["latent"].to_numpy(), point["frequencies"].to_numpy()
    if latent.shape[1] < 2:
        raise ValueError("expected two factors or more to draw a plane; found one")
    labels = idata["observed_data"].to_dataset()[label]
    beta, y = _one_score(point["coefficients"], labels, one_class)

    centre = latent.mean(axis=0)
    plane = active_plane(latent, omega, beta)
    places = (latent - centre) @ plane
    figure, axis = panel(ax, figsize)
    low, high = places.min(axis=0), places.max(axis=0)
    x, y_axis = (
        np.linspace(a - 0.08 * (b - a), b + 0.08 * (b - a), 90)
        for a, b in zip(low, high, strict=True)
    )
    grid = np.stack(np.meshgrid(x, y_axis), axis=-1).reshape(-1, 2)
    behind = (fourier_values(centre + grid @ plane.T, omega) @ beta).reshape(len(y_axis), len(x))
    colours: dict[str, Any] = {"cmap": "PuOr", "vmin": -_MOST, "vmax": _MOST}
    shown = axis.pcolormesh(x, y_axis, behind, alpha=0.55, rasterized=True, **colours)
    if behind.min() < 0 < behind.max():
        axis.contour(x, y_axis, behind, levels=[0.0], colors="black", linewidths=1.0)
    score = fourier_values(latent, omega) @ beta
    for (name, marker), own in zip(_MARKERS, (y < 0, y > 0, y == 0), strict=True):
        if own.any():
            pulled = (y[own] != 0) & (y[own] * score[own] < 1)
            edges = np.where(pulled, "black", "0.6").tolist()
            axis.scatter(
                places[own, 0], places[own, 1], c=score[own], s=22, marker=marker,
                edgecolors=edges, lw=0.7, label=name, **colours,
            )  # fmt: skip
    figure.colorbar(shown, ax=axis, label="score", extend="both")
    axis.set(
        xlabel="latent direction in which the score changes most",
        ylabel="direction in which it changes next most",
        label="margin",
    )
    legend = axis.legend(
        title="label", title_fontsize=SMALL, fontsize=SMALL, frameon=False,
        loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(_MARKERS),
    )  # fmt: skip
    for handle in legend.legend_handles:
        handle.set(facecolor="white", edgecolor="black")
    return figure


def active_plane(latent: NDArray, omega: NDArray, beta: NDArray) -> NDArray[np.float64]:
    """Find the plane in which the score of latent vectors changes most.

    `latent` (n_objects, n_factors); `omega` (n_frequencies, n_factors); `beta`
    (2 * n_frequencies + 1,). Return (n_factors, 2): orthonormal.
    """
    m = len(omega)
    angle = latent @ omega.T
    slope = (np.cos(angle) * beta[m : 2 * m] - np.sin(angle) * beta[:m]) @ omega / np.sqrt(m)
    _, vectors = np.linalg.eigh(slope.T @ slope)
    return vectors[:, :-3:-1]


def _one_score(
    coefficients: xr.DataArray, labels: xr.DataArray, one_class: Any
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give coefficients and labels of one score: -1, +1, and 0 for what is not labelled."""
    y = labels.to_numpy().astype(float)
    # As codes of a `Hinge` they are that already; of several classes -1 is not labelled.
    if coefficients.ndim == 1:
        return coefficients.to_numpy(), y
    classes = coefficients[coefficients.dims[1]].to_numpy().tolist()
    if one_class is not None and one_class not in classes:
        raise KeyError(f"one_class: expected one of {classes}; found {one_class!r}")
    number = 0 if one_class is None else classes.index(one_class)
    one_against_rest = np.where(y < 0, 0.0, np.where(y == number, 1.0, -1.0))
    return coefficients.to_numpy()[:, number], one_against_rest
