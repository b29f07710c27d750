r"""Mixtures of normal distributions: what many draws and clusters say of a value together.

.. math:: F(y) = \sum_c w_c\, \Phi\!\left(\frac{y - \mu_c}{\sigma_c}\right)
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

# Newton's steps converge in a handful; halvings of the bracket, where they fail, in so many.
_MOST_STEPS = 60


def mixture_mean(weight: NDArray, mean: NDArray) -> NDArray[np.float64]:
    """Mean (M,) of mixtures with weights (C,) and means (C, M)."""
    return (weight / weight.sum()) @ mean


def mixture_quantiles(
    weight: NDArray, mean: NDArray, sd: NDArray, levels: NDArray
) -> NDArray[np.float64]:
    """Quantiles of M mixtures, by safeguarded Newton steps on their distribution function.

    Parameters
    ----------
    weight : (C,) array
    mean, sd : (C, M) array
    levels : (Q,) array

    Returns
    -------
    (Q, M) array
    """
    weight = weight / weight.sum()
    found = np.empty((len(levels), mean.shape[1]))
    reach = 9.0 * sd
    for place, level in enumerate(levels):
        low, high = (mean - reach).min(axis=0), (mean + reach).max(axis=0)
        y = weight @ mean
        tolerance = 1e-10 * (high - low)
        for _ in range(_MOST_STEPS):
            z = (y - mean) / sd
            excess = weight @ ndtr(z) - level
            slope = weight @ (np.exp(-0.5 * z * z) / sd) / np.sqrt(2.0 * np.pi)
            low, high = np.where(excess < 0.0, y, low), np.where(excess < 0.0, high, y)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                newton = y - excess / slope
            inside = (newton >= low) & (newton <= high)
            step = np.where(inside, newton, 0.5 * (low + high)) - y
            y = y + step
            if (np.abs(step) <= tolerance).all():
                break
        found[place] = y
    return found
