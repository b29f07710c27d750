"""What normal evidence of both kinds shares: its prior, and its vectors by unit."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.units import Units


class NormalWishartPrior(NamedTuple):
    """Prior of means and precisions: mu | Lambda ~ N(m, (k Lambda)^-1), Lambda ~ Wishart(nu, V)."""

    center: NDArray[np.float64]  # (D,): m
    strength: float  # k: how many vectors the prior of a mean is worth
    degrees: float  # nu, more than D - 1
    inverse_scale: NDArray[np.float64]  # (D, D): the inverse of V


class NormalRows:
    """The vectors of one set of normal clusters: which objects they are of, and which units.

    An object may have none, or several: `objects` (R,) has that of every vector.
    """

    def __init__(self, objects: NDArray[np.int64], units: Units, n_features: int):
        self.object = objects
        self.unit = units.of_object[objects]  # (R,)
        self.n_features = n_features
        # (U,): vectors of every unit.
        self.size = np.bincount(self.unit, minlength=len(units.size)).astype(float)
        # The vectors by unit, for sums of those of the units that have any.
        self._order = np.argsort(self.unit, kind="stable")
        self._filled = np.flatnonzero(self.size)
        ends = np.cumsum(self.size[self._filled]).astype(np.int64)
        self._starts = ends - self.size[self._filled].astype(np.int64)

    def sums(self, values: NDArray) -> NDArray[np.float64]:
        """Add up numbers or vectors `values` (R, ...) of every unit (U, ...)."""
        found = np.zeros((len(self.size), *values.shape[1:]))
        if len(self._filled):
            found[self._filled] = np.add.reduceat(values[self._order], self._starts, axis=0)
        return found

    def means(self, values: NDArray, weights: NDArray | None = None) -> NDArray[np.float64]:
        """Average the vectors `values` (R, D) of every unit (U, D); 0 where there are none.

        `weights` (R,): all the same by default.
        """
        if weights is None:
            weights = np.ones(len(values))
        total = self.sums(weights)[:, None]
        return self.sums(weights[:, None] * values) / np.where(total > 0.0, total, 1.0)

    @cached_property
    def several_units(self) -> NDArray[np.int64]:
        """The units that have several vectors."""
        return np.flatnonzero(self.size > 1.0)

    @cached_property
    def several(self) -> list[NDArray[np.int64]]:
        """The vectors of every one of these."""
        members = np.split(self._order, self._starts[1:])
        place = {int(unit): number for number, unit in enumerate(self._filled)}
        return [members[place[int(unit)]] for unit in self.several_units]
