r"""Hamiltonian Monte Carlo for many independent vectors, each a normal density times a rough term.

Every object n has its own density :math:`N(h_n; \mu_n, P_{p(n)}^{-1})\, e^{g_n(h_n)}`. In the
coordinates :math:`z = L^\top (h - \mu)`, :math:`L L^\top = P`, its normal part is standard, and the
motion that it alone gives rise to is a rotation of positions and momenta, which needs no
discretising. The leapfrog therefore splits the Hamiltonian into the normal part, moved exactly,
and the rough term, whose gradient kicks the momenta (Shahbaba, Lan, Johnson & Neal 2014,
"Split Hamiltonian Monte Carlo", Statistics and Computing 24): only the rough term costs
acceptance, and where it says little a step can be a quarter turn.

All objects move together, and each accepts or rejects on its own; arrays that have one density
between them are one object (`move_together`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.step_methods.state import dataclass_state

from pm_match.clusters.step import PartitionStep, PartitionStepState
from pm_match.views.factors.row_solves import cholesky, row_products, solve_lower, solve_upper
from pm_match.views.hinge.frequencies import FrequencyPrior

# (rows, latent vectors of these) -> (log densities, gradients)
Term = Callable[[NDArray[np.int64], NDArray], tuple[NDArray, NDArray]]

# Objects that move at a time: what they need stays in the processor's cache.
_TOGETHER = 256
# At a quarter turn what is normal is drawn anew: steps become no larger.
_LARGEST = 0.5 * pi
_SMALLEST = 1e-3
# Of the Robbins-Monro search for the step size: how fast its corrections shrink.
_DECAY = 0.6


@dataclass_state
class HMCState(PartitionStepState):
    """What a chain changes in the step: how far moves go, while tuning."""

    tune: bool
    log_step_size: float
    n_tuned: int


class HMCStep(PartitionStep):
    """A step that makes Hamiltonian moves, whose size it searches for while tuning."""

    _state_class = HMCState
    # Where the search begins, and the mean probability of acceptance that it steers to.
    first_step_size = 0.5 * _LARGEST
    target_accept = 0.8

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain, with a search of its own for the step size if it is tuned at all."""
        super().setup_chain(rng, tune, draws)
        if tune:
            self.reset_tuning()
        else:
            self.stop_tuning()

    def stop_tuning(self) -> None:
        """Keep the step size from now on."""
        self.tune = False

    def reset_tuning(self, tune: bool = True) -> None:
        """Search for the step size anew."""
        self.tune, self.log_step_size, self.n_tuned = tune, log(self.first_step_size), 0

    def _path(self, most: int) -> tuple[float, int]:
        """Choose the size and number of a move's steps: of a quarter turn, if `most` go so far.

        Paths are of unequal lengths, so that none comes back every time.
        """
        step_size = min(exp(self.log_step_size), _LARGEST) * self.rng.uniform(0.8, 1.2)
        return step_size, min(max(1, round(_LARGEST / step_size)), most)

    def _adapt(self, acceptance: float) -> None:
        """While tuning, make steps larger if more than wanted was accepted, smaller if less."""
        if self.tune:
            self.n_tuned += 1
            self.log_step_size += (acceptance - self.target_accept) * self.n_tuned**-_DECAY
            self.log_step_size = min(max(self.log_step_size, log(_SMALLEST)), log(_LARGEST))


