"""Moves of whole clusters, for evidence of any kind, scored exactly on the collapsed log joint."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.apart import n_apart
from pm_match.clusters.climb import climb_merges, climb_pairs, climb_units
from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.label_swap import climb_names
from pm_match.clusters.protocol import collected
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.stick_breaking import log_prior
from pm_match.reading.parts import UnservedModelError
from pm_match.search.chain import Chain
from pm_match.search.groups import ObjectGroups, groups, kinds_of_objects

# Rises below this are rounding, or not worth another round.
LEAST = 1e-6
_MOST_ROUNDS = 20
# Sweeps after a cluster was taken apart, for the objects around it to follow.
_SETTLING = 8


# What searches call that can be compiled ahead.
_NEEDED: dict[Callable, Callable[[Collapsed], list[Job]]] = {}


def compiled_ahead(jobs: Callable[[Collapsed], list[Job]]) -> Callable:
    """Note what the decorated search calls, given the collapsed state of a component."""

    def note(search: Callable) -> Callable:
        _NEEDED[search] = jobs
        return search

    return note


def needed(search: Callable, state: Collapsed) -> list[Job]:
    """List what a search calls that can be compiled ahead, as far as that is known."""
    return _NEEDED[search](state) if search in _NEEDED else []


def climbs(state: Collapsed) -> list[Job]:
    """List what is called by climbs of objects and of whole clusters, in that order."""
    prior, numbers, table = np.zeros(0), np.zeros(0, np.int64), np.zeros((1, 1), np.int64)
    given = prior, prior, state.partitions[0], table
    return [
        job(climb_units, *given, LEAST),
        job(climb_pairs, *given, 0, table, LEAST),
        job(climb_merges, *given, numbers, LEAST),
        job(climb_names, prior, prior, numbers, numbers, LEAST),
    ]


def groups_of(chain: Chain, number: int) -> list[ObjectGroups]:
    """Group the objects of every clustering of a component at the chain's labels."""
    state = chain.collapsed(number)
    return [
        groups(kinds_of_objects(clustering, linked), own)
        for clustering, linked, own in zip(
            chain.components[number].clusterings, state.units, chain.labels(number), strict=True
        )
    ]


def coarse_climb(chain: Chain, number: int) -> float:
    """Climb by moves of whole clusters, until none is worth making.

    The objects of a data set in a cluster take another label, free or in use, exchange labels with
    those in another cluster, or become irrelevant, or relevant, as one; and clusters are merged in
    all data sets at once.

    Return what the log joint rose by. The chain's point has the new labels.
    """
    grouped = groups_of(chain, number)
    state = chain.loaded(number, [g.units for g in grouped])
    total, pairs = 0.0, [g.pairs() for g in grouped]
    for _ in range(_MOST_ROUNDS):
        gain = 0.0
        for partition, terms, prior, own in zip(
            state.partitions, state.terms, state.priors, pairs, strict=True
        ):
            gain += climb_units(*prior, partition, terms, LEAST)
            gain += climb_pairs(*prior, partition, terms, n_apart(collected(terms)), own, LEAST)
            moved = np.zeros(len(partition.label), np.int64)
            gain += climb_merges(*prior, partition, terms, moved, LEAST)
        total += gain
        if gain <= LEAST:
            break
    labels = state.found()
    for n, prior in enumerate(state.priors):
        if state.partitions[n].anchored[0] or state.partitions[n].fixed.any():
            continue  # parameters would have to be renamed too, or what is known
        labels[n], gain = renamed(prior, labels[n], len(state.partitions[n].counts))
        total += gain
    chain.place(number, labels)
    return total


def climb_objects(chain: Chain, number: int) -> float:
    """Climb by moves of single objects, as `ascend` does; return what the log joint rose by."""
    state = chain.loaded(number)
    total = ascend(state)
    chain.place(number, state.found())
    return total


def shake(chain: Chain, number: int, rng: np.random.Generator, n: int) -> float:
    """Take clusters apart at random, `n` times, and keep what settles higher than it was.

    The objects of one data set leave a cluster together for a free label, or a random half of the
    cluster does. If all labels are in use, a cluster of little worth is given up first. What single
    moves cannot undo, two clusters of different data sets that have become one and have drawn
    others along, so gets a second chance.

    Return what the log joint rose by. The chain's point has the new labels.
    """
    state = chain.loaded(number)
    kinds = [
        kinds_of_objects(clustering, linked)
        for clustering, linked in zip(
            chain.components[number].clusterings, state.units, strict=True
        )
    ]
    before = state.log_joint()
    ascend(state)
    best, highest = state.found(), state.log_joint()
    for _ in range(n):
        labels = [own.copy() for own in best]
        c = int(rng.integers(len(labels)))
        if len(np.unique(labels[c][labels[c] >= 0])) == len(state.partitions[c].counts):
            _give_up(rng, chain, number, labels, c)
        if not _take_apart(rng, labels[c], kinds[c], state.units[c], state.partitions[c]):
            continue
        found = tried(chain, number, state, labels, rng)
        if found > highest + LEAST:
            best, highest = state.found(), found
    chain.place(number, best)
    return highest - before


