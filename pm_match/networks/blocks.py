r"""Block evidence: cells of networks, whose parameter depends on the clusters of their objects.

.. math:: x_{dnm} \sim F(\theta_{z_{d1n} z_{d2m}}) \text{ if } r_{d1n} r_{d2m} = 1, \quad
          x_{dnm} \sim F(\varphi) \text{ otherwise}

with :math:`\theta` and :math:`\varphi` integrated out (Iwata & Ishiguro, eq. 6-10 and 13-14), for
networks with two or more axes that have different assignments, and any family of `families`.

A *side* is a relation seen from the objects of one of its axes. A unit meets *combinations* of the
other axes' slots (for a matrix: the slots of the other axis). For each it knows the sum of its own
cells (from its stored cells) and how many cells there are (from the masses of the clusters: stored
are only the cells that are not absent). With a candidate slot, a combination names a block.

Where all cells are known, plain 0/1 and without exposures (*plain*), units of a kind, which meet
the same masses, share almost all of the arithmetic: what a candidate is worth without any edge is
kept for each slot until a cluster changes, and only combinations to which a unit has edges are
looked at, by tables of log gammas. A settled sweep costs O(edges + objects x occupied clusters).
"""

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.networks.families import TABLE, gain, log_blocks, looked_up_log_rising
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import near_log_rising
from pm_match.numerics.numba_internals import record


@record
class BlockSums(NamedTuple):
    """What all sides of a relation share: D networks of A axes, B blocks."""

    family: NDArray[np.int64]  # (1,)
    # (2, 4): the parameters' prior, for blocks and for the noise (see `families`)
    prior: NDArray[np.float64]
    tables: NDArray[np.float64]  # (3, TABLE): log gammas for the blocks' prior
    # (3, B): S, C and Q of every block, in the slots' order, the last axis' fastest
    sums: NDArray[np.float64]
    # (B,): which blocks the likelihood is of: one of the two places where an undirected network has
    # each
    counted: NDArray[np.bool_]
    noise: NDArray[np.float64]  # (3,): S, C and Q of the cells that have an irrelevant end
    # (4,): S, C and Q of all cells, and what of the log evidence only the data enter
    everything: NDArray[np.float64]
    # (D, A, S): sum of the exposures of the relevant objects of each network, axis and slot
    mass: NDArray[np.float64]
    full: NDArray[np.float64]  # (D,): 1 if absent cells are known zeros, 0 if they are unknown
    version: NDArray[np.int64]  # (1,): number of the present state
    slot: NDArray[np.int16]  # (U',): slot of every unit of every partition, 0 for irrelevant ones
    n_slots: NDArray[np.int64]  # (P,): slots in use in every partition


@record
class Contacts(NamedTuple):
    """The stored cells of every unit of one partition, on one side of a relation."""

    first: NDArray[np.int64]  # (U + 1,): where the stored cells of each unit begin
    others: NDArray[np.int32]  # (E * O,): the units at the O other ends of each stored cell
    # values, weights (E,), or empty: values (all 1 if empty), and exposures beyond those of
    # `BlockSums.full` (all 0 if empty)
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    # part, part_network, part_exposure (U + 1,), (M,), (M,): the networks that each unit's objects
    # are in, and the sum of their exposures
    part: NDArray[np.int64]
    part_network: NDArray[np.int64]
    part_exposure: NDArray[np.float64]
    # (U,): units of a kind are in the same networks; -1 for those that are in none
    kind: NDArray[np.int64]
    flagged: NDArray[np.bool_]  # (U,): which units may be irrelevant


