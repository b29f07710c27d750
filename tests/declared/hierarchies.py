"""A tiny declared hierarchy of clusters."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

RNG = np.random.default_rng(0)


X, Y = RNG.standard_normal((8, 2)), RNG.standard_normal((8, 1))


def declared(
    *,
    order=None,
    seen=None,
    link_prior=None,
    tau=False,
    extra=None,
    temper=1.0,
    weights=None,
    observed=X,
    n_clusters=3,
):
    """Declare one view of six or eight objects by hand, with something changed."""
    with pm.Model() as model:
        p = pm.Dirichlet("w", np.ones(3)) if weights is None else weights()
        z = pm.Categorical("z", p=p, shape=8)
        link = pm.Dirichlet(
            "t", np.ones(4) if link_prior is None else link_prior, shape=(n_clusters, 4)
        )
        own = z if seen is None else z[seen]
        rows = link[own]
        if temper != 1.0:
            rows = rows**temper
            rows = rows / rows.sum(axis=1, keepdims=True)
        u = pm.Categorical("u", p=rows, shape=8 if seen is None else len(seen))
        precision = pm.Wishart("k", nu=5, V=np.eye(2))
        mean = pm.MvNormal("m", np.zeros(2), cov=pt.linalg.inv(precision) / 0.5, shape=(4, 2))
        chosen = mean[u] if order is None else mean[u[order]]
        noise = {"tau": precision} if tau else {"cov": pt.linalg.inv(precision)}
        pm.MvNormal("x", chosen, observed=observed, **noise)
        if extra is not None:
            extra(model)
    return model
