"""Which parameters labels have, and what may be done with them: found by numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model

from pm_match.reading.ancestry import RV
from pm_match.reading.context import Context
from pm_match.reading.entering import Marks
from pm_match.reading.exchange import LabelRows, exchanged, is_same, where_defined
from pm_match.reading.label_tables import (
    has_default_transform,
    prior_draws,
    value_densities,
    values_entering,
)
from pm_match.reading.owners import binary_digits, close
from pm_match.reading.probe import value_density

# From a point to what every label says of it (T, ...).
Response = Callable[[dict[str, NDArray]], NDArray]
# What numbers are changed by to see what they change, what is rounding of that, and how many
# entries are looked at.
_STEP, _ALIKE, _MOST_COMPARED = 1e-4, 1e-5, 4096


@dataclass(frozen=True, eq=False)
class RowReader:
    """Finds what labels have of the variables that some factors depend on."""

    context: Context
    factors: Sequence[RV]
    # points of the value variables that have nothing special about them, and one far from all else
    points: Sequence[dict[str, NDArray]]
    wide: dict[str, NDArray]
    table: Response  # from a point to log densities (T, E) of all entries under each label
    n_labels: int
    _known: dict[LabelRows, Response | None] = field(default_factory=dict, repr=False)
    # A response, and what it is at the first two points.
    _before: list[Any] = field(default_factory=list, repr=False)

    def find(self) -> list[LabelRows]:
        """Find all variables that labels have rows of, and what these depend on in rows too."""
        found: list[LabelRows] = []
        response, seen = self.table, set(self.factors)
        model, parents = self.context.model, self.context.ancestry.parents
        while True:
            below = [model[name] for rows in found for name in rows.names] or self.factors
            above = {p for rv in below for p in parents[rv]} - seen
            seen |= above
            new = self._rows_among([rv for rv in model.free_RVs if rv in above], response)
            if not new:
                return found
            found += new
            own = [self._densities(rows) for rows in new]
            response = self._joined([one for one in own if one is not None])

    def _rows_among(self, variables: Sequence[RV], response: Response) -> list[LabelRows]:
        """Find the rows among variables, and the variables that belong to one label each."""
        found, alone = [], {}
        for rv in variables:
            key = self.context.key(rv)
            changed = self._changed(response, lambda here, there, key=key: {key: there[key]})
            if changed.sum() == 1 and self.n_labels > 1:
                alone[rv] = int(np.flatnonzero(changed)[0])
            elif changed.any():
                shape = np.shape(self.points[0][key])
                for axis in (n for n, size in enumerate(shape) if size == self.n_labels):
                    rows = LabelRows((rv.name,), (key,), axis)
                    if self._by_row(response, rows):
                        found.append(rows)
                        break
        return found + [rows for rows in self._stacks(alone) if self._by_row(response, rows)]

    def _stacks(self, alone: dict[RV, int]) -> list[LabelRows]:
        """Put variables that labels have one by one side by side."""
        own = [[rv for rv, one in alone.items() if one == n] for n in range(self.n_labels)]
        found = []
        if len({len(variables) for variables in own}) == 1:
            for variables in zip(*own, strict=True):
                keys = tuple(self.context.key(rv) for rv in variables)
                if len({np.shape(self.points[0][key]) for key in keys}) == 1:
                    found.append(LabelRows(tuple(rv.name for rv in variables), keys, None))
        return found

    def _changed(self, response: Response, change) -> NDArray[np.bool_]:
        """Say of which labels the response changes with what two points `change` into."""
        if self._before[:1] != [response]:
            # The last is kept: most often it is the next, too.
            self._before[:] = response, *[response(here) for here in self.points[:2]]
        changed = np.zeros(self.n_labels, bool)
        both = zip(self.points[:2], self.points[1:3], self._before[1:], strict=True)
        for here, there, before in both:
            changed |= _differ(before, response({**here, **change(here, there)}), changed)
        return changed

    def _by_row(self, response: Response, rows: LabelRows) -> bool:
        """Whether the response of a label depends on its own row alone.

        The order of rows may matter, or how far they are from each other: they are looked at in
        another order, and far apart, too.
        """
        digits = binary_digits(np.arange(self.n_labels)) == 1
        some = (*digits, *~digits)
        for which in some:
            changed = self._changed(
                response, lambda here, there, which=which: rows.replaced(here, there, which)
            )
            if (changed & ~which).any():
                return False
        order = np.arange(self.n_labels)[::-1]
        turned = [{**own, **rows.taken(own, order)} for own in (self.points[2], self.wide)]
        for here in (*turned, self.wide):
            try:
                before = response(here)
                for which in some:
                    there = rows.replaced(here, self.points[0], which)
                    if _differ(before, response({**here, **there}), which).any():
                        return False
            except ParameterValueError:
                continue  # nothing is defined there
        return True

    def _densities(self, rows: LabelRows) -> Response | None:
        """Make the log density of every label's row; None if it has none by itself."""
        if rows not in self._known:
            densities, own = prior_by_row(self.context.model, rows)
            shape, axis = densities(self.points[0])[0].shape, rows.axis
            fits = axis is None or (len(shape) > axis and shape[axis] == self.n_labels)
            self._known[rows] = own if fits else None
        return self._known[rows]

    def _joined(self, responses: Sequence[Response]) -> Response:
        none = np.zeros((self.n_labels, 0))
        return lambda point: np.concatenate([none, *(own(point) for own in responses)], axis=1)

    # -- what may be done with them ---------------------------------------------------------------

    def redrawn(self, found: Sequence[LabelRows]) -> list[LabelRows]:
        """Find the rows that are independent between labels given the rest, and can be drawn."""
        ancestry, model = self.context.ancestry, self.context.model
        rvs = {rows: [model[name] for name in rows.names] for rows in found}
        left = {
            rows: own
            for rows in found
            if (own := self._densities(rows)) is not None
            and all(has_default_transform(model, rv) and self.drawn(rv) for rv in rvs[rows])
        }
        while True:
            # In the factors, rows have been found to be each label's own.
            response = self._joined([*left.values()])
            expected = {*self.factors, *(rv for rows in left for rv in rvs[rows])}
            kept = {
                rows: own
                for rows, own in left.items()
                if expected.issuperset(ancestry.children(*rvs[rows]))
                and self._by_row(response, rows)
            }
            if len(kept) == len(left):
                return list(left)
            left = kept

    def drawn(self, rv: RV) -> bool:
        """Whether a variable can be drawn from its prior."""
        try:
            draw = prior_draws(self.context, [rv])
            (found,) = draw(np.random.default_rng(0), self.points[0]).values()
        except Exception:
            return False
        alike = found.shape == np.shape(self.points[0][self.context.key(rv)])
        return alike and bool(np.isfinite(found).all())

    def give_way(self, rows: LabelRows, keys: Sequence[str]) -> bool:
        """Whether rows can undo, for all labels, what a change of some other value does.

        `keys`: of the other values. A location to which rows are added is such a value, or a
        scale by which they are multiplied: the data say little of either given the other.
        """
        here, there = self.points[:2]
        table, n_entries = rows.table(here), self.table(here).shape[1]
        some = np.random.default_rng(2).permutation(n_entries)[:_MOST_COMPARED]

        def slopes(other: Mapping[str, NDArray]) -> NDArray:
            near = (
                {**here, **{k: here[k] + step * (v - here[k]) for k, v in other.items()}}
                for step in (_STEP, -_STEP)
            )
            up, down = (self.table(point)[:, some] for point in near)
            with np.errstate(invalid="ignore"):
                return up - down

        each = [slopes(rows.written(here, table + unit)) for unit in np.eye(table.shape[1])]
        own = np.stack(each, axis=-1)
        return any(all(map(_spanned, slopes({key: there[key]}), own)) for key in keys)

    def exchangeable(
        self, found: Sequence[LabelRows], keys: Sequence[str], owned: NDArray[np.bool_]
    ) -> bool:
        """Whether labels and their rows can take others' places, weights aside.

        `keys`: the values of the assignments; `owned` (E,): which entries are of an object. In sums
        over objects, one may make up for another.
        """
        density = log_touched(self.context, self.factors, found)
        points, n_labels = (*self.points, self.wide), self.n_labels
        whole = where_defined(lambda point: np.array(density(point)))
        each = where_defined(lambda point: self.table(point)[:, owned])
        return is_same(exchanged(whole, points, n_labels, keys, found)) and is_same(
            exchanged(each, points, n_labels, (), found), axes=(0,)
        )