@dataclass(frozen=True, eq=False)
class NormalPart:
    """Normal densities of vectors, whose precisions take few values."""

    mean: NDArray[np.float64]  # (N, m)
    lower: NDArray[np.float64]  # (P, m, m): lower Cholesky factors L of the precisions
    pattern: NDArray[np.int64]  # (N,): which of the P an object has

    @classmethod
    def of(cls, precision: NDArray, linear: NDArray, pattern: NDArray) -> "NormalPart":
        """Factorise precisions (P, m, m) of densities with linear terms (N, m)."""
        linear, pattern = np.asarray(linear, np.float64), np.asarray(pattern, np.int64)
        centred = cls(np.zeros(linear.shape), cholesky(precision), pattern)
        return replace(centred, mean=centred.coloured(centred.pulled(linear)))

    def take(self, rows: NDArray[np.int64]) -> "NormalPart":
        """Return the densities of some objects."""
        pattern = self.pattern[rows]
        if len(pattern) and (pattern == pattern[0]).all():
            return NormalPart(self.mean[rows], self.lower[pattern[:1]], np.zeros_like(pattern))
        return NormalPart(self.mean[rows], self.lower, pattern)

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw a vector of every object from its density."""
        return self.coloured(rng.standard_normal(self.mean.shape))

    def coloured(self, z: NDArray) -> NDArray[np.float64]:
        """Give the vectors (N, m) at which the standard coordinates are `z`."""
        return solve_upper(self.lower, self.pattern, z) + self.mean

    def whitened(self, latent: NDArray) -> NDArray[np.float64]:
        """Give the standard coordinates (N, m) of vectors."""
        return row_products(latent - self.mean, self.lower, self.pattern)

    def pulled(self, gradient: NDArray) -> NDArray[np.float64]:
        """Turn gradients (N, m) in the vectors into gradients in their standard coordinates."""
        return solve_lower(self.lower, self.pattern, gradient)


def draw_latent(
    rng: np.random.Generator,
    normal: NormalPart,
    term: Term,
    labelled: NDArray[np.bool_],
    latent: NDArray,
    step_size: float,
    n_steps: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Move every object's vector, leaving its density invariant.

    `term`: from rows (n,) and vectors (n, m) of these to log densities (n,) and gradients (n, m).
    `labelled` (N,) of bool: the objects that the term says anything about. The others are drawn
    anew, exactly. `latent` (N, m); `step_size`: angle of rotation between kicks. Return `latent`
    (N, m); `probability` (n,): of having accepted, of every object that is `labelled`.
    """
    found = np.array(latent, np.float64)
    free = np.flatnonzero(~labelled)
    found[free] = normal.take(free).draw(rng)
    # Objects of one pattern together: one product of matrices does for all.
    order = np.flatnonzero(labelled)
    order = order[np.argsort(normal.pattern[order], kind="stable")]
    momentum = rng.standard_normal((len(order), latent.shape[1]))

    def followed(own: slice, rows: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        part, p = normal.take(rows), momentum[own]
        return _trajectory(part, partial(term, rows), latent[rows], p, step_size, n_steps)

    return found, _moved(rng, found, order, followed)


def jump_latent(
    rng: np.random.Generator,
    normal: NormalPart,
    term: Term,
    labelled: NDArray[np.bool_],
    latent: NDArray,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Propose vectors drawn from the normal part: small steps do not cross what hinges keep apart.

    Parameters and what is returned are those of `draw_latent`; what is not `labelled` stays.
    """
    found = np.array(latent, np.float64)
    order = np.flatnonzero(labelled)
    proposed = normal.take(order).draw(rng)

    def drawn(own: slice, rows: NDArray[np.int64]) -> tuple[NDArray, NDArray]:
        return proposed[own], term(rows, proposed[own])[0] - term(rows, latent[rows])[0]

    return found, _moved(rng, found, order, drawn)


def _moved(rng: np.random.Generator, found, order, propose) -> NDArray[np.float64]:
    """Let the objects `order` (n,) accept what is proposed; return their probabilities to do so.

    `propose` gives vectors, and their log acceptance ratios, for a slice of `order`.
    """
    threshold = -rng.exponential(size=len(order))
    probability = np.empty(len(order))
    for first in range(0, len(order), _TOGETHER):
        own = slice(first, first + _TOGETHER)
        rows = order[own]
        moved, log_ratio = propose(own, rows)
        accepted = threshold[own] < log_ratio
        found[rows[accepted]] = moved[accepted]
        probability[own] = np.exp(np.minimum(log_ratio, 0.0))
    return probability


def move_together(
    rng: np.random.Generator,
    normal: NormalPart | FrequencyPrior,
    term: Callable[[NDArray], tuple[NDArray, NDArray]],
    array: NDArray,
    step_size: float,
    n_steps: int,
) -> tuple[NDArray[np.float64], float]:
    """Move an array with one density; return where it ends, and its probability of acceptance.

    `normal` and `term` are of arrays with one more axis, of length 1.
    """
    momentum = rng.standard_normal((1, *array.shape))
    (moved,), (log_ratio,) = _trajectory(normal, term, array[None], momentum, step_size, n_steps)
    probability = float(np.exp(min(log_ratio, 0.0)))
    return (moved if rng.random() < probability else array), probability


def _energy(log_density, z, p) -> NDArray[np.float64]:
    both = (np.square(z) + np.square(p)).reshape(len(z), -1)
    return log_density - 0.5 * both.sum(axis=1)


def _trajectory(
    normal: NormalPart | FrequencyPrior, term, latent, p, step_size: float, n_steps: int
):
    """Follow objects' motion; return where it ends (n, ...), and log acceptance ratios (n,)."""
    cosine, sine = np.cos(step_size), np.sin(step_size)
    z = normal.whitened(latent)
    log_density, gradient = term(latent)
    start = _energy(log_density, z, p)
    p = p + 0.5 * step_size * normal.pulled(gradient)
    for number in range(n_steps):
        z, p = cosine * z + sine * p, cosine * p - sine * z
        latent = normal.coloured(z)
        log_density, gradient = term(latent)
        p += (1.0 if number < n_steps - 1 else 0.5) * step_size * normal.pulled(gradient)
    log_ratio = _energy(log_density, z, p) - start
    # A motion that left what floats can hold is no candidate.
    log_ratio[~np.isfinite(log_ratio)] = -np.inf
    return latent, log_ratio
