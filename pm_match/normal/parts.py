"""What is read of normal clusters."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point


@dataclass(frozen=True, eq=False)
class NormalValues:
    """Vectors that are normal around the means of their objects' clusters.

    Attributes
    ----------
    name : str
        The variable, observed or free.
    assignment : str
    objects : (R,) integer array
        The object of every vector, as its assignment numbers them.
    data : (R, D) array or None
        What is observed; None if the variable is free, and its value is read from points.
    """

    name: str
    assignment: str
    objects: NDArray[np.int64]
    data: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class Normals(Evidence):
    """Normal clusters: means and precisions with conjugate priors, and what is seen of them.

    Attributes
    ----------
    clustering : int
        The number of the clustering whose objects they are of.
    mean, precision : str
        The variables with the means (T, D), and the precisions (T, D, D) or one (D, D).
    shared : bool
        Whether the clusters share one precision.
    truncation, n_features : int
    values : tuple of NormalValues
    prior : callable
        The prior of means and precisions at a point of value variables.
    """

    kind = "normal"

    clustering: int
    mean: str
    precision: str
    shared: bool
    truncation: int
    n_features: int
    values: tuple[NormalValues, ...]
    prior: Callable[[Point], NormalWishartPrior] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [self.mean, self.precision]

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The number of its clustering."""
        return (self.clustering,)

    @property
    def searchable(self) -> bool:
        """Whether all vectors are observed."""
        return all(values.data is not None for values in self.values)

    @property
    def handed_on(self) -> list[str]:
        """Steps of what the priors depend on are given the parameters."""
        return self.names if self.searchable else []

    def vectors(self, point: Point) -> NDArray[np.float64]:
        """Read all vectors (R, D), one variable after the other."""
        found = [
            np.asarray(point[values.name]) if values.data is None else values.data
            for values in self.values
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)
