"""What independent columns say of new objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import scipy
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.checks import plain
from pm_match.clusters.conjugate import NormalGammaPrior, NormalPrior
from pm_match.columns.entries import Entries, entries, joined
from pm_match.columns.parts import Cells, Columns, RowLayout
from pm_match.columns.state import ColumnsState
from pm_match.columns.term import add_gains
from pm_match.prediction.mixture import (
    CATEGORIES,
    LEAST,
    NUMBERS,
    CategoryLaw,
    Law,
    LogNormalLaw,
    NormalLaw,
)
from pm_match.prediction.predictor import Holes, NewTables, Place, Predictor, coords
from pm_match.reading.parts import UnservedModelError
from pm_match.tables.domains import as_new_columns

# Over draws of rates and probabilities near zero, these may have no mean.
_WITHOUT_MEAN = ("Exponential", "Geometric", "NegativeBinomial")
# And so may normal ones, over draws of precisions whose prior has no larger shape: they are t, with
# a degree or less.
_LARGEST_WITHOUT_MEAN = 0.5


class ColumnsPredictor(Predictor):
    """The clusters of columns at a draw.

    Of new objects it has values (N, R) or (N, R, K), and what is known of them (N, R).
    """

    def __init__(self, model: Model, columns: Columns, state: ColumnsState):
        self.columns, self._state = columns, state
        self._least_shape = np.inf  # of precisions' priors, at all draws
        # Of new objects: the same at all draws.
        self._known: WeakKeyDictionary[NewTables, tuple[Entries, NDArray]] = WeakKeyDictionary()

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables of an assignment's objects."""
        return [cells.name for cells in self._of(place)]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewTables, list[tuple[str, NDArray]]]:
        """Check tables of new objects: columns with labels are matched by these."""
        found, labels = {}, []
        for name, table in given.items():
            cells = next(c for c in self.columns.cells if c.name == name)
            found[name], objects = _read(model, place, self.columns, cells, table)
            labels.append((name, objects))
        return NewTables(found), labels

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Remember the draw that the state is at."""
        self._point, self._labels = point, labels[self.columns.clustering]
        if isinstance(self.columns.prior, NormalGammaPrior):
            shapes = self.columns.hyper(point)[:, 2]
            self._least_shape = min(self._least_shape, shapes.min())

    def log_predictive(self, place: Place, seen: NewTables) -> NDArray[np.float64]:
        """Log predictive of the values, the parameters integrated out.

        Where the densities of the data count to a power, those of new objects count in full.
        """
        if seen not in self._known:
            self._known[seen] = self._entries(place, seen)
        new, base = self._known[seen]
        slot_of = self._state.site.slot_of(self.columns.clustering)
        n_slots = int(self._state.site.partitions[self.columns.clustering].n_slots[0])
        gains = np.zeros((len(base), n_slots))
        add_gains(self._state.term, new.start, new.position, new.statistic, n_slots, gains)
        return base[:, None] + np.append(gains[:, slot_of], np.zeros((len(base), 1)), axis=1)

    def _entries(self, place: Place, seen: NewTables) -> tuple[Entries, NDArray[np.float64]]:
        """Return the statistics of new objects, and what only the data enter (N,)."""
        columns, code = self.columns, self.columns.prior.code
        n = len(next(iter(seen.arrays.values()))[0])
        # Several variables of a draw's parameters are one another's evidence: they are added first.
        units: list[NDArray] = []
        positions, statistics, base = [], [], np.zeros(n)
        for cells in self._of(place):
            if cells.name not in seen.arrays:
                continue
            values, known = seen.arrays[cells.name]
            row, place_in_row = np.nonzero(~np.isnan(values.reshape(*known.shape, -1)[..., 0]))
            x, known = values[row, place_in_row], known[row, place_in_row]
            cell, category, own = cells.family.statistics(x, known)
            statistics.append((cell + sum(len(unit) for unit in units), category, own))
            units.append(row)
            positions.append(_layout(cells).column[place_in_row])
            base += np.bincount(row, cells.family.log_base(x, known), n)
        found = entries(
            code,
            columns.n_columns,
            columns.n_categories,
            n,
            np.concatenate(units),
            np.concatenate(positions),
            joined(statistics),
        )
        return found, base

    def _of(self, place: Place) -> list[Cells]:
        """Return the variables of an assignment's objects."""
        return [c for c in self.columns.cells if c.assignment == place.assignment.name]

    # -- missing values ---------------------------------------------------------------------------

    def holes(self, place: Place, seen: NewTables | None = None) -> list[Holes]:
        """Give the variables with missing values; new rows of counts say nothing of their total."""
        found = []
        for cells in self._of(place):
            if seen is None and cells.missing:
                values = cells.missing.whole
            elif seen is not None and cells.name in seen.arrays and not cells.family.rows:
                values = seen.arrays[cells.name][0]
                values = values[:, 0] if len(_layout(cells).shape) == 1 else values
            else:
                continue
            if np.isnan(values).any():
                by_object = seen is not None or cells.layout is not None
                found.append(self._holes(cells, values, by_object))
        return found

    def _holes(self, cells: Cells, values: NDArray, by_object: bool) -> Holes:
        family = cells.family

        def law(parameters: NDArray) -> Law | CategoryLaw:
            if family.categories:
                return CategoryLaw(parameters)
            *natural, known = np.moveaxis(parameters, -1, 0)
            if family.rows:
                # Each of a row of counts by itself is binomial.
                return Law(scipy.stats.binom, known, *natural)
            if isinstance(family.prior, NormalPrior):
                with np.errstate(divide="ignore"):
                    sd = [*natural, known][1] ** -0.5
                if family.name == "LogNormal":
                    return LogNormalLaw(natural[0], sd)
                return NormalLaw(natural[0], sd, self._least_shape <= _LARGEST_WITHOUT_MEAN)
            own = family.law([np.maximum(own, LEAST) for own in natural], known)
            return Law(*own, median=family.name in _WITHOUT_MEAN)

        said = CATEGORIES if family.categories else NUMBERS
        return Holes(cells.name, cells.name, values, law, said, by_object)

    def of_missing(self, rng, place, holes, wanted):
        """Draw the parameters of missing values from their conditional given the labels."""
        columns, state = self.columns, self._state
        (cells,) = (c for c in columns.cells if c.name == holes.variable)
        prior, missing = columns.prior, cells.missing
        assert missing is not None
        drawn = prior.draw(rng, prior.posterior(columns.hyper(self._point), state.held()))
        n, category = np.arange(np.isnan(holes.values).sum())[wanted], 0
        if cells.family.rows:
            n, category = np.divmod(n, columns.n_categories)
        number = missing.number[n]
        natural = [v[number] for v in state.of_missing(cells, prior.natural(drawn), self._labels)]
        if cells.family.rows:
            natural = [natural[0][np.arange(len(n)), category]]
        return _parameters(natural, cells.missing_known(self._point)[number])

    def of_new(self, rng, place, seen, holes, log_weight):
        """Draw the parameters of missing values in every cluster that the objects might be in."""
        columns, state, prior = self.columns, self._state, self.columns.prior
        (cells,) = (c for c in columns.cells if c.name == holes.variable)
        hyper, held, new = columns.hyper(self._point), state.held(), self._entries(place, seen)[0]
        own = np.zeros((len(log_weight), *state.term.sums.shape[::2]))
        unit = np.repeat(np.arange(len(own)), np.diff(new.start))
        own[unit, new.position] = new.statistic[:, : own.shape[2]]
        own = state.by_column(own)
        hidden, known = np.isnan(seen.arrays[cells.name][0]), seen.arrays[cells.name][1]
        for pattern in np.unique(hidden[hidden.any(axis=1)], axis=0):
            rows = np.flatnonzero((hidden == pattern).all(axis=1))
            column = _layout(cells).column[pattern]
            both = prior.together(held[:, column], own[np.ix_(rows, column)][:, None])
            natural = prior.natural(prior.draw(rng, prior.posterior(hyper[column], both)))
            of_each = known[np.ix_(rows, pattern)][:, None]
            yield rows, pattern, log_weight[rows, :-1], _parameters(natural, of_each)


