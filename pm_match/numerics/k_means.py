"""k-means of points that may lack coordinates: where searches and EM start."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# Centres to begin with are drawn from at least so many points for each.
_CANDIDATES = 5


def k_means(
    rng: np.random.Generator,
    points: NDArray,
    n_clusters: int,
    weight: NDArray | None = None,
    n_rounds: int = 10,
    tries: int = 1,
) -> NDArray[np.int64]:
    """Cluster points by k-means, begun far apart, over the coordinates that each has.

    `points` (N, K); `n_clusters`: at most; there are fewer if fewer points differ. `weight` (N, K):
    how many values every coordinate is the mean of, 0 (or False) where a point lacks it; all 1 by
    default. `n_rounds`: the most of Lloyd's rounds that follow; `tries`: of every centre to begin
    with, the best of which is taken. Return (N,): labels in 0 ... n_clusters - 1.
    """
    return settle(points, spread(rng, points, n_clusters, weight, tries), weight, n_rounds)


def cluster_numbers(
    most: int, n_points: int, least: int, numbers: Iterable[int] | None = None
) -> list[int]:
    """Return the numbers of clusters to begin with.

    `most`: the most clusters that there may be; `least`: how many points there are to be for each
    cluster. `numbers`: what to try. Default: as many clusters as there may be. Return them in
    increasing order, at least 1.
    """
    most = max(min(most, n_points // least), 1)
    return [most] if numbers is None else sorted({min(n, most) for n in numbers})


def spread(
    rng: np.random.Generator,
    points: NDArray,
    n_clusters: int,
    weight: NDArray | None = None,
    tries: int = 1,
) -> NDArray[np.int64]:
    """Assign points to the nearest of some that are far apart.

    Those are drawn as k-means++ does (Arthur & Vassilvitskii 2007), from the points that have most
    coordinates, several times as many as clusters; what they still lack is at the mean.

    `rng`, `points`, `n_clusters`, `weight`, `tries`: as of `k_means`. Return (N,).
    """
    points, weight = _centred(points, weight)
    n_seen = (weight > 0.0).sum(axis=1)
    fit = n_seen >= np.sort(n_seen)[-min(_CANDIDATES * n_clusters, len(points))]
    labels = np.zeros(len(points), np.int64)
    chosen = [int(rng.choice(np.flatnonzero(fit)))]
    nearest = _distances(points, weight, points[chosen])[:, 0]
    for label in range(1, n_clusters):
        total = (nearest * fit).sum()
        if not total > 0.0:
            break
        drawn = rng.choice(len(points), tries, p=nearest * fit / total)
        distances = _distances(points, weight, points[drawn])
        best = int(np.minimum(nearest[:, None], distances).sum(axis=0).argmin())
        labels[distances[:, best] < nearest] = label
        nearest = np.minimum(nearest, distances[:, best])
    return labels


def settle(
    points: NDArray, labels: NDArray[np.integer], weight: NDArray | None = None, n_rounds: int = 10
) -> NDArray[np.int64]:
    """Move every point to the nearest of the clusters' means, again and again.

    `points` (N, K); `labels` (N,): to begin with; `weight`, `n_rounds`: as of `k_means`. Return
    (N,): labels below the number of clusters that `labels` holds.
    """
    points, weight = _centred(points, weight)
    for _ in range(n_rounds):
        held, place = np.unique(labels, return_inverse=True)
        belongs = np.eye(len(held))[place.reshape(-1)]
        means = belongs.T @ (points * weight) / np.maximum(belongs.T @ weight, 1.0)
        labels = _distances(points, weight, means).argmin(axis=1).astype(np.int64)
        if np.array_equal(labels, place.reshape(-1)):
            break
    return np.asarray(labels, np.int64)


def _centred(
    points: NDArray, weight: NDArray | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points about the mean of all values, 0 where there is none, and weights (N, K)."""
    weight = np.ones(points.shape) if weight is None else weight.astype(float)
    mean = (points * weight).sum(axis=0) / np.maximum(weight.sum(axis=0), 1.0)
    return np.where(weight > 0.0, points - mean, 0.0), weight


def _distances(points: NDArray, weight: NDArray, centres: NDArray) -> NDArray[np.float64]:
    """Mean squared distances (N, J) over the values that each point has."""
    there = points * weight
    squares = (there * points).sum(axis=1)[:, None] - 2.0 * there @ centres.T
    squares += weight @ np.square(centres).T
    return np.maximum(squares, 0.0) / np.maximum(weight.sum(axis=1), 1.0)[:, None]
