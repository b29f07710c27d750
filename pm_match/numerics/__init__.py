"""Compiled numerics that know nothing of clusters."""
