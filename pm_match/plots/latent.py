"""The latent space, with the objects of all domains in it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.matching.draws import (
    PREFIX,
    RELEVANCE,
    SAMPLE_DIMS,
    log_joint_of,
    read_draws,
    variable_of,
)
from pm_match.matching.map_objects import projection_of
from pm_match.matching.objects import in_order, objects_of
from pm_match.plots.canvas import (
    MARKERS,
    SMALL,
    as_they_are,
    colour_of,
    drawn_titles,
    one_draw,
    panel,
)
from pm_match.plots.labels import by_size, known_as
from pm_match.tables.domains import Domain, as_domains

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PROJECTION, _INTERCEPT = "projection_", "intercept_"


def plot_latent(
    idata: xr.DataTree | xr.Dataset,
    domains: Mapping[str, Any] | None = None,
    *,
    sel: Mapping[Hashable, Any] | None = None,
    latent: str = "latent",
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    **kwargs: Any,
) -> Figure:
    r"""Draw one draw's latent vectors, and the objects of every domain carried back to them.

    Of an object with features x in domain d it draws

    .. math:: \hat z = W_d^{+} (x - a_d),

    (Iwata, Hirao & Ueda 2016, below figure 4; with an intercept a if the model has one), in the
    plane of the first two principal axes of the occupied clusters' latent vectors. With missing
    values, W has the rows of the observed features only. The latent space may turn from draw to
    draw, and clusters change their numbers, so that draws cannot be averaged here.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` or `pm_match.find_matching` returns, or its posterior.
    domains : mapping of str to table, optional
        The tables as the model saw them: for `pm_match.models.table_clusters`, standardised.
        Default: the group `observed_data`. Where tables and draws name objects, these are
        matched by name, in any order.
    sel : mapping, optional
        Which draw, by coordinates of `sample_dims`, such as ``{"chain": 0, "draw": 99}``. Default:
        that with the highest log joint; of a Dataset, the last.
    latent : str, default "latent"
        The variable of latent vectors, clusters by factors.
    ax : Axes, optional
        Where to draw. Default: a new figure.
    figsize : tuple of float, optional
        Width and height in inches of a new figure.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.
    **kwargs
        To `Axes.scatter`, for the objects.

    Returns
    -------
    Figure
        Objects coloured by cluster, with a marker for each domain; irrelevant ones are white.
        Numbered circles are the latent vectors of clusters, 0 being the largest of the draw.

    Raises
    ------
    KeyError
        If a variable or group is missing.
    ValueError
        If a table does not fit its projection, `sel` leaves several draws, there are fewer than
        two factors, or all objects are irrelevant.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> figure = pmm.plots.plot_latent(idata, domains)
    """
    posterior = read_draws(idata, group)
    if sel is None:
        posterior = _best(idata, posterior, sample_dims)
    point = one_draw(posterior, sel, sample_dims, [latent])
    if domains is None:
        domains = _observed(idata, point)
    titles = {known_as(name, point): name for name in domains}
    tables = as_domains(
        {own: _in_order(point, own, domains[name]) for own, name in titles.items()}, declared=False
    )
    vectors = point[latent].to_numpy()
    if vectors.ndim != 2 or vectors.shape[1] < 2:
        raise ValueError(
            f"variable {latent!r}: expected vectors of two factors or more to draw a plane; "
            f"found dims {dict(point[latent].sizes)} in each draw"
        )
    objects = {name: _carried_back(point, table) for name, table in tables.items()}
    labels = {name: _labels(point, name) for name in tables}
    clusters = by_size(labels.values())
    place = {cluster: number for number, cluster in enumerate(clusters)}
    if not clusters:
        raise ValueError("expected clusters to draw; found irrelevant objects only")

    centre = vectors[clusters].mean(axis=0)
    _, scale, axes = np.linalg.svd(vectors[clusters] - centre)
    explained = np.zeros(2)
    explained[: len(scale)] = (scale**2 / max(np.sum(scale**2), 1e-300))[:2]

    title = "Latent space: objects carried back, by cluster and domain"
    figure, axis = panel(ax, figsize or (6.6, 5.2), title)
    n_objects = sum(map(len, objects.values()))
    style: dict[str, Any] = {
        "s": float(np.clip(8000 / max(n_objects, 1), 10, 45)),
        "linewidths": 0.4,
        "edgecolors": "0.2",
        "alpha": 0.8,
        **kwargs,
    }
    shown = drawn_titles(titles.values())
    for number, (name, z) in enumerate(objects.items()):
        own = [
            colour_of(place[label]) if label in place else "white"
            for label in labels[name].tolist()
        ]
        axis.scatter(
            *((z - centre) @ axes[:2].T).T,
            c=own,
            marker=MARKERS[number % len(MARKERS)],
            label=shown[titles[name]],
            **style,
        )
    at = (vectors[clusters] - centre) @ axes[:2].T
    # The largest on top, each with its own number.
    for number, (x, y) in reversed(list(enumerate(at))):
        on_top = {"zorder": 5 - number / len(at)}
        circle = {"s": 190, "c": "white", "edgecolors": colour_of(number), "linewidths": 2.5}
        axis.scatter(x, y, label=f"_cluster {number}", **circle, **on_top)
        axis.text(x, y, f"{number}", ha="center", va="center", fontsize=SMALL, **on_top)
    for side, rank, share in zip("xy", ("first", "second"), explained, strict=True):
        axis.set(
            **{f"{side}label": f"{rank} principal axis ({share:.0%} of the clusters' variance)"}
        )
    handles, names = axis.get_legend_handles_labels()
    # Axes that were given may have no room beside them.
    where: dict[str, Any] = {} if ax else {"loc": "upper left", "bbox_to_anchor": (1, 1)}
    legend = axis.legend(handles, names, title="domain", frameon=False, **where)
    for handle in legend.legend_handles:
        handle.set(facecolor="white", edgecolor="black", alpha=1, sizes=[35])
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_label("latent")
    as_they_are(axis)
    return figure


def _best(idata: Any, posterior: xr.Dataset, sample_dims: Sequence[Hashable]) -> xr.Dataset:
    """Keep the draw with the highest log joint; of a Dataset, all."""
    if isinstance(idata, xr.DataTree) and "sample_stats" in idata.children:
        log_joint = log_joint_of(idata)
        if set(log_joint.dims) == set(sample_dims):
            for dim, place in log_joint.argmax(list(log_joint.dims)).items():
                numbers = log_joint[dim].to_numpy()
                # Runs that were put together repeat numbers of chains.
                if len(np.unique(numbers)) == len(numbers):
                    posterior = posterior.sel({dim: numbers[[int(place)]]})
                else:
                    posterior = posterior.isel({dim: [int(place)]})
    return posterior


def _observed(idata: Any, point: xr.Dataset) -> dict[str, xr.DataArray]:
    """Tables that the model was conditioned on: those with a projection."""
    names = [
        str(name).removeprefix(_PROJECTION)
        for name in point.data_vars
        if str(name).startswith(_PROJECTION)
    ]
    there = isinstance(idata, xr.DataTree) and "observed_data" in idata.children
    data = idata["observed_data"].to_dataset() if there else xr.Dataset()
    lacking = [name for name in names if name not in data]
    if lacking or not names:
        raise KeyError(
            f"no observed data of {lacking or 'any domain with a projection'}: give the tables, "
            "as the model saw them, as domains"
        )
    return {name: data[name] for name in names}


def _in_order(point: xr.Dataset, name: str, table: Any) -> Any:
    """Put a table's rows into the order of the draw's objects."""
    own = f"{PREFIX}{name}"
    objects = objects_of(point[own]) if own in point else None
    return in_order(table, objects, where=f"domain {name!r}")


def _carried_back(point: xr.Dataset, table: Domain) -> np.ndarray:
    """Compute W⁺ (x - a) of every object, shape (n_objects, n_factors)."""
    (w,), features = projection_of(point, table.name, ())
    expected = (variable_of(point, f"{PREFIX}{table.name}", PREFIX).size, len(w))
    if table.values.shape != expected:
        raise ValueError(
            f"domain {table.name!r}: expected {expected[0]} objects of {expected[1]} features; "
            f"found shape {table.values.shape}"
        )
    x = np.ma.filled(table.values, np.nan)
    labels = features.indexes.get(features.dims[0])
    if labels is not None:
        order = pd.Index(table.features).get_indexer(labels)
        x = x[:, order] if (order >= 0).all() else x
    if f"{_INTERCEPT}{table.name}" in point:
        x = x - point[f"{_INTERCEPT}{table.name}"].to_numpy()
    seen = ~np.isnan(x)
    z = np.where(seen, x, 0) @ np.linalg.pinv(w).T
    for row in np.flatnonzero(~seen.all(axis=1)):
        z[row] = np.linalg.lstsq(w[seen[row]], x[row, seen[row]])[0]
    return z


def _labels(point: xr.Dataset, name: str) -> np.ndarray:
    """Clusters of a draw, -1 for irrelevant objects."""
    labels = point[f"{PREFIX}{name}"].to_numpy().astype(np.int64)
    flags = point.get(f"{RELEVANCE}{name}")
    return labels if flags is None else np.where(flags.to_numpy() != 0, labels, -1)
