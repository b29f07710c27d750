r"""Networks over shards: given the labels of one axis, the objects of the other are independent.

Given these labels, all that an object's cells say is summed up for each cluster of the other axis:
the sum S of the cells' values (for the normal family that of their squares Q, too); how many cells
C there are is the same for all objects. With the logs of the densities, the log density of its
cells in cluster k is

.. math:: \sum_l S_l t_{kl} + C_l c_{kl} + Q_l q_{kl}

So an axis is drawn as a table is, and what its objects add up to are the blocks' sums.
"""

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.networks.families import (
    BERNOULLI,
    FAMILIES,
    NORMAL,
    POISSON,
    PRIORS,
    log_blocks,
    posterior,
)
from pm_match.networks.parts import Relation
from pm_match.numerics.kernels import entry
from pm_match.numerics.sums import add_up
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.sharded.data import Rows
from pm_match.sharded.evidence import Chunk, Scorer, ShardedEvidence, Sums, Wrong

# Logs, and log odds, of what is told from 0 and from infinity.
_MOST_LOG = 700.0
_LOG_2PI = float(np.log(2.0 * np.pi))


class CellRows:
    """The cells of a network, by the objects of one of its axes.

    `given`: what is not stored is zero. It has `n_rows`: objects on the axis; `in_memory`: bytes.
    Raise `TypeError` or `ValueError` if it is no matrix of numbers.
    """

    step: int | None = None
    _offset = 0

    def __init__(self, name: str, given: Any, axis: int):
        if not sp.issparse(given):
            given = np.asarray(given)
        if len(given.shape) != 2 or 0 in given.shape:
            raise ValueError(
                f"{name!r}: expected a network of shape (rows, columns), neither of them 0; found "
                f"{tuple(given.shape)}"
            )
        if given.dtype.kind not in "biuf":
            raise TypeError(f"{name!r}: expected numbers; found the dtype {given.dtype}")
        self.name = name
        own = sp.csc_array(given).T if axis else sp.csr_array(given)
        if not own.has_canonical_format:
            own = own.copy()
            own.sum_duplicates()
        self._cells, self.n_rows = own, own.shape[0]
        self.in_memory = sum(x.nbytes for x in (own.data, own.indices, own.indptr))

    def part(self, start: int, stop: int) -> Self:
        """Return what has some objects alone."""
        found = copy(self)
        found._cells, found._offset = self._cells[start:stop], start
        return found

    def rows(self, start: int, stop: int) -> sp.csr_array:
        """Read the cells of some objects, of which nothing is copied."""
        cells = self._cells
        ends = cells.indptr[start - self._offset : stop - self._offset + 1]
        own = slice(ends[0], ends[-1])
        found = sp.csr_array((len(ends) - 1, cells.shape[1]), dtype=cells.dtype)
        # SciPy copies what it is given if that is less than half of some array.
        found.data, found.indices, found.indptr = (
            cells.data[own],
            cells.indices[own],
            ends - ends[0],
        )
        return found


@entry
def add_cells(first, others, values, labels, n_labels, out):
    """Add each object's cells to `out` (n, L or 2 L) by the labels of the other objects.

    The second L columns, if there are any, are for squares. Cells with objects whose label is not
    known, -1, are left out.
    """
    squares = out.shape[1] > n_labels
    for row in range(out.shape[0]):
        for cell in range(first[row], first[row + 1]):
            label = labels[others[cell]]
            if label >= 0:
                x = values[cell]
                out[row, label] += x
                if squares:
                    out[row, n_labels + label] += x * x


