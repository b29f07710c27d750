"""What a table of log densities says of new objects: their rows take the places of known ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.declared.parts import Likelihoods
from pm_match.declared.recognise import point_inside
from pm_match.prediction.predictor import Place, Predictor, coords
from pm_match.reading import as_read
from pm_match.reading.ancestry import Ancestry
from pm_match.reading.context import Context
from pm_match.reading.label_tables import LabelDensities
from pm_match.reading.owners import close, each_label
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import evaluate
from pm_match.tables.domains import as_new_columns

# Rows of known objects that are tried in others' places, at so many points.
_ROWS, _POINTS = 3, 2


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows (N, ...) of new objects, by variable, NaN where missing."""

    values: dict[str, NDArray[np.float64]]

    def rows(self, wanted: slice) -> NewRows:
        """Return the rows of some of the objects."""
        return NewRows({name: values[wanted] for name, values in self.values.items()})


class LikelihoodPredictor(Predictor):
    """The log densities of new objects' rows, with the parameters of a draw.

    Parameters
    ----------
    model : pymc.Model
    evidence : Likelihoods
    """

    def __init__(self, model: Model, evidence: Likelihoods):
        model = as_read(model)
        self._evidence = evidence
        observed, parents = {rv.name for rv in model.observed_RVs}, Ancestry(model).parents
        self._assignments = {
            name: {rv.name for rv in parents[model[name]]} & {*evidence.assignments}
            for name in evidence.factors
            if name in observed
        }
        self._places: dict[str, _ReplacedRows] = {}
        self._point: Mapping[str, NDArray] = {}

    def observed(self, place: Place) -> list[str]:
        """Names of the observed variables that depend on an assignment."""
        if place.clustering != self._evidence.clustering:
            return []
        return [n for n, own in self._assignments.items() if place.assignment.name in own]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewRows, list[tuple[str, NDArray]]]:
        """Check tables of new objects: columns with labels are matched by these."""
        model = as_read(model)
        found, labels = {}, []
        for name, table in given.items():
            where = f"{place.domain}: {name}"
            if self._assignments[name] != {place.assignment.name}:
                others = sorted(self._assignments[name])
                raise UnservedModelError(
                    f"new objects of {where!r}: expected a variable of these objects alone; found "
                    f"one that depends on {', '.join(map(repr, others))}"
                )
            if name not in self._places:
                self._places[name] = _ReplacedRows(model, self._evidence, place, name, where)
            found[name], objects = self._places[name].read(model, name, where, table)
            labels.append((name, objects))
        return NewRows(found), labels

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring it to a draw."""
        self._point = point

    def log_predictive(self, place: Place, seen: NewRows) -> NDArray[np.float64]:
        """Log density of the rows in every cluster, which has parameters of its own."""
        own = [
            self._places[name].log_densities(self._point, values)
            for name, values in seen.values.items()
        ]
        found = np.append(np.sum(own, axis=0), np.zeros((len(own[0]), 1)), axis=1)
        impossible = np.flatnonzero(np.isneginf(found[:, :-1]).all(axis=1))
        if len(impossible):
            raise ValueError(
                f"new objects of {place.domain!r}, row {impossible[0]}: expected values that have "
                "a density in some cluster; found none in any cluster of a draw"
            )
        return found


class _ReplacedRows:
    """Log densities of an observed variable whose rows are replaced.

    Known objects lend their places: rows are put there as many at a time as there are objects. That
    a row is worth the same in all of them, whatever the others are, is checked by numbers.
    """

    def __init__(self, model: Model, evidence: Likelihoods, place: Place, name: str, where: str):
        rv, assignments = model[name], [model[own] for own in evidence.assignments]
        context = Context.of(model)
        self.known = np.asarray(evaluate(model.rvs_to_values[rv]))
        self._refused = f"predictions of new objects of {where!r} are not served: "
        densities = LabelDensities(model, [rv], assignments, replaced=[rv])
        sizes = [context.shapes[own][0] for own in evidence.assignments]
        self._ends, self._n_labels = np.cumsum(sizes)[:-1], evidence.truncation
        self._own = slice(place.first, place.first + place.assignment.n_objects)
        self._labels = each_label(self._n_labels, sum(sizes))
        self._name, n = name, place.assignment.n_objects
        point = {**context.start, name: self.known}
        (shape,) = densities.shapes(point, self._split(self._labels[0]))
        if context.missing_part(rv) is not None or not (
            self.known.shape[:1] == shape[:1] == (n,) and np.isfinite(self.known).all()
        ):
            raise UnservedModelError(
                f"{self._refused}expected a whole row for each of {n} objects; found values of "
                f"shape {self.known.shape}"
                + (", of which some are missing" if context.missing_part(rv) is not None else "")
            )
        self._compiled = densities.compiled(evidence.batch, evidence.conditions)
        self.by_cell = shape == self.known.shape
        self._check(context)

    def _split(self, labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return np.split(labels, self._ends, axis=-1)

    def _entries(self, point, values: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Evaluate log densities (B, N, K) of values in all places, at labels (B, ...)."""
        values = values.astype(self.known.dtype)
        found = self._compiled({**point, self._name: values}, self._split(labels))
        return found.reshape(len(labels), len(self.known), -1)

    def _check(self, context: Context) -> None:
        """Refuse rows that are not worth the same in all places, or that others change."""
        rng, n = np.random.default_rng(20060209), len(self.known)
        rows = self.known[rng.choice(n, min(n, _ROWS), replace=False)]
        mixed = self._labels[0][None].copy()
        for _ in range(_POINTS):
            point = point_inside(context, rng)
            each = [
                self._entries(point, np.repeat(row[None], n, axis=0), self._labels) for row in rows
            ]
            if not all(close(one, one[:, :1]).all() for one in each):
                raise UnservedModelError(
                    f"{self._refused}its log density depends on what is known of each object "
                    "besides (covariates, exposures, effects), which is not known of new ones"
                )
            worth = np.stack(each)[:, :, 0]  # (R, T, K)
            mixed[0, self._own] = label = rng.integers(self._n_labels, size=n)
            which = rng.integers(len(rows), size=(n, *self.known.shape[1:]))
            flat = which.reshape(n, -1)
            if self.by_cell:
                found = self._entries(point, np.take_along_axis(rows, which, axis=0), mixed)[0]
                expected = worth[flat, label[:, None], np.arange(flat.shape[1])]
                self.by_cell = bool(close(found, expected).all())
            found = self._entries(point, rows[flat[:, 0]], mixed)[0]
            if not close(found, worth[flat[:, 0], label]).all():
                raise UnservedModelError(
                    f"{self._refused}the log density of an object's row depends on other rows"
                )

    def read(self, model: Model, name: str, where: str, table: Any) -> tuple[NDArray, NDArray]:
        """Check the rows of new objects; return them, and the objects' labels."""
        shape = self.known.shape[1:]
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
        wrong = holes if not self.by_cell else np.zeros_like(holes)
        if self.known.dtype.kind != "f":
            wrong = wrong | ~(holes | (values == np.round(values)))
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            expected = "a whole row" if holes[place] else "a whole number"
            raise ValueError(
                f"new objects of {where!r}, row {place[0]}: expected {expected}; found "
                f"{values[place]}"
            )
        return values, objects

    def log_densities(self, point, values: NDArray) -> NDArray[np.float64]:
        """Log density (M, T) of rows (M, ...) in every cluster, over the cells that they have."""
        n, found = len(self.known), np.empty((len(values), self._n_labels))
        for start in range(0, len(values), n):
            own = values[start : start + n]
            holes, placed = np.isnan(own), self.known.astype(np.float64)
            # What is missing is anything that can be, and then left out.
            placed[: len(own)] = np.where(holes, placed[:1], own)
            worth = self._entries(point, placed, self._labels)[:, : len(own)]
            if self.by_cell:
                worth = np.where(holes.reshape(len(own), -1), 0.0, worth)
            found[start : start + n] = worth.sum(axis=2).T
        return found
