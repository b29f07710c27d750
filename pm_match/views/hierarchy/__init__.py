"""Clusters of objects above clusters of every view."""
