"""Tiny models with independent columns, declared in many ways."""

import numpy as np
import pymc as pm

import pm_match as pmm

T = 3
N = (3, 3)
M = 2
K = 3


def data_of(family, n, rng, m=M):
    """Made-up values of a family, (n, m) or (n, K)."""
    shape = (n, m)
    return {
        "poisson": lambda: rng.poisson(2.5, shape),
        "exponential": lambda: rng.exponential(1.5, shape),
        "bernoulli": lambda: rng.binomial(1, 0.4, shape),
        "binomial": lambda: rng.binomial(trials(n), 0.4),
        "geometric": lambda: rng.geometric(0.4, shape),
        "negative binomial": lambda: rng.negative_binomial(2.5, 0.4, shape),
        "categorical": lambda: rng.integers(K, size=shape),
        "multinomial": lambda: rng.multinomial(3 + np.arange(n), np.ones(K) / K),
        "normal, known noise": lambda: rng.normal(0.5, 1.5, shape),
        "normal, free noise": lambda: rng.normal(0.5, 1.5, shape),
        "normal": lambda: rng.normal(0.5, 1.5, shape),
        "lognormal, known noise": lambda: rng.lognormal(0.5, 1.0, shape),
        "lognormal": lambda: rng.lognormal(0.5, 1.0, shape),
    }[family]()


def trials(n, m=M):
    return 3 + (np.arange(n)[:, None] + np.arange(m)) % 3


FAMILIES = (
    "poisson",
    "exponential",
    "bernoulli",
    "binomial",
    "geometric",
    "negative binomial",
    "categorical",
    "multinomial",
    "normal, known noise",
    "normal",
    "lognormal, known noise",
    "lognormal",
)
# What may be missing in part.
HOLED = tuple(family for family in FAMILIES if family != "multinomial")


def parameters(family, hyperprior=False, name="theta", truncation=T, m=M):
    """Declare the parameters of clusters, with their conjugate prior.

    `hyperprior`: whether it has a free hyperparameter, or "columns": one for each column.
    """
    shape = (truncation, m)
    free = 1.5
    if hyperprior:
        free = pm.Gamma(f"{name}_hyper", 4.0, 2.0, shape=m if hyperprior == "columns" else ())
    if family in ("poisson", "exponential"):
        return pm.Gamma(name, free, np.array([0.5, 0.8])[:m], shape=shape)
    if family in ("bernoulli", "binomial", "geometric", "negative binomial"):
        return pm.Beta(name, np.array([1.2, 0.7])[:m], free, shape=shape)
    if family == "categorical":
        return pm.Dirichlet(name, free * np.array([0.5, 1.0, 1.5]), shape=(*shape, K))
    if family == "multinomial":
        return pm.Dirichlet(name, free * np.array([0.5, 1.0, 1.5]), shape=(truncation, K))
    if "noise" in family:
        return pm.Normal(name, np.array([0.3, -0.2])[:m], free, shape=shape)
    precision = pm.Gamma(f"{name}_precision", 2.0, free, shape=shape)
    kappa = np.array([0.3, 0.6])[:m]
    return pm.Normal(name, 0.2, tau=kappa * precision, shape=shape), precision


def observe(family, name, cluster, theta, values):
    """Declare an observed variable of a family around the parameters of clusters."""
    n = len(values)
    if family == "normal":
        return pm.Normal(name, theta[0][cluster], tau=theta[1][cluster], observed=values)
    if family == "lognormal":
        return pm.LogNormal(name, theta[0][cluster], tau=theta[1][cluster], observed=values)
    own = theta[cluster]
    return {
        "poisson": lambda: pm.Poisson(name, own, observed=values),
        "exponential": lambda: pm.Exponential(name, own, observed=values),
        "bernoulli": lambda: pm.Bernoulli(name, own, observed=values),
        "binomial": lambda: pm.Binomial(name, trials(n), own, observed=values),
        "geometric": lambda: pm.Geometric(name, own, observed=values),
        "negative binomial": lambda: pm.NegativeBinomial(name, n=2.5, p=own, observed=values),
        "categorical": lambda: pm.Categorical(name, p=own, observed=values),
        "multinomial": lambda: pm.Multinomial(name, 3 + np.arange(n), own, observed=values),
        "normal, known noise": lambda: pm.Normal(
            name, own, np.array([0.8, 1.2])[: own.shape.eval()[1]], observed=values
        ),
        "lognormal, known noise": lambda: pm.LogNormal(name, own, 0.8, observed=values),
    }[family]()


