"""k-means of points that may lack coordinates: where searches and climbs start."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["k_means"]


def k_means(
    rng: np.random.Generator,
    points: NDArray,
    n_clusters: int,
    seen: NDArray[np.bool_] | None = None,
    n_rounds: int = 10,
) -> NDArray[np.int64]:
    """Cluster points by k-means, begun far apart, over the coordinates that each has.

    Centres begin as k-means++'s (Arthur & Vassilvitskii 2007).

    Parameters
    ----------
    rng : numpy.random.Generator
    points : (N, K) array
    n_clusters : int
        At most; there are fewer if fewer points differ.
    seen : (N, K) array of bool, optional
        Which coordinates the points have, all by default.
    n_rounds : int, default 10
        The most of Lloyd's rounds that follow.

    Returns
    -------
    (N,) integer array
        Labels in 0 ... n_clusters - 1.
    """
    if seen is None:
        seen = np.ones(points.shape, bool)
    weight = seen.astype(float)
    total = np.maximum(weight.sum(axis=0), 1.0)
    usual = (points * weight).sum(axis=0) / total
    # Centres are points themselves: complete ones, or else with usual values.
    filled = np.where(seen, points, usual)
    fit = seen.sum(axis=1) == seen.sum(axis=1).max()
    centres = filled[[int(rng.choice(np.flatnonzero(fit)))]]
    nearest = _distances(points, weight, centres)[:, 0]
    for _ in range(n_clusters - 1):
        cumulative = np.cumsum(nearest * fit)
        if not cumulative[-1] > 0.0:
            break
        chosen = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
        centres = np.concatenate([centres, filled[[min(chosen, len(points) - 1)]]])
        nearest = np.minimum(nearest, _distances(points, weight, centres[-1:])[:, 0])
    labels = np.full(len(points), -1)
    for _ in range(n_rounds):
        new = _distances(points, weight, centres).argmin(axis=1)
        if np.array_equal(new, labels):
            break
        labels = new
        belongs = (labels[:, None] == np.arange(len(centres))).astype(float)
        counts = belongs.T @ weight
        sums = belongs.T @ (points * weight)
        centres = np.where(counts > 0.0, sums / np.maximum(counts, 1.0), centres)
    return labels


def _distances(points, weight, centres) -> NDArray[np.float64]:
    """Mean squared distances (N, J) over the coordinates that each point has."""
    there = points * weight
    squares = np.square(there).sum(axis=1)[:, None] - 2.0 * there @ centres.T
    squares += weight @ np.square(centres).T
    return np.maximum(squares, 0.0) / np.maximum(weight.sum(axis=1), 1.0)[:, None]
