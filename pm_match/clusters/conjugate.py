"""The four conjugate priors by plain formulas: log marginal likelihoods, densities and draws.

What is here adds up sufficient statistics and nothing else, slowly: the tests hold the terms
against it. *Hyper* is what the prior of every column is, (M, h), or (M, K) for Dirichlet priors;
*statistics* (..., M, k) add up over cells. Parameters are *drawn*, read and written with what is
positive as its log, probabilities as their logs, and those of a Beta prior as log odds: themselves,
they may be too near 0 or 1 for a float.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, log_expit

from pm_match.clusters.points import MOST_EXACT_LOG_ODDS, Writer, from_log_odds
from pm_match.numerics.log_gamma import draw_log_gamma
from pm_match.reading import laws
from pm_match.reading.densities import log_gamma, log_normal
from pm_match.reading.evidence import Point

Arrays = Sequence[NDArray[np.float64]]
# What terms call the priors.
DIRICHLET, GAMMA, NORMAL, NORMAL_GAMMA = 0, 1, 2, 3


def _mean(total: NDArray, weight: NDArray) -> NDArray[np.float64]:
    """Divide, 0 where there is nothing."""
    return np.divide(total, weight, out=np.zeros_like(total), where=weight > 0.0)


def _all(*values: float) -> Callable[[tuple[int, ...]], list[NDArray]]:
    return lambda shape: [np.full(shape, value) for value in values]


def _write(writer: Writer, point: dict, name: str, value: NDArray) -> None:
    writer.write(point, {name: value})


def _random_simplex(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    found = rng.gamma(3.0, 1.0, shape) + 0.1
    return found / found.sum(axis=-1, keepdims=True)


def _two_simplices(shape: tuple[int, ...]) -> list[NDArray]:
    other = np.arange(1.0, shape[-1] + 1.0)
    return [np.full(shape, 1.0 / shape[-1]), np.broadcast_to(other / other.sum(), shape)]


def _far_simplices(shape: tuple[int, ...]) -> list[NDArray]:
    found = np.full((2, *shape), 1e-10)
    found[0, ..., 0] = found[1, ..., -1] = 1.0 - 1e-10 * (shape[-1] - 1)
    return [*found]


@dataclass(frozen=True, eq=False)
class Parameter:
    """What a conjugate prior is the law of."""

    law: laws.Law
    natural: Callable[[NDArray], NDArray]  # from what is drawn
    # from a point, and into a new one, what is drawn
    read: Callable[[Writer, Point, str], NDArray]
    write: Callable[[Writer, dict, str, NDArray], None]
    # what its readers look at: values with nothing special about them, two to be told apart, and
    # tiny and huge ones
    random: Callable[[np.random.Generator, tuple[int, ...]], NDArray]
    two: Callable[[tuple[int, ...]], list[NDArray]]
    far: Callable[[tuple[int, ...]], list[NDArray]]


RATE = Parameter(
    laws.GAMMA,
    np.exp,
    Writer.read_log,
    Writer.write_positive,
    lambda rng, shape: rng.gamma(3.0, 0.5, shape) + 0.1,
    _all(1.0, 2.0),
    _all(1e-8, 1e8),
)
PROBABILITY = Parameter(
    laws.BETA,
    lambda log_odds: from_log_odds(log_odds, False),
    Writer.read_log_odds,
    Writer.write_probability,
    lambda rng, shape: rng.beta(2.0, 2.0, shape) * 0.9 + 0.05,
    _all(0.25, 0.5),
    _all(1e-10, 1.0 - 1e-10),
)
PROBABILITIES = Parameter(
    laws.DIRICHLET,
    np.exp,
    Writer.read_log_simplex,
    Writer.write_simplex,
    _random_simplex,
    _two_simplices,
    _far_simplices,
)
MEAN = Parameter(
    laws.NORMAL,
    np.asarray,
    Writer.read,
    _write,
    lambda rng, shape: rng.normal(0.3, 1.0, shape),
    _all(1.0, 2.0),
    _all(-1e8, 1e8),
)


@dataclass(frozen=True)
class Conjugate:
    """A conjugate prior: the base of the four, and of what they say."""

    parameters: ClassVar[tuple[Parameter, ...]]
    code: int  # what the term calls it
    vector: bool = False  # whether the last axis of the parameter is that of categories

    # -- plain formulas ---------------------------------------------------------------------------

    def additive(self, values: NDArray) -> NDArray[np.float64]:
        """Turn what the term is given of cells (C, 3) into statistics that add up (C, k)."""
        raise NotImplementedError

    def update(self, hyper: NDArray, statistics: NDArray) -> NDArray[np.float64]:
        """Natural parameters (..., M, h) of the posterior."""
        raise NotImplementedError

    def log_normaliser(self, natural: NDArray) -> NDArray[np.float64]:
        """Log normaliser (..., M) of a prior with such natural parameters."""
        raise NotImplementedError

    def loadings(self, drawn: Arrays) -> NDArray[np.float64]:
        """Return what statistics that add up are multiplied by in the data's log density."""
        raise NotImplementedError

    # -- draws ------------------------------------------------------------------------------------

    def held(self, statistics: NDArray) -> NDArray[np.float64]:
        """Turn statistics that add up into what slots hold, as the term has it (T, M, k)."""
        return statistics

    def posterior(self, hyper: NDArray, held: NDArray) -> NDArray[np.float64]:
        """Update the prior by what slots hold, as the term has it (T, M, k)."""
        return self.update(hyper, held)

    def together(self, held: NDArray, more: NDArray) -> NDArray[np.float64]:
        """Add what one more unit holds to what slots do, both as the term has it (..., k)."""
        return held + more

    def log_density(self, posterior: NDArray, drawn: Arrays) -> float:
        """Log density of the parameters, each (T, M) or (T, M, K), by what `posterior` returns."""
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, posterior: NDArray) -> list[NDArray[np.float64]]:
        """Draw parameters."""
        raise NotImplementedError

    def natural(self, drawn: Arrays) -> list[NDArray[np.float64]]:
        """Return the parameters themselves."""
        return [own.natural(x) for own, x in zip(self.parameters, drawn, strict=True)]

    def read(self, writer: Writer, point: Point, names: Sequence[str]) -> list[NDArray[np.float64]]:
        """Read parameters, in the shapes of the variables."""
        read = [
            own.read(writer, point, name) for own, name in zip(self.parameters, names, strict=True)
        ]
        return [np.asarray(x, np.float64) for x in read]

    def write(self, writer: Writer, point: dict, names: Sequence[str], drawn: Arrays) -> None:
        """Write draws, in the shapes of the variables, into a new point."""
        for own, name, x in zip(self.parameters, names, drawn, strict=True):
            own.write(writer, point, name, x)


