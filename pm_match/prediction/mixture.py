r"""Mixtures of distributions: what many draws and clusters say of a value together.

.. math:: F(y) = \sum_c w_c\, F_c(y)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

# Newton's steps converge in a handful; halvings of the bracket, where they fail, in so many.
_MOST_STEPS = 60
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
    """Normal distributions, faster than SciPy's."""

    def __init__(self, mean: NDArray, sd: NDArray):
        super().__init__(scipy.stats.norm, mean, sd)
        self._mean, self._sd = mean, sd

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

    `weight` (C,); `law`: the components; `levels` (Q,). Return (Q, M).
    """
    weight = weight / weight.sum()
    found = []
    for level in levels:
        # A mixture's quantile is between those of its components.
        ends = law.quantile(level)
        low, high = ends.min(axis=0), ends.max(axis=0)
        y, tolerance = 0.5 * (low + high), 1e-10 * (high - low)
        for _ in range(_MOST_STEPS):
            y = np.floor(y) if law.discrete else y
            excess = weight @ law.cdf(y) - level
            below = excess < 0.0
            low, high = np.where(below, y + law.discrete, low), np.where(below, high, y)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                newton = y - excess / (weight @ law.density(y)) if not law.discrete else y
            inside = (newton > low) & (newton < high)
            before, y = y, np.where(inside, newton, 0.5 * (low + high))
            if (law.discrete and (low >= high).all()) or (np.abs(y - before) <= tolerance).all():
                break
        found.append(high if law.discrete else y)
    return np.array(found)
