"""Where the objects of networks are drawn."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from pm_match.checks import counted
from pm_match.plots.canvas import mark_objects, mark_readable, opposite, run_starts
from pm_match.plots.labels import by_size

_LEAST_GAP = 0.006  # between two drawn borders, as a part of the axis
_MOST_BINS = 500  # along a side of a panel: about its pixels


class AxisLayout:
    """Where the objects of one axis are drawn.

    It has `place` (n_objects,): each object's place; `borders`: where lines are, in units of
    objects: around every cluster. `framed`: how many objects are within lines: all, or those that
    are relevant. `irrelevant`: how many are not; `summary`: numbers of objects.
    """

    def __init__(
        self,
        size: int,
        labels: np.ndarray | None,
        ranks: Mapping[Any, int],
        objects: Sequence[str] | None,
    ):
        self._objects = objects
        if labels is None:
            self.place, self.borders = np.arange(size), []
            self.framed, self.irrelevant = size, 0
            self.summary, self._names, self._edges = counted(size, "object"), [], np.array([size])
            return
        # Irrelevant objects have no rank, and come after all that have one.
        rank = np.array([ranks.get(label, len(ranks)) for label in labels.tolist()])
        order = np.argsort(rank, kind="stable")
        self.place = np.empty(size, dtype=np.int64)
        self.place[order] = np.arange(size)
        starts = run_starts(rank[order])
        self.framed = int(np.sum(rank < len(ranks)))
        self.irrelevant = size - self.framed
        self.borders = [int(start) for start in starts if start <= self.framed]
        if self.framed and self.framed not in self.borders:
            self.borders.append(self.framed)
        n_clusters = len(starts) - (self.irrelevant > 0)
        self.summary = f"{counted(size, 'object')}, {counted(n_clusters, 'cluster')}"
        if self.irrelevant:
            self.summary += f", {self.irrelevant:,} irrelevant"
        self._names = [str(labels[order[start]]) for start in starts if start < self.framed]
        self._names += ["irr."] * (self.irrelevant > 0)
        self._edges = np.r_[starts, size]

    def mark(self, axis: Any) -> None:
        """Put the clusters' numbers and the word for irrelevant objects on an axis.

        Few objects carry their names instead, and the numbers are on the opposite side.
        """
        if self._objects is not None:
            mark_objects(axis, self.place + 0.5, self._objects)
            axis = opposite(axis)
        mark_readable(axis, self._names, self._edges)


def layouts_of(
    found: Mapping[str, Sequence[np.ndarray | None]],
    edges: Mapping[str, sparse.coo_array],
    objects: Mapping[str, Sequence[Sequence[str] | None]],
) -> dict[str, list[AxisLayout]]:
    """Lay out the rows and columns of all networks, with the clusters in the same order."""
    ranks = []
    for side in (0, 1):
        ordered = by_size(part for pair in found.values() if (part := pair[side]) is not None)
        ranks.append({cluster: rank for rank, cluster in enumerate(ordered)})
    return {
        name: [
            AxisLayout(edges[name].shape[side], pair[side], ranks[side], objects[name][side])
            for side in (0, 1)
        ]
        for name, pair in found.items()
    }


def shade_of(edges: sparse.coo_array, rows: AxisLayout, columns: AxisLayout) -> np.ndarray:
    """Share of cells with an edge, in bins of about a pixel; time grows with the edges."""
    bins = [min(size, _MOST_BINS) for size in edges.shape]
    sizes = [
        np.bincount(np.arange(size) * count // size, minlength=count)
        for size, count in zip(edges.shape, bins, strict=True)
    ]
    row, column = (
        layout.place[place] * count // size
        for layout, place, count, size in zip(
            (rows, columns), edges.coords, bins, edges.shape, strict=True
        )
    )
    counts = np.bincount(row * bins[1] + column, minlength=bins[0] * bins[1])
    return counts.reshape(bins) / np.outer(*sizes)


def apart(borders: Sequence[int], size: int) -> list[int]:
    """Leave out borders that would touch: of many tiny clusters only a solid band would show.

    The last one, between relevant and irrelevant objects, stays.
    """
    kept: list[int] = []
    for border in reversed(borders):
        if not kept or kept[-1] - border >= _LEAST_GAP * size:
            kept.append(border)
    return kept[::-1]
