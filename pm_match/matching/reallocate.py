"""Moves of objects between the clusters of a candidate partition, and what they do to its loss.

For every cluster of the candidate, in a slot of its own, the state counts how many of its objects
are in every cluster of every draw, n_jl. Moving objects changes a slot or two of these counts, and
to score a unit in a slot takes two look-ups a draw: no matrix of pairs of objects. Scores are kept,
stamped with the version of the slot, so that only slots that have changed are scored anew.

Objects that are together in all draws are one *unit*, of which the objects are the weight. A unit
may be *out*, in no slot: its objects then count as alone, and add nothing to the loss.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import part, threaded

OUT = -1


class CandidatePartition(NamedTuple):
    """A partition of U units, and how it meets S draws."""

    # (U, S): the units' clusters in every draw, from 1; 0 where they are irrelevant
    labels: NDArray
    # weight, relevant (U,): every unit's objects, and the draws in which they are relevant
    weight: NDArray[np.int64]
    relevant: NDArray[np.int64]
    # (S,): Draw t's cluster l is column ``row[t] + l`` of the counts. That of l = 0 stays empty.
    row: NDArray[np.uint64]
    f: NDArray[np.int64]  # (N + 1,): f(0), …, f(N), in whole numbers (see `losses.whole_terms`)
    counts: NDArray  # (J, R): objects in every slot of the candidate and cluster of every draw
    size: NDArray[np.int64]  # (J,): objects in every slot; 0 if it is free
    # (J,): changes with every change of the slot; never comes again for another content
    version: NDArray[np.int64]
    slot: NDArray[np.int64]  # (U,): the units' slots
    # score, seen (U, J): Σ_t f(n_jl + w) - f(n_jl) over the draws in which the unit is relevant, as
    # if it were out; and for which version that is
    score: NDArray[np.int64]
    seen: NDArray[np.int64]
    # (3,): what the loss depends on, a Σ_j f(n_j) - b Σ_t Σ_jl f(n_jl); the number of clusters;
    # the last version
    totals: NDArray[np.int64]
    cost: int  # a, the draws if both kinds of mistakes cost the same
    worth: int  # b, then 2


@part
def _changed(c, slot):
    c.totals[2] += 1
    c.version[slot] = c.totals[2]


@part
def _shift(c, unit, slot, sign):
    """Put a unit into a slot (`sign` 1), or take it out of it (-1)."""
    w = sign * c.weight[unit]
    for t in range(c.labels.shape[1]):
        if c.labels[unit, t] > 0:
            c.counts[slot, c.row[t] + c.labels[unit, t]] += w
    c.totals[1] -= c.size[slot] > 0
    c.size[slot] += w
    c.totals[1] += c.size[slot] > 0
    c.slot[unit] = slot if sign > 0 else OUT
    _changed(c, slot)


@part
def _shift_counting(c, unit, slot, sign):
    """Shift a unit, and add what that does to the loss to its total."""
    w = sign * c.weight[unit]
    change = c.cost * (c.f[c.size[slot] + w] - c.f[c.size[slot]])
    for t in range(c.labels.shape[1]):
        if c.labels[unit, t] > 0:
            n = c.counts[slot, c.row[t] + c.labels[unit, t]]
            change -= c.worth * (c.f[n + w] - c.f[n])
    c.totals[0] += change
    _shift(c, unit, slot, sign)


@part
def _gain(c, unit, slot):
    """Sum what a unit's objects add to f(n_jl) by joining a slot; its own as if they were out."""
    w, counts, labels, row, f = c.weight[unit], c.counts[slot], c.labels[unit], c.row, c.f
    total = 0
    if c.slot[unit] == slot:
        for t in range(labels.shape[0]):
            if labels[t] > 0:
                n = counts[row[t] + labels[t]]
                total += f[n] - f[n - w]
        return total
    for t in range(labels.shape[0]):
        n = counts[row[t] + labels[t]]
        total += f[n + w] - f[n]
    # Where the unit is irrelevant the sum has met an empty column.
    return total - (labels.shape[0] - c.relevant[unit]) * f[w]


@part
def _score(c, unit, kept):
    """Bring the scores of a unit in all slots up to date, in row `kept` of what is kept."""
    for j in range(c.size.shape[0]):
        if c.size[j] > 0 and c.seen[kept, j] != c.version[j]:
            c.score[kept, j] = _gain(c, unit, j)
            c.seen[kept, j] = c.version[j]


@threaded
def reallocate(c, order, begin, most_clusters):
    """Put units, from `begin` in their `order`, each where the loss is least given all others.

    Units that are out come in; others move if that lowers the loss. A new cluster is as good as
    any, if there are fewer than `most_clusters`. Scores are kept if there is room for those of all
    units. Returns where in the order it stopped for want of a free slot (its length, if it did
    not) and how many units moved or came in.
    """
    n_slots = c.size.shape[0]
    keep = c.score.shape[0] == c.slot.shape[0]
    moved = 0
    for place in range(begin, order.shape[0]):
        unit = order[place]
        w = c.weight[unit]
        own = c.slot[unit]
        may_open = c.totals[1] < most_clusters and (own == OUT or c.size[own] > w)
        if may_open and c.totals[1] == n_slots:
            return place, moved
        kept = 0
        if keep:
            kept = unit
        else:
            c.seen[0, :] = 0
        _score(c, unit, kept)

        best = OUT
        least = 0
        now = 0
        if own != OUT:
            now = c.cost * (c.f[c.size[own]] - c.f[c.size[own] - w])
            now -= c.worth * c.score[kept, own]
            best = own
            least = now
        free = OUT
        for j in range(n_slots):
            if c.size[j] == 0:
                if free == OUT:
                    free = j
            elif j != own:
                cost = c.cost * (c.f[c.size[j] + w] - c.f[c.size[j]])
                cost -= c.worth * c.score[kept, j]
                if best == OUT or cost < least:
                    best = j
                    least = cost
        if may_open:
            cost = (c.cost - c.worth * c.relevant[unit]) * c.f[w]
            if best == OUT or cost < least:
                best = free
                least = cost
                c.score[kept, free] = c.relevant[unit] * c.f[w]
        if best != own:
            if own != OUT:
                _shift(c, unit, own, -1)
                c.seen[kept, own] = c.version[own]
            _shift(c, unit, best, 1)
            c.seen[kept, best] = c.version[best]
            c.totals[0] += least - now
            moved += 1
    return order.shape[0], moved


@threaded
def put(c, units, slots):
    """Put units that are out into given slots."""
    for place in range(units.shape[0]):
        _shift_counting(c, units[place], slots[place], 1)


@threaded
def take_out(c, units):
    """Take units out of their slots."""
    for place in range(units.shape[0]):
        _shift_counting(c, units[place], c.slot[units[place]], -1)
