"""Pairs that cannot be linked, as a term: no unit scores in a slot where one is that it excludes.

A term is asked about every move that a step or a search makes, and so whatever these propose stays
within the constraint, with ratios that are exact.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.protocol import (
    clear,
    implements,
    log_evidence,
    move,
    relocate,
    score,
    tabulate,
)
from pm_match.clusters.units import Units


class Apart(NamedTuple):
    """Which units exclude which."""

    start: NDArray[np.int64]  # (U + 1,): where those that a unit excludes begin and end in `other`
    other: NDArray[np.int64]  # (2 P,)
    slot: NDArray[np.int16]  # (U,): slot of each unit, which the partition keeps


def new_apart(own: Units, pairs: NDArray[np.int64], slot: NDArray[np.int16]) -> Apart:
    """Make the term of pairs (P, 2) of objects. A unit does not exclude itself."""
    one, other = own.of_object[pairs].T
    both = np.concatenate([np.stack([one, other], 1), np.stack([other, one], 1)])
    both = np.unique(both[both[:, 0] != both[:, 1]], axis=0)
    start = np.searchsorted(both[:, 0], np.arange(len(own.size) + 1))
    return Apart(start.astype(np.int64), np.ascontiguousarray(both[:, 1], np.int64), slot)


def n_apart(terms: Sequence[Any]) -> int:
    """How many terms are of pairs that are apart: tables have them last."""
    return sum(isinstance(term, Apart) for term in terms)


@implements(score, Apart)
def _score(term, unit, own, n_slots, out):
    for i in range(term.start[unit], term.start[unit + 1]):
        slot = term.slot[term.other[i]]
        if slot > 0:
            out[slot] = -np.inf


@implements(move, Apart)
def _move(term, unit, source, target):
    pass


@implements(clear, Apart)
def _clear(term, slot):
    pass


@implements(relocate, Apart)
def _relocate(term, source, target):
    pass


@implements(log_evidence, Apart)
def _log_evidence(term, n_slots):
    for unit in range(term.start.shape[0] - 1):
        for i in range(term.start[unit], term.start[unit + 1]):
            if term.slot[unit] > 0 and term.slot[unit] == term.slot[term.other[i]]:
                return -np.inf
    return 0.0


@implements(tabulate, Apart)
def _tabulate(term, slots, start, stop, n_slots, worth, shared):
    # Units of the assignment itself stay apart, whatever their clusters are called.
    for unit in range(start, stop):
        for i in range(term.start[unit], term.start[unit + 1]):
            other = term.other[i]
            if (other < start or other >= stop) and slots[other] > 0 and slots[unit] > 0:
                worth[slots[unit], slots[other]] = -np.inf
