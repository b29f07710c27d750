"""Log densities of rows that the model does not have: they take the places of known ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.declared.parts import Likelihoods
from pm_match.declared.trial_points import point_inside
from pm_match.reading.context import Context
from pm_match.reading.entering import Marks
from pm_match.reading.evidence import Point
from pm_match.reading.label_tables import LabelDensities
from pm_match.reading.owners import close
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import evaluate

# Rows of known objects that are tried in others' places, at so many points.
_ROWS, _POINTS = 3, 2
# Rows for whose log densities it is worth the seconds that it takes to compile them well.
MANY = 20_000


class RowDensities:
    """Log densities of an observed variable's rows, whatever these are.

    Known objects lend their places: rows are put there, as many at a time as there are objects, and
    so many times side by side. That a row is worth the same in all of them, whatever the others
    are, is checked by numbers. It can go to other processes, and knows no model there.

    `assignment`: of the rows' objects; `refused`: what the messages of errors begin with. It has
    `known` (N, ...): what is observed; `n_cells`: log densities of a row, K; `by_cell`: whether
    there is a log density of every cell, which depends on nothing but that cell; `keys`: names of
    the values that are read of points. Raise `UnservedModelError` if rows are not whole, or worth
    more in one place than in another.
    """

    def __init__(
        self, model: Model, evidence: Likelihoods, assignment: str, name: str, refused: str
    ):
        rv, context = model[name], Context.of(model)
        self.known = known = np.asarray(evaluate(model.rvs_to_values[rv]))
        self._refused, self._n_labels = refused, evidence.truncation
        self._densities = LabelDensities(model, [rv], [model[assignment]], varied=[rv])
        self.keys = self._densities.keys
        (n,) = context.shapes[assignment]
        rows = [np.zeros((2, n), np.int64), np.stack([known, known])]
        (shape,) = self._densities.shapes(context.start, [own[0] for own in rows])
        missing = context.missing_part(rv) is not None
        if missing or not (known.shape[:1] == shape[:1] == (n,) and np.isfinite(known).all()):
            raise UnservedModelError(
                f"{refused}expected a whole row for each of {n} objects; found values of shape "
                f"{known.shape}" + (", of which some are missing" if missing else "")
            )
        self._conditions = evidence.conditions
        self._batch = self._densities.batch(evidence.conditions, context.start, rows)
        self.by_cell, self.n_cells = shape == known.shape, int(np.prod(shape[1:]))
        self._check(context)

    def cells(self, point: Point, values: NDArray, labels: NDArray) -> NDArray[np.float64]:
        """Log densities (M, K) of rows (M, ...) of objects in the clusters `labels` (M,)."""
        m, n = len(values), len(self.known)
        n_blocks = -(-m // n)
        placed = np.empty((n_blocks * n, *self.known.shape[1:]), self.known.dtype)
        placed[:m], placed[m:] = values, self.known[0]
        own = np.zeros(len(placed), np.int64)
        own[:m] = labels
        entries = self._densities.compiled(
            self._batch, self._conditions, m > MANY // self._n_labels
        )
        found = entries(point, [x.reshape(n_blocks, n, *x.shape[1:]) for x in (own, placed)])
        return found.reshape(len(placed), -1)[:m]

    def entered_by(self, point: Point, marked: Sequence[Mapping[str, Marks]]) -> NDArray[np.bool_]:
        """Say which cells (K, C) of some row each of K sets of the clusters' numbers enters."""
        n, found = len(self.known), np.zeros((len(marked), self.n_cells), np.bool_)
        for first in range(0, self._n_labels, n):
            given = [(first + np.arange(n)) % self._n_labels, self.known]
            (own,) = self._densities.entered_by(self._conditions, point, given, marked)
            found |= own.reshape(len(marked), n, -1).any(axis=1)
        return found

    def _check(self, context: Context) -> None:
        """Refuse rows that are not worth the same in all places, or that others change."""
        rng, n = np.random.default_rng(20060209), len(self.known)
        rows = self.known[rng.choice(n, min(n, _ROWS), replace=False)]
        for _ in range(_POINTS):
            point = point_inside(context, rng)
            each = np.array(
                [
                    [
                        self.cells(point, np.repeat(row[None], n, axis=0), np.full(n, label))
                        for label in range(self._n_labels)
                    ]
                    for row in rows
                ]
            )
            if not close(each, each[:, :, :1]).all():
                raise UnservedModelError(
                    f"{self._refused}its log density depends on what is known of each object "
                    "besides (covariates, exposures, effects), which is not known of new ones"
                )
            worth = each[:, :, 0]  # (R, T, K)
            label = rng.integers(self._n_labels, size=n)
            which = rng.integers(len(rows), size=(n, *self.known.shape[1:]))
            flat = which.reshape(n, -1)
            if self.by_cell:
                found = self.cells(point, np.take_along_axis(rows, which, axis=0), label)
                expected = worth[flat, label[:, None], np.arange(flat.shape[1])]
                self.by_cell = bool(close(found, expected).all())
            found = self.cells(point, rows[flat[:, 0]], label)
            if not close(found, worth[flat[:, 0], label]).all():
                raise UnservedModelError(
                    f"{self._refused}the log density of an object's row depends on other rows"
                )
