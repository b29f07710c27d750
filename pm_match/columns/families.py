"""The families: which distribution a column has, and its sufficient statistics.

A *cell* is one draw from a family: a number, or a row of counts. The parameters of a family are
entries of variables with a conjugate prior, which its object's cluster chooses; what else it has is
known: the number of trials, the exposure, the precision.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from pm_match.clusters.conjugate import (
    GAMMA,
    BetaPrior,
    Conjugate,
    DirichletPrior,
    GammaPrior,
    NormalGammaPrior,
    NormalPrior,
)
from pm_match.prediction.mixture import draw_categories

Array = NDArray[np.float64]
# Which cell, which category (0 without any), and the numbers (E, 2) that the term is given.
Statistics = tuple[NDArray[np.int64], NDArray[np.int64], Array]
_LOG_2PI = np.log(2.0 * np.pi)


@dataclass(frozen=True)
class Family:
    """A distribution of cells whose parameters have a conjugate prior."""

    name: str  # of PyMC's distribution
    prior: Conjugate
    # from the distribution's parameters, as PyTensor has them, to those that have the prior, one
    # array each, and what is known besides: 1 if nothing is
    read: Callable[..., tuple[list[Array], Array]]
    expects: str  # in words, which values there are
    # from values and what is known to whether there are such values
    supports: Callable[[Array, Array], NDArray[np.bool_]]
    # from values and what is known to `Statistics`; categories that a cell has nothing of may be
    # left out
    statistics: Callable[[Array, Array], Statistics]
    # From values, parameters and what is known to log densities, by the plain formula. SciPy has
    # them too, but takes long to import.
    log_law: Callable[[Array, list[Array], Array], Array]
    # log density without what the statistics and the parameters say
    log_base: Callable[[Array, Array], Array]
    # from parameters and what is known to the distribution of a cell: SciPy's, and its arguments
    law: Callable[[list[Array], Array], tuple[Any, ...]]
    scaled: bool = False  # whether what is known multiplies the parameter

    @property
    def rows(self) -> bool:
        """Whether a cell is a row of counts."""
        return self.name == "Multinomial"

    @property
    def categories(self) -> bool:
        """Whether a cell is a category."""
        return self.name == "Categorical"

    def coarsened(self, values: Array, known: Array, power: float) -> tuple[Statistics, float]:
        """Statistics, and what only the data enter, of densities that count to a power."""
        cell, category, found = self.statistics(values, known)
        # Of a weight and a mean, the weight.
        found = found * (power if self.prior.code <= GAMMA else [power, 1.0])
        return (cell, category, found), power * float(np.sum(self.log_base(values, known)))

    def log_density(self, values: Array, parameters: list[Array], known: Array) -> Array:
        """Log density of every cell, by the plain formula."""
        fits = self.supports(values, known)
        with np.errstate(all="ignore"):
            found = self.log_law(values, parameters, known)
        return np.where(fits.all(axis=1) if self.rows else fits, found, -np.inf)

    def draw(self, rng: np.random.Generator, parameters: list[Array], known: Array) -> Array:
        """Draw every cell."""
        law, *given = self.law(parameters, known)
        # SciPy makes a number of one value.
        return np.atleast_1d(law.rvs(*given, random_state=rng))


def _whole(x, least=0.0):
    return (x >= least) & (x == np.floor(x))


def _pair(x, one, other) -> Statistics:
    """Take two numbers of every cell."""
    both = np.empty((len(x), 2))
    both[:, 0], both[:, 1] = one, other
    return np.arange(len(x)), np.zeros(len(x), np.int64), both


def _successes(successes, failures) -> Statistics:
    """Take successes, category 0, and failures, category 1."""
    return _counted(np.stack(np.broadcast_arrays(successes, failures), axis=1))


def _counted(x) -> Statistics:
    """Take counts (C, K) of categories."""
    cell, category = np.nonzero(x)
    found = x[cell, category]
    return cell, category, np.stack([found, np.zeros(len(found))], axis=1)


def _category(x) -> Statistics:
    """Take one category a cell."""
    found = np.stack([np.ones(len(x)), np.zeros(len(x))], axis=1)
    return np.arange(len(x)), x.astype(np.int64), found


def _place(x, p):
    """Where the probability of every category is, in rows p (C, K)."""
    return np.clip(x.astype(np.int64), 0, p.shape[1] - 1)[:, None]


def _log_choose(n, k):
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def _log_power(p, successes, failures):
    """Log probability of some successes and failures, in one order."""
    return xlogy(successes, p) + xlog1py(failures, -p)


class _Categories:
    """Categories with probabilities p (C, K), in the form of SciPy's distributions."""

    @staticmethod
    def rvs(p, random_state):
        return draw_categories(random_state, p)


class _Bags:
    """Rows of counts with totals n (C,) and probabilities p (C, K)."""

    @staticmethod
    def rvs(n, p, random_state):
        return random_state.multinomial(n.astype(np.int64), p)


_ONE = np.ones(())
_NORMAL_BASE = {
    NormalPrior: lambda x, k: 0.5 * (np.log(k) - _LOG_2PI) + np.zeros(np.shape(x)),
    NormalGammaPrior: lambda x, k: np.full(np.shape(x), -0.5 * _LOG_2PI),
}


