"""Draws of labels from tables of log densities."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import entry

# Numbers of a table that are worked on at once, so that they stay in a cache.
_BLOCK = 2**17
# Logs of the smallest normal numbers.
_LEAST = {np.dtype(own): np.log(np.finfo(own).tiny) for own in (np.float32, np.float64)}


def blocks(n: int, n_clusters: int) -> Iterator[slice]:
    """Give the objects, of n, whose tables are computed at once."""
    step = max(_BLOCK // max(n_clusters, 1), 64)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


@entry
def level(table, log_weights, least, most):
    """Add log weights (T,) to a `table` (T, n), and take the greatest of each column from it.

    Fills `most` (n,) with these, NaN where the column has one; says whether all are finite. What is
    then below `least`, the log of the smallest normal number, becomes -inf: its weight is 0 within
    rounding, and exponentials of such numbers take seven times as long.
    """
    n_clusters, n = table.shape
    for i in range(n):
        most[i] = -np.inf
    for j in range(n_clusters):
        for i in range(n):
            value = table[j, i] + log_weights[j]
            table[j, i] = value
            # NaN stays.
            if value > most[i] or value != value:
                most[i] = value
    for j in range(n_clusters):
        for i in range(n):
            left = table[j, i] - most[i]
            table[j, i] = left if left >= least else -np.inf
    n_finite = 0
    for i in range(n):
        n_finite += np.isfinite(most[i])
    return n_finite == n


@entry
def choose(weights, uniform, labels, certainty):
    """Choose a label for every column of `weights` (T, n), the greatest of which is 1.

    Fills `labels` (n,), and `certainty` (n,), the probability of the likeliest label; the weights
    become their running sums. Loops run over objects inside, so that they are vectorised.
    """
    n_clusters, n = weights.shape
    for j in range(1, n_clusters):
        for i in range(n):
            weights[j, i] += weights[j - 1, i]
    for i in range(n):
        total = weights[n_clusters - 1, i]
        certainty[i] = 1.0 / total
        uniform[i] *= total
        labels[i] = 0
    for j in range(n_clusters - 1):
        for i in range(n):
            labels[i] += weights[j, i] <= uniform[i]


def draw_labels(
    rng: np.random.Generator,
    table: NDArray,
    log_weights: NDArray,
    labels: NDArray,
    certainty: NDArray,
    first: int = 0,
) -> None:
    """Draw labels (n,) from log probabilities ``table[i, j] + log_weights[j]``, up to constants.

    The table (n, T) is overwritten; `first` is the number of its first row among all. Raise
    `FloatingPointError` if those of an object are NaN, or -inf in all clusters.
    """
    columns = np.ascontiguousarray(table.T)
    most = np.empty_like(columns[0])
    if not level(columns, log_weights.astype(columns.dtype), _LEAST[columns.dtype], most):
        wrong = np.flatnonzero(~np.isfinite(most))[0]
        raise FloatingPointError(
            f"row {first + wrong}: expected a finite log density of every object in some cluster; "
            f"found {most[wrong]}"
        )
    np.exp(columns, out=columns)
    choose(columns, rng.random(len(table)), labels, certainty)
