"""Slices leave the distributions alone that they are given."""

import numpy as np
import pytest
from scipy import stats

from pm_match.numerics.slices import draw_slices

SCALES = np.array([0.03, 1.0, 40.0])
LAWS = {"normal": stats.norm(0.0, SCALES), "exponential": stats.expon(0.0, SCALES)}


@pytest.mark.parametrize("law", ["normal", "exponential"])
@pytest.mark.parametrize("width", [0.1, 1.0, 100.0])
def test_slices_leave_a_law_alone(law, width):
    rng, own = np.random.default_rng(1), LAWS[law]
    n = 4000
    before = own.rvs((n, 3), random_state=rng)
    with np.errstate(divide="ignore"):
        after = [draw_slices(rng, x, np.full(3, width), own.logpdf) for x in before]
    for column, scale in enumerate(SCALES):
        values = np.array(after)[:, column]
        one = (stats.norm if law == "normal" else stats.expon)(0.0, scale)
        assert stats.kstest(values, one.cdf).pvalue > 1e-3
        # They move, by about as much as there is to move by.
        moved = np.mean(abs(values - before[:, column])) / scale
        assert moved > 0.5 * min(width / scale, 1.0)


def test_what_rejects_everything_stays():
    start = np.array([1.0, 2.0])
    found = draw_slices(
        np.random.default_rng(0), start, np.ones(2), lambda x: np.where(x == start, 0.0, np.nan)
    )
    np.testing.assert_array_equal(found, start)
