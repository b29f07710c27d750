"""How many objects two partitions put into the same pair of clusters."""

from typing import NamedTuple

import numpy as np


class Cells(NamedTuple):
    """The cells of a contingency table that are not empty."""

    # row, column, number (n_cells,): where a cell is, by rows and then columns, and how many
    # objects it holds
    row: np.ndarray
    column: np.ndarray
    number: np.ndarray
    cell: np.ndarray  # (n_objects,): each object's cell


def contingency(rows: np.ndarray, columns: np.ndarray) -> Cells:
    """Count pairs of labels (n_objects,), which are 0, 1, …; memory grows with objects alone."""
    width = int(columns.max(initial=-1)) + 1
    found, cell, count = ranked(rows * width + columns)
    row, column = np.divmod(found, max(width, 1))
    return Cells(row, column, count, cell)


def ranked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the whole numbers that there are, the place of each value among them, and their counts.

    It is `np.unique`, by a table where that would not be mostly empty: some times faster.
    """
    low = values.min() if values.size else 0
    if values.max(initial=low) - low > 4 * len(values) + 1000:
        return np.unique(values, return_inverse=True, return_counts=True)
    shifted = values - low
    counts = np.bincount(shifted)
    found = np.flatnonzero(counts)
    return found + low, (np.cumsum(counts > 0) - 1)[shifted], counts[found]
