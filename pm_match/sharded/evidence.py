"""What a kind provides for the sampler over shards: log densities of chunks, and sums over them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.checks import lacking
from pm_match.reading.evidence import Point
from pm_match.sharded.data import Rows, Source

# The rows of every variable: arrays (n, ...), or what gives rows by an array of their numbers.
Chunk = Mapping[str, Any]
# Sums over objects; the first axis of each array is that of the clusters.
Sums = tuple[NDArray[np.float64], ...]
# A pass over the rows: from parameters by assignment to what `Scorer.statistics` adds up to.
Ask = Callable[[Mapping[str, Any]], Mapping[str, Sums]]
# A value that is not served: the variable, where it is in the chunk, and what was expected.
Wrong = tuple[str, tuple[int, ...], str]


class Scorer:
    """What one evidence makes of the objects of one assignment, chunk by chunk.

    It goes to workers: it is small, can be pickled, and knows no model.

    Attributes
    ----------
    widths : dict of str to int or None
        The columns of every variable that it looks at; None for one without an axis of columns.
    """

    widths: dict[str, int | None]

    def source(self, name: str, given: Any, labels: Sequence[Any] | None) -> Rows:
        """Take all rows of a variable, whose columns the model may have labels of.

        Raises
        ------
        TypeError, ValueError
            If they are not what the model was declared on a sample of.
        """
        return Source(name, given, self.widths[name], labels)

    def check(self, chunk: Chunk) -> Wrong | None:
        """Look for a value that is not served."""
        for name in self.widths:
            wrong = ~np.isfinite(chunk[name])
            if wrong.any():
                return name, first(wrong), "a finite number (missing values are not served)"
        return None

    def prepared(self, chunk: Chunk, context: Any) -> Chunk:
        """Bring a chunk to what `scored` takes, given other objects' labels."""
        return chunk

    def scored(self, chunk: Chunk) -> Chunk:
        """Bring rows that are looked at together to what `table` and `statistics` take."""
        return chunk

    def totals(self, chunk: Chunk) -> Sums:
        """Add up what no label enters, once for all."""
        return ()

    def table(self, chunk: Chunk, parameters: Any) -> NDArray:
        """Log density (n, T) of every object in every cluster, up to a constant of the object.

        It may be written over, and is by the next call.
        """
        raise lacking(self, "table")

    def statistics(self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: Any) -> Sums:
        """Add up statistics by the labels (n,), -1 for objects that are left out.

        Sufficient ones, for which `parameters` are not needed. Where there are none, log densities:
        `ShardedEvidence.update` then asks for those by other parameters.
        """
        raise lacking(self, "statistics")


def first(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the place of the first of the values that are wrong."""
    return tuple(np.argwhere(wrong)[0].tolist())


def added(found: Iterable[tuple[str, dict[int, Sums]]]) -> dict[int, dict[str, Sums]]:
    """Add up sums by evidence and assignment, those of each in their order."""
    total: dict[int, dict[str, Sums]] = {}
    for assignment, own in found:
        for number, sums in own.items():
            by_assignment = total.setdefault(number, {})
            if assignment not in by_assignment:
                by_assignment[assignment] = tuple(np.array(x) for x in sums)
                continue
            for one, more in zip(by_assignment[assignment], sums, strict=True):
                one += more
    # In one order, whichever assignment was first: they are added up, too.
    return {number: dict(sorted(total[number].items())) for number in sorted(total)}


class ShardedEvidence:
    """One evidence where only sums of its data are at hand: the base of every kind's own.

    It is made of a model, the evidence, and the component that has it.

    Attributes
    ----------
    scorers : dict of str to Scorer
        By assignment, of those whose objects it sees.
    names : list of str
        The variables that `draw` draws.
    watched : sequence of str
        The assignments whose labels the table of others depends on.
    divisible : bool
        Whether the sums are such that clusters can be split and merged by them.
    """

    scorers: dict[str, Scorer]
    names: list[str]
    watched: Sequence[str] = ()
    divisible: bool = True

    def check_sample(
        self, sources: Mapping[str, Mapping[str, Rows]], places: Mapping[str, NDArray]
    ) -> None:
        """Check that the model's objects are in the `places` of all, by watched assignment.

        Raises
        ------
        ValueError
            If the data say that they are not.
        """

    def look(self, labels: Mapping[str, NDArray]) -> None:
        """Take the labels of all objects of watched assignments, -1 where they are not known."""

    def context(self, assignment: str) -> Any:
        """Return what `Scorer.prepared` takes, by the labels that were last looked at."""
        return None

    def begin(self, totals: Mapping[str, Sums]) -> None:
        """Take what `Scorer.totals` adds up to over all chunks of every assignment."""

    def parameters(self, point: Point) -> dict[str, Any]:
        """Return what the scorer of every assignment takes for `parameters`, at a point."""
        raise lacking(self, "parameters")

    def update(
        self,
        rng: np.random.Generator,
        new: dict[str, NDArray],
        counts: NDArray[np.int64],
        ask: Ask,
        tuning: bool,
    ) -> None:
        """Draw what takes passes over the rows, before labels are swapped, and write it to `new`.

        Parameters
        ----------
        rng : numpy.random.Generator
        new : dict
        counts : (T,) integer array
            Objects in each cluster.
        ask : callable
            From parameters, by assignment, to the sums of `Scorer.statistics` by them: one pass.
        tuning : bool
            Whether the draw is thrown away, so that what is proposed may follow what is accepted.
        """

    def relabel(self, new: dict[str, NDArray], source: NDArray[np.int64], ask: Ask) -> bool:
        """Give each cluster what cluster `source` (T,) has, but for what `draw` draws.

        Return whether the density, given the labels, stays as it is: all is left as it was if not.
        """
        return True

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw `names` from their exact conditionals, but for those that `update` has drawn."""
        raise lacking(self, "draw")

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, Any]:
        """Draw parameters of some clusters, as `parameters` returns them, given `sums` of J rows.

        Moves of whole clusters allot objects by them: any law will do that the sums determine.
        """
        raise lacking(self, "proposed")

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log marginal likelihood (J,) of clusters with some `sums`, parameters integrated out.

        Up to what is the same for any partition of the objects.
        """
        raise lacking(self, "log_marginals")

    def log_base(self, point: Point, sums: Mapping[str, Sums]) -> float:
        """Log density that `log_marginals` leaves out, but for a constant."""
        return 0.0