def log_touched(
    context: Context, factors: Sequence[RV], found: Sequence[LabelRows]
) -> Callable[[Any], float]:
    """Compile the log density, at a point, of all that labels, of `factors`, and rows enter."""
    touched = context.ancestry.touched(context.model[n] for rows in found for n in rows.names)
    return value_density(context.model, list(dict.fromkeys([*factors, *touched])))


def _differ(before: NDArray, after: NDArray, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say of which labels, if not `known` (T,), two responses differ where both are defined."""
    found = np.zeros(len(known), bool)
    for label in np.flatnonzero(~known):
        old, new = before[label], after[label]
        # What does not change at all is seen fastest.
        if not np.array_equal(old, new, equal_nan=True):
            found[label] = not (close(old, new) | np.isnan(old) | np.isnan(new)).all()
    return found


def _spanned(vector: NDArray, columns: NDArray) -> bool:
    """Whether a vector (E,), of more numbers than there are columns, is a sum of these (E, K)."""
    fine = np.isfinite(vector) & np.isfinite(columns).all(axis=1)
    vector, columns = vector[fine], columns[fine]
    if np.count_nonzero(vector) <= columns.shape[1]:
        return False
    rest = vector - columns @ np.linalg.lstsq(columns, vector)[0]
    return bool(np.linalg.norm(rest) < _ALIKE * np.linalg.norm(vector))


def prior_by_row(
    model: Model, rows: LabelRows
) -> tuple[Callable[[Any], list[NDArray]], Callable[[Any], NDArray]]:
    """Compile the log densities of some rows: of each variable, and of each row (T, ...)."""
    densities = value_densities(model, [model[name] for name in rows.names])
    return densities, lambda point: _by_row(densities(point), rows)


def prior_entered_by(
    context: Context, rows: LabelRows, marked: Sequence[Mapping[str, Marks]]
) -> NDArray[np.bool_]:
    """Say which log densities (K, P) of some row each of K sets of numbers enters."""
    variables = [context.model[name] for name in rows.names]
    found = values_entering(context.model, variables, context.start, marked)
    each = zip(*found, strict=True)
    return np.array([_by_row(own, rows).any(axis=0) for own in each])


class Redraw:
    """Draws the rows of empty labels from their priors, where that is nothing to all the rest."""

    def __init__(self, context: Context, redrawn: Sequence[LabelRows]):
        model, ancestry = context.model, context.ancestry
        of = {name: rows for rows in redrawn for name in rows.names}
        on_rows = [
            rows
            for rows in redrawn
            if of.keys() & {p.name for n in rows.names for p in ancestry.parents[model[n]]}
        ]
        self._priors = [prior_by_row(model, rows)[1] for rows in on_rows]
        # Where rows depend on rows, one variable after another, given those that are drawn before.
        own = [rv for rv in model.free_RVs if rv.name in of]
        self._keys = [context.key(rv) for rv in own]
        groups = [[rv] for rv in own] if on_rows else [own] if own else []
        self._draw = [
            (
                [*dict.fromkeys(of[rv.name] for rv in group)],
                prior_draws(context, group),
            )
            for group in groups
        ]

    def proposed(
        self, rng: np.random.Generator, point: Mapping[str, NDArray], empty: NDArray[np.bool_]
    ) -> dict[str, NDArray] | None:
        """Return a point with new rows of `empty` labels (T,).

        None if there are none, if the priors of other rows would change, or if what is drawn rounds
        to a bound, at which it has no density.
        """
        if not self._draw or not empty.any():
            return None
        new = dict(point)
        for group, draw in self._draw:
            drawn = draw(rng, new)
            for rows in group:
                taken = rows.replaced(point, {**point, **drawn}, empty)
                new |= {key: value for key, value in taken.items() if key in drawn}
        if not all(np.isfinite(new[key]).all() for key in self._keys):
            return None
        told = [[own(here)[~empty].sum() for own in self._priors] for here in (point, new)]
        return new if close(*map(np.array, told)).all() else None


def _by_row(found: Sequence[NDArray], rows: LabelRows) -> NDArray:
    """Bring what is found of each variable of rows to (T, ...)."""
    whole = rows.in_front(found)
    return whole.reshape(len(whole), -1)
