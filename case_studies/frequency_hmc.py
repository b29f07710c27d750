"""The paper's moves of frequencies, to compare with: all at once by HMC, given the coefficients.

C. Du et al. (2018), "Max-margin multi-view learning with an adaptive kernel". Frequencies hardly
move so, as the coefficients are fitted to their features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match import FrequencyMetropolis
from pm_match.checks import check_count
from pm_match.views.hinge.fourier import waves

__all__ = ["FrequencyHMC", "FrequencyTerm"]


class FrequencyHMC(FrequencyMetropolis):
    """Draw the frequencies of Fourier features of a hinge, given the coefficients.

    Parameters
    ----------
    vars : sequence of variables
        The frequencies.
    n_leapfrog : int, default 10
    **kwargs
        As of `FrequencyMetropolis`.
    """

    name = "frequency_hmc"

    def __init__(self, vars: Any, n_leapfrog: int = 10, **kwargs: Any):
        check_count("FrequencyHMC: n_leapfrog", n_leapfrog)
        super().__init__(vars, n_leapfrog=n_leapfrog, n_carried=0, **kwargs)

    def _evidence(self, point) -> None:
        """Integrate nothing out."""

    def _move(self, new, evidence, stats) -> None:
        part, points = self.part, self._points
        latent, frequencies = part.fourier(new)
        term = FrequencyTerm(
            latent[points.rows], points.labels, part.C(new), points.coefficients(new)
        )
        moved = self._leap(part.frequency_prior(new), term, frequencies, stats)
        self._writer.write(new, {part.frequencies: moved})


class FrequencyTerm:
    """Log pseudo-likelihood of frequencies given the coefficients.

    Parameters
    ----------
    latent : (N, m) array
    labels : (N, K) array
    C : float
    coefficients : (2M + 1, K) array
    """

    def __init__(self, latent, labels, C, coefficients):
        n = len(coefficients) // 2
        self._latent, self._labels, self._penalty = latent, labels, 2.0 * C
        self._cosines = coefficients[:n] / np.sqrt(n)
        self._sines = coefficients[n:-1] / np.sqrt(n)
        self._constant = coefficients[-1]

    def __call__(self, frequencies: NDArray) -> tuple[NDArray, NDArray]:
        """Evaluate it (1,) and its gradient at frequencies, both (1, M, m)."""
        cosine, sine = waves(self._latent @ frequencies[0].T)
        scores = cosine @ self._cosines + sine @ self._sines + self._constant
        loss = np.abs(self._labels) * np.maximum(0.0, 1.0 - self._labels * scores)
        slope = self._penalty * self._labels * (loss > 0.0)
        by_angle = cosine * (slope @ self._sines.T) - sine * (slope @ self._cosines.T)
        return np.array([-self._penalty * loss.sum()]), (by_angle.T @ self._latent)[None]
