r"""Exchange of labels within one assignment: all its units of one cluster, and all of another.

What a sweep finds hard is not which objects of a domain (or of a network's axis) belong together,
but which cluster of another domain they belong to: to change that, all of them would have to move
one by one. Here the whole of an assignment's units with label `j` becomes `k`, and those with `k`
become `j`; or `k` is a label that the assignment has nothing of, where other assignments may have
something or not. One of the assignment's clusters is drawn uniformly, and with probability 1/2 each
another one, or a label that it has nothing of. An exchange changes neither number, so the proposal
is symmetric, and Metropolis' ratio is that of the collapsed joints.

With the labels of all other assignments fixed, what the clusters :math:`g` of this one are worth at
their labels :math:`\sigma(g)` adds up (Side), or depends on a sum (ProjectedNormal):

.. math:: \log p(X, \sigma) = \mathrm{const} + \sum_g w_{g \sigma(g)}
          + f\left(\sum_g c_{g \sigma(g)}\right) + \log p(s_\sigma).

So `exchange_by_table` computes :math:`w` and :math:`c` once, and can then afford many proposals;
units move at the end. Where a term has no such table (one-mode networks, normals of one precision),
`exchange_by_moves` moves the units of each proposal.

An assignment must not share units with another one (see `links`): those would have to move too. Nor
must it have objects whose label is known.
"""

from collections.abc import Sequence
from math import exp, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.apart import n_apart
from pm_match.clusters.label_swap import log_shift_ratio, rename_two
from pm_match.clusters.protocol import (
    SHARED,
    Terms,
    collected,
    implemented,
    log_shared,
    tabulate,
)
from pm_match.clusters.split_merge import log_odds
from pm_match.clusters.sweep import Partition, capacity, log_evidence_of, reassign
from pm_match.clusters.units import Units
from pm_match.numerics.kernels import entry, part

# Proposals by the table, for every cluster of the assignment.
_BY_TABLE = 4


@part
def draw_exchange(rng, groups, renamed, objects):
    """Draw two labels to exchange, the first of which the assignment has objects of.

    `groups` (J,): the labels of the assignment's clusters, as it came; `renamed` (T,): the present
    label of each; `objects` (T,): objects that the assignment has in each cluster at present.
    Return `first`, `second`: -1 and -1 if there is nothing to exchange.
    """
    n_labels, n_groups = renamed.shape[0], groups.shape[0]
    own = int(rng.random() * n_groups)
    if rng.random() < 0.5:
        if n_groups < 2:
            return -1, -1
        other = int(rng.random() * (n_groups - 1))
        other += int(other >= own)
        return renamed[groups[own]], renamed[groups[other]]
    if n_groups == n_labels:
        return -1, -1
    n = int(rng.random() * (n_labels - n_groups))
    for label in range(n_labels):
        if objects[label] == 0:
            if n == 0:
                return renamed[groups[own]], label
            n -= 1
    return -1, -1


@part
def shift_objects(counts, objects, first, second):
    """Exchange two labels' `objects` of an assignment, in these and in the `counts` of all."""
    shift = objects[first] - objects[second]
    counts[first] -= shift
    counts[second] += shift
    objects[first], objects[second] = objects[second], objects[first]


@part
def list_groups(partition, start, stop, groups, objects):
    """List the labels of the units `start` ... `stop`, with their objects; return how many."""
    objects[:] = 0
    for unit in range(start, stop):
        if partition.label[unit] >= 0:
            objects[partition.label[unit]] += partition.size[unit]
    n = 0
    for label in range(objects.shape[0]):
        if objects[label] > 0:
            groups[n] = label
            n += 1
    return n


