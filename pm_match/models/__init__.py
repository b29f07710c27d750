"""The papers' models, declared: each file is one, and the example for a variation of it."""

from pm_match.models.aligned_clusters import aligned_clusters
from pm_match.models.dependency_clusters import dependency_clusters
from pm_match.models.dependency_hierarchy import dependency_hierarchy
from pm_match.models.max_margin_views import max_margin_views
from pm_match.models.mixture import mixture
from pm_match.models.normal_clusters import normal_clusters
from pm_match.models.projected_clusters import projected_clusters
from pm_match.models.relational_clusters import relational_clusters
from pm_match.models.shared_factors import shared_factors
from pm_match.models.table_clusters import table_clusters

__all__ = [
    "aligned_clusters",
    "dependency_clusters",
    "dependency_hierarchy",
    "max_margin_views",
    "mixture",
    "normal_clusters",
    "projected_clusters",
    "relational_clusters",
    "shared_factors",
    "table_clusters",
]