@dataclass(frozen=True)
class GammaPrior(Conjugate):
    """Gamma prior of a rate."""

    parameters = (RATE,)
    code: int = GAMMA

    def additive(self, values):
        """Return the number of events, and the exposure."""
        return values[:, :2]

    def update(self, hyper, statistics):
        """Shape and rate."""
        return hyper[:, :2] + statistics

    def log_normaliser(self, natural):
        """Of a Gamma density."""
        return gammaln(natural[..., 0]) - natural[..., 0] * np.log(natural[..., 1])

    def log_density(self, posterior, drawn):
        """Of Gamma variables."""
        return float(log_gamma(drawn[0], *np.moveaxis(posterior, -1, 0)).sum())

    def posterior(self, hyper, held):
        """Shape and rate."""
        return self.update(hyper, held[..., :2])

    def loadings(self, drawn):
        """Log rates, and rates."""
        return np.stack([drawn[0], -np.exp(drawn[0])], axis=-1)

    def draw(self, rng, posterior):
        """Draw log rates."""
        return [draw_log_gamma(rng, posterior[..., 0]) - np.log(posterior[..., 1])]


@dataclass(frozen=True)
class DirichletPrior(Conjugate):
    """Dirichlet prior of probabilities of categories."""

    parameters = (PROBABILITIES,)
    code: int = DIRICHLET
    vector: bool = True

    def update(self, hyper, statistics):
        """Add counts to concentrations."""
        return hyper + statistics

    def log_normaliser(self, natural):
        """Of a Dirichlet density."""
        return gammaln(natural).sum(axis=-1) - gammaln(natural.sum(axis=-1))

    def log_density(self, posterior, drawn):
        """Of Dirichlet variables."""
        logs = ((posterior - 1.0) * drawn[0]).sum(axis=-1)
        return float((logs - self.log_normaliser(posterior)).sum())

    def loadings(self, drawn):
        """Log probabilities."""
        return drawn[0]

    def draw(self, rng, posterior):
        """Draw log probabilities."""
        logs = draw_log_gamma(rng, posterior)
        top = logs.max(axis=-1, keepdims=True)
        return [logs - top - np.log(np.exp(logs - top).sum(axis=-1, keepdims=True))]


@dataclass(frozen=True)
class BetaPrior(DirichletPrior):
    """Beta prior of a probability: a Dirichlet of success and failure."""

    parameters = (PROBABILITY,)
    vector: bool = False

    def log_density(self, posterior, drawn):
        """Of Beta variables; NaN where PyMC's density of a probability does not keep them."""
        kept = np.where(drawn[0] > MOST_EXACT_LOG_ODDS, np.nan, drawn[0])
        return super().log_density(posterior, [self.loadings([kept])])

    def loadings(self, drawn):
        """Log probabilities of success and failure."""
        return log_expit(np.stack([drawn[0], -drawn[0]], axis=-1))

    def draw(self, rng, posterior):
        """Draw log odds."""
        logs = draw_log_gamma(rng, posterior)
        return [logs[..., 0] - logs[..., 1]]


