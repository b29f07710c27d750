"""Clusters of one table alone, at every number of clusters: a mixture whose covariance is shared.

Expectation-maximisation from many clusters, the two nearest of which are then merged, again and
again. What the number should be is left to whoever compares the tables' joint model.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.k_means import spread

# Of the covariance's prior: how many objects it counts for beyond the features, and how much of the
# table's own covariance clusters are expected to have.
_EXTRA = 4
_SHARE = 0.25
_MOST_ITERATIONS = 60
# From each start a whole path is followed; for every number the most likely is kept.
_STARTS = 4

Labels = NDArray[np.int64]


class Mixture(NamedTuple):
    """Clusters of one table alone."""

    labels: Labels  # (N,): from 0 to J - 1
    # Penalised log likelihood, less what that many means cost by the Bayesian information criterion
    # (G. Schwarz 1978).
    worth: float


def mixture_path(rng: np.random.Generator, x: NDArray[np.float64], most: int) -> dict[int, Mixture]:
    """Cluster the rows of a table into 2, 3, ... `most` clusters.

    `x` (N, M); `most`: clusters to begin with. Return for every number J of clusters that was met.
    """
    most = min(most, len(x) // 2)
    x = x - x.mean(axis=0)
    cost = 0.5 * x.shape[1] * np.log(max(len(x), 1))
    found: dict[int, Mixture] = {}
    for _ in range(_STARTS if most > 1 else 0):
        labels, value = fit_mixture(x, spread(rng, x, most))
        while True:
            n = int(labels.max()) + 1
            if n < 2:
                break
            worth = value - n * cost
            if n not in found or worth > found[n].worth:
                found[n] = Mixture(labels, worth)
            if n == 2:
                break
            labels, value = fit_mixture(x, merge_nearest(x, labels))
    return dict(sorted(found.items()))


def fit_mixture(x: NDArray[np.float64], labels: Labels) -> tuple[Labels, float]:
    """Fit a normal mixture with one covariance from `labels`; clusters may vanish.

    Return `labels` (N,): the most probable cluster of every row; `value`: penalised log likelihood.
    """
    n_rows, n_features = x.shape
    degrees = n_features + 2 + _EXTRA
    prior = _SHARE * np.cov(x.T, bias=True).reshape(n_features, n_features) * (_EXTRA + 1)
    # Columns that are constant within the table have no spread of their own; it may have no others.
    prior += (1e-9 * np.trace(prior) + 1e-300) * np.eye(n_features)
    total = x.T @ x
    weights = np.zeros((n_rows, int(labels.max()) + 1))
    weights[np.arange(n_rows), labels] = 1.0
    before = -np.inf
    for _ in range(_MOST_ITERATIONS):
        sizes = weights.sum(axis=0)
        kept = sizes > 1.0
        if not kept.all():
            weights = weights[:, kept]
            weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
            sizes = weights.sum(axis=0)
        means = (weights.T @ x) / sizes[:, None]
        scatter = total - (means * sizes[:, None]).T @ means
        covariance = (prior + scatter) / (degrees + n_rows + n_features + 1)
        lower = np.linalg.cholesky(covariance)
        rows = np.linalg.solve(lower, x.T).T
        centres = np.linalg.solve(lower, means.T).T
        logs = np.log(sizes / n_rows) + rows @ centres.T - 0.5 * np.square(centres).sum(axis=1)
        top = logs.max(axis=1)
        weights = np.exp(logs - top[:, None])
        norm = weights.sum(axis=1)
        weights /= norm[:, None]
        log_det = np.log(np.diag(lower)).sum()
        value = float((np.log(norm) + top - 0.5 * np.square(rows).sum(axis=1)).sum())
        value -= (n_rows + degrees + n_features + 1) * log_det
        value -= 0.5 * float(np.trace(np.linalg.solve(covariance, prior)))
        if abs(value - before) < 1e-4 * np.sqrt(n_rows):
            break
        before = value
    return np.unique(weights.argmax(axis=1), return_inverse=True)[1].astype(np.int64), value


def merge_nearest(x: NDArray[np.float64], labels: Labels) -> Labels:
    """Merge the two clusters whose merger adds least to the scatter, in units of the noise."""
    n = int(labels.max()) + 1
    means, sizes = cluster_means(x, labels, n)
    residual = x - means[labels]
    noise = residual.T @ residual / len(x)
    noise += 1e-9 * (np.trace(noise) or 1.0) * np.eye(len(noise))
    centres = np.linalg.solve(np.linalg.cholesky(noise), means.T).T
    distance = np.square(centres[:, None] - centres[None]).sum(axis=2)
    cost = distance * sizes[:, None] * sizes / (sizes[:, None] + sizes)
    # Two are merged though all costs may be infinite, on extreme scales.
    first, second = np.triu_indices(n, 1)
    least = int(cost[first, second].argmin())
    merged = np.where(labels == second[least], first[least], labels)
    return np.unique(merged, return_inverse=True)[1].astype(np.int64)


def cluster_means(
    x: NDArray[np.float64], labels: Labels, n: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Average the rows of a table (N, M) by cluster (J, M), 0 in empty ones; count them (J,)."""
    sizes = np.bincount(labels, minlength=n).astype(float)
    means = np.zeros((n, x.shape[1]))
    np.add.at(means, labels, x)
    return means / np.maximum(sizes, 1.0)[:, None], sizes
