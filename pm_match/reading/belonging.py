"""Which variables go with the labels of a set of clusters: found by numbers, for relabelling.

Reading says what labels have a row of. It does not say which of several axes with as many entries
as there are labels is theirs, if the rows are chosen by no label (the logits of their weights), and
which quantities that are computed go with them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.numerics.garbage import uncollected
from pm_match.reading.ancestry import RV, Ancestry
from pm_match.reading.context import Context
from pm_match.reading.exchange import LabelRows, Pair, Read, exchanged, is_same, where_defined
from pm_match.reading.owners import close
from pm_match.reading.parts import Clustering
from pm_match.reading.probe import log_densities, natural_function, point_function, without_c
from pm_match.reading.with_assignments import with_assignments

# An axis of a variable, by its name.
Axis = tuple[str, int]
# More axes that may be the labels' are not looked at together.
_MOST_AXES = 6


class Belonging(NamedTuple):
    """What goes with the labels of some clusters."""

    # axes of variables that have been looked at: whether they are of the clusters; those of which
    # that cannot be told are not among them
    axes: dict[Axis, bool]
    # variables that the clusters have one each of, by label; by itself what is computed, changes
    # with labels, and cannot be given to others
    each: list[tuple[str, ...]]
    numbers: list[str]  # computed variables that are labels themselves


class _Labelled:
    """A model with its variables as they are, without transforms, and what labels do in it.

    It has `rows`: what is known to be the labels'; `candidates`: what may be, with as many entries.
    """

    def __init__(
        self,
        model: Model,
        clustering: Clustering,
        axes: Collection[Axis],
        each: Sequence[tuple[str, ...]],
    ):
        self.model = with_assignments(model, {}, transforms=False)
        self.n_labels = clustering.truncation
        keys = {rv.name: self.model.rvs_to_values[rv].name for rv in self.model.free_RVs}
        self.labels = [self.model[own.name] for own in clustering.assignments]
        self.label_keys = [keys[rv.name] for rv in self.labels]
        self.ancestry = Ancestry(self.model)
        self.parents = self.ancestry.parents
        # Densities in which labels enter, those of the labels themselves among them.
        self.factors = [
            rv for rv, own in self.parents.items() if {rv, *own}.intersection(self.labels)
        ]
        rng, first = np.random.default_rng(20150610), Context.of(model)
        natural = natural_function(model, keys)
        self.points = []
        # Of labels, all are in use, or one.
        for in_use in (self.n_labels, self.n_labels, 1):
            point = dict(zip(keys.values(), natural(first.near(rng, 0.7)), strict=True))
            for key in self.label_keys:
                point[key] = rng.integers(in_use, size=point[key].shape).astype(point[key].dtype)
            self.points.append(point)
        self.rows = [LabelRows((name,), (keys[name],), axis) for name, axis in axes]
        self.rows += [LabelRows(own, tuple(keys[name] for name in own), None) for own in each]
        own = {*self.labels, *(self.model[name] for names in each for name in names)}
        self.candidates = {
            (rv, axis): LabelRows((rv.name,), (key,), axis)
            for rv, key in zip(self.model.free_RVs, keys.values(), strict=True)
            for axis in self.axes_in(self.points[0][key])
            if rv not in own and (rv.name, axis) not in axes
        }

    def axes_in(self, value: NDArray) -> list[int]:
        """List the axes with as many entries as there are labels."""
        return [axis for axis, size in enumerate(value.shape) if size == self.n_labels]

    def value(self, rv: RV) -> Read:
        """Make what is computed."""
        read = point_function(self.model, [rv])
        return lambda point: read(point)[0]

    def density(self, factor: RV) -> Read:
        """Make a log density, entry by entry."""
        read = log_densities(self.model, [factor])
        return where_defined(lambda point: read(point)[factor])

    def pairs(self, read: Read, also: Sequence[LabelRows] = ()) -> Iterator[Pair]:
        """Read before and after labels take others' places, with all their rows and some more."""
        return exchanged(read, self.points, self.n_labels, self.label_keys, [*self.rows, *also])

    def free(self) -> dict[tuple[RV, int], bool]:
        """Say of candidates whether they are the labels', and add those that are to the rows."""
        told: dict[tuple[RV, int], bool] = {}
        for factor in self.factors:
            some = {
                own: rows
                for own, rows in self.candidates.items()
                if own[0] in self.parents[factor] and not told.get(own)
            }
            if not some or len(some) > _MOST_AXES:
                continue
            read = self.density(factor)
            by_row = {own: True for own, rows in some.items() if self._is_by_row(read, rows)}
            told |= by_row
            self.rows += [some.pop(own) for own in by_row]
            # If nothing can be given to other labels, these have roles.
            given = {way: [some[own] for own in way] for way in _subsets([*some])}
            ways = [way for way, own in given.items() if is_same(self.pairs(read, own))] or [()]
            for own, rows in some.items():
                # Where it makes no difference, as with numbers that are all 0 here, none is told.
                if len({own in way for way in ways}) == 1:
                    told[own] = own in ways[0]
                    self.rows += [rows] * told[own]
        # What is nowhere beside what changes with labels, or may, is none of theirs.
        changing = {*self.labels, *(self.model[name] for own in self.rows for name in own.names)}
        left = [own for own in self.candidates if own not in told]
        beside = {
            rv: {rv}.union(*({f, *own} for f, own in self.parents.items() if rv in {f, *own}))
            for rv, _ in left
        }
        while more := {rv for rv, _ in left if beside[rv] & changing} - changing:
            changing |= more
        return told | {own: False for own in left if own[0] not in changing}

    def _is_by_row(self, read: Read, rows: LabelRows) -> bool:
        """Whether each row enters the density of its label alone.

        Or, of three labels and more, what that is relative to those of others, as logits do.
        """
        here, there, _ = self.points
        for row in range(self.n_labels):
            labels = (row + np.arange(min(self.n_labels, 3))) % self.n_labels
            other = {**here, **rows.replaced(here, there, np.arange(self.n_labels) == row)}
            before, after = (self._under(labels, read, point) for point in (here, other))
            if before.shape != after.shape:
                return False  # nothing is defined there
            with np.errstate(invalid="ignore"):
                own, *rest = np.where(close(before, after), 0.0, after - before)
            base = rest[1] if len(rest) > 1 else np.zeros(())
            if close(own, base).all() or not close(rest[0], base).all():
                return False
        return True

    def _under(self, labels: Iterable[int], read: Read, point: dict[str, NDArray]) -> NDArray:
        """Read where all objects have one label, and then another (n, ...)."""
        keys = self.label_keys
        every = ({**point, **{key: np.full_like(point[key], n) for key in keys}} for n in labels)
        return np.stack([*map(read, every)])

    @cached_property
    def fixed(self) -> set[RV]:
        """What cannot be given to other labels, as it is not alike of all."""
        unlike = [f for f in self.factors if not is_same(self.pairs(self.density(f)))]
        # Labels all of whose densities are unlike have roles themselves.
        free = {*self.labels} if len(unlike) < len(self.factors) else set()
        return {rv for factor in unlike for rv in self.parents[factor]} - free

    @cached_property
    def weights(self) -> list[NDArray]:
        """The probabilities of the labels of all objects (N, T), by assignment."""
        labels, point = range(self.n_labels), self.points[0]
        return [np.exp(self._under(labels, self.density(rv), point)).T for rv in self.labels]

    def computed(self, found: Belonging, unknown: set[RV]) -> None:
        """Say what goes with labels of what is computed, unless it hangs on what may not."""
        label_of = {self.model[name]: k for names in found.each for k, name in enumerate(names)}
        moved = {self.model[name] for own in self.rows for name in own.names}
        # What is made of what one label alone has, by label.
        single: list[dict[str, Pair]] = [{} for _ in range(self.n_labels)]
        for rv in self.model.deterministics:
            # Operations say in any way that nothing is defined.
            read, parents = where_defined(self.value(rv), Exception), self.ancestry.of([rv])
            value = read(self.points[0])
            theirs = self.axes_in(value)
            if theirs and any(_are_weights(value, own) for own in self.weights):
                found.axes.update({(rv.name, axis): axis == value.ndim - 1 for axis in theirs})
                continue
            pairs = [*self.pairs(read)] if parents & {*moved, *self.labels} else []
            ways = [way for way in _subsets(theirs) if is_same(pairs, way)] if pairs else [()]
            of = {label_of[own] for own in parents & label_of.keys()}
            unsure = (theirs or not ways) and bool(parents & (self.fixed | unknown))
            if len(of) == 1 and not ways:
                single[of.pop()][rv.name], ways = pairs[0], [()]
            elif not ways and rv.dtype.startswith("int") and all(map(_are_labels, pairs)):
                found.numbers.append(rv.name)
                ways = [()]
            elif len(of) == 1 or not (ways or (unsure and (theirs or not parents & moved))):
                found.each.append((rv.name,))
            # Where numbers are the same along an axis, it cannot be told whose that is.
            if len(ways) == 1 and (ways[0] or not unsure):
                found.axes.update({(rv.name, axis): axis in ways[0] for axis in theirs})
        found.each.extend(_one_each(single))


