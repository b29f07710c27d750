"""Slice sampling (Neal 2003) of a number, and of a vector with a normal prior (Murray 2010)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# The first interval of a slice, on the scale that is sampled: for most, logs.
_WIDTH = 1.0
_MOST_STEPS = 100
_LEAST_ANGLE = 1e-12


def draw_slice(
    rng: np.random.Generator, start: float, log_density: Callable[[float], float]
) -> float:
    """Draw a number by one slice, stepping out and shrinking.

    `log_density` is called at the number returned last, so that what it leaves behind is of that.
    """
    level = log_density(start) - rng.standard_exponential()
    left = start - _WIDTH * rng.random()
    right = left + _WIDTH
    # At most so many steps in all, shared between the two sides at random.
    n_left = int(rng.integers(_MOST_STEPS))
    n_right = _MOST_STEPS - 1 - n_left
    while n_left > 0 and log_density(left) > level:
        left -= _WIDTH
        n_left -= 1
    while n_right > 0 and log_density(right) > level:
        right += _WIDTH
        n_right -= 1
    while True:
        x = left + (right - left) * rng.random()
        if log_density(x) > level:
            return x
        if x < start:
            left = x
        else:
            right = x
        if right - left <= 1e-14 * (1.0 + abs(start)):
            log_density(start)
            return start


def draw_elliptical_slice(
    rng: np.random.Generator,
    start: NDArray,
    mean: NDArray,
    deviation: NDArray,
    log_likelihood: Callable[[NDArray], float],
) -> NDArray[np.float64]:
    """Draw a vector of any shape whose prior is independent normal, by one elliptical slice.

    I. Murray, R. Adams & D. MacKay (2010), "Elliptical slice sampling", AISTATS. The likelihood is
    asked for last at the vector returned.
    """
    centred = start - mean
    other = deviation * rng.standard_normal(start.shape)
    level = log_likelihood(start) - rng.standard_exponential()
    angle = 2.0 * np.pi * rng.random()
    low, high = angle - 2.0 * np.pi, angle
    while True:
        x = mean + centred * np.cos(angle) + other * np.sin(angle)
        if log_likelihood(x) > level:
            return x
        if angle < 0.0:
            low = angle
        else:
            high = angle
        if high - low < _LEAST_ANGLE:
            log_likelihood(start)
            return start
        angle = low + (high - low) * rng.random()
