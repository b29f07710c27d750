"""The term of pairs: what the data of two units are worth under each two labels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements


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


@implements(protocol.score, PairTable)
def _score(term, unit, own, n_slots, out):
    for i in range(term.first[unit], term.first[unit + 1]):
        pair, other = term.own_pair[i], term.slot[term.partner[i]] - 1
        if term.is_second[i]:
            for slot in range(1, n_slots):
                out[slot] += term.worth[pair, other, slot - 1]
        else:
            for slot in range(1, n_slots):
                out[slot] += term.worth[pair, slot - 1, other]


@implements(protocol.move, PairTable)
def _move(term, unit, source, target):
    pass


@implements(protocol.clear, PairTable)
def _clear(term, slot):
    pass


@implements(protocol.relocate, PairTable)
def _relocate(term, source, target):
    pass


@implements(protocol.log_evidence, PairTable)
def _log_evidence(term, n_slots):
    total = 0.0
    if term.counted[0]:
        for i in range(term.pair.shape[0]):
            one, two = term.slot[term.pair[i, 0]] - 1, term.slot[term.pair[i, 1]] - 1
            total += term.worth[i, one, two]
    return total
