r"""The conjugate prior of normal clusters by plain formulas: posterior, evidence and draws.

Precisions are the clusters' own, or one that they share (see `normal_wishart`, `shared_normal`).
"""

from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import multigammaln

from pm_match.normal.normal_rows import NormalRows, NormalWishartPrior
from pm_match.numerics.ahead import Job
from pm_match.numerics.wishart import draw_wishart


def posterior(
    values: NDArray,
    labels: NDArray,
    n_clusters: int,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
    factors: NDArray | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Update the prior by the vectors of every cluster.

    `values` (N, D); `labels` (N,); `n_clusters`: T. What has no vector keeps the prior. `shared`:
    whether all clusters have one precision: P is 1 then, otherwise T. `power`: of the vectors'
    densities: each vector is worth so much of one; `factors` (N,): of the precision of each; all
    are 1 by default. Return `weights` (T,): of the vectors of every cluster; `means` (T, D): m_j;
    `degrees` (P,); `inverse_scales` (P, D, D): of the Wishart conditionals.
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
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
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
    own = counts
    if shared:
        own, scatter = counts.sum(keepdims=True), scatter.sum(axis=0, keepdims=True)
    return weights, means, prior.degrees + own, prior.inverse_scale + scatter


def log_marginal(
    values: NDArray,
    labels: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
    factors: NDArray | None = None,
) -> float:
    """Log p(values | labels), means and precisions integrated out.

    `values` (N, D); `labels` (N,): whole numbers from 0; `power`: of the vectors' densities;
    `factors` (N,): of their precisions.
    """
    values, labels = np.asarray(values, float), np.asarray(labels)
    n_clusters = int(labels.max(initial=-1)) + 1
    found = posterior(values, labels, n_clusters, prior, shared, power, factors)
    weights, _, degrees, inverse_scales = found
    total = means_out(weights, prior).sum() + precisions_out(degrees, inverse_scales, prior).sum()
    return float(total + log_constant(values.shape, power, factors))


def log_constant(shape: tuple[int, ...], power: float, factors: NDArray | None) -> float:
    """Log of what the evidence of vectors has for a factor whatever their labels are.

    `shape`: (N, D); `power`, `factors` (N,): as of `log_marginal`.
    """
    n, d = shape
    logs = 0.0 if factors is None else float(np.log(factors).sum())
    return 0.5 * power * d * (logs - n * log(pi))


def means_out(weights: NDArray, prior: NormalWishartPrior) -> NDArray[np.float64]:
    """Log factors (J,) that are left of means of clusters when they are integrated out."""
    d = len(prior.inverse_scale)
    return 0.5 * d * np.log(prior.strength / (prior.strength + weights))


def precisions_out(
    degrees: NDArray, inverse_scales: NDArray, prior: NormalWishartPrior
) -> NDArray[np.float64]:
    """Log factors that are left of precisions with Wishart posteriors, but for powers of pi."""
    d = len(prior.inverse_scale)
    found = multigammaln(0.5 * degrees, d) - multigammaln(0.5 * prior.degrees, d)
    found -= 0.5 * degrees * np.linalg.slogdet(inverse_scales)[1]
    return found + 0.5 * prior.degrees * np.linalg.slogdet(prior.inverse_scale)[1]


def draw_parameters(
    rng: np.random.Generator,
    values: NDArray,
    labels: NDArray,
    n_clusters: int,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
    factors: NDArray | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw all clusters' means, and precisions, given the labels; empty clusters' from the prior.

    `values` (N, D). `labels` (N,): in 0 ... T - 1. `n_clusters`: T; `power`: of the vectors'
    densities; `factors` (N,): of their precisions. Return `means` (T, D); `precisions` (T, D, D),
    or (D, D) if it is shared.
    """
    found = posterior(values, labels, n_clusters, prior, shared, power, factors)
    return draw_posterior(rng, *found, prior, shared)


def draw_posterior(
    rng: np.random.Generator,
    weights: NDArray,
    means: NDArray,
    degrees: NDArray,
    inverse_scales: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw means and precisions from what `posterior` returns, as `draw_parameters` does."""
    precisions, roots = draw_wishart(rng, degrees, inverse_scales)
    # With precision R R', the noise R'^-1 e has covariance (R R')^-1.
    noise = rng.standard_normal(means.shape)[:, :, None]
    noise = np.linalg.solve(np.swapaxes(roots, 1, 2), noise)[:, :, 0]
    means = means + noise / np.sqrt(prior.strength + weights)[:, None]
    return means, precisions[0] if shared else precisions


def log_parameters(
    mean: NDArray,
    precision: NDArray,
    weights: NDArray,
    means: NDArray,
    degrees: NDArray,
    inverse_scales: NDArray,
    prior: NormalWishartPrior,
) -> float:
    """Log density of means (T, D), and precisions (..., D, D), by what `posterior` returns."""
    d = means.shape[1]
    precisions = np.reshape(precision, inverse_scales.shape)
    logs = np.linalg.slogdet(precisions)[1]
    total = 0.5 * degrees * (np.linalg.slogdet(inverse_scales)[1] - d * log(2.0))
    total += 0.5 * (degrees - d - 1.0) * logs - multigammaln(0.5 * degrees, d)
    total -= 0.5 * np.einsum("pij,pji->p", inverse_scales, precisions)
    strength, away = prior.strength + weights, mean - means
    every = np.broadcast_to(precisions, (len(means), d, d))
    squares = strength * np.einsum("ti,tij,tj->t", away, every, away)
    means_own = 0.5 * (d * np.log(strength / (2.0 * pi)) + logs - squares)
    return float(total.sum() + means_own.sum())


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

    def draw(
        self, rng: np.random.Generator, labels: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw means and precisions, as `draw_parameters`, given the labels (N,) of all objects."""
        own = labels[self.rows.object]
        given = self.prior, self.shared, self.power, self.factors
        return draw_parameters(rng, self.values, own, self.truncation, *given)

    def log_conditional(self, mean: NDArray, precision: NDArray, labels: NDArray) -> float:
        """Log density of means and precisions given the labels (N,) of all objects."""
        own = labels[self.rows.object]
        given = self.prior, self.shared, self.power, self.factors
        found = posterior(self.values, own, self.truncation, *given)
        return log_parameters(mean, precision, *found, self.prior)

    def log_marginal(self, labels: NDArray) -> float:
        """Log p(values | labels) for the labels (N,) of all objects, by the plain formula."""
        own = labels[self.rows.object]
        given = self.prior, self.shared, self.power, self.factors
        return log_marginal(self.values, own, *given)
