"""Reads and writes points of value variables, for normal clusters."""

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.normal.parts import Alignment, Map, Normals
from pm_match.reading.probe import natural_function, value_density


class NormalsPoints(Writer):
    """Writes the means and precisions of normal clusters."""

    def __init__(self, model: Model, normals: Normals):
        super().__init__(model, [*normals.names, *normals.drawn, *normals.missing])
        self.normals = normals
        self.natural = natural_function(model, normals.names)
        # Of orientations, only directions are read.
        turned = {own.orientation for _, own in normals.aligned}
        proper = [name for name in normals.drawn if name not in turned]
        self.log_parameters = value_density(model, [model[name] for name in proper], jacobian=False)

    def write_parameters(
        self, point: dict[str, NDArray], mean: NDArray, precision: NDArray
    ) -> None:
        """Write means (T, D), and precisions (T, D, D) or one (D, D), into a new `point`."""
        if not (np.isfinite(mean).all() and np.isfinite(precision).all()):
            raise FloatingPointError(
                f"{self.normals.mean!r} or {self.normals.precision!r} is not finite any more: the "
                "data are on too extreme a scale."
            )
        self.write(point, {self.normals.mean: mean})
        self.write_matrices(point, self.normals.precision, precision)

    def write_matrices(self, point: dict[str, NDArray], name: str, value: NDArray) -> None:
        """Write positive definite matrices (..., D, D) into a new `point`."""
        self.write(point, {name: packed_cholesky(value) if self.transformed[name] else value})

    def write_map(self, point: dict[str, NDArray], alignment: Alignment, own: Map, raw) -> None:
        """Write a map into a new `point`; `raw` (D, D) is a matrix that has its polar factor."""
        if alignment.orientation:
            self.write(point, {alignment.orientation: raw})
        if alignment.scale:
            self.write_positive(point, alignment.scale, np.log(own.scale))
        if alignment.intercept:
            self.write(point, {alignment.intercept: own.intercept})


def packed_cholesky(matrices: NDArray) -> NDArray[np.float64]:
    """Bring matrices (..., D, D) to the scale on which PyMC samples a Wishart variable.

    That is the rows of their Cholesky factor, with logs of the diagonal.
    """
    lower = np.linalg.cholesky(matrices)
    d = lower.shape[-1]
    diagonal = np.arange(d)
    lower[..., diagonal, diagonal] = np.log(lower[..., diagonal, diagonal])
    return lower[..., np.tri(d, dtype=bool)]
