"""Maximum likelihood by expectation maximisation: arrays in, arrays out, one model a file."""

from pm_match.views.em.ascent import Ascent, Fit
from pm_match.views.em.dependency import (
    DependencyMixture,
    fit_dependency,
)
from pm_match.views.em.projected_clusters import ProjectedClusters, fit_projected_clusters
from pm_match.views.em.shared_factors import SharedFactors, fit_shared_factors

__all__ = [
    "Ascent",
    "DependencyMixture",
    "Fit",
    "ProjectedClusters",
    "SharedFactors",
    "fit_dependency",
    "fit_projected_clusters",
    "fit_shared_factors",
]
