r"""The conjugate prior of normal clusters by plain formulas: posterior, evidence and draws.

Precisions are the clusters' own, or one that they share (see `normal_wishart`, `shared_normal`).
"""

from math import log, pi
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import multigammaln

from pm_match.normal.normal_rows import NormalRows, NormalWishartPrior
from pm_match.numerics.ahead import Job
from pm_match.numerics.wishart import draw_wishart


class Posterior(NamedTuple):
    """What is known of the means and precisions of T clusters, given the vectors of each.

    P precisions: T, or 1 if the clusters share it.
    """

    prior: NormalWishartPrior
    shared: bool  # whether all clusters have one precision
    weights: NDArray[np.float64]  # (T,): of the vectors of every cluster
    means: NDArray[np.float64]  # (T, D): m_j
    # degrees, inverse_scales (P,), (P, D, D): of the Wishart conditionals
    degrees: NDArray[np.float64]
    inverse_scales: NDArray[np.float64]

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw means (T, D), and precisions (T, D, D), or (D, D) if it is shared."""
        precisions, roots = draw_wishart(rng, self.degrees, self.inverse_scales)
        # With precision R R', the noise R'^-1 e has covariance (R R')^-1.
        noise = rng.standard_normal(self.means.shape)[:, :, None]
        noise = np.linalg.solve(np.swapaxes(roots, 1, 2), noise)[:, :, 0]
        means = self.means + noise / np.sqrt(self.prior.strength + self.weights)[:, None]
        return means, precisions[0] if self.shared else precisions

    def log_density(self, mean: NDArray, precision: NDArray) -> float:
        """Log density of means and precisions, as `draw` gives them."""
        d, degrees = self.means.shape[1], self.degrees
        precisions = np.reshape(precision, self.inverse_scales.shape)
        logs = np.linalg.slogdet(precisions)[1]
        total = 0.5 * degrees * (np.linalg.slogdet(self.inverse_scales)[1] - d * log(2.0))
        total += 0.5 * (degrees - d - 1.0) * logs - multigammaln(0.5 * degrees, d)
        total -= 0.5 * np.einsum("pij,pji->p", self.inverse_scales, precisions)
        strength, away = self.prior.strength + self.weights, mean - self.means
        every = np.broadcast_to(precisions, (len(away), d, d))
        squares = strength * np.einsum("ti,tij,tj->t", away, every, away)
        means_own = 0.5 * (d * np.log(strength / (2.0 * pi)) + logs - squares)
        return float(total.sum() + means_own.sum())

    def means_out(self) -> NDArray[np.float64]:
        """Log factors (T,) of the evidence that are left of means when they are integrated out."""
        strength = self.prior.strength
        return 0.5 * self.means.shape[1] * np.log(strength / (strength + self.weights))

    def precisions_out(self) -> NDArray[np.float64]:
        """Log factors (P,) that are left of precisions, but for powers of pi."""
        d, before, degrees = self.means.shape[1], self.prior.degrees, self.degrees
        found = multigammaln(0.5 * degrees, d) - multigammaln(0.5 * before, d)
        found -= 0.5 * degrees * np.linalg.slogdet(self.inverse_scales)[1]
        return found + 0.5 * before * np.linalg.slogdet(self.prior.inverse_scale)[1]


def posterior(
    values: NDArray,
    labels: NDArray,
    n_clusters: int,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
    factors: NDArray | None = None,
) -> Posterior:
    """Update the prior by the vectors of every cluster.

    `values` (N, D); `labels` (N,): in 0 ... T - 1; `n_clusters`: T. What has no vector keeps the
    prior. `shared`: whether all clusters have one precision; `power`: of the vectors' densities:
    each vector is worth so much of one; `factors` (N,): of the precision of each, 1 by default.
    """
    counts = power * np.bincount(labels, minlength=n_clusters).astype(np.float64)
    each = np.full(len(values), power) if factors is None else power * factors
    weights = np.bincount(labels, each, n_clusters)
    averages = np.tile(prior.center, (n_clusters, 1))
    scatters = np.zeros((n_clusters, *prior.inverse_scale.shape))
    for j in np.flatnonzero(counts):
        inside, own = values[labels == j], each[labels == j, None]
        averages[j] = (own * inside).sum(axis=0) / weights[j]
        residual = inside - averages[j]
        scatters[j] = (own * residual).T @ residual
    return update(counts, averages, scatters, prior, shared, weights)


def update(
    counts: NDArray,
    averages: NDArray,
    scatters: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
    weights: NDArray | None = None,
) -> Posterior:
    """Update the prior as `posterior` does, by what the clusters' vectors add up to.

    `counts` (T,): how many vectors they are worth; `averages` (T, D): of the vectors of every
    cluster; of those without any, anything; `scatters` (T, D, D): about these; `weights` (T,): the
    `counts` by default.
    """
    weights = counts if weights is None else weights
    share = weights / (prior.strength + weights)
    shifts = averages - prior.center
    means = prior.center + share[:, None] * shifts
    outer = shifts[:, :, None] * shifts[:, None, :]
    scatter = scatters + (prior.strength * share)[:, None, None] * outer
    if shared:
        counts, scatter = counts.sum(keepdims=True), scatter.sum(axis=0, keepdims=True)
    found = weights, means, prior.degrees + counts, prior.inverse_scale + scatter
    return Posterior(prior, shared, *found)


def log_marginal(
    values: NDArray,
    labels: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
    factors: NDArray | None = None,
) -> float:
    """Log p(values | labels), means and precisions integrated out; arguments as of `posterior`."""
    values, labels = np.asarray(values, float), np.asarray(labels)
    n_clusters = int(labels.max(initial=-1)) + 1
    own = posterior(values, labels, n_clusters, prior, shared, power, factors)
    total = own.means_out().sum() + own.precisions_out().sum()
    return float(total + log_constant(values.shape, power, factors))


def log_constant(shape: tuple[int, ...], power: float, factors: NDArray | None) -> float:
    """Log of what the evidence of vectors has for a factor whatever their labels are.

    `shape`: (N, D); `power`, `factors` (N,): as of `posterior`.
    """
    n, d = shape
    logs = 0.0 if factors is None else float(np.log(factors).sum())
    return 0.5 * power * d * (logs - n * log(pi))


class NormalEvidence:
    """The data behind one term of normal clusters: the base of both kinds.

    `rows`: which vectors there are, and of which units; `power`: of the vectors' densities (see
    `coarsen`).
    """

    term: Any
    shared: bool

    def __init__(self, rows: NormalRows, truncation: int, power: float = 1.0):
        self.rows, self.truncation, self.power = rows, truncation, power

    def load(
        self,
        values: NDArray,
        slots: NDArray,
        prior: NormalWishartPrior,
        factors: NDArray | None = None,
        constant: float = 0.0,
    ) -> None:
        """Bring the term to a point.

        `values` (R, D): the vectors, in the order of `rows`; `slots` (U,): the slot of every unit;
        `factors` (R,): of the vectors' precisions, 1 by default; `constant`: is added to the log
        evidence.
        """
        self.values, self.prior, self.factors = values, prior, factors
        self.weights = np.full(len(values), self.power)
        if factors is not None:
            self.weights *= factors
        self.term.weight[:] = self.rows.sums(self.weights)
        self.term.value[:] = self.rows.means(values - prior.center, self.weights)
        self.fill(slots, constant + log_constant(values.shape, self.power, factors))

    def fill(self, slots: NDArray, constant: float) -> None:
        """Fill the rest of the term; `constant`: of the log evidence."""
        raise NotImplementedError

    def kernels(self, slots: NDArray) -> list[Job]:
        """List what `load` calls."""
        raise NotImplementedError

    def posterior(self, labels: NDArray) -> Posterior:
        """Update the prior, given the labels (N,) of all objects."""
        given = self.truncation, self.prior, self.shared, self.power, self.factors
        return posterior(self.values, labels[self.rows.object], *given)

    def log_marginal(self, labels: NDArray) -> float:
        """Log p(values | labels) for the labels (N,) of all objects, by the plain formula."""
        given = self.prior, self.shared, self.power, self.factors
        return log_marginal(self.values, labels[self.rows.object], *given)
