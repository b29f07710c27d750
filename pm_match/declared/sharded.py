"""Any likelihood over shards: its parameters are drawn by slices, each try a pass over the rows.

There are no sums that a cluster's parameters could be drawn from. But given the labels they are
independent between clusters, and so are numbers that enter no log density together, as the means of
independent columns: one pass serves a try of all of these, and looks again only at the rows of
clusters that are not done.
What enters which log density is read from its graph.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.declared.numbers import Numbers, apart
from pm_match.declared.parts import MOST_SLICED, Likelihoods
from pm_match.declared.row_densities import MANY, RowDensities
from pm_match.declared.rows import Redraw, prior_by_row, prior_entered_by
from pm_match.numerics.slices import draw_slices
from pm_match.numerics.sums import add_up
from pm_match.reading import as_read
from pm_match.reading.ancestry import RV, depends, names
from pm_match.reading.context import Context
from pm_match.reading.entering import Marks
from pm_match.reading.evidence import Point
from pm_match.reading.own_weights import WEIGHTS_OF
from pm_match.reading.owners import close
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.reading.probe import value_density
from pm_match.sharded.evidence import Ask, Chunk, Scorer, ShardedEvidence, Sums, Wrong, first


class Try(NamedTuple):
    """Values that log densities are asked for by.

    `point`: the values that they read; `wanted` (T,): of which clusters' rows, all if None;
    `renamed` (T,): what clusters are called, if not what they were when labels were drawn.
    """

    point: dict[str, NDArray]
    wanted: NDArray[np.bool_] | None = None
    renamed: NDArray[np.int64] | None = None


# Values that are tried in one pass where a slice shrinks.
_TRIES = 2
# First intervals, in what one update moves a number by.
_WIDTH = 4.0
# Updates that the mean of moves remembers.
_MEMORY = 50
# Rows that are worked on at once.
_BLOCK = 2**14


class LikelihoodScorer(Scorer):
    """The rows of one assignment's objects.

    `rows`: by observed variable.
    """

    def __init__(self, rows: Mapping[str, RowDensities], n_clusters: int):
        self._rows, self._n_clusters = rows, n_clusters
        self.widths = {
            name: own.known.shape[1] if own.known.ndim > 1 else None for name, own in rows.items()
        }
        self.keys = {key for own in rows.values() for key in own.keys}

    def check(self, chunk: Chunk) -> Wrong | None:
        """Look for missing values, and for fractions where whole numbers are expected."""
        found = super().check(chunk)
        for name, own in self._rows.items() if found is None else ():
            wrong = chunk[name] != chunk[name].astype(own.known.dtype)
            if own.known.dtype.kind != "f" and wrong.any():
                return name, first(wrong), "a whole number"
        return found

    def _cells(self, point: Point, chunk: Chunk, labels: NDArray) -> NDArray[np.float64]:
        """Log densities (n, C) of all cells of rows in the clusters `labels` (n,)."""
        found = [own.cells(point, chunk[name], labels) for name, own in self._rows.items()]
        return np.concatenate(found, axis=1)

    def entered_by(self, point: Point, marked: Sequence[Mapping[str, Marks]]) -> NDArray[np.bool_]:
        """Say which log densities (K, C) each of K sets of the clusters' numbers enters."""
        found = [own.entered_by(point, marked) for own in self._rows.values()]
        return np.concatenate(found, axis=1)

    def table(self, chunk: Chunk, parameters: Sequence[Try]) -> NDArray[np.float64]:
        """Sum of each row's log densities, by the one try that there is."""
        ((point, *_),) = parameters
        n, found = len(next(iter(chunk.values()))), []
        # As many clusters at once as it is not worth to compile log densities well for.
        step = max(MANY // self._n_clusters // n, 1)
        for place in range(0, self._n_clusters, step):
            some = np.arange(place, min(place + step, self._n_clusters))
            rows = {name: np.concatenate([values] * len(some)) for name, values in chunk.items()}
            found.append(self._cells(point, rows, np.repeat(some, n)).sum(axis=1))
        return np.concatenate(found).reshape(-1, n).T

    def statistics(
        self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: Sequence[Try]
    ) -> Sums:
        """Add up the log densities (T, m, C) of all cells by each of m tries."""
        n_cells = sum(own.n_cells for own in self._rows.values())
        found = np.zeros((len(parameters), n_clusters, n_cells))
        for start in range(0, len(labels), _BLOCK):
            own = labels[start : start + _BLOCK]
            for (point, wanted, renamed), sums in zip(parameters, found, strict=True):
                rows = np.flatnonzero(own >= 0 if wanted is None else wanted[own])
                if len(rows):
                    some = {name: values[start + rows] for name, values in chunk.items()}
                    there = own[rows] if renamed is None else renamed[own[rows]]
                    add_up(self._cells(point, some, there), there, sums)
        return (found.swapaxes(0, 1),)


class ShardedLikelihoods(ShardedEvidence):
    """Likelihoods of any kind, whose parameters are drawn by slices.

    Clusters are not split or merged: that takes their parameters integrated out.

    Raise `UnservedModelError` if the log density of a row is not that of its numbers alone, or
    parameters are whole numbers, or more than a few take passes of their own.
    """

    divisible = False

    def __init__(self, model: Model, evidence: Likelihoods, component: Component):
        model = as_read(model)
        context = Context.of(model)
        self.evidence, start = evidence, context.start
        self._own = _scorers(context, evidence)
        self.scorers = {**self._own}
        self._keys = sorted({key for own in self._own.values() for key in own.keys})
        drawn = [model[name] for rows in evidence.redrawn for name in rows.names]
        others = {n for own in component.clusterings for n in own.names}
        shared = _upstream(context, evidence, {*drawn}, others | {*component.hyperparameters})
        whole = [rv for rv in (*drawn, *shared) if not rv.dtype.startswith("float")]
        if whole:
            raise UnservedModelError(
                f"{names(whole)}: over shards, expected parameters that are real numbers; found "
                "whole ones"
            )
        self.names = [str(rv.name) for rv in (*drawn, *shared)]
        self._numbers = Numbers(evidence.redrawn, start)
        self._shared = [
            (key, place)
            for key in map(context.key, shared)
            for place in np.ndindex(np.shape(start[key]))
        ]
        self._priors = [prior_by_row(model, rows)[1] for rows in evidence.redrawn]
        factors = {*evidence.factors}
        _check_children(context, [*drawn, *shared], factors, component.hyperparameters)
        touched = context.ancestry.touched([*drawn, *shared])
        self._log_prior = value_density(model, [rv for rv in touched if rv.name not in factors])
        self._redraw = Redraw(context, evidence.redrawn)
        self._enters = self._entered(context)
        self._groups = apart(self._enters)
        n_passes = len(self._groups) + len(self._shared)
        if n_passes > MOST_SLICED:
            raise UnservedModelError(
                f"{', '.join(map(repr, self.names))}: over shards, expected at most {MOST_SLICED} "
                "numbers that all clusters share, or that enter the log density of a row together; "
                f"found {n_passes}. Each takes passes of its own over all rows"
            )
        self._scale, self._n_updates = np.ones(len(self._enters) + len(self._shared)), 0

    # -- numbers ----------------------------------------------------------------------------------

    def _entered(self, context: Context) -> NDArray[np.bool_]:
        """Say which log densities (K, C + P), of cells and in priors, each number enters."""
        marked = self._numbers.marked()
        if not marked:
            return np.zeros((0, 0), np.bool_)
        cells = [own.entered_by(context.start, marked) for own in self._own.values()]
        priors = [prior_entered_by(context, rows, marked) for rows in self._numbers.rows]
        return np.concatenate([*cells, *priors], axis=1)

    # -- draws ------------------------------------------------------------------------------------

    def parameters(self, point: Point) -> dict[str, list[Try]]:
        """Return one try: what there is at a point, asked for in all clusters."""
        return self._tries([Try(dict(point))])

    def _tries(self, tries: Sequence[Try]) -> dict[str, list[Try]]:
        read = [own._replace(point={k: own.point[k] for k in self._keys}) for own in tries]
        return dict.fromkeys(self._own, read)

    def update(
        self,
        rng: np.random.Generator,
        new: dict[str, NDArray],
        counts: NDArray[np.int64],
        ask: Ask,
        tuning: bool,
    ) -> None:
        """Draw all numbers by slices, and those of empty clusters from their priors."""
        self._n_updates += 1
        for group in self._groups:
            self._draw_group(rng, new, counts, group, ask, tuning)
        for number in range(len(self._shared)):
            self._draw_shared(rng, new, counts, number, ask, tuning)
        drawn = self._redraw.proposed(rng, new, counts == 0)
        if drawn is not None and close(*self._asked(ask, [Try(new), Try(drawn)])).all():
            new |= drawn

    def _draw_group(self, rng, new, counts, group: list[int], ask: Ask, tuning: bool) -> None:
        """Draw numbers of all clusters that hold something."""
        held, n = np.flatnonzero(counts), len(group)
        table, place = self._numbers.table(new), np.ix_(held, group)

        def write(values: NDArray) -> dict[str, NDArray]:
            table[place] = values.reshape(-1, n)
            return {**new, **self._numbers.written(new, table)}

        def worth(points: Sequence[Point], wanted: NDArray) -> NDArray[np.float64]:
            which = np.zeros((len(points), len(counts)), np.bool_)
            which[:, held] = wanted.reshape(len(points), -1, n).any(axis=2)
            tries = [Try(dict(point), own) for point, own in zip(points, which, strict=True)]
            cells = self._asked(ask, tries)
            priors = [np.stack([own(point) for point in points]) for own in self._priors]
            found = np.concatenate([cells, *priors], axis=2)[:, held]
            own = [found[:, :, entered].sum(axis=2) for entered in self._enters[group]]
            return np.stack(own, axis=2).reshape(len(points), -1)

        start, numbers = table[place].ravel(), np.tile(group, len(held))
        narrower = np.repeat(np.sqrt(1.0 + counts[held]), n)
        found, logs = self._drawn(rng, start, numbers, narrower, write, worth, tuning)
        new |= write(found)
        # Each was drawn while those of other clusters were somewhere else.
        if not close(logs, worth([new], np.ones((1, len(found)), np.bool_))[0]).all():
            raise UnservedModelError(
                f"{', '.join(map(repr, self.names))}: over shards, expected what clusters have to "
                "enter the log densities of their own objects, as it did where the model was read; "
                "found a draw where it enters those of others. pmm.sample serves that"
            )

    def _draw_shared(self, rng, new, counts, number: int, ask: Ask, tuning: bool) -> None:
        """Draw a number that all clusters share, or that their priors have."""
        key, place = self._shared[number]
        seen = key in self._keys

        def write(values: NDArray) -> dict[str, NDArray]:
            own = np.array(new[key])
            own[place] = values[0]
            return {**new, key: own}

        def worth(points: Sequence[Point], wanted: NDArray) -> NDArray[np.float64]:
            found = np.array([self._log_prior(point) for point in points])
            if seen:
                found += self._asked(ask, [Try(dict(own)) for own in points]).sum(axis=(1, 2))
            return found[:, None]

        start, numbers = np.array([new[key][place]]), np.array([len(self._enters) + number])
        narrower = np.sqrt([1.0 + seen * counts.sum()])
        found, _ = self._drawn(rng, start, numbers, narrower, write, worth, tuning)
        new |= write(found)

    def _asked(self, ask: Ask, tries: Sequence[Try]) -> NDArray[np.float64]:
        """Log densities (m, T, C) of all cells by some tries, summed by cluster: one pass."""
        found = ask(self._tries(tries))
        return np.concatenate([found[name][0] for name in self._own], axis=2).swapaxes(0, 1)

    def _drawn(
        self,
        rng: np.random.Generator,
        start: NDArray,
        numbers: NDArray,
        narrower: NDArray,
        write: Callable[[NDArray], dict[str, NDArray]],
        worth: Callable[..., NDArray],
        tuning: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw numbers, from first intervals that follow how far they are moved while tuning.

        Return them, and their log densities as they were when each was accepted.
        """

        def log_density(values: NDArray, wanted: NDArray) -> NDArray[np.float64]:
            with np.errstate(invalid="ignore"):
                found = worth([write(own) for own in values], wanted)
            return np.where(np.isnan(found), -np.inf, found)

        width = self._scale[numbers] / narrower
        found, held = draw_slices(rng, start, width, log_density, _TRIES)
        if tuning:
            moved = _WIDTH * abs(found - start) * narrower
            for number in np.unique(numbers):
                away = moved[numbers == number].mean() - self._scale[number]
                self._scale[number] += away / min(self._n_updates, _MEMORY)
        return found, held

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Leave all as it is: `update` has drawn it."""

    def relabel(self, new: dict[str, NDArray], source: NDArray[np.int64], ask: Ask) -> bool:
        """Let rows go with their labels; say whether the density stays as it is."""
        there = dict(new)
        for rows in self.evidence.rows:
            there |= rows.taken(new, source)
        before, after = self._asked(ask, [Try(new), Try(there, renamed=np.argsort(source))])
        told = (
            np.array([self._log_prior(point), *cells.sum(axis=0)])
            for point, cells in ((new, before), (there, after))
        )
        if same := bool(close(*told).all()):
            new |= there
        return same

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log likelihood (T,) of each cluster's objects: nothing is integrated out."""
        return np.sum([own[:, 0].sum(axis=1) for (own,) in sums.values()], axis=0)

    def log_base(self, point: Point, sums: Mapping[str, Sums]) -> float:
        """Log density of the parameters, on the scale that is sampled."""
        return self._log_prior(point)


def _scorers(context: Context, evidence: Likelihoods) -> dict[str, LikelihoodScorer]:
    """Make the scorers of all assignments."""
    model, found = context.model, dict[str, dict[str, RowDensities]]()
    for name in evidence.factors:
        rv = model[name]
        if name.startswith(WEIGHTS_OF):
            raise UnservedModelError(
                f"{name}: over shards, expected weights that can be integrated out, as a "
                "pm.StickBreakingWeights, a pm.Dirichlet or constants that all objects of the same "
                "clusters have; found others"
            )
        if rv not in model.observed_RVs:
            raise UnservedModelError(
                f"{context.whole_name(rv)!r}: over shards, expected an observed variable, without "
                "missing values; found one that is free, or a potential"
            )
        own = [a for a in evidence.assignments if model[a] in context.ancestry.parents[rv]]
        if len(own) != 1:
            raise UnservedModelError(
                f"{name!r}: over shards, expected a variable of one domain's objects; found one "
                f"that depends on {', '.join(map(repr, own))}"
            )
        rows = RowDensities(model, evidence, own[0], name, f"{name!r}: over shards, ")
        if rows.known.ndim > 2:
            raise UnservedModelError(
                f"{name!r}: over shards, expected a table of objects and columns; found an array "
                f"of shape {rows.known.shape}"
            )
        found.setdefault(own[0], {})[name] = rows
    return {name: LikelihoodScorer(rows, evidence.truncation) for name, rows in found.items()}


def _check_children(
    context: Context, own: Sequence[RV], factors: Collection[str], hyperparameters: Sequence[str]
) -> None:
    """Refuse parameters that something else depends on, or that depend on what else is drawn."""
    inside = {*(str(rv.name) for rv in own), *factors}
    for rv in own:
        # What is observed elsewhere has parameters of its own, which are looked at together.
        free = {*context.ancestry.children(rv)} & {*context.model.free_RVs}
        beside = sorted((c for c in free if c.name not in inside), key=lambda c: str(c.name))
        if beside:
            raise UnservedModelError(
                f"{rv.name!r}: over shards, expected no parameters of other data to depend on it; "
                f"found {names(beside)}"
            )
    for name in hyperparameters:
        beside = [c for c in context.ancestry.children(context.model[name]) if c.name in inside]
        if beside:
            raise UnservedModelError(
                f"{name!r}: over shards, expected nothing beside weights and what is integrated "
                f"out to depend on it; found {names(beside)}"
            )


def _upstream(
    context: Context, evidence: Likelihoods, drawn: set[RV], others: set[str]
) -> list[RV]:
    """Find the free variables that factors depend on, at any remove, besides some."""
    factors = [context.model[name] for name in evidence.factors]
    free = [rv for rv in context.model.free_RVs if rv not in drawn and rv.name not in others]
    return [rv for rv in free if any(depends(own, [rv]) for own in factors)]
