"""The clusters of views of the same objects: k-means starts, compared by log joint.

Where clusters are normal, and all of their parameters integrated out, an assignment has an exact
score, and single objects and whole clusters climb it fast. What is left to find are starts. They
are k-means of the views side by side, each whitened by its own covariance: all of it, or those
principal components alone that the views have in common, scaled by how much. (Principal components
of whitened views are their canonical variates; see Klami & Kaski 2006, section 3.1.)

Where values are missing, k-means has what the others of their row let expect; from there on they
are drawn with the labels.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.state import NormalsState
from pm_match.numerics.k_means import cluster_numbers, k_means
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
    if incomplete:
        fill(chain, number)
        state = chain.loaded(number)
    for place, clustering in enumerate(component.clusterings):
        evidence = [own.evidence for own in states if own.normals.clustering == place]
        if not evidence:
            continue
        spaces = _spaces([e.rows for e in evidence], [e.values for e in evidence])
        n_units = len(state.units[place].size)
        numbers = None if clustering.finite else _NUMBERS
        for n in cluster_numbers(clustering.truncation, n_units, _LEAST_OBJECTS, numbers):
            for points, seen in spaces:
                for _ in range(_STARTS):
                    labels = state.found()
                    own = k_means(rng, points, n, seen, _MOST_ROUNDS)
                    labels[place] = clustering.respected(own[state.units[place].of_object])
                    state.load(chain.point, labels)
                    ascend(state)
                    starts.append((state.log_joint(), state.found()))
    starts.sort(key=lambda start: -start[0])
    if incomplete:
        _draw_missing(chain, number, rng, [labels for _, labels in starts[:_CHOSEN]])
        return
    best, highest = starts[0][1], -np.inf
    for _, labels in starts[:_CHOSEN]:
        state.load(chain.point, labels)
        settled(state, rng, _SWEEPS)
        chain.place(number, state.found())
        coarse_climb(chain, number)
        value = chain.loaded(number).log_joint()
        if value > highest + LEAST:
            best, highest = chain.labels(number), value
    chain.place(number, best)
    shake(chain, number, rng, _SHAKES)
    polish(chain, number)


def _draw_missing(
    chain: Chain, number: int, rng: np.random.Generator, starts: Sequence[Sequence[NDArray]]
) -> None:
    """Go on from some labels, and from the chain's, where missing values are drawn with them.

    Held at what is expected of them, missing values would make clusters narrow, and few.
    """
    first, best, highest = chain.point, chain.point, -np.inf
    for labels in (None, *starts):
        chain.point = first
        if labels is not None:
            chain.place(number, labels)
            chain.settle(number)
        any_kinds(chain, number, rng)
        found, values = chain.point, []
        for _ in range(_LEVEL):
            chain.run(1, number)
            values.append(chain.log_joint(number))
        if np.mean(values) > highest:
            best, highest = found, float(np.mean(values))
    chain.point = best


def fill(chain: Chain, number: int) -> None:
    """Put missing values into the point as the others of their row let expect."""
    new = dict(chain.point)
    for own in chain.loaded(number).of_kind(NormalsState):
        own.points.write(new, own.expected(chain.point))
    chain.point = new


def _spaces(
    rows: Sequence[NormalRows], values: Sequence[NDArray]
) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Make the spaces for k-means: points (U, K) of the units, and which coordinates they have."""
    whitened, seen = [], []
    for own, x in zip(rows, values, strict=True):
        away = x - x.mean(axis=0)
        covariance = away.T @ away / len(x)
        scale, turn = np.linalg.eigh(covariance)
        # Directions in which nothing varies tell nothing apart.
        kept = scale > 1e-9 * max(float(scale.max()), np.finfo(float).tiny)
        white = away @ (turn[:, kept] / np.sqrt(scale[kept]))
        whitened.append(own.means(white))
        seen.append(np.repeat(own.size[:, None] > 0.0, white.shape[1], axis=1))
    points, there = np.concatenate(whitened, axis=1), np.concatenate(seen, axis=1)
    spaces = [(points, there)]
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
