"""What independent columns say of new objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.columns.entries import entries, joined
from pm_match.columns.parts import Cells, Columns
from pm_match.columns.state import ColumnsState
from pm_match.columns.term import NORMAL, add_gains
from pm_match.prediction.predictor import Place, Predictor, coords
from pm_match.reading.parts import UnservedModelError
from pm_match.tables.domains import as_new_columns


@dataclass(frozen=True, eq=False)
class NewColumns:
    """Cells of new objects, by variable.

    Attributes
    ----------
    cells : dict of str to (array, array)
        Values (N, R) or (N, R, K), NaN if missing; and what is known of them (N, R).
    """

    cells: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]

    def rows(self, wanted: slice) -> NewColumns:
        """Return the cells of some of the objects."""
        return NewColumns({name: (x[wanted], k[wanted]) for name, (x, k) in self.cells.items()})


class ColumnsPredictor(Predictor):
    """The clusters of columns at a draw."""

    def __init__(self, columns: Columns, state: ColumnsState):
        self.columns, self._state = columns, state

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables of an assignment's objects."""
        if place.clustering != self.columns.clustering:
            return []
        return [c.name for c in self.columns.cells if c.assignment == place.assignment.name]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewColumns, list[tuple[str, NDArray]]]:
        """Check tables of new objects: columns with labels are matched by these."""
        found, labels = {}, []
        for name, table in given.items():
            cells = next(c for c in self.columns.cells if c.name == name)
            found[name], objects = _read(model, place, self.columns, cells, table)
            labels.append((name, objects))
        return NewColumns(found), labels

    def log_predictive(self, place: Place, seen: NewColumns) -> NDArray[np.float64]:
        """Log predictive of the values, the parameters integrated out."""
        columns, site = self.columns, self._state.site
        code, slot_of = columns.prior.code, site.slot_of(columns.clustering)
        n_slots = int(site.partitions[columns.clustering].n_slots[0])
        n = len(next(iter(seen.cells.values()))[0])
        # Several variables of a draw's parameters are one another's evidence: they are added first.
        units: list[NDArray] = []
        positions, statistics, base = [], [], np.zeros(n)
        for cells in columns.cells:
            if cells.name not in seen.cells or cells.assignment != place.assignment.name:
                continue
            values, known = seen.cells[cells.name]
            row, place_in_row = np.nonzero(~np.isnan(values.reshape(*known.shape, -1)[..., 0]))
            x, known = values[row, place_in_row], known[row, place_in_row]
            cell, category, own = cells.family.statistics(x, known)
            assert cells.layout is not None
            statistics.append((cell + sum(len(unit) for unit in units), category, own))
            units.append(row)
            positions.append(cells.layout.column[place_in_row])
            base += np.bincount(row, cells.family.log_base(x, known), n)
            if code == NORMAL:
                # The term has scatters, and no squares.
                base += np.bincount(row[cell], 0.5 * own[:, 0] * own[:, 1] ** 2, n)
        new = entries(
            code,
            columns.n_columns,
            columns.n_categories,
            n,
            np.concatenate(units),
            np.concatenate(positions),
            joined(statistics),
        )
        gains = np.zeros((n, n_slots))
        add_gains(self._state.term, new.start, new.position, new.statistic, n_slots, gains)
        return base[:, None] + np.append(gains[:, slot_of], np.zeros((n, 1)), axis=1)


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
        raise ValueError(
            f"new objects of {where!r}, row {i}, column {j}: expected {family.expects}; found "
            f"{values[i, j]}"
        )
    return (x, known), objects