def _one_each(single: Sequence[Mapping[str, Pair]]) -> list[tuple[str, ...]]:
    """Put side by side what is of one label each; by itself what there is not of all labels.

    `single`: of every label, what is computed, before and after all have the next one's rows.
    """
    each = []
    for first in single[0].items():
        found = [first]
        for own in single[1:]:
            order, _, after = found[-1][1]
            alike = [n for n, pair in own.items() if is_same([(order, after, pair[1])])]
            found += [(n, own[n]) for n in alike[:1]]
        if len(found) == len(single):
            each.append(tuple(dict(found)))
    left = {name for own in single for name in own}.difference(*each)
    return [*each, *((name,) for name in left)]


def _subsets(axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """List all subsets, the smallest first."""
    return [own for n in range(len(axes) + 1) for own in combinations(axes, n)]


def _are_weights(value: NDArray, weights: NDArray) -> bool:
    """Whether values are the probabilities (N, T) of the labels of all objects, or of any one."""
    flat = value.reshape(-1, value.shape[-1]) if value.size and value.ndim else value
    return flat.shape in (weights.shape, weights[:1].shape) and bool(close(flat, weights).all())


def _are_labels(pair: Pair) -> bool:
    """Whether whole numbers are changed as labels are."""
    order, before, after = pair
    if before.shape != after.shape or not np.isin(before, order).all():
        return False
    return bool((np.argsort(order)[before.astype(np.int64)] == after).all())


@without_c()
@uncollected()
def belonging(
    model: Model,
    clustering: Clustering,
    axes: Collection[Axis],
    each: Sequence[tuple[str, ...]],
) -> Belonging:
    """Find what goes with the labels of a clustering, none of which is observed.

    `axes`, `each`: of the free variables, what labels are known to have rows of, or a variable
    each.
    """
    own = _Labelled(model, clustering, axes, each)
    told = own.free()
    found = Belonging({(rv.name, axis): theirs for (rv, axis), theirs in told.items()}, [], [])
    if not (each and own.fixed & {own.model[name] for names in each for name in names}):
        # If not, they are not the same of each label: one may be a mean, the other its logarithm.
        found.each.extend(each)
        own.computed(found, {rv for rv, axis in own.candidates if (rv, axis) not in told})
    return found
