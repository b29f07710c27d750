"""The objects of one domain that share clusters most often with each object of another.

The number of draws in which two objects are apart is a distance. So whoever is at distance d from
a third one is at least ``|d - e|`` from those that are at distance e from it. Partners are sorted
by their distance from the centre of their cluster in one of the draws, and laid out in tiles;
whole tiles that cannot hold a better partner than those that were found are never looked at.
Nothing is lost, whatever the centres are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.ahead import compile_ahead, job
from pm_match.numerics.kernels import entry
from pm_match.progress import say

# Partners that are compared at a time; draws, which a byte can count, after which it is asked
# whether they are worth going on with; and centres.
_WIDTH, _DRAWS, _MOST_CENTRES = 256, 64, 64


class Tiles(NamedTuple):
    """Possible partners (C,), side by side where they are compared."""

    labels: NDArray[np.unsignedinteger]  # (n, S, W)
    partner: NDArray[np.int64]  # (n, W): their numbers; -1 where there is none
    centre: NDArray[np.int64]  # (n,): the centre that those of a tile are measured from
    # near, far (n,): the least and the largest distance from it
    near: NDArray[np.int64]
    far: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.unsignedinteger], centres: NDArray) -> "Tiles":
        """Lay out partners (C, S) by their nearest centre (K, S), the nearest to it first."""
        distance = _distances(rows, centres)
        centre = distance.argmin(axis=1)
        distance = distance[np.arange(len(rows)), centre]
        order = np.lexsort((distance, centre))
        ends = np.cumsum(np.bincount(centre, minlength=len(centres)))
        starts = [
            np.arange(start, stop, _WIDTH)
            for start, stop in zip(np.append(0, ends[:-1]), ends, strict=True)
        ]
        first = np.concatenate(starts)
        owner = np.repeat(np.arange(len(centres)), list(map(len, starts)))
        place = first[:, None] + np.arange(_WIDTH)
        there = place < ends[owner][:, None]
        partner = np.where(there, order[np.minimum(place, len(order) - 1)], -1)
        labels = np.empty((len(first), rows.shape[1], _WIDTH), rows.dtype)
        for number, own in enumerate(partner):
            labels[number] = rows[own].T
        own = np.where(there, distance[partner], 0)
        return cls(labels, partner, owner, distance[partner[:, 0]], own.max(axis=1))


def best_of(
    rows: NDArray[np.unsignedinteger], others: NDArray[np.unsignedinteger], n_best: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find who shares a label most often, of equals the first.

    `rows` (N, S): labels of objects in all draws; `others` (C, S): those of their possible
    partners; `n_best`: at most C. Return `partner`, `count` (N, n_best): the best first.
    """
    partner = np.full((len(rows), n_best), len(others), dtype=np.int64)
    count = np.full(partner.shape, -1, dtype=np.int64)
    if not n_best:
        return partner, count
    centres = _centres(others)
    # Where one kernel is not on disk, the other is not either.
    if compile_ahead([job(_measure, others, centres, count)]):
        say("Compiling (first use only)")
    tiles = Tiles.of(others, centres)
    distance = _distances(rows, centres)
    begin = np.searchsorted(tiles.centre, distance.argmin(axis=1))
    part, total = np.empty(_WIDTH, np.uint8), np.empty(_WIDTH, np.int64)
    _search(rows, distance, begin, tiles, part, total, partner, count)
    return partner, count


def _centres(rows: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Give the usual labels (K, S) of the largest clusters of the draw in the middle."""
    n_draws = rows.shape[1]
    label, size = np.unique(rows[:, n_draws // 2], return_counts=True)
    largest = label[np.argsort(-size, kind="stable")[:_MOST_CENTRES]]
    found = np.empty((len(largest), n_draws), rows.dtype)
    for number, own in enumerate(largest):
        inside = rows[rows[:, n_draws // 2] == own][:_WIDTH]
        for draw in range(n_draws):
            values, times = np.unique(inside[:, draw], return_counts=True)
            found[number, draw] = values[times.argmax()]
    return found


def _distances(rows: NDArray, centres: NDArray) -> NDArray[np.int64]:
    """Count the draws in which objects (N, S) and centres (K, S) differ, (N, K)."""
    found = np.empty((len(rows), len(centres)), np.int64)
    _measure(rows, centres, found)
    return found


@entry
def _measure(rows, centres, out):
    for i in range(rows.shape[0]):
        for k in range(centres.shape[0]):
            n = 0
            for t in range(rows.shape[1]):
                n += rows[i, t] != centres[k, t]
            out[i, k] = n


@entry
def _search(rows, distance, begin, tiles, part, total, partner, count):
    """Fill `partner` and `count` (N, B) with the best of all tiles; `part`, `total` are scratch.

    An object looks at the tiles from `begin` (N,) on, those around its nearest centre: what they
    are worth leaves out most of the others.
    """
    n_draws, width, last = rows.shape[1], tiles.partner.shape[1], partner.shape[1] - 1
    n_tiles = tiles.partner.shape[0]
    for i in range(rows.shape[0]):
        for number in range(n_tiles):
            tile = (begin[i] + number) % n_tiles
            d = distance[i, tiles.centre[tile]]
            most = n_draws - max(d - tiles.far[tile], tiles.near[tile] - d, 0)
            if most < count[i, last]:
                continue
            for j in range(width):
                total[j] = 0
            for start in range(0, n_draws, _DRAWS):
                stop = min(start + _DRAWS, n_draws)
                for j in range(width):
                    part[j] = 0
                for t in range(start, stop):
                    own = rows[i, t]
                    labels = tiles.labels[tile, t]
                    for j in range(width):
                        part[j] += labels[j] == own
                highest = 0
                for j in range(width):
                    total[j] += part[j]
                    highest = max(highest, total[j])
                if highest + n_draws - stop < count[i, last]:
                    break
            else:
                for j in range(width):
                    other = tiles.partner[tile, j]
                    if other < 0 or total[j] < count[i, last]:
                        continue
                    place = last
                    if total[j] == count[i, last] and other > partner[i, last]:
                        continue
                    while place > 0 and (
                        count[i, place - 1] < total[j]
                        or (count[i, place - 1] == total[j] and partner[i, place - 1] > other)
                    ):
                        count[i, place] = count[i, place - 1]
                        partner[i, place] = partner[i, place - 1]
                        place -= 1
                    count[i, place] = total[j]
                    partner[i, place] = other
