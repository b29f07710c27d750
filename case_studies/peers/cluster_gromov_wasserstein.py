"""K-means in every domain, and Gromov–Wasserstein between the clusters' means.

Each domain is clustered alone. The clusters of every later domain are coupled with those of the
first, weighted by their sizes, and the coupling is turned into a one-to-one matching by the linear
assignment that keeps most of its mass.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from case_studies.peers.gromov_wasserstein import coupling, squared_distances
from case_studies.peers.tables import check_tables, optional_module

_STARTS = 20


def match(
    domains: Mapping[str, ArrayLike], n_clusters: int, random_seed: int | None = None
) -> dict[str, np.ndarray]:
    """Match the clusters of k-means.

    Parameters
    ----------
    domains : mapping of str to array_like, shape (n_objects, n_features)
        Tables without missing values.
    n_clusters : int
        Number of clusters, the same in all domains.
    random_seed : int, optional
        Seed of k-means and of the couplings' starts.

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
    labels: dict[str, np.ndarray] = {}
    reference = None
    for name, values in tables.items():
        seed = int(rng.integers(2**31))
        fitted = cluster.KMeans(n_clusters, n_init=10, random_state=seed).fit(values)
        distances = squared_distances(fitted.cluster_centers_)
        weights = np.bincount(fitted.labels_, minlength=n_clusters) / len(values)
        if reference is None:
            reference = (distances, weights)
            labels[name] = fitted.labels_.astype(np.int64)
            continue
        plan = coupling(reference[0], distances, reference[1], weights, starts=_STARTS, rng=rng)
        targets, sources = linear_sum_assignment(plan, maximize=True)
        renamed = np.empty(n_clusters, dtype=np.int64)
        renamed[sources] = targets
        labels[name] = renamed[fitted.labels_]
    return labels
