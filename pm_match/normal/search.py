"""The clusters of views of the same objects: k-means starts, compared by log joint.

Where clusters are normal, and all of their parameters integrated out, an assignment has an exact
score, and single objects and whole clusters climb it fast. What is left to find are starts. They
are k-means of the views side by side, each whitened by its own covariance: all of it, or those
principal components alone that the views have in common, scaled by how much. (Principal components
of whitened views are their canonical variates; see Klami & Kaski 2006, section 3.1.)

Where values are missing, k-means has what the others of their row let expect; from there on they
are drawn with the labels.

Where precisions have factors, views as they are, but for their scale, give further starts: those
directions in which most varies tell clusters apart best. Factors are expected by the clusters of
the labels, and labels climb given these, in turn. Moves at given factors do not join what belongs
together only if far objects count less: whole clusters are moved into near ones, and factors
expected anew.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.precision_factor_gibbs import PrecisionFactorGibbs
from pm_match.normal.state import NormalsState
from pm_match.numerics.k_means import cluster_numbers, k_means
from pm_match.reading.evidence import Point
from pm_match.reading.parts import UnservedModelError
from pm_match.search.chain import Chain
from pm_match.search.coarse import (
    LEAST,
    ascend,
    climbs,
    coarse_climb,
    compiled_ahead,
    polish,
    settled,
    shake,
)
from pm_match.search.recipe import any_kinds

# Starts for every number of clusters and kind of k-means, and how many of all go on.
_STARTS = 2
_CHOSEN = 3
# Sweeps of a start that goes on, and clusters taken apart at the end.
_SWEEPS = 15
_SHAKES = 10
# Draws whose mean log joint says how good a matching is where values are missing.
_LEVEL = 10
# Numbers of clusters that are begun with, if only a truncation is declared.
_NUMBERS = (2, 4, 8, 16, 32)
# The same where clusters have tails, and so are few.
_FEW_NUMBERS = (1, 2, 3, 4, 5, 6, 8, 12)
# Rounds in which factors of precisions are expected, and labels climb.
_TURNS = 5
# A move of a cluster that is worse than this after a round is given up.
_HOPELESS = 20.0
# Objects there are at least for each cluster to begin with.
_LEAST_OBJECTS = 3
_MOST_ROUNDS = 30


@compiled_ahead(climbs)
def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component of normal clusters.

    `number`: of the component.
    """
    component = chain.components[number]
    state = chain.loaded(number)
    states: list[NormalsState] = state.of_kind(NormalsState)
    starts, incomplete = [], any(own.normals.missing for own in states)
    weighed = any(own.normals.factors for own in states)
    if incomplete:
        fill(chain, number)
        state = chain.loaded(number)
    first = chain.point
    for place, clustering in enumerate(component.clusterings):
        evidence = [own.evidence for own in states if own.normals.clustering == place]
        if not evidence:
            continue
        spaces = _spaces([e.rows for e in evidence], [e.values for e in evidence], weighed)
        n_units = len(state.units[place].size)
        numbers = None if clustering.finite else _FEW_NUMBERS if weighed else _NUMBERS
        for n in cluster_numbers(clustering.truncation, n_units, _LEAST_OBJECTS, numbers):
            for points, seen in spaces:
                for _ in range(_STARTS):
                    labels = state.found()
                    own = k_means(rng, points, n, seen, _MOST_ROUNDS)
                    labels[place] = clustering.respected(own[state.units[place].of_object])
                    state.load(first, labels)
                    ascend(state)
                    chain.point, value = first, state.log_joint()
                    chain.place(number, state.found())
                    if weighed:
                        value = expect_factors(chain, number, first)
                    starts.append((value, chain.point))
    starts.sort(key=lambda start: -start[0])
    chosen = [point for _, point in starts[:_CHOSEN]]
    if incomplete:
        _draw_missing(chain, number, rng, first, chosen)
        return
    best, highest = chosen[0], -np.inf
    for chain.point in chosen:
        state = chain.loaded(number)
        settled(state, rng, _SWEEPS)
        chain.place(number, state.found())
        coarse_climb(chain, number)
        value = chain.loaded(number).log_joint()
        if weighed:
            value = expect_factors(chain, number, chain.point)
        if value > highest + LEAST:
            best, highest = chain.point, value
    chain.point = best
    if weighed:
        regroup(chain, number)
    shake(chain, number, rng, _SHAKES)
    if weighed:
        regroup(chain, number)
    polish(chain, number)
    for step in chain.steps_of(number):
        # Log joints of chains are those at factors that are drawn.
        if isinstance(step, PrecisionFactorGibbs):
            chain.point, _ = step.step(chain.point)


