"""How many objects two partitions put into the same pair of clusters."""

from typing import NamedTuple

import numpy as np


class Cells(NamedTuple):
    """The cells of a contingency table that are not empty.

    Attributes
    ----------
    row, column, number : array, shape (n_cells,)
        Where a cell is, by rows and then columns, and how many objects it holds.
    cell : array, shape (n_objects,)
        Each object's cell.
    """

    row: np.ndarray
    column: np.ndarray
    number: np.ndarray
    cell: np.ndarray


def contingency(rows: np.ndarray, columns: np.ndarray) -> Cells:
    """Count pairs of labels (n_objects,), which are 0, 1, …; memory grows with objects alone."""
    width = int(columns.max(initial=-1)) + 1
    pair = rows * width + columns
    n_pairs = (int(rows.max(initial=-1)) + 1) * width
    if n_pairs > 4 * len(rows) + 1000:  # a table would be mostly empty
        found, cell, count = np.unique(pair, return_inverse=True, return_counts=True)
        cell = cell.reshape(-1)
    else:
        counts = np.bincount(pair, minlength=n_pairs)
        found = np.flatnonzero(counts)
        cell = (np.cumsum(counts > 0) - 1)[pair]
        count = counts[found]
    row, column = np.divmod(found, max(width, 1))
    return Cells(row, column, count, cell)