def _normal(name, prior, known) -> Family:
    """Make one of the four normal families, of values or of their logs."""
    log = name == "LogNormal"
    of = np.log if log else np.asarray

    def law(parameters, k):
        mean, sd = parameters[0], (k if known else parameters[1]) ** -0.5
        return (scipy.stats.lognorm, sd, 0.0, np.exp(mean)) if log else (scipy.stats.norm, mean, sd)

    def log_law(x, parameters, k):
        tau = k if known else parameters[1]
        found = 0.5 * (np.log(tau) - _LOG_2PI - tau * (of(x) - parameters[0]) ** 2)
        return found - np.log(x) if log else found

    return Family(
        name,
        prior,
        (lambda m, s: ([m], s**-2.0)) if known else (lambda m, s: ([m, s**-2.0], _ONE)),
        "a positive number" if log else "a number",
        (lambda x, k: x > 0.0) if log else (lambda x, k: np.isfinite(x)),
        lambda x, k: _pair(x, k, of(x)),
        log_law,
        lambda x, k: _NORMAL_BASE[type(prior)](of(x), k) - (np.log(x) if log else 0.0),
        law,
    )


_BETA, _GAMMA, _DIRICHLET = BetaPrior(), GammaPrior(), DirichletPrior()

FAMILIES = (
    Family(
        "Poisson",
        _GAMMA,
        lambda mu: ([mu], _ONE),
        "a whole number, 0 or more",
        lambda x, e: _whole(x) & ((e > 0.0) | (x == 0.0)),
        lambda x, e: _pair(x, x, e),
        lambda x, p, e: xlogy(x, p[0] * e) - p[0] * e - gammaln(x + 1.0),
        lambda x, e: xlogy(x, e) - gammaln(x + 1.0),
        lambda p, e: (scipy.stats.poisson, p[0] * e),
        scaled=True,
    ),
    Family(
        "Exponential",
        _GAMMA,
        lambda scale: ([1.0 / scale], _ONE),
        "a number, 0 or more",
        lambda x, e: x >= 0.0,
        lambda x, e: _pair(x, 1.0, x * e),
        lambda x, p, e: np.log(p[0] * e) - p[0] * e * x,
        lambda x, e: np.broadcast_to(np.log(e), x.shape),
        lambda p, e: (scipy.stats.expon, 0.0, 1.0 / (p[0] * e)),
        scaled=True,
    ),
    Family(
        "Bernoulli",
        _BETA,
        lambda p: ([p], _ONE),
        "0 or 1",
        lambda x, n: (x == 0.0) | (x == 1.0),
        lambda x, n: _successes(x, 1.0 - x),
        lambda x, p, n: _log_power(p[0], x, 1.0 - x),
        lambda x, n: np.zeros(x.shape),
        lambda p, n: (scipy.stats.bernoulli, p[0]),
    ),
    Family(
        "Binomial",
        _BETA,
        lambda n, p: ([p], n),
        "a whole number from 0 to the number of trials",
        lambda x, n: _whole(x) & (x <= n) & _whole(n),
        lambda x, n: _successes(x, n - x),
        lambda x, p, n: _log_choose(n, x) + _log_power(p[0], x, n - x),
        lambda x, n: _log_choose(n, x),
        lambda p, n: (scipy.stats.binom, n, p[0]),
    ),
    Family(
        "Geometric",
        _BETA,
        lambda p: ([p], _ONE),
        "a whole number, 1 or more",
        lambda x, n: _whole(x, 1.0),
        lambda x, n: _successes(1.0, x - 1.0),
        lambda x, p, n: _log_power(p[0], 1.0, x - 1.0),
        lambda x, n: np.zeros(x.shape),
        lambda p, n: (scipy.stats.geom, p[0]),
    ),
    Family(
        "NegativeBinomial",
        _BETA,
        lambda n, p: ([p], n),
        "a whole number, 0 or more",
        lambda x, n: _whole(x) & (n > 0.0),
        lambda x, n: _successes(n, x),
        lambda x, p, n: _log_choose(x + n - 1.0, x) + _log_power(p[0], n, x),
        lambda x, n: gammaln(x + n) - gammaln(n) - gammaln(x + 1.0),
        lambda p, n: (scipy.stats.nbinom, n, p[0]),
    ),
    Family(
        "Categorical",
        _DIRICHLET,
        lambda p: ([p], np.array(float(p.shape[-1]))),
        "a category, a whole number from 0 to one less than their number",
        lambda x, k: _whole(x) & (x < k),
        lambda x, k: _category(x),
        lambda x, p, k: np.log(np.take_along_axis(p[0], _place(x, p[0]), 1)[:, 0]),
        lambda x, k: np.zeros(x.shape),
        lambda p, k: (_Categories, p[0]),
    ),
    Family(
        "Multinomial",
        _DIRICHLET,
        lambda n, p: ([p], n),
        "whole numbers, 0 or more, that add up to the number of trials",
        lambda x, n: _whole(x) & (x.sum(axis=1) == n)[:, None],
        lambda x, n: _counted(x),
        lambda x, p, n: gammaln(n + 1.0) + (xlogy(x, p[0]) - gammaln(x + 1.0)).sum(axis=1),
        lambda x, n: gammaln(n + 1.0) - gammaln(x + 1.0).sum(axis=1),
        lambda p, n: (_Bags, n, p[0]),
    ),
    _normal("Normal", NormalPrior(), known=True),
    _normal("Normal", NormalGammaPrior(), known=False),
    _normal("LogNormal", NormalPrior(), known=True),
    _normal("LogNormal", NormalGammaPrior(), known=False),
)
