"""Units: what moves together. A free object is a unit of one; linked objects are one unit.

Links are pairs of objects that share a cluster; overlapping links merge into connected components
(Iwata, Hirao & Ueda 2016, section 3.3, for pairs; any number of domains and any size here).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pm_match.reading.parts import linked_parts


@dataclass(frozen=True)
class Units:
    """The units of a partition of N objects, numbered by their first object."""

    of_object: NDArray[np.int64]  # (N,): the unit of every object
    size: NDArray[np.int64]  # (U,): objects in each unit
    first: NDArray[np.int64]  # (U,): the first object of each unit

    @property
    def linked(self) -> bool:
        """Whether any unit holds more than one object."""
        return len(self.size) < len(self.of_object)

    def total(self, values: NDArray) -> NDArray:
        """Sum `values` (N, ...) over the objects of each unit, shape (U, ...)."""
        if not self.linked:
            return values
        members = csr_array(
            (np.ones(len(self.of_object)), (self.of_object, np.arange(len(self.of_object)))),
            shape=(len(self.size), len(self.of_object)),
        )
        return members @ values

    def fixed(self, known: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which units (U,) hold an object whose label is `known` (N,), rather than -1."""
        return np.bincount(self.of_object, known >= 0, minlength=len(self.size)) > 0

    def members(self) -> list[NDArray[np.int64]]:
        """Return the objects of each unit."""
        order = np.argsort(self.of_object, kind="stable")
        return np.split(order, np.cumsum(self.size)[:-1])


def units(n_objects: int, links: NDArray[np.int64]) -> Units:
    """Group `n_objects` by `links`, a (n_links, 2) array of pairs of objects."""
    return together(linked_parts(n_objects, links))


def together(keys: NDArray) -> Units:
    """Make the units of the objects with equal `keys` (N,)."""
    of_object = pd.factorize(keys)[0].astype(np.int64)
    _, first, size = np.unique(of_object, return_index=True, return_counts=True)
    return Units(of_object, size.astype(np.int64), first.astype(np.int64))