def expect_factors(chain: Chain, number: int, point: Point, n: int = _TURNS) -> float:
    """Expect factors of precisions by the collapsed state's labels, and let these climb, in turn.

    `n`: rounds, at most. Return the log joint. The chain's point is `point` with both.
    """
    chain.point, state = dict(point), chain.collapsed(number)
    for _ in range(n):
        labels, new = state.found(), dict(chain.point)
        for own in state.of_kind(NormalsState):
            for name, value in own.expected_factors(chain.point).items():
                own.points.write_positive(new, name, np.log(value))
        chain.point = new
        state.load(new, labels)
        if ascend(state) <= LEAST:
            break
    chain.place(number, state.found())
    value = state.log_joint() + state.log_prior(chain.point)
    return value - sum(own.optimism(chain.point) for own in state.of_kind(NormalsState))


def regroup(chain: Chain, number: int) -> None:
    """Move the objects of a view in one cluster to one nearby, as long as the log joint rises.

    Factors of precisions are expected anew for each move.
    """
    state, improved = chain.loaded(number), True
    highest = expect_factors(chain, number, chain.point)
    while improved:
        improved, state = False, chain.loaded(number)
        moves = [
            (distance, own.normals.clustering, objects, label)
            for own in state.of_kind(NormalsState)
            for distance, objects, label in own.neighbours()
        ]
        for _, place, objects, label in sorted(moves, key=lambda move: move[0]):
            best, labels = chain.point, chain.labels(number)
            of_object = state.units[place].of_object
            labels[place][np.isin(of_object, of_object[objects])] = label
            try:
                chain.place(number, labels)
            except UnservedModelError:
                continue  # some of the objects cannot be linked
            chain.loaded(number)
            value = expect_factors(chain, number, chain.point, 1)
            if value > highest - _HOPELESS:
                value = expect_factors(chain, number, chain.point)
            if value > highest + LEAST:
                highest, improved = value, True
            else:
                chain.point = best


def _draw_missing(
    chain: Chain, number: int, rng: np.random.Generator, first: Point, starts: Sequence[Point]
) -> None:
    """Go on from the `first` point, and from some others, where missing values are drawn.

    Held at what is expected of them, missing values would make clusters narrow, and few.
    """
    best, highest = first, -np.inf
    for start in (first, *starts):
        chain.point = dict(start)
        if start is not first:
            chain.settle(number)
        any_kinds(chain, number, rng)
        found, values = chain.point, []
        for _ in range(_LEVEL):
            chain.run(1, number)
            values.append(chain.log_joint(number))
        if np.mean(values) > highest:
            best, highest = found, float(np.mean(values))
    chain.point = dict(best)


def fill(chain: Chain, number: int) -> None:
    """Put missing values into the point as the others of their row let expect."""
    new = dict(chain.point)
    for own in chain.loaded(number).of_kind(NormalsState):
        own.points.write(new, own.expected(chain.point))
    chain.point = new


def _spaces(
    rows: Sequence[NormalRows], values: Sequence[NDArray], as_they_are: bool
) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Make the spaces for k-means: points (U, K) of the units, and which coordinates they have.

    `as_they_are`: whether one has the views without whitening.
    """
    whitened, plain, seen = [], [], []
    for own, x in zip(rows, values, strict=True):
        away = x - x.mean(axis=0)
        covariance = away.T @ away / len(x)
        scale, turn = np.linalg.eigh(covariance)
        # Directions in which nothing varies tell nothing apart.
        kept = scale > 1e-9 * max(float(scale.max()), np.finfo(float).tiny)
        white = away @ (turn[:, kept] / np.sqrt(scale[kept]))
        whitened.append(own.means(white))
        seen.append(np.repeat(own.size[:, None] > 0.0, white.shape[1], axis=1))
        plain.append(whitened[-1] * np.sqrt(scale[kept] / scale[kept].sum()))
    points, there = np.concatenate(whitened, axis=1), np.concatenate(seen, axis=1)
    spaces = [(points, there)]
    if as_they_are:
        spaces.append((np.concatenate(plain, axis=1), there))
    complete = points[there.all(axis=1)]
    if len(rows) > 1 and len(complete) > points.shape[1]:
        covariance = complete.T @ complete / len(complete)
        scale, turn = np.linalg.eigh(covariance)
        common = np.maximum(scale - 1.0, 0.0)
        kept = common > 0.05
        if kept.any():
            # What an object is not seen in is taken from what it is.
            share = there.mean(axis=1, keepdims=True)
            scores = points @ (turn[:, kept] * np.sqrt(common[kept])) / np.maximum(share, 1e-9)
            spaces.append((scores, np.repeat(there.any(axis=1)[:, None], kept.sum(), axis=1)))
    return spaces
