"""How high the starts of a search, and the chains, have come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pm_match.checks import counted
from pm_match.matching.draws import log_joint_of, needs_tree
from pm_match.plots.canvas import chain_numbers, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STARTS = "starts"
_WIDE = 100.0  # beyond so many nats, what is near the best is drawn on a scale of its own
_NEAR = 10.0


def plot_log_joint(
    idata: xr.DataTree,
    *,
    figsize: tuple[float, float] | None = None,
    **kwargs: Any,
) -> Figure:
    """Draw the log joint of every start of a search and of every chain, from the best down.

    Starts that reach the best have found the same mode if they also agree with it: their mark is
    dark (an adjusted Rand index of 1). Chains whose ranges do not meet are in different modes.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.find_matching` returns, with its group `starts`; or `pm_match.sample`, with
        the log joint of chains in `sample_stats`; or the first with the second's groups added.
    figsize : tuple of float, optional
        Width and height in inches.
    **kwargs
        To `Axes.scatter`, for the marks.

    Returns
    -------
    Figure
        A panel for the starts, if there are any, and one for chains, if they have draws to
        compare: the median, with the middle 90 % (dark) and all (light) of the draws. The
        axis is linear down to 10 nats below the best, and logarithmic beyond if the range is
        above 100.

    Raises
    ------
    TypeError
        If `idata` is not a DataTree.
    KeyError
        If there is neither a group `starts` nor one of sampler statistics with a log joint.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> figure = pmm.plots.plot_log_joint(idata)
    """
    needs_tree(idata)
    starts = idata.children[_STARTS].to_dataset() if _STARTS in idata.children else None
    chains = None
    if starts is None or "sample_stats" in idata.children:
        chains = log_joint_of(idata)
        if starts is not None and chains.size == 1:
            chains = None  # a search's single draw is its best start
    n_panels = (starts is not None) + (chains is not None)
    figure, (axes,) = panels(n_panels, figsize=figsize or (0.8 + 4.2 * n_panels, 3.6))
    style = {"s": 45, "edgecolors": "black", "linewidths": 0.8, "zorder": 3}
    if starts is not None:
        _draw_starts(figure, axes[0], starts, style | kwargs)
    if chains is not None:
        _draw_chains(axes[-1], chains, style | kwargs)
    axes[0].set_ylabel("log joint less the best (nats)")
    figure.suptitle("Log joint")
    return figure


def _draw_starts(figure: Any, axis: Any, starts: xr.Dataset, style: dict[str, Any]) -> None:
    values = starts["log_joint"].to_numpy()
    best = int(values.argmax())
    agreement = starts["agreement"].to_numpy()[best]
    marks = axis.scatter(
        starts["start"],
        values - values[best],
        **{"c": agreement, "cmap": "Greys", "vmin": 0, "vmax": 1, **style},
    )
    figure.colorbar(marks, ax=axis, label="agreement with the best")
    _finish(axis, "start", starts["start"].to_numpy(), values[best], values - values[best])


def _draw_chains(axis: Any, log_joint: xr.DataArray, style: dict[str, Any]) -> None:
    draws = log_joint.transpose("chain", "draw").to_numpy()
    best = float(draws.mean(axis=1).max())  # as `best_chain` chooses
    low, fifth, middle, ninety, high = np.quantile(draws - best, (0, 0.05, 0.5, 0.95, 1), axis=1)
    chain = chain_numbers(log_joint)
    axis.vlines(chain, low, high, color="0.75", lw=2)
    axis.vlines(chain, fifth, ninety, color="0.35", lw=4)
    axis.scatter(chain, middle, **{"c": "white", **style})
    _finish(axis, "chain", chain, best, np.r_[low, high])


def _finish(axis: Any, what: str, places: Any, best: float, values: np.ndarray) -> None:
    axis.axhline(0, color="0.6", lw=0.8, ls=":", zorder=1)
    if np.ptp(values) > _WIDE:
        axis.set_yscale("symlog", linthresh=_NEAR)
        axis.yaxis.set_major_formatter(lambda value, _: _signed(f"{value:,.4g}"))
    axis.xaxis.get_major_locator().set_params(integer=True)
    mean = " mean" * (what == "chain")
    axis.set_title(
        f"{counted(len(places), what)}; best{mean}: {_signed(f'{best:,.1f}')}", fontsize=10
    )
    axis.set_xlabel(what)
    axis.set_label(f"{what}s")
    axis.set_xlim(places[0] - 0.5, places[-1] + 0.5)
    axis.margins(y=0.1)
    axis.spines[["top", "right"]].set_visible(False)


def _signed(number: str) -> str:
    """Write a minus as matplotlib does."""
    return number.replace("-", "\N{MINUS SIGN}")
