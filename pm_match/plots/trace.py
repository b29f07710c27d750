"""Sampler statistics, draw by draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.checks import no_such
from pm_match.matching.draws import draws_as_they_are, needs_tree
from pm_match.plots.canvas import chain_numbers, panels, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond this, colours repeat and a legend says nothing.
_MOST_NAMED_CHAINS = 10


def plot_trace(
    idata: xr.DataTree,
    *,
    var_names: Sequence[str] = ("log_joint", "n_occupied"),
    figsize: tuple[float, float] | None = None,
    group: str = "sample_stats",
    **kwargs: Any,
) -> Figure:
    """Draw sampler statistics that do not depend on the labels, one line for each chain.

    Chains that stay at different levels of the log joint have found different matchings.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.
    var_names : sequence of str
        Statistics to draw.
    figsize : tuple of float, optional
        Width and height in inches.
    group : str
        The group of the DataTree that holds them.
    **kwargs
        To `Axes.plot`, for the lines.

    Returns
    -------
    Figure

    Raises
    ------
    TypeError
        If `idata` is not a DataTree.
    KeyError
        If there is no such group or statistic.
    ValueError
        If no statistic is named.

    Examples
    --------
    >>> stats = xr.Dataset({"log_joint": (["chain", "draw"], [[-9.0, -8.5], [-8.0, -8.2]])})
    >>> idata = xr.DataTree.from_dict({"sample_stats": stats})
    >>> figure = pmm.plots.plot_trace(idata, var_names=["log_joint"])
    """
    plt = pyplot()
    needs_tree(idata)
    var_names = [var_names] if isinstance(var_names, str) else list(var_names)
    if not var_names:
        raise ValueError("var_names: expected at least one statistic; found none")
    stats = draws_as_they_are(idata, group)
    for name in var_names:
        if name not in stats:
            raise KeyError(no_such(f"statistic {name!r}", sorted(map(str, stats.data_vars)), name))
    titles = {"log_joint": "collapsed log joint", "n_occupied": "occupied clusters"}
    size = 8, 0.6 + 2.1 * len(var_names)
    figure, axes = panels(len(var_names), 1, figsize=figsize or size, sharex=True)
    for axis, name in zip(axes[:, 0], var_names, strict=True):
        values = stats[name]
        # Dark to light, so that chains are told apart in grey.
        colours = plt.colormaps["viridis"](np.linspace(0, 0.85, values.sizes["chain"]))
        for place, (chain, colour) in enumerate(zip(chain_numbers(values), colours, strict=True)):
            style = {
                "lw": 0.8,
                "color": colour,
                "drawstyle": "steps-mid" if values.dtype.kind in "iu" else "default",
            }
            own = values.isel(chain=place).transpose("draw", ...)
            axis.plot(values["draw"], own, label=f"{chain}", **{**style, **kwargs})
        axis.set_label(name)
        axis.set_ylabel(titles.get(name, name))
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.spines[["top", "right"]].set_visible(False)
        if values.dtype.kind in "iu":
            axis.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
            axis.set_ylim(int(values.min()) - 0.8, int(values.max()) + 0.8)
    axes[-1, 0].set_xlabel("draw")
    axes[-1, 0].xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle("Chains")
    handles, names = axes[0, 0].get_legend_handles_labels()
    if len(names) <= _MOST_NAMED_CHAINS:
        figure.legend(handles, names, title="chain", loc="outside right upper", frameon=False)
    return figure
