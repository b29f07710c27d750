"""The observed features of a domain, as arrays."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class DomainData:
    """The observed features of one domain.

    Attributes
    ----------
    values : (N, M) array
        The features, 0 where they are missing.
    observed : (N, M) boolean array or None
        What is observed; None if everything is.
    """

    values: NDArray[np.float64]
    observed: NDArray[np.bool_] | None = None

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """`observed` as numbers, to sum."""
        assert self.observed is not None
        return self.observed.astype(np.float64)

    @cached_property
    def squares(self) -> NDArray[np.float64]:
        """Sum of the squared observed values of every object (N,)."""
        return np.square(self.values).sum(axis=1)

    @cached_property
    def column_squares(self) -> NDArray[np.float64]:
        """Sum of the squared observed values of every feature (M,)."""
        return np.square(self.values).sum(axis=0)

    @cached_property
    def scatter(self) -> NDArray[np.float64]:
        """Sum of x x' over all objects (M, M)."""
        return self.values.T @ self.values

    @cached_property
    def n_seen(self) -> NDArray[np.int64]:
        """Number of observed values of every object (N,)."""
        if self.observed is None:
            return np.full(len(self.values), self.values.shape[1])
        return self.observed.sum(axis=1)

    @cached_property
    def holes(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every missing value, in the order of the table."""
        missing = np.zeros(self.values.shape) if self.observed is None else ~self.observed
        row, column = np.nonzero(missing)
        return row, column

    def filled(self, missing: NDArray | float) -> NDArray[np.float64]:
        """Return the values (N, M) with the `missing` ones in their places."""
        values = self.values.copy()
        values[self.holes] = missing
        return values

    @property
    def n_values(self) -> int:
        """Number of observed values."""
        return int(self.n_seen.sum())

    @cached_property
    def patterns(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Distinct rows of `observed` (P, M), and the one of every object (N,)."""
        n_objects, n_features = self.values.shape
        if self.observed is None:
            return np.ones((1, n_features), np.bool_), np.zeros(n_objects, np.int64)
        rows, inverse = np.unique(self.observed, axis=0, return_inverse=True)
        return rows, inverse.reshape(-1).astype(np.int64)
