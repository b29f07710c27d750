"""The paper's moves of frequencies, to compare with: all at once by HMC, given the coefficients.

C. Du et al. (2018), "Max-margin multi-view learning with an adaptive kernel". Frequencies hardly
move so, as the coefficients are fitted to their features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match import FrequencyMetropolis
from pm_match.checks import check_count
from pm_match.numerics.sines import sines
from pm_match.views.hinge.frequency_hmc import PriorCoordinates

__all__ = ["FrequencyHMC", "FrequencyTarget"]


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
        super().__init__(vars, n_leapfrog=n_leapfrog, **kwargs)

    def _move(self, new, stats) -> None:
        part, points = self.part, self._points
        latent, frequencies = part.fourier(new)
        target = FrequencyTarget(
            latent[points.rows],
            points.labels,
            part.C(new),
            points.coefficients(new),
            *part.frequency_prior(new),
        )
        moved = self._leap(target, frequencies, stats)
        if moved is not None:
            self._writer.write(new, {part.frequencies: moved})


class FrequencyTarget(PriorCoordinates):
    """Log density of frequencies given the coefficients.

    Parameters
    ----------
    latent : (N, m) array
    labels : (N, K) array
    C : float
    coefficients : (2M + 1, K) array
    means, factors : (M, m) and (M, m, m) array
        Of the prior.
    """

    def __init__(self, latent, labels, C, coefficients, means, factors):
        super().__init__(means, factors)
        n = len(means)
        self._latent, self._labels, self._penalty = latent, labels, 2.0 * C
        self._cosines = coefficients[:n] / np.sqrt(n)
        self._sines = coefficients[n:-1] / np.sqrt(n)
        self._constant = coefficients[-1]

    def __call__(self, z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Evaluate the log density and its gradient (M, m)."""
        angles = self._latent @ self.frequencies(z).T
        sine, cosine = np.empty_like(angles), np.empty_like(angles)
        sines(angles, sine, cosine)
        scores = cosine @ self._cosines + sine @ self._sines + self._constant
        loss = np.abs(self._labels) * np.maximum(0.0, 1.0 - self._labels * scores)
        slope = self._penalty * self._labels * (loss > 0.0)
        by_angle = cosine * (slope @ self._sines.T) - sine * (slope @ self._cosines.T)
        return self.with_prior(z, -self._penalty * float(loss.sum()), by_angle.T @ self._latent)
