"""Optimal transport between objects; the first domain's clusters are carried over.

The objects of the first domain are clustered by k-means. Every later domain's objects are coupled
with them, all of equal weight, and each takes the cluster that most of its mass comes from. Time
grows with the third power of the number of objects, memory with the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import scipy
from numpy.typing import ArrayLike

from case_studies.peers.gromov_wasserstein import coupling, squared_distances
from case_studies.peers.tables import check_tables, optional_module

Transport = Literal["plain", "entropic", "semirelaxed", "geodesic", "co-optimal"]

# Of entropic regularisation, of distances whose largest is 1.
_EPSILON = 0.05
# Neighbours of a graph along which geodesic distances are measured.
_NEIGHBOURS = 10


def match(
    domains: Mapping[str, ArrayLike],
    n_clusters: int,
    random_seed: int | None = None,
    transport: Transport = "plain",
) -> dict[str, np.ndarray]:
    """Carry the first domain's clusters to the others.

    Parameters
    ----------
    domains : mapping of str to array_like, shape (n_objects, n_features)
        Tables without missing values.
    n_clusters : int
        Number of clusters of the first domain.
    random_seed : int, optional
        Seed of k-means. The coupling has one start, the product of the weights.
    transport : str, default "plain"
        Gromov–Wasserstein (Mémoli 2011); with entropic regularisation (Peyré, Cuturi & Solomon
        2016); with only the second weights kept, semi-relaxed (Vincent-Cuaz et al. 2022); of
        geodesic distances on graphs of neighbours, entropic as in SCOT (Demetci et al. 2022); or of
        objects and features at once, co-optimal (Redko et al. 2020).

    Returns
    -------
    dict of str to ndarray, shape (n_objects,)
        Labels from 0 to ``n_clusters - 1``.

    Raises
    ------
    ImportError
        If scikit-learn or POT is not installed.
    TypeError, ValueError
        As `case_studies.peers.tables.check_tables` does.
    """
    tables = check_tables(domains, n_clusters)
    cluster = optional_module("sklearn.cluster")
    rng = np.random.default_rng(random_seed)
    (source, values), *others = tables.items()
    seed = int(rng.integers(2**31))
    own = cluster.KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(values)
    membership = np.eye(n_clusters)[own]
    labels = {source: own.astype(np.int64)}
    for name, table in others:
        labels[name] = (_plan(values, table, transport, rng).T @ membership).argmax(axis=1)
    return labels


def _plan(x: np.ndarray, y: np.ndarray, transport: Transport, rng) -> np.ndarray:
    """Couple two tables' objects."""
    p, q = (np.full(len(own), 1 / len(own)) for own in (x, y))
    if transport == "co-optimal":
        return optional_module("ot.coot").co_optimal_transport(x, y)[0]
    distances = _geodesic if transport == "geodesic" else squared_distances
    one, two = distances(x), distances(y)
    if transport == "plain":
        return coupling(one, two, p, q, rng=rng)
    gromov = optional_module("ot.gromov")
    if transport == "semirelaxed":
        # Each of the second domain's objects chooses; those of the first need not all be chosen.
        return gromov.semirelaxed_gromov_wasserstein(two, one, q, symmetric=True).T
    return gromov.entropic_gromov_wasserstein(
        one, two, p, q, "square_loss", epsilon=_EPSILON, solver="PPA", max_iter=50, tol=1e-6
    )


def _geodesic(points: np.ndarray) -> np.ndarray:
    """Measure distances along a graph of neighbours, as fractions of the largest."""
    distances = squared_distances(points) ** 0.5
    order = np.argsort(distances, axis=1)[:, 1 : _NEIGHBOURS + 1]
    edges = np.zeros_like(distances)
    rows = np.arange(len(points))[:, None]
    edges[rows, order] = np.maximum(distances[rows, order], 1e-12)
    found = scipy.sparse.csgraph.shortest_path(edges, directed=False)
    # Parts that no path joins are as far from each other as anything can be.
    largest = found[np.isfinite(found)].max()
    return np.where(np.isfinite(found), found, 1.5 * largest) / max(largest, 1e-300)