def _give_up(rng: np.random.Generator, chain: Chain, number: int, labels, c: int) -> None:
    """Merge one of the clusters that data miss least with its next best place, or with none."""
    whole = [groups(np.zeros(len(own), np.int64), own) for own in labels]
    state = chain.collapsed(number).regrouped([own.units for own in whole])
    state.load(chain.point, labels)
    partition, names = state.partitions[c], whole[c].label
    flagged = all(a.group >= 0 for a in chain.components[number].clusterings[c].assignments)
    losses = np.full(len(partition.counts), np.inf)
    place = np.full(len(partition.counts), -1)
    for unit in np.flatnonzero((names >= 0) & (partition.fixed == 0)):
        worth = state.scores(c, int(unit))
        own, worth[names[unit]] = worth[names[unit]], -np.inf
        best = int(np.argmax(worth if flagged else worth[:-1]))
        losses[names[unit]] = own - worth[best]
        place[names[unit]] = best if best < len(partition.counts) else -1
    order = np.argsort(losses)[: np.isfinite(losses).sum()]
    if len(order):
        given = order[min(int(rng.geometric(0.5)), len(order)) - 1]
        labels[c][labels[c] == given] = place[given]


def _take_apart(rng: np.random.Generator, labels, kinds, linked, partition) -> bool:
    """Move a part of a cluster to a free label; return whether there are both."""
    movable = (labels >= 0) & (partition.fixed == 0)[linked.of_object]
    used = np.unique(labels[movable])
    free = np.setdiff1d(np.arange(len(partition.counts)), labels)
    if not len(used) or not len(free):
        return False
    inside = movable & (labels == rng.choice(used))
    present = np.unique(kinds[inside])
    if len(present) > 1 and rng.random() < 0.5:
        leaving = inside & (kinds == rng.choice(present))
    else:
        leaving = inside & (rng.random(len(linked.size)) < 0.5)[linked.of_object]
    labels[leaving] = free[0]
    return True


def tried(chain: Chain, number: int, state: Collapsed, labels, rng: np.random.Generator) -> float:
    """Let objects find their places from other labels; return the log joint.

    It is -inf if there are no labels near these that keep objects apart that have to be.
    """
    clusterings = chain.components[number].clusterings
    try:
        kept = [c.respected(own) for c, own in zip(clusterings, labels, strict=True)]
        state.load(chain.point, kept)
    except UnservedModelError:
        return -np.inf
    return settled(state, rng, _SETTLING)


def settled(state: Collapsed, rng: np.random.Generator, n: int) -> float:
    """Let objects find their places in `n` sweeps and a climb; return the log joint."""
    for _ in range(n):
        state.sweep(rng)
    ascend(state)
    return state.log_joint()


def ascend(state: Collapsed, n: int = 5) -> float:
    """Climb by moves of single objects (iterated conditional modes), at most `n` sweeps."""
    total = 0.0
    for _ in range(n):
        gain = 0.0
        for partition, terms, prior in zip(
            state.partitions, state.terms, state.priors, strict=True
        ):
            gain += climb_units(*prior, partition, terms, LEAST)
        total += gain
        if gain <= LEAST:
            break
    return total


def polish(chain: Chain, number: int, n: int = 3) -> None:
    """Bring labels and hyperparameters to the top of their mode; draw the rest given them."""
    for _ in range(n):
        gain = climb_objects(chain, number) + coarse_climb(chain, number)
        chain.maximise_hyperparameters(number)
        if gain <= LEAST:
            break
    chain.settle(number)


def renamed(
    prior: tuple[NDArray, NDArray], labels: NDArray[np.int64], truncation: int
) -> tuple[NDArray[np.int64], float]:
    """Give clusters the names that their prior likes best, as far as exchanges of two lead.

    Return `labels` (N,); `gain`: what the log prior rose by.
    """
    counts = np.bincount(labels[labels >= 0], minlength=truncation)
    before = log_prior(*prior, counts)
    # Broken sticks shrink on average, so that sizes in order are a good start.
    order = np.argsort(-counts, kind="stable")
    if log_prior(*prior, counts[order]) <= before:
        order = np.arange(truncation)
    counts = counts[order]
    climb_names(*prior, counts, order, LEAST)
    name = np.empty(truncation, np.int64)
    name[order] = np.arange(truncation)
    return np.where(labels >= 0, name[labels], -1), log_prior(*prior, counts) - before
