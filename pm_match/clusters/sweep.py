"""The one Gibbs kernel: collapsed sweeps over the units of a partition, whatever the evidence.

For every unit in turn the new cluster is drawn from

    p(s_u = j | rest)  ~  E[w_j^size | others' counts]  x  exp( sum over terms of log predictive )

with everything else integrated out (Iwata, Hirao & Ueda 2016, eq. 11 and 20, at a truncation that
is exact). A unit that may be irrelevant has one more candidate, to be in no cluster at all, and
the weight of all clusters together is that of being relevant (Iwata & Ishiguro, eq. 11-14; see
`relevance`). The whole sweep is one compiled call that allocates nothing.

Where parameters of the clusters are not integrated out, they belong to labels, and empty labels do
not score alike. Such a partition is *anchored*: label l is in slot l + 1 for as long as nothing is
renamed, all T slots are in use, empty ones in the state that `clear` leaves, and slot 0 has no
prior weight.
"""

from math import exp, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.label_swap import swap_labels
from pm_match.clusters.protocol import clear, log_evidence, move, relocate, score
from pm_match.clusters.relevance import Relevance, flag_weight, log_flags, new_relevance
from pm_match.numerics.kernels import entry, part, reducing
from pm_match.numerics.numba_internals import record
from pm_match.numerics.stick_breaking import log_prior, predictive

# A label whose weight is below exp(-45) = 3e-20 of the best one's is below the resolution of the
# uniform draw (2^-53 = 1e-16) for any practical number of clusters: its exponential is not taken.
_NEGLIGIBLE = 45.0


@record
class Partition(NamedTuple):
    """The state of a partition with truncation T, capacity S = T + 2 slots (rounded up to 8)."""

    # (U,): Cluster of each unit, 0 ... T - 1, or -1 for an irrelevant one.
    label: NDArray[np.int64]
    slot: NDArray[np.int16]  # (U,): slot of each unit, 0 for an irrelevant one
    size: NDArray[np.int64]  # (U,): objects in each unit
    counts: NDArray[np.int64]  # (T,): objects in each cluster
    held: NDArray[np.int64]  # (S,): units in each slot
    slot_of: NDArray[np.int64]  # (T,): slot of each label, 0 if it is empty
    label_of: NDArray[np.int64]  # (S,): label of each slot
    n_slots: NDArray[np.int64]  # (1,): slots in use, the empty slot 0 included
    anchored: NDArray[np.int64]  # (1,): 1 if empty labels keep their slots, 0 otherwise
    prior_by_label: NDArray[np.float64]  # (T,): scratch: prior weights of the labels for one unit
    # (S, S): row `own`: prior weights of the slots for a single object of slot `own`
    prior: NDArray[np.float64]
    # (S,): the state of the counts that each row of `prior` was computed from
    prior_stamp: NDArray[np.int64]
    version: NDArray[np.int64]  # (1,): number of the present state of the counts
    # scores, weights (S,): scratch: log predictives and unnormalised probabilities
    scores: NDArray[np.float64]
    weights: NDArray[np.float64]
    candidates: NDArray[np.int64]  # (S,): scratch: the slots that are not negligible
    # (U,): 1 for units whose label is known, which stay where they are, 0 for all others
    fixed: NDArray[np.int64]
    # (T,): units in each cluster whose label is known: their clusters keep their labels
    named: NDArray[np.int64]
    relevance: Relevance  # which units may be irrelevant, and how many are


