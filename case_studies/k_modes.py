"""k-modes of boolean tables with missing cells (Huang 1998), to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_STARTS = 5
_ROUNDS = 50
_HELD = 0.1


@dataclass(frozen=True, eq=False)
class KModes:
    """Clusters of rows around modes, M columns.

    Attributes
    ----------
    modes : ndarray of bool, shape (K, M)
    share : ndarray, shape (K, M)
        Of true cells in each cluster, one true and one false one added.
    """

    modes: NDArray[np.bool_]
    share: NDArray[np.float64]

    @classmethod
    def fitted(
        cls, x: NDArray[np.bool_], known: NDArray[np.bool_], k: int, rng: np.random.Generator
    ) -> KModes:
        """Fit k modes to the cells that are known; the best of a few starts by mismatches."""
        best, least = None, np.inf
        for _ in range(_STARTS):
            modes = (x & known)[rng.choice(len(x), k, replace=False)]
            for _ in range(_ROUNDS):
                labels = _nearest(modes, x, known)
                member = np.eye(k)[labels].T
                true, seen = member @ (x & known), member @ known
                new = np.where(seen > 0, 2.0 * true > seen, modes)
                if np.array_equal(new, modes):
                    break
                modes = new
            mismatches = ((x != modes[_nearest(modes, x, known)]) & known).sum()
            if mismatches < least:
                best, least = cls(modes, (true + 1.0) / (seen + 2.0)), mismatches
        assert best is not None
        return best

    @classmethod
    def chosen(
        cls,
        x: NDArray[np.bool_],
        known: NDArray[np.bool_],
        numbers: Sequence[int],
        rng: np.random.Generator,
    ) -> KModes:
        """Fit as many modes as predict some of the known cells best that are held out."""
        held = known & (rng.random(x.shape) < _HELD)
        scores = []
        for k in numbers:
            p = cls.fitted(x, known & ~held, k, rng).probability(x, known & ~held)
            scores.append(np.log(np.where(x, p, 1.0 - p)[held]).mean())
        return cls.fitted(x, known, numbers[int(np.argmax(scores))], rng)

    def probability(self, x: NDArray[np.bool_], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Probability that cells (N, M) are true: the share in the cluster of the nearest mode."""
        return self.share[_nearest(self.modes, x, known)]


def _nearest(modes, x, known) -> NDArray[np.int64]:
    far = (x & known).astype(float) @ ~modes.T + (~x & known).astype(float) @ modes.T
    return far.argmin(axis=1)
