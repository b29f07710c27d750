"""Match probabilities, ordered by cluster."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr

from pm_match.checks import counted
from pm_match.matching import partition_estimate
from pm_match.matching.draws import PREFIX, assignment_pairs
from pm_match.matching.given_labels import given_labels
from pm_match.matching.match_probability import read_pair
from pm_match.matching.ordered_pairs import ordered_pairs
from pm_match.matching.set_draws import full_names, read_sets
from pm_match.plots.canvas import as_they_are, drawn_titles, mark_clusters, panels, pyplot
from pm_match.plots.labels import names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Rows and columns of a panel, each the mean of as many objects as there have to be.
_MOST = 800
# Letters of what an axis shows, for one line, and pairs of domains whose objects are named.
_LONGEST, _NAMED = 40, 6


def plot_match_matrix(
    idata: xr.DataTree | xr.Dataset,
    a: str | None = None,
    b: str | None = None,
    *,
    labels: xr.Dataset | None = None,
    figsize: tuple[float, float] | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = ("chain", "draw"),
) -> Figure:
    """Draw the match probabilities of two domains, or of all pairs, ordered by cluster.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str, optional
        Names of two assignment variables, such as ``"cluster_upright"``. Default: every pair
        whose clusters are of one set.
    labels : Dataset, optional
        The partition that orders the objects. Default: `pm_match.partition_estimate`.
    figsize : tuple of float, optional
        Width and height in inches.
    group, sample_dims
        The group of the DataTree that holds the draws, and the dimensions that number them.

    Returns
    -------
    Figure
        One panel a pair: objects of the one domain by objects of the other, with borders between
        the clusters and the clusters' numbers on the axes; up to 40 objects are named, of up to
        six pairs. Of more than 800 objects, neighbours are averaged.

    Raises
    ------
    KeyError
        If there is no such group or variable, no assignment at all, or no labels of one.
    ValueError
        If only one of `a` and `b` is given, their clusters are of different sets, or labels do not
        fit.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> figure = pmm.plots.plot_match_matrix(posterior, "a", "b")
    """
    pyplot()
    if (a is None) != (b is None):
        raise ValueError(
            "a, b: expected both assignment variables, or neither for every pair; found one"
        )
    options: dict[str, Any] = {"group": group, "sample_dims": sample_dims}
    if a is None or b is None:
        pairs = assignment_pairs(idata, group, alone=True)
    else:
        first, second = full_names(idata, [a, b], group)
        pairs = [(first, second)]
    if not pairs:
        raise KeyError("expected two assignments of one set of clusters to draw; found none")
    found: Any = {}
    if labels is not None:
        names = [name for pair in pairs for name in pair]
        for draws in read_sets(idata, names, group, sample_dims):
            found |= draws.split(given_labels(labels, draws))
    # Pairs that cannot be compared are refused before the estimate, which takes its time.
    for pair in pairs:
        read_pair(idata, *pair, group, sample_dims, whole=False)
    if labels is None:
        found = partition_estimate(idata, **options)

    abreast = min(len(pairs), 3)
    size = 0.9 + 3.9 * abreast, 0.5 + 3.9 * -(-len(pairs) // abreast)
    figure, axes = panels(len(pairs), abreast, figsize=figsize or size)
    titles = drawn_titles(own.removeprefix(PREFIX) for pair in pairs for own in pair)
    for axis, (first, second) in zip(axes.flat, pairs, strict=False):
        (row_order, column_order), edges, means = ordered_pairs(
            idata, first, second, found, _MOST, **options
        )
        n_rows, n_columns = len(row_order), len(column_order)
        # All runs are as long as the first, but for the last, which ends beyond the panel.
        height, width = (len(own) * own[1] - own[1] - 0.5 for own in edges)
        image = axis.imshow(
            means,
            cmap="Blues",
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="nearest",
            extent=(-0.5, width, height, -0.5),
        )
        axis.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5))
        for side, variable, order, line in (
            (axis.yaxis, found[first], row_order, axis.axhline),
            (axis.xaxis, found[second], column_order, axis.axvline),
        ):
            own = names_of(variable[order]) if len(pairs) <= _NAMED else None
            mark_clusters(side, variable.to_numpy()[order], line, own)
        axis.set_label(f"{first} {second}")
        for put, name, n in (
            (axis.set_ylabel, first, n_rows),
            (axis.set_xlabel, second, n_columns),
        ):
            said = f"{titles[name.removeprefix(PREFIX)]}: {counted(n, 'object')}, by cluster"
            # Longer ones would not fit.
            put(said if len(said) <= _LONGEST else said.replace(": ", ":\n"))
    figure.colorbar(image, ax=figure.axes, label="P(same cluster)", shrink=0.8, pad=0.02)
    figure.suptitle(
        "Objects of one domain in the same cluster"
        if all(first == second for first, second in pairs)
        else "Match probability of objects in different domains"
    )
    return as_they_are(figure)
