"""Block evidence of one-mode networks: both ends of every cell are objects of one assignment.

The relation is the same as in `blocks`. What differs is that a unit's own cells lie in the rows and
in the columns of its slot: those of a directed network in blocks (slot, c) and (c, slot), those of
an undirected one in the block {slot, c}, which is stored twice. Cells within a unit, its self-loops
or those between objects that are linked, are always in block (slot, slot).

Every block of every candidate is looked at, O(occupied clusters squared) for each object.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.networks.blocks import Contacts, Relation, noise_gain
from pm_match.networks.families import gain, log_blocks
from pm_match.numerics.kernels import entry, part


class OneMode(NamedTuple):
    """A relation between the objects of one assignment, with S slots and U units.

    Attributes
    ----------
    relation : Relation
    out, into : Contacts
        The stored cells in the rows and in the columns of each unit; undirected ones are all in
        `out`, at both of their ends.
    partition : (1,) integer array
    directed : (1,) boolean array
    inner : (3, U) array
        What the cells within each unit add to S, C and Q.
    amounts : (2, 3, S) array
        Scratch: what a unit's rows and columns add to the blocks with each slot.
    kept : (2, 3, S) array
        Scratch: rows and columns of the slot that a unit is taken out of in thought.
    """

    relation: Relation
    out: Contacts
    into: Contacts
    partition: NDArray[np.int64]
    directed: NDArray[np.bool_]
    inner: NDArray[np.float64]
    amounts: NDArray[np.float64]
    kept: NDArray[np.float64]


@part
def gather(relation, contacts, axis, unit, n_slots, out):
    """Fill `out` (3, S) with what the unit's cells with others add to the blocks of each slot."""
    for slot in range(n_slots):
        found = 0.0
        for m in range(contacts.part[unit], contacts.part[unit + 1]):
            network = contacts.part_network[m]
            mass = relation.mass[network, axis, slot]
            found += relation.full[network] * contacts.part_exposure[m] * mass
        out[0, slot] = 0.0
        out[1, slot] = found
        out[2, slot] = 0.0
    valued = contacts.values.shape[0] > 0
    weighted = contacts.weights.shape[0] > 0
    for cell in range(contacts.first[unit], contacts.first[unit + 1]):
        slot = relation.slot[contacts.others[cell]]
        x = contacts.values[cell] if valued else 1.0
        out[0, slot] += x
        out[2, slot] += x * x
        if weighted:
            out[1, slot] += contacts.weights[cell]


@part
def exclude_itself(relation, contacts, mirrored, unit, own, out):
    """Take the unit itself out of the masses of its own slot, as `gather` has counted them."""
    for m in range(contacts.part[unit], contacts.part[unit + 1]):
        network = contacts.part_network[m]
        own_mass = contacts.part_exposure[m] * mirrored.part_exposure[m]
        out[1, own] -= relation.full[network] * own_mass


@part
def meet(net, unit, own, n_slots):
    """Fill `amounts` with what a unit of slot `own` adds to the blocks with every slot."""
    mirrored = net.into if net.directed[0] else net.out
    axis = 1 if net.directed[0] else 0
    gather(net.relation, net.out, axis, unit, n_slots, net.amounts[0])
    if own > 0:
        exclude_itself(net.relation, net.out, mirrored, unit, own, net.amounts[0])
    if net.directed[0]:
        gather(net.relation, net.into, 0, unit, n_slots, net.amounts[1])
        if own > 0:
            exclude_itself(net.relation, net.into, net.out, unit, own, net.amounts[1])
    else:
        net.amounts[1] = 0.0


@part
def add(net, unit, slot, n_slots, sign):
    """Add `amounts` to the blocks of a slot, or with `sign` = -1 subtract them."""
    relation = net.relation
    width = net.amounts.shape[2]
    for k in range(3):
        blocks = relation.totals
        if k == 1:
            blocks = relation.cells
        elif k == 2:
            blocks = relation.squares
        rows, columns = net.amounts[0, k], net.amounts[1, k]
        for c in range(1, n_slots):
            if c == slot:
                continue
            blocks[slot * width + c] += sign * rows[c]
            blocks[c * width + slot] += sign * (columns[c] if net.directed[0] else rows[c])
        blocks[slot * width + slot] += sign * (rows[slot] + columns[slot] + net.inner[k, unit])