def capacity(truncation: int) -> int:
    """Slots for a `truncation`: whole vectors of 8, so that inner loops have no tail.

    There is one for empty clusters, and room for the candidate of being irrelevant.
    """
    return -(-(truncation + 2) // 8) * 8


def new_partition(
    size: NDArray[np.int64],
    truncation: int,
    relevance: Relevance | None = None,
    slot: NDArray[np.int16] | None = None,
    n_slots: NDArray[np.int64] | None = None,
    anchored: bool = False,
    fixed: NDArray[np.bool_] | None = None,
) -> Partition:
    """Allocate a partition of units of the given `size`, all of them yet to be placed.

    By default all units are relevant. Evidence that looks at several partitions shares the arrays
    `slot` (U,) and `n_slots` (1,). Where it depends on parameters that labels have, the partition
    is `anchored`. Units that are `fixed` (U,) have a known label.
    """
    if relevance is None:
        relevance = new_relevance(np.full(len(size), -1))
    slots = capacity(truncation)
    if slots > np.iinfo(np.int16).max:
        most = np.iinfo(np.int16).max
        raise ValueError(
            f"expected a truncation of at most {most // 8 * 8 - 2} clusters; found {truncation}"
        )
    return Partition(
        label=np.zeros(len(size), np.int64),
        slot=np.zeros(len(size), np.int16) if slot is None else slot,
        size=np.ascontiguousarray(size, np.int64),
        counts=np.zeros(truncation, np.int64),
        held=np.zeros(slots, np.int64),
        slot_of=np.zeros(truncation, np.int64),
        label_of=np.zeros(slots, np.int64),
        n_slots=np.ones(1, np.int64) if n_slots is None else n_slots,
        anchored=np.array([int(anchored)]),
        prior_by_label=np.zeros(truncation),
        prior=np.zeros((slots, slots)),
        prior_stamp=np.full(slots, -1, np.int64),
        version=np.zeros(1, np.int64),
        scores=np.zeros(slots),
        weights=np.zeros(slots),
        candidates=np.zeros(slots, np.int64),
        fixed=np.zeros(len(size), np.int64) if fixed is None else fixed.astype(np.int64),
        named=np.zeros(truncation, np.int64),
        relevance=relevance,
    )


@entry
def place(partition, labels):
    """Set the partition to `labels` (U,): slots in the order in which clusters appear, or all."""
    relevance = partition.relevance
    relevance.counts[:] = 0.0
    partition.counts[:] = 0
    partition.named[:] = 0
    partition.held[:] = 0
    partition.slot_of[:] = 0
    partition.n_slots[0] = 1
    partition.version[0] += 1
    if partition.anchored[0] > 0:
        for label in range(partition.counts.shape[0]):
            partition.slot_of[label] = label + 1
            partition.label_of[label + 1] = label
        partition.n_slots[0] += partition.counts.shape[0]
    for unit in range(labels.shape[0]):
        label = labels[unit]
        partition.label[unit] = label
        group = relevance.group[unit]
        if group >= 0:
            relevance.counts[group, int(label >= 0)] += partition.size[unit]
        if label < 0:
            partition.slot[unit] = 0
            continue
        partition.counts[label] += partition.size[unit]
        partition.named[label] += partition.fixed[unit]
        if partition.slot_of[label] == 0:
            partition.slot_of[label] = partition.n_slots[0]
            partition.label_of[partition.n_slots[0]] = label
            partition.n_slots[0] += 1
        partition.slot[unit] = partition.slot_of[label]
        partition.held[partition.slot_of[label]] += 1


@part
def weigh_slots(partition, out):
    """Fill ``out[:n_slots]`` with the slots' prior weights, from those of the labels.

    Slot 0 has what the labels without a slot have: nothing, if the partition is anchored.
    """
    predictive_by_label = partition.prior_by_label
    n_slots = partition.n_slots[0]
    empty = 0.0
    for label in range(partition.counts.shape[0]):
        if partition.slot_of[label] == 0:
            empty += predictive_by_label[label]
    out[0] = empty
    for slot in range(1, n_slots):
        out[slot] = predictive_by_label[partition.label_of[slot]]


@reducing
def largest(values, n):
    """Largest of ``values[:n]``: the same in any order, so that this may be vectorised."""
    top = -np.inf
    for i in range(n):
        top = max(top, values[i])
    return top


@part
def draw_slot(rng, prior, scores, n_slots, own, weights, slots):
    """Draw a slot with probability ~ ``prior * exp(scores)``, the best of which `own` often is."""
    if prior[0] <= 0.0:
        scores[0] = -np.inf
    top = largest(scores, n_slots)
    best = own
    if scores[own] < top or prior[own] <= 0.0:
        top = -np.inf
        for slot in range(n_slots):
            if prior[slot] > 0.0 and scores[slot] > top:
                top = scores[slot]
                best = slot
    floor = top + log(prior[best]) - _NEGLIGIBLE
    total = 0.0
    n = 0
    for slot in range(n_slots):
        if scores[slot] >= floor:
            total += prior[slot] * exp(scores[slot] - top)
            weights[n] = total
            slots[n] = slot
            n += 1
    threshold = rng.random() * total
    for i in range(n):
        if weights[i] > threshold:
            return slots[i]
    return best


@part
def draw_empty_label(rng, partition):
    """Draw one of the empty labels by their prior weights."""
    total = 0.0
    for label in range(partition.counts.shape[0]):
        if partition.counts[label] == 0:
            total += partition.prior_by_label[label]
    threshold = rng.random() * total
    chosen = -1
    total = 0.0
    for label in range(partition.counts.shape[0]):
        if partition.counts[label] == 0 and partition.prior_by_label[label] > 0.0:
            total += partition.prior_by_label[label]
            chosen = label
            if total > threshold:
                break
    return chosen


@entry
def reassign(partition, terms, unit, label):
    """Move `unit` to the cluster `label` (or -1), in the partition and all terms of evidence."""
    old = partition.label[unit]
    source = partition.slot[unit]
    target = 0 if label < 0 else partition.slot_of[label]
    size = partition.size[unit]
    if label >= 0 and target == 0:
        target = partition.n_slots[0]
        partition.n_slots[0] += 1
        partition.slot_of[label] = target
        partition.label_of[target] = label
        partition.held[target] = 0
        for i in range(terms.shape[0]):
            clear(terms[i], target)
    for i in range(terms.shape[0]):
        move(terms[i], unit, source, target)
    partition.label[unit] = label
    partition.slot[unit] = target
    partition.version[0] += 1
    if label >= 0:
        partition.counts[label] += size
        partition.held[target] += 1
    if (old < 0) != (label < 0):
        counts = partition.relevance.counts[partition.relevance.group[unit]]
        counts[int(old >= 0)] -= size
        counts[int(label >= 0)] += size
    if old < 0:
        return
    partition.counts[old] -= size
    partition.held[source] -= 1
    if partition.held[source] == 0:
        close_slot(partition, terms, source, old)


@part
def close_slot(partition, terms, slot, label):
    """Keep the slots without gaps: the last one takes the place of the emptied one.

    Of an anchored partition, every label keeps its slot, which is cleared.
    """
    if partition.anchored[0] > 0:
        for i in range(terms.shape[0]):
            clear(terms[i], slot)
        return
    partition.slot_of[label] = 0
    last = partition.n_slots[0] - 1
    if slot != last:
        partition.held[slot] = partition.held[last]
        partition.label_of[slot] = partition.label_of[last]
        partition.slot_of[partition.label_of[slot]] = slot
        for unit in range(partition.slot.shape[0]):
            if partition.slot[unit] == last:
                partition.slot[unit] = slot
        for i in range(terms.shape[0]):
            relocate(terms[i], last, slot)
    for i in range(terms.shape[0]):
        clear(terms[i], last)
    partition.n_slots[0] = last


@entry
def score_unit(partition, terms, unit, scores):
    """Fill ``scores[:n_slots + 1]`` with a unit's log predictive in every slot, and in none."""
    n_slots = partition.n_slots[0]
    for slot in range(n_slots + 1):
        scores[slot] = 0.0
    for i in range(terms.shape[0]):
        score(terms[i], unit, partition.slot[unit], n_slots, scores)


@entry
def log_evidence_of(terms, n_slots):
    """Log marginal likelihood of all terms' data, from the running state."""
    total = 0.0
    for i in range(terms.shape[0]):
        total += log_evidence(terms[i], n_slots)
    return total


@entry
def sweep(rng, a, b, partition, terms):
    """One Gibbs sweep over all units.

    `a`, `b` (T - 1,): Beta parameters of the sticks (see `stick_breaking`); `terms` (n_terms, 8):
    the terms of evidence (see `protocol.collect`), in the partition's present state. Return objects
    that changed their cluster.
    """
    moved = 0
    scores = partition.scores
    relevance = partition.relevance
    for unit in range(partition.label.shape[0]):
        if partition.fixed[unit] > 0:
            continue
        size = partition.size[unit]
        old = partition.label[unit]
        own = partition.slot[unit]
        n_slots = partition.n_slots[0]
        # Slot 0 stands for a new cluster, slot n_slots for none.
        score_unit(partition, terms, unit, scores)
        prior = partition.prior[own]
        # Prior weights change with the counts only: a settled sweep looks them up.
        fresh = size == 1 and partition.prior_stamp[own] == partition.version[0]
        if not fresh:
            predictive(a, b, partition.counts, old, size, partition.prior_by_label)
            weigh_slots(partition, prior)
            partition.prior_stamp[own] = partition.version[0] if size == 1 else -1
        here = own if old >= 0 else n_slots
        n_candidates = n_slots
        if relevance.group[unit] >= 0:
            scores[n_slots] += flag_weight(relevance, unit, old >= 0, size)
            prior[n_slots] = 1.0
            n_candidates = n_slots + 1
        slot = draw_slot(
            rng, prior, scores, n_candidates, here, partition.weights, partition.candidates
        )
        if slot == here:
            continue
        if slot == n_slots:
            label = -1
        elif slot == 0:
            if fresh:
                predictive(a, b, partition.counts, old, size, partition.prior_by_label)
            label = draw_empty_label(rng, partition)
        else:
            label = partition.label_of[slot]
        reassign(partition, terms, unit, label)
        moved += size
    return moved


@entry
def rename(rng, a, b, partition, renamed, n_proposals):
    """Label-swap moves (see `label_swap`), applied to the partition; `renamed` (T,) is scratch."""
    for label in range(partition.counts.shape[0]):
        renamed[label] = label
    accepted, proposed = swap_labels(
        rng, a, b, partition.counts, partition.named, renamed, n_proposals
    )
    if accepted > 0:
        partition.version[0] += 1
        partition.slot_of[:] = 0
        for slot in range(1, partition.n_slots[0]):
            partition.label_of[slot] = renamed[partition.label_of[slot]]
            partition.slot_of[partition.label_of[slot]] = slot
        for unit in range(partition.label.shape[0]):
            if partition.label[unit] >= 0:
                partition.label[unit] = renamed[partition.label[unit]]
    return accepted, proposed


@entry
def log_joint(a, b, partition, terms):
    """Log p(data, assignment, relevance), all that the terms integrate out integrated out."""
    total = log_prior(a, b, partition.counts) + log_flags(partition.relevance)
    for i in range(terms.shape[0]):
        total += log_evidence(terms[i], partition.n_slots[0])
    return total
