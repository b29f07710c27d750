"""Block evidence of one-mode networks: both ends of every cell are objects of one assignment.

The relation is the same as in `blocks`, and so are its two sides. What differs is that a unit's own
cells lie in the rows and in the columns of its slot: those of a directed network in blocks (slot,
c) and (c, slot), those of an undirected one in the block {slot, c}, which is stored twice. Cells
within a unit, its self-loops or those between objects that are linked, are always in block (slot,
slot).

Every block of every candidate is looked at, O(occupied clusters squared) for each object: what a
candidate gains is a sum over its blocks with all clusters, each of which has counts of its own, and
even where an object has no edge its cells add to them. For an undirected network of 1200 objects
that is 1.1 microseconds an object with 5 clusters, 3.7 with 10, 6.9 with 20 and 21 with 40, and
hardly depends on the number of edges. Tables of what cells without edges gain would leave a half to
all of the blocks to compute at ten clusters, the size of the papers, a seventh to a third at 40.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.networks import blocks
from pm_match.networks.blocks import Side, log_relation, noise_gain, settle_noise
from pm_match.networks.families import gain
from pm_match.numerics.kernels import entry, part


class OneMode(NamedTuple):
    """A relation between the objects of one assignment, with S slots and U units."""

    # out, into: The relation seen from its rows and from its columns. Undirected cells are all in
    # both, at both of their ends, and only `out` is looked at.
    out: Side
    into: Side
    directed: NDArray[np.bool_]  # (1,)
    inner: NDArray[np.float64]  # (3, U): what the cells within each unit add to S, C and Q
    # (2, 3, S): scratch: rows and columns of the slot that a unit is taken out of in thought
    kept: NDArray[np.float64]


@part
def meet_side(side, mirrored, unit, own):
    """Fill a side's `amounts` with what a unit of slot `own` adds by its cells with others."""
    blocks.activate(side)
    blocks.gather(side, unit)
    if own > 0:
        # The masses of its own slot count the unit itself.
        ours, theirs = side.contacts, mirrored.contacts
        for m in range(ours.part[unit], ours.part[unit + 1]):
            mass = ours.part_exposure[m] * theirs.part_exposure[m]
            side.amounts[1, own] -= side.relation.full[ours.part_network[m]] * mass


@part
def meet(net, unit, own):
    """Fill `amounts` with what a unit of slot `own` adds to the blocks with every slot."""
    meet_side(net.out, net.into, unit, own)
    if net.directed[0]:
        meet_side(net.into, net.out, unit, own)


@part
def add(net, unit, slot, sign):
    """Add `amounts` to the blocks of a slot, or with `sign` = -1 subtract them."""
    sums = net.out.relation.sums
    blocks.add(net.out, slot, sign)
    if net.directed[0]:
        blocks.add(net.into, slot, sign)
    width = net.out.stride[0]
    for k in range(3):
        sums[k, slot * width + slot] += sign * net.inner[k, unit]
        if not net.directed[0]:
            for i in range(net.out.n_active[0]):
                c = net.out.active[i]
                sums[k, c * width + slot] = sums[k, slot * width + c]


@part
def keep(net, slot, n_slots, back):
    """Set aside the blocks of a slot, or put them back exactly as they were."""
    sums, kept, width = net.out.relation.sums, net.kept, net.out.stride[0]
    for k in range(3):
        for c in range(n_slots):
            row, column = slot * width + c, c * width + slot
            if back:
                sums[k, row] = kept[0, k, c]
                sums[k, column] = kept[1, k, c]
            else:
                kept[0, k, c] = sums[k, row]
                kept[1, k, c] = sums[k, column]


@part
def block_gain(relation, at, dt, dc, dq):
    """Gain of the block at a place."""
    if dt == 0.0 and dc == 0.0:
        return 0.0
    sums = relation.sums
    t, n, q = sums[0, at], sums[1, at], sums[2, at]
    return gain(relation.family[0], relation.prior[0], relation.tables, t, n, q, dt, dc, dq)


