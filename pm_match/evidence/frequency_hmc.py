"""Hamiltonian Monte Carlo on frequencies, given the coefficients: what the paper does.

C. Du et al. (2018), "Max-margin multi-view learning with an adaptive kernel". Given the
coefficients the frequencies hardly move (see `evidence.frequencies` for what does); it is here to
be compared with.
"""

import numpy as np
from numpy.typing import NDArray

from pm_match.sines import sines


class FrequencyTarget:
    """Log density of frequencies in coordinates in which their prior is standard normal.

    Parameters
    ----------
    latent : (N, m) array
    labels : (N, K) array
    C : float
    coefficients : (2M + 1, K) array
    means : (M, m) array
    factors : (M, m, m) array
        Of the prior: frequencies are means + factors @ z.
    """

    def __init__(self, latent, labels, C, coefficients, means, factors):
        n = len(means)
        self._latent, self._labels, self._penalty = latent, labels, 2.0 * C
        self._cosines = coefficients[:n] / np.sqrt(n)
        self._sines = coefficients[n:-1] / np.sqrt(n)
        self._constant = coefficients[-1]
        self._means, self._factors = means, factors

    def frequencies(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the frequencies (M, m) at coordinates (M, m)."""
        return self._means + np.einsum("jab,jb->ja", self._factors, z)

    def coordinates(self, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coordinates of frequencies."""
        return np.linalg.solve(self._factors, (frequencies - self._means)[:, :, None])[:, :, 0]

    def __call__(self, z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Evaluate the log density and its gradient (M, m)."""
        angles = self._latent @ self.frequencies(z).T
        sine, cosine = np.empty_like(angles), np.empty_like(angles)
        sines(angles, sine, cosine)
        scores = cosine @ self._cosines + sine @ self._sines + self._constant
        loss = np.abs(self._labels) * np.maximum(0.0, 1.0 - self._labels * scores)
        slope = self._penalty * self._labels * (loss > 0.0)
        by_angle = cosine * (slope @ self._sines.T) - sine * (slope @ self._cosines.T)
        gradient = np.einsum("jab,ja->jb", self._factors, by_angle.T @ self._latent) - z
        return -self._penalty * float(loss.sum()) - 0.5 * float(np.vdot(z, z)), gradient


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
