"""Shared factors: probabilistic canonical correlation analysis with private factors, declared."""

from collections.abc import Mapping
from typing import Any

import pymc as pm

from pm_match.checks import check_count, check_flag, check_pair, check_positive, counts_by_name
from pm_match.models.declare import imputing, real
from pm_match.tables.domains import Domain
from pm_match.tables.paired_views import as_paired_views


def shared_factors(
    views: Mapping[str, Any],
    n_shared: int,
    n_private: int | Mapping[str, int] | None = None,
    *,
    noise_prior: tuple[float, float] = (1.0, 1.0),
    projection_prior: tuple[float, float] = (1.0, 1.0),
    private_precision: float = 1.0,
    intercept: bool = True,
) -> pm.Model:
    r"""Declare what views of the same objects share, apart from what varies in each alone.

    Probabilistic CCA with private factors (A. Klami & S. Kaski, 2006, "Generative models that
    discover dependencies between data sets", eq. 1), for any number of views, with relevance
    determination of the shared factors:

    .. math::

        h_n \sim N(0, I), \quad u_{in} \sim N(0, I), \quad
        x_{in} \sim N(a_i + W_i h_n + V_i u_{in}, \tau_i^{-1} I),

    with columns :math:`w_{ij} \sim N(0, r_{ij}^{-1} I)`, and :math:`r_{ij}` and :math:`\tau_i`
    Gamma. The richer the private part, the less the shared factors have to explain of what is not
    shared: from principal components of all views, without private factors, to canonical
    correlations, with as many as features.

    Parameters
    ----------
    views : mapping
        From names to tables of the same objects, in the same order: arrays, data frames, data
        arrays or sparse matrices. NaN and masked values are missing, and are imputed in PyMC's way;
        an object may miss in a whole view, but not in all of them.
    n_shared : int
        Dimension of the shared latent vectors h.
    n_private : int or mapping of str to int, optional
        Dimension of the private ones u: one for all views, or by view; 0 is none. Default: half of
        the view's features, at most 5.
    noise_prior : (float, float), default (1.0, 1.0)
        Shape and rate of the noise precisions' Gamma prior.
    projection_prior : (float, float), default (1.0, 1.0)
        Shape and rate of the Gamma prior on the precisions of the columns of W.
    private_precision : float, default 1.0
        Prior precision of the entries of V.
    intercept : bool, default True
        Whether the views have intercepts, normal around the columns' means, with the standard
        deviation that the view's values have about these.

    Returns
    -------
    pymc.Model
        With `latent`, and for every view `column_precision_<view>`, `projection_<view>` (features
        by factors), `precision_<view>` and `<view>`; `private_<view>` and `private_latent_<view>`
        if it has private factors, and `intercept_<view>`.

    Raises
    ------
    TypeError, ValueError
        If a table or a parameter is not as described; the message says which, what was expected,
        and what was found.

    Notes
    -----
    The priors are for features of about unit scale: see `standardise`.

    Examples
    --------
    >>> model = pmm.models.shared_factors(pmm.datasets.correlated_views(100), n_shared=3)
    >>> [variable.name for variable in model.observed_RVs]
    ['a', 'b']
    """
    tables = as_paired_views(views)
    check_count("n_shared", n_shared, 1)
    if n_private is None:
        n_private = {name: min(5, table.n_features // 2) for name, table in tables.items()}
    counts = counts_by_name("n_private", n_private, tables, 0)
    check_pair("noise_prior", noise_prior, ("shape", "rate"))
    check_pair("projection_prior", projection_prior, ("shape", "rate"))
    check_positive("private_precision", private_precision)
    check_flag("intercept", intercept)
    first = next(iter(tables.values()))
    coords = {"object": first.objects, "factor": range(n_shared)}
    with pm.Model(coords=coords, model=None) as model:
        latent = pm.Normal("latent", 0.0, 1.0, dims=("object", "factor"))
        declare_views(
            latent,
            tables,
            counts,
            noise_prior=noise_prior,
            projection_prior=projection_prior,
            private_precision=private_precision,
            intercept=bool(intercept),
        )
    return model


def declare_views(
    latent: Any,
    tables: Mapping[str, Domain],
    n_private: Mapping[str, int],
    *,
    noise_prior: tuple[float, float],
    projection_prior: tuple[float, float],
    private_precision: float,
    intercept: bool,
) -> None:
    """Declare views of `latent`, in the model of the context, with coords of their own.

    `latent`: of dims "object" and "factor"; `noise_prior`, `projection_prior`, `private_precision`,
    `intercept`: as in `shared_factors`.
    """
    model = pm.modelcontext(None)
    a_tau, b_tau = map(real, noise_prior)
    a_r, b_r = map(real, projection_prior)
    eta = real(private_precision)
    for name, table in tables.items():
        features = f"{name}_feature"
        model.add_coords({features: table.features})
        columns = pm.Gamma(f"column_precision_{name}", a_r, b_r, dims="factor")
        w = pm.Normal(f"projection_{name}", 0.0, tau=columns, dims=(features, "factor"))
        mean = latent @ w.T
        if n_private[name]:
            factors = f"{name}_factor"
            model.add_coords({factors: range(n_private[name])})
            v = pm.Normal(f"private_{name}", 0.0, tau=eta, dims=(features, factors))
            u = pm.Normal(f"private_latent_{name}", 0.0, 1.0, dims=("object", factors))
            mean = mean + u @ v.T
        if intercept:
            middle, unit = table.centre_and_spread()
            mean = mean + pm.Normal(f"intercept_{name}", middle, unit, dims=features)
        precision = pm.Gamma(f"precision_{name}", a_tau, b_tau)
        with imputing():
            pm.Normal(
                name, mu=mean, tau=precision, observed=table.values, dims=("object", features)
            )
