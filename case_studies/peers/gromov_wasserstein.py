"""Couplings of two sets of points that keep distances, from several starts."""

from __future__ import annotations

import numpy as np

from case_studies.peers.tables import optional_module


def squared_distances(points: np.ndarray) -> np.ndarray:
    """Compute squared Euclidean distances, as fractions of the largest.

    Domains measure in units of their own, so that only ratios of distances can be compared.

    Parameters
    ----------
    points : ndarray, shape (n_points, n_features)

    Returns
    -------
    ndarray, shape (n_points, n_points)
    """
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=-1)
    largest = distances.max()
    return distances / largest if largest > 0 else distances


def coupling(
    first: np.ndarray,
    second: np.ndarray,
    first_weights: np.ndarray,
    second_weights: np.ndarray,
    *,
    starts: int = 1,
    rng: np.random.Generator,
) -> np.ndarray:
    r"""Find a coupling of small Gromov–Wasserstein distortion.

    .. math::

        \min_T \sum_{ikjl} (C_{ik} - D_{jl})^2 T_{ij} T_{kl}, \qquad
        T 1 = p, \; T^\top 1 = q, \; T \ge 0

    (Mémoli 2011), by POT's conditional gradient. The problem is not convex: the first start is the
    product of the weights, others are random, and the best end counts.

    Parameters
    ----------
    first, second : ndarray, shapes (n, n) and (m, m)
        Distances C and D within each set.
    first_weights, second_weights : ndarray, shapes (n,) and (m,)
        Positive weights p and q, each with sum 1.
    starts : int
        Number of starts.
    rng : Generator
        Draws them.

    Returns
    -------
    ndarray, shape (n, m)
    """
    gromov = optional_module("ot.gromov")
    best, least = None, np.inf
    for start in range(starts):
        initial = None if start == 0 else _random_coupling(first_weights, second_weights, rng)
        plan, log = gromov.gromov_wasserstein(
            first, second, first_weights, second_weights, "square_loss", G0=initial, log=True
        )
        if best is None or log["gw_dist"] < least:
            best, least = plan, log["gw_dist"]
    return best


def _random_coupling(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Scale a random matrix, far from a product, until its margins are right."""
    plan = rng.random((len(p), len(q))) ** 4 + 1e-3
    for _ in range(100_000):
        plan *= (q / plan.sum(axis=0))[None, :]
        rows = plan.sum(axis=1)
        plan *= (p / rows)[:, None]
        if np.abs(plan.sum(axis=0) - q).max() < 1e-10:
            return plan
    return np.outer(p, q)  # not reached: entries are at least 1/1000 of the largest