class Side(NamedTuple):
    """A relation seen from one axis, with S slots and C combinations of the O other axes' slots."""

    relation: BlockSums
    contacts: Contacts
    # axis, stride (1,): the axis, and how far apart its slots are in the blocks
    axis: NDArray[np.int64]
    stride: NDArray[np.int64]
    plain: NDArray[np.bool_]  # (1,): whether all cells are known 0/1
    # other_axis, other_partition, other_stride (O,): the other axes, their partitions, and how far
    # apart their slots are in the combinations
    other_axis: NDArray[np.int64]
    other_partition: NDArray[np.int64]
    other_stride: NDArray[np.int64]
    digit: NDArray[np.int64]  # (C, O): the slots of each combination
    place: NDArray[np.int64]  # (C,): where in the blocks each combination is
    # active, n_active, seen (C,), (1,), (O,): combinations of occupied slots, their number, and the
    # `n_slots` that they were listed for
    active: NDArray[np.int64]
    n_active: NDArray[np.int64]
    seen: NDArray[np.int64]
    # (3, C): scratch: what a unit adds to S, C and Q of the blocks of each combination
    amounts: NDArray[np.float64]
    # (3, C, S): scratch: what the units of one assignment add to the blocks of each combination and
    # slot
    grouped: NDArray[np.float64]
    hits: NDArray[np.int64]  # (C,): scratch: edges of a unit in each combination
    stamp: NDArray[np.int64]  # (2,): the kind and the version that what follows belongs to
    expected: NDArray[np.float64]  # (C,): cells of a unit in each combination
    # total, rest, log_total, log_rest (C, S): edges, and non-edges with a unit in that has no edge,
    # of each block, and the logs of these with the prior, where they are beyond the tables
    total: NDArray[np.float64]
    rest: NDArray[np.float64]
    log_total: NDArray[np.float64]
    log_rest: NDArray[np.float64]
    # edgeless, leaving (S,): log predictive of a unit without edges in each slot; what the number
    # of cells takes part in the log predictive of a unit in its own slot
    edgeless: NDArray[np.float64]
    leaving: NDArray[np.float64]


# -- what a unit meets ---------------------------------------------------------------------------


@part
def activate(side):
    """List the combinations of occupied slots, if that has changed."""
    n_slots = side.relation.n_slots
    same = True
    for o in range(side.seen.shape[0]):
        now = n_slots[side.other_partition[o]]
        if side.seen[o] != now:
            side.seen[o] = now
            same = False
    if same:
        return
    n = 0
    for c in range(side.digit.shape[0]):
        occupied = True
        for o in range(side.seen.shape[0]):
            digit = side.digit[c, o]
            occupied = occupied and 0 < digit < side.seen[o]
        if occupied:
            side.active[n] = c
            n += 1
    side.n_active[0] = n


@part
def expect(side, unit, out):
    """Fill `out` (C,) with the unit's cells (or exposures) in each active combination."""
    contacts, relation = side.contacts, side.relation
    for i in range(side.n_active[0]):
        c = side.active[i]
        found = 0.0
        for m in range(contacts.part[unit], contacts.part[unit + 1]):
            network = contacts.part_network[m]
            product = relation.full[network] * contacts.part_exposure[m]
            for o in range(side.other_axis.shape[0]):
                product *= relation.mass[network, side.other_axis[o], side.digit[c, o]]
            found += product
        out[c] = found


@part
def combination(side, cell):
    """Return the combination that a stored cell is in (one without meaning if it is noise)."""
    n_other = side.other_stride.shape[0]
    c = 0
    for o in range(n_other):
        unit = side.contacts.others[cell * n_other + o]
        c += side.relation.slot[unit] * side.other_stride[o]
    return c


@part
def gather(side, unit):
    """Fill `amounts` with what the unit's cells add to the blocks of each combination."""
    contacts = side.contacts
    total, cells, squares = side.amounts[0], side.amounts[1], side.amounts[2]
    expect(side, unit, cells)
    for i in range(side.n_active[0]):
        c = side.active[i]
        total[c] = 0.0
        squares[c] = 0.0
    valued = contacts.values.shape[0] > 0
    weighted = contacts.weights.shape[0] > 0
    for cell in range(contacts.first[unit], contacts.first[unit + 1]):
        c = combination(side, cell)
        x = contacts.values[cell] if valued else 1.0
        total[c] += x
        squares[c] += x * x
        if weighted:
            cells[c] += contacts.weights[cell]


