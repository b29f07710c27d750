"""Which variables go with the labels of a set of clusters: found by numbers, for relabelling.

Reading says what labels have a row of. It does not say which of several axes with as many entries
as there are labels is theirs, if the rows are chosen by no label (the logits of their weights), and
which quantities that are computed go with them.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.reading.ancestry import RV, parameters
from pm_match.reading.context import Context
from pm_match.reading.owners import close
from pm_match.reading.parts import Clustering
from pm_match.reading.probe import log_densities, natural_function, point_function

# An axis of a variable, by its name.
Axis = tuple[str, int]
Values = Mapping[str, NDArray]
_N_POINTS = 2
# More axes that may be the labels' are not looked at together.
_MOST_AXES = 6


class Belonging(NamedTuple):
    """What goes with the labels of some clusters.

    Attributes
    ----------
    axes : dict of (str, int) to bool
        Axes of variables that have been looked at: whether they are of the clusters. Those of which
        that cannot be told are not among them.
    each : list of tuple of str
        Variables that the clusters have one each of, in the order of labels.
    alone : list of str
        Other variables that are computed of what some clusters have, in places of their own.
    """

    axes: dict[Axis, bool]
    each: list[tuple[str, ...]]
    alone: list[str]


def _subsets(axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """List all subsets, the smallest first."""
    return [own for n in range(len(axes) + 1) for own in combinations(axes, n)]


class _Labelled:
    """A model with its variables as they are, without transforms, and what labels do in it.

    `axes`, `each`: what labels have rows of, or a variable each.
    """

    def __init__(
        self,
        model: Model,
        clustering: Clustering,
        axes: Collection[Axis],
        each: Sequence[tuple[str, ...]],
    ):
        self.model = _untransformed(model)
        self.n_labels, self.each = clustering.truncation, each
        context = Context.of(self.model)
        self.ancestry, self.labels = context.ancestry, [a.name for a in clustering.assignments]
        own = [self.model[name] for name in self.labels]
        seen = [child for rv in own for child in self.ancestry.children(rv)]
        # Densities in which labels enter, those of the labels themselves among them.
        self.factors = [*dict.fromkeys([*own, *seen])]
        self._keys = {rv.name: context.key(rv) for rv in self.model.free_RVs}
        self._entries = {rv: log_densities(self.model, [rv]) for rv in self.factors}
        rng, first = np.random.default_rng(20150610), Context.of(model)
        natural = natural_function(model, self._keys)
        self.points = []
        for _ in range(_N_POINTS):
            point = dict(zip(self._keys, natural(first.near(rng, 0.7)), strict=True))
            for name in self.labels:
                label = rng.integers(self.n_labels, size=point[name].shape)
                point[name] = np.asarray(label, point[name].dtype)
            self.points.append(point)
        turned = np.roll(np.arange(self.n_labels), -1)
        swapped = np.arange(self.n_labels)
        swapped[:2] = 1, 0
        self.orders = [turned, swapped][: 1 if self.n_labels == 2 else 2]
        shapes = {name: value.shape for name, value in self.points[0].items()}
        self.candidates = [
            (rv.name, axis)
            for rv in self.model.free_RVs
            if rv.name not in {*self.labels, *(name for names in each for name in names)}
            for axis, size in enumerate(shapes[rv.name])
            if size == self.n_labels and (rv.name, axis) not in axes
        ]

    def at(self, values: Values) -> dict[str, NDArray]:
        """Return the point of a model's values, by the names of these."""
        return {self._keys[name]: value for name, value in values.items()}

    def entries(self, factor: RV, values: Values) -> NDArray:
        """Return the log densities of a factor, entry by entry; NaN where they are not defined."""
        try:
            return self._entries[factor](self.at(values))[factor]
        except ParameterValueError:
            return np.full((), np.nan)

    def turned(self, values: Values, order: NDArray, axes: Collection[Axis]) -> dict[str, NDArray]:
        """Give every label what label `order` (T,) has, and objects the labels to match."""
        found, place = dict(values), np.argsort(order)
        for name, axis in axes:
            found[name] = np.take(found[name], order, axis)
        for names in self.each:
            found |= {
                name: values[names[source]] for name, source in zip(names, order, strict=True)
            }
        for name in self.labels:
            found[name] = np.asarray(place[values[name]], values[name].dtype)
        return found

    def is_same(self, factor: RV, axes: Collection[Axis]) -> bool:
        """Whether a log density stays as it is if labels take others' places with these axes."""
        finite = False
        for point in self.points:
            before = self.entries(factor, point)
            for order in self.orders:
                if not close(before, self.entries(factor, self.turned(point, order, axes))).all():
                    return False
            finite |= bool(np.isfinite(before).any())
        return finite

    def is_by_row(self, factor: RV, name: str, axis: int) -> bool:
        """Whether each row along an axis enters the density of its label alone.

        Or, of three labels and more, what that is relative to those of others, as logits do.
        """
        here, there = self.points
        for row in range(self.n_labels):
            where = np.arange(self.n_labels) == row
            where = where.reshape(-1, *[1] * (here[name].ndim - axis - 1))
            other = {name: np.where(where, there[name], here[name])}
            changes = []
            for label in np.roll(np.arange(self.n_labels), -row)[:3]:
                same = {own: np.full_like(here[own], label) for own in self.labels}
                before, after = (self.entries(factor, {**here, **same, **o}) for o in ({}, other))
                with np.errstate(invalid="ignore"):
                    changes.append(np.where(close(before, after), 0.0, after - before))
            own, second, *third = changes
            if (
                close(own, second).all()
                or not close(second, third[0] if third else np.zeros(())).all()
            ):
                return False
        return True

    def of_labels(self, axes: Collection[Axis]) -> dict[Axis, bool]:
        """Say which of the candidates are of the labels, as some `axes` are."""
        parents = self.ancestry.parents
        entered = {
            (name, axis): [f for f in self.factors if self.model[name] in parents[f]]
            for name, axis in self.candidates
        }
        found = {
            own: True
            for own, factors in entered.items()
            if any(self.is_by_row(factor, *own) for factor in factors)
        }
        left = [own for own in self.candidates if own not in found]
        for factor in self.factors:
            some = [own for own in left if factor in entered[own]]
            base = {*axes, *(own for own, of in found.items() if of)}
            if not some:
                continue
            if len(some) > _MOST_AXES:
                return {}
            ways = [way for way in _subsets(some) if self.is_same(factor, base | {*way})] or [()]
            for own in some:
                # Where it makes no difference, as with numbers that are all 0 here, none is told.
                if len({own in way for way in ways}) == 1:
                    found[own] = found.get(own, False) or own in ways[0]
        # What goes with labels, and what that is not known of.
        moved = self.moved({*axes, *(own for own, of in found.items() if of)})
        for name, axis in reversed(left):
            # What enters the priors of such alone has not been looked at.
            below = {rv.name for rv in self.ancestry.children(self.model[name])}
            if not entered[name, axis] and not moved & below:
                found[name, axis] = False
            elif found.get((name, axis)) is not False:
                moved.add(name)
        return found

    def moved(self, axes: Collection[Axis]) -> set[str]:
        """Return the names of what goes with labels, given axes that do."""
        return {name for name, _ in axes} | {name for names in self.each for name in names}

    def made(self, known: Mapping[Axis, bool], axes: Collection[Axis]) -> Belonging:
        """Say the same of what is computed, given all that is of the labels."""
        read = point_function(self.model, self.model.deterministics)
        before = [read(self.at(point)) for point in self.points]
        after = [
            [read(self.at(self.turned(point, order, axes))) for point in self.points]
            for order in self.orders
        ]
        other = [f for f in self.factors if not self.is_same(f, axes)]
        fixed = {rv for factor in other for rv in self.ancestry.parents[factor]}
        fixed |= {self.model[name] for name, axis in self.candidates if (name, axis) not in known}
        found = Belonging({}, [*self.each], [])
        moved = self.moved(axes)
        weights = self._weights()
        label_of = {name: k for names in self.each for k, name in enumerate(names)}
        # Of what is made of what one label has: the label, the values, and those after a turn.
        single: dict[str, tuple[int, list[NDArray], list[NDArray]]] = {}
        for number, rv in enumerate(self.model.deterministics):
            values = [own[number] for own in before]
            turned = [[own[number] for own in every] for every in after]
            theirs = [n for n, size in enumerate(values[0].shape) if size == self.n_labels]
            ways = [way for way in _subsets(theirs) if self._goes(values, turned, way)]
            way = ways[0] if ways else None
            parents = self.ancestry.of([rv])
            of = {label_of[own.name] for own in parents if own.name in label_of}
            if self._is_weights(values, weights):
                way = (theirs[-1],)
            elif way == () and parents & fixed:
                # What it is made of cannot be given to other labels.
                continue
            elif way is None and len(of) == 1:
                single[rv.name], way = (of.pop(), values, turned[0]), ()
            elif len(of) == 1 or (way is None and not theirs and {p.name for p in parents} & moved):
                found.alone.append(rv.name)
            elif len(ways) > 1 and {p.name for p in parents} & {*moved, *self.labels}:
                # Where numbers are the same along an axis, it cannot be told whose that is.
                continue
            if way is not None:
                found.axes.update({(rv.name, axis): axis in way for axis in theirs})
        for first_name in [name for name, (label, *_) in single.items() if label == 0]:
            names = [first_name]
            for label in range(1, self.n_labels):
                wanted = single[names[-1]][2]
                names += [
                    name
                    for name, (own, values, _) in single.items()
                    if own == label and _same(values, wanted)
                ][:1]
            if len(names) == self.n_labels:
                found.each.append(tuple(names))
        matched = {name for names in found.each for name in names}
        found.alone.extend(name for name in single if name not in matched)
        return found

    def _goes(self, values, turned, way: tuple[int, ...]) -> bool:
        """Whether what is computed takes other places along some axes as labels do."""
        for order, there in zip(self.orders, turned, strict=True):
            here = values
            for axis in way:
                here = [np.take(own, order, axis) for own in here]
            if not _same(here, there):
                return False
        return True

    def _weights(self) -> list[list[NDArray]]:
        """Give the probabilities of the labels of every assignment, at every point."""
        own = [self.model[name] for name in self.labels]
        graphs = [parameters(rv)[0] for rv in own if isinstance(rv.owner.op, CategoricalRV)]
        read = point_function(self.model, graphs)
        return [[*of] for of in zip(*(read(self.at(point)) for point in self.points), strict=True)]

    def _is_weights(self, values: Sequence[NDArray], weights: Sequence[list[NDArray]]) -> bool:
        """Whether what is computed are the probabilities of the labels of some assignment."""
        if values[0].shape[-1:] != (self.n_labels,):
            return False
        flat = [value.reshape(-1, self.n_labels) for value in values]
        return any(_same(flat, own) for own in weights)


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
    try:
        own = _Labelled(model, clustering, axes, each)
        found = own.of_labels(axes)
        theirs = {*axes, *(axis for axis, of in found.items() if of)}
        members = {own.model[name] for names in each for name in names}
        entered = [f for f in own.factors if members & own.ancestry.parents[f]]
        if not all(own.is_same(factor, theirs) for factor in entered):
            # They are not the same of each label: one may be a mean, and the other its logarithm.
            return Belonging(found, [], [])
        made = own.made(found, theirs)
        return made._replace(axes=found | made.axes)
    except Exception:
        # What PyMC or somebody's own operation says, in any way: nothing is known then.
        return Belonging({}, [], [])


def _untransformed(model: Model) -> Model:
    """Copy a model without its transforms, and without starts, which PyMC does not copy."""
    unstarted = object.__new__(type(model))
    none = dict.fromkeys(model.rvs_to_initial_values)
    vars(unstarted).update(vars(model) | {"rvs_to_initial_values": none})
    return remove_value_transforms(unstarted)


def _same(some: Sequence[NDArray], others: Sequence[NDArray]) -> bool:
    return all(
        a.shape == b.shape and close(np.asarray(a, float), np.asarray(b, float)).all()
        for a, b in zip(some, others, strict=True)
    )
