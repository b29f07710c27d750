"""Assignments with the least sum of squared distances, against SciPy's."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from pm_match.numerics.assignments import Assignments, assign_nearest


@pytest.mark.parametrize(
    ("n", "r", "k"), [(1, 1, 1), (1, 4, 2), (4, 4, 2), (30, 41, 3), (41, 41, 5), (9, 9, 1)]
)
@pytest.mark.parametrize("tied", [False, True])
def test_least_from_any_prices(n, r, k, tied):
    rng = np.random.default_rng(0)
    found = Assignments.of(3, n, r)
    for _ in range(20):
        x, y = rng.normal(size=(n, k)), rng.normal(size=(3, k, r))
        if tied:
            # Whole numbers: many costs are equal, and many points the same.
            x, y = np.round(x), np.round(y)
        found.prices[:] = rng.normal(size=(3, r))
        # The second time from the prices of the first.
        for _ in range(2):
            assign_nearest(x, y, found)
            for s, columns in enumerate(found.columns):
                costs = cdist(x, y[s].T, "sqeuclidean")
                least = costs[linear_sum_assignment(costs)].mean()
                assert len(set(columns)) == n
                np.testing.assert_allclose(costs[np.arange(n), columns].mean(), least, atol=1e-9)
                np.testing.assert_allclose(found.cost[s], least, atol=1e-9)


def test_some_arrangements_go_on():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(3, 2, 6))
    found = Assignments.of(3, 6, 6)
    assign_nearest(x, y, found)
    chosen = found.chosen(np.array([True, False, True]))
    assert np.array_equal(chosen.columns, found.columns[[0, 2]])
    assign_nearest(x, y[[2, 0]], chosen)
    assert np.array_equal(chosen.columns, found.columns[[2, 0]])
    np.testing.assert_allclose(chosen.cost, found.cost[[2, 0]])