@part
def count_edges(side, unit):
    """Fill `hits` with the unit's edges in each active combination."""
    contacts, hits, slot = side.contacts, side.hits, side.relation.slot
    others = contacts.others
    for i in range(side.n_active[0]):
        hits[side.active[i]] = 0
    if side.other_stride.shape[0] == 1:
        for cell in range(contacts.first[unit], contacts.first[unit + 1]):
            hits[slot[others[cell]]] += 1
    else:
        for cell in range(contacts.first[unit], contacts.first[unit + 1]):
            hits[combination(side, cell)] += 1


# -- scores --------------------------------------------------------------------------------------


@implements(protocol.score, Side)
def _score(term, unit, own, n_slots, out):
    if term.contacts.kind[unit] >= 0:
        if term.plain[0]:
            score_plain(term, unit, own, n_slots, out)
        else:
            score_any(term, unit, own, n_slots, out)


@part
def score_any(side, unit, own, n_slots, out):
    """Score a unit in any network: every block of every candidate."""
    relation = side.relation
    family, prior = relation.family[0], relation.prior[0]
    totals, cells, squares = relation.sums[0], relation.sums[1], relation.sums[2]
    activate(side)
    gather(side, unit)
    all_t, all_c, all_q = 0.0, 0.0, 0.0
    for i in range(side.n_active[0]):
        c = side.active[i]
        dt, dc, dq = side.amounts[0, c], side.amounts[1, c], side.amounts[2, c]
        if dc == 0.0 and dt == 0.0:
            continue
        all_t += dt
        all_c += dc
        all_q += dq
        for slot in range(n_slots):
            at = slot * side.stride[0] + side.place[c]
            t, n, q = totals[at], cells[at], squares[at]
            if slot == own and own > 0:
                t, n, q = t - dt, n - dc, q - dq
            out[slot] += gain(family, prior, relation.tables, t, n, q, dt, dc, dq)
    if side.contacts.flagged[unit]:
        out[n_slots] += noise_gain(relation, own, all_t, all_c, all_q)


@part
def noise_gain(relation, own, dt, dc, dq):
    """Log predictive of a unit's cells as noise (eq. 13, over what of it is in 14 too)."""
    t, n, q = relation.noise[0], relation.noise[1], relation.noise[2]
    if own == 0:
        t, n, q = t - dt, n - dc, q - dq
    none = relation.tables[:, :0]
    return gain(relation.family[0], relation.prior[1], none, t, n, q, dt, dc, dq)


@part
def score_plain(side, unit, own, n_slots, out):
    """Score a unit of plain networks: only the combinations that it has edges to."""
    relation, tables = side.relation, side.relation.tables
    prior = relation.prior[0]
    face(side, unit, n_slots)
    count_edges(side, unit)
    kept = out[own]
    for slot in range(n_slots):
        out[slot] += side.edgeless[slot]
    edges = 0
    one, zero = tables[0], tables[1]
    for i in range(side.n_active[0]):
        c = side.active[i]
        h = side.hits[c]
        if h == 0:
            continue
        edges += h
        total, rest = side.total[c], side.rest[c]
        log_total, log_rest = side.log_total[c], side.log_rest[c]
        for slot in range(n_slots):
            here = int(total[slot])
            if here + h < TABLE:
                worth = one[here + h] - one[here]
            else:
                worth = near_log_rising(prior[0] + total[slot], log_total[slot], float(h))
            left = int(rest[slot])
            if left < TABLE:
                worth += zero[left - h] - zero[left]
            else:
                worth += near_log_rising(prior[1] + rest[slot], log_rest[slot], -float(h))
            out[slot] += worth
    cells = 0.0
    for i in range(side.n_active[0]):
        cells += side.expected[side.active[i]]
    if own > 0:
        out[own] = kept + stay_plain(side, own)
    if side.contacts.flagged[unit]:
        out[n_slots] += noise_gain(relation, own, float(edges), cells, float(edges))


@part
def stay_plain(side, own):
    """Log predictive of a unit of plain networks in the slot that it is in."""
    relation = side.relation
    one, zero, prior = relation.tables[0], relation.tables[1], relation.prior[0]
    worth = -side.leaving[own]
    for i in range(side.n_active[0]):
        c = side.active[i]
        h = float(side.hits[c])
        missed = side.expected[c] - h
        at = own * side.stride[0] + side.place[c]
        t, n = relation.sums[0, at], relation.sums[1, at]
        worth += looked_up_log_rising(one, prior[0], t - h, h)
        worth += looked_up_log_rising(zero, prior[1], n - t - missed, missed)
    return worth


