"""A shard: chunks of rows, whose labels are drawn and added up where the rows are.

Given weights, parameters and the labels of other sets of clusters, the labels of all objects of one
set are independent, and do not depend on what they were: a shard has no state but what it can do
without. It can be made anew anywhere, and any chunk's labels in any iteration can be drawn again:
its generator is seeded by the run's seed, the iteration and the chunk's number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.sharded.choose import blocks, draw_labels
from pm_match.sharded.data import Piece, Rows
from pm_match.sharded.evidence import Chunk, Scorer, Sums, added
from pm_match.sharded.store import Store


@dataclass(frozen=True, eq=False)
class Setting:
    """What the labels of one set of clusters are drawn given."""

    iteration: int
    assignments: Sequence[str]  # to these clusters
    log_weights: NDArray[np.float64]  # (T,)
    # Of every evidence that sees them, by assignment: `ShardedEvidence.parameters`, and `.context`
    parameters: dict[int, dict[str, Any]]
    contexts: dict[int, dict[str, Any]]
    watched: set[str]  # the assignments whose labels are sent back


@dataclass(frozen=True, eq=False)
class Division:
    """Clusters whose objects are divided in two."""

    labels: tuple[int, ...]  # the clusters, one or two, that are taken together
    log_weights: NDArray[np.float64]  # (2,)
    parameters: dict[int, dict[str, Any]]  # of the two parts
    number: int  # of the pass, which seeds it
    given: bool  # whether the division is that into the two clusters, rather than drawn


class ChunkResult(NamedTuple):
    """What is found of a chunk."""

    assignment: str
    counts: NDArray[np.int64]  # (T,): objects in each cluster
    sums: dict[int, Sums]  # by evidence
    log_q: float  # the log probability of a division
    labels: NDArray[np.int16] | None  # (n,): those drawn, if they are watched


class Shard:
    """Chunks of rows.

    `sources`: rows by assignment and variable; `scorers`: by assignment, and the number of the
    evidence; `store`: where labels are recorded, if they are.
    """

    def __init__(
        self,
        seed: int,
        pieces: Sequence[Piece],
        sources: Mapping[str, Mapping[str, Rows]],
        scorers: Mapping[str, Mapping[int, Scorer]],
        store: Store | None,
    ):
        self.seed, self.pieces, self.scorers, self.store = seed, pieces, scorers, store
        # No more of the data than is read here.
        self.sources: dict[str, dict[str, Rows]] = {}
        for assignment, all_rows in sources.items():
            own = [piece for piece in pieces if piece.assignment == assignment]
            if own:
                bounds = own[0].start, own[-1].stop
                self.sources[assignment] = {n: s.part(*bounds) for n, s in all_rows.items()}
        # The last labels of every chunk, with their iteration; without them they are drawn again.
        self._last: dict[int, tuple[int, NDArray[np.int16]]] = {}

    def survey(self) -> list[tuple[str, dict[int, Sums]]]:
        """Check every chunk, and add up what no label enters.

        Raise `ValueError` if a value is not served.
        """
        found = []
        for piece in self.pieces:
            chunk = self._chunk(piece)
            for scorer in self.scorers[piece.assignment].values():
                wrong = scorer.check(chunk)
                if wrong is not None:
                    name, (row, *column), expected = wrong
                    at = f", column {column[0]}" if column else ""
                    value = chunk[name][(row, *column)]
                    raise ValueError(
                        f"{name!r}, row {piece.start + row}{at}: expected {expected}; found {value}"
                    )
            own = self.scorers[piece.assignment].items()
            totals = {number: scorer.totals(chunk) for number, scorer in own}
            found.append((piece.assignment, totals))
        return found

    def draw(self, setting: Setting, record: int | None = None) -> list[ChunkResult]:
        """Draw the labels of the setting's clusters; return the sums of every chunk.

        `record`: the number of the draw, if the labels are kept.
        """
        found = []
        for piece in self._pieces(setting):
            chunk = self._prepared(piece, self._chunk(piece), setting)
            parts: list[dict[int, Sums]] = []
            labels, certainty = self._labels(piece, chunk, setting, parts)
            if record is not None and self.store is not None:
                self.store.write(piece, record, labels, certainty)
            sums, *more = parts
            if more:
                total = added((piece.assignment, own) for own in parts)
                sums = {number: own[piece.assignment] for number, own in total.items()}
            counts = np.bincount(labels, minlength=len(setting.log_weights))
            seen = labels if piece.assignment in setting.watched else None
            found.append(ChunkResult(piece.assignment, counts, sums, 0.0, seen))
        return found

    def divide(self, setting: Setting, division: Division) -> list[ChunkResult]:
        """Divide the objects of some clusters in two; return sums of the parts.

        The labels are those that `draw` has drawn in the setting.
        """
        found = []
        for piece in self._pieces(setting):
            chunk = self._chunk(piece)
            labels = self._present(piece, setting)
            one, other = division.labels[0], division.labels[-1]
            rows = np.flatnonzero((labels == one) | (labels == other))
            if len(rows) < len(labels):
                chunk = {name: values[rows] for name, values in chunk.items()}
            some = self._prepared(piece, chunk, setting)
            parts, log_q = self._divided(piece, some, labels[rows], division)
            sums = self._sums(piece, self._scored(piece, some), parts, 2, division.parameters)
            counts = np.bincount(parts, minlength=2)
            found.append(ChunkResult(piece.assignment, counts, sums, log_q, None))
        return found

    def add_up(
        self, setting: Setting, number: int, parameters: Mapping[str, Any]
    ) -> list[tuple[str, dict[int, Sums]]]:
        """Add up the statistics of one evidence again, by other parameters.

        The labels are those that `draw` has drawn in the setting.
        """
        found = []
        for piece in self._pieces(setting):
            scorer = self.scorers[piece.assignment].get(number)
            if scorer is not None:
                labels = self._present(piece, setting)
                chunk = self._prepared(piece, self._chunk(piece, scorer.widths), setting)
                own = parameters[piece.assignment]
                scored = scorer.scored(chunk)
                sums = scorer.statistics(scored, labels, len(setting.log_weights), own)
                found.append((piece.assignment, {number: sums}))
        return found

    # -- one chunk --------------------------------------------------------------------------------

    def _chunk(self, piece: Piece, names: Iterable[str] | None = None) -> Chunk:
        """Read some variables of a chunk, or all."""
        sources = self.sources[piece.assignment]
        wanted = sources if names is None else names
        found = {name: sources[name].rows(piece.start, piece.stop) for name in wanted}
        for name, values in found.items():
            if values.shape[0] != len(piece):
                raise ValueError(
                    f"{name!r}, rows {piece.start} to {piece.stop}: expected {len(piece)} rows; "
                    f"found {values.shape[0]}"
                )
        return found

    def _pieces(self, setting: Setting) -> list[Piece]:
        """Return the chunks of the setting's clusters."""
        return [piece for piece in self.pieces if piece.assignment in setting.assignments]

    def _prepared(self, piece: Piece, chunk: Any, setting: Setting) -> Chunk:
        """Bring rows to what scorers take whose variables there are."""
        for number, scorer in self.scorers[piece.assignment].items():
            if not scorer.widths.keys() <= chunk.keys():
                continue
            context = setting.contexts[number].get(piece.assignment)
            own = scorer.prepared({name: chunk[name] for name in scorer.widths}, context)
            chunk = {**chunk, **own}
        return chunk

    def _rng(self, piece: Piece, *key: int) -> np.random.Generator:
        seeds = np.random.SeedSequence(self.seed, spawn_key=(*key, piece.number))
        return np.random.default_rng(seeds)

    def _labels(
        self, piece: Piece, chunk: Chunk, setting: Setting, sums: list | None = None
    ) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Draw the labels (n,) of a chunk, and give the probability of each one's likeliest.

        Adds what is summed up to a list, block by block, while these are in a cache.
        """
        rng = self._rng(piece, 0, setting.iteration)
        labels = np.empty(len(piece), np.int16)
        certainty = np.empty(len(piece), np.float32)
        n_clusters = len(setting.log_weights)
        for rows in blocks(len(piece), n_clusters):
            block = self._scored(piece, chunk, rows)
            table = self._table(piece, block, setting.parameters)
            place = labels[rows], certainty[rows]
            try:
                draw_labels(rng, table, setting.log_weights, *place, piece.start + rows.start)
            except FloatingPointError as error:
                raise FloatingPointError(f"{piece.assignment!r}, {error}") from None
            if sums is not None:
                own = self._sums(piece, block, labels[rows], n_clusters, setting.parameters)
                sums.append(own)
        self._last[piece.number] = setting.iteration, labels
        return labels, certainty

    def _present(self, piece: Piece, setting: Setting) -> NDArray[np.int16]:
        """Return the labels (n,) of a chunk that were drawn last, or draw them again."""
        iteration, labels = self._last.get(piece.number, (None, None))
        if labels is None or iteration != setting.iteration:
            chunk = self._prepared(piece, self._chunk(piece), setting)
            labels, _ = self._labels(piece, chunk, setting)
        return labels

    def _divided(
        self, piece: Piece, chunk: Chunk, labels: NDArray, division: Division
    ) -> tuple[NDArray[np.int16], float]:
        """Divide the objects of a chunk (m,), and give the log probability of the division."""
        rng = None if division.given else self._rng(piece, 1, division.number)
        parts, log_q = np.zeros(len(labels), np.int16), 0.0
        for rows in blocks(len(labels), 2):
            block = self._scored(piece, chunk, rows)
            table = self._table(piece, block, division.parameters)
            first, second = (np.asarray(table, np.float64) + division.log_weights).T
            either = np.logaddexp(first, second)
            first, second = first - either, second - either
            if rng is None:
                own = labels[rows] == division.labels[1]
            else:
                own = np.log(rng.random(len(first))) >= first
            parts[rows] = own
            log_q += float(np.where(own, second, first).sum())
        return parts, log_q

    def _scored(self, piece: Piece, chunk: Chunk, rows: slice = slice(None)) -> Chunk:
        """Bring some rows to what scorers take."""
        found = {name: values[rows] for name, values in chunk.items()}
        for scorer in self.scorers[piece.assignment].values():
            found.update(scorer.scored(found))
        return found

    def _table(self, piece: Piece, block: Chunk, parameters) -> NDArray:
        table: NDArray | None = None
        for number, scorer in self.scorers[piece.assignment].items():
            more = scorer.table(block, parameters[number][piece.assignment])
            table = more if table is None else table + more
        assert table is not None
        return table

    def _sums(
        self, piece: Piece, chunk: Chunk, labels: NDArray, n_clusters: int, parameters
    ) -> dict[int, Sums]:
        return {
            n: scorer.statistics(chunk, labels, n_clusters, parameters[n][piece.assignment])
            for n, scorer in self.scorers[piece.assignment].items()
        }
