"""What is read of independent columns."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.conjugate import DIRICHLET, Conjugate
from pm_match.columns.families import Family, Statistics
from pm_match.reading.evidence import Evidence, Point


@dataclass(frozen=True, eq=False)
class RowLayout:
    """A table whose rows are of one object each, in order, and have the same columns."""

    shape: tuple[int, ...]  # of the whole variable
    column: NDArray[np.int64]  # (R,): the column of each cell of a row
    known: NDArray[np.float64]  # (R,): what is known of each; NaN where it differs between rows


@dataclass(frozen=True, eq=False)
class Missing:
    """The cells of a variable that are missing, which a free variable holds."""

    name: str
    shape: tuple[int, ...]
    # object, column (C,)
    object: NDArray[np.int64]
    column: NDArray[np.int64]
    known: NDArray[np.float64]  # (C,)
    whole: NDArray[np.float64]  # all values of the variable, NaN where they are missing
    # (C,): the number of each of the missing cells, in the order of the whole
    number: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one observed variable."""

    name: str  # as the user named it
    assignment: str
    family: Family
    # object, column (C,): the object of every cell that is observed, and the entry of the
    # parameters' rows
    object: NDArray[np.int64]
    column: NDArray[np.int64]
    known: NDArray[np.float64]  # (C,): what is known besides
    statistics: Statistics  # (E,), (E,), (E, 2): sufficient statistics (see `families.Statistics`)
    log_base: float  # what only the data enter
    layout: RowLayout | None  # None if the variable is no table with a row for each object
    missing: Missing | None
    # from a point to what is known of cells, and of missing ones, if that depends on free
    # variables; and the values
    varying: Callable[[Point], list[NDArray[np.float64]]] | None = None
    values: NDArray[np.float64] | None = None
    power: float = 1.0  # to which densities of observed cells count

    def at(self, point: Point) -> tuple[Statistics, float]:
        """Return sufficient statistics, and what only the data enter, at a point."""
        if self.varying is None or self.values is None:
            return self.statistics, self.log_base
        return self.family.coarsened(self.values, self.varying(point)[0], self.power)

    def missing_known(self, point: Point) -> NDArray[np.float64]:
        """Return what is known of missing cells."""
        assert self.missing is not None
        return self.missing.known if self.varying is None else self.varying(point)[1]


@dataclass(frozen=True, eq=False)
class Columns(Evidence):
    """Columns whose parameters have one conjugate prior, and all that is seen of them."""

    kind = "columns"

    clustering: int  # the number of the clustering whose objects they are of
    prior: Conjugate
    parameters: tuple[str, ...]  # the variables with the parameters, a row for each cluster
    shapes: tuple[tuple[int, ...], ...]  # their shapes
    cells: tuple[Cells, ...]  # of every observed variable
    _hyper: Callable[[Point], NDArray] = field(repr=False)

    @property
    def truncation(self) -> int:
        """T, the number of clusters."""
        return self.shapes[0][0]

    @property
    def n_columns(self) -> int:
        """M, how many parameters with a prior of their own a cluster has."""
        return int(np.prod(self.shapes[0][1 : -1 if self.prior.vector else None]))

    @property
    def n_categories(self) -> int:
        """K of a Dirichlet prior, 2 of a Beta prior, 1 of others."""
        return self.shapes[0][-1] if self.prior.vector else 1 + (self.prior.code == DIRICHLET)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        missing = [cells.missing.name for cells in self.cells if cells.missing]
        return [*self.parameters, *missing]

    @property
    def hyperpriors(self) -> list[str]:
        """All parameters: their priors may have free hyperparameters."""
        return list(self.parameters)

    @property
    def relabelled(self) -> list[str]:
        """The parameters of clusters."""
        return list(self.parameters)

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """The parameters, a row for each cluster."""
        return {key: {0: self.clustering} for key in self.parameters}

    @property
    def handed_on(self) -> list[str]:
        """Steps of what the priors depend on are given the parameters."""
        return list(self.parameters)

    def hyper(self, point: Point) -> NDArray[np.float64]:
        """Parameters of the prior at a point: (M, h), or (M, K) for probabilities."""
        return self._hyper(point)
