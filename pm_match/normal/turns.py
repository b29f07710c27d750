"""How domains as wholes are turned against each other: orthogonal matrices between their objects.

What tells how two domains are turned is the distribution of all their objects. If each object of
one had its counterpart in the other, the best rotation would be known (Procrustes), and if the
rotation were, the best counterparts (an assignment): found in turn, they go down to a minimum of
the mean squared distance, of which there are many. The least is most often right, and found by

- starts that need no rotation: objects of equal subsamples are matched by their distances within
  each domain (a quadratic assignment, which is Gromov-Wasserstein matching with equal weights);
- hops: from the best minima, one axis reflected, or everything turned by a little. Most wrong
  minima have a part of the rotation right, and lead to the right one in a few hops;
- triangles: what is found by way of a third domain.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.assignments import Assignments, assign_nearest
from pm_match.numerics.polar import polar_factor

# A mean squared distance after the turn, and the turn: the second domain's x is like x Q'.
Turn = tuple[float, NDArray[np.float64]]

# Starts for every pair of domains.
_STARTS = 100
# Objects of a domain that are matched by distances; by assignments, at first and in the end.
_MATCHED, _FEW, _MANY = 50, 100, 300
# Minima that are kept; that hops begin at; hops from each; the most rounds of them.
_KEPT, _HOPPED, _HOPS, _ROUNDS = 8, 6, 15, 6
# Rounds that bring the least cost down by no more than this before hops end.
_VAIN, _GAIN = 2, 1e-3
# Rounds of triangles.
_TRIANGLES = 2
# How far a hop turns, and the cosine above which two turns are the same.
_FAR, _SAME = 0.3, 0.9
# Rounds of assignments, at first and in the end, and what is not worth another one.
_SHORT, _LONG = (8, 1e-3), (30, 1e-6)


def turns(
    rng: np.random.Generator, clouds: Sequence[NDArray], still: Sequence[int] = ()
) -> dict[tuple[int, int], list[Turn]]:
    """Find how domains are turned against each other.

    `clouds`, sequence of (R, D): objects of every domain, centred and of one scale; `still`:
    domains that are not turned: there is nothing to find between two of these. Return for every
    pair of domains (i, j), i < j, costs and orthogonal matrices Q for which ``clouds[j] @ Q.T`` is
    like ``clouds[i]``, the best first.
    """
    clouds = [own[rng.permutation(len(own))[:_MANY]] for own in clouds]
    numbers = range(len(clouds))
    pairs = [pair for pair in combinations(numbers, 2) if not set(pair) <= set(still)]
    found = {(i, j): _hopped(rng, clouds[i], clouds[j]) for i, j in pairs}
    for _ in range(_TRIANGLES):
        for i, j in pairs:
            by_way = [
                first @ second
                for k in numbers
                if k not in (i, j)
                for _, first in _directed(found, i, k)
                for _, second in _directed(found, k, j)
            ]
            found[i, j] = _best(clouds[i], clouds[j], by_way, found[i, j])
    return found


def _directed(found, i: int, j: int) -> list[Turn]:
    """Return the turns between two domains in either order."""
    if i < j:
        return found.get((i, j), [])
    return [(cost, q.T) for cost, q in found.get((j, i), [])]


def _hopped(rng: np.random.Generator, x: NDArray, y: NDArray) -> list[Turn]:
    """Find the turns of one pair: starts by distances, and hops from the best."""
    found = _best(x, y, _by_distances(rng, x, y), [])
    vain = 0
    for _ in range(_ROUNDS):
        least, _ = found[0]
        hops = [_hop(rng, q) for _, q in found[:_HOPPED] for _ in range(_HOPS)]
        found = _best(x, y, hops, found)
        vain = vain + 1 if found[0][0] > least * (1.0 - _GAIN) else 0
        if vain == _VAIN:
            break
    return found


def _by_distances(rng: np.random.Generator, x: NDArray, y: NDArray) -> list[NDArray[np.float64]]:
    """Turn by objects that are matched by their distances to the others of their domain."""
    # Imported when a search needs it: it takes a second.
    from scipy.optimize import quadratic_assignment
    from scipy.spatial.distance import cdist

    n, found = min(_MATCHED, len(x), len(y)), []
    for _ in range(_STARTS):
        one, two = (own[rng.permutation(len(own))[:n]] for own in (x, y))
        options = {"maximize": True, "P0": "randomized", "rng": rng}
        matched = quadratic_assignment(
            *(cdist(own, own, "sqeuclidean") for own in (one, two)), method="faq", options=options
        )
        found.append(polar_factor(one.T @ two[matched.col_ind]))
    return found


def _hop(rng: np.random.Generator, q: NDArray) -> NDArray[np.float64]:
    """Reflect an axis of a turn, or turn it a little further in all planes."""
    d = len(q)
    if rng.random() < 0.5:
        hop = np.eye(d)
        hop[(axis := rng.integers(d)), axis] = -1.0
    else:
        away = _FAR * rng.standard_normal((d, d))
        hop = polar_factor(np.eye(d) + away - away.T)
    return hop @ q


def _best(x: NDArray, y: NDArray, starts: Sequence[NDArray], kept: list[Turn]) -> list[Turn]:
    """Go down from starts, with few objects, and from the best of these with more."""
    few = _down(x[:_FEW], y[:_FEW], starts, *_SHORT)
    down = _down(x, y, [q for _, q in _different(few)], *_LONG)
    return _different([*down, *kept])


def _different(found: Sequence[Turn]) -> list[Turn]:
    """Choose the best turns that differ, the best first."""
    chosen: list[Turn] = []
    for cost, q in sorted(found, key=lambda turn: turn[0]):
        if all(np.vdot(q, other) < _SAME * len(q) for _, other in chosen):
            chosen.append((cost, q))
        if len(chosen) == _KEPT:
            break
    return chosen


def _down(
    x: NDArray, y: NDArray, starts: Sequence[NDArray], n_rounds: int, least_gain: float
) -> list[Turn]:
    """Assign objects, and turn the second domain, in turn, as long as that brings them nearer."""
    if not starts:
        return []
    if len(x) > len(y):
        back = _down(y, x, [q.T for q in starts], n_rounds, least_gain)
        return [(cost, q.T) for cost, q in back]
    q = np.array(starts)
    least = np.full(len(q), np.inf)
    going, found = np.arange(len(q)), Assignments.of(len(q), len(x), len(y))
    for _ in range(n_rounds):
        before = found.columns.copy()
        assign_nearest(x, q[going] @ y.T, found)
        nearer = found.cost <= least[going] * (1.0 - least_gain)
        least[going[nearer]] = found.cost[nearer]
        # Who is assigned to the same ones again is turned by the same.
        nearer &= (found.columns != before).any(axis=1)
        going, found = going[nearer], found.chosen(nearer)
        if not len(going):
            break
        q[going] = polar_factor(x.T @ y[found.columns])
    return list(zip(least.tolist(), q, strict=True))
