"""Slices leave the distributions alone that they are given."""

from math import log

import numpy as np
import pytest
from numba import njit
from scipy import stats

from pm_match.numerics.kernels import part
from pm_match.numerics.slices import draw_slice, draw_slices, slice_of

N = 4000
# One number after the other is of another scale.
SCALES = np.tile([0.03, 1.0, 40.0], N)
LAWS = {"normal": stats.norm(), "exponential": stats.expon()}


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize(("width", "tries"), [(0.1, 1), (1.0, 1), (1.0, 3), (100.0, 4)])
def test_slices_leave_a_law_alone(law, width, tries):
    rng, own = np.random.default_rng(1), LAWS[law]
    before = own.rvs(len(SCALES), random_state=rng)

    def log_density(x, wanted):
        # What is not asked for is anything.
        return np.where(wanted, own.logpdf(x / SCALES), 0.0)

    widths = np.full(len(SCALES), width)
    after, held = draw_slices(rng, SCALES * before, widths, log_density, tries)
    after = after / SCALES
    np.testing.assert_array_equal(held, own.logpdf(after))
    for scale in SCALES[:3]:
        chosen = scale == SCALES
        assert stats.kstest(after[chosen], own.cdf).pvalue > 1e-3
        # They move, by about as much as there is to move by.
        moved = np.mean(abs(after - before)[chosen])
        assert moved > 0.5 * min(width / scale, 1.0)


def test_what_rejects_everything_stays():
    start = np.array([1.0, 2.0])
    found, _ = draw_slices(
        np.random.default_rng(0), start, np.ones(2), lambda x, _: np.where(x == start, 0.0, np.nan)
    )
    np.testing.assert_array_equal(found, start)


@part
def log_gamma_density(x, shape, left):
    """Of a Gamma variable; `left` (1,) is where it was asked for last."""
    left[0] = x
    return (shape - 1.0) * log(x) - x if x > 0.0 else -np.inf


@njit
def draw_each(rng, values, shape, width, most_steps, left):
    there = True
    for i in range(values.shape[0]):
        given = shape, left
        values[i] = slice_of(rng, log_gamma_density, given, values[i], width, most_steps)
        there = there and left[0] == values[i]
    return there


def check_slices(draw, distance):
    """Draw each of many numbers once: their law stays, and they move so far in the mean."""
    rng, law = np.random.default_rng(2), stats.gamma(2.5)
    before = law.rvs(N, random_state=rng)
    after = before.copy()
    draw(rng, after)
    assert stats.kstest(after, law.cdf).pvalue > 1e-3
    assert np.mean(abs(after - before)) > distance


@pytest.mark.parametrize(("width", "most_steps"), [(0.3, 1), (0.3, 20), (30.0, 20)])
def test_one_slice_leaves_a_law_alone(width, most_steps):
    def draw(rng, values):
        assert draw_each(rng, values, 2.5, width, most_steps, np.zeros(1))

    check_slices(draw, 0.1 * min(width, 1.0))


def test_one_slice_in_python_leaves_a_law_alone():
    def draw(rng, values):
        for i, x in enumerate(values):
            values[i] = draw_slice(rng, x, lambda y: 1.5 * log(y) - y if y > 0.0 else -np.inf)

    check_slices(draw, 0.1)
