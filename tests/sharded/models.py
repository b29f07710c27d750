"""Tiny models whose objects can be enumerated, with the data of their rows."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pm_match as pmm
from tests.sharded import references

T = 3


@cache
def columns(family, alpha=1.3, alike=None, power=1.0):
    """Columns of one family, of 3 and 2 objects; a free concentration if `alpha` is None.

    `alike`: numbers of objects that have 1 in two columns; `power`: to which densities count.
    """
    rng = np.random.default_rng(5)
    data = {}
    with pm.Model() as model:
        if alpha is None:
            alpha = pm.Gamma("alpha", 2.0, 1.0)
        w = pm.StickBreakingWeights("weights", alpha=alpha, K=T - 1)
        parameters = _parameters(family)
        for name, n in zip("ab", alike or (3, 2), strict=True):
            s = pm.Categorical(f"cluster_{name}", p=w, shape=n)
            data[name] = np.ones((n, 2), int) if alike else _values(family, rng, n)
            _observe(family, name, parameters, s, data[name])
            if power < 1.0:
                pmm.coarsen(f"coarsened_{name}", name, power)
    return model, data, references.of_columns(family, data, power)


def _parameters(family):
    if family == "Poisson":
        return [pm.Gamma("rates", 2.0, 0.5, shape=(T, 2))]
    if family == "Bernoulli":
        return [pm.Beta("p", 0.7, 1.2, shape=(T, 3))]
    if family == "Categorical":
        return [pm.Dirichlet("p", [0.6, 0.8, 0.5], shape=(T, 2, 3))]
    if family == "Normal":
        return [pm.Normal("means", 0.3, 2.0, shape=(T, 2))]
    tau = pm.Gamma("tau", 2.0, 1.0, shape=(T, 2))
    return [pm.Normal("means", 0.3, tau=0.5 * tau, shape=(T, 2)), tau]


def _values(family, rng, n):
    if family == "Poisson":
        return rng.poisson(rng.choice([1.0, 6.0], (n, 1)), (n, 2))
    if family == "Bernoulli":
        return rng.integers(2, size=(n, 3))
    if family == "Categorical":
        return rng.integers(3, size=(n, 2))
    return rng.normal(rng.choice([-1.5, 1.5], (n, 1)), 1.0, (n, 2))


def _observe(family, name, parameters, s, values):
    if family == "Poisson":
        pm.Poisson(name, parameters[0][s], observed=values)
    elif family == "Bernoulli":
        pm.Bernoulli(name, parameters[0][s], observed=values)
    elif family == "Categorical":
        pm.Categorical(name, parameters[0][s], observed=values)
    elif family == "Normal":
        pm.Normal(name, parameters[0][s], 0.8, observed=values)
    else:
        pm.Normal(name, parameters[0][s], tau=parameters[1][s], observed=values)


@cache
def features(full=False, deviations=False):
    """Feature vectors with constant projections: a shared precision, or noise that is dependent."""
    rng = np.random.default_rng(8)
    data, parts = {}, []
    shared = not (full or deviations)
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.3, K=T - 1)
        precision = pm.Gamma("precision", 3.0, 2.0) if shared else 1.0
        latent = pm.Normal("latent", 0.0, tau=0.5 * precision, shape=(T, 2))
        for name, n in (("a", 3), ("b", 2)):
            s = pm.Categorical(f"cluster_{name}", p=w, shape=n)
            projection = rng.normal(size=(3, 2))
            mean, noise, spread = latent @ projection.T + 0.4, np.eye(3), 0.0
            data[name] = rng.normal(rng.choice([-1.0, 1.5], (n, 1)), 1.0, (n, 3))
            if deviations:
                spread = 0.7
                mean = mean + pm.Normal(f"deviation_{name}", 0.0, spread, shape=(T, 3))
            if full:
                root = np.tril(rng.normal(size=(3, 3)) * 0.3) + np.eye(3)
                pm.MvNormal(name, mean[s], tau=root @ root.T, observed=data[name])
                noise = np.linalg.inv(root @ root.T)
            else:
                pm.Normal(name, mean[s], tau=precision, observed=data[name])
            parts.append((projection, noise, spread))
    return model, data, references.of_features(data, parts, (3.0, 2.0) if shared else None)


@cache
def normals(shared=False):
    """Normal clusters, with precisions of their own or one for all."""
    rng = np.random.default_rng(8)
    data = {}
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.3, K=T - 1)
        shape = {} if shared else {"shape": (T, 2, 2)}
        precision = pm.Wishart("precision", nu=5, V=np.eye(2) / 4.0, **shape)
        if shared:
            mean = pm.MvNormal("mean", [0.2, 0.1], tau=0.3 * precision, shape=(T, 2))
        else:
            covariance = pt.linalg.inv(precision)
            mean = pm.MvNormal("mean", [0.2, 0.1], cov=covariance / 0.3, shape=(T, 2))
        for name, n in (("a", 3), ("b", 2)):
            s = pm.Categorical(f"cluster_{name}", p=w, shape=n)
            data[name] = rng.normal(rng.choice([-1.0, 1.5], (n, 1)), 1.0, (n, 2))
            noise = {"tau": precision} if shared else {"cov": covariance[s]}
            pm.MvNormal(name, mean[s], **noise, observed=data[name])
    return model, data, references.of_normals(data, shared)


@cache
def likelihoods(shared=False):
    """Any likelihoods: counts and real numbers around the same centres, of one scale or 0.8."""
    rng = np.random.default_rng(8)
    data = {
        "a": rng.normal(rng.choice([-1.0, 1.5], (3, 1)), 1.0, (3, 2)),
        "b": rng.poisson(rng.choice([0.5, 4.0], (2, 1)), (2, 2)),
    }
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.3, K=T - 1)
        centre = pm.Normal("centre", 0.2, 1.2, shape=(T, 2))
        sigma = pm.HalfNormal("sigma", 1.0) if shared else 0.8
        a = pm.Categorical("cluster_a", p=w, shape=3)
        b = pm.Categorical("cluster_b", p=w, shape=2)
        pm.StudentT("a", nu=4.0, mu=centre[a], sigma=sigma, observed=data["a"])
        pm.Poisson("b", pt.exp(centre)[b], observed=data["b"])
    return model, data, references.of_likelihoods(data, shared)


def spreads():
    """Any likelihood: centres and a scale for each cluster, tails and a spread for all."""
    rng = np.random.default_rng(8)
    data = {name: rng.normal(size=(n, 2)) for name, n in (("a", 4), ("b", 3))}
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=pm.Gamma("alpha", 2.0, 1.0), K=T - 1)
        spread = pm.LogNormal("spread", 0.0, 0.5)
        centre = pm.Normal("centre", 0.0, spread, shape=(T, 2))
        scale = pm.LogNormal("scale", 0.1 * centre.sum(axis=1), 0.5, shape=T)
        tails = pm.Gamma("tails", 8.0, 1.0)
        for name, values in data.items():
            s = pm.Categorical(f"cluster_{name}", p=w, shape=len(values))
            noise = scale[s][:, None]
            pm.StudentT(name, nu=2.0 + tails, mu=centre[s], sigma=noise, observed=values)
    return model, data
