"""Other methods that match clusters of feature vectors or of networks' rows, to compare with.

For features each is a module with one function, ``match(domains, n_clusters, random_seed)``:
domains in, a label for every object out, the same label in two domains meaning the same cluster.
All are told the number of clusters, which pm_match's models are not; `gaussian_mixtures` says what
they would be told by BIC. They take values as they are:
standardise features, or divide a table by one number, beforehand. `network_gromov_wasserstein` has
both of them for networks, on spectral coordinates of their rows. They need scikit-learn and POT.
"""

from case_studies.peers import (
    cluster_gromov_wasserstein,
    network_gromov_wasserstein,
    object_gromov_wasserstein,
)

__all__ = [
    "cluster_gromov_wasserstein",
    "network_gromov_wasserstein",
    "object_gromov_wasserstein",
]
