"""What all figures share: matplotlib, sizes, marks of clusters on axes, colours."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import no_such
from pm_match.matching.draws import check_dims

SMALL = 8  # font size of ticks and notes
_LEAST = 5.5  # of names of objects: those of `MOST_LABELS` fit
_LINE, _DIGIT = 0.035, 0.018  # shares of an axis that a line, or a digit, takes
_LONGEST, _WIDEST = 21, 25  # of names of objects, and domains: longer ones leave no room
MOST_LABELS = 40  # more tick labels than this cannot be read
_POINTS = 220  # length of a panel's side in points, less some room
_BORDER = "#d95f02"

# Values from below a mean to above it, blue by grey to orange, and from dark to light: the sign
# shows in colour, colour-blind eyes included, and the order in grey.
_CENTRED = ("#10264f", "#3f6fa3", "#a3a3a3", "#eeb06b", "#fff6dc")
ABSENT = {"facecolor": "white", "edgecolor": "0.75", "hatch": "////", "linewidth": 0}
GREY = "0.82"  # of irrelevant objects

# Neighbours, which touch in bars, differ in lightness; the cluster's number goes with them.
_COLOURS = (
    "#23357a",
    "#f2c14e",
    "#1b7f79",
    "#f4a6b7",
    "#8c1c13",
    "#a9d3f0",
    "#7a5cc0",
    "#b3d95f",
    "#5b3a1d",
    "#e8d9c0",
)
MARKERS = "os^Dv*PX<>"


def centred() -> Any:
    """Make the colour map of values about a mean."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("centred", _CENTRED)


def pyplot() -> ModuleType:
    """Import matplotlib only when something is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'figures need matplotlib, which is not installed: pip install "pm_match[examples]"'
        ) from error
    return plt


def panels(
    n: int, n_columns: int | None = None, *, figsize: tuple[float, float], **options: Any
) -> tuple[Any, np.ndarray]:
    """Make a figure of `n` panels in rows of `n_columns` (default: one row).

    Return `figure`; `axes` (n_rows, n_columns) of Axes: those beyond `n` are removed from the
    figure.
    """
    n_columns = n_columns or n
    figure, axes = pyplot().subplots(
        -(-n // n_columns),
        n_columns,
        figsize=figsize,
        squeeze=False,
        layout="constrained",
        **options,
    )
    for axis in axes.flat[n:]:
        axis.remove()
    return figure, axes


def panel(ax: Any, figsize: tuple[float, float], title: str = "") -> tuple[Any, Any]:
    """Give a figure and its axes: those given, or new ones under a title."""
    if ax is not None:
        return ax.figure, ax
    figure, ax = pyplot().subplots(figsize=figsize, layout="constrained")
    ax.set_title(title)
    return figure, ax


@contextmanager
def no_figure_left() -> Iterator[None]:
    """Close the figures that are made meanwhile, also if one fails half-way."""
    plt = pyplot()
    with plt.ioff():
        before = set(plt.get_fignums())
        try:
            yield
        finally:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)


def drawn_names(labels: Any) -> list[str]:
    """Write labels as they are drawn: dates without hours if none has any, whole numbers as such.

    Of long names the middle is left out, as objects are mostly told apart by their ends, or what is
    the same in all that would look alike.
    """
    index = pd.Index(labels)
    if index.dtype.kind in "mM":
        index = index.astype(str)
    names = [f"{name:g}" if isinstance(name, float) else str(name) for name in index]
    return _shortened(names, _LONGEST)


def drawn_titles(domains: Iterable[Any]) -> dict[Any, str]:
    """Write names of domains as they are drawn, by name: shortened as objects' if very long."""
    names = list(domains)
    return dict(zip(names, _shortened(list(map(str, names)), _WIDEST), strict=True))


def _shortened(names: Sequence[str], longest: int) -> list[str]:
    half, end = (longest - 1) // 2, longest // 5
    middle = longest - 2 * end - 2
    short = {
        name: name if len(name) <= longest else f"{name[:half]}…{name[-half:]}" for name in names
    }
    by_short: dict[str, list[str]] = {}
    for name, own in short.items():
        by_short.setdefault(own, []).append(name)
    for alike in (own for own in by_short.values() if len(own) > 1):
        same = [len(set(letters)) == 1 for letters in zip(*alike, strict=False)]
        differ = [*same, False].index(False)
        for name in alike:
            at = min(differ, len(name) - end - middle)
            short[name] = f"{name[:end]}…{name[at : at + middle]}…{name[-end:]}"
    return [short[name] for name in names]


def as_they_are[Drawn: Any](drawn: Drawn) -> Drawn:
    """Have the texts of a figure, or of axes, drawn as they are: dollar signs mark no formulas."""
    from matplotlib.text import Text

    for text in drawn.findobj(Text):
        if "$" in text.get_text():
            text.set_parse_math(False)
    return drawn


