r"""Hamiltonian Monte Carlo for many independent vectors, each a normal density times a rough term.

Every object n has its own density :math:`N(h_n; \mu_n, P_{p(n)}^{-1})\, e^{g_n(h_n)}`. In the
coordinates :math:`z = L^\top (h - \mu)`, :math:`L L^\top = P`, its normal part is standard, and the
motion that it alone gives rise to is a rotation of positions and momenta, which needs no
discretising. The leapfrog therefore splits the Hamiltonian into the normal part, moved exactly,
and the rough term, whose gradient kicks the momenta (Shahbaba, Lan, Johnson & Neal 2014,
"Split Hamiltonian Monte Carlo", Statistics and Computing 24): only the rough term costs
acceptance, and where it says little a step can be a quarter turn.

All objects move together, and each accepts or rejects on its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pm_match.views.factors.row_solves import cholesky, row_products, solve_lower, solve_upper

# (rows, latent vectors of these) -> (log densities, gradients)
Term = Callable[[NDArray[np.int64], NDArray], tuple[NDArray, NDArray]]

# Objects that move at a time: what they need stays in the processor's cache.
_TOGETHER = 256


@dataclass(frozen=True, eq=False)
class NormalPart:
    """Normal densities of vectors, whose precisions take few values.

    Attributes
    ----------
    mean : (N, m) array
    lower : (P, m, m) array
        Lower Cholesky factors L of the precisions.
    pattern : (N,) integer array
        Which of the P an object has.
    """

    mean: NDArray[np.float64]
    lower: NDArray[np.float64]
    pattern: NDArray[np.int64]

    @classmethod
    def of(cls, precision, linear, pattern) -> "NormalPart":
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

    Parameters
    ----------
    rng : numpy.random.Generator
    normal : NormalPart
    term : callable
        From rows (n,) and vectors (n, m) of these to log densities (n,) and gradients (n, m).
    labelled : (N,) array of bool
        The objects that the term says anything about. The others are drawn anew, exactly.
    latent : (N, m) array
    step_size : float
        Angle of rotation between kicks.
    n_steps : int

    Returns
    -------
    latent : (N, m) array
    probability : (n,) array
        Of having accepted, of every object that is `labelled`.
    """
    found = np.array(latent, np.float64)
    free = np.flatnonzero(~labelled)
    found[free] = normal.take(free).draw(rng)
    # Objects of one pattern together: one product of matrices does for all.
    order = np.flatnonzero(labelled)
    order = order[np.argsort(normal.pattern[order], kind="stable")]
    momentum = rng.standard_normal((len(order), latent.shape[1]))
    threshold = -rng.exponential(size=len(order))
    probability = np.empty(len(order))
    for first in range(0, len(order), _TOGETHER):
        own = slice(first, first + _TOGETHER)
        rows = order[own]
        moved, log_ratio = _trajectory(
            normal.take(rows), partial(term, rows), latent[rows], momentum[own], step_size, n_steps
        )
        accepted = threshold[own] < log_ratio
        found[rows[accepted]] = moved[accepted]
        probability[own] = np.exp(np.minimum(log_ratio, 0.0))
    return found, probability


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
    threshold = -rng.exponential(size=len(order))
    probability = np.empty(len(order))
    for first in range(0, len(order), _TOGETHER):
        own = slice(first, first + _TOGETHER)
        rows = order[own]
        log_ratio = term(rows, proposed[own])[0] - term(rows, latent[rows])[0]
        accepted = threshold[own] < log_ratio
        found[rows[accepted]] = proposed[own][accepted]
        probability[own] = np.exp(np.minimum(log_ratio, 0.0))
    return found, probability


def _trajectory(normal: NormalPart, term, latent, p, step_size: float, n_steps: int):
    """Follow objects' motion; return where it ends (n, m), and log acceptance ratios (n,)."""
    cosine, sine = np.cos(step_size), np.sin(step_size)
    z = normal.whitened(latent)
    log_density, gradient = term(latent)
    start = log_density - 0.5 * (np.square(z).sum(axis=1) + np.square(p).sum(axis=1))
    p = p + 0.5 * step_size * normal.pulled(gradient)
    for number in range(n_steps):
        z, p = cosine * z + sine * p, cosine * p - sine * z
        latent = normal.coloured(z)
        log_density, gradient = term(latent)
        p += (1.0 if number < n_steps - 1 else 0.5) * step_size * normal.pulled(gradient)
    end = log_density - 0.5 * (np.square(z).sum(axis=1) + np.square(p).sum(axis=1))
    log_ratio = end - start
    # A motion that left what floats can hold is no candidate.
    log_ratio[~np.isfinite(log_ratio)] = -np.inf
    return latent, log_ratio
