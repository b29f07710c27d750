"""One draw's clusters numbered as those of an estimate."""

import numpy as np
import scipy
from numpy.typing import NDArray


def numbers_like(
    labels: NDArray[np.int64], target: NDArray[np.int64], n_labels: int
) -> NDArray[np.int64]:
    """Give every label 0, …, T - 1 of a draw the number of a cluster of the target, or another.

    The draw's occupied clusters are matched with the target's by the largest number of objects in
    both, one to one (a linear assignment). Those that share no object with their match, or have
    none, get the free numbers by decreasing size: first those that the target does not have. Empty
    clusters come last, in their order.

    `labels`, `target` (N,): clusters of a draw, in 0, …, T - 1; of the target, from 0. Negative for
    irrelevant objects. `n_labels`: T. Return (T,): a permutation.
    """
    mine, first, size = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    mine, size = mine[np.argsort(first)], size[np.argsort(first)]
    place = np.full(n_labels, -1)
    place[mine] = np.arange(len(mine))
    n_targets = int(target.max(initial=-1)) + 1
    both = (labels >= 0) & (target >= 0)
    overlap = np.zeros((len(mine), n_targets), dtype=np.int64)
    np.add.at(overlap, (place[labels[both]], target[both]), 1)

    numbers = np.full(n_labels, -1)
    rows, columns = scipy.optimize.linear_sum_assignment(overlap, maximize=True)
    shared = overlap[rows, columns] > 0
    numbers[mine[rows[shared]]] = columns[shared]
    by_size = mine[np.argsort(-size, kind="stable")]
    left = [label for label in by_size if numbers[label] < 0]
    left += [label for label in range(n_labels) if place[label] < 0]
    taken = set(columns[shared].tolist())
    numbers[left] = [
        number for number in (*range(n_targets, n_labels), *range(n_targets)) if number not in taken
    ][: len(left)]
    return numbers
