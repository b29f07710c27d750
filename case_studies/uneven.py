"""Synthetic domains, in one of which clusters differ much in size."""

from __future__ import annotations

import numpy as np
import xarray as xr

from pm_match import datasets

SIZES = (10, 25, 40, 70, 100)


def uneven(random_seed: int) -> dict[str, xr.DataArray]:
    """Draw Synth5 with 10, 25, 40, 70 and 100 objects of the clusters in the first domain.

    Parameters
    ----------
    random_seed : int

    Returns
    -------
    dict of str to DataArray
        As `pm_match.datasets.synthetic` returns them.
    """
    domains = datasets.synthetic(n_objects=500, random_seed=random_seed)
    first, table = next(iter(domains.items()))
    rng = np.random.default_rng([random_seed, 3])
    label = datasets.true_labels(domains)[first]
    kept = [
        rng.choice(np.flatnonzero(label == which), n, replace=False)
        for which, n in zip(np.unique(label), SIZES, strict=True)
    ]
    return domains | {first: table[rng.permutation(np.concatenate(kept))]}
