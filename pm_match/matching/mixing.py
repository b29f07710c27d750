"""R-hat and effective draws, also of what is constant."""

import warnings
from typing import NamedTuple

import numpy as np

# What differs by less than this fraction differs by rounding.
_ROUNDING = 1e-9
# Halves of chains that are constant up to rounding have huge R-hats: they are stuck.
_HUGE = 1e6
_TAILS = (0.05, 0.95)


class Mixing(NamedTuple):
    """How well chains of a quantity mix."""

    # Rank-normalised split R-hat (Vehtari et al. 2021); 1 if the quantity is constant, infinity if
    # it is so within halves of chains but not overall, NaN with one chain or under 4 draws
    r_hat: float
    # ess_bulk, ess_tail: effective draws of all chains; NaN with under 4 draws or where R-hat is
    # infinite
    ess_bulk: float
    ess_tail: float
    note: str  # "constant", "stuck at different values", or nothing


def worst_of(together: np.ndarray) -> int:
    """Find which of many quantities of two values has the largest R-hat.

    For two values the rank-normalised R-hat is the plain one of split chains, since their ranks
    are an affine function of them, and so is their distance from the median: all of them can be
    done at once.

    `together` (n_chains, n_draws, n_quantities), booleans. Return its number; with one chain or one
    draw, that of the first which is not constant. Constant ones come last.
    """
    n_chains, n_draws, _ = together.shape
    moves = (together != together[:1, :1]).any(axis=(0, 1))
    half = n_draws // 2
    r_hat = np.ones(len(moves))
    if n_chains > 1 and half > 1:
        halves = np.concatenate([together[:, :half], together[:, -half:]]).astype(float)
        within = halves.var(axis=1, ddof=1).mean(axis=0)
        between = halves.mean(axis=1).var(axis=0, ddof=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            r_hat = np.sqrt(between / within + (half - 1) / half)
    return int(np.argmax(np.where(moves, r_hat, 0.0)))


def mixing(trace: np.ndarray) -> Mixing:
    """Judge one quantity, shape (n_chains, n_draws), whose values are finite.

    References
    ----------
    A. Vehtari et al. (2021), "Rank-normalization, folding, and localization: an improved R-hat for
    assessing convergence of MCMC", Bayesian Analysis 16, 667-718.
    """
    n_chains, n_draws = trace.shape
    trace = trace.astype(float)
    tolerance = _ROUNDING * max(float(np.abs(trace).max()), 1e-300)
    if np.ptp(trace) <= tolerance:
        same = 1.0 if n_chains > 1 else float("nan")
        return Mixing(same, float(trace.size), float(trace.size), "constant")
    if n_draws < 4:
        return Mixing(float("nan"), float("nan"), float("nan"), "")
    half = n_draws // 2
    halves = [trace[:, :half], trace[:, -half:]]
    if all((np.ptp(part, axis=1) <= tolerance).all() for part in halves):
        stuck = float("inf") if n_chains > 1 else float("nan")
        return Mixing(stuck, float("nan"), float("nan"), "stuck at different values")
    # Importing it takes as long as importing PyMC.
    from arviz_stats import ess, rhat

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Two values only are all their own median's distance: no spread of that, no harm.
        warnings.simplefilter("ignore", RuntimeWarning)
        r_hat = float(rhat(trace)) if n_chains > 1 else float("nan")
        bulk = float(ess(trace, method="bulk"))
        tail = float(ess(trace, method="tail", prob=_TAILS))
    if r_hat > _HUGE:
        r_hat = float("inf")
    return Mixing(r_hat, bulk, tail, "stuck at different values" if np.isinf(r_hat) else "")
