r"""Vectors some values of which are missing, in normal clusters whose parameters are given.

A vector x has observed values O and missing ones M. In a cluster of mean :math:`\mu` and precision
:math:`\Lambda` (C. Bishop 2006, "Pattern Recognition and Machine Learning", section 2.3),

.. math:: x_M \mid x_O \sim N\left(\mu_M + B (x_O - \mu_O), \Lambda_{MM}^{-1}\right), \quad
          B = -\Lambda_{MM}^{-1} \Lambda_{MO}

.. math:: x_O \sim N\left(\mu_O, (\Lambda_{OO} + \Lambda_{OM} B)^{-1}\right)

Where a vector's precision is :math:`u \Lambda`, so are those of what is missing and observed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# How many numbers there are of matrices at a time.
_MOST = 2_000_000


class Incomplete(NamedTuple):
    """Some of many vectors, sorted by what is missing of them."""

    values: NDArray[np.float64]  # (R, D): all vectors, NaN where missing
    rows: NDArray[np.int64]  # (r,): those that are looked at
    hidden: NDArray[np.bool_]  # (P, D): every set of values that is missing of some of these
    pattern: NDArray[np.int64]  # (r,): which of these sets it is

    @classmethod
    def of(cls, values: NDArray, rows: NDArray[np.int64]) -> "Incomplete":
        """Sort the `rows` (r,) of vectors `values` (R, D)."""
        hidden, pattern = np.unique(np.isnan(values[rows]), axis=0, return_inverse=True)
        order = np.argsort(pattern.ravel(), kind="stable")
        return cls(values, rows[order], hidden, pattern.ravel()[order])

    def given(
        self, means: NDArray, precisions: NDArray, factors: NDArray | None = None
    ) -> "Iterator[Given]":
        """Say what clusters expect of the vectors, some at a time.

        `means` (T, D); `precisions` (T, D, D), or (D, D) if the clusters share one; `factors` (R,):
        of all vectors' precisions, 1 by default.
        """
        n, d = means.shape
        precisions = np.broadcast_to(precisions, (n, d, d))
        step = max(1, _MOST // precisions.size)
        for start in range(0, len(self.rows), step):
            rows, own = self.rows[start : start + step], self.pattern[start : start + step]
            hidden = self.hidden[own[0] : own[-1] + 1, None, :]
            m, o = hidden.astype(float), (~hidden).astype(float)
            # What is left of a matrix is as it was; the rest of its diagonal is 1.
            of_missing = precisions * m[..., None, :] * m[..., None] + np.eye(d) * o[..., None]
            across = precisions * o[..., None, :] * m[..., None]
            slopes = -np.linalg.solve(of_missing, across)
            left = precisions * o[..., None, :] * o[..., None] + np.eye(d) * m[..., None]
            left += np.swapaxes(across, 2, 3) @ slopes
            own = own - own[0]
            yield Given(
                rows,
                hidden[own, 0],
                np.where(hidden[own, 0], 0.0, self.values[rows]),
                own,
                means,
                slopes,
                np.linalg.cholesky(left),
                np.linalg.cholesky(of_missing),
                np.ones(len(rows)) if factors is None else factors[rows],
            )


class Given(NamedTuple):
    """What T clusters, whose parameters are given, expect of vectors (r, D)."""

    rows: NDArray[np.int64]  # (r,): which of all vectors they are
    hidden: NDArray[np.bool_]  # (r, D): what is missing
    x: NDArray[np.float64]  # (r, D): what is observed, 0 where it is missing
    pattern: NDArray[np.int64]  # (r,): which of P sets of values is missing
    means: NDArray[np.float64]  # (T, D)
    # (P, T, D, D): B, and Cholesky factors of the precisions of what is observed and of what is
    # missing; in rows and columns that are not theirs, zero or the identity
    slopes: NDArray[np.float64]
    observed_root: NDArray[np.float64]
    missing_root: NDArray[np.float64]
    factor: NDArray[np.float64]  # (r,): of each vector's precision

    def log_density(self) -> NDArray[np.float64]:
        """Log density (r, T) of what is observed, in every cluster."""
        logs = np.log(np.diagonal(self.observed_root, axis1=2, axis2=3)).sum(axis=2)[self.pattern]
        for j in range(len(self.means)):
            logs[:, j] -= 0.5 * self.factor * self.squares(np.full(len(self.x), j))
        constant = 0.5 * np.log(self.factor / (2.0 * np.pi)) * (~self.hidden).sum(axis=1)
        return logs + constant[:, None]

    def squares(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Square how many standard deviations what is observed is from the means of `labels` (r,).

        Factors of precisions are left out.
        """
        away = np.where(self.hidden, 0.0, self.x - self.means[labels])
        white = np.einsum("rd,rde->re", away, self.observed_root[self.pattern, labels])
        return np.square(white).sum(axis=1)

    def expected(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fill vectors (r, D) of clusters `labels` (r,) by what is expected where it is missing."""
        means = self.means[labels]
        away = np.where(self.hidden, 0.0, self.x - means)
        shift = np.einsum("rde,re->rd", self.slopes[self.pattern, labels], away)
        return np.where(self.hidden, means + shift, self.x)

    def deviations(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give standard deviations (r, D) of what is missing about what is expected."""
        root = np.linalg.inv(self.missing_root[self.pattern, labels])
        return np.sqrt(np.square(root).sum(axis=1) / self.factor[:, None])

    def drawn(self, rng: np.random.Generator, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Fill vectors (r, D) of clusters `labels` (r,) by draws where they are missing."""
        noise = rng.standard_normal(self.x.shape)[:, :, None]
        # With precision R R', the noise R'^-1 e has covariance (R R')^-1.
        root = np.swapaxes(self.missing_root[self.pattern, labels], 1, 2)
        noise = np.linalg.solve(root, noise)[:, :, 0] / np.sqrt(self.factor)[:, None]
        return self.expected(labels) + np.where(self.hidden, noise, 0.0)

    def log_missing(self, vectors: NDArray, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log density (r,) of what is missing of `vectors` (r, D), given the rest and labels."""
        root = self.missing_root[self.pattern, labels]
        white = np.einsum("rd,rde->re", vectors - self.expected(labels), root)
        logs = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        logs += 0.5 * np.log(self.factor / (2.0 * np.pi)) * self.hidden.sum(axis=1)
        return logs - 0.5 * self.factor * np.square(white).sum(axis=1)
