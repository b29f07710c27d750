"""Draws of Wishart matrices."""

import numpy as np
from numpy.typing import NDArray


def draw_wishart(
    rng: np.random.Generator, degrees: NDArray, inverse_scale: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw Wishart matrices by Bartlett's decomposition.

    `degrees` (T,); `inverse_scale` (T, D, D): inverses of their scale matrices. Return `drawn`,
    `root` (T, D, D): the matrices, and R with R R' equal to them.
    """
    n, d = inverse_scale.shape[:2]
    lower = np.linalg.cholesky(inverse_scale)
    bartlett = np.zeros((n, d, d))
    bartlett[:, np.tri(d, k=-1, dtype=bool)] = rng.standard_normal((n, d * (d - 1) // 2))
    diagonal = np.arange(d)
    bartlett[:, diagonal, diagonal] = np.sqrt(rng.chisquare(degrees[:, None] - diagonal))
    # The scale is L'^-1 L^-1 where the inverse scale is L L'.
    root = np.linalg.solve(np.swapaxes(lower, 1, 2), bartlett)
    return root @ np.swapaxes(root, 1, 2), root