def chain_numbers(draws: xr.DataArray) -> np.ndarray:
    """Give the chains' numbers; numbers from 0 where runs that were put together repeat theirs."""
    numbers = draws["chain"].to_numpy()
    return numbers if len(np.unique(numbers)) == len(numbers) else np.arange(len(numbers))


def one_draw(
    posterior: xr.Dataset,
    sel: Mapping[Hashable, Any] | None,
    sample_dims: Sequence[Hashable],
    needed: Sequence[str],
) -> xr.Dataset:
    """Select one draw, by default the last, and refuse if it lacks variables that are `needed`."""
    check_dims(sample_dims)
    last = dict.fromkeys(sample_dims, -1)
    point = posterior.isel(last) if sel is None else posterior.sel(dict(sel))
    if left := [dim for dim in sample_dims if dim in point.dims]:
        raise ValueError(f"sel: expected one draw; found several along {left}")
    if lacking := [name for name in needed if name not in point]:
        names = ", ".join(map(repr, lacking))
        raise KeyError(no_such(f"variable {names}", sorted(map(str, point.data_vars)), lacking[0]))
    return point


def widths_of(
    n_features: Sequence[int], each: float, least: float, most: float, total: float
) -> list[float]:
    """Give the widths of panels of tables: `each` a feature, and `total` at most together."""
    widths = [float(np.clip(each * n, least, most)) for n in n_features]
    return [width * min(1, total / sum(widths)) for width in widths]


def standardised(values: Any) -> np.ma.MaskedArray:
    """Bring the columns of a table to mean 0 and variance 1; what is missing stays masked."""
    table = np.ma.asarray(values)
    return (table - table.mean(axis=0)) / table.std(axis=0)


def colour_of(cluster: int) -> str:
    """Colour of a cluster by its place; of irrelevant objects, which have none, grey."""
    return GREY if cluster < 0 else _COLOURS[cluster % len(_COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    from matplotlib.colors import to_rgb

    return "black" if np.dot(to_rgb(colour), (0.299, 0.587, 0.114)) > 0.55 else "white"


def run_starts(ordered: np.ndarray) -> np.ndarray:
    """Find where the runs of equal labels start."""
    return np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])


def mark_clusters(
    axis: Any, ordered: np.ndarray, line: Callable[..., Any], names: Sequence[str] | None = None
) -> None:
    """Draw borders between the clusters of ordered labels and put their numbers on the axis.

    Few objects carry their names instead, and the numbers are on the opposite side.
    """
    starts = run_starts(ordered)
    for start in starts[1:]:
        line(start - 0.5, color=_BORDER, lw=float(np.clip(8 / len(starts), 0.25, 0.8)))
    if names is not None:
        mark_objects(axis, np.arange(len(names)), names)
        axis = opposite(axis)
    numbers = [k if k >= 0 else "irr." for k in ordered[starts].tolist()]
    mark_readable(axis, numbers, np.r_[starts, len(ordered)] - 0.5)


def opposite(axis: Any) -> Any:
    """Make an axis on the other side of the panel."""
    if axis.axis_name == "y":
        other = axis.axes.secondary_yaxis("right")
    else:
        other = axis.axes.secondary_xaxis("top")
    other.spines[:].set_visible(False)
    return getattr(other, f"{axis.axis_name}axis")


def mark_readable(axis: Any, names: Sequence[Any], edges: Any) -> None:
    """Put the names of stretches into their middles, those of the widest first.

    Names that could not be read beside those of wider stretches are left out. The last of the
    edges, one more than names, are the end of the axis.
    """
    edges = np.asarray(edges, dtype=float)
    middles, texts = (edges[:-1] + edges[1:]) / 2, [str(name) for name in names]
    upright = axis.axis_name == "y"
    kept: list[int] = []
    for one in np.argsort(-np.diff(edges), kind="stable").tolist():
        room = [
            _LINE if upright else _DIGIT * (1 + (len(texts[one]) + len(texts[other])) / 2)
            for other in kept
        ]
        if (np.abs(middles[one] - middles[kept]) >= np.array(room) * edges[-1]).all():
            kept.append(one)
    kept.sort()
    axis.set_ticks(middles[kept], [texts[one] for one in kept], fontsize=SMALL)
    axis.set_tick_params(length=0)


def mark_objects(axis: Any, places: Any, names: Sequence[str]) -> None:
    """Put objects' names on an axis, as large as there is room for."""
    size = float(np.clip(_POINTS / max(len(names), 1), _LEAST, SMALL))
    turned = {"rotation": 90} if axis.axis_name == "x" else {}
    axis.set_ticks(places, names, fontsize=size, **turned)
    axis.set_tick_params(length=0)
