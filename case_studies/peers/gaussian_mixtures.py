"""The number of clusters by BIC, for peers that have to be told one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from case_studies.peers.tables import check_tables, optional_module

_MOST = 12


def number_of_clusters(domains: Mapping[str, ArrayLike], random_seed: int | None = None) -> int:
    """Choose the number of normal clusters, the same in all domains, by BIC.

    Parameters
    ----------
    domains : mapping of str to array_like, shape (n_objects, n_features)
        Tables without missing values.
    random_seed : int, optional

    Returns
    -------
    int
        From 2 to 12: that with the least sum of the domains' BIC, of mixtures whose clusters have
        covariances of their own.

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    """
    tables = check_tables(domains, 2)
    mixture = optional_module("sklearn.mixture")
    rng = np.random.RandomState(random_seed)
    numbers = np.arange(2, _MOST + 1)
    bic = [
        sum(
            mixture.GaussianMixture(n, reg_covar=1e-3, random_state=rng).fit(own).bic(own)
            for own in tables.values()
        )
        for n in numbers
    ]
    return int(numbers[np.argmin(bic)])
