"""Dependency-seeking clusters above clusters of each view, declared."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pymc as pm

from pm_match.checks import check_count, check_option, counts_by_name
from pm_match.models.declare import WEIGHTS, check_all_positive, cluster_weights, normal_view
from pm_match.tables.paired_views import as_paired_views, seen_rows

_DERIVED = (
    "{}",
    "{}_feature",
    "{}_other_feature",
    "{}_object",
    "{}_cluster",
    "link_{}",
    "marginal_{}",
    "precision_{}",
    "mean_{}",
)
_RESERVED = ("weights", "cluster_object", "object", "cluster", "chain", "draw", "sample")


def dependency_hierarchy(
    views: Mapping[str, Any],
    n_clusters: int = 10,
    n_marginal_clusters: int | Mapping[str, int] = 15,
    *,
    concentration: float = 1.0,
    link_concentration: float = 1.0,
    mean_strength: float = 0.1,
    within: float = 0.25,
    weights: Literal["stick-breaking", "dirichlet"] = "stick-breaking",
) -> pm.Model:
    r"""Declare the structured dependency-seeking clusters of Klami & Kaski, with priors.

    Every object is seen in several views. It has one cluster z, and in each view a cluster w of
    that view's own; views are independent given z (eq. 3):

    .. math::

        z_n \sim \mathrm{Categorical}(\theta), \quad
        w_{vn} \sim \mathrm{Categorical}(\theta_v^{z_n}), \quad
        x_{vn} \sim N(\mu_v^{w_{vn}}, \Lambda_v^{-1}).

    Variation of one view alone, of any shape, is for the clusters of that view; z is needed only
    for what the views share. The paper maximises the likelihood (see `pm_match.views.em`); here

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad
        \theta_v^t \sim \mathrm{Dirichlet}(c / T_v, \dots, c / T_v), \quad
        \mu_v^u \sim N(\bar x_v, (\kappa \Lambda_v)^{-1}), \quad
        \Lambda_v \sim \mathrm{Wishart}(D_v + 2, \Psi_v^{-1}),

    where :math:`\Psi_v`, the prior mean of the covariance within a view's clusters, is `within` of
    the variances of its features.

    Parameters
    ----------
    views : mapping
        From names to tables of the same objects by features: arrays, data frames, data arrays or
        sparse matrices. An object that a view has not seen is a row of NaN.
    n_clusters : int, default 10
        T, the truncation of the stick-breaking; for ``weights="dirichlet"``, the number of
        clusters.
    n_marginal_clusters : int or mapping of str to int, default 15
        :math:`T_v`, the most clusters of a view: one number for all views, or one for each.
    concentration : float, default 1.0
        :math:`\gamma`.
    link_concentration : float, default 1.0
        c: the less, the fewer of a view's clusters go with one z.
    mean_strength : float, default 0.1
        :math:`\kappa`: how many objects the prior of a cluster's mean is worth.
    within : float, default 0.25
        The share of variance within a view's clusters that is expected.
    weights : {"stick-breaking", "dirichlet"}, default "stick-breaking"
        Prior on the weights of z: truncated stick-breaking, or a symmetric
        Dirichlet(concentration / n_clusters).

    Returns
    -------
    pymc.Model
        With the variables `weights`, `cluster_object` (z), and for every view `link_<view>`
        (clusters, the view's clusters), `marginal_<view>` (w, of the objects that the view has
        seen), `precision_<view>`, `mean_<view>` and `<view>`.

    Raises
    ------
    TypeError, ValueError
        If a table or a parameter is not as described; the message says which, what was expected,
        and what was found.

    Examples
    --------
    >>> data = pmm.datasets.ring_views(60, random_seed=1)
    >>> model = pmm.models.dependency_hierarchy(data.views, n_clusters=3)
    >>> [variable.name for variable in model.observed_RVs]
    ['a', 'b']
    """
    tables = as_paired_views(views, _DERIVED, _RESERVED)
    check_count("n_clusters", n_clusters, 2)
    marginal = counts_by_name("n_marginal_clusters", n_marginal_clusters, tables, 2)
    check_all_positive(
        concentration=concentration,
        link_concentration=link_concentration,
        mean_strength=mean_strength,
        within=within,
    )
    check_option("weights", weights, WEIGHTS[:2])

    objects = next(iter(tables.values())).objects
    seen = {name: seen_rows(table, objects) for name, table in tables.items()}
    coords: dict[str, Any] = {"object": objects, "cluster": range(n_clusters)}
    for name, table in tables.items():
        coords |= {f"{name}_feature": table.features, f"{name}_other_feature": table.features}
        coords[f"{name}_cluster"] = range(marginal[name])
        if len(seen[name]) < len(objects):
            coords[f"{name}_object"] = objects[seen[name]]

    with pm.Model(coords=coords, model=None) as model:
        prior = cluster_weights(weights, n_clusters, concentration)
        cluster = pm.Categorical("cluster_object", p=prior, dims="object")
        for name, table in tables.items():
            rows, t = seen[name], marginal[name]
            values = np.asarray(np.ma.filled(table.values, np.nan))[rows]
            everywhere = len(rows) == len(objects)
            dim = "object" if everywhere else f"{name}_object"
            link = pm.Dirichlet(
                f"link_{name}",
                np.full(t, link_concentration / t),
                dims=("cluster", f"{name}_cluster"),
            )
            own = cluster if everywhere else cluster[rows]
            label = pm.Categorical(f"marginal_{name}", p=link[own], dims=dim)
            precision = values.shape[1] + 2, 1.0 / (within * values.var(axis=0))
            normal_view(name, values, label, f"{name}_cluster", dim, precision, mean_strength)
    return model
