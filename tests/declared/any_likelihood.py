"""Tiny models whose likelihoods are served by a table: every family, and what is refused."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N, T, D = 6, 3, 2
RNG = np.random.default_rng(20)
X = RNG.normal(size=(N, D))
COUNTS = RNG.poisson(3.0, size=(N, D))
ZEROS_AND_ONES = RNG.integers(0, 2, size=(N, 4))
OWNERS = np.array([0, 3, 3, 1, 5, 2, 0, 4])
LONG = RNG.normal(size=len(OWNERS))
ANGLES = RNG.uniform(-3.0, 3.0, size=N)


def rows(name="mu", scale=1.0, shape=(T, D)):
    return pm.Normal(name, 0.0, scale, shape=shape)


def positive(name="sigma", shape=T):
    return pm.Gamma(name, 3.0, 3.0, shape=shape)


def full(c):
    factors = [
        pm.LKJCholeskyCov(f"chol_{k}", n=D, eta=2.0, sd_dist=pm.Gamma.dist(3.0, 3.0, shape=D))[0]
        for k in range(T)
    ]
    pm.MvNormal("x", rows()[c], chol=pt.stack(factors)[c], observed=X)


def masked(c):
    logs = pm.logp(pm.Normal.dist(rows(shape=T)[c]), X[:, 0])
    pm.Potential("x", pt.switch(np.array([True, False] * 3), logs, -1.7))


def outliers(c):
    """Declare one number for all objects: what three sums are together."""
    sure = pm.logp(pm.Normal.dist(rows(shape=T)[c]), X[:, 0])
    far = pm.logp(pm.Normal.dist(0.0, positive()[c]), X[:, 1])
    apart = pt.cast(pt.eq(c, 0), "float64")
    pm.Potential("x", ((1 - apart) * sure).sum() - (-apart * far).sum() + 2.0 * (far / 3).sum())


def missing(c):
    holes = X.copy()
    holes[0, 1] = holes[3, 0] = np.nan
    pm.Normal("x", rows()[c], positive()[c][:, None], observed=holes)


def hierarchy(c):
    scale = pm.Gamma("scale", 3.0, 3.0, shape=T)
    mu = pm.Normal("mu", pm.Normal("centre", 0.0, 1.0), scale, shape=T)
    pm.Normal("x", mu[c][:, None], 1.0, observed=X)


def regression(c):
    beta = rows("beta")
    pm.Normal("x", (X * beta[c]).sum(-1), positive()[c], observed=X[:, 0] ** 2)


def effects(c):
    """Objects have effects of their own, which are seen through counts."""
    effect = pm.Normal("effect", rows(shape=T)[c], positive()[c], shape=N)
    pm.Poisson("x", pt.exp(effect), observed=COUNTS[:, 0])


FAMILIES = {
    "normal": lambda c: pm.Normal("x", rows()[c], positive()[c][:, None], observed=X),
    "full": full,
    "student": lambda c: pm.StudentT(
        "x", nu=4.0, mu=rows()[c], sigma=positive()[c][:, None], observed=X
    ),
    "negative binomial": lambda c: pm.NegativeBinomial(
        "x", mu=positive("mean", (T, D))[c], alpha=positive()[c][:, None], observed=COUNTS
    ),
    "inflated": lambda c: pm.ZeroInflatedPoisson(
        "x", psi=pm.Beta("psi", 2.0, 2.0, shape=T)[c], mu=positive()[c], observed=COUNTS[:, 0]
    ),
    "beta": lambda c: pm.Beta(
        "x", positive("a")[c], positive("b")[c], observed=RNG.beta(2.0, 2.0, N)
    ),
    "von mises": lambda c: pm.VonMises(
        "x", rows(shape=T)[c], positive("kappa")[c], observed=ANGLES
    ),
    "regression": regression,
    "logistic regression": lambda c: pm.Bernoulli(
        "x", logit_p=(X * rows("beta")[c]).sum(-1), observed=ZEROS_AND_ONES[:, 0]
    ),
    "latent class": lambda c: pm.Bernoulli(
        "x", logit_p=rows("logit", shape=(T, 4))[c], observed=ZEROS_AND_ONES
    ),
    "item response": lambda c: pm.Bernoulli(
        "x",
        logit_p=rows("ability", shape=T)[c][:, None] - pm.Normal("difficulty", shape=4),
        observed=ZEROS_AND_ONES,
    ),
    "nonlinear map": lambda c: pm.Normal(
        "x", pt.tanh(rows("z")[c] @ pm.Normal("w", shape=(D, D)).T), 0.7, observed=X
    ),
    "clipped map": lambda c: pm.Normal(
        "x", pt.clip(rows("z")[c], -0.3, 0.3) @ pm.Normal("w", shape=(D, D)).T, 0.7, observed=X
    ),
    "time series": lambda c: pm.AR(
        "x",
        rho=rows("rho", 0.5, (T, 1))[c],
        sigma=positive()[c],
        init_dist=pm.Normal.dist(0.0, 1.0, shape=N),
        observed=RNG.normal(size=(N, 5)),
    ),
    "custom": lambda c: pm.CustomDist(
        "x", rows(shape=T)[c], logp=lambda x, m: -pt.abs(x - m) - np.log(2.0), observed=X[:, 0]
    ),
    "censored": lambda c: pm.Censored(
        "x", pm.Normal.dist(rows()[c], 1.0), lower=-0.5, upper=0.5, observed=np.clip(X, -0.5, 0.5)
    ),
    "truncated": lambda c: pm.Truncated(
        "x", pm.Normal.dist(rows()[c], 1.0), lower=-9.0, upper=9.0, observed=X
    ),
    "mixture": lambda c: pm.NormalMixture(
        "x",
        w=pm.Dirichlet("share", np.ones(2), shape=(T, 2))[c],
        mu=rows()[c],
        sigma=1.0,
        observed=X[:, 0],
    ),
    "long": lambda c: pm.Laplace("x", rows(shape=T)[c[OWNERS]], 0.8, observed=LONG),
    "transposed": lambda c: pm.StudentT("x", nu=4.0, mu=rows(shape=(D, T))[:, c].T, observed=X),
    "potential": lambda c: pm.Potential(
        "x", pm.logp(pm.Normal.dist(rows(shape=T)[c], 1.0), X[:, 0])
    ),
    "masked": masked,
    "outliers": outliers,
    "missing": missing,
    "hierarchy": hierarchy,
}


def declared(factors, weights=None) -> pm.Model:
    """Declare factors over one assignment."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1) if weights is None else weights
        factors(pm.Categorical("cluster", p=w, shape=N))
    return model


