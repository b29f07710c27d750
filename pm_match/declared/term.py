"""The term of a table: what every unit's data are worth under every label."""

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


@implements(protocol.score, LabelTable)
def _score(term, unit, own, n_slots, out):
    for slot in range(1, n_slots):
        out[slot] += term.worth[unit, slot]


@implements(protocol.move, LabelTable)
def _move(term, unit, source, target):
    pass


@implements(protocol.clear, LabelTable)
def _clear(term, slot):
    pass


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
