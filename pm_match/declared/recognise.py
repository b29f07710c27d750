"""Reads likelihoods of any kind over an assignment: what they say of which object, by numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.declared.effects import find_effects
from pm_match.declared.pairs import NoPairsError, read_pairs
from pm_match.declared.parts import MOST_CELLS, MOST_SLICED, Effects, Likelihoods, PairLikelihoods
from pm_match.declared.rows import Response, RowReader
from pm_match.declared.trial_points import SEVERAL, Reading, best_way, inside
from pm_match.declared.weights import Weights, find_weights
from pm_match.reading.ancestry import RV, Refusal, connected, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, random_point
from pm_match.reading.exchange import LabelRows
from pm_match.reading.owners import check_owners, each_label, find_owners, mixed_labels


class _SeveralError(Refusal):
    """An entry of a log density depends on the labels of more than one object."""


# Random labels at which they are held against the table: entries, and rows of labels, at a point.
_RANDOM_CELLS, _MOST_ROWS = 2**17, 128
# How far from all else a point is where rows are, too.
_FAR = 3.5


@dataclass(frozen=True, eq=False)
class LikelihoodCandidate:
    """Factors of the declared density that depend on the labels of some clusterings."""

    among: list[int]
    assignments: list[RV]  # all of the clusterings
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
    ) -> Likelihoods | PairLikelihoods:
        """Find whose every entry is, and what labels have of the parameters."""
        for own in (clusterings[number] for number in self.among):
            if own.flags:
                raise Refusal(
                    f"{names(self.factors)}: expected likelihoods of objects that are all "
                    f"relevant; found {names(own.flags.values())}"
                )
            if own.truncation == 1:
                raise Refusal(
                    f"{names(own.assignments)}: expected two labels or more; found one, which "
                    "nothing depends on"
                )
        for rv in self.factors:
            _check_whole(context, rv)
        try:
            return self._of_one_or_two(context, clusterings, check)
        except Refusal:
            raise
        except Exception as error:
            # Anything that somebody declares can go wrong in its own way.
            raise Refusal(
                f"the log densities of {names(self.factors)} cannot be evaluated: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _of_one_or_two(self, *given: Any) -> Likelihoods | PairLikelihoods:
        try:
            return self._read(*given)
        except _SeveralError as refusal:
            context, clusterings, check = given
            try:
                return read_pairs(context, clusterings, self.among, self.factors, check)
            except NoPairsError:
                raise refusal from None

    def _read(self, context: Context, clusterings, check: DensityCheck) -> Likelihoods:
        for rv in self.factors if len(self.among) > 1 else ():
            own = [a for a in self.assignments if a in context.ancestry.parents[rv]]
            if len({n for n in self.among if {*clusterings[n].assignments} & {*own}}) > 1:
                raise _SeveralError(f"{rv.name!r} depends on {names(own)}: it {SEVERAL}")
        (number,) = self.among
        clustering = clusterings[number]
        reading = _Reading(context, self, clustering.truncation, check)
        owner = reading.owners()
        rows = reading.rows(reading.table, reading.truncation)
        found = rows.find()
        of_parts, of_several = reading.of_parts(clustering)
        named = {name for one in [*found, *(one for _, one in of_parts)] for name in one.names}
        named |= {*of_several}
        direct = {p for rv in self.factors for p in context.ancestry.parents[rv]}
        parameters = [
            rv
            for rv in context.model.free_RVs
            if (rv in direct or rv.name in named) and rv not in self.assignments
        ]
        free = [rv for rv in self.factors if rv in context.model.free_RVs]
        keys = [context.key(rv) for rv in self.assignments]
        redrawn = rows.redrawn(found)
        weights = tuple(reading.weights(owner))
        by_themselves = {one.name for one in weights}
        others = [rv for rv in (*parameters, *free) if rv.name not in named | by_themselves]
        shared = [context.key(rv) for rv in others if rv.dtype.startswith("float")]
        alone = [one for one in redrawn if not by_themselves & {*one.names}]
        return Likelihoods(
            clustering=number,
            assignments=tuple(rv.name for rv in self.assignments),
            factors=tuple(rv.name for rv in reading.factors),
            sizes=reading.sizes,
            truncation=reading.truncation,
            owner=owner,
            batch=reading.way[0],
            conditions=reading.way[1],
            parameters=tuple(rv.name for rv in parameters),
            rows=tuple(found),
            weights=weights,
            effects=reading.effects(rows, owner, named | by_themselves),
            part_rows=tuple(of_parts),
            part_named=tuple(of_several),
            redrawn=tuple(redrawn),
            sliced=_sliced(rows, alone, shared),
            swappable=rows.exchangeable(found, keys, owner >= 0),
            numbers=(reading.numbers(owner),),
            all_seen=all(map(context.is_missing, free)),
        )


def _sliced(
    reader: RowReader, found: Sequence[LabelRows], shared: Sequence[str]
) -> tuple[LabelRows, ...]:
    """Choose rows that are drawn one number at a time: all real ones, or none if they are many.

    Those that would hardly move so, given what they have in common, are left to a step that moves
    both.
    """
    tables = {rows: rows.table(reader.points[0]) for rows in found}
    real = {rows: own for rows, own in tables.items() if own.dtype.kind == "f"}
    few = sum(own.shape[1] for own in real.values()) <= MOST_SLICED
    return tuple(rows for rows in real if not reader.give_way(rows, shared)) if few else ()


def likelihood_candidates(
    context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
) -> list[LikelihoodCandidate]:
    """Group factors by the clustering whose labels they depend on."""
    homes: dict[RV, set[int]] = {}
    for rv in values:
        parents = context.ancestry.parents[rv]
        homes[rv] = {n for n, c in enumerate(clusterings) if parents & {*c.assignments}}
    found = []
    for own, factors in connected(homes):
        assignments = [rv for number in sorted(own) for rv in clusterings[number].assignments]
        if not any(context.is_seen(rv) for rv in factors):
            free = f"{names(factors, 'is')} free"
            raise Refusal(f"no observed variable depends on {names(assignments)}: {free}")
        found.append(LikelihoodCandidate(sorted(own), assignments, factors))
    return found


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


class _Reading(Reading):
    """Entries that depend on the labels of one object each."""

    refusal = _SeveralError

    def __init__(
        self, context: Context, candidate: LikelihoodCandidate, truncation: int, check: DensityCheck
    ):
        rng = np.random.default_rng(20130205)
        super().__init__(context, candidate.factors, candidate.assignments, check, rng)
        self.truncation, self.total = truncation, int(sum(self.n_objects))
        self._ends = np.cumsum(self.n_objects)[:-1]
        self._check_size()
        self._check_labels()
        self.labels = each_label(truncation, self.total)
        self.some_labels = mixed_labels(rng, truncation, self.total)
        self.way = best_way(self.densities, self.points, self.split(self.some_labels[[0, -1]]))
        self._entries = self.densities.compiled(*self.way)

    def split(self, labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Split labels (..., N) by assignment."""
        return np.split(labels, self._ends, axis=-1)

    def entries(self, point, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Evaluate all entries (B, E) at labels (B, N)."""
        return self._entries(point, self.split(labels))

    def table(self, point) -> NDArray[np.float64]:
        """Evaluate all entries (T, E) under each label."""
        return self.entries(point, self.labels)

    def _check_labels(self) -> None:
        """Refuse what cannot be evaluated under every label."""
        plain = self.densities.compiled(1, False)
        for label in range(self.truncation):
            try:
                plain(self.points[0], self.split(np.full((1, self.total), label)))
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
        n_entries = max(sum(self.sizes), self.total)
        # Objects are told apart by the digits of their numbers.
        n_rows = max(self.truncation, self.total.bit_length())
        if n_rows * n_entries > MOST_CELLS:
            raise Refusal(
                f"{names(self.factors)}: expected a table of at most {MOST_CELLS:,} log densities, "
                f"entries times labels; found {n_entries:,} entries and {self.truncation} labels "
                f"of {names(self.assignments)}"
            )

    def owners(self) -> NDArray[np.int64]:
        """Find the object that owns every entry, and refuse what more than one does."""
        tables = [self.table(point) for point in self.points]
        owner = np.full(tables[0].shape[1], -1)
        for point, table in zip(self.points, tables, strict=True):
            owner = find_owners(partial(self.entries, point), table, owner, self.total)
            self.refuse(owner == -2)
        seen = np.any([np.isfinite(table).any(axis=0) for table in tables], axis=0)
        self.refuse(
            (owner < 0) & ~seen,
            "has no density at any of the points that were tried; expected values that are "
            "possible, and no bound on how many objects clusters have",
        )
        rng = np.random.default_rng(20130206)
        n_rows = int(np.clip(_RANDOM_CELLS // max(len(owner), 1), 0, _MOST_ROWS))
        for point, table in zip(self.points, tables, strict=True):
            # What two objects' labels do together is seen where they are two certain ones.
            drawn = rng.integers(self.truncation, size=(n_rows, self.total))
            labels = np.concatenate([self.some_labels, drawn])
            fine = check_owners(partial(self.entries, point), table, owner, labels)
            self.refuse(~fine)
        if (owner < 0).all():
            raise Refusal(f"no entry of {names(self.factors)} depends on {names(self.assignments)}")
        return owner

    def rows(self, response: Response, n_labels: int) -> RowReader:
        """Make what finds the rows of labels."""
        rng = np.random.default_rng(20130207)
        wide = inside(self.context, rng, random_point(rng, self.context, _FAR))
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

    def effects(
        self, rows: RowReader, owner: NDArray[np.int64], others: set[str]
    ) -> Effects | None:
        """Find random effects among variables that are not `others`."""
        labels = [*map(self.split, self.labels)]
        return find_effects(rows, self.densities, self.way[1], owner, labels, others)

    def numbers(self, owner: NDArray[np.int64]) -> NDArray[np.float64]:
        """Arrange what is observed by object (N, K), where every object has as many numbers.

        Means of what it has, where they have not.
        """
        found, place = [], 0
        for rv, shape, size in zip(self.factors, self.shapes, self.sizes, strict=True):
            own = owner[place : place + size]
            place += size
            if rv not in self.context.model.observed_RVs or not (own >= 0).any():
                continue
            values = self.context.observed([rv])
            if values.shape[: len(shape)] != tuple(shape) or not np.isfinite(values).all():
                continue
            values, order = values.reshape(len(own), -1), np.argsort(own, kind="stable")
            counts = np.bincount(own[own >= 0], minlength=self.total)
            held, most = np.flatnonzero(counts), int(counts.max())
            table = np.full((self.total, values.shape[1] * most), np.nan)
            if (counts[held] == most).all():
                table[held] = values[order[-int(counts.sum()) :]].reshape(len(held), -1)
            else:
                sums = np.zeros((self.total, values.shape[1]))
                np.add.at(sums, own[own >= 0], values[own >= 0])
                table = np.where(counts[:, None], sums / np.maximum(counts, 1)[:, None], np.nan)
            spread = np.nanstd(table, axis=0)
            found.append(table[:, spread > 0.0] / spread[spread > 0.0])
        return np.concatenate([np.empty((self.total, 0)), *found], axis=1)
