"""A shard: chunks of rows, whose labels are drawn and added up where the rows are.

Given weights and parameters, the labels of all objects are independent, and do not depend on what
they were: a shard has no state but what it can do without. It can be made anew anywhere, and any
chunk's labels in any iteration can be drawn again: its generator is seeded by the run's seed, the
iteration and the chunk's number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.sharded.choose import block_rows, draw_labels
from pm_match.sharded.data import Piece, Source
from pm_match.sharded.evidence import Chunk, Scorer, Sums
from pm_match.sharded.store import Store


@dataclass(frozen=True, eq=False)
class Setting:
    """What labels are drawn given: weights, and every scorer's parameters.

    Attributes
    ----------
    iteration : int
    log_weights : (T,) array
    parameters : list of dict
        Of every evidence, by assignment (see `ShardedEvidence.parameters`).
    """

    iteration: int
    log_weights: NDArray[np.float64]
    parameters: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Division:
    """Clusters whose objects are divided in two.

    Attributes
    ----------
    labels : tuple of int
        The clusters, one or two, that are taken together.
    log_weights : (2,) array
    parameters : list of dict
        Of the two parts.
    number : int
        Of the pass, which seeds it.
    given : bool
        Whether the division is that into the two clusters, rather than drawn.
    """

    labels: tuple[int, ...]
    log_weights: NDArray[np.float64]
    parameters: list[dict[str, Any]]
    number: int
    given: bool


# What is found of a chunk: objects in each cluster, sums by evidence, and a log probability.
Found = tuple[NDArray[np.int64], dict[int, Sums], float]


class Shard:
    """Chunks of rows.

    Parameters
    ----------
    seed : int
    pieces : sequence of Piece
    sources : dict of str to dict of str to Source
        By assignment and variable.
    scorers : dict of str to dict of int to Scorer
        By assignment, and the number of the evidence.
    n_clusters : int
    store : Store or None
        Where labels are recorded.
    """

    def __init__(
        self,
        seed: int,
        pieces: Sequence[Piece],
        sources: Mapping[str, Mapping[str, Source]],
        scorers: Mapping[str, Mapping[int, Scorer]],
        n_clusters: int,
        store: Store | None,
    ):
        self.seed, self.pieces, self.sources, self.scorers = seed, pieces, sources, scorers
        self.n_clusters, self.store = n_clusters, store
        # The last labels of every chunk, with their iteration; without them they are drawn again.
        self._last: dict[int, tuple[int, NDArray[np.int16]]] = {}

    def survey(self) -> list[dict[int, Sums]]:
        """Check every chunk, and add up what no label enters.

        Raises
        ------
        ValueError
            If a value is not served.
        """
        found = []
        for piece in self.pieces:
            chunk = self._chunk(piece)
            for scorer in self.scorers[piece.assignment].values():
                wrong = scorer.check(chunk)
                if wrong is not None:
                    name, where, expected = wrong
                    row, *column = np.argwhere(where)[0].tolist()
                    at = f", column {column[0]}" if column else ""
                    value = chunk[name][(row, *column)]
                    raise ValueError(
                        f"{name!r}, row {piece.start + row}{at}: expected {expected}; found {value}"
                    )
            own = self.scorers[piece.assignment].items()
            found.append({number: scorer.totals(chunk) for number, scorer in own})
        return found

    def draw(self, setting: Setting, record: int | None = None) -> list[Found]:
        """Draw the labels of every chunk; return their sums.

        Parameters
        ----------
        setting : Setting
        record : int, optional
            The number of the draw, if the labels are kept.
        """
        found = []
        for piece in self.pieces:
            chunk = self._chunk(piece)
            labels, certainty = self._labels(piece, chunk, setting)
            if record is not None and self.store is not None:
                self.store.write(piece, record, labels, certainty)
            found.append((*self._sums(piece, chunk, labels, self.n_clusters), 0.0))
        return found

    def divide(self, setting: Setting, division: Division) -> list[Found]:
        """Divide the objects of some clusters in two; return sums of the parts.

        The labels are those that `draw` has drawn in the setting. The third of what is found is the
        log probability of the division.
        """
        found = []
        for piece in self.pieces:
            chunk = self._chunk(piece)
            iteration, labels = self._last.get(piece.number, (None, None))
            if labels is None or iteration != setting.iteration:
                labels, _ = self._labels(piece, chunk, setting)
            rows = np.flatnonzero(np.isin(labels, division.labels))
            some = {name: values[rows] for name, values in chunk.items()}
            parts, log_q = self._divided(piece, some, labels[rows], division)
            found.append((*self._sums(piece, some, parts, 2), log_q))
        return found

    # -- one chunk --------------------------------------------------------------------------------

    def _chunk(self, piece: Piece) -> Chunk:
        sources = self.sources[piece.assignment]
        found = {n: source.rows(piece.start, piece.stop) for n, source in sources.items()}
        for name, values in found.items():
            if len(values) != len(piece):
                raise ValueError(
                    f"{name!r}, rows {piece.start} to {piece.stop}: expected {len(piece)} rows; "
                    f"found {len(values)}"
                )
        return found

    def _rng(self, piece: Piece, *key: int) -> np.random.Generator:
        seeds = np.random.SeedSequence(self.seed, spawn_key=(*key, piece.number))
        return np.random.default_rng(seeds)

    def _labels(
        self, piece: Piece, chunk: Chunk, setting: Setting
    ) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
        """Draw the labels (n,) of a chunk, and give the probability of each one's likeliest."""
        rng = self._rng(piece, 0, setting.iteration)
        labels = np.empty(len(piece), np.int16)
        certainty = np.empty(len(piece), np.float32)
        for rows in self._blocks(len(piece), self.n_clusters):
            table = self._table(piece, chunk, rows, setting.log_weights, setting.parameters)
            draw_labels(rng, table, labels[rows], certainty[rows])
        self._last[piece.number] = setting.iteration, labels
        return labels, certainty

    def _divided(
        self, piece: Piece, chunk: Chunk, labels: NDArray, division: Division
    ) -> tuple[NDArray[np.int16], float]:
        """Divide the objects of a chunk (m,), and give the log probability of the division."""
        rng = self._rng(piece, 1, division.number)
        parts, log_q = np.zeros(len(labels), np.int16), 0.0
        for rows in self._blocks(len(labels), 2):
            table = self._table(piece, chunk, rows, division.log_weights, division.parameters)
            logs = np.asarray(table, np.float64)
            logs -= np.logaddexp(logs[:, :1], logs[:, 1:])
            if division.given:
                parts[rows] = labels[rows] == division.labels[1]
            else:
                parts[rows] = np.log(rng.random(len(logs))) >= logs[:, 0]
            log_q += float(np.take_along_axis(logs, parts[rows, None].astype(np.int64), 1).sum())
        return parts, log_q

    @staticmethod
    def _blocks(n: int, n_clusters: int) -> Iterator[slice]:
        step = block_rows(n_clusters)
        for start in range(0, n, step):
            yield slice(start, min(start + step, n))

    def _table(self, piece, chunk: Chunk, rows: slice, log_weights, parameters) -> NDArray:
        block = {name: values[rows] for name, values in chunk.items()}
        table: NDArray | None = None
        for number, scorer in self.scorers[piece.assignment].items():
            more = scorer.table(block, parameters[number][piece.assignment])
            table = more if table is None else table + more
        assert table is not None
        table += log_weights.astype(table.dtype)
        return table

    def _sums(
        self, piece: Piece, chunk: Chunk, labels: NDArray, n_clusters: int
    ) -> tuple[NDArray[np.int64], dict[int, Sums]]:
        counts = np.bincount(labels, minlength=n_clusters)
        own = self.scorers[piece.assignment].items()
        return counts, {n: scorer.statistics(chunk, labels, n_clusters) for n, scorer in own}
