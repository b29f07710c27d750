"""The model for tables in which clusters differ in spread: every cluster has its own covariance."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm

from pm_match.checks import check_count
from pm_match.models.declare import (
    Links,
    assignment,
    check_all_positive,
    check_known,
    cluster_weights,
    declare_links,
    normal_view,
)
from pm_match.tables.domains import as_domains, check_names
from pm_match.tables.standardise import standardise

# What a domain brings into the model.
_DERIVED = (
    "{}", "cluster_{}", "mean_{}", "precision_{}", "precision_factor_{}", "{}_object",
    "{}_feature", "{}_other_feature",
)  # fmt: skip
_RESERVED = {"weights", "cluster"}


def normal_clusters(
    domains: Mapping[str, Any],
    n_clusters: int = 12,
    *,
    n_components: int | None = None,
    concentration: float = 1.0,
    mean_strength: float = 0.01,
    tails: float | None = 8.0,
    links: Links = None,
    known: Mapping[str, Any] | None = None,
) -> pm.Model:
    r"""Declare clusters that have a mean and a covariance of their own in every domain.

    Clusters of two domains match if they are equally large, in shares of the domains: they have
    weights in common, and nothing else. They have heavier tails than the normal distribution, so
    that objects far from all others do not make clusters of their own.

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad s_{dn} \sim \mathrm{Categorical}(\theta)

        x_{dn} \sim N(\mu_{d s_{dn}}, (u_{dn} \Lambda_{d s_{dn}})^{-1}), \quad
        u_{dn} \sim \mathrm{Gamma}(\nu / 2, \nu / 2), \quad
        \mu_{dj} \sim N(\bar x_d, (\kappa \Lambda_{dj})^{-1})

        \Lambda_{dj} \sim \mathrm{Wishart}(M_d + 2, V_d), \quad
        V_d = \mathrm{diag}(1 / \mathrm{var}\, x_d)

    With the factors :math:`u` integrated out, clusters are Student's t of :math:`\nu` degrees of
    freedom (D. Peel & G. McLachlan 2000, "Robust mixture modelling using the t distribution",
    Statistics and Computing 10). A domain has :math:`M_d` features of mean :math:`\bar x_d`. The
    prior mean of a covariance is that of all objects without its correlations, worth one object
    (after C. Fraley & A. Raftery 2007, "Bayesian regularization for normal mixture estimation and
    model-based clustering", Journal of Classification 24, section 3, who take the correlations as
    well, and less of it the more clusters there are). A cluster costs as many parameters as a full
    covariance has, so there are few of them. `table_clusters` has one covariance for all clusters.
    It finds more where these are of different spread, and has more to match them by: their means.
    `compare_matchings` tells which describes the objects better, not which matching is right.

    Parameters
    ----------
    domains : mapping
        From names to tables of objects by features. They are standardised (see `standardise`): the
        model's variables are in the units of standardised features. NaN and masked values are
        missing: free variables `<name>_unobserved`, which are drawn.
    n_clusters : int, default 12
        Truncation: the most clusters there can be.
    n_components : int, optional
        For features of one kind, such as pixels: keep so many principal components of each table,
        instead of standardising its columns. Missing values are filled in before, as the
        components expect them, and not drawn.
    concentration : float, default 1.0
        :math:`\gamma` of the stick-breaking. It matters less than in `table_clusters`, whose
        clusters cost little: with 0.1, the index on the breast cancer data is the same.
    mean_strength : float, default 0.01
        :math:`\kappa`: the means vary :math:`1 / \kappa` times as much as objects within clusters.
    tails : float or None, default 8
        :math:`\nu`: the fewer degrees of freedom, the heavier the tails. None: clusters are normal,
        and there are no factors. Log joints of searches tell which describes the objects best, to
        within a few nats.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster, as in `projected_clusters`.
    known : mapping, optional
        Labels that are known, as in `projected_clusters`.

    Returns
    -------
    pymc.Model
        With the variables `weights`, and `cluster_<name>`, `mean_<name>`, `precision_<name>`,
        `precision_factor_<name>` and `<name>` for every domain.

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described, or a row or a column has no value.

    Examples
    --------
    >>> model = pmm.models.normal_clusters(pmm.datasets.iris(random_seed=0))
    >>> best = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> pmm.cluster_sizes(pmm.partition_estimate(best)).sum().to_dict()
    {'a': 150, 'b': 150, 'total': 300}
    """
    check_count("n_clusters", n_clusters, 2)
    check_all_positive(concentration=concentration, mean_strength=mean_strength)
    if tails is not None:
        check_all_positive(tails=tails)
    tables = as_domains(standardise(domains, n_components))
    check_known(known, tables)
    check_names(tables, "domain", _DERIVED, _RESERVED.__contains__)
    coords: dict[str, Any] = {"cluster": range(n_clusters)}
    for name, table in tables.items():
        coords |= {f"{name}_object": table.objects, f"{name}_feature": table.features}
        coords[f"{name}_other_feature"] = table.features
    with pm.Model(coords=coords, model=None) as model:
        weights = cluster_weights("stick-breaking", n_clusters, concentration)
        for name, table in tables.items():
            objects, x = f"{name}_object", table.values
            cluster = assignment(name, weights, objects, known)
            # With two degrees of freedom above the least, it is the covariance that has this mean.
            prior = x.shape[1] + 2, 1.0 / np.asarray(x.var(axis=0))
            given = prior, mean_strength
            normal_view(name, x, cluster, "cluster", objects, *given, own=True, tails=tails)
        declare_links(links, list(tables))
    return model