@entry
def exchange_by_table(rng, a, b, partition, terms, start, stop, scratch, tables):
    """Propose exchanges of labels within an assignment, worth what tables say.

    `a`, `b` (T - 1,): beta parameters of the sticks (see `stick_breaking`); `terms` (n_terms, 8):
    the terms of evidence (see `protocol.collect`), in the partition's present state; `start`,
    `stop`: the units of the assignment; `scratch` (4, T); `tables` (2, S, S): scratch.
    Return how many were accepted, and how many proposed.
    """
    renamed, objects, counts = scratch[1], scratch[2], scratch[3]
    n_groups = list_groups(partition, start, stop, scratch[0], objects)
    groups = scratch[0, :n_groups]
    n_slots = partition.n_slots[0]
    worth, shared = tables[0], tables[1]
    for row in range(n_slots):
        for slot in range(n_slots):
            worth[row, slot] = 0.0
            shared[row, slot] = 0.0
    for i in range(terms.shape[0]):
        tabulate(terms[i], partition.slot, start, stop, n_slots, worth, shared)
    for label in range(renamed.shape[0]):
        renamed[label] = label
        counts[label] = partition.counts[label]
    accepted = 0
    proposed = 0
    # What the terms share a function of, less what it is before anything moves; and that function.
    change = 0.0
    here = 0.0
    for _ in range(_BY_TABLE * n_groups):
        first, second = draw_exchange(rng, groups, renamed, objects)
        if first < 0:
            continue
        proposed += 1
        source, target = partition.slot_of[first], partition.slot_of[second]
        ratio = 0.0
        changed = change
        for i in range(n_groups):
            group = partition.slot_of[groups[i]]
            if renamed[groups[i]] == first:
                ratio += worth[group, target] - worth[group, source]
                changed += shared[group, target] - shared[group, source]
            elif renamed[groups[i]] == second:
                ratio += worth[group, source] - worth[group, target]
                changed += shared[group, source] - shared[group, target]
        there = 0.0
        for i in range(terms.shape[0]):
            if terms[i, SHARED] != 0:
                there += log_shared(terms[i], changed)
        ratio += there - here
        shift = objects[first] - objects[second]
        ratio += log_shift_ratio(a, b, counts, first, second, shift)
        if rng.random() < exp(min(0.0, ratio)):
            accepted += 1
            change = changed
            here = there
            shift_objects(counts, objects, first, second)
            rename_two(renamed, first, second)
    if accepted > 0:
        for unit in range(start, stop):
            label = partition.label[unit]
            if label >= 0 and renamed[label] != label:
                reassign(partition, terms, unit, renamed[label])
    return accepted, proposed


@part
def exchange_units(a, b, partition, terms, start, stop, first, second, counted):
    """Exchange two labels within an assignment; return the change of the log joint if `counted`."""
    change = 0.0
    for unit in range(start, stop):
        label = partition.label[unit]
        if label in (first, second):
            target = second if label == first else first
            if counted:
                change += log_odds(a, b, partition, terms, unit, label, target)
            reassign(partition, terms, unit, target)
    return change


@entry
def exchange_by_moves(rng, a, b, partition, terms, start, stop, scratch, n_apart):
    """Propose one exchange of labels within an assignment, whatever the terms.

    Parameters and returns are those of `exchange_by_table`. The last `n_apart` terms are of units
    that are kept apart: on the way from one label to the other these may meet.
    """
    renamed, objects = scratch[1], scratch[2]
    n_groups = list_groups(partition, start, stop, scratch[0], objects)
    if n_groups == 0:
        return 0, 0
    for label in range(renamed.shape[0]):
        renamed[label] = label
    first, second = draw_exchange(rng, scratch[0, :n_groups], renamed, objects)
    if first < 0:
        return 0, 0
    own, apart = terms[: terms.shape[0] - n_apart], terms[terms.shape[0] - n_apart :]
    ratio = exchange_units(a, b, partition, own, start, stop, first, second, True)
    if log(rng.random()) < ratio + log_evidence_of(apart, partition.n_slots[0]):
        return 1, 1
    exchange_units(a, b, partition, own, start, stop, first, second, False)
    return 0, 1


class Exchange:
    """Exchange of labels within the assignments of one partition.

    `terms` (n_terms, 8): see `protocol.collect`; `ends` (A - 1,): where the objects of the second
    and of later assignments begin. `free`: the first and last unit (excluded) of each assignment
    that may exchange labels.
    """

    def __init__(self, partition: Partition, terms: Terms, units: Units, ends: NDArray[np.int64]):
        self._partition, self._terms = partition, terms
        truncation = len(partition.counts)
        self.free = free_assignments(units, ends, partition.fixed > 0)
        self._kernel, *self._scratch = kernel_and_scratch(collected(terms), truncation)

    def propose(
        self, rng: np.random.Generator, a: NDArray, b: NDArray, number: int
    ) -> tuple[int, int]:
        """Propose exchanges in one of the `free` assignments; return accepted and proposed."""
        given = rng, a, b, self._partition, self._terms, *self.free[number], *self._scratch
        return self._kernel(*given)


def kernel_and_scratch(terms: Sequence[Any], truncation: int) -> tuple[Any, ...]:
    """Return the kernel that exchanges labels of clusters with such terms, and its scratch."""
    scratch = np.zeros((4, truncation), np.int64)
    if all(implemented(tabulate, term) for term in terms):
        tables = np.zeros((2, capacity(truncation), capacity(truncation)))
        return exchange_by_table, scratch, tables
    return exchange_by_moves, scratch, n_apart(terms)


def free_assignments(
    units: Units, ends: NDArray[np.int64], fixed: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """First and last unit (excluded) of the assignments that share no unit with another one.

    Nor have they units that are `fixed` (U,). Of a single assignment, exchanges would be label
    swaps.
    """
    parts = np.split(units.of_object, ends)
    if len(parts) < 2:
        return []
    found = []
    for number, own in enumerate(parts):
        others = np.concatenate(parts[:number] + parts[number + 1 :])
        if len(own) and not fixed[own].any() and not np.isin(own, others).any():
            # Units are numbered by their first objects, and so side by side.
            found.append((int(own.min()), int(own.max()) + 1))
    return found
