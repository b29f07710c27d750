"""Reads and writes points of value variables, for normal clusters."""

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.normal.parts import Normals


class NormalsPoints(Writer):
    """Writes the means and precisions of normal clusters."""

    def __init__(self, model: Model, normals: Normals):
        super().__init__(model, normals.names)
        self.normals = normals

    def write_parameters(
        self, point: dict[str, NDArray], mean: NDArray, precision: NDArray
    ) -> None:
        """Write means (T, D), and precisions (T, D, D) or one (D, D), into a new `point`."""
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            raise FloatingPointError(
                f"{self.normals.mean!r} or {self.normals.precision!r} is not finite any more: the "
                "data are on too extreme a scale."
            )
        if self.transformed[self.normals.precision]:
            precision = packed_cholesky(precision)
        self.write(point, {self.normals.mean: mean, self.normals.precision: precision})


def packed_cholesky(matrices: NDArray) -> NDArray[np.float64]:
    """Bring matrices (..., D, D) to the scale on which PyMC samples a Wishart variable.

    That is the rows of their Cholesky factor, with logs of the diagonal.
    """
    lower = np.linalg.cholesky(matrices)
    d = lower.shape[-1]
    diagonal = np.arange(d)
    lower[..., diagonal, diagonal] = np.log(lower[..., diagonal, diagonal])
    rows, columns = np.tril_indices(d)
    return lower[..., rows, columns]
