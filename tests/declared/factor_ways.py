"""Ways of writing one factor model."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N, D, M = 5, 3, 2


def declare(
    latent=lambda: pm.Normal("latent", 0.0, 1.0, shape=(N, M)),
    loading=lambda: pm.Normal("loading", 0.0, 1.0, shape=(D, M)),
    intercept=lambda: pm.Normal("intercept", 0.0, 1.0, shape=D),
    mean=lambda z, w, a: z @ w.T + a,
    noise=lambda: {"tau": pm.Gamma("noise", 2.0, 1.0)},
    observe=pm.Normal,
    extra=lambda model: None,
    data=None,
):
    data = np.random.default_rng(1).normal(size=(N, D)) if data is None else data
    with pm.Model() as model:
        z, w, a = latent(), loading(), intercept()
        observe("x", mean(z, w, a), observed=data, **noise())
        extra(model)
    return model


EQUAL = {
    "as declared": {},
    "dot": {"mean": lambda z, w, a: pt.dot(z, w.T) + a},
    "einsum": {"mean": lambda z, w, a: pt.einsum("nk,mk->nm", z, w) + a},
    "transposed mean": {"mean": lambda z, w, a: (w @ z.T).T + a[None, :]},
    "broadcast and sum": {"mean": lambda z, w, a: a + (z[:, None, :] * w[None, :, :]).sum(axis=-1)},
    "transposed loading": {
        "loading": lambda: pm.Normal("loading", 0.0, 1.0, shape=(M, D)),
        "mean": lambda z, w, a: z @ w + a,
    },
    "transposed latent": {
        "latent": lambda: pm.Normal("latent", 0.0, 1.0, shape=(M, N)),
        "mean": lambda z, w, a: z.T @ w.T + a,
    },
    "intercept as a row": {"intercept": lambda: pm.Normal("intercept", 0.0, 1.0, shape=(1, D))},
    "standard deviation": {"noise": lambda: {"sigma": pm.Gamma("noise", 2.0, 1.0) ** -0.5}},
    "noise in other units": {"noise": lambda: {"tau": 4.0 * pm.Gamma("noise", 2.0, 1.0)}},
    "noise of features": {"noise": lambda: {"tau": pm.Gamma("noise", 2.0, 1.0, shape=D)}},
    "square": {
        "data": np.random.default_rng(2).normal(size=(N, N)),
        "loading": lambda: pm.Normal("loading", 0.0, 1.0, shape=(N, M)),
        "intercept": lambda: pm.Normal("intercept", 0.0, 1.0, shape=N),
    },
    "all square": {
        "data": np.random.default_rng(2).normal(size=(N, N)),
        "latent": lambda: pm.Normal("latent", 0.0, 1.0, shape=(N, N)),
        "loading": lambda: pm.Normal("loading", 0.0, 1.0, shape=(N, N)),
        "intercept": lambda: pm.Normal("intercept", 0.0, 1.0, shape=N),
        "mean": lambda z, w, a: (w @ z.T).T + a,
    },
}
