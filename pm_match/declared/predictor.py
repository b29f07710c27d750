"""What a table of log densities says of new objects: their rows take the places of known ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.declared.parts import Likelihoods
from pm_match.declared.row_densities import RowDensities
from pm_match.declared.state import LikelihoodState
from pm_match.prediction.predictor import NewTables, Place, Predictor, coords
from pm_match.reading import as_read
from pm_match.reading.ancestry import Ancestry
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.owners import close
from pm_match.reading.parts import UnservedModelError
from pm_match.tables.domains import as_new_columns


class LikelihoodPredictor(Predictor):
    """The log densities of new objects' rows, with the parameters of a draw."""

    def __init__(self, model: Model, evidence: Likelihoods, state: LikelihoodState):
        model = as_read(model)
        self._evidence = evidence
        parents = Ancestry(model).parents
        # The assignments that each factor depends on.
        self._assignments = {
            name: {rv.name for rv in parents[model[name]]} & {*evidence.assignments}
            for name in evidence.factors
        }
        self._observed = {rv.name for rv in model.observed_RVs} & {*evidence.factors}
        self._potentials = {rv.name for rv in model.potentials} & {*evidence.factors}
        self._state = state
        self._rows: dict[str, RowDensities] = {}
        self._point: Mapping[str, NDArray] = {}

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables that depend on an assignment.

        Raise `UnservedModelError` if a potential does: nothing says what it is of other objects.
        """
        if place.clustering != self._evidence.clustering:
            return []
        found = [n for n, own in self._assignments.items() if place.assignment.name in own]
        for name in found:
            if name in self._potentials and not name.startswith(WEIGHTS_OF):
                raise _not_known(place, name)
        return [name for name in found if name in self._observed]

    def log_weights(self, place: Place) -> NDArray[np.float64] | float:
        """Log weights (T,) that all objects of an assignment have, relative to equal ones."""
        total: NDArray[np.float64] | float = 0.0
        if place.clustering == self._evidence.clustering:
            for name, own in self._assignments.items():
                if name.startswith(WEIGHTS_OF) and place.assignment.name in own:
                    entries = self._state.entries_of(name, self._point)
                    if not close(entries, entries[:, :1]).all():
                        raise _not_known(place, name)
                    total = total + entries[:, 0]
        return total

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewTables, list[tuple[str, NDArray]]]:
        """Check tables of new objects: columns with labels are matched by these."""
        model = as_read(model)
        found: dict[str, tuple[NDArray, ...]] = {}
        labels = []
        for name, table in given.items():
            where = f"{place.domain}: {name}"
            if self._assignments[name] != {place.assignment.name}:
                others = sorted(self._assignments[name])
                raise UnservedModelError(
                    f"new objects of {where!r}: expected a variable of these objects alone; found "
                    f"one that depends on {', '.join(map(repr, others))}"
                )
            if name not in self._rows:
                refused = f"predictions of new objects of {where!r} are not served: "
                self._rows[name] = RowDensities(
                    model, self._evidence, place.assignment.name, name, refused
                )
            values, objects = _read(model, self._rows[name], name, where, table)
            found[name] = (values,)
            labels.append((name, objects))
        return NewTables(found), labels

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring it to a draw."""
        self._point = point

    def log_predictive(self, place: Place, seen: NewTables) -> NDArray[np.float64]:
        """Log density of the rows in every cluster, which has parameters of its own."""
        own = [
            self._log_densities(self._rows[name], values) for name, (values,) in seen.arrays.items()
        ]
        return np.append(np.sum(own, axis=0), np.zeros((len(own[0]), 1)), axis=1)

    def _log_densities(self, rows: RowDensities, values: NDArray) -> NDArray[np.float64]:
        """Log density (M, T) of rows (M, ...) in every cluster, over the cells that they have."""
        n, n_labels = len(values), self._evidence.truncation
        found, holes = np.empty((n, n_labels)), np.isnan(values)
        # What is missing is anything that can be, and then left out.
        placed = np.where(holes, rows.known[0], values)
        for label in range(n_labels):
            worth = rows.cells(self._point, placed, np.full(n, label))
            if rows.by_cell:
                worth = np.where(holes.reshape(n, -1), 0.0, worth)
            found[:, label] = worth.sum(axis=1)
        return found


def _not_known(place: Place, name: str) -> UnservedModelError:
    return UnservedModelError(
        f"new objects of domain {place.domain!r}: expected clusters that depend on what is "
        f"observed alone; found {name!r}, which is not known of new objects"
    )


def _read(
    model: Model, rows: RowDensities, name: str, where: str, table: Any
) -> tuple[NDArray, NDArray]:
    """Check the rows of new objects; return them, and the objects' labels."""
    shape = rows.known.shape[1:]
    if len(shape) > 1:
        values = np.ma.filled(np.ma.asarray(table, np.float64), np.nan)
        objects = np.arange(len(values))
        if values.shape[1:] != shape:
            raise ValueError(
                f"new objects of {where!r}: expected an array of shape (N, "
                f"{', '.join(map(str, shape))}); found {values.shape}"
            )
    else:
        labels = coords(model, name, 1) if shape else None
        values, objects = as_new_columns(where, table, labels, shape[0] if shape else None)
        values = values.reshape(-1, *shape)
    holes = np.isnan(values)
    wrong = holes if not rows.by_cell else np.zeros_like(holes)
    if rows.known.dtype.kind != "f":
        wrong = wrong | ~(holes | (values == np.round(values)))
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        expected = "a whole row" if holes[place] else "a whole number"
        raise ValueError(
            f"new objects of {where!r}, row {place[0]}: expected {expected}; found {values[place]}"
        )
    return values, objects