@part
def keep(net, slot, n_slots, back):
    """Set aside the blocks of a slot, or put them back exactly as they were."""
    width = net.amounts.shape[2]
    for k in range(3):
        blocks = net.relation.totals
        if k == 1:
            blocks = net.relation.cells
        elif k == 2:
            blocks = net.relation.squares
        for c in range(n_slots):
            if back:
                blocks[slot * width + c] = net.kept[0, k, c]
                blocks[c * width + slot] = net.kept[1, k, c]
            else:
                net.kept[0, k, c] = blocks[slot * width + c]
                net.kept[1, k, c] = blocks[c * width + slot]


@part
def block_gain(net, row, column, dt, dc, dq):
    """Gain of the block (row, column)."""
    if dt == 0.0 and dc == 0.0:
        return 0.0
    relation = net.relation
    at = row * net.amounts.shape[2] + column
    return gain(
        relation.family[0],
        relation.prior[0],
        relation.tables,
        relation.totals[at],
        relation.cells[at],
        relation.squares[at],
        dt,
        dc,
        dq,
    )


@implements(protocol.score, OneMode)
def _score(term, unit, own, n_slots, out):
    if term.out.kind[unit] >= 0:
        score_unit(term, unit, own, n_slots, out)


@part
def score_unit(net, unit, own, n_slots, out):
    """Score a unit, which is taken out of its slot meanwhile."""
    meet(net, unit, own, n_slots)
    if own > 0:
        keep(net, own, n_slots, False)
        add(net, unit, own, n_slots, -1.0)
    rows, columns, inner = net.amounts[0], net.amounts[1], net.inner
    for slot in range(n_slots):
        dt, dc, dq = inner[0, unit], inner[1, unit], inner[2, unit]
        if slot > 0:
            dt += rows[0, slot] + columns[0, slot]
            dc += rows[1, slot] + columns[1, slot]
            dq += rows[2, slot] + columns[2, slot]
        worth = block_gain(net, slot, slot, dt, dc, dq)
        for c in range(1, n_slots):
            if c == slot:
                continue
            worth += block_gain(net, slot, c, rows[0, c], rows[1, c], rows[2, c])
            if net.directed[0]:
                worth += block_gain(net, c, slot, columns[0, c], columns[1, c], columns[2, c])
        out[slot] += worth
    if own > 0:
        keep(net, own, n_slots, True)
    if net.out.flagged[unit]:
        dt, dc, dq = inner[0, unit], inner[1, unit], inner[2, unit]
        for c in range(1, n_slots):
            dt += rows[0, c] + columns[0, c]
            dc += rows[1, c] + columns[1, c]
            dq += rows[2, c] + columns[2, c]
        out[n_slots] += noise_gain(net.relation, own, dt, dc, dq)


@part
def add_mass(net, unit, slot, sign):
    """Add the unit's exposures to the masses of a slot, or with `sign` = -1 subtract them."""
    for m in range(net.out.part[unit], net.out.part[unit + 1]):
        network = net.out.part_network[m]
        mass = net.relation.mass[network]
        mass[0, slot] += sign * net.out.part_exposure[m]
        if net.directed[0]:
            mass[1, slot] += sign * net.into.part_exposure[m]


@implements(protocol.move, OneMode)
def _move(term, unit, source, target):
    if term.out.kind[unit] >= 0:
        change_slot(term, unit, source, target)


@part
def change_slot(net, unit, source, target):
    """Move a unit between slots, 0 being the noise."""
    n_slots = net.relation.n_slots[net.partition[0]]
    meet(net, unit, source, n_slots)
    if source > 0:
        add(net, unit, source, n_slots, -1.0)
        add_mass(net, unit, source, -1.0)
    if target > 0:
        add(net, unit, target, n_slots, 1.0)
        add_mass(net, unit, target, 1.0)
    if source == 0 or target == 0:
        sign = 1.0 if target == 0 else -1.0
        for k in range(3):
            change = net.inner[k, unit]
            for c in range(1, n_slots):
                change += net.amounts[0, k, c] + net.amounts[1, k, c]
            net.relation.noise[k] += sign * change