def _layout(cells: Cells) -> RowLayout:
    """Return the layout of a variable that new objects are seen by."""
    assert cells.layout is not None
    return cells.layout


def _parameters(natural: Sequence[NDArray], known: NDArray) -> NDArray[np.float64]:
    """Put parameters, and what is known, into one array (..., h)."""
    if natural[0].ndim > known.ndim:
        return natural[0]
    return np.stack(np.broadcast_arrays(*natural, known), axis=-1)


def _read(model: Model, place: Place, columns: Columns, cells: Cells, table: Any):
    """Check the values of new objects of one variable; return cells, and the objects' labels."""
    layout, family, where = cells.layout, cells.family, f"{place.domain}: {cells.name}"
    rows = family.rows
    if layout is None or cells.varying or len(layout.shape) > (1 if rows else 2):
        raise UnservedModelError(
            f"new objects of {where!r}: expected a table with a row for each object, and known "
            "noise; predictions of others are not served"
        )
    wide = rows or len(layout.shape) == 2
    n_columns = columns.n_categories if rows else len(layout.column)
    labels = coords(model, cells.name, 1) if wide else None
    values, objects = as_new_columns(where, table, labels, n_columns if wide else None)
    seen = ~np.isnan(values)
    if rows:
        # How many there are shows.
        x, known = values[:, None], values.sum(axis=1, keepdims=True)
        fine = seen.all(axis=1, keepdims=True) | ~seen.any(axis=1, keepdims=True)
    else:
        x, known = values, np.broadcast_to(layout.known, values.shape)
        if np.isnan(known).any():
            raise UnservedModelError(
                f"new objects of {where!r}: what is known of its columns (numbers of trials, "
                "exposures, noise) differs between objects, so that it is not known of new ones"
            )
        fine = np.ones(values.shape, bool)
    with np.errstate(invalid="ignore"):
        of_each = (x[:, 0], known[:, 0]) if rows else (x, known)
        supported = np.asarray(family.supports(*of_each)).reshape(values.shape) | ~seen
    wrong = np.argwhere(~(supported & fine))
    if len(wrong):
        i, j = wrong[0].tolist()
        column = f"{j} of {cells.name!r}" if labels is None else f"{plain(labels[j])!r}"
        raise ValueError(
            f"new objects of {place.domain!r}, row {plain(objects[i])!r}, column "
            f"{column if wide else repr(cells.name)}: expected {family.expects}; found "
            f"{values[i, j]}"
        )
    return (x, known), objects
