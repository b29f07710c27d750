r"""What labels say of latent vectors: the hinge pseudo-likelihood in random Fourier features.

Given the frequencies :math:`\omega` (M, m) and the coefficients :math:`\beta` (2M + 1, S), an
object n with the latent vector h has the scores

.. math:: f_s(h) = M^{-1/2} \sum_j \{\beta_{js} \cos \omega_j^\top h
          + \beta_{(M+j)s} \sin \omega_j^\top h\} + \beta_{(2M)s}

and the log pseudo-likelihood :math:`-2C \sum_s \max(0, 1 - y_{ns} f_s(h))`, where
:math:`y_{ns} \in \{-1, 0, 1\}` and 0 says nothing (Du, He, Du, Zhuang, He & Long 2018, eq. 2).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.views.hinge.fourier import waves


class HingeTerm:
    """The log pseudo-likelihood of objects' labels as a function of their latent vectors.

    `frequencies` (M, m); `coefficients` (2M + 1, S): of cosines, sines and the constant; `labels`
    (N, S): -1 or 1; 0 for what is not labelled; `penalty`, C. `labelled` (N,) are the objects that
    it says anything about.
    """

    def __init__(
        self, frequencies: NDArray, coefficients: NDArray, labels: NDArray, penalty: float
    ):
        n_frequencies = len(frequencies)
        self.labels = np.asarray(labels, np.float64)
        self.labelled = (self.labels != 0.0).any(axis=1)
        self._penalty = 2.0 * float(penalty)
        self._frequencies = np.ascontiguousarray(frequencies, np.float64)
        scaled = np.asarray(coefficients, np.float64) / np.sqrt(n_frequencies)
        self._cosines = np.ascontiguousarray(scaled[:n_frequencies])
        self._sines = np.ascontiguousarray(scaled[n_frequencies:-1])
        self._constant = np.asarray(coefficients, np.float64)[-1]

    def __call__(
        self, rows: NDArray[np.int64], latent: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate the term for some objects.

        `rows` (n,); `latent` (n, m). Return `log_density` (n,); `gradient` (n, m): in the latent
        vectors; zero where the margin is just met.
        """
        cosine, sine = waves(latent @ self._frequencies.T)
        labels = self.labels[rows]
        short = 1.0 - labels * (cosine @ self._cosines + sine @ self._sines + self._constant)
        # At labels of 0 it is 1, and counts neither here nor in the slopes.
        short[labels == 0.0] = 0.0
        np.maximum(short, 0.0, out=short)
        slope = self._penalty * labels * (short > 0.0)
        if slope.shape[1] == 1:
            # d(score)/d(angle), then the chain rule; in place, as these are the large arrays.
            cosine *= self._sines[:, 0]
            sine *= self._cosines[:, 0]
            cosine -= sine
            gradient = slope * (cosine @ self._frequencies)
        else:
            cosine *= slope @ self._sines.T
            sine *= slope @ self._cosines.T
            cosine -= sine
            gradient = cosine @ self._frequencies
        return -self._penalty * short.sum(axis=1), gradient


class SummedTerm:
    """What the labels of several hinges say of the same latent vectors."""

    def __init__(self, terms: Sequence[HingeTerm]):
        self.terms = terms
        self.labelled = np.logical_or.reduce([term.labelled for term in terms])

    def __call__(
        self, rows: NDArray[np.int64], latent: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate the sum for some objects, as a `HingeTerm` does."""
        parts = [term(rows, latent) for term in self.terms]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)  # type: ignore[return-value]
