"""Small dense linear algebra inside kernels: no allocation, no call out for a 5 x 5 matrix."""

from math import log, sqrt

from pm_match.numerics.kernels import part


@part
def dot(a, b):
    """Return the inner product of two vectors."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@part
def factorise(matrix, lower, first=None):
    """Cholesky-factorise `matrix` (K, K) into `lower`; only lower triangles are read and written.

    `first` (K,): where rows of the matrix begin, zeros before that being neither read nor written:
    the factor's rows begin there, too. Default: all begin with the first column. Return the log
    determinant of `matrix`.
    """
    n = matrix.shape[0]
    product = 1.0
    log_det = 0.0
    for i in range(n):
        for j in range(0 if first is None else first[i], i + 1):
            total = matrix[i, j]
            for k in range(0 if first is None else max(first[i], first[j]), j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                root = sqrt(total)
                lower[i, i] = root
                product *= root
                # One log for several pivots, long before their product can overflow.
                if product > 1e100 or product < 1e-100:
                    log_det += log(product)
                    product = 1.0
            else:
                lower[i, j] = total / lower[j, j]
    return 2.0 * (log_det + log(product))


@part
def solve_lower(lower, vector, out, first=None):
    """Solve ``lower @ out = vector`` by forward substitution; return the squared norm of `out`.

    `first`: as of `factorise`.
    """
    norm = 0.0
    for i in range(lower.shape[0]):
        total = vector[i]
        for k in range(0 if first is None else first[i], i):
            total -= lower[i, k] * out[k]
        out[i] = total / lower[i, i]
        norm += out[i] * out[i]
    return norm


@part
def solve_upper(lower, vector, out):
    """Solve ``lower.T @ out = vector`` by back substitution."""
    n = lower.shape[0]
    for i in range(n - 1, -1, -1):
        total = vector[i]
        for k in range(i + 1, n):
            total -= lower[k, i] * out[k]
        out[i] = total / lower[i, i]


@part
def invert(lower, scratch, inverse):
    """Invert the matrix whose Cholesky factor is `lower` into `inverse` (both triangles)."""
    n = lower.shape[0]
    for j in range(n):
        for i in range(j, n):
            total = 1.0 if i == j else 0.0
            for k in range(j, i):
                total -= lower[i, k] * scratch[k, j]
            scratch[i, j] = total / lower[i, i]
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, n):
                total += scratch[k, i] * scratch[k, j]
            inverse[i, j] = total
            inverse[j, i] = total


@part
def solve_upper_within(lower, first, vector, out):
    """Solve ``lower.T @ out = vector``, rows beginning at `first`; `vector` is left as scratch."""
    for i in range(lower.shape[0] - 1, -1, -1):
        out[i] = vector[i] / lower[i, i]
        for k in range(first[i], i):
            vector[k] -= lower[i, k] * out[i]
