"""Counts of clusters that are far apart, and short runs on them."""

import numpy as np
import pymc as pm
import xarray as xr

import pm_match as pmm

N, T = 90, 4


def counts(n=N):
    """Counts of two domains, of three clusters that are far apart."""
    rng = np.random.default_rng(0)
    rates = np.array([[2.0, 30.0], [30.0, 2.0], [60.0, 60.0]])
    return {name: rng.poisson(rates[rng.integers(3, size=n)]).astype(float) for name in "ab"}


def dispersed(name, rates, observed):
    """Declare counts that are a little more dispersed: a likelihood of no kind of its own."""
    return pm.NegativeBinomial(name, mu=rates, alpha=50.0, observed=observed)


def declared(data, rows=20, of=pm.Poisson):
    """Declare the model on some rows."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=T - 1)
        rates = pm.Gamma("rates", 2.0, 0.1, shape=(T, 2))
        for name, values in data.items():
            s = pm.Categorical(f"cluster_{name}", p=w, shape=rows)
            of(name, rates[s], observed=values[:rows])
    return model


def started(model):
    """A start near the clusters, for which nothing is searched."""
    weights = np.array([0.4, 0.3, 0.2, 0.1])[None, None]
    rates = np.array([[3.0, 28.0], [28.0, 3.0], [55.0, 55.0], [10.0, 10.0]])[None, None]
    draws = {
        "weights": (("chain", "draw", "k"), weights),
        "rates": (("chain", "draw", "k", "m"), rates),
    }
    for name in "ab":
        draws[f"cluster_{name}"] = (("chain", "draw", name), np.zeros((1, 1, 20), int))
    return xr.DataTree.from_dict({"posterior": xr.Dataset(draws)})


def sampled(model, data, **options):
    """Draw a few times."""
    given = {"draws": 6, "tune": 3, "chunk_size": 25, "random_seed": 3, "start": started(model)}
    return pmm.sample_sharded(model, data, progressbar=False, **(given | options))


def same(one, other):
    """Say whether two results are the same, bit for bit."""
    return all(
        np.array_equal(one["posterior"][name], other["posterior"][name])
        for name in one["posterior"].data_vars
    )
