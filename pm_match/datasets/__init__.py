"""What the examples load: domains, networks and paired views with known true classes.

Functions for domains return a plain dictionary from a domain's name to its table, an xarray
DataArray (objects by features) whose object dimension carries the true clusters as the
coordinate ``"label"``. A model sees only the values; `true_labels` gives the labels.

Functions for networks return a small record, whose ``networks`` a model sees; functions for views
of the same objects one whose ``views`` it sees.
"""

from pm_match.datasets.domains import (
    images,
    iris,
    load_glass,
    rotated_digits,
    split_features,
    synthetic,
    true_labels,
    wine,
)
from pm_match.datasets.networks import (
    LabelledNetworks,
    SyntheticNetworks,
    load_help_networks,
    load_movielens_networks,
    load_newsgroups_halves,
    synthetic_networks,
)
from pm_match.datasets.simulated_views import (
    correlated_views,
    dependent_clusters,
    ring_views,
    xor_views,
)
from pm_match.datasets.views import (
    PairedViews,
    add_bimodal_noise,
    digit_halves,
    load_multiple_features,
    load_webkb,
    load_yeast_stress,
)

__all__ = [
    "LabelledNetworks",
    "PairedViews",
    "SyntheticNetworks",
    "add_bimodal_noise",
    "correlated_views",
    "dependent_clusters",
    "digit_halves",
    "images",
    "iris",
    "load_glass",
    "load_help_networks",
    "load_movielens_networks",
    "load_multiple_features",
    "load_newsgroups_halves",
    "load_webkb",
    "load_yeast_stress",
    "ring_views",
    "rotated_digits",
    "split_features",
    "synthetic",
    "synthetic_networks",
    "true_labels",
    "wine",
    "xor_views",
]
