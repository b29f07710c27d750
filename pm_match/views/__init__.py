"""Linked views: factor models, hierarchies of clusters, max margin, EM."""
