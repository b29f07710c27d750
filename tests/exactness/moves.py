"""Moves of labels, alone and together."""

import numpy as np

from pm_match.clusters.split_merge import new_scratch, split_or_merge
from pm_match.clusters.sweep import rename, sweep
from pm_match.numerics.kernels import entry


@entry
def _walk(rng, a, b, partition, terms, renamed, n_renamed, labels):
    for number in range(labels.shape[0]):
        sweep(rng, a, b, partition, terms)
        rename(rng, a, b, partition, renamed, n_renamed)
        for unit in range(labels.shape[1]):
            labels[number, unit] = partition.label[unit]


def walked(rng, prior, partition, terms, n, n_renamed):
    """Sweep `n` times, and propose so many label swaps each time; return all labels (n, U)."""
    labels = np.zeros((n, len(partition.label)), np.int64)
    renamed = np.zeros(len(partition.counts), np.int64)
    _walk(rng, *prior, partition, terms, renamed, n_renamed, labels)
    return labels


@entry
def _parted(rng, a, b, partition, terms, scratch, labels):
    for number in range(labels.shape[0]):
        split_or_merge(rng, a, b, partition, terms, scratch, 4)
        for unit in range(labels.shape[1]):
            labels[number, unit] = partition.label[unit]


def parted(collapsed, rng, n):
    """Split or merge four times, `n` times; return the labels of all units, (n, U)."""
    (partition,), (prior,), (terms,) = collapsed.partitions, collapsed.priors, collapsed.terms
    labels = np.zeros((n, len(partition.label)), np.int64)
    _parted(rng, *prior, partition, terms, new_scratch(len(partition.label)), labels)
    return labels


def visited(collapsed, rng, n):
    """Sweep and rename `n` times; return the labels of all units (n, U)."""
    if len(collapsed.partitions) > 1 or collapsed.anchored:
        labels = []
        for _ in range(n):
            collapsed.sweep(rng)
            collapsed.rename(rng)
            labels.append(np.concatenate([own.label for own in collapsed.partitions]))
        return np.array(labels)
    (partition,), (prior,), (terms,) = collapsed.partitions, collapsed.priors, collapsed.terms
    exchangeable = all(own.exchangeable for own in collapsed.component.evidence)
    return walked(rng, prior, partition, terms, n, len(partition.counts) if exchangeable else 0)


def split_and_merge(collapsed, rng):
    """Splits and merges, with the few sweeps that change what they cannot: relevance."""
    collapsed.split_or_merge(rng, 10)
    if any((p.relevance.group >= 0).any() for p in collapsed.partitions) and rng.random() < 0.5:
        collapsed.sweep(rng)


def exchange(collapsed, rng):
    """Exchanges, with a few sweeps: they leave every assignment's clusters as they are."""
    _, proposed = collapsed.exchange(rng, 3)
    if proposed == 0 or rng.random() < 0.5:
        collapsed.sweep(rng)


def everything(collapsed, rng):
    collapsed.sweep(rng)
    collapsed.split_or_merge(rng, 1)
    collapsed.exchange(rng, 1)
    collapsed.rename(rng)


MOVES = {"split and merge": split_and_merge, "exchange": exchange, "everything": everything}
