"""Gromov–Wasserstein between networks, by spectral coordinates of their rows.

Two functions of one interface: `match_clusters` couples the means of k-means clusters, as
`case_studies.peers.cluster_gromov_wasserstein` does, and `match_objects` the rows themselves, as
`case_studies.peers.object_gromov_wasserstein`. Columns only serve to tell rows apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from case_studies.peers import cluster_gromov_wasserstein, object_gromov_wasserstein
from case_studies.peers.network_coordinates import row_coordinates

Networks = Mapping[str, ArrayLike | sparse.sparray]


def match_clusters(
    networks: Networks,
    n_clusters: int,
    random_seed: int | None = None,
    n_dimensions: int | None = None,
) -> dict[str, np.ndarray]:
    """Match the clusters of k-means on the rows' coordinates.

    Parameters
    ----------
    networks : mapping of str to matrix, shape (n_rows, n_columns)
        Sparse or dense, with nonnegative entries.
    n_clusters : int
        Number of clusters of rows, the same in all networks.
    random_seed : int, optional
        Seed of k-means and of the couplings' starts.
    n_dimensions : int, optional
        Coordinates of a row. Default: one fewer than clusters, or one.

    Returns
    -------
    dict of str to ndarray, shape (n_rows,)
        Labels from 0 to ``n_clusters - 1``.

    Raises
    ------
    ImportError
        If scikit-learn or POT is not installed.
    TypeError, ValueError
        As `row_coordinates` and `case_studies.peers.tables.check_tables` do.
    """
    points = _points(networks, n_clusters, n_dimensions)
    return cluster_gromov_wasserstein.match(points, n_clusters, random_seed)


def match_objects(
    networks: Networks,
    n_clusters: int,
    random_seed: int | None = None,
    n_dimensions: int | None = None,
) -> dict[str, np.ndarray]:
    """Couple the rows, and carry the first network's clusters to the others.

    Parameters, labels and errors are those of `match_clusters`.
    """
    points = _points(networks, n_clusters, n_dimensions)
    return object_gromov_wasserstein.match(points, n_clusters, random_seed)


def _points(networks: Networks, n_clusters: int, n_dimensions: int | None) -> dict[str, np.ndarray]:
    """Give the rows directions; on text this did better than coordinates with their lengths."""
    n = max(n_clusters - 1, 1) if n_dimensions is None else n_dimensions
    return row_coordinates(networks, n, unit_length=True)
