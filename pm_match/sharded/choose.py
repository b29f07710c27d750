"""Draws of labels from tables of log densities."""

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import entry

# Numbers of a table that are worked on at once, so that they stay in a cache.
_BLOCK = 2**17


def block_rows(n_clusters: int) -> int:
    """Count the objects whose table is computed at once."""
    return max(_BLOCK // max(n_clusters, 1), 64)


@entry
def choose(weights, uniform, labels, certainty):
    """Choose a label for every row of `weights` (n, T), the greatest of which is 1.

    Fills `labels` (n,), and `certainty` (n,), the probability of the likeliest label.
    """
    for n in range(weights.shape[0]):
        total = 0.0
        for j in range(weights.shape[1]):
            total += weights[n, j]
        certainty[n] = 1.0 / total
        left = uniform[n] * total
        label = -1
        last = 0
        for j in range(weights.shape[1]):
            if weights[n, j] > 0.0:
                last = j
                left -= weights[n, j]
                if left < 0.0:
                    label = j
                    break
        # Rounding may leave a little over.
        labels[n] = last if label < 0 else label


def draw_labels(
    rng: np.random.Generator, table: NDArray, labels: NDArray, certainty: NDArray
) -> None:
    """Draw labels (n,) from unnormalised log probabilities (n, T), which are overwritten."""
    table -= table.max(axis=1, keepdims=True)
    np.exp(table, out=table)
    choose(table, rng.random(len(table)), labels, certainty)