class NetworkScorer(Scorer):
    """The cells of one axis' objects, in one or several networks that share their densities.

    `names`: the networks; `n_labels`: clusters of the other axis, L.
    """

    def __init__(self, family: int, axis: int, names: list[str], n_labels: int):
        self.family, self.axis, self.n_labels = family, axis, n_labels
        self.widths = dict.fromkeys(names)

    def source(self, name: str, given: Any, labels: Any) -> CellRows:
        """Read a network by the objects of the axis."""
        return CellRows(name, given, self.axis)

    def check(self, chunk: Chunk) -> Wrong | None:
        """Look for values that the family does not have."""
        if self.axis:
            # The same cells are looked at by rows.
            return None
        for name in self.widths:
            x = chunk[name].data
            wrong, expected = ~np.isfinite(x), "a finite number (missing cells are not served)"
            if self.family == BERNOULLI:
                wrong, expected = (x != 0) & (x != 1), "0 or 1"
            elif self.family == POISSON:
                wrong, expected = (x < 0) | (x != np.floor(x)) | wrong, "a whole number from 0"
            if wrong.any():
                place, cells = int(wrong.argmax()), chunk[name]
                row = int(np.searchsorted(cells.indptr, place, side="right")) - 1
                column = int(cells.indices[place])
                return name, (row, column), expected
        return None

    def prepared(self, chunk: Chunk, context: Mapping[str, NDArray]) -> Chunk:
        """Sum up each object's cells by the labels of the other axis: (n, L), or (n, 2 L)."""
        width = self.n_labels * (2 if self.family == NORMAL else 1)
        found = {}
        for name in self.widths:
            own = chunk[name]
            found[name] = np.zeros((own.shape[0], width))
            first, others = own.indptr.astype(np.int64), own.indices.astype(np.int64, copy=False)
            values = own.data.astype(np.float64, copy=False)
            add_cells(first, others, values, context[name], self.n_labels, found[name])
        return found

    def table(self, chunk: Chunk, parameters: tuple[NDArray, NDArray]) -> NDArray[np.float64]:
        """Log density by loadings (T, L or 2 L) of sums, and a constant (T,)."""
        loadings, constants = parameters
        return sum((chunk[name] @ loadings.T for name in self.widths), constants)

    def statistics(
        self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: object = None
    ) -> Sums:
        """Objects (T,), and sums of cells (T, L or 2 L)."""
        found = np.zeros((n_clusters, next(iter(chunk.values())).shape[1]))
        for name in self.widths:
            add_up(chunk[name], labels, found)
        return np.bincount(labels, minlength=n_clusters).astype(np.float64), found


