r"""Means over draws that are weighted by how well each predicts an object, in one pass.

.. math:: \bar f_i = \frac{\sum_t u_{ti} f_{ti}}{\sum_t u_{ti}}, \qquad
          u_{ti} = p(x_i^* \mid \text{draw } t)

Weights are given as logs and differ by many orders of magnitude: sums are held relative to the
largest weight so far.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class WeightedMean:
    """Running means for N objects, each with weights of its own, some of which may be zero.

    `widths`: what is averaged: arrays (N, width).
    """

    def __init__(self, n: int, widths: Mapping[str, int]):
        # An object a column: adding rows of many objects is what takes time.
        self._sums = {name: np.zeros((width, n)) for name, width in widths.items()}
        self._top = np.full(n, -np.inf)
        # Of predictives, and of the weights that means are taken with.
        self._predictive, self._weight = np.zeros(n), np.zeros(n)
        self._n_draws = 0

    def add(
        self,
        log_predictive: NDArray,
        values: Mapping[str, NDArray | tuple[NDArray, NDArray]],
        weighted: bool = True,
    ) -> None:
        """Add a draw: its log weight (N,), and what is averaged.

        That is an array (N, width); or a pair of one (N, J) and those of its columns (width,) that
        are averaged.
        """
        top = np.maximum(self._top, log_predictive)
        some = np.where(np.isneginf(top), 0.0, top)
        shrink, u = np.exp(self._top - some), np.exp(log_predictive - some)
        self._top = top
        self._n_draws += 1
        self._predictive = self._predictive * shrink + u
        if not weighted:
            shrink, u = np.ones_like(u), np.ones_like(u)
        self._weight = self._weight * shrink + u
        rescaled = np.flatnonzero(shrink != 1.0)
        for name, value in values.items():
            value, columns = value if isinstance(value, tuple) else (value, None)
            added = np.ascontiguousarray(value.T) * u
            if len(rescaled):
                self._sums[name][:, rescaled] *= shrink[rescaled]
            self._sums[name] += added if columns is None else added[columns]

    def values(self) -> dict[str, NDArray[np.float64]]:
        """Return the means."""
        return {name: (total / self._weight).T for name, total in self._sums.items()}

    def log_mean_weight(self) -> NDArray[np.float64]:
        """Return the log of the mean predictive (N,)."""
        with np.errstate(divide="ignore"):
            return self._top + np.log(self._predictive / self._n_draws)
