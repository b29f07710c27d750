"""Levels of intervals, as ArviZ is set."""

import numpy as np
from numpy.typing import NDArray


def interval_levels(ci_prob: float | None) -> NDArray[np.float64]:
    """Levels of an equal-tailed interval; by default of the probability that ArviZ is set to.

    Raise `ValueError` if the probability is not between 0 and 1.
    """
    # ArviZ is slow to import.
    from arviz import rcParams

    prob = float(rcParams["stats.ci_prob"] if ci_prob is None else ci_prob)
    if not 0.0 < prob < 1.0:
        raise ValueError(f"ci_prob: expected a number between 0 and 1; found {prob:g}")
    return np.array([0.5 * (1.0 - prob), 0.5 * (1.0 + prob)])
