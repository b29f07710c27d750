"""Hamiltonian Monte Carlo on all frequencies at once: coefficients integrated out, or given.

Given the coefficients is what C. Du et al. (2018), "Max-margin multi-view learning with an adaptive
kernel", do. Frequencies hardly move then, as the coefficients are fitted to their features; it is
here to be compared with.
"""

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.sines import sines
from pm_match.views.hinge.frequencies import FrequencyEvidence


class _Coordinates:
    """Coordinates of frequencies in which their prior is standard normal.

    Parameters
    ----------
    means : (M, m) array
    factors : (M, m, m) array
        Of the prior: frequencies are means + factors @ z.
    """

    def __init__(self, means, factors):
        self._means, self._factors = means, factors

    def frequencies(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the frequencies (M, m) at coordinates (M, m)."""
        return self._means + np.einsum("jab,jb->ja", self._factors, z)

    def coordinates(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coordinates of frequencies."""
        return np.linalg.solve(self._factors, (frequencies - self._means)[:, :, None])[:, :, 0]

    def _with_prior(self, z, value: float, gradient):
        """Add the prior to a log density, and to its gradient in the frequencies (M, m)."""
        by_coordinate = np.einsum("jab,ja->jb", self._factors, gradient) - z
        return value - 0.5 * float(np.vdot(z, z)), by_coordinate


class EvidenceTarget(_Coordinates):
    """Log density of frequencies with all coefficients integrated out.

    Parameters
    ----------
    evidence : FrequencyEvidence
        At the start.
    means, factors : (M, m) and (M, m, m) array
        Of the prior.

    Attributes
    ----------
    evidence : FrequencyEvidence
        At the last place where it could be evaluated.
    """

    def __init__(self, evidence: FrequencyEvidence, means, factors):
        super().__init__(means, factors)
        self.evidence = evidence

    def __call__(self, z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Evaluate the log density and its gradient (M, m)."""
        frequencies = self.frequencies(z)
        # Where numbers end, as far from where a move began they may, there is nothing to go to.
        if not np.isfinite(frequencies).all():
            return -np.inf, np.zeros_like(z)
        try:
            self.evidence = self.evidence.at(frequencies)
        except np.linalg.LinAlgError:
            return -np.inf, np.zeros_like(z)
        return self._with_prior(z, self.evidence.log_evidence, self.evidence.gradient())


class FrequencyTarget(_Coordinates):
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
        return self._with_prior(z, -self._penalty * float(loss.sum()), by_angle.T @ self._latent)


def leapfrog_move(
    rng: np.random.Generator, target, start: NDArray[np.float64], step_size: float, n_steps: int
) -> tuple[NDArray[np.float64], float]:
    """Make one Hamiltonian move; return where it ends and its probability of acceptance."""
    momentum = rng.standard_normal(start.shape)
    density, gradient = target(start)
    energy = density - 0.5 * np.vdot(momentum, momentum)
    x = start
    momentum = momentum + 0.5 * step_size * gradient
    for step in range(n_steps):
        x = x + step_size * momentum
        density, gradient = target(x)
        momentum = momentum + (0.5 if step == n_steps - 1 else 1.0) * step_size * gradient
    change = density - 0.5 * np.vdot(momentum, momentum) - energy
    probability = float(np.exp(min(0.0, change))) if np.isfinite(change) else 0.0
    return (x if rng.random() < probability else start), probability
