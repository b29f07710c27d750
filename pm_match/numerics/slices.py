"""Slice sampling (Neal 2003) of numbers, and of a vector with a normal prior (Murray 2010)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import template

# The first interval of a slice, on the scale that is sampled: for most, logs.
_WIDTH = 1.0
_MOST_STEPS = 100
_LEAST_ANGLE = 1e-12


@template
def slice_of(rng, log_density, given, start, width, most_steps):
    """Draw a number by one slice, stepping out by at most so many steps in all, and shrinking.

    `log_density`: of a number, and of what is `given`, up to a constant. It is called at the number
    returned last, so that what it leaves behind is of that. `start`, `width`: where the number is,
    and the first interval.
    """
    level = log_density(start, *given) + np.log(rng.random())
    left = start - width * rng.random()
    right = left + width
    # Shared between the two sides at random.
    n_left = int(most_steps * rng.random())
    n_right = most_steps - 1 - n_left
    while n_left > 0 and log_density(left, *given) > level:
        left -= width
        n_left -= 1
    while n_right > 0 and log_density(right, *given) > level:
        right += width
        n_right -= 1
    found = start
    while right - left > 1e-14 * (1.0 + abs(start)):
        x = left + (right - left) * rng.random()
        if log_density(x, *given) > level:
            found = x
            break
        if x < start:
            left = x
        else:
            right = x
    else:
        # Only a density that is not a number rejects everything.
        log_density(start, *given)
    return found


def draw_slice(
    rng: np.random.Generator, start: float, log_density: Callable[[float], float]
) -> float:
    """Draw a number by one slice of a log density that is not compiled (see `slice_of`)."""
    return slice_of.py_func(rng, log_density, (), start, _WIDTH, _MOST_STEPS)


def draw_slices(
    rng: np.random.Generator,
    start: NDArray[np.float64],
    width: NDArray[np.float64],
    log_density: Callable[[NDArray[np.float64], NDArray[np.bool_]], NDArray[np.float64]],
    tries: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw independent numbers (n,) by one slice each, stepping out and shrinking side by side.

    Return them, and their log densities (n,) as they were when each was accepted.

    `start`, `width` (n,): where they are, and their first intervals; `log_density`: from some
    values of all numbers (m, n) to the log density of each, where it is asked for: the second
    argument (m, n) says where. `tries`: values that are asked for at once when shrinking. Each is
    drawn as if those before it had been rejected, so that the law is the same for any number of
    them.
    """
    n = len(start)
    drop = rng.standard_exponential(n)
    left = start - width * rng.random(n)
    ends, steps = np.stack([left, left + width]), np.stack([-width, width])
    n_left = rng.integers(_MOST_STEPS, size=n)
    n_steps = np.stack([n_left, _MOST_STEPS - 1 - n_left])
    inside = n_steps > 0
    found, at = (
        start.copy(),
        log_density(
            np.concatenate([start[None], ends]), np.concatenate([np.ones((1, n), bool), inside])
        ),
    )
    held, level, at = at[0].copy(), at[0] - drop, at[1:]
    while (inside := inside & (at > level)).any():
        ends += np.where(inside, steps, 0.0)
        n_steps -= inside
        inside &= n_steps > 0
        if inside.any():
            at = log_density(ends, inside)
    left, right = ends
    left_over = np.ones(n, bool)
    while left_over.any():
        trials = np.empty((tries, n))
        for trial in trials:
            trial[:] = np.where(left_over, left + (right - left) * rng.random(n), found)
            np.copyto(left, trial, where=left_over & (trial < start))
            np.copyto(right, trial, where=left_over & (trial >= start))
        at = log_density(trials, np.broadcast_to(left_over, trials.shape))
        for trial, here in zip(trials, at, strict=True):
            accepted = left_over & (here > level)
            found[accepted], held[accepted] = trial[accepted], here[accepted]
            left_over &= ~accepted
        left_over &= right - left > 1e-14 * (1.0 + abs(start))
    return found, held


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