# -- what units of a kind share ------------------------------------------------------------------


@part
def face(side, unit, n_slots):
    """Bring what units of a kind share up to date."""
    kind, version = side.contacts.kind[unit], side.relation.version[0]
    if side.stamp[0] == kind and side.stamp[1] == version:
        return
    activate(side)
    expect(side, unit, side.expected)
    for slot in range(n_slots):
        renew(side, slot)
    side.stamp[0] = kind
    side.stamp[1] = version


@part
def renew(side, slot):
    """Compute what units of a kind share about one slot."""
    relation, tables = side.relation, side.relation.tables
    c0, d0 = relation.prior[0, 0], relation.prior[0, 1]
    edgeless, leaving = 0.0, 0.0
    for i in range(side.n_active[0]):
        c = side.active[i]
        at = slot * side.stride[0] + side.place[c]
        t, n = relation.sums[0, at], relation.sums[1, at]
        more = side.expected[c]
        rest = n - t + more
        side.total[c, slot] = t
        side.rest[c, slot] = rest
        side.log_total[c, slot] = log(c0 + t) if t >= TABLE // 2 else 0.0
        side.log_rest[c, slot] = log(d0 + rest) if rest >= TABLE else 0.0
        edgeless += looked_up_log_rising(tables[1], d0, n - t, more)
        edgeless -= looked_up_log_rising(tables[2], c0 + d0, n, more)
        if n >= more:
            leaving += looked_up_log_rising(tables[2], c0 + d0, n - more, more)
    side.edgeless[slot] = edgeless
    side.leaving[slot] = leaving


@part
def is_current(side):
    """Whether what units of a kind share is up to date."""
    return side.plain[0] and side.stamp[1] == side.relation.version[0]


@part
def changed(side, current, slot):
    """Note that a slot has changed, and keep up to date what was."""
    side.relation.version[0] += 1
    if current:
        renew(side, slot)
        side.stamp[1] = side.relation.version[0]


# -- changes -------------------------------------------------------------------------------------


@part
def add(side, slot, sign):
    """Add `amounts` to the blocks of a slot, or with `sign` = -1 subtract them."""
    relation = side.relation
    for i in range(side.n_active[0]):
        c = side.active[i]
        at = slot * side.stride[0] + side.place[c]
        for k in range(3):
            relation.sums[k, at] += sign * side.amounts[k, c]


@part
def add_mass(side, unit, slot, sign):
    """Add the unit's exposures to the masses of a slot, or with `sign` = -1 subtract them."""
    contacts = side.contacts
    for m in range(contacts.part[unit], contacts.part[unit + 1]):
        network = contacts.part_network[m]
        side.relation.mass[network, side.axis[0], slot] += sign * contacts.part_exposure[m]


@implements(protocol.move, Side)
def _move(side, unit, source, target):
    if side.contacts.kind[unit] < 0:
        return
    current = is_current(side)
    activate(side)
    gather(side, unit)
    if source > 0:
        add(side, source, -1.0)
        add_mass(side, unit, source, -1.0)
    if target > 0:
        add(side, target, 1.0)
        add_mass(side, unit, target, 1.0)
    if source == 0 or target == 0:
        sign = 1.0 if target == 0 else -1.0
        for i in range(side.n_active[0]):
            for k in range(3):
                side.relation.noise[k] += sign * side.amounts[k, side.active[i]]
    if source > 0:
        changed(side, current, source)
    if target > 0:
        changed(side, current, target)


@implements(protocol.clear, Side)
def _clear(side, slot):
    # Blocks and masses are exactly zero then.
    relation = side.relation
    current = is_current(side)
    for c in range(side.place.shape[0]):
        at = slot * side.stride[0] + side.place[c]
        for k in range(3):
            relation.sums[k, at] = 0.0
    for network in range(relation.mass.shape[0]):
        relation.mass[network, side.axis[0], slot] = 0.0
    changed(side, current, slot)