def holed(values):
    """Leave two entries out."""
    mask = np.zeros(values.shape, bool)
    mask[1, 0] = mask[2, -1] = True
    return np.ma.masked_array(values, mask)


def declared(
    family,
    *,
    n=N,
    hyperprior=False,
    missing=False,
    links=False,
    own=False,
    truncation=T,
    seed=0,
    beside=None,
):
    """Declare two domains with columns of a family; `own`: parameters of their own."""
    rng = np.random.default_rng(seed)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=truncation - 1)
        clusters = {
            name: pm.Categorical(f"cluster_{name}", p=weights, shape=size)
            for name, size in zip("ab", n, strict=False)
        }
        theta = None
        for name, cluster in clusters.items():
            if theta is None or own:
                theta = parameters(
                    family, hyperprior, f"theta_{name}" if own else "theta", truncation
                )
            values = data_of(family, cluster.shape.eval()[0], rng)
            values = holed(values) if missing and name == "a" else values
            observe(family, name, cluster, theta, values)
        if links:
            pmm.must_link("links", {"cluster_a": [0, 1], "cluster_b": [1, 2]})
        if beside is not None:
            beside(model, weights, clusters, rng)
    return model


def with_free_noise():
    """One number an object, whose noise is a free variable."""
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=5)
        mean = pm.Normal("mean", 0.0, 2.0, shape=T)
        noise = pm.HalfNormal("noise")
        values = np.ma.masked_array(rng.normal(size=5), [0, 0, 1, 0, 0])
        pm.Normal("x", mean[cluster], noise * np.linspace(0.5, 1.0, 5), observed=values)
    return model


def many_together(model, weights, clusters, rng):
    """Other columns, features and a network over the same assignments."""
    own = parameters("categorical", name="kinds")
    observe("categorical", "kind", clusters["a"], own, data_of("categorical", 3, rng))
    latent = pm.Normal("latent", shape=(T, 2))
    for name, cluster in clusters.items():
        loadings = pm.Normal(f"loadings_{name}", shape=(2, 2))
        values = rng.normal(size=(cluster.shape.eval()[0], 2))
        pm.Normal(f"features_{name}", latent[cluster] @ loadings, 0.7, observed=values)
    density = pm.Beta("density", 1.0, 2.0, shape=(T, T))
    axes = [clusters["a"], clusters["b"]]
    pmm.BlockNetwork("network", axes, density, observed=rng.binomial(1, 0.4, (3, 3)))


def shared_in_part():
    """Two domains that share some columns, one family each; counts and times share a rate."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        a = pm.Categorical("cluster_a", p=weights, shape=4)
        b = pm.Categorical("cluster_b", p=weights, shape=3)
        rate = pm.Gamma("rate", 1.5, 0.5, shape=(T, 3))
        hours = 0.5 + rng.random((4, 1))
        pm.Poisson("counts", hours * rate[a][:, :2], observed=rng.poisson(2.0, (4, 2)))
        pm.Exponential("times", rate[b, 1:], observed=rng.exponential(1.0, (3, 2)))
        chance = pm.Beta("chance", 1.2, 0.8, shape=T)
        pm.Bernoulli("yes", chance[a], observed=rng.binomial(1, 0.4, 4))
        pm.Binomial("successes", 4, chance[b], observed=rng.binomial(4, 0.4, 3))
        # In any order, several of one object.
        own = np.array([2, 0, 0, 1])
        pm.Geometric("tries", chance[b][own], observed=rng.geometric(0.4, 4))
    return model
