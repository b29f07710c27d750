"""Reads likelihoods of any kind over an assignment: what they say of which object, by numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pytensor.tensor.random.basic import BernoulliRV, CategoricalRV

from pm_match.declared.parts import MOST_SLICED, LabelRows, Likelihoods
from pm_match.declared.rows import Response, RowReader, given
from pm_match.declared.weights import Weights, find_weights
from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, random_point
from pm_match.reading.label_tables import LabelDensities, lacks_transform, prior_draws
from pm_match.reading.owners import check_owners, close, each_label, find_owners, mixed_labels

_SEVERAL = (
    "depends on the labels of more than one object; expected every entry of its log density to "
    "depend on the label of one object (no sums over objects, no chains of states), or a network "
    "all of whose parameters (of normal values, mean and precision) are entries of a matrix that "
    "two labels choose"
)
# Tables of log densities have at most so many: half a gigabyte, of which reading holds a few.
MOST_CELLS = 2**25
# Random labels at which they are held against the table: entries, and rows of labels, at a point.
_RANDOM_CELLS, _MOST_ROWS = 2**17, 128
# How far from all else a point is where rows are, too.
_FAR = 3.5
# Draws among which are large and small whole numbers.
_DRAWS = 100
# Points near the start, where what the data allow is likelier than far from it.
_NEAR = 0.3


@dataclass(frozen=True, eq=False)
class LikelihoodCandidate:
    """Factors of the declared density that depend on the labels of a clustering."""

    clustering: int
    assignments: list[RV]  # all of the clustering
    factors: list[RV]  # observed and free variables, and potentials

    @property
    def covered(self) -> list[RV]:
        """The factors."""
        return self.factors

    @property
    def checked(self) -> list[RV]:
        """Nothing: densities are not held against others, they are used as they are."""
        return []

    def verified(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], check: DensityCheck
    ) -> Likelihoods:
        """Find whose every entry is, and what labels have of the parameters."""
        flags = clusterings[self.clustering].flags
        if flags:
            raise Refusal(
                f"{names(self.factors)}: expected likelihoods of objects that are all relevant; "
                f"found {names(flags.values())}"
            )
        if clusterings[self.clustering].truncation == 1:
            raise Refusal(
                f"{names(self.assignments)}: expected two labels or more; found one, which nothing "
                "depends on"
            )
        for rv in self.factors:
            _check_whole(context, rv)
        try:
            return self._read(context, clusterings, check)
        except Refusal:
            raise
        except Exception as error:
            # Anything that somebody declares can go wrong in its own way.
            raise Refusal(
                f"the log densities of {names(self.factors)} cannot be evaluated: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _read(self, context: Context, clusterings, check: DensityCheck) -> Likelihoods:
        reading = _Reading(context, self, clusterings[self.clustering].truncation, check)
        owner = reading.owners()
        rows = reading.rows(reading.table, reading.truncation)
        found = rows.find()
        of_parts, of_several = reading.of_parts(clusterings[self.clustering])
        own = {name for one in [*found, *(one for _, one in of_parts)] for name in one.names}
        own |= {*of_several}
        direct = {p for rv in self.factors for p in context.ancestry.parents[rv]}
        parameters = tuple(
            rv.name
            for rv in context.model.free_RVs
            if (rv in direct or rv.name in own) and rv not in self.assignments
        )
        free = [rv for rv in self.factors if rv in context.model.free_RVs]
        climbed = [rv for rv in context.model.free_RVs if rv.name in parameters or rv in free]
        keys = [context.key(rv) for rv in self.assignments]
        redrawn = rows.redrawn(found)
        weights = tuple(reading.weights(owner))
        by_themselves = {one.name for one in weights}
        return Likelihoods(
            clustering=self.clustering,
            assignments=tuple(rv.name for rv in self.assignments),
            factors=tuple(rv.name for rv in reading.factors),
            sizes=reading.sizes,
            truncation=reading.truncation,
            owner=owner,
            batch=reading.way[0],
            conditions=reading.way[1],
            parameters=parameters,
            climbed=tuple(rv.name for rv in climbed if rv.dtype.startswith("float")),
            rows=tuple(found),
            weights=weights,
            part_rows=tuple(of_parts),
            part_named=tuple(of_several),
            redrawn=tuple(redrawn),
            sliced=_sliced(
                [one for one in redrawn if not by_themselves & {*one.names}], reading.points[0]
            ),
            swappable=rows.exchangeable(found, keys, reading.split(reading.some_labels[0])),
            numbers=reading.numbers(owner),
            all_seen=all(context.is_missing(rv) for rv in free),
        )


def _sliced(found: Sequence[LabelRows], point: Mapping[str, NDArray]) -> tuple[LabelRows, ...]:
    """Choose rows that are drawn one number at a time: all real ones, or none if they are many."""
    tables = {rows: rows.table(point) for rows in found}
    real = {rows: own for rows, own in tables.items() if own.dtype.kind == "f"}
    few = sum(own.shape[1] for own in real.values()) <= MOST_SLICED
    return tuple(real) if few else ()


def likelihood_candidates(
    context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
) -> list[LikelihoodCandidate]:
    """Group factors by the clustering whose labels they depend on."""
    found: dict[int, list[RV]] = {}
    for rv in values:
        parents = context.ancestry.parents[rv]
        homes = [n for n, c in enumerate(clusterings) if parents & {*c.assignments}]
        if len(homes) > 1:
            own = [a for n in homes for a in clusterings[n].assignments if a in parents]
            raise Refusal(f"{rv.name!r} depends on {names(own)}: it {_SEVERAL}")
        found.setdefault(homes[0], []).append(rv)
    for number, factors in found.items():
        if not any(context.is_seen(rv) for rv in factors):
            own = clusterings[number].assignments
            free = f"{names(factors, 'is')} free"
            raise Refusal(f"no observed variable depends on {names(own)}: {free}")
    return [
        LikelihoodCandidate(number, clusterings[number].assignments, factors)
        for number, factors in sorted(found.items())
    ]


def _check_whole(context: Context, rv: RV) -> None:
    """Refuse fractions where whole numbers are expected: PyMC has log densities of these too."""
    if rv not in context.model.observed_RVs or rv.dtype.startswith("float"):
        return
    values = context.uncast(rv, context.observed([rv]))
    wrong = np.argwhere(values != np.round(values))
    if len(wrong):
        place = tuple(wrong[0].tolist())
        raise Refusal(
            f"{rv.name!r}{list(place) if place else ''}: expected a whole number; found "
            f"{values[place]}"
        )


class _Reading:
    """Entries of some factors at points with nothing special about them."""

    def __init__(
        self, context: Context, candidate: LikelihoodCandidate, truncation: int, check: DensityCheck
    ):
        self.context, self.assignments = context, candidate.assignments
        self.truncation = truncation
        sizes = [context.shapes[rv.name][0] for rv in self.assignments]
        self.n_objects, self._ends = int(sum(sizes)), np.cumsum(sizes)[:-1]
        rng = np.random.default_rng(20130205)
        self.points = [_inside(context, rng, p) for p in check.points]
        self.points.append(point_inside(context, rng))
        self._switch(rng)
        densities = LabelDensities(context.model, candidate.factors, self.assignments)
        self.factors = densities.factors
        nobody = np.zeros(self.n_objects, np.int64)
        self._shapes = densities.shapes(self.points[0], self.split(nobody))
        self.sizes = tuple(int(np.prod(shape)) for shape in self._shapes)
        self._check_size()
        self._check_labels(densities)
        self.labels = each_label(truncation, self.n_objects)
        self.some_labels = mixed_labels(rng, truncation, self.n_objects)
        self.way = self._best_way(densities)
        self._entries = densities.compiled(*self.way)

    def _switch(self, rng: np.random.Generator) -> None:
        """Let all switches be on at the first of the points, and off at the second.

        And other whole numbers, as of a change point, large at the first and small at the second.
        """
        context, whole = self.context, []
        for rv in context.model.free_RVs:
            key = context.key(rv)
            if rv in self.assignments or rv.dtype.startswith("float") or context.is_missing(rv):
                continue
            if isinstance(rv.owner.op, CategoricalRV) and len(context.shapes[rv.name]) == 1:
                continue  # labels of others
            if not isinstance(rv.owner.op, BernoulliRV):
                whole.append(rv)
                continue
            drawn = rng.integers(2, size=(len(self.points), *self.points[0][key].shape))
            drawn[0], drawn[1] = 1, 0
            for point, own in zip(self.points, drawn, strict=True):
                point[key] = np.asarray(own, point[key].dtype)
        if not whole:
            return
        try:
            draw = prior_draws(context.model, whole, given(context, whole))
            found = [draw(rng, context.start) for _ in range(max(_DRAWS, len(self.points)))]
        except Exception:
            return  # some cannot be drawn
        for key in map(context.key, whole):
            if all(own[key].shape == self.points[0][key].shape for own in found):
                drawn = np.array([own[key] for own in found])
                drawn[:2] = drawn.max(axis=0), drawn.min(axis=0)
                for point, own in zip(self.points, drawn, strict=False):
                    point[key] = own

    def split(self, labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split labels (..., N) by assignment."""
        return np.split(labels, self._ends, axis=-1)

    def entries(self, point, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Evaluate all entries (B, E) at labels (B, N)."""
        return self._entries(point, self.split(labels))

    def table(self, point) -> NDArray[np.float64]:
        """Evaluate all entries (T, E) under each label."""
        return self.entries(point, self.labels)

    def _check_labels(self, densities: LabelDensities) -> None:
        """Refuse what cannot be evaluated under every label."""
        plain = densities.compiled(1, False)
        for label in range(self.truncation):
            try:
                plain(self.points[0], self.split(np.full((1, self.n_objects), label)))
            except Exception as error:
                if label == 0:
                    raise
                raise Refusal(
                    f"{names(self.factors)}: expected parameters for each of {self.truncation} "
                    f"labels of {names(self.assignments)}; found none for label {label} "
                    f"({str(error).splitlines()[0]})"
                ) from error

    def _check_size(self) -> None:
        """Refuse tables that are too large to be kept."""
        n_entries = max(sum(self.sizes), self.n_objects)
        # Objects are told apart by the digits of their numbers.
        n_rows = max(self.truncation, self.n_objects.bit_length())
        if n_rows * n_entries > MOST_CELLS:
            raise Refusal(
                f"{names(self.factors)}: expected a table of at most {MOST_CELLS:,} log densities, "
                f"entries times labels; found {n_entries:,} entries and {self.truncation} labels "
                f"of {names(self.assignments)}"
            )

    def _best_way(self, densities: LabelDensities) -> tuple[int, bool]:
        """Choose the fastest way to compile entries that says what the declared graph does.

        Return `batch` and `conditions`, as `LabelDensities.compiled` takes them.
        """
        labels = self.split(self.some_labels[[0, -1]])
        expected = [densities.compiled(1, False)(p, labels) for p in self.points]
        for conditions in (True, False):
            batch = densities.batch(conditions, self.points[0], labels)
            try:
                entries = densities.compiled(batch, conditions)
                found = [entries(p, labels) for p in self.points]
            except Exception:
                continue
            # What conditions rule out is impossible, whatever is declared without them.
            if all(
                f.shape == e.shape and (close(f, e) | (conditions & np.isneginf(f))).all()
                for f, e in zip(found, expected, strict=True)
            ):
                return batch, conditions
        return 1, False

    def owners(self) -> NDArray[np.int64]:
        """Find the object that owns every entry, and refuse what more than one does."""
        tables = [self.table(point) for point in self.points]
        owner = np.full(tables[0].shape[1], -1)
        for point, table in zip(self.points, tables, strict=True):
            owner = find_owners(partial(self.entries, point), table, owner, self.n_objects)
            self._refuse(owner == -2, _SEVERAL)
        seen = np.any([np.isfinite(table).any(axis=0) for table in tables], axis=0)
        self._refuse(
            (owner < 0) & ~seen,
            "has no density at any of the points that were tried; expected to see whose label "
            "it depends on (no bound on how many objects clusters have)",
        )
        rng = np.random.default_rng(20130206)
        n_rows = int(np.clip(_RANDOM_CELLS // max(len(owner), 1), 0, _MOST_ROWS))
        for point, table in zip(self.points, tables, strict=True):
            # What two objects' labels do together is seen where they are two certain ones.
            drawn = rng.integers(self.truncation, size=(n_rows, self.n_objects))
            labels = np.concatenate([self.some_labels, drawn])
            fine = check_owners(partial(self.entries, point), table, owner, labels)
            self._refuse(~fine, _SEVERAL)
        if (owner < 0).all():
            raise Refusal(f"no entry of {names(self.factors)} depends on {names(self.assignments)}")
        return owner

    def rows(self, response: Response, n_labels: int) -> RowReader:
        """Make what finds the rows of labels."""
        rng = np.random.default_rng(20130207)
        wide = _inside(self.context, rng, random_point(rng, self.context, _FAR))
        return RowReader(self.context, self.factors, self.points, wide, response, n_labels)

    def of_parts(
        self, clustering: ClusteringCandidate
    ) -> tuple[list[tuple[str, LabelRows]], list[str]]:
        """Find what the labels of each part have, if labels are joint.

        Return `rows`: of its set of clusters, those of variables that have no other part's; the
        names of variables that have several parts' rows.
        """
        (parts, *others) = [*clustering.parts.values()] or [()]
        sizes = [part.n_labels for part in parts]
        if any([part.n_labels for part in own] != sizes for own in others):
            return [], []
        found: dict[str, list[tuple[str, LabelRows]]] = {}
        several: set[str] = set()
        for place, part in enumerate(parts):
            response = partial(self._by_part, sizes, place)
            reader = self.rows(response, part.n_labels)
            elsewhere = {*sizes[:place], *sizes[place + 1 :]}
            for rows in reader.find():
                for name in rows.names:
                    found.setdefault(name, []).append((part.title, rows))
                    shape = enumerate(self.context.shapes[name])
                    if any(axis != rows.axis and n in elsewhere for axis, n in shape):
                        several.add(name)
        several |= {name for name, own in found.items() if len(own) > 1}
        alone = dict.fromkeys(own[0] for name, own in found.items() if name not in several)
        return [*alone], sorted(several)

    def _by_part(self, sizes: Sequence[int], place: int, point) -> NDArray[np.float64]:
        """Arrange the table at a point by the labels of one part (n, ...)."""
        by_part = np.moveaxis(self.table(point).reshape(*sizes, -1), place, 0)
        return by_part.reshape(len(by_part), -1)

    def weights(self, owner: NDArray[np.int64]) -> Iterator[Weights]:
        """Find probabilities of labels, or of what is observed, that labels choose one of each."""
        places = np.split(np.arange(len(owner)), np.cumsum(self.sizes)[:-1])
        entries = dict(zip(self.factors, places, strict=True))
        return find_weights(self.context, self.assignments, entries, owner, self.points, self.table)

    def numbers(self, owner: NDArray[np.int64]) -> NDArray[np.float64]:
        """Arrange what is observed by object (N, K), where every object has as many numbers.

        Means of what it has, where they have not.
        """
        found, place = [], 0
        for rv, shape, size in zip(self.factors, self._shapes, self.sizes, strict=True):
            own = owner[place : place + size]
            place += size
            if rv not in self.context.model.observed_RVs or not (own >= 0).any():
                continue
            values = self.context.observed([rv])
            if values.shape[: len(shape)] != tuple(shape) or not np.isfinite(values).all():
                continue
            values, order = values.reshape(len(own), -1), np.argsort(own, kind="stable")
            counts = np.bincount(own[own >= 0], minlength=self.n_objects)
            held, most = np.flatnonzero(counts), int(counts.max())
            table = np.full((self.n_objects, values.shape[1] * most), np.nan)
            if (counts[held] == most).all():
                table[held] = values[order[-int(counts.sum()) :]].reshape(len(held), -1)
            else:
                sums = np.zeros((self.n_objects, values.shape[1]))
                np.add.at(sums, own[own >= 0], values[own >= 0])
                table = np.where(counts[:, None], sums / np.maximum(counts, 1)[:, None], np.nan)
            spread = np.nanstd(table, axis=0)
            found.append(table[:, spread > 0.0] / spread[spread > 0.0])
        return np.concatenate([np.empty((self.n_objects, 0)), *found], axis=1)

    def _refuse(self, entries: NDArray[np.bool_], why: str) -> None:
        """Refuse, naming the factor and the place of the first of some `entries` (E,)."""
        if not entries.any():
            return
        place = int(np.flatnonzero(entries)[0])
        for rv, shape, size in zip(self.factors, self._shapes, self.sizes, strict=True):
            if place < size:
                where = ", ".join(map(str, np.unravel_index(place, shape))) if shape else ""
                raise Refusal(f"{rv.name!r}{f'[{where}]' if where else ''} {why}")
            place -= size


def point_inside(context: Context, rng: np.random.Generator) -> dict[str, NDArray]:
    """Draw a point near the start, but nothing special, where densities are defined."""
    return _inside(context, rng, context.near(rng, _NEAR))


def _inside(context: Context, rng: np.random.Generator, point) -> dict[str, NDArray]:
    """Bring values at a random point to where their densities are defined."""
    model, found = context.model, dict(point)
    for rv in model.free_RVs:
        key = context.key(rv)
        if rv.dtype.startswith("float"):
            if lacks_transform(model, rv):
                start = context.start[key]
                found[key] = np.asarray(start * np.exp(rng.normal(0.0, _NEAR, start.shape)))
            continue
        if np.array_equal(point[key], context.start[key]):
            # What is whole numbers has no other way to be anything else.
            try:
                draw = prior_draws(model, [rv], given(context, [rv]))
                found |= draw(rng, found)
            except Exception:
                continue
    return found
