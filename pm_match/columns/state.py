"""Independent columns in a collapsed state."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.conjugate import DIRICHLET, GAMMA, NORMAL
from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.clusters.points import Writer
from pm_match.clusters.sweep import capacity
from pm_match.columns.entries import Entries, entries, joined, new_term, positions, single_weights
from pm_match.columns.parts import Cells, Columns, Missing
from pm_match.columns.term import rebuild
from pm_match.numerics.ahead import Job, job


class ColumnsPoints(Writer):
    """Reads and writes the parameters of columns, and missing values."""

    def __init__(self, model: Model, columns: Columns):
        super().__init__(model, columns.names)
        self._columns = columns

    def write_parameters(self, point: dict[str, NDArray], drawn: Sequence[NDArray]) -> None:
        """Write the parameters (T, M) or (T, M, K) into a new point, as the prior draws them."""
        own = self._columns
        shaped = [d.reshape(shape) for d, shape in zip(drawn, own.shapes, strict=True)]
        own.prior.write(self, point, own.parameters, shaped)

    def read_parameters(self, point: Point) -> list[NDArray[np.float64]]:
        """Read what `write_parameters` writes."""
        own = self._columns
        shape = own.truncation, own.n_columns, *([own.n_categories] if own.prior.vector else [])
        return [x.reshape(shape) for x in own.prior.read(self, point, own.parameters)]

    def write_missing(self, point: dict[str, NDArray], missing: Missing, values: NDArray) -> None:
        """Write missing values (C,) or (C, K) into a new point."""
        name, values = missing.name, values.reshape(missing.shape)
        self.write(point, {name: np.log(values) if self.transformed[name] else values})

    def read_missing(self, point: Point, missing: Missing) -> NDArray[np.float64]:
        """Read missing values (C,) or (C, K)."""
        found = np.asarray(self.read_positive(point, missing.name), np.float64)
        rows = found.shape[found.ndim - 1 :] if found.size > len(missing.object) else ()
        return found.reshape(len(missing.object), *rows)


class ColumnsState(EvidenceState):
    """The evidence of independent columns, for the units of a site."""

    def __init__(self, columns: Columns, site: Site, points: ColumnsPoints):
        self.columns, self.site, self.points = columns, site, points
        number, prior = columns.clustering, columns.prior
        clustering = site.clusterings[number]
        self._of_object, self._n_units = site.units[number].of_object, len(site.units[number].size)
        self._first = {name: own.start for name, own in clustering.slices.items()}
        self._statistics = [(cells.statistics, cells.log_base) for cells in columns.cells]
        continuous = prior.code >= NORMAL or any(
            cells.family.name == "Exponential" for cells in columns.cells
        )
        self.term = new_term(
            prior.code,
            positions(prior.code, columns.n_columns, columns.n_categories),
            capacity(columns.truncation),
            self._entries(),
            continuous,
        )
        self._varying = any(cells.varying for cells in columns.cells)
        self._set_constant()
        self.terms = [(number, self.term)]

    def objects(self, cells: Cells) -> NDArray[np.int64]:
        """Return the objects of a variable's cells, as the clustering numbers them."""
        return cells.object + self._first[cells.assignment]

    def _entries(self) -> Entries:
        """Add up the present statistics of all variables."""
        columns = self.columns
        units = [self._of_object[self.objects(cells)] for cells in columns.cells]
        first = np.cumsum([0, *(len(unit) for unit in units)])
        triples = [
            (cell + start, category, values)
            for ((cell, category, values), _), start in zip(self._statistics, first, strict=False)
        ]
        return entries(
            columns.prior.code,
            columns.n_columns,
            columns.n_categories,
            self._n_units,
            np.concatenate(units),
            np.concatenate([cells.column for cells in columns.cells]),
            joined(triples),
        )

    def _set_constant(self) -> None:
        self.term.constant[0] = sum(log_base for _, log_base in self._statistics)

    def load_prior(self, point: Point) -> None:
        """Bring the prior to a point."""
        hyper, term = self.columns.hyper(point), self.term
        if term.code[0] == DIRICHLET:
            total = hyper.sum(axis=1)
            found = np.concatenate([hyper.ravel(), total])
            found = np.stack([found, np.repeat([1.0, -1.0], [hyper.size, total.size])], axis=1)
        elif term.code[0] == GAMMA:
            found = np.column_stack([hyper, np.log(hyper[:, 1])])
        else:
            found = hyper
        if not np.array_equal(term.prior[:, : found.shape[1]], found):
            term.prior[:, : found.shape[1]] = found
            term.stale[0] = 2

    def kernels(self) -> list[Job]:
        """List what the state is made by."""
        return [job(rebuild, self.term, self.site.slots(self.columns.clustering))]

    def load(self, point: Point) -> None:
        """Bring the sums to the units' slots, and what is known of the data to a point."""
        if self._varying:
            self._statistics = [cells.at(point) for cells in self.columns.cells]
            own = self._entries()
            self.term.statistic[:] = own.statistic
            self.term.weight[:] = single_weights(own.position, own.statistic, len(self.term.weight))
            self._set_constant()
        rebuild(self.term, self.site.slots(self.columns.clustering))

    def log_factor(self, point: Point) -> float:
        """Log evidence as a function of hyperparameters, and of noise that is free."""
        if self._varying:
            self.load(point)
        return super().log_factor(point)

    # -- draws ------------------------------------------------------------------------------------

    def held(self) -> NDArray[np.float64]:
        """Return the sufficient statistics of every label, as the term has them (T, M, k)."""
        slot_of = self.site.slot_of(self.columns.clustering)
        return self.by_column(np.swapaxes(self.term.sums[:, slot_of], 0, 1))

    def by_column(self, statistics: NDArray[np.float64]) -> NDArray[np.float64]:
        """Arrange statistics (..., P, k) by column (..., M, k), or (..., M, K) for categories."""
        columns = self.columns
        if columns.prior.code != DIRICHLET:
            return statistics
        n = columns.n_columns * columns.n_categories
        shape = (columns.n_columns, columns.n_categories)
        return statistics[..., :n, 0].reshape(*statistics.shape[:-2], *shape)

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw the parameters of all clusters, and missing values given these."""
        columns = self.columns
        drawn = columns.prior.draw(rng, columns.prior.posterior(columns.hyper(point), self.held()))
        self.points.write_parameters(new, drawn)
        natural = columns.prior.natural(drawn)
        labels = self.site.labels(columns.clustering)
        for cells in columns.cells:
            if cells.missing:
                values = cells.family.draw(
                    rng, self.of_missing(cells, natural, labels), cells.missing_known(point)
                )
                self.points.write_missing(new, cells.missing, values)

    def of_missing(self, cells: Cells, natural, labels) -> list[NDArray[np.float64]]:
        """Return the parameters of missing cells."""
        missing = cells.missing
        assert missing is not None
        label = labels[missing.object + self._first[cells.assignment]]
        return [value[label, missing.column] for value in natural]

    # -- plain formulas, for tests ----------------------------------------------------------------

    def _natural(self, point: Point, labels: NDArray) -> tuple[NDArray, NDArray]:
        """Natural parameters (T, M, h) of posterior and prior, cell by cell."""
        columns = self.columns
        prior, shape = columns.prior, (columns.truncation, columns.n_columns)
        found: list[NDArray] = []
        for cells in columns.cells:
            (cell, category, values), _ = cells.at(point)
            label, column = labels[self.objects(cells)[cell]], cells.column[cell]
            if prior.code == DIRICHLET:
                found.append(np.zeros((*shape, columns.n_categories)))
                np.add.at(found[-1], (label, column, category), values[:, 0])
            else:
                own = prior.additive(values)
                found.append(np.zeros((*shape, own.shape[1])))
                np.add.at(found[-1], (label, column), own)
        hyper, total = columns.hyper(point), np.sum(found, axis=0)
        return prior.update(hyper, total), prior.update(hyper, np.zeros_like(total))

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood: log normalisers of posterior and prior, cluster by cluster."""
        prior = self.columns.prior
        after, before = self._natural(point, labels[self.columns.clustering])
        total = (prior.log_normaliser(after) - prior.log_normaliser(before)).sum()
        for cells in self.columns.cells:
            (_, _, values), log_base = cells.at(point)
            total += log_base
            if prior.code == NORMAL:
                # Of its parameters and sums, none has squares of values.
                total -= 0.5 * (values[:, 0] * values[:, 1] ** 2).sum()
        return float(total)

    def log_conditional(self, point: Point) -> float:
        """Log density of parameters and missing values given all else."""
        columns = self.columns
        labels = self.site.labels(columns.clustering)
        drawn = self.points.read_parameters(point)
        natural = columns.prior.natural(drawn)
        posterior = columns.prior.posterior(columns.hyper(point), self.held())
        total = columns.prior.log_density(posterior, drawn)
        for cells in columns.cells:
            if cells.missing:
                x = self.points.read_missing(point, cells.missing)
                own = self.of_missing(cells, natural, labels)
                known = cells.missing_known(point)
                total += float(cells.family.log_density(x, own, known).sum())
        return total
