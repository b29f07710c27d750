"""Projected clusters: the many-to-many matching latent variable model (MMLVM), declared."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pm_match.checks import check_count, check_flag, check_option, check_pair, check_positive
from pm_match.features.semi_orthogonal import semi_orthogonal
from pm_match.models.declare import (
    WEIGHTS,
    Links,
    assignment,
    check_known,
    cluster_weights,
    declare_links,
    imputing,
    real,
)
from pm_match.tables.domains import as_domains


def projected_clusters(
    domains: Mapping[str, Any],
    n_factors: int = 5,
    n_clusters: int = 25,
    *,
    concentration: float = 1.0,
    precision_prior: tuple[float, float] = (1.0, 1.0),
    latent_precision: float = 1.0,
    projection: Literal["map", "normal", "isometric"] = "map",
    intercept: bool = False,
    noise: Literal["shared", "own"] | None = None,
    within: Literal["isotropic", "full"] | int = "isotropic",
    deviations: bool = False,
    relevance: bool = False,
    determination: bool = False,
    weights: Literal["stick-breaking", "dirichlet", "uniform"] = "stick-breaking",
    links: Links = None,
    known: Mapping[str, Any] | None = None,
) -> pm.Model:
    r"""Declare the many-to-many matching model of Iwata, Hirao & Ueda (2016), and richer ones.

    Objects of all domains share clusters; every cluster has a latent vector, and every domain its
    own projection of it:

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad \alpha \sim \mathrm{Gamma}(a, b), \quad
        z_j \sim N(0, (\alpha r)^{-1} I), \quad s_{dn} \sim \mathrm{Categorical}(\theta), \quad
        x_{dn} \sim N(W_d z_{s_{dn}}, \alpha^{-1} I)

    The options from `intercept` to `relevance` let the domains differ in more ways, as real tables
    do. With all of them,

    .. math::

        z_j \sim N(0, I), \quad e_{dj} \sim N(0, \kappa_d^2 I), \quad
        x_{dn} \sim N(a_d + W_d z_{s_{dn}} + e_{d s_{dn}}, \Sigma_d).

    Their priors are in units :math:`u_d` of a domain's own spread, the standard deviation of its
    values about their columns' means: a table in other units gives the same matching. See
    `table_clusters` for the combination to begin with.

    Parameters
    ----------
    domains : mapping
        From names to tables of objects by features: arrays, data frames, data arrays or sparse
        matrices, of any sizes. Row and column labels become coords. NaN and masked values are
        missing, and are imputed in PyMC's way.
    n_factors : int, default 5
        K, the dimension of the latent vectors.
    n_clusters : int, default 25
        Truncation of the stick-breaking: the most clusters there can be. For other `weights`, the
        number of clusters.
    concentration : float, default 1.0
        :math:`\gamma`.
    precision_prior : (float, float), default (1.0, 1.0)
        Shape a and rate b of the noise precision's Gamma prior.
    latent_precision : float, default 1.0
        r, the latent vectors' precision over that of the noise.
    projection : {"map", "normal", "isometric"}, default "map"
        Whether projections are flat and found by MAP sub-steps (the paper's stochastic EM), or
        normal and sampled (standard normal, or times a scale of the domain where the noise is its
        own, log-normal with median :math:`u_d`); or semi-orthogonal times such a scale, and
        sampled, so that distances between clusters agree across domains, which is what tells a
        matching from the others.
    intercept : bool, default False
        Whether every domain has an intercept :math:`a_d`, normal around the columns' means with
        standard deviation :math:`u_d`.
    noise : {"shared", "own"}, optional
        Whether one precision is shared by all noise, and scales the latent vectors, as in the
        paper; or every domain has its own noise. Default: "own" if any option needs it.
    within : {"isotropic", "full"} or int, default "isotropic"
        How objects of a domain vary around their cluster: by a standard deviation, half normal with
        scale :math:`u_d`; by a covariance, inverse Wishart with M + 4 degrees of freedom and mean
        :math:`u_d^2 I / 4`; or by that many private factors besides the standard
        deviation, :math:`V_d V_d^\top + \sigma_d^2 I` with normal entries.
    deviations : bool, default False
        Whether the means of clusters deviate in each domain from what their latent vectors say, by
        :math:`e_{dj}`, whose standard deviation :math:`\kappa_d` is log-normal with median
        :math:`u_d / 5`. Without them a matching is judged as if real clusters were projections of
        the same points exactly.
    relevance : bool, default False
        Whether objects may belong to no cluster: these are normal around the intercept (or zero),
        with a standard deviation that is half normal with scale :math:`2 u_d`. The share of
        relevant objects is Beta(1, 1), for all domains.
    determination : bool, default False
        Whether the columns of normal projections have precisions of their own, Gamma(1, 1) and
        shared by the domains: factors that are not needed shrink to zero (automatic relevance
        determination), so that `n_factors` need only be large enough.
    weights : {"stick-breaking", "dirichlet", "uniform"}, default "stick-breaking"
        Prior on the clusters' weights: truncated stick-breaking; a symmetric
        Dirichlet(concentration / n_clusters); or none, all clusters being equally probable. The
        last two are for a known number of clusters.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster: from domain names to positions (whole numbers) or labels
        (text), the k-th entries of which belong together. In a DataFrame, columns are domains and
        each row has the labels of objects that belong together, NaN where it says nothing of a
        domain. From one domain alone to groups of positions or labels, clusters that are kept
        whole. Several mappings may name different domains. See `must_link`.
    known : mapping, optional
        Labels that are known, by domain: whole numbers, -1 where they are not, in the order of the
        objects, or a Series with their labels as index. They are observed.

    Returns
    -------
    pymc.Model
        With the variables `weights` (unless uniform), `precision` (of shared noise), `latent`, and
        `cluster_<name>`, `projection_<name>` and `<name>` for every domain. What else is declared
        is called `intercept_<name>`, `scale_<name>`, `orientation_<name>`, `noise_<name>`,
        `within_<name>`, `private_<name>`, `deviation_<name>`, `spread_<name>`, `relevance_<name>`,
        `background_<name>`, `relevance_probability` and `factor_precision`.

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described; the message says which, what was
        expected, and what was found.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> pmm.cluster_sizes(pmm.partition_estimate(idata))
              a   b  total
    cluster
    0        20  20     40
    1        20  20     40
    2        20  20     40
    """
    tables = as_domains(domains)
    check_count("n_factors", n_factors, 1)
    check_count("n_clusters", n_clusters, 2)
    check_positive("concentration", concentration)
    check_pair("precision_prior", precision_prior, ("shape", "rate"))
    check_positive("latent_precision", latent_precision)
    check_option("projection", projection, ("map", "normal", "isometric"))
    own = _own_noise(projection, intercept, noise, within, deviations, relevance, determination)
    if own and tuple(precision_prior) != (1.0, 1.0):
        raise ValueError(
            f"precision_prior: expected none with noise='own'; found {precision_prior!r}"
        )
    check_option("weights", weights, WEIGHTS)
    check_known(known, tables)

    shape, rate = map(real, precision_prior)

    coords: dict[str, Any] = {"cluster": range(n_clusters), "factor": range(n_factors)}
    for name, table in tables.items():
        coords |= {f"{name}_object": table.objects, f"{name}_feature": table.features}

    with pm.Model(coords=coords, model=None) as model:
        prior = cluster_weights(weights, n_clusters, concentration)
        tau: Any = real(latent_precision)
        if not own:
            precision = pm.Gamma("precision", shape, rate)
            tau = tau * precision
        latent = pm.Normal("latent", 0.0, tau=tau, dims=("cluster", "factor"))
        columns: Any = _ONE
        if determination:
            columns = pm.Gamma("factor_precision", _ONE, _ONE, dims="factor")
        share = pm.Beta("relevance_probability", 1.0, 1.0) if relevance else None
        for name, table in tables.items():
            objects, features = f"{name}_object", f"{name}_feature"
            cluster = assignment(name, prior, objects, known)
            middle, unit = table.centre_and_spread() if own or intercept else (None, _ONE)
            w = _projection(name, projection, own, unit, columns)
            centre = latent @ w.T
            origin: Any = real(0.0)
            if intercept:
                origin = pm.Normal(f"intercept_{name}", middle, unit, dims=features)
                centre = centre + origin
            if deviations:
                spread = pm.LogNormal(f"spread_{name}", np.log(_DEVIATION * unit), _SURE)
                centre = centre + pm.Normal(
                    f"deviation_{name}", 0.0, spread, dims=("cluster", features)
                )
            mean = centre[cluster]
            flag = None
            if relevance:
                flag = pm.Bernoulli(f"relevance_{name}", share, dims=objects)[:, None] > 0
                mean = pt.where(flag, mean, origin)
            dims = (objects, features)
            with imputing():
                if own:
                    _observe(name, mean, within, unit, flag, table.values, dims)
                else:
                    pm.Normal(name, mu=mean, tau=precision, observed=table.values, dims=dims)
        declare_links(links, list(tables))
    return model


_ONE = real(1.0)
_DEVIATION = 0.2
_SURE = 1.0


def _own_noise(projection, intercept, noise, within, deviations, relevance, determination) -> bool:
    """Check the options for richer emissions; return whether domains have noise of their own."""
    flags = {
        "intercept": intercept,
        "deviations": deviations,
        "relevance": relevance,
        "determination": determination,
    }
    for option, flag in flags.items():
        check_flag(option, flag)
    if isinstance(within, str):
        check_option("within", within, ("isotropic", "full"))
    else:
        check_count("within", within, 1)
    needing = {
        "projection='isometric'": projection == "isometric",
        f"within={within!r}": within != "isotropic",
        "deviations=True": deviations,
        "relevance=True": relevance,
    }
    needs = [option for option, given in needing.items() if given]
    if noise is None:
        noise = "own" if needs else "shared"
    check_option("noise", noise, ("shared", "own"))
    if noise == "shared" and needs:
        raise ValueError(f"noise: expected 'own' with {needs[0]}; found 'shared'")
    if relevance and within != "isotropic":
        raise ValueError(
            "within: expected 'isotropic' with relevance=True, as irrelevant objects have noise of "
            f"their own; found {within!r}"
        )
    if determination and projection != "normal":
        raise ValueError(
            f"projection: expected 'normal' with determination=True; found {projection!r}"
        )
    return noise == "own"


def _projection(name, kind, own, unit, columns) -> Any:
    """Declare a domain's projection."""
    dims = (f"{name}_feature", "factor")
    if kind == "map":
        return pm.Flat(f"projection_{name}", dims=dims)
    if kind == "isometric":
        scale = pm.LogNormal(f"scale_{name}", np.log(unit), 1.0)
        raw = pm.Normal(f"orientation_{name}", 0.0, 1.0, dims=dims)
        return pm.Deterministic(f"projection_{name}", scale * semi_orthogonal(raw), dims=dims)
    if not own:
        return pm.Normal(f"projection_{name}", 0.0, tau=columns, dims=dims)
    width = pm.LogNormal(f"scale_{name}", np.log(unit), 1.0) * columns**-0.5
    return pm.Normal(f"projection_{name}", 0.0, width, dims=dims)


def _observe(name, mean, within, unit, flag, values, dims) -> None:
    """Declare a domain's features, with noise of its own."""
    n_features = values.shape[1]
    if within == "full":
        # The covariance is then inverse Wishart, with a mean of a quarter of the squared unit.
        nu = n_features + 4
        scale_matrix = np.eye(n_features) / (0.75 * unit**2)
        precision = pm.Wishart(f"within_{name}", nu=nu, V=scale_matrix)
        pm.MvNormal(name, mu=mean, tau=precision, observed=values, dims=dims)
        return
    noise = pm.HalfNormal(f"noise_{name}", unit)
    if within == "isotropic":
        if flag is not None:
            noise = pt.where(flag, noise, pm.HalfNormal(f"background_{name}", 2.0 * unit))
        pm.Normal(name, mu=mean, sigma=noise, observed=values, dims=dims)
        return
    private = pm.Normal(f"private_{name}", 0.0, unit, shape=(n_features, int(within)))
    covariance = private @ private.T + noise**2 * np.eye(n_features)
    pm.MvNormal(name, mu=mean, cov=covariance, observed=values, dims=dims)