@implements(protocol.clear, OneMode)
def _clear(term, slot):
    width = term.amounts.shape[2]
    relation = term.relation
    for c in range(width):
        for at in (slot * width + c, c * width + slot):
            relation.totals[at] = 0.0
            relation.cells[at] = 0.0
            relation.squares[at] = 0.0
    for network in range(relation.mass.shape[0]):
        relation.mass[network, 0, slot] = 0.0
        relation.mass[network, 1, slot] = 0.0


@implements(protocol.relocate, OneMode)
def _relocate(term, source, target):
    relocate_slot(term, source, target)


@part
def relocate_slot(net, source, target):
    """Copy a slot's blocks, rows and columns, and masses."""
    width = net.amounts.shape[2]
    relation = net.relation
    for c in range(width):
        copy_block(relation, source * width + c, target * width + c)
    for c in range(width):
        copy_block(relation, c * width + source, c * width + target)
    for network in range(relation.mass.shape[0]):
        for axis in range(2):
            relation.mass[network, axis, target] = relation.mass[network, axis, source]


@part
def copy_block(relation, source, target):
    """Copy one block."""
    relation.totals[target] = relation.totals[source]
    relation.cells[target] = relation.cells[source]
    relation.squares[target] = relation.squares[source]


@implements(protocol.log_evidence, OneMode)
def _log_evidence(term, n_slots):
    return log_network(term, n_slots)


@part
def log_network(net, n_slots):
    """Log marginal likelihood of all cells; a block that is stored twice counts once."""
    relation = net.relation
    family, prior = relation.family[0], relation.prior
    totals, cells, squares = relation.totals, relation.cells, relation.squares
    width = net.amounts.shape[2]
    noise, none = relation.noise, relation.tables[:, :0]
    found = relation.everything[3]
    found += log_blocks(family, prior[1], none, noise[:1], noise[1:2], noise[2:3])
    for row in range(1, n_slots):
        a = row * width + (1 if net.directed[0] else row)
        b = row * width + n_slots
        found += log_blocks(family, prior[0], none, totals[a:b], cells[a:b], squares[a:b])
    return found


@entry
def weigh(net, start):
    """Compute the masses of both axes; the units are numbered from `start`."""
    for unit in range(net.out.kind.shape[0]):
        slot = net.relation.slot[start + unit]
        if slot > 0:
            add_mass(net, unit, slot, 1.0)


@entry
def rebuild(net, start):
    """Compute all blocks from scratch, when the masses are there."""
    relation = net.relation
    n_slots = relation.n_slots[net.partition[0]]
    width = net.amounts.shape[2]
    for unit in range(net.out.kind.shape[0]):
        slot = relation.slot[start + unit]
        if slot == 0 or net.out.kind[unit] < 0:
            continue
        meet(net, unit, slot, n_slots)
        # Every cell between two units would be met at both of its ends: count it at one, its row.
        rows = net.amounts[0]
        for c in range(1, n_slots):
            at = slot * width + c
            share = 0.5 if c == slot and not net.directed[0] else 1.0
            relation.totals[at] += share * rows[0, c]
            relation.cells[at] += share * rows[1, c]
            relation.squares[at] += share * rows[2, c]
        at = slot * width + slot
        relation.totals[at] += net.inner[0, unit]
        relation.cells[at] += net.inner[1, unit]
        relation.squares[at] += net.inner[2, unit]
    settle_noise(net, n_slots)


@part
def settle_noise(net, n_slots):
    """Compute the noise: all that is in no block."""
    relation = net.relation
    width = net.amounts.shape[2]
    for k in range(3):
        relation.noise[k] = relation.everything[k]
    for row in range(1, n_slots):
        for column in range(1 if net.directed[0] else row, n_slots):
            at = row * width + column
            relation.noise[0] -= relation.totals[at]
            relation.noise[1] -= relation.cells[at]
            relation.noise[2] -= relation.squares[at]
