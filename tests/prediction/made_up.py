"""Draws made of given points, and dense formulas beside the ones under test."""

from functools import cache

import numpy as np
import xarray as xr
from scipy import stats

from pm_match.reading.probe import natural_function
from tests.declared.features import feature_model

# Reading such a model takes longer than most tests of it.
model_of = cache(feature_model)


def tree_of(model, points, chains=1):
    """Points of value variables as the draws that PyMC would record."""
    names = [rv.name for rv in model.free_RVs]
    natural = natural_function(model, names)
    values = [natural(point) for point in points]
    found = {}
    for number, name in enumerate(names):
        stacked = np.stack([np.asarray(v[number]) for v in values])
        stacked = stacked.reshape(chains, -1, *stacked.shape[1:])
        dims = model.named_vars_to_dims.get(name)
        if dims is None:
            dims = [f"{name}_dim_{i}" for i in range(stacked.ndim - 2)]
        coords = {d: np.asarray(model.coords[d]) for d in dims if model.coords.get(d) is not None}
        found[name] = xr.DataArray(stacked, coords, ("chain", "draw", *dims))
    return xr.DataTree.from_dict({"posterior": xr.Dataset(found)})


def dense_log_density(tables, labels, marginals, r):
    """Log density of all values that are not NaN, one dense normal a cluster.

    Of every domain its table, labels (-1 for objects that are left out), and (W, a, covariance).
    """
    everyone = [
        (d, n)
        for d, (table, label) in enumerate(zip(tables, labels, strict=True))
        for n in range(len(table))
        if label[n] >= 0
    ]
    total = 0.0
    for j in {labels[d][n] for d, n in everyone}:
        members = [(d, n) for d, n in everyone if labels[d][n] == j]
        w = np.concatenate([marginals[d][0] for d, _ in members])
        x = np.concatenate([tables[d][n] - marginals[d][1] for d, n in members])
        covariance = w @ w.T / r
        first = 0
        for d, _ in members:
            here = slice(first, first + tables[d].shape[1])
            covariance[here, here] += marginals[d][2]
            first = here.stop
        seen = ~np.isnan(x)
        if seen.any():
            total += stats.multivariate_normal.logpdf(
                x[seen], np.zeros(seen.sum()), covariance[np.ix_(seen, seen)]
            )
    return total
