"""The clusters of one domain alone: k-means with too many clusters, merged by the log joint."""

import numpy as np
from numpy.typing import NDArray

from pm_match.features.search.feature_problem import FeatureProblem, Labels
from pm_match.features.search.group_moves import climb, merges

# Clusters to start from. If merging leaves nearly as many, there may be more than these.
_FIRST = 10
_CROWDED = 0.7
_MOST_ITERATIONS = 50


def clusters_alone(problem: FeatureProblem, rng: np.random.Generator, starts: int = 2) -> Labels:
    """Cluster a problem of one domain.

    Parameters
    ----------
    problem : FeatureProblem
        Of one domain.
    rng : numpy.random.Generator
    starts : int, default 2
        How often to begin anew; the result with the best log joint is returned.

    Returns
    -------
    (U,) integer array
        Labels of the units.
    """
    most = min(problem.truncation, len(problem.units.size))
    best, best_value = np.zeros(len(problem.units.size), np.int64), -np.inf
    for _ in range(starts):
        n = _FIRST
        while True:
            labels, value = _one_start(problem, rng, min(n, most))
            if value > best_value:
                best, best_value = np.unique(labels, return_inverse=True)[1].reshape(-1), value
            if len(np.unique(labels)) <= _CROWDED * n or n >= most:
                break
            n *= 2
    return best


def _one_start(problem: FeatureProblem, rng, n_clusters: int) -> tuple[Labels, float]:
    points = _Points(problem)
    labels = points.settle(points.spread(rng, n_clusters))
    best, value = labels, -np.inf
    while True:
        grouped = problem.grouped(labels)
        start = grouped.label
        merged, found = climb(
            grouped.groups, start, merges, float(grouped.groups.score(start[None])[0])
        )
        if found <= value:
            return best, value
        best, value = merged[grouped.of_unit], found
        # Merging opens room for objects to find a better place.
        labels = points.settle(points.centres(best))


class _Points:
    """The units of one domain as points: sums, counts per feature, and sums of squares."""

    def __init__(self, problem: FeatureProblem):
        (domain,) = problem.domains
        units = problem.units
        self.sums = units.total(domain.values)
        seen = np.ones_like(domain.values) if domain.observed is None else domain.weights
        self.counts = units.total(seen)
        self.squares = units.total(np.square(domain.values).sum(axis=1))
        self.usual = domain.values.sum(axis=0) / np.maximum(seen.sum(axis=0), 1.0)

    def distances(self, centres: NDArray) -> NDArray:
        """Squared distances (U, J) from the `centres` (J, M), over what is observed."""
        cross = self.sums @ centres.T
        return self.squares[:, None] - 2.0 * cross + self.counts @ np.square(centres).T

    def centres(self, labels: Labels) -> NDArray:
        """Mean of what is observed of every cluster that holds something."""
        _, place = np.unique(labels, return_inverse=True)
        n = int(place.max()) + 1
        member = np.zeros((n, len(labels)))
        member[place.reshape(-1), np.arange(len(labels))] = 1.0
        counts = member @ self.counts
        means = (member @ self.sums) / np.maximum(counts, 1.0)
        return np.where(counts > 0.0, means, self.usual)

    def spread(self, rng: np.random.Generator, n_clusters: int) -> NDArray:
        """Choose centres by k-means++: far from those chosen already, several tries each."""
        size = len(self.sums)
        means = np.where(self.counts > 0.0, self.sums / np.maximum(self.counts, 1.0), self.usual)
        chosen = [int(rng.integers(size))]
        nearest = np.maximum(self.distances(means[chosen])[:, 0], 0.0)
        tries = 2 + int(np.log(n_clusters))
        while len(chosen) < n_clusters and nearest.sum() > 0.0:
            drawn = rng.choice(size, tries, p=nearest / nearest.sum())
            after = np.minimum(nearest[:, None], np.maximum(self.distances(means[drawn]), 0.0))
            best = int(after.sum(axis=0).argmin())
            chosen.append(int(drawn[best]))
            nearest = after[:, best]
        return means[chosen]

    def settle(self, centres: NDArray) -> Labels:
        """Move centres to the means of their units until no unit changes its cluster."""
        labels = self.distances(centres).argmin(axis=1)
        for _ in range(_MOST_ITERATIONS):
            old = labels
            labels = self.distances(self.centres(labels)).argmin(axis=1)
            if np.array_equal(labels, old):
                break
        return labels
