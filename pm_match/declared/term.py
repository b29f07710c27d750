"""Terms that are tables: what units' data are worth under every label, or each two."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements


class LabelTable(NamedTuple):
    """State of the term, for U units and S slots of an anchored partition."""

    # (U, S): log density of the entries of a unit, in column l + 1 under label l
    worth: NDArray[np.float64]
    slot: NDArray[np.int16]  # (U,): the partition's own
    constant: NDArray[np.float64]  # (1,): log density of the entries that no label changes


class PairTable(NamedTuple):
    """State of the term of one partition, for U of its units and P pairs, T labels at most.

    Units that are partners are numbered over all partitions.
    """

    # (P, T, T): log density of each pair, under each label of the first and of the second unit
    worth: NDArray[np.float64]
    pair: NDArray[np.int64]  # (P, 2): the units of each
    first: NDArray[np.int64]  # (U + 1,): where the pairs of each unit begin among the next three
    own_pair: NDArray[np.int64]  # the pair
    partner: NDArray[np.int64]  # the other unit of it
    is_second: NDArray[np.bool_]  # whether the unit is the second of it
    slot: NDArray[np.int16]  # of all units: the partitions' own; label l has slot l + 1
    counted: NDArray[np.bool_]  # (1,): whether this is the one of the terms that counts all pairs
    # (1,): what impossible pairs score: nothing beside possible ones; but where all labels of a
    # unit are impossible, the fewer of its pairs are so, the better
    impossible: NDArray[np.float64]


@implements(protocol.score, LabelTable)
def _score(term, unit, own, n_slots, out):
    for slot in range(1, n_slots):
        out[slot] += term.worth[unit, slot]


@implements(protocol.move, PairTable)
@implements(protocol.move, LabelTable)
def _move(term, unit, source, target):
    pass


@implements(protocol.clear, PairTable)
@implements(protocol.clear, LabelTable)
def _clear(term, slot):
    pass


@implements(protocol.relocate, PairTable)
@implements(protocol.relocate, LabelTable)
def _relocate(term, source, target):
    pass


@implements(protocol.log_evidence, LabelTable)
def _log_evidence(term, n_slots):
    total = term.constant[0]
    for unit in range(term.worth.shape[0]):
        total += term.worth[unit, term.slot[unit]]
    return total


@implements(protocol.tabulate, LabelTable)
def _tabulate(term, slots, start, stop, n_slots, worth, shared):
    for unit in range(start, stop):
        for slot in range(1, n_slots):
            worth[slots[unit], slot] += term.worth[unit, slot]


@implements(protocol.score, PairTable)
def _score_pairs(term, unit, own, n_slots, out):
    for i in range(term.first[unit], term.first[unit + 1]):
        pair, other = term.own_pair[i], term.slot[term.partner[i]] - 1
        table, is_second = term.worth[pair], term.is_second[i]
        for slot in range(1, n_slots):
            worth = table[other, slot - 1] if is_second else table[slot - 1, other]
            out[slot] += worth if worth > -np.inf else term.impossible[0]


@implements(protocol.log_evidence, PairTable)
def _log_evidence_of_pairs(term, n_slots):
    total = 0.0
    if term.counted[0]:
        for i in range(term.pair.shape[0]):
            one, two = term.slot[term.pair[i, 0]] - 1, term.slot[term.pair[i, 1]] - 1
            total += term.worth[i, one, two]
    return total
