"""Slices leave the distributions alone that they are given."""

import numpy as np
import pytest
from scipy import stats

from pm_match.numerics.slices import draw_slices

N = 4000
# One number after the other is of another scale.
SCALES = np.tile([0.03, 1.0, 40.0], N)
LAWS = {"normal": stats.norm(), "exponential": stats.expon()}


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("width", [0.1, 1.0, 100.0])
def test_slices_leave_a_law_alone(law, width):
    rng, own = np.random.default_rng(1), LAWS[law]
    before = own.rvs(len(SCALES), random_state=rng)

    def log_density(x):
        return own.logpdf(x / SCALES)

    after = draw_slices(rng, SCALES * before, np.full(len(SCALES), width), log_density) / SCALES
    for scale in SCALES[:3]:
        chosen = scale == SCALES
        assert stats.kstest(after[chosen], own.cdf).pvalue > 1e-3
        # They move, by about as much as there is to move by.
        moved = np.mean(abs(after - before)[chosen])
        assert moved > 0.5 * min(width / scale, 1.0)


def test_what_rejects_everything_stays():
    start = np.array([1.0, 2.0])
    found = draw_slices(
        np.random.default_rng(0), start, np.ones(2), lambda x: np.where(x == start, 0.0, np.nan)
    )
    np.testing.assert_array_equal(found, start)