class ShardedRelation(ShardedEvidence):
    """Networks that share their densities, given sums of their blocks.

    Raise `UnservedModelError` if the objects of one axis depend on each other, or cells are not
    known zeros and values.
    """

    def __init__(self, model: Model, relation: Relation, component: Component):
        _check_served(relation)
        self.relation, self.family = relation, FAMILIES[relation.family]
        self.names = list(relation.density)
        self._points, self._conjugate = Writer(model, relation.names), PRIORS[self.family]
        clusterings = [component.clusterings[number] for number in relation.axes]
        # The assignments of both axes, by network.
        self._ends = {
            name: tuple(
                next(own for own, at in clustering.slices.items() if at.start == first)
                for clustering, first in zip(clusterings, network.first, strict=True)
            )
            for name, network in relation.networks.items()
        }
        self._axis_of = {own[axis]: axis for own in self._ends.values() for axis in (0, 1)}
        self._n_labels = [own.truncation for own in clusterings]
        self.watched = list(self._axis_of)
        self.scorers = {
            assignment: NetworkScorer(
                self.family, axis, self._networks(assignment), self._n_labels[1 - axis]
            )
            for assignment, axis in self._axis_of.items()
        }

    def _networks(self, assignment: str) -> list[str]:
        return [name for name, own in self._ends.items() if assignment in own]

    def check_sample(
        self, sources: Mapping[str, Mapping[str, Rows]], places: Mapping[str, NDArray]
    ) -> None:
        """Check that the networks of the model are parts of those that are given.

        Raise `ValueError` if a cell differs.
        """
        for name, network in self.relation.networks.items():
            rows, columns = (places[own] for own in self._ends[name])
            source = sources[self._ends[name][0]][name]
            found = source.rows(0, source.n_rows)[rows][:, columns]
            own = sp.csr_array((network.values, tuple(network.index.T)), shape=network.shape)
            differ = (found.astype(np.float64) != own).tocoo()
            if differ.nnz:
                i, j = (int(x[0]) for x in differ.coords)
                raise ValueError(
                    f"{name!r}, row {rows[i]}, column {columns[j]}: expected {own[i, j]:g}, as in "
                    f"row {i}, column {j} of the model's sample; found {found[i, j]:g}. `sampled` "
                    "says which objects the sample has"
                )

    def look(self, labels: Mapping[str, NDArray]) -> None:
        """Take the labels of all objects, and count those of each cluster of the other axis."""
        self._labels = labels
        self._masses = {}
        for assignment, axis in self._axis_of.items():
            n_labels = self._n_labels[1 - axis]
            self._masses[assignment] = np.zeros(n_labels)
            for name in self._networks(assignment):
                own = labels[self._ends[name][1 - axis]]
                self._masses[assignment] += np.bincount(own[own >= 0], minlength=n_labels)

    def context(self, assignment: str) -> dict[str, NDArray]:
        """Return the labels of the other axis, by network."""
        other = 1 - self._axis_of[assignment]
        names = self._networks(assignment)
        return {name: self._labels[self._ends[name][other]] for name in names}

    # -- densities --------------------------------------------------------------------------------

    def _read(self, point: Point) -> list[NDArray[np.float64]]:
        """Read densities, as they are drawn."""
        with np.errstate(divide="ignore"):
            *first, last = self._conjugate.read(self._points, point, self.relation.density)
        # What rounds to a density of 0 or 1 is not quite that (see `points.from_log_odds`).
        return [*first, np.clip(last, -_MOST_LOG, _MOST_LOG)]

    def _coefficients(self, values: list[NDArray]) -> list[NDArray[np.float64]]:
        """Return what a cell's log density has of its value, of itself, and of its square."""
        if self.family == NORMAL:
            mean, log_precision = values
            precision = np.exp(log_precision)
            constant = 0.5 * (log_precision - _LOG_2PI - precision * np.square(mean))
            return [mean * precision, constant, -0.5 * precision]
        (value,) = values
        constant = -np.logaddexp(0.0, value) if self.family == BERNOULLI else -np.exp(value)
        return [value, constant]

    def _loadings(self, assignment: str, coefficients: list[NDArray]) -> tuple[NDArray, NDArray]:
        """Return what `NetworkScorer.table` multiplies sums by, and adds."""
        of_values, of_cells, *of_squares = coefficients
        loadings = np.hstack([of_values, *of_squares]) if of_squares else of_values
        return loadings, of_cells @ self._masses[assignment]

    def parameters(self, point: Point) -> dict[str, tuple[NDArray, NDArray]]:
        """Return loadings and constants of the objects on either axis."""
        found = self._coefficients(self._read(point))
        return {
            assignment: self._loadings(assignment, [own.T for own in found] if axis else found)
            for assignment, axis in self._axis_of.items()
        }

    def _blocks(self, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """S, C and Q (3, T, L) of all blocks, from sums by the objects of one axis."""
        counts, rows = next(iter(sums.values()))
        width = rows.shape[1] // (2 if self.family == NORMAL else 1)
        found = np.zeros((3, len(counts), width))
        for assignment, (counts, rows) in sums.items():
            found[0] += rows[:, :width]
            found[1] += np.outer(counts, self._masses[assignment])
            if self.family == NORMAL:
                found[2] += rows[:, width:]
        return found

    def _prior(self, point: Point) -> NDArray[np.float64]:
        return np.array(self.relation.prior(point)[0])

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw the densities from their conjugate conditional."""
        blocks = self._blocks(sums)
        if self._axis_of[next(iter(sums))]:
            blocks = blocks.transpose(0, 2, 1)
        drawn = self._conjugate.draw(rng, posterior(self.family, self._prior(new), *blocks))
        self._conjugate.write(self._points, new, self.relation.density, drawn)

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, tuple[NDArray, NDArray]]:
        """Draw the densities of some clusters."""
        given = posterior(self.family, self._prior(point), *self._blocks(sums))
        found = self._coefficients(self._conjugate.draw(rng, given))
        return {assignment: self._loadings(assignment, found) for assignment in sums}

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Sum the log marginals of each cluster's blocks."""
        blocks, prior = self._blocks(sums), self._prior(point)
        none, counted = np.zeros((3, 0)), np.ones(blocks.shape[2], np.bool_)
        return np.array(
            [
                log_blocks(self.family, prior, none, np.ascontiguousarray(blocks[:, j]), counted)
                for j in range(blocks.shape[1])
            ]
        )


def _check_served(relation: Relation) -> None:
    names = ", ".join(map(repr, relation.networks))
    if relation.family == "negative-binomial":
        raise UnservedModelError(
            f"{names}: over shards, expected family 'bernoulli', 'poisson' or 'normal'; found "
            f"{relation.family!r}"
        )
    if len(relation.axes) != 2 or len(set(relation.axes)) != 2:
        raise UnservedModelError(
            f"{names}: over shards, expected two axes, with clusters of their own: only then are "
            "the objects of one independent given the labels of the other"
        )
    for name, network in relation.networks.items():
        exposed = any(own is not None for own in network.exposure)
        if not network.full or len(network.unknown) or exposed:
            raise UnservedModelError(
                f"{name!r}: over shards, expected a network all of whose cells are known, "
                "without exposures"
            )
