"""The components of many objects' mixtures, collected over draws and clusters."""

from collections.abc import Callable, Iterator
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pm_match.prediction.mixture import CategoryLaw, Law
from pm_match.prediction.points import RecordedPoints
from pm_match.prediction.predictive import Predictive, check_possible
from pm_match.prediction.predictor import NewObjects
from pm_match.progress import PATIENCE, SearchProgress

# How many components' means and deviations are held at a time.
_MOST_HELD = 2**23
# Components with less of a draw's weight than this are left out.
_LOG_NEGLIGIBLE = log(1e-9)


class Components:
    """The components of N objects' mixtures, collected over draws.

    `n_values`: M; `law`: from parameters (C, M, h) to the distributions of C components.
    """

    def __init__(
        self, n: int, n_values: int, law: Callable[[NDArray[np.float64]], Law | CategoryLaw]
    ):
        self.n, self.n_values, self._law = n, n_values, law
        self._parts: list[tuple[NDArray, ...]] = []

    def add(self, rows: NDArray, log_weight: NDArray, parameters: NDArray) -> None:
        """Add the components of a draw, but for those that have next to none of its weight.

        `rows` (N',): whose they are; `log_weight` (N', J); `parameters` (N', J, M, h) or
        (1, J, M, h).
        """
        if not log_weight.size:
            return
        top = log_weight.max(axis=1, keepdims=True)
        which, cluster = np.nonzero((log_weight > top + _LOG_NEGLIGIBLE) & np.isfinite(log_weight))
        own = which if len(parameters) > 1 else np.zeros_like(which)
        self._parts.append((rows[which], log_weight[which, cluster], parameters[own, cluster]))

    def summaries(self, levels: NDArray) -> NDArray[np.float64]:
        """Return what is said of every object (Q, N, M); NaN of those without components."""
        if not self._parts:
            return np.full((1 + len(levels), self.n, self.n_values), np.nan)
        owner, log_weight, parameters = (
            np.concatenate(part) for part in zip(*self._parts, strict=True)
        )
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(self.n + 1))
        found = {}
        for i in range(self.n):
            own = order[ends[i] : ends[i + 1]]
            if len(own):
                weight = np.exp(log_weight[own] - log_weight[own].max())
                found[i] = self._law(parameters[own]).summaries(weight, levels)
        nothing = np.full_like(next(iter(found.values())), np.nan)
        return np.stack([found.get(i, nothing) for i in range(self.n)], axis=1)


def predicted(
    points: RecordedPoints, predictive: Predictive, n: int, n_values: int, progressbar: bool
) -> Iterator[tuple[slice, Iterator[int]]]:
    """Split objects so that the components of a block's mixtures fit into memory.

    Yield a block, and the numbers of the draws, to each of which `predictive` is brought in turn.
    """
    size = max(1, _MOST_HELD // max(points.n_draws * n_values, 1))
    blocks = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    total = len(blocks) * points.n_draws
    with SearchProgress(total, progressbar, PATIENCE, "Predicting") as progress:

        def draws() -> Iterator[int]:
            for number, point in enumerate(points):
                predictive.load(point)
                yield number
                progress.advance()

        for rows in blocks:
            yield rows, draws()


def draw_weights(predictive: Predictive, new: NewObjects, reweight: bool) -> NDArray[np.float64]:
    """Log weights (N, T + 1) of a draw's clusters in the mixture over all draws."""
    log_joint = predictive.log_joint(new)
    if reweight:
        return log_joint
    log_predictive = logsumexp(log_joint, axis=1)
    check_possible(new, log_predictive, "every draw, as all count alike")
    return log_joint - log_predictive[:, None]
