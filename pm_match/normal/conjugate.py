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
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Update the prior by the vectors of every cluster.

    `values` (N, D); `labels` (N,); `n_clusters`: T. What has no vector keeps the prior. `shared`:
    whether all clusters have one precision: P is 1 then, otherwise T. `power`: of the vectors'
    densities: each vector is worth so much of one. Return `counts` (T,): how many vectors they are
    worth; `means` (T, D): m_j; `degrees` (P,); `inverse_scales` (P, D, D): of the Wishart
    conditionals.
    """
    counts = power * np.bincount(labels, minlength=n_clusters).astype(np.float64)
    averages = np.tile(prior.center, (n_clusters, 1))
    scatters = np.zeros((n_clusters, *prior.inverse_scale.shape))
    for j in np.flatnonzero(counts):
        inside = values[labels == j]
        averages[j] = inside.mean(axis=0)
        residual = inside - averages[j]
        scatters[j] = power * (residual.T @ residual)
    return update(counts, averages, scatters, prior, shared)


def update(
    counts: NDArray,
    averages: NDArray,
    scatters: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Update the prior as `posterior` does, by what the clusters' vectors add up to.

    `counts` (T,); `averages` (T, D): of the vectors of every cluster; of those without any,
    anything; `scatters` (T, D, D): about these.
    """
    share = counts / (prior.strength + counts)
    shifts = averages - prior.center
    means = prior.center + share[:, None] * shifts
    outer = shifts[:, :, None] * shifts[:, None, :]
    scatter = scatters + (prior.strength * share)[:, None, None] * outer
    own = counts
    if shared:
        own, scatter = counts.sum(keepdims=True), scatter.sum(axis=0, keepdims=True)
    return counts, means, prior.degrees + own, prior.inverse_scale + scatter


def log_marginal(
    values: NDArray,
    labels: NDArray,
    prior: NormalWishartPrior,
    shared: bool,
    power: float = 1.0,
) -> float:
    """Log p(values | labels), means and precisions integrated out.

    `values` (N, D); `labels` (N,): whole numbers from 0; `power`: of the vectors' densities.
    """
    values, labels = np.asarray(values, float), np.asarray(labels)
    n_clusters = int(labels.max(initial=-1)) + 1
    found = posterior(values, labels, n_clusters, prior, shared, power)
    counts, _, degrees, inverse_scales = found
    total = means_out(counts, prior).sum() + precisions_out(degrees, inverse_scales, prior).sum()
    return float(total - 0.5 * power * values.size * log(pi))


def means_out(counts: NDArray, prior: NormalWishartPrior) -> NDArray[np.float64]:
    """Log factors (J,) that are left of means of clusters when they are integrated out."""
    d = len(prior.inverse_scale)
    return 0.5 * d * np.log(prior.strength / (prior.strength + counts))


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
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw all clusters' means, and precisions, given the labels; empty clusters' from the prior.

    `values` (N, D). `labels` (N,): in 0 ... T - 1. `n_clusters`: T; `power`: of the vectors'
    densities. Return `means` (T, D); `precisions` (T, D, D), or (D, D) if it is shared.
    """
    found = posterior(values, labels, n_clusters, prior, shared, power)
    return draw_posterior(rng, *found, prior, shared)


def draw_posterior(
    rng: np.random.Generator,
    counts: NDArray,
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
    means = means + noise / np.sqrt(prior.strength + counts)[:, None]
    return means, precisions[0] if shared else precisions


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
        self, values: NDArray, slots: NDArray, prior: NormalWishartPrior, constant: float = 0.0
    ) -> None:
        """Bring the term to a point.

        `values` (R, D): the vectors, in the order of `rows`; `slots` (U,): the slot of every unit;
        `constant`: is added to the log evidence.
        """
        self.values, self.prior = values, prior
        self.term.value[:] = self.rows.means(values - prior.center)

    def kernels(self, slots: NDArray) -> list[Job]:
        """List what `load` calls."""
        raise NotImplementedError

    def draw(
        self, rng: np.random.Generator, labels: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw means and precisions, as `draw_parameters`, given the labels (N,) of all objects."""
        own = labels[self.rows.object]
        given = self.prior, self.shared, self.power
        return draw_parameters(rng, self.values, own, self.truncation, *given)

    def log_marginal(self, labels: NDArray) -> float:
        """Log p(values | labels) for the labels (N,) of all objects, by the plain formula."""
        own = labels[self.rows.object]
        return log_marginal(self.values, own, self.prior, self.shared, self.power)
