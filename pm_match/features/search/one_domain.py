"""The clusters of one domain alone: k-means with too many clusters, merged by the log joint."""

import numpy as np
from numpy.typing import NDArray

from pm_match.features.search.feature_problem import FeatureProblem, Labels
from pm_match.features.search.group_moves import climb_groups, merges
from pm_match.numerics.k_means import k_means, settle

# Clusters to start from. If merging leaves nearly as many, there may be more than these.
_FIRST = 10
_CROWDED = 0.7
_MOST_ROUNDS = 50
_STARTS = 2


def clusters_alone(problem: FeatureProblem, rng: np.random.Generator) -> Labels:
    """Cluster the units (U,) of a problem of one domain: the best of a few starts by log joint."""
    most = min(problem.truncation, len(problem.units.size))
    best, best_value = np.zeros(len(problem.units.size), np.int64), -np.inf
    for _ in range(_STARTS):
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
    points, weight = _points(problem)
    tries = 2 + int(np.log(n_clusters))
    labels = k_means(rng, points, n_clusters, weight, _MOST_ROUNDS, tries)
    best, value = labels, -np.inf
    while True:
        groups = problem.grouped(labels)
        merged, found = climb_groups(groups, groups.label, merges)
        if found <= value:
            return best, value
        best, value = merged[groups.of_unit], found
        # Merging opens room for objects to find a better place.
        labels = settle(points, best, weight, _MOST_ROUNDS)


def _points(problem: FeatureProblem) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (U, M) of the units of one domain, and of how many values they are."""
    (domain,) = problem.domains
    seen = np.ones_like(domain.values) if domain.observed is None else domain.weights
    counts = problem.units.total(seen)
    return problem.units.total(domain.values) / np.maximum(counts, 1.0), counts
