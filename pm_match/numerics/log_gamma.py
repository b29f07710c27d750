"""Log gamma functions and variates that keep their precision where numbers are large or tiny."""

from math import lgamma, log, log1p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import part


@part
def log_rising(x, h):
    """Log of the rising factorial, log gamma(x + h) - log gamma(x), however large x is."""
    if h == 0.0:
        return 0.0
    y = x + h
    if x < 16.0 or y < 16.0:
        return lgamma(y) - lgamma(x)
    return h * log(x) + (y - 0.5) * log1p(h / x) - h + _stirling(y) - _stirling(x)


@part
def _stirling(x):
    """Correction to Stirling's formula for log gamma, for x >= 16."""
    r = 1.0 / x
    t = r * r
    return r * (1.0 / 12.0 - t * (1.0 / 360.0 - t * (1.0 / 1260.0 - t / 1680.0)))


@part
def near_log_rising(x, log_x, h):
    """`log_rising` for x of some thousands at least, given its log; by a series for small h."""
    u = h / x
    if abs(u) > 0.02:
        return log_rising(x, h)
    y = x + h
    series = 1.0 / 7.0 - u / 8.0
    series = 1.0 / 6.0 - u * series
    series = 1.0 / 5.0 - u * series
    series = 1.0 / 4.0 - u * series
    series = 1.0 / 3.0 - u * series
    series = 1.0 / 2.0 - u * series
    log_ratio = u * (1.0 - u * series)
    return h * log_x + (y - 0.5) * log_ratio - h - h / (12.0 * x * y)


def draw_log_gamma(rng: np.random.Generator, shape: Any) -> NDArray[np.float64]:
    """Draw the log of Gamma(shape) variates, which themselves may be too small for a float."""
    shape = np.asarray(shape, np.float64)
    logs = np.log(rng.standard_gamma(shape + 1.0))
    return logs - rng.standard_exponential(shape.shape) / shape
