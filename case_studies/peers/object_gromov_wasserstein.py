"""Gromov–Wasserstein between objects; the first domain's clusters are carried over.

The objects of the first domain are clustered by k-means. Every later domain's objects are coupled
with them, all of equal weight, and each takes the cluster that most of its mass comes from. Time
grows with the third power of the number of objects, memory with the second.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from case_studies.peers.gromov_wasserstein import coupling, squared_distances
from case_studies.peers.tables import check_tables, optional_module


def match(
    domains: Mapping[str, ArrayLike], n_clusters: int, random_seed: int | None = None
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
    distances = squared_distances(values)
    weights = np.full(len(values), 1 / len(values))
    labels = {source: own.astype(np.int64)}
    for name, table in others:
        plan = coupling(
            distances,
            squared_distances(table),
            weights,
            np.full(len(table), 1 / len(table)),
            rng=rng,
        )
        labels[name] = (plan.T @ membership).argmax(axis=1)
    return labels
