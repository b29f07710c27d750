"""Tables some values of which are missing: objects grouped by what is observed of them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# How many numbers the masks of patterns are multiplied with at a time.
_MOST_PRODUCTS = 4_000_000

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MaskedTable:
    """Values of objects by features."""

    values: Array  # (N, M): 0 where they are missing
    # (N, M) or None: what is observed; None if everything is
    observed: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, values: Array) -> "MaskedTable":
        """Make the table of values (N, M) of which NaN are missing."""
        seen = ~np.isnan(values)
        return cls(values) if seen.all() else cls(np.where(seen, values, 0.0), seen)

    def filled(self, missing: NDArray | float) -> Array:
        """Return the values (N, M) with the `missing` ones in their places."""
        if self.observed is None:
            return self.values
        values = self.values.copy()
        values[self.holes] = missing
        return values

    @cached_property
    def holes(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column of every missing value, in the order of the table."""
        missing = np.zeros(self.values.shape) if self.observed is None else ~self.observed
        row, column = np.nonzero(missing)
        return row, column

    @cached_property
    def weights(self) -> Array:
        """`observed` as numbers, to sum."""
        assert self.observed is not None
        return self.observed.astype(np.float64)

    @cached_property
    def turned(self) -> "MaskedTable":
        """The table of features by objects; its values are these, not a copy."""
        return MaskedTable(self.values.T, None if self.observed is None else self.observed.T)

    def residuals(self, means: Array) -> Array:
        """Return observed values less `means` (N, M), and 0 where they are missing."""
        found = self.values - means
        if self.observed is not None:
            found *= self.observed
        return found

    # -- what is observed -------------------------------------------------------------------------

    @property
    def patterns(self) -> NDArray[np.bool_]:
        """Distinct rows (P, M) of `observed`."""
        return self._grouped[0]

    @property
    def index(self) -> NDArray[np.int64]:
        """The pattern (N,) of every object."""
        return self._grouped[1]

    @cached_property
    def _grouped(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        n_objects, n_features = self.values.shape
        if self.observed is None:
            return np.ones((1, n_features), bool), np.zeros(n_objects, np.int64)
        packed = np.packbits(self.observed, axis=1)
        _, first, index = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        return self.observed[first], index.reshape(-1).astype(np.int64)

    @cached_property
    def n_of_object(self) -> NDArray[np.int64]:
        """Number of observed values of every object (N,)."""
        if self.observed is None:
            return np.full(len(self.values), self.values.shape[1])
        return self.observed.sum(axis=1)

    @cached_property
    def n_of_feature(self) -> NDArray[np.int64]:
        """Number of observed values of every feature (M,)."""
        return self.turned.n_of_object

    @property
    def n_values(self) -> int:
        """Number of observed values."""
        return int(self.n_of_object.sum())

    # -- sums -------------------------------------------------------------------------------------

    @cached_property
    def squares(self) -> Array:
        """Sum of the squared observed values of every object (N,)."""
        return np.square(self.values).sum(axis=1)

    @cached_property
    def column_squares(self) -> Array:
        """Sum of the squared observed values of every feature (M,)."""
        return np.square(self.values).sum(axis=0)

    @cached_property
    def scatter(self) -> Array:
        """Sum of x x' over all objects (M, M)."""
        return self.values.T @ self.values


def pattern_grams(
    patterns: NDArray[np.bool_], loadings: Array, noise: Array | None = None
) -> Array:
    """Sum, for each pattern (P, M), outer products of rows of loadings (M, k), times noise (M,)."""
    k = loadings.shape[1]
    found = np.zeros((len(patterns), k, k))
    counts = patterns.sum(axis=1)
    whole = counts == patterns.shape[1]
    noise = np.ones(len(loadings)) if noise is None else noise
    if whole.any():
        scaled = loadings * np.sqrt(noise)[:, None]
        found[whole] = scaled.T @ scaled
    some = np.flatnonzero(~whole & (counts > 0))
    if len(some):
        row, column = np.tril_indices(k)
        sums = np.zeros((len(some), len(row)))
        step = max(1, _MOST_PRODUCTS // max(len(row), 1))
        for start in range(0, len(loadings), step):
            own = loadings[start : start + step]
            products = own[:, row] * own[:, column] * noise[start : start + step, None]
            sums += patterns[some, start : start + step].astype(np.float64) @ products
        found[some[:, None], row, column] = sums
        found[some[:, None], column, row] = sums
    return found
