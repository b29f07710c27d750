"""Whether events of probability p come true a share p of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pm_match.checks import check_count
from pm_match.plots.canvas import pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_calibration(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    n_bins: int = 10,
    level: float = 0.9,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    **kwargs: Any,
) -> Figure:
    r"""Draw a reliability curve: how often what has a probability comes true.

    Events are put into bins of equal width by their probability. Each bin's share of true events
    is drawn against its mean probability :math:`\bar p_b`; the bars are where, of calibrated
    probabilities, a share `level` of the points would lie,

    .. math:: \mathrm{Binomial}(n_b, \bar p_b) / n_b

    (Bröcker & Smith 2007, Increasing the reliability of reliability diagrams). They take events to
    be independent. Pairs of objects are not (of three objects in a cluster, two pairs make the
    third), and their points scatter more than the bars say.

    Parameters
    ----------
    probabilities : array_like, any shape
        Probabilities of events, such as `pm_match.match_probability`.
    outcomes : array_like, same shape
        Whether the event came true: True and False, or 1 and 0.
    n_bins : int, default 10
        Number of bins.
    level : float, default 0.9
        Probability of the bars.
    ax : Axes, optional
        Where to draw the curve. Default: a new figure, with the bins' numbers of events below.
    figsize : tuple of float, optional
        Width and height in inches of a new figure.
    **kwargs
        To `Axes.plot`, for the curve.

    Returns
    -------
    Figure

    Raises
    ------
    ValueError
        If probabilities are not in [0, 1] or there are none, outcomes are not 0 and 1 or of
        another shape, or `n_bins` or `level` is not as described.

    Examples
    --------
    >>> figure = pmm.plots.plot_calibration([0.1, 0.2, 0.8, 0.9], [False, True, True, True])
    """
    plt = pyplot()
    p, y = _checked(probabilities, outcomes)
    check_count("n_bins", n_bins)
    if not 0 < level < 1:
        raise ValueError(f"level: expected a probability between 0 and 1; found {level}")
    bins = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(bins, minlength=n_bins)
    filled = count > 0
    n = count[filled]
    mean = np.bincount(bins, p, n_bins)[filled] / n
    rate = np.bincount(bins, y, n_bins)[filled] / n
    # Rounding may bring a mean just above 1.
    mean, tails = mean.clip(0, 1), ((1 - level) / 2, (1 + level) / 2)
    low, high = (scipy.stats.binom.ppf(tail, n, mean) / n for tail in tails)

    if ax is None:
        figure, (axis, below) = plt.subplots(
            2,
            1,
            figsize=figsize or (4.6, 5.4),
            height_ratios=(4, 1),
            sharex=True,
            layout="constrained",
        )
        edges = np.linspace(0, 1, n_bins + 1)
        below.bar(
            edges[:-1], count, np.diff(edges), align="edge", color="0.75", edgecolor="0.2", lw=0.6
        )
        below.set(yscale="log", ylim=(0.5, 3 * count.max()), ylabel="events", label="events")
        below.set_xlabel("probability")
        below.spines[["top", "right"]].set_visible(False)
        figure.suptitle("Calibration")
    else:
        figure, axis = ax.figure, ax
        axis.set_xlabel("probability")
    axis.plot([0, 1], [0, 1], color="0.6", lw=0.8, zorder=1)
    axis.vlines(mean, low, high, color="0.75", lw=7, label=f"{level:.0%} if calibrated", zorder=2)
    style = {"color": "black", "marker": "o", "ms": 4, "lw": 1, "label": "observed", "zorder": 3}
    axis.plot(mean, rate, **{**style, **kwargs})
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="share that came true")
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_label("calibration")
    return figure


def _checked(probabilities: ArrayLike, outcomes: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, y = np.asarray(probabilities, dtype=float), np.asarray(outcomes)
    if p.shape != y.shape:
        raise ValueError(
            f"outcomes: expected one for each probability, shape {p.shape}; found shape {y.shape}"
        )
    p, y = p.ravel(), y.ravel()
    bad = p[~((p >= 0) & (p <= 1))]
    if not p.size or bad.size:
        raise ValueError(
            f"probabilities: expected numbers from 0 to 1; found {bad[0] if bad.size else 'none'}"
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        found = f"dtype {y.dtype}" if y.dtype.kind not in "biuf" else y[(y != 0) & (y != 1)][0]
        raise ValueError(f"outcomes: expected True or False, or 1 or 0; found {found}")
    return p, y
