"""Maximum likelihood by expectation maximisation: arrays in, arrays out, one model a file."""

from pm_match.em.climb import Fit
from pm_match.em.dependency_clusters import DependencyClusters, fit_dependency_clusters
from pm_match.em.dependency_hierarchy import DependencyHierarchy, fit_dependency_hierarchy
from pm_match.em.shared_factors import SharedFactors, fit_shared_factors

__all__ = [
    "DependencyClusters",
    "DependencyHierarchy",
    "Fit",
    "SharedFactors",
    "fit_dependency_clusters",
    "fit_dependency_hierarchy",
    "fit_shared_factors",
]
