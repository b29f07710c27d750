"""What a kind provides for the sampler over shards: log densities of chunks, and sums over them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.reading.evidence import Point

Chunk = Mapping[str, NDArray]
# Sums over objects; the first axis of each array is that of the clusters.
Sums = tuple[NDArray[np.float64], ...]


class Scorer:
    """What one evidence makes of the objects of one assignment, chunk by chunk.

    It goes to workers: it is small, can be pickled, and knows no model.

    Attributes
    ----------
    widths : dict of str to int or None
        The columns of every variable that it looks at; None for one without an axis of columns.
    """

    widths: dict[str, int | None]

    def check(self, chunk: Chunk) -> tuple[str, NDArray[np.bool_], str] | None:
        """Look for values that are not served.

        Returns
        -------
        (str, (n, R) boolean array, str) or None
            The variable, which of its values are wrong, and what was expected, in words.
        """
        for name in self.widths:
            wrong = ~np.isfinite(chunk[name])
            if wrong.any():
                return name, wrong, "a finite number (missing values are not served)"
        return None

    def totals(self, chunk: Chunk) -> Sums:
        """Add up what no label enters, once for all."""
        return ()

    def table(self, chunk: Chunk, parameters: Any) -> NDArray:
        """Log density (n, T) of every object in every cluster, up to a constant of the object."""
        raise NotImplementedError

    def statistics(self, chunk: Chunk, labels: NDArray, n_clusters: int) -> Sums:
        """Add up sufficient statistics by the labels (n,), -1 for objects that are left out."""
        raise NotImplementedError


class ShardedEvidence:
    """One evidence where only sums of its data are at hand: the base of every kind's own.

    Attributes
    ----------
    scorers : dict of str to Scorer
        By assignment, of those whose objects it sees.
    names : list of str
        The variables that `draw` draws.
    """

    scorers: dict[str, Scorer]
    names: list[str]

    def begin(self, totals: Mapping[str, Sums]) -> None:
        """Take what `Scorer.totals` adds up to over all chunks of every assignment."""

    def parameters(self, point: Point) -> dict[str, Any]:
        """Return what the scorer of every assignment takes for `parameters`, at a point."""
        raise NotImplementedError

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw `names` given all else from their exact conditionals, and write them to `new`."""
        raise NotImplementedError

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, Any]:
        """Draw parameters of some clusters, as `parameters` returns them, given `sums` of J rows.

        Moves of whole clusters allot objects by them: any law will do that the sums determine.
        """
        raise NotImplementedError

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log marginal likelihood (J,) of clusters with some `sums`, parameters integrated out.

        Up to what is the same for any partition of the objects.
        """
        raise NotImplementedError

    def log_base(self, point: Point, sums: Mapping[str, Sums]) -> float:
        """Log density that `log_marginals` leaves out, but for a constant."""
        return 0.0
