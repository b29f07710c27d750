"""Factors of many small matrices, and systems of equations, all at once.

PyTensor evaluates such operations by a call of LAPACK for each matrix. A log density of all objects
asks for as many as there are objects, of a few rows each: steps over rows are far quicker then.
"""

import math

import numpy as np
from numpy.typing import NDArray

# Matrices of more rows than this are LAPACK's: its calls are few then, and long.
_MOST_ROWS = 50


def many(a: NDArray, columns: int = 1) -> bool:
    """Say whether matrices (..., M, M) are so many and so small that steps over rows are quicker.

    `columns`: of the right-hand sides of each, if these are systems of equations.
    """
    n = a.shape[-1]
    count = math.prod(a.shape[:-2])
    return a.shape[-2] == n <= _MOST_ROWS and count > n * columns and a.dtype.kind in "fiub"


def triangles_solved(
    a: NDArray, b: NDArray, lower: bool, unit_diagonal: bool = False
) -> NDArray[np.floating]:
    """Solve a x = b for triangular a (..., M, M) and b (..., M, K); NaN where a is singular."""
    a, b = _matrices_first(a, b)
    n, batch = len(a), np.broadcast_shapes(a.shape[2:], b.shape[2:])
    found = np.empty((*b.shape[:2], *batch), np.result_type(a, b, np.float32))
    for step in range(n):
        i = step if lower else n - 1 - step
        done = slice(0, i) if lower else slice(i + 1, n)
        found[i] = b[i] - (a[i, done, None] * found[done]).sum(axis=0)
        if not unit_diagonal:
            found[i] /= a[i, i]
    if not unit_diagonal:
        _not_numbers(found, (a[range(n), range(n)] == 0).any(axis=0))
    return _matrices_last(found)


def cholesky_factors(a: NDArray, lower: bool = True) -> NDArray[np.floating]:
    """Factor symmetric matrices (..., M, M), of which one triangle is read; NaN if that fails."""
    (a,) = _matrices_first(a)
    n = len(a)
    if not lower:
        a = a.swapaxes(0, 1)
    found = np.zeros(a.shape, np.result_type(a, np.float32))
    for j in range(n):
        before = found[j, :j]
        below = a[j:, j] - (found[j:, :j] * before).sum(axis=1)
        found[j, j] = np.sqrt(below[0])
        found[j + 1 :, j] = below[1:] / found[j, j]
    _not_numbers(found, ~(found[range(n), range(n)] > 0).all(axis=0))
    return _matrices_last(found if lower else found.swapaxes(0, 1))


def _matrices_first(*matrices: NDArray) -> list[NDArray]:
    """Put the axes of matrices first, so that a step over rows goes through neighbours."""
    ndim = max(m.ndim for m in matrices)
    rows = [m.reshape(*(1,) * (ndim - m.ndim), *m.shape) for m in matrices]
    return [np.ascontiguousarray(np.moveaxis(m, (-2, -1), (0, 1))) for m in rows]


def _matrices_last(matrices: NDArray) -> NDArray:
    return np.moveaxis(matrices, (0, 1), (-2, -1))


def _not_numbers(found: NDArray, where: NDArray[np.bool_]) -> None:
    """Fill the matrices of a batch that have no solution."""
    found[:, :, np.broadcast_to(where, found.shape[2:])] = np.nan
