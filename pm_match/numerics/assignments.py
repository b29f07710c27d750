"""Assignments of points to points with the least sum of squared distances, many at once.

The linear assignment problem is solved by shortest augmenting paths (Jonker & Volgenant 1987;
Crouse 2016): every column has a price, a row that has no column gets one by way of others that take
their second best, and prices keep all rows that have a column content with it. They are right for
costs like the present ones too: so an assignment begins at the prices of the last one, if there are
as many rows as columns, and most rows take the column that they find cheapest.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.ahead import Job, job
from pm_match.numerics.kernels import entry, part, reducing


class Assignments(NamedTuple):
    """Assignments of N points to other ones out of R >= N, for S arrangements of the latter."""

    prices: NDArray[np.float64]  # (S, R)
    columns: NDArray[np.int64]  # (S, N): the point that every point is assigned to
    cost: NDArray[np.float64]  # (S,): mean squared distances of assigned points
    costs: NDArray[np.float64]  # (N, R): scratch: of the present arrangement
    # row, came, free (R,): scratch: the row that has a column, or -1; the row that a path reaches
    # it from; rows without a column
    row: NDArray[np.int64]
    came: NDArray[np.int64]
    free: NDArray[np.int64]
    # length, closed, open (R,): scratch: lengths of paths; infinite for columns that are reached,
    # else 0; the sum of both
    length: NDArray[np.float64]
    closed: NDArray[np.float64]
    open: NDArray[np.float64]

    @classmethod
    def of(cls, n_arrangements: int, n_rows: int, n_columns: int) -> "Assignments":
        """Make it, with no assignments yet."""
        s, n, r = n_arrangements, n_rows, n_columns
        found = np.zeros((s, r)), np.full((s, n), -1, np.int64), np.zeros(s), np.zeros((n, r))
        row, came, free = np.zeros((3, r), np.int64)
        return cls(*found, row, came, free, *np.zeros((3, r)))

    def chosen(self, which: NDArray) -> "Assignments":
        """Return the assignments of some arrangements."""
        return self._replace(
            prices=self.prices[which], columns=self.columns[which], cost=self.cost[which]
        )


@part
def _square(x, y, out):
    """Fill `out` (N, R) with squared distances of points (N, K) from points (K, R)."""
    for i in range(x.shape[0]):
        for j in range(y.shape[1]):
            out[i, j] = 0.0
        for k in range(x.shape[1]):
            for j in range(y.shape[1]):
                away = x[i, k] - y[k, j]
                out[i, j] += away * away


@reducing
def _least(values):
    """Return the least of some values."""
    # Four at a time, so that none waits for the one before.
    a = b = c = d = np.inf
    whole = values.shape[0] // 4 * 4
    for j in range(0, whole, 4):
        a, b = min(a, values[j]), min(b, values[j + 1])
        c, d = min(c, values[j + 2]), min(d, values[j + 3])
    for j in range(whole, values.shape[0]):
        a = min(a, values[j])
    return min(min(a, b), min(c, d))


@reducing
def _place(values, value):
    """Return where a value is first."""
    found = last = values.shape[0] - 1
    for j in range(values.shape[0]):
        there = j if values[j] == value else last
        found = there if there < found else found
    return found


@part
def _lengthen(costs, prices, row, base, closed, length, came, open):
    """Bring lengths of paths down to those that come by way of a row, which is `base` more."""
    for j in range(costs.shape[0]):
        by_way = costs[j] - prices[j] + base + closed[j]
        shorter = by_way < length[j]
        length[j] = by_way if shorter else length[j]
        came[j] = row if shorter else came[j]
        open[j] = length[j] + closed[j]


@part
def _lower(costs, prices, out):
    """Fill `out` with what columns cost beyond their prices."""
    for j in range(costs.shape[0]):
        out[j] = costs[j] - prices[j]


@part
def _assign(costs, prices, columns, found):
    """Assign a column to every row; `prices` are begun at, and updated."""
    n_rows, n_columns = costs.shape
    row, came, free = found.row, found.came, found.free
    length, closed, open = found.length, found.closed, found.open
    for j in range(n_columns):
        row[j] = -1
        if n_rows < n_columns:
            # A column that nobody takes has to be free.
            prices[j] = 0.0
    n_free = 0
    for i in range(n_rows):
        _lower(costs[i], prices, open)
        j = _place(open, _least(open))
        if row[j] < 0:
            row[j], columns[i] = i, j
        else:
            free[n_free] = i
            n_free += 1
    for n in range(n_free):
        for j in range(n_columns):
            closed[j], length[j] = 0.0, np.inf
        i, base, least, end = free[n], 0.0, 0.0, 0
        for _ in range(n_rows):
            _lengthen(costs[i], prices, i, base, closed, length, came, open)
            least = _least(open)
            end = _place(open, least)
            if row[end] < 0:
                break
            closed[end] = np.inf
            i = row[end]
            base = least - (costs[i, end] - prices[end])
        for j in range(n_columns):
            if closed[j] > 0.0:
                prices[j] += length[j] - least
        # Along the path, every row takes the column that it came by.
        j = end
        for _ in range(n_rows):
            i = came[j]
            row[j] = i
            columns[i], j = j, columns[i]
            if i == free[n]:
                break


@entry
def assign_nearest(x, arrangements, found):
    """Assign points so that the sum of squared distances is least.

    `x` (N, K): finite; `arrangements` (S, K, R): finite, R >= N; `found`: all of it is updated.
    """
    for s in range(arrangements.shape[0]):
        _square(x, arrangements[s], found.costs)
        columns = found.columns[s]
        _assign(found.costs, found.prices[s], columns, found)
        total = 0.0
        for i in range(x.shape[0]):
            total += found.costs[i, columns[i]]
        found.cost[s] = total / x.shape[0]


def kernels() -> list[Job]:
    """List what is compiled."""
    return [job(assign_nearest, np.zeros((1, 1)), np.zeros((1, 1, 1)), Assignments.of(1, 1, 1))]
