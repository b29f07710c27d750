"""Greedy moves of units on the collapsed log joint: what a search climbs by.

Each move is scored exactly, by the same functions as a Gibbs sweep's: the difference of the log
joint with everything else integrated out. Units may be objects (the sweep that takes the best label
where Gibbs draws one, iterated conditional modes), or whole clusters of one data set, which then
change their label, exchange labels, join, or become irrelevant as one. Those whose label is known
stay where they are.
"""

import numpy as np

from pm_match.clusters.relevance import flag_weight, log_flags
from pm_match.clusters.sweep import log_evidence_of, reassign, score_unit
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.stick_breaking import log_predictive, log_prior


@part
def shift(a, b, partition, terms, unit, label):
    """Move a unit to the cluster `label` (or -1); return what the log joint rises by."""
    old = partition.label[unit]
    if old == label:
        return 0.0
    score_unit(partition, terms, unit, partition.scores)
    none = partition.n_slots[0]
    here = none if old < 0 else partition.slot[unit]
    there = none if label < 0 else partition.slot_of[label]
    gain = partition.scores[there] - partition.scores[here]
    gain -= log_prior(a, b, partition.counts) + log_flags(partition.relevance)
    reassign(partition, terms, unit, label)
    return gain + log_prior(a, b, partition.counts) + log_flags(partition.relevance)


@part
def best_label(a, b, partition, terms, unit):
    """Find a unit's best label, -1 for none, and what the log joint would gain by."""
    score_unit(partition, terms, unit, partition.scores)
    scores, own = partition.scores, partition.slot[unit]
    old, n_slots, size = partition.label[unit], partition.n_slots[0], partition.size[unit]
    weights = partition.prior_by_label
    log_predictive(a, b, partition.counts, old, size, weights)
    none = -np.inf
    if partition.relevance.group[unit] >= 0:
        none = scores[n_slots] + flag_weight(partition.relevance, unit, old >= 0, size)
    here = none if old < 0 else scores[own] + weights[old]
    best, top = old, here
    for label in range(weights.shape[0]):
        worth = scores[partition.slot_of[label]] + weights[label]
        if worth > top:
            best, top = label, worth
    if none > top:
        best, top = -1, none
    return best, top - here


@entry
def climb_units(a, b, partition, terms, least):
    """Bring every unit in turn to its best label; return what the log joint rose by.

    `a`, `b` (T - 1,): Beta parameters of the sticks; `terms` (n_terms, 8): the terms of evidence
    (see `protocol.collect`), in the partition's present state; `least`: moves that are worth no
    more than this are not made: nothing but rounding, say.
    """
    total = 0.0
    for unit in range(partition.label.shape[0]):
        if partition.fixed[unit] > 0:
            continue
        label, gain = best_label(a, b, partition, terms, unit)
        if gain > least:
            reassign(partition, terms, unit, label)
            total += gain
    return total


@entry
def climb_pairs(a, b, partition, terms, n_apart, pairs, least):
    """Let pairs of units (P, 2) exchange their labels where that is worth more than `least`.

    The last `n_apart` terms are of units that are kept apart: on the way the two may meet.
    """
    total = 0.0
    own, apart = terms[: terms.shape[0] - n_apart], terms[terms.shape[0] - n_apart :]
    for i in range(pairs.shape[0]):
        first, second = pairs[i, 0], pairs[i, 1]
        if partition.fixed[first] > 0 or partition.fixed[second] > 0:
            continue
        one, other = partition.label[first], partition.label[second]
        relevance = partition.relevance
        if one == other or (one < 0 and relevance.group[second] < 0):
            continue
        if other < 0 and relevance.group[first] < 0:
            continue
        gain = shift(a, b, partition, own, first, other)
        gain += shift(a, b, partition, own, second, one)
        if gain > least and log_evidence_of(apart, partition.n_slots[0]) == 0.0:
            total += gain
        else:
            shift(a, b, partition, own, second, other)
            shift(a, b, partition, own, first, one)
    return total


@entry
def climb_merges(a, b, partition, terms, moved, least):
    """Merge two clusters everywhere where that is worth more than `least`; `moved` is scratch."""
    total = 0.0
    for source in range(partition.counts.shape[0]):
        for target in range(source):
            if partition.counts[source] == 0 or partition.counts[target] == 0:
                continue
            if partition.named[source] > 0:
                continue
            gain = 0.0
            n = 0
            for unit in range(partition.label.shape[0]):
                if partition.label[unit] == source:
                    gain += shift(a, b, partition, terms, unit, target)
                    moved[n] = unit
                    n += 1
            if gain > least:
                total += gain
                continue
            for i in range(n):
                shift(a, b, partition, terms, moved[i], source)
    return total