@implements(protocol.relocate, Side)
def _relocate(side, source, target):
    relation = side.relation
    current = is_current(side)
    for c in range(side.place.shape[0]):
        here = source * side.stride[0] + side.place[c]
        there = target * side.stride[0] + side.place[c]
        for k in range(3):
            relation.sums[k, there] = relation.sums[k, here]
    for network in range(relation.mass.shape[0]):
        mass = relation.mass[network, side.axis[0]]
        mass[target] = mass[source]
    changed(side, current, target)


# -- the units of one assignment -----------------------------------------------------------------


@part
def group(side, slots, start, stop, n_slots):
    """Fill `grouped` with what the units `start` ... `stop` add to the blocks of every slot."""
    activate(side)
    for i in range(side.n_active[0]):
        for k in range(3):
            for slot in range(n_slots):
                side.grouped[k, side.active[i], slot] = 0.0
    for unit in range(start, stop):
        slot = slots[unit]
        if slot > 0 and side.contacts.kind[unit] >= 0:
            gather(side, unit)
            for i in range(side.n_active[0]):
                for k in range(3):
                    side.grouped[k, side.active[i], slot] += side.amounts[k, side.active[i]]


@implements(protocol.tabulate, Side)
def _tabulate(side, slots, start, stop, n_slots, worth, shared):
    relation, grouped = side.relation, side.grouped
    family, prior = relation.family[0], relation.prior[0]
    group(side, slots, start, stop, n_slots)
    for own in range(1, n_slots):
        for i in range(side.n_active[0]):
            c = side.active[i]
            dt, dc, dq = grouped[0, c, own], grouped[1, c, own], grouped[2, c, own]
            if dc == 0.0 and dt == 0.0:
                continue
            for slot in range(n_slots):
                at = slot * side.stride[0] + side.place[c]
                t = relation.sums[0, at] - grouped[0, c, slot]
                n = relation.sums[1, at] - grouped[1, c, slot]
                q = relation.sums[2, at] - grouped[2, c, slot]
                worth[own, slot] += gain(family, prior, relation.tables, t, n, q, dt, dc, dq)


@implements(protocol.log_evidence, Side)
def _log_evidence(term, n_slots):
    # One side speaks for the relation.
    return log_relation(term.relation) if term.axis[0] == 0 else 0.0


@part
def log_relation(relation):
    """Log marginal likelihood of all cells of a relation."""
    family, prior, noise = relation.family[0], relation.prior, relation.noise
    none = relation.tables[:, :0]
    found = relation.everything[3]
    found += log_blocks(family, prior[0], none, relation.sums, relation.counted)
    if noise[1] == 0.0:
        # No cells: what is left of their squares is rounding.
        return found
    return found + gain(family, prior[1], none, 0.0, 0.0, 0.0, noise[0], noise[1], noise[2])


# -- from scratch --------------------------------------------------------------------------------


@entry
def reset(relation):
    """Empty all blocks of a relation."""
    relation.sums[:] = 0.0
    relation.mass[:] = 0.0
    relation.version[0] += 1


@entry
def weigh(side, start):
    """Compute the masses of one axis, whose units are numbered from `start`."""
    for unit in range(side.contacts.kind.shape[0]):
        slot = side.relation.slot[start + unit]
        if slot > 0:
            add_mass(side, unit, slot, 1.0)


@entry
def rebuild(side, start):
    """Compute all blocks from scratch, when the masses of all axes are there."""
    relation = side.relation
    activate(side)
    for unit in range(side.contacts.kind.shape[0]):
        slot = relation.slot[start + unit]
        if slot > 0 and side.contacts.kind[unit] >= 0:
            gather(side, unit)
            add(side, slot, 1.0)
    settle_noise(relation)


@part
def settle_noise(relation):
    """Compute the noise: all that is in no block."""
    for k in range(3):
        relation.noise[k] = relation.everything[k]
        for i in range(relation.counted.shape[0]):
            if relation.counted[i]:
                relation.noise[k] -= relation.sums[k, i]
