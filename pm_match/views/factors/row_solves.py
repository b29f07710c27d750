"""Products and triangular solves of many rows, each with the matrix of its pattern.

Of one pattern BLAS does all rows at once, of several a kernel does one after the other.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtrs

from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import solve_lower as forward
from pm_match.numerics.kernels import entry

Array = NDArray[np.float64]


def cholesky(matrices: Array) -> Array:
    """Factorise precisions (P, k, k)."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError as error:
        raise FloatingPointError(
            "a precision matrix of latents or loadings is not positive definite: a scale or a "
            "precision is zero, infinite or too extreme"
        ) from error


def row_products(rows: Array, matrices: Array, index: NDArray[np.int64]) -> Array:
    """Multiply every row (N, q) with the matrix (q, r) of its pattern: (N, r)."""
    if len(matrices) == 1:
        return rows @ matrices[0]
    found = np.empty((len(rows), matrices.shape[2]))
    _multiply(np.ascontiguousarray(rows), np.ascontiguousarray(matrices), index, found)
    return found


def solve_lower(lower: Array, index: NDArray[np.int64], rows: Array) -> Array:
    """Solve L x = b for every row b, with the lower triangular L of its pattern."""
    return _solved(lower, index, rows, 1, _forward)


def solve_upper(lower: Array, index: NDArray[np.int64], rows: Array) -> Array:
    """Solve L' x = b for every row b, with the lower triangular L of its pattern."""
    return _solved(lower, index, rows, 0, _backward)


def _solved(lower: Array, index: NDArray[np.int64], rows: Array, trans: int, kernel: Any) -> Array:
    """Solve L x = b (`trans` 1) or L' x = b (0): of one pattern by LAPACK itself.

    SciPy's own function looks at its arguments for longer than it takes to solve for them. In
    LAPACK's order L is what L' is here.
    """
    if len(lower) > 1:
        found = np.array(rows, order="C")
        kernel(lower, index, found)
        return found
    solved, info = dtrtrs(lower[0].T, rows.T, lower=0, trans=trans)
    if info:
        raise np.linalg.LinAlgError(f"a pivot of {lower[0, info - 1, info - 1]:g}")
    return np.ascontiguousarray(solved.T)


def kernels() -> list[Job]:
    """List what rows of several patterns call."""
    rows, matrices, index = np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros(1, np.int64)
    found = [job(solve, matrices, index, rows) for solve in (_forward, _backward)]
    return [*found, job(_multiply, rows, matrices, index, rows)]


@entry
def _multiply(rows, matrices, index, found):
    """Multiply row n with the matrix of its pattern, into `found`."""
    for n in range(rows.shape[0]):
        p = index[n]
        for j in range(found.shape[1]):
            found[n, j] = 0.0
        for i in range(rows.shape[1]):
            x = rows[n, i]
            for j in range(found.shape[1]):
                found[n, j] += x * matrices[p, i, j]


@entry
def _forward(lower, index, rows):
    """Solve L x = b in place for every row."""
    for n in range(rows.shape[0]):
        forward(lower[index[n]], rows[n], rows[n])


@entry
def _backward(lower, index, rows):
    """Solve L' x = b in place for every row."""
    k = rows.shape[1]
    for n in range(rows.shape[0]):
        p = index[n]
        # By rows of L, as they lie in memory.
        for i in range(k - 1, -1, -1):
            rows[n, i] /= lower[p, i, i]
            x = rows[n, i]
            for j in range(i):
                rows[n, j] -= lower[p, i, j] * x
