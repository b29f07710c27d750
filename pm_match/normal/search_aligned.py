"""Starts of aligned domains: maps from pairs of domains as wholes, clusters from all at once.

What tells how two domains are turned against each other is the distribution of all their objects.
Objects of equal subsamples are matched by their distances within each domain (a quadratic
assignment, which is Gromov-Wasserstein matching with equal weights), from random starts; then best
assignments of objects and best rotations are found in turn (Procrustes). Of many starts the one of
the least cost is most often right, and the joint of the declared model judges between the few best.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pm_match.normal.parts import Map, Normals
from pm_match.normal.state import NormalsState
from pm_match.numerics.k_means import cluster_numbers, k_means
from pm_match.numerics.polar import polar_factor
from pm_match.search.chain import Chain
from pm_match.search.coarse import LEAST, ascend, coarse_climb, polish, shake

# Random starts for every pair of domains, and how many of all are refined.
_STARTS = 16
_REFINED = 8
# Objects of a domain that are matched by distances, and by assignments.
_MATCHED, _ASSIGNED = 100, 300
_MOST_ROUNDS = 30
# Costs that differ by less are of the same map.
_SAME = 0.03
# Numbers of clusters that labels are begun with, and k-means for each.
_NUMBERS = (4, 8, 16)
_ITERATIONS, _LONGER = 4, 25
_SHAKES = 10


def search(chain: Chain, number: int, rng: np.random.Generator) -> None:
    """Bring a chain to a good mode of a component of aligned domains.

    Parameters
    ----------
    chain : Chain
    number : int
        Of the component.
    rng : numpy.random.Generator
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
    turns = {
        pair: _turns(rng, *(clouds[e] for e in pair))
        for pair in combinations(range(len(values)), 2)
        if not set(pair) <= set(still)
    }
    edges = {pair: found[0] for pair, found in turns.items()}
    yield _joined(values, given, still, edges)
    for pair, found in turns.items():
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


def _turns(
    rng: np.random.Generator, x: NDArray, y: NDArray
) -> list[tuple[float, NDArray[np.float64]]]:
    """Find orthogonal matrices Q for which y Q' is like x, with their costs, the best first."""
    # Imported when a search needs it: it takes a second.
    from scipy.optimize import quadratic_assignment

    n = min(_MATCHED, len(x), len(y))
    started = []
    for _ in range(_STARTS):
        one, two = (own[rng.permutation(len(own))[:n]] for own in (x, y))
        options = {"maximize": True, "P0": "randomized", "rng": rng}
        found = quadratic_assignment(
            _distances(one, one), _distances(two, two), method="faq", options=options
        )
        q = polar_factor(one.T @ two[found.col_ind])
        started.append((np.square(one - two[found.col_ind] @ q.T).mean(), q))
    started.sort(key=lambda pair: pair[0])
    one, two = (own[rng.permutation(len(own))[:_ASSIGNED]] for own in (x, y))
    refined = sorted((_refined(one, two, q) for _, q in started[:_REFINED]), key=lambda p: p[0])
    found = refined[:1]
    for cost, q in refined[1:]:
        if cost > found[-1][0] * (1.0 + _SAME):
            found.append((cost, q))
    return found


def _refined(x: NDArray, y: NDArray, q: NDArray) -> tuple[float, NDArray[np.float64]]:
    """Assign objects and turn the second domain in turn, as long as that brings them nearer."""
    from scipy.optimize import linear_sum_assignment

    least = np.inf
    for _ in range(_MOST_ROUNDS):
        costs = _distances(x, y @ q.T)
        rows, columns = linear_sum_assignment(costs)
        cost = costs[rows, columns].mean()
        if cost > least * (1.0 - 1e-6):
            break
        least, q = cost, polar_factor(x[rows].T @ y[columns])
    return float(least), q


def _distances(x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """Return the squared distances (R, S) between vectors."""
    return np.square(x).sum(axis=1)[:, None] - 2.0 * x @ y.T + np.square(y).sum(axis=1)
