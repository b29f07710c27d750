"""Searching for the matching of networks: each alone, aligned, then swept, aligned and climbed."""

import numpy as np
from numpy.typing import NDArray

from pm_match.networks.align import ABSENT, Mobile, Sums, alignments
from pm_match.networks.alone import ConnectedPart, clusters_alone, objects_of, parts_of
from pm_match.search.chain import Chain
from pm_match.search.coarse import (
    LEAST,
    climbs,
    coarse_climb,
    compiled_ahead,
    groups_of,
    polish,
    shake,
    tried,
)
from pm_match.search.doubt import doubt
from pm_match.search.groups import groups, kinds_of_objects

# Measured on the synthetic networks of Iwata & Ishiguro (see benchmarks/truth_starts.py).
_FIRST_STARTS = 150
_STARTS = 60
_ROUNDS = 2
_SHAKES = 10
_SHAKINGS = 5
_RUNNERS_UP = 5
# Shaking goes on while ten shakes rise by more nats than this.
_WORTH_MORE = 1.0
_DOUBTS = 5
_SWEEPS = 25
_SWEEPS_A_STEP = 5


@compiled_ahead(climbs)
def search(chain: Chain, number: int, rng: np.random.Generator) -> float:
    """Search for a good matching of a component that networks alone tell of.

    1. The objects of each network are clustered on their own, all of them relevant.
    2. One network after the other, its clusters are aligned with those before (see `alignments`).
    3. Rounds of doubt whether objects are relevant (see `doubt`), sweeps over single objects, with
       steps of the hyperparameters, alignment of each network with the others, and moves of whole
       clusters (see `coarse`).
    4. More sweeps, and clusters are taken apart again, up to five times, while that pays (see
       `shake`). The next best alignments are tried, too (see `rematch`).
    5. At last labels and hyperparameters are brought to the top of their mode.

    The chain's point is left at the mode that was found; it differs between generators. It is a
    search, not a sample: what follows it has to be.

    `number`: the component. Return the log joint that modes are compared by.
    """
    parts = parts_of(chain.components[number])
    chain.place(number, first_matching(chain, number, parts, rng))
    coarse_climb(chain, number)
    for _ in range(_ROUNDS):
        _sweep(chain, number)
        doubt(chain, number, rng)
        realign(chain, number, parts, rng, _STARTS)
        coarse_climb(chain, number)
    _sweep(chain, number)
    for _ in range(_SHAKINGS):
        if shake(chain, number, rng, _SHAKES) <= _WORTH_MORE:
            break
    rematch(chain, number, parts, rng)
    for _ in range(_DOUBTS):
        chain.maximise_hyperparameters(number)
        if doubt(chain, number, rng) <= LEAST:
            break
        realign(chain, number, parts, rng, _STARTS)
    polish(chain, number)
    return chain.log_joint(number)


def _sweep(chain: Chain, number: int) -> None:
    chain.run(_SWEEPS // _SWEEPS_A_STEP, number, n_sweeps=_SWEEPS_A_STEP)


def first_matching(
    chain: Chain, number: int, parts: list[ConnectedPart], rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Cluster every part alone, and align each with those before; labels of all objects (N_c,)."""
    component = chain.components[number]
    linked = chain.collapsed(number).units
    order = rng.permutation(len(parts))
    codes = [np.zeros(len(own.size), np.int64) for own in linked]
    # Objects that are linked across parts go with the first of these.
    for p in order[::-1]:
        found = clusters_alone(chain.model, component, parts[p], chain.point, rng)
        for own, code, objects, mine in zip(
            linked, codes, objects_of(component, parts[p]), found, strict=True
        ):
            code[own.of_object[objects]] = mine
    kinds = [
        kinds_of_objects(clustering, own)
        for clustering, own in zip(component.clusterings, linked, strict=True)
    ]
    grouped = [
        groups(kind, code[own.of_object])
        for kind, code, own in zip(kinds, codes, linked, strict=True)
    ]
    sums = Sums(component, grouped, chain.point)
    later = [_mobile(parts[p]) for p in order[1:]]
    moving = {m for kinds in later for m in kinds}
    labels = [
        np.array(
            [
                ABSENT if Mobile(c, int(kind)) in moving else label
                for kind, label in zip(own.kind, own.label, strict=True)
            ]
        )
        for c, own in enumerate(grouped)
    ]
    for mobile in later:
        labels, _ = alignments(sums, labels, mobile, rng, _FIRST_STARTS)[0]
    return [own[g.units.of_object] for own, g in zip(labels, grouped, strict=True)]


def realign(
    chain: Chain, number: int, parts: list[ConnectedPart], rng: np.random.Generator, n_starts: int
) -> None:
    """Align every part with the others, and put the labels that are better into the point."""
    grouped = groups_of(chain, number)
    sums = Sums(chain.components[number], grouped, chain.point)
    labels = [own.label for own in grouped]
    for p in _in_turn(parts, rng):
        labels, _ = alignments(sums, labels, _mobile(parts[p]), rng, n_starts)[0]
    chain.place(number, [own[g.units.of_object] for own, g in zip(labels, grouped, strict=True)])


def rematch(
    chain: Chain, number: int, parts: list[ConnectedPart], rng: np.random.Generator
) -> None:
    """Align every part otherwise, and keep what settles higher than it was.

    The best alignment of the clusters that there are may not be that of the best clusters: objects
    get the chance to follow the next best ones.
    """
    for p in _in_turn(parts, rng):
        grouped = groups_of(chain, number)
        sums = Sums(chain.components[number], grouped, chain.point)
        present = [own.label for own in grouped]
        reached = alignments(sums, present, _mobile(parts[p]), rng, _STARTS)
        others = [labels for labels, _ in reached if labels is not present]
        state = chain.loaded(number)
        best, highest = state.found(), state.log_joint()
        for labels in others[:_RUNNERS_UP]:
            moved = [own[g.units.of_object] for own, g in zip(labels, grouped, strict=True)]
            found = tried(chain, number, state, moved, rng)
            if found > highest + LEAST:
                best, highest = state.found(), found
        chain.place(number, best)


def _in_turn(parts: list[ConnectedPart], rng: np.random.Generator) -> NDArray[np.int64]:
    """Give the parts to align with the others, in a random order: of two, one."""
    order = rng.permutation(len(parts))
    return order if len(parts) > 2 else order[: len(parts) - 1]


def _mobile(part: ConnectedPart) -> list[Mobile]:
    return [Mobile(c, int(kind)) for c, own in enumerate(part.assignments) for kind in own]
