r"""Mixtures of distributions: what many draws and clusters say of a value together.

.. math:: F(y) = \sum_c w_c\, F_c(y)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

# Newton's steps converge in a handful; halvings of the floats between two ends, where they fail,
# in no more than 64.
_MOST_STEPS = 200
# What a distribution function may be off by.
_NONE = 1e-11
# The least rate or probability: SciPy has no quantiles of some distributions with less, or takes
# hours for them.
LEAST = 1e-100
# What stands for infinite means and standard deviations.
_HUGE = 1e300
# How `summaries` of numbers and of categories are named, after the variable's name, and what they
# are of a value that is known: itself, if None.
NUMBERS: tuple[tuple[str, float | None], ...] = (("", None), ("_lower", None), ("_upper", None))
CATEGORIES: tuple[tuple[str, float | None], ...] = (("", None), ("_probability", 1.0))


class Law:
    """Distributions of M values in each of C components.

    Parameters
    ----------
    distribution : scipy.stats distribution
    given : (C, M) array
        Its arguments.
    median : bool
        Whether the median is told, and not the mean, as over draws it may be infinite.
    """

    def __init__(self, distribution: Any, *given: NDArray, median: bool = False):
        self._distribution, self._given, self._median = distribution, given, median
        self.discrete = isinstance(distribution, scipy.stats.rv_discrete)

    def mean(self) -> NDArray[np.float64]:
        """Return means (C, M)."""
        return self._distribution.mean(*self._given)

    def cdf(self, y: NDArray) -> NDArray[np.float64]:
        """Return distribution functions (C, M) at `y` (M,)."""
        return self._distribution.cdf(y, *self._given)

    def density(self, y: NDArray) -> NDArray[np.float64]:
        """Return densities (C, M) at `y` (M,) of what is not discrete."""
        return self._distribution.pdf(y, *self._given)

    def quantile(self, level: float) -> NDArray[np.float64]:
        """Return quantiles (C, M)."""
        return self._distribution.ppf(level, *self._given)

    def summaries(self, weight: NDArray, levels: NDArray) -> NDArray[np.float64]:
        """Return the mean, or median, and two quantiles (3, M) of mixtures with weights (C,)."""
        if self._median:
            return mixture_quantiles(weight, self, np.array([0.5, *levels]))
        mean, quantiles = mixture_mean(weight, self.mean()), mixture_quantiles(weight, self, levels)
        return np.concatenate([mean[None], quantiles])


class NormalLaw(Law):
    """Normal distributions, faster than SciPy's, with places and scales up to infinity."""

    def __init__(self, mean: NDArray, sd: NDArray, median: bool = False):
        self._mean, self._sd = np.clip(mean, -_HUGE, _HUGE), np.minimum(sd, _HUGE)
        super().__init__(scipy.stats.norm, self._mean, self._sd, median=median)

    @classmethod
    def of(cls, parameters: NDArray) -> NormalLaw:
        """Make those with means and standard deviations (C, M, 2)."""
        return cls(parameters[..., 0], parameters[..., 1])

    def mean(self) -> NDArray[np.float64]:
        """Return means (C, M)."""
        return self._mean

    def cdf(self, y: NDArray) -> NDArray[np.float64]:
        """Return distribution functions (C, M) at `y` (M,)."""
        return ndtr((y - self._mean) / self._sd)

    def density(self, y: NDArray) -> NDArray[np.float64]:
        """Return densities (C, M) at `y` (M,)."""
        z = (y - self._mean) / self._sd
        return np.exp(-0.5 * z * z) / (self._sd * np.sqrt(2.0 * np.pi))

    def quantile(self, level: float) -> NDArray[np.float64]:
        """Return quantiles (C, M)."""
        return self._mean + self._sd * ndtri(level)


class LogNormalLaw(NormalLaw):
    """What has normal logs, with means and standard deviations (C, M)."""

    def summaries(self, weight: NDArray, levels: NDArray) -> NDArray[np.float64]:
        """Return medians, as over draws of its precision the mean is infinite, and quantiles."""
        with np.errstate(over="ignore"):
            return np.exp(mixture_quantiles(weight, self, np.array([0.5, *levels])))


class CategoryLaw:
    """Probabilities (C, M, K) of categories."""

    def __init__(self, probabilities: NDArray):
        self._probabilities = probabilities

    def summaries(self, weight: NDArray, levels: NDArray) -> NDArray[np.float64]:
        """Return the most probable category, and its probability (2, M)."""
        p = np.tensordot(weight / weight.sum(), self._probabilities, 1)
        return np.stack([p.argmax(axis=-1), p.max(axis=-1)])


def draw_categories(rng: np.random.Generator, weights: NDArray) -> NDArray[np.int64]:
    """Draw one category for every row of weights (N, K), which need not sum to 1."""
    cumulative = np.cumsum(weights, axis=1)
    uniform = rng.random((len(weights), 1)) * cumulative[:, -1:]
    # By rounding, it may be all of the sum.
    return np.asarray((uniform >= cumulative[:, :-1]).sum(axis=1), np.int64)


def mixture_mean(weight: NDArray, mean: NDArray) -> NDArray[np.float64]:
    """Mean (M,) of mixtures with weights (C,) and means (C, M)."""
    return (weight / weight.sum()) @ mean


def mixture_quantiles(weight: NDArray, law: Law, levels: NDArray) -> NDArray[np.float64]:
    """Quantiles of M mixtures, by safeguarded Newton steps on their distribution function.

    `weight` (C,); `law`: the components, whose scales may differ by any factor; `levels` (Q,).
    Return (Q, M).
    """
    weight = weight / weight.sum()
    found = []
    for level in levels:
        # A mixture's quantile is between those of its components.
        ends = law.quantile(level)
        low, high = ends.min(axis=0), ends.max(axis=0)
        y, before = 0.5 * low + 0.5 * high, np.inf
        for step in range(_MOST_STEPS):
            y = np.floor(y) if law.discrete else y
            excess = weight @ law.cdf(y) - level
            above = np.maximum(y + 1.0, np.nextafter(y, np.inf)) if law.discrete else y
            low, high = np.where(excess < 0.0, above, low), np.where(excess < 0.0, high, y)
            if ((low >= high) | (not law.discrete) & (np.abs(excess) <= _NONE)).all():
                break
            newton = y
            if not law.discrete:
                with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                    newton = y - excess / (weight @ law.density(y))
            halved = (newton > low) & (newton < high) & (np.abs(excess) <= 0.5 * before)
            middle = 0.5 * low + 0.5 * high if step % 2 else _middle(low, high)
            y, before = np.where(halved, newton, middle), np.abs(excess)
        found.append(high if law.discrete else y)
    return np.array(found)


def _middle(low: NDArray, high: NDArray) -> NDArray[np.float64]:
    """Return what has as many floats below it as above, of those between two."""
    bits = [np.asarray(end, np.float64).view(np.int64) for end in (low, high)]
    one, other = (np.where(b < 0, np.iinfo(np.int64).min - b, b) for b in bits)
    middle = one // 2 + other // 2 + (one % 2 + other % 2) // 2
    return np.where(middle < 0, np.iinfo(np.int64).min - middle, middle).view(np.float64)
