"""Starts of aligned domains: maps from pairs of domains as wholes, clusters from all at once.

How domains are turned against each other is told by all their objects, before there are clusters
(see `turns`); of the few likeliest ways the joint of the declared model chooses.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.normal.parts import Map, Normals
from pm_match.normal.state import NormalsState
from pm_match.normal.turns import turns
from pm_match.numerics import assignments
from pm_match.numerics.k_means import cluster_numbers, k_means
from pm_match.search.chain import Chain
from pm_match.search.coarse import (
    LEAST,
    ascend,
    climbs,
    coarse_climb,
    compiled_ahead,
    polish,
    shake,
)

_MOST_ROUNDS = 30
# Numbers of clusters that labels are begun with, and k-means for each.
_NUMBERS = (4, 8, 16)
_ITERATIONS, _LONGER = 12, 25
_SHAKES = 10


@compiled_ahead(lambda state: [*climbs(state), *assignments.kernels()])
def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component of aligned domains.

    `number`: of the component.
    """
    state = chain.loaded(number)
    (own,) = state.of_kind(NormalsState)
    best, highest = chain.point, -np.inf
    for maps in _proposals(rng, own.normals, chain.point):
        _put(chain, own, maps)
        start = chain.point
        for labels in _labels(rng, chain, number):
            chain.point = start
            chain.place(number, labels)
            state = chain.loaded(number)
            ascend(state)
            chain.place(number, state.found())
            chain.settle(number)
            chain.run(_ITERATIONS, number)
            coarse_climb(chain, number)
            chain.settle(number)
            value = chain.log_joint(number)
            if value > highest + LEAST:
                best, highest = chain.point, value
    chain.point = best
    for _ in range(2):
        chain.run(_LONGER, number)
        coarse_climb(chain, number)
        shake(chain, number, rng, _SHAKES)
        chain.settle(number)
    chain.run(_LONGER, number)
    polish(chain, number)


def _put(chain: Chain, state: NormalsState, maps: Sequence[Map]) -> None:
    """Put maps into a chain's point."""
    new = dict(chain.point)
    for values, own in zip(state.normals.values, maps, strict=True):
        alignment = values.alignment
        if alignment is not None:
            raw = None
            if alignment.orientation:
                precision = alignment.priors[alignment.orientation](new)[1]
                raw = own.q * np.sqrt(len(own.q) / precision.flat[0])
            state.points.write_map(new, alignment, own, raw)
    chain.point = new


def _labels(
    rng: np.random.Generator, chain: Chain, number: int
) -> Iterator[list[NDArray[np.int64]]]:
    """Propose labels: k-means of all domains' objects, aligned as the chain's point says."""
    state = chain.loaded(number)
    (own,) = state.of_kind(NormalsState)
    place = own.normals.clustering
    clustering = chain.components[number].clusterings[place]
    units = state.units[place]
    points = own.evidence.rows.means(own.evidence.values)
    seen = np.repeat(own.evidence.rows.size[:, None] > 0.0, points.shape[1], axis=1)
    fixed = None if clustering.finite else _NUMBERS
    for n in cluster_numbers(clustering.truncation, len(units.size), 3, fixed):
        labels = state.found()
        labels[place] = k_means(rng, points, n, seen, _MOST_ROUNDS)[units.of_object]
        yield labels


# -- maps ------------------------------------------------------------------------------------------


def _proposals(rng: np.random.Generator, normals: Normals, point) -> Iterator[list[Map]]:
    """Propose maps of all domains, the likeliest first: trees of pairs of domains.

    A domain without an orientation stays as it is; if there is none, the first one does.
    """
    d, values = normals.n_features, normals.values
    given = [
        Map(np.eye(d), 1.0, np.zeros(d)) if v.alignment is None else v.alignment.read(point, d)
        for v in values
    ]
    still = [e for e, v in enumerate(values) if v.alignment is None or not v.alignment.orientation]
    still = still or [0]
    clouds = [_standardised(v.data) for v in values if v.data is not None]
    between = turns(rng, clouds, still)
    edges = {pair: found[0] for pair, found in between.items()}
    yield _joined(values, given, still, edges)
    for pair, found in between.items():
        # Another map of one pair, which the tree then has to make use of.
        for cost, q in found[1:2]:
            yield _joined(values, given, still, edges | {pair: (cost - 1e6, q)})


def _joined(values, given: list[Map], still: Sequence[int], edges) -> list[Map]:
    """Make maps of the turns between pairs of domains, from the cheapest on."""
    maps = {e: given[e] for e in still}
    while len(maps) < len(values):
        reached = [pair for pair in edges if (pair[0] in maps) != (pair[1] in maps)]
        one, two = min(reached, key=lambda pair: edges[pair][0])
        q = edges[one, two][1]
        if two in maps:
            one, two, q = two, one, q.T
        # The standardised clouds of the two are alike if the second is turned by q.
        there, x, y = maps[one], values[one].data, values[two].data
        size = np.sqrt(y.var(axis=0).sum() / x.var(axis=0).sum())
        turned = q.T @ there.q
        scale = size * there.scale
        centre = there(x.mean(axis=0))
        maps[two] = Map(turned, scale, y.mean(axis=0) - scale * turned @ centre)
    return [maps[e] for e in range(len(values))]


def _standardised(x: NDArray) -> NDArray[np.float64]:
    """Centre vectors (R, D), and give them a mean square of 1 in each direction on average."""
    away = x - x.mean(axis=0)
    return away / np.sqrt(np.square(away).mean())
