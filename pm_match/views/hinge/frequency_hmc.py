"""Hamiltonian Monte Carlo on all frequencies at once, coefficients integrated out."""

import numpy as np
from numpy.typing import NDArray

from pm_match.views.hinge.frequencies import FrequencyEvidence


class PriorCoordinates:
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

    def with_prior(self, z, value: float, gradient):
        """Add the prior to a log density, and to its gradient in the frequencies (M, m)."""
        by_coordinate = np.einsum("jab,ja->jb", self._factors, gradient) - z
        return value - 0.5 * float(np.vdot(z, z)), by_coordinate


class EvidenceTarget(PriorCoordinates):
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
        return self.with_prior(z, self.evidence.log_evidence, self.evidence.gradient())


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
