"""The objective of projections, as other optimisers want it."""

import numpy as np
from numba import njit

from pm_match.features.projection import fill_gradient


@njit
def _fill(table, n, free, gradient):
    return fill_gradient(table, n, free, gradient)


def value_and_gradient(objective):
    """L and its gradient (M, K) at `w`."""
    table = objective.table
    found = np.empty(table.w.shape)
    value = _fill(table, len(table.sorted), objective.n_factors, found)
    return value, found[:, : objective.n_factors]


def depth(objective):
    """-L and its gradient as a function of all numbers of W, in the form of SciPy's optimisers."""

    def function(flat):
        objective.w[:] = flat.reshape(objective.w.shape)
        value, gradient = value_and_gradient(objective)
        return -value, -gradient.ravel()

    return function