def two_domains(linked=True) -> pm.Model:
    """Declare the papers' model for exponential families: latent vectors that domains share."""
    import pm_match as pmm

    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        z = pm.Normal("latent", 0.0, 1.0, shape=(T, D))
        a = pm.Categorical("cluster_a", p=w, shape=3)
        b = pm.Categorical("cluster_b", p=w, shape=3)
        pm.Poisson("a", pt.exp(z[a] @ pm.Normal("w_a", shape=(D, D)).T), observed=COUNTS[:3])
        pm.Bernoulli(
            "b", logit_p=z[b] @ pm.Normal("w_b", shape=(4, D)).T, observed=ZEROS_AND_ONES[:3]
        )
        if linked:
            pmm.must_link("links", {"cluster_a": [0], "cluster_b": [2]})
    return model


def beside_features() -> pm.Model:
    """Declare features that are integrated out, and counts that are not, over one assignment."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        c = pm.Categorical("cluster", p=w, shape=5)
        z = pm.Normal("latent", 0.0, 1.0, shape=(T, D))
        projection = pm.Normal("projection", shape=(3, D))
        tau = pm.Gamma("precision", 2.0, 1.0)
        features = np.random.default_rng(1).normal(size=(5, 3))
        pm.Normal("features", z[c] @ projection.T, tau=tau, observed=features)
        pm.StudentT("x", nu=4.0, mu=rows()[c], sigma=0.8, observed=X[:5])
    return model


def beside_networks() -> pm.Model:
    """Declare a network and angles over one assignment."""
    import pm_match as pmm

    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        c = pm.Categorical("cluster", p=w, shape=5)
        density = pm.Beta("density", 1.0, 2.0, shape=(T, T))
        edges = np.random.default_rng(2).integers(0, 2, size=(5, 5))
        np.fill_diagonal(edges, 0)
        pmm.BlockNetwork("net", axes=[c, c], density=density, observed=edges)
        pm.VonMises("x", rows(shape=T)[c], 2.0, observed=ANGLES[:5])
    return model


def beside_normal() -> pm.Model:
    """Declare normal clusters that are integrated out and angles over one assignment."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        c = pm.Categorical("cluster", p=w, shape=5)
        precision = pm.Wishart("precision", nu=9, V=0.15 * np.eye(D), shape=(T, D, D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        pm.MvNormal("y", mean[c], cov=cov[c], observed=X[:5])
        pm.VonMises("x", rows(shape=T)[c], 2.0, observed=ANGLES[:5])
    return model


def beside_columns() -> pm.Model:
    """Declare counts whose rates are integrated out, and angles, over one assignment."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        c = pm.Categorical("cluster", p=w, shape=5)
        rate = pm.Gamma("rate", 1.5, 0.5, shape=(T, D))
        pm.Poisson("counts", rate[c], observed=COUNTS[:5])
        pm.VonMises("x", rows(shape=T)[c], 2.0, observed=ANGLES[:5])
    return model


def own_weights() -> pm.Model:
    """Declare labels by a regression on covariates, over counts whose rates are integrated out."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=T)
        p = pm.math.softmax(X[:5, :1] * slope, axis=1)
        c = pm.Categorical("cluster", p=p, shape=5)
        rate = pm.Gamma("rate", 1.5, 0.5, shape=(T, D))
        pm.Poisson("counts", rate[c], observed=COUNTS[:5])
    return model


def counts_and_vectors(n=90):
    """Three clusters that are far apart, seen by vectors and counts."""
    rng = np.random.default_rng(3)
    truth = rng.integers(3, size=n)
    x = np.array([[-4.0, 0.0], [4.0, 0.0], [0.0, 5.0]])[truth] + 0.6 * rng.standard_t(5, (n, 2))
    y = rng.poisson(np.array([1.0, 5.0, 14.0])[truth])
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.0, K=5)
        mu = pm.Normal("mu", 0.0, 5.0, shape=(6, 2))
        sigma = pm.Gamma("sigma", 2.0, 2.0, shape=6)
        rate = pm.Gamma("rate", 2.0, 0.5, shape=6)
        c = pm.Categorical("cluster", p=w, shape=n)
        pm.StudentT("x", nu=5.0, mu=mu[c], sigma=sigma[c][:, None], observed=x)
        pm.Poisson("y", rate[c], observed=y)
    return model, truth


def weights_of_groups():
    """Declare counts of objects, groups of which have weights each."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(T), shape=(2, T))
        rate = pm.Gamma("rate", 2.0, 0.5, shape=(T, D))
        cluster = pm.Categorical("cluster", weights[np.arange(N) % 2])
        pm.Poisson("x", rate[cluster], observed=COUNTS)
    return model