@dataclass(frozen=True)
class NormalPrior(Conjugate):
    """Normal prior of a mean; the precision of the data is known."""

    parameters: ClassVar[tuple[Parameter, ...]] = (MEAN,)
    code: int = NORMAL

    def additive(self, values):
        """Return precisions, and their products with the values."""
        w, x = values[:, 0], values[:, 1]
        return np.stack([w, w * x], axis=1)

    def update(self, hyper, statistics):
        """Precision, and its product with the mean."""
        m, k = hyper[:, 0], hyper[:, 1]
        return np.stack([k, k * m], axis=-1) + statistics

    def log_normaliser(self, natural):
        """Of a normal density, up to its power of 2 pi."""
        precision, linear = natural[..., 0], natural[..., 1]
        return 0.5 * linear**2 / precision - 0.5 * np.log(precision)

    def log_density(self, posterior, drawn):
        """Of normal variables."""
        return float(log_normal(drawn[0], *np.moveaxis(posterior, -1, 0)).sum())

    def together(self, held, more):
        """Weights, means and scatters."""
        (w, mean, scatter), (more_w, more_mean, more_scatter) = (
            np.moveaxis(part, -1, 0) for part in (held, more)
        )
        total, away = w + more_w, more_mean - mean
        share = np.divide(more_w, total, out=np.zeros_like(total), where=total > 0.0)
        scatter = scatter + more_scatter + share * w * away**2
        return np.stack([total, mean + share * away, scatter], axis=-1)

    def posterior(self, hyper, held):
        """Mean and precision, from weights, means and scatters."""
        m, k = hyper[:, 0], hyper[:, 1]
        strength = k + held[..., 0]
        mean = m + held[..., 0] / strength * (held[..., 1] - m)
        return np.stack([mean, strength], axis=-1)

    def loadings(self, drawn):
        """Halves of squares, and means."""
        return np.stack([-0.5 * drawn[0] ** 2, drawn[0]], axis=-1)

    def held(self, statistics):
        """Precisions, and means."""
        weight, total = statistics[..., 0], statistics[..., 1]
        return np.stack([weight, _mean(total, weight)], axis=-1)

    def draw(self, rng, posterior):
        """Draw means."""
        mean, precision = posterior[..., 0], posterior[..., 1]
        return [mean + rng.standard_normal(mean.shape) / np.sqrt(precision)]


@dataclass(frozen=True)
class NormalGammaPrior(NormalPrior):
    """Normal-Gamma prior of a mean and a precision."""

    parameters = MEAN, RATE
    code: int = NORMAL_GAMMA

    def additive(self, values):
        """Return numbers, sums, and what halves and half squares add up to."""
        w, x = values[:, 0], values[:, 1]
        return np.stack([w, w * x, 0.5 * w, 0.5 * w * x**2], axis=1)

    def update(self, hyper, statistics):
        """k, k m, a, and b + k m^2 / 2."""
        m, k, a, b = hyper.T
        return np.stack([k, k * m, a, b + 0.5 * k * m**2], axis=-1) + statistics

    def log_normaliser(self, natural):
        """Of a normal-Gamma density, up to its power of 2 pi."""
        k, linear, a, b = np.moveaxis(natural, -1, 0)
        return gammaln(a) - a * np.log(b - 0.5 * linear**2 / k) - 0.5 * np.log(k)

    def log_density(self, posterior, drawn):
        """Of means and precisions."""
        (m, k, a, b), (mean, log_tau) = np.moveaxis(posterior, -1, 0), drawn
        return float((log_gamma(log_tau, a, b) + log_normal(mean, m, k * np.exp(log_tau))).sum())

    def posterior(self, hyper, held):
        """m, k, a and b, from numbers, means and scatters."""
        (m, k, a, b), n = hyper.T, held[..., 0]
        away = held[..., 1] - m
        rate = b + 0.5 * held[..., 2] + 0.5 * k * n / (k + n) * away**2
        return np.stack([m + n / (k + n) * away, k + n, a + 0.5 * n, rate], axis=-1)

    def loadings(self, drawn):
        """Means and precisions as they enter."""
        mean, log_tau = drawn
        tau = np.exp(log_tau)
        return np.stack([-0.5 * tau * mean**2, tau * mean, log_tau, -tau], axis=-1)

    def held(self, statistics):
        """Numbers, means and scatters."""
        n, total, squares = statistics[..., 0], statistics[..., 1], 2.0 * statistics[..., 3]
        mean = _mean(total, n)
        return np.stack([n, mean, np.maximum(squares - n * mean**2, 0.0)], axis=-1)

    def draw(self, rng, posterior):
        """Draw means, and log precisions."""
        mean, k, a, b = np.moveaxis(posterior, -1, 0)
        log_precision = draw_log_gamma(rng, a) - np.log(b)
        noise = rng.standard_normal(mean.shape)
        with np.errstate(over="ignore"):
            return [mean + noise * np.exp(-0.5 * log_precision) / np.sqrt(k), log_precision]