@implements(protocol.score, OneMode)
def _score(net, unit, own, n_slots, out):
    # The unit is taken out of its slot meanwhile.
    if net.out.contacts.kind[unit] < 0:
        return
    relation, width = net.out.relation, net.out.stride[0]
    meet(net, unit, own)
    if own > 0:
        keep(net, own, n_slots, False)
        add(net, unit, own, -1.0)
    rows, columns, inner = net.out.amounts, net.into.amounts, net.inner
    for slot in range(n_slots):
        dt, dc, dq = inner[0, unit], inner[1, unit], inner[2, unit]
        if slot > 0:
            dt += rows[0, slot] + columns[0, slot]
            dc += rows[1, slot] + columns[1, slot]
            dq += rows[2, slot] + columns[2, slot]
        worth = block_gain(relation, slot * width + slot, dt, dc, dq)
        for c in range(1, n_slots):
            if c == slot:
                continue
            at = slot * width + c
            worth += block_gain(relation, at, rows[0, c], rows[1, c], rows[2, c])
            if net.directed[0]:
                at = c * width + slot
                worth += block_gain(relation, at, columns[0, c], columns[1, c], columns[2, c])
        out[slot] += worth
    if own > 0:
        keep(net, own, n_slots, True)
    if net.out.contacts.flagged[unit]:
        dt, dc, dq = everything(net, unit, 0), everything(net, unit, 1), everything(net, unit, 2)
        out[n_slots] += noise_gain(relation, own, dt, dc, dq)


@part
def everything(net, unit, k):
    """Sum what a unit adds to all blocks together: to S, C or Q."""
    total = net.inner[k, unit]
    for i in range(net.out.n_active[0]):
        c = net.out.active[i]
        total += net.out.amounts[k, c] + net.into.amounts[k, c]
    return total


@implements(protocol.move, OneMode)
def _move(net, unit, source, target):
    if net.out.contacts.kind[unit] < 0:
        return
    meet(net, unit, source)
    if source > 0:
        add(net, unit, source, -1.0)
        add_mass(net, unit, source, -1.0)
    if target > 0:
        add(net, unit, target, 1.0)
        add_mass(net, unit, target, 1.0)
    if source == 0 or target == 0:
        sign = 1.0 if target == 0 else -1.0
        for k in range(3):
            net.out.relation.noise[k] += sign * everything(net, unit, k)


@part
def add_mass(net, unit, slot, sign):
    """Add the unit's exposures to the masses of a slot, or with `sign` = -1 subtract them."""
    blocks.add_mass(net.out, unit, slot, sign)
    blocks.add_mass(net.into, unit, slot, sign)


@implements(protocol.clear, OneMode)
def _clear(term, slot):
    protocol.clear(term.out, slot)
    protocol.clear(term.into, slot)


@implements(protocol.relocate, OneMode)
def _relocate(term, source, target):
    # The rows first: the block of the two slots with themselves is then in the source's column.
    protocol.relocate(term.out, source, target)
    protocol.relocate(term.into, source, target)


@implements(protocol.log_evidence, OneMode)
def _log_evidence(term, n_slots):
    return log_relation(term.out.relation)


@entry
def rebuild(net, start):
    """Compute all blocks from scratch, when the masses are there."""
    relation, width = net.out.relation, net.out.stride[0]
    for unit in range(net.out.contacts.kind.shape[0]):
        slot = relation.slot[start + unit]
        if slot == 0 or net.out.contacts.kind[unit] < 0:
            continue
        meet(net, unit, slot)
        # Every cell between two units would be met at both of its ends: count it at one, its row.
        for k in range(3):
            relation.sums[k, slot * width + slot] += net.inner[k, unit]
            for i in range(net.out.n_active[0]):
                c = net.out.active[i]
                share = 0.5 if c == slot and not net.directed[0] else 1.0
                relation.sums[k, slot * width + c] += share * net.out.amounts[k, c]
    settle_noise(relation)
