"""Looks for the best matchings: whole clusters of a data set change places, not single objects."""
