"""The posterior expected loss of partitions."""

from __future__ import annotations

import numpy as np

from pm_match.matching.draws import IRRELEVANT
from pm_match.matching.pair_counts import apart, together


def least_binder(labels: np.ndarray) -> tuple[int, float]:
    """Draw with the least expected Binder loss, and that loss as a fraction of all pairs.

    The loss is a constant plus the sum of Q = (1 - 2P) / 2 over ordered pairs that share a
    cluster. In units of 1 / (2 S) all of it is whole numbers, so that ties do not hang on
    rounding, and the two ways to compute it agree exactly.
    """
    n_draws, n_objects = labels.shape
    n_clusters = int(labels.max()) + 1
    # Where the two take about as long, as measured.
    by_pairs = n_objects * (n_clusters + 15) <= 70 * n_draws
    loss, constant = (_loss_by_pairs if by_pairs else _loss_by_draws)(labels, n_clusters)
    best = int(np.argmin(loss))
    n_pairs = max(n_objects * (n_objects - 1) / 2, 1)
    return best, float((loss[best] + constant) / (2 * n_draws * n_pairs))


def _loss_by_pairs(labels: np.ndarray, n_clusters: int) -> tuple[np.ndarray, float]:
    """Losses of all draws but for a constant, and the constant: time ~ S K N², memory ~ N².

    The sum of Q over pairs that share a cluster is, for all clusters of a draw, trace(Hᵀ Q H) with
    H its one-hot labels.
    """
    n_draws, n_objects = labels.shape
    relevant = labels != IRRELEVANT
    mask = None if relevant.all() else relevant
    shared = together(*apart([labels, labels], [mask, mask]))
    np.fill_diagonal(shared, n_draws / 2)  # an object with itself is no pair: make it count 0
    q = n_draws - 2 * shared
    loss = np.empty(n_draws)
    block = max(1, 2**22 // (n_objects * max(n_clusters, 1)))  # at most 32 MB of one-hot labels
    for start in range(0, n_draws, block):
        part = labels[start : start + block]
        one_hot = (part[:, None, :] == np.arange(n_clusters)[:, None]).astype(float)
        flat = one_hot.reshape(-1, n_objects)
        by_cluster = np.einsum("ij,ij->i", flat @ q, flat).reshape(len(part), n_clusters)
        loss[start : start + block] = by_cluster.sum(axis=1)
    np.fill_diagonal(shared, 0)
    return loss, float(shared.sum())


def _loss_by_draws(labels: np.ndarray, n_clusters: int) -> tuple[np.ndarray, float]:
    """Losses of all draws but for a constant, and the constant: time ~ S² N.

    With n_jl(c, t) objects in cluster j of draw c and l of draw t, the ordered pairs that are
    together in both number Σ_jl n_jl² - n_jl: tables of counts, and no matrix of pairs.
    """
    n_draws = len(labels)
    slots = n_clusters + 1  # the first for irrelevant objects
    labels = (labels - IRRELEVANT).astype(np.int64)
    both = np.zeros((n_draws, n_draws), dtype=np.int64)
    block = max(1, 2**20 // max(labels.shape[1], slots**2))
    dense = slots**2 <= 16 * labels.shape[1]
    for draw in range(n_draws):
        for start in range(draw, n_draws, block):
            others = labels[start : start + block]
            cells = labels[draw] * slots + others
            if dense:
                cells += np.arange(len(others))[:, None] * slots**2
                counts = np.bincount(cells.ravel(), minlength=len(others) * slots**2)
                table = counts.reshape(-1, slots, slots)[:, 1:, 1:].astype(float)
                pairs = np.einsum("djl,djl->d", table, table - 1)
            else:
                pairs = np.array([_pairs_of_cells(row, slots) for row in cells])
            both[draw, start : start + block] = pairs
            both[start : start + block, draw] = pairs
    within = np.diagonal(both)
    loss = n_draws * within - 2 * both.sum(axis=1)
    return loss.astype(float), float(within.sum())


def _pairs_of_cells(cells: np.ndarray, slots: int) -> int:
    """Count the ordered pairs within cells whose row and column are not those of irrelevance."""
    cell, count = np.unique(cells, return_counts=True)
    count = count[(cell >= slots) & (cell % slots > 0)]
    return int(np.sum(count * (count - 1)))
