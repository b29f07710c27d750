"""Matchings proposed from cluster means alone: their inner products, then linear maps.

A domain's cluster means are W_d z_j, and W_d is nearly an isometry if there are many features: the
inner products of the means are then those of the z_j, whatever W_d is. That is a quadratic
assignment, solved approximately from several starts; each solution is refined by alternating the
linear map between the two sets of means with the best assignment under it.
"""

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_match.features.projection_fit import Groups

_STARTS = 10
_MOST_ALTERNATIONS = 20


def propose(
    rng: np.random.Generator, groups: Groups, fixed: NDArray, moved: NDArray
) -> list[NDArray[np.int64]]:
    """Propose matchings of some groups' labels to the others' labels.

    `fixed`, `moved` (G,): two numberings 0 ... n - 1 of labels, -1 for groups that are not on that
    side. Return list of (n,): for every label of the moved side, the one on the fixed side.
    """
    n = int(max(fixed.max(), moved.max())) + 1
    left, right = _means(groups, fixed, n), _means(groups, moved, n)
    n_factors = min(groups.table.w.shape[1], n)
    left, right = _components(left, n_factors), _components(right, n_factors)
    one, two = left @ left.T, right @ right.T
    found: dict[bytes, NDArray] = {}
    for number in range(_STARTS):
        options = {"rng": rng, "P0": "randomized" if number else "barycenter", "maximize": True}
        # Row i of the fixed side goes with row order[i] of the moved one.
        order = scipy.optimize.quadratic_assignment(one, two, options=options).col_ind
        for _ in range(_MOST_ALTERNATIONS):
            linear = np.linalg.lstsq(left, right[order], rcond=None)[0]
            distance = ((left @ linear)[:, None] - right[None]) ** 2
            new = scipy.optimize.linear_sum_assignment(distance.sum(axis=2))[1]
            if np.array_equal(new, order):
                break
            order = new
        target = np.argsort(order)
        found[target.tobytes()] = target
    return list(found.values())


def _means(groups: Groups, label: NDArray, n: int) -> NDArray[np.float64]:
    """Mean of every label's groups in every row, 0 where nothing is observed."""
    member = (label == np.arange(n)[:, None]).astype(float)
    counts = np.repeat(member @ groups.counts, np.diff(groups.table.first), axis=1)
    return (member @ groups.sums) / np.maximum(counts, 1.0)


def _components(means: NDArray, n_factors: int) -> NDArray[np.float64]:
    """Leading principal components (n, K), without an origin: the model has none."""
    u, s, _ = np.linalg.svd(means, full_matrices=False)
    found = np.zeros((len(means), n_factors))
    found[:, : len(s)] = (u * s)[:, :n_factors]
    return found / max(np.linalg.norm(found), 1e-300)
