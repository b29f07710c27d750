"""Tiny linear factor models, declared in several ways."""

import warnings
from dataclasses import dataclass

import numpy as np
import pymc as pm
from pymc.exceptions import ImputationWarning


@dataclass(frozen=True)
class FactorKind:
    """What a tiny model is like.

    Attributes
    ----------
    sizes : tuple of (features, private factors)
        Of each view.
    missing : str
        "" for none, "some" for entries and whole views.
    columns : {"gamma", "shared", "constant"}
        Precision of the projections' columns: a Gamma each, one for all views, or known.
    private : {"constant", "gamma"}
        Precision of private loadings: known, or one Gamma number for all views.
    noise : {"gamma", "features", "known"}
        A Gamma number for each view, one for each feature, or known standard deviations.
    transposed : bool
        Whether loadings and latents are declared with a column for each feature and object.
    intercept : {"", "all", "first"}
    seen : bool
        Whether something else depends on the shared latent.
    """

    sizes: tuple[tuple[int, int], ...] = ((3, 1), (2, 1))
    n_shared: int = 1
    n_objects: int = 4
    missing: str = "some"
    columns: str = "gamma"
    private: str = "constant"
    noise: str = "gamma"
    transposed: bool = False
    intercept: str = "all"
    seen: bool = False


def tiny_views(kind: FactorKind, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    data = {}
    for number, (d, _) in enumerate(kind.sizes):
        x = rng.normal(size=(kind.n_objects, d))
        if kind.missing:
            # Whole views of an object, another one in each, and an entry of the first view.
            if len(kind.sizes) > 1:
                x[number] = np.nan
            if number == 0:
                x[2, 1] = np.nan
        data["abc"[number]] = x
    return data


def factor_kind_model(kind: FactorKind, data=None) -> pm.Model:
    data = tiny_views(kind) if data is None else data
    n, m = len(next(iter(data.values()))), kind.n_shared
    turn = kind.transposed
    with pm.Model() as model:
        latent = pm.Normal("latent", 0.0, 1.0, shape=(m, n) if turn else (n, m))
        h = latent.T if turn else latent
        eta = pm.Gamma("private_precision", 5.0, 4.0) if kind.private == "gamma" else 1.3
        columns = {"constant": 0.9}
        if kind.columns == "shared":
            columns["shared"] = pm.Gamma("column_precision", 5.0, 4.0, shape=m)
        for number, ((name, x), (d, k)) in enumerate(zip(data.items(), kind.sizes, strict=True)):
            r = columns.get(kind.columns)
            if r is None:
                r = pm.Gamma(f"column_precision_{name}", 5.0, 4.0, shape=m)
            if turn:
                tau = r[:, None] if kind.columns != "constant" else r
                w = pm.Normal(f"projection_{name}", 0.0, tau=tau, shape=(m, d)).T
            else:
                w = pm.Normal(f"projection_{name}", 0.8, tau=1.4 * r, shape=(d, m))
            mean = h @ w.T
            if k:
                v = pm.Normal(f"private_{name}", 0.0, tau=eta, shape=(d, k))
                u = pm.Normal(f"private_latent_{name}", 0.2, 0.8, shape=(n, k))
                mean = mean + (v @ u.T).T
            if kind.intercept == "all" or (kind.intercept == "first" and number == 0):
                mean = mean + pm.Normal(f"intercept_{name}", 0.3, 0.7, shape=d)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ImputationWarning)
                masked = np.ma.masked_invalid(x) if np.isnan(x).any() else x
                if kind.noise == "known":
                    sigma = np.linspace(0.5, 0.9, d)
                    pm.Normal(name, mean, sigma, observed=masked)
                else:
                    size = d if kind.noise == "features" else None
                    tau = pm.Gamma(f"precision_{name}", 6.0, 3.0, shape=size)
                    pm.Normal(name, mean, tau=tau, observed=masked)
        if kind.seen:
            pm.Normal("score", h[:, 0], 1.0, observed=np.zeros(n))
    return model
