"""Independent columns over shards.

Every family is exponential: the log density of a cell is t(x) . eta(parameters), up to what only
the cell enters, and the sums of t(x) are all that the parameters' conditional needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.conjugate import DIRICHLET, Conjugate
from pm_match.columns.families import FAMILIES
from pm_match.columns.parts import Columns
from pm_match.columns.state import ColumnsPoints
from pm_match.numerics.sums import add_up
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.sharded.evidence import Chunk, Scorer, ShardedEvidence, Sums, Wrong, first


@dataclass(frozen=True, eq=False)
class _Variable:
    """One observed variable."""

    name: str
    family: int  # its number
    # column, known (R,): positions of its columns, and what is known of them
    column: NDArray[np.int64]
    known: NDArray[np.float64]
    width: int | None  # see `Scorer.widths`
    power: float  # to which densities count


class ColumnsScorer(Scorer):
    """The columns of one assignment's objects."""

    def __init__(
        self, prior: Conjugate, variables: list[_Variable], n_columns: int, n_categories: int
    ):
        self.prior, self.variables = prior, variables
        self.n_columns, self.n_categories = n_columns, n_categories
        self.widths = {own.name: own.width for own in variables}

    def _cells(self, own: _Variable, values: NDArray) -> tuple[NDArray, NDArray]:
        """Return cells (n R,) or rows of counts (n, K), and what is known of them."""
        values = np.asarray(values, np.float64)
        if FAMILIES[own.family].rows:
            return values, values.sum(axis=1)
        values = values if values.ndim == 2 else values[:, None]
        return values.ravel(), np.broadcast_to(own.known, values.shape).ravel()

    def _sufficient(self, own: _Variable, values: NDArray) -> NDArray[np.float64]:
        """Sufficient statistics t(x) of a variable's cells (n, R * k)."""
        x, known = self._cells(own, values)
        (cell, category, found), _ = FAMILIES[own.family].coarsened(x, known, own.power)
        if self.prior.code == DIRICHLET:
            dense = np.zeros((len(x), self.n_categories))
            dense[cell, category] = found[:, 0]
        else:
            dense = self.prior.additive(found)
        return dense.reshape(len(values), len(own.column) * dense.shape[1])

    def check(self, chunk: Chunk) -> Wrong | None:
        """Look for missing values, and values that the families do not have."""
        found = super().check(chunk)
        for own in self.variables if found is None else ():
            family = FAMILIES[own.family]
            fine = np.asarray(family.supports(*self._cells(own, chunk[own.name])))
            if not fine.all():
                return own.name, first(~fine.reshape(chunk[own.name].shape)), family.expects
        return found

    def scored(self, chunk: Chunk) -> Chunk:
        """Bring every variable to its sufficient statistics."""
        return {own.name: self._sufficient(own, chunk[own.name]) for own in self.variables}

    def table(self, chunk: Chunk, parameters: NDArray) -> NDArray[np.float64]:
        """Log density by the loadings (T, M, k) of the clusters' parameters."""
        n = len(parameters)
        return reduce(
            np.add,
            (
                chunk[own.name] @ parameters[:, own.column].reshape(n, -1).T
                for own in self.variables
            ),
        )

    def statistics(
        self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: object = None
    ) -> Sums:
        """Add up sufficient statistics (T, M, k)."""
        parts = []
        for own in self.variables:
            rows = chunk[own.name]
            sums = np.zeros((n_clusters, rows.shape[1]))
            add_up(rows, labels, sums)
            parts.append(sums.reshape(n_clusters, len(own.column), -1))
        columns = np.concatenate([own.column for own in self.variables])
        found = np.zeros((n_clusters, self.n_columns, parts[0].shape[2]))
        np.add.at(found.swapaxes(0, 1), columns, np.concatenate(parts, axis=1).swapaxes(0, 1))
        return (found,)


class ShardedColumns(ShardedEvidence):
    """Columns whose parameters have one conjugate prior, given sums of their statistics."""

    def __init__(self, model: Model, columns: Columns, component: Component):
        self.columns, self._points = columns, ColumnsPoints(model, columns)
        self.names = columns.names
        by_assignment: dict[str, list[_Variable]] = {}
        for cells in columns.cells:
            layout = cells.layout
            if layout is None or cells.varying or cells.missing or np.isnan(layout.known).any():
                raise UnservedModelError(
                    f"{cells.name!r}: over shards, expected a table with a row for each object, "
                    "nothing missing, and the same known numbers (trials, exposures, noise) in "
                    "every row"
                )
            family, width = FAMILIES.index(cells.family), next(iter(layout.shape[1:]), None)
            own = _Variable(cells.name, family, layout.column, layout.known, width, cells.power)
            by_assignment.setdefault(cells.assignment, []).append(own)
        self.scorers = {
            name: ColumnsScorer(columns.prior, own, columns.n_columns, columns.n_categories)
            for name, own in by_assignment.items()
        }

    def parameters(self, point: Point) -> dict[str, NDArray[np.float64]]:
        """Return the loadings (T, M, k) of the clusters' parameters."""
        loadings = self.columns.prior.loadings(self._points.read_parameters(point))
        return dict.fromkeys(self.scorers, loadings)

    def _held(self, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        return np.sum([own[0] for own in sums.values()], axis=0)

    def _drawn(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> list[NDArray[np.float64]]:
        prior = self.columns.prior
        held = prior.held(self._held(sums))
        return prior.draw(rng, prior.posterior(self.columns.hyper(point), held))

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw the parameters of all clusters from their conjugate conditional."""
        self._points.write_parameters(new, self._drawn(rng, new, sums))

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, NDArray[np.float64]]:
        """Draw parameters of some clusters."""
        loadings = self.columns.prior.loadings(self._drawn(rng, point, sums))
        return dict.fromkeys(self.scorers, loadings)

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log normalisers of posterior and prior, by the plain formula."""
        prior, hyper, held = self.columns.prior, self.columns.hyper(point), self._held(sums)
        after, before = prior.update(hyper, held), prior.update(hyper, np.zeros_like(held[:1]))
        return (prior.log_normaliser(after) - prior.log_normaliser(before)).sum(axis=-1)
