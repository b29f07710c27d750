"""Reads likelihoods whose entries depend on the labels of two objects: of edges, for one."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress

import numpy as np
import scipy
from numpy.typing import NDArray

from pm_match.declared.parts import LARGE, MOST_CELLS, PairLikelihoods
from pm_match.declared.trial_points import Reading, best_way
from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck
from pm_match.reading.owners import close, each_label, find_owners
from pm_match.reading.probe import natural_function, sampled_function

# Labels of all other places at which each place where labels enter is looked at, at a point; at the
# first one, all that there are, and switches are on.
_HELD = 2
# Log densities from which on compiling takes less time than it saves where rows are evaluated at
# once.
_LARGE_AT_ONCE = 2_000_000
# Random labels at which tables are held against the density: entries, and rows, at a point.
_RANDOM_CELLS, _MOST_ROWS = 2**20, 128
# Directions of what is observed of pairs that k-means of a start gets.
_DIRECTIONS = 10


class NoPairsError(Exception):
    """Entries that depend on two labels depend on those of one object."""


def read_pairs(
    context: Context,
    clusterings: Sequence[ClusteringCandidate],
    among: Sequence[int],
    factors: Sequence[RV],
    check: DensityCheck,
) -> PairLikelihoods:
    """Read factors that depend on the labels of some clusterings, of two objects at most each.

    Raise `NoPairsError` if all are of one object.
    """
    return _Reading(context, [clusterings[n] for n in among], factors, check).read(among)


class _Reading(Reading):
    """Entries that depend on the labels of two objects each."""

    def __init__(
        self,
        context: Context,
        clusterings: Sequence[ClusteringCandidate],
        factors: Sequence[RV],
        check: DensityCheck,
    ):
        assignments = [rv for own in clusterings for rv in own.assignments]
        self.rng = np.random.default_rng(20201205)
        super().__init__(context, factors, assignments, check, self.rng, by_use=True)
        self.home = [n for n, own in enumerate(clusterings) for _ in own.assignments]
        self.truncations = [own.truncation for own in clusterings]
        self.uses = self.densities.uses
        n_cells = max(self.truncations) ** 2 * sum(self.sizes)
        if n_cells > MOST_CELLS:
            raise Refusal(
                f"{names(self.factors)}: expected a table of at most {MOST_CELLS:,} log densities, "
                f"entries times pairs of labels; found {n_cells:,}"
            )
        self.way = best_way(self.densities, self.points, self._mixed(2))
        fast = n_cells > (LARGE if self.way[0] == 1 else _LARGE_AT_ONCE)
        self._entries = self.densities.compiled(*self.way, fast)

    def _mixed(self, n: int) -> list[NDArray[np.int64]]:
        """Draw `n` rows of labels for every place where labels enter, each row with other ones."""
        found = []
        for own in self.uses:
            truncation = self.truncations[self.home[own]]
            start = self.rng.integers(truncation, size=self.n_objects[own])
            found.append((np.arange(n)[:, None] + start) % truncation)
        return found

    def read(self, among: Sequence[int]) -> PairLikelihoods:
        """Find whose labels entries depend on, and what labels number."""
        owners, second = self._owners()
        self._check(owners, second)
        model, parents = self.context.model, self.context.ancestry.parents
        direct = {p for rv in self.factors for p in parents[rv]} - {*self.assignments}
        parameters = [rv for rv in model.free_RVs if rv in direct and rv not in self.factors]
        free = [rv for rv in self.factors if rv in model.free_RVs]
        before, homes = self._table(self.points[0], second), self._homes(owners)
        axes = {rv.name: self._axes(rv, before, homes, second) for rv in parameters}
        self._add_simplexes(axes, before, homes, second)
        objects = np.bincount(self.home, self.n_objects).astype(np.int64)
        of_pairs = [(own[:, 1] >= 0).any() for own in np.split(owners, np.cumsum(self.sizes)[:-1])]
        return PairLikelihoods(
            assignments=tuple(rv.name for rv in self.assignments),
            factors=tuple(rv.name for rv in self.factors),
            batch=self.way[0],
            conditions=self.way[1],
            parameters=tuple(rv.name for rv in parameters),
            all_seen=all(map(self.context.is_missing, free)),
            among=tuple(among),
            truncations=tuple(self.truncations),
            owners=owners,
            second=tuple(second.tolist()),
            edges=tuple(
                rv.name for rv in compress(self.factors, of_pairs) if rv in model.observed_RVs
            ),
            axes={name: {a: among[n] for a, n in own.items()} for name, own in axes.items() if own},
            numbers=self._numbers(owners, objects),
        )

    # -- whose labels -----------------------------------------------------------------------------

    def _owners(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Find the objects (E, 2) of every entry, and the places where the second's label enters.

        Return `owners`: -1 for none; `second` (P,).
        """
        start = np.cumsum([0, *self.n_objects])
        own = np.array([self._owners_at(place) for place in range(len(self.uses))])
        own = np.where(own < 0, own, own + start[self.uses][:, None])
        self.refuse((own == -2).any(axis=0))
        # One object of every entry, and another one; a third would be seen at random labels.
        one, two = np.full((2, own.shape[1]), -1)
        for entered in own:
            one = np.where(one < 0, entered, one)
            two = np.where((entered >= 0) & (entered != one), entered, two)
        pairs = two >= 0
        if not pairs.any() or self._of_one_object(one[pairs], two[pairs]):
            raise NoPairsError
        patterns = np.where(own < 0, -1, own != one)[:, pairs]
        second = self._sides([*np.unique(patterns, axis=1).T])
        ends = [own[side].max(axis=0, initial=-1) for side in (~second, second)]
        first, other = np.where(pairs, ends, [one, two])
        return np.stack([first, other], axis=1), second

    def _sides(self, patterns: list[NDArray[np.int64]]) -> NDArray[np.bool_]:
        """Find a side of pairs for every place where labels enter.

        `patterns`, each (P,): by place, 0 for one object of an entry, 1 for the other, or -1. Which
        of them is first is for the places to agree on.
        """
        side = np.full(len(self.uses), -1)
        while patterns:
            joined = (n for n, own in enumerate(patterns) if (side[own >= 0] >= 0).any())
            pattern = patterns.pop(next(joined, 0))
            known = np.flatnonzero((pattern >= 0) & (side >= 0))
            wanted = pattern ^ (side[known[0]] ^ pattern[known[0]] if len(known) else 0)
            if (side[known] != wanted[known]).any():
                raise Refusal(
                    f"{names(self.factors)}: expected every place where labels enter to be for the "
                    "first objects of all pairs, or for the second ones; found both"
                )
            side[pattern >= 0] = wanted[pattern >= 0]
        return side == 1

    def _of_one_object(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
        """Whether pairs are two labels of one object each: these are better drawn jointly."""
        ends = np.cumsum(self.n_objects)
        homes = [np.searchsorted(ends, own, side="right") for own in (first, second)]
        start = ends - self.n_objects
        same = first - start[homes[0]] == second - start[homes[1]]
        return bool((same & (homes[0] != homes[1])).all())

    def _owners_at(self, place: int) -> NDArray[np.int64]:
        """Find the object of every entry (E,) whose label enters at one place; -1 none; -2 some."""
        truncation = self.truncations[self.home[self.uses[place]]]
        n_objects = self.n_objects[self.uses[place]]
        owner = np.full(sum(self.sizes), -1)
        for number, point in enumerate(self.points):
            n_rows = _HELD if number else max(self.truncations)
            for held in zip(*self._mixed(n_rows), strict=True):
                if (owner != -1).all():
                    return owner
                entries = partial(self._at, point, place, held)
                table = entries(each_label(truncation, n_objects))
                owner = find_owners(entries, table, owner, n_objects)
        return owner

    def _at(self, point, place: int, held: Sequence[NDArray], labels: NDArray) -> NDArray:
        """Evaluate entries (B, E) at labels (B, N) that enter at one place, all else held."""
        rows = [np.repeat(own[None], len(labels), axis=0) for own in held]
        rows[place] = labels
        return self._entries(point, rows)

    def _table(self, point, second: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Evaluate entries (T, T, E) for each label of the first object, and of the second."""
        truncations = [self.truncations[self.home[own]] for own in self.uses]
        n_objects = [self.n_objects[own] for own in self.uses]
        return pair_table(self._entries, point, second, truncations, n_objects)

    def _check(self, owners: NDArray[np.int64], second: NDArray[np.bool_]) -> None:
        """Hold the table against the density at random labels."""
        n_rows = int(np.clip(_RANDOM_CELLS // max(len(owners), 1), 2, _MOST_ROWS))
        for point in self.points:
            table = self._table(point, second)
            drawn = [
                self.rng.integers(self.truncations[home], size=(n_rows, n))
                for home, n in zip(self.home, self.n_objects, strict=True)
            ]
            found = self._entries(point, [drawn[own] for own in self.uses])
            labels = np.concatenate(drawn, axis=1)
            expected = table[(*pair_labels(labels, owners), np.arange(len(owners)))]
            self.refuse(~close(found, expected).all(axis=0))

    # -- what labels have -------------------------------------------------------------------------

    def _axes(
        self,
        rv: RV,
        before: NDArray[np.float64],
        homes: NDArray[np.int64],
        second: NDArray[np.bool_],
    ) -> dict[int, int]:
        """Find the clusterings whose labels number axes of a parameter.

        `before`: the table at the first point; `homes`: as of `_homes`.
        """
        key, found = self.context.key(rv), dict[int, int]()
        for axis, n in enumerate(np.shape(self.points[0][key])):
            for number in np.flatnonzero(np.array(self.truncations) == n):
                if self._numbers_axis(key, axis, before, (homes == number).T, second):
                    found[axis] = int(number)
                    break
        return found

    def _homes(self, owners: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the clusterings (E, 2) of the objects of entries, twice that of an only one."""
        home = np.append(np.repeat(self.home, self.n_objects), -1)
        return home[np.where(owners[:, 1:] < 0, owners[:, :1], owners)]

    def _add_simplexes(
        self,
        axes: dict[str, dict[int, int]],
        before: NDArray[np.float64],
        homes: NDArray[np.int64],
        second: NDArray[np.bool_],
    ) -> None:
        """Find last axes of simplexes, a number shorter on the scale that is sampled.

        None of their numbers changes alone: labels are put into another order instead, with all
        that they number.
        """
        model, shapes, start = self.context.model, self.context.shapes, self.points[0]
        last = {
            name: len(shapes[name]) - 1
            for name in axes
            if shapes[name] and shapes[name][-1] != np.shape(start[self._key(name)])[-1]
        }
        if not last:
            return
        natural = dict(zip(axes, natural_function(model, axes)(start), strict=True))
        sampled = {name: sampled_function(model, name) for name in axes}
        most = np.arange(len(before))[:, None]
        for number, truncation in enumerate(self.truncations):
            some = {name for name, axis in last.items() if shapes[name][axis] == truncation}
            turned = np.where(homes.T[:, None] == number, truncation - 1 - most, most)
            turned = np.where(turned < 0, 0, turned)
            expected = before[turned[0][:, None], turned[1][None], np.arange(len(homes))]
            for tried in (some, *({name} for name in some if len(some) > 1)):
                point = dict(start)
                for name, own in axes.items():
                    along = [a for a, home in own.items() if home == number]
                    along += [last[name]] if name in tried else []
                    if along:
                        value = np.flip(natural[name], tuple(along))
                        point[self._key(name)] = sampled[name](point, value)
                if tried and close(self._table(point, second), expected).all():
                    for name in tried:
                        axes[name][last[name]] = number
                    break

    def _key(self, name: str) -> str:
        return self.context.key(self.context.model[name])

    def _numbers_axis(
        self,
        key: str,
        axis: int,
        before: NDArray[np.float64],
        ends: NDArray[np.bool_],
        second: NDArray[np.bool_],
    ) -> bool:
        """Whether what a parameter has at a place along an axis is for a label of some objects.

        `ends` (2, E): whether the first objects of entries, and the second ones, are such.
        """
        here, there = self.points[:2]
        seen = False
        for label in (0, here[key].shape[axis] - 1):
            own = (*[slice(None)] * axis, label)
            value = here[key].copy()
            value[own] = there[key][own]
            changed = ~close(before, self._table({**here, key: value}, second))
            seen |= bool(changed.any())
            # What there is no label for is as of the last.
            rows = slice(label, label + 1 if label + 1 < here[key].shape[axis] else None)
            changed[rows, :, ends[0]] = changed[:, rows, ends[1]] = False
            if changed.any():
                return False
        return seen

    def _numbers(
        self, owners: NDArray[np.int64], objects: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], ...]:
        """Summarise what is observed of the pairs of every object (N, K), by clustering."""
        ends, sums = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
        place = 0
        for rv, shape, size in zip(self.factors, self.shapes, self.sizes, strict=True):
            own = owners[place : place + size]
            place += size
            values = None
            if rv in self.context.model.observed_RVs:
                values = self.context.observed([rv])
            if values is None or values.shape != tuple(shape) or not np.isfinite(values).all():
                continue
            pairs = own[:, 1] >= 0
            numbers = values.ravel()[pairs].astype(float)
            spread = numbers.std() if len(numbers) else 0.0
            if spread > 0.0:
                ends.append(own[pairs])
                sums.append((numbers - numbers.mean()) / spread)
        one, two = np.concatenate(ends).T
        total = int(objects.sum())
        table = scipy.sparse.csr_array((np.concatenate(sums), (one, two)), (total, total))
        rows = scipy.sparse.hstack([table, table.T], "csr")
        homes = np.split(np.arange(total), np.cumsum(objects)[:-1])
        return tuple(self._directions(rows[which]) for which in homes)

    def _directions(self, rows: scipy.sparse.csr_array) -> NDArray[np.float64]:
        """Return sparse rows along the directions of their largest variance (N, K)."""
        if not rows.nnz:
            return np.zeros((rows.shape[0], 0))
        if rows.shape[0] <= _DIRECTIONS:
            left, sizes, _ = scipy.linalg.svd(rows.toarray(), full_matrices=False)
        else:
            start = self.rng.normal(size=rows.shape[0])
            left, sizes, _ = scipy.sparse.linalg.svds(rows, _DIRECTIONS, v0=start)
        order = np.argsort(-sizes)
        return (left * sizes)[:, order[sizes[order] > 1e-8]]


def pair_table(
    entries: Callable,
    point,
    second: Iterable[bool],
    truncations: Sequence[int],
    n_objects: Sequence[int],
) -> NDArray[np.float64]:
    """Evaluate entries (T, T, E) for each label of the first object of a pair, and of the second.

    `second`, `truncations`, `n_objects`: of every place where labels enter. Labels that there are
    not stand for the last one.
    """
    most = max(truncations)
    pairs = np.indices((most, most)).reshape(2, -1)
    labels = [
        np.repeat(np.minimum(pairs[int(which)], truncation - 1)[:, None], n, axis=1)
        for which, truncation, n in zip(second, truncations, n_objects, strict=True)
    ]
    return entries(point, labels).reshape(most, most, -1)


def pair_labels(
    labels: NDArray[np.int64], owners: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels (B, E) of the first and of the second objects of entries.

    `labels` (B, N). An only object's label stands for both, 0 for nobody's.
    """
    one, two = owners.T
    two = np.where(two < 0, one, two)
    own = [np.where(which < 0, 0, labels[:, np.maximum(which, 0)]) for which in (one, two)]
    return own[0], own[1]
