"""Polar factors: the orthonormal directions of a matrix, without its lengths."""

import numpy as np
from numpy.typing import NDArray


def polar_factor(matrix: NDArray) -> NDArray[np.float64]:
    """Return the semi-orthogonal matrix nearest to one of full rank (see `semi_orthogonal`).

    Of many (..., M, K), those of all.
    """
    u, _, v = np.linalg.svd(matrix, full_matrices=False)
    return u @ v


def draw_with_polar(rng: np.random.Generator, q: NDArray, precision: float) -> NDArray[np.float64]:
    """Draw a matrix of independent normal entries that has the polar factor `q` (M, K).

    The factor of such a matrix A is independent of its lengths, (A'A)^(1/2), which are drawn.
    """
    other = rng.standard_normal(q.shape)
    values, vectors = np.linalg.eigh(other.T @ other)
    return q @ ((vectors * np.sqrt(np.maximum(values, 0.0) / precision)) @ vectors.T)
