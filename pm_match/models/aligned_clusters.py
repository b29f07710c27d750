"""The model for tables that show the same kind of thing from different sides."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovTransform

from pm_match.checks import check_count, check_power
from pm_match.features.semi_orthogonal import semi_orthogonal
from pm_match.models.declare import (
    Links,
    assignment,
    check_all_positive,
    check_known,
    cluster_weights,
    declare_links,
    real,
)
from pm_match.reading.coarsen import coarsen
from pm_match.tables.domains import as_domains, check_names
from pm_match.tables.standardise import principal_components

# What a domain brings into the model.
_DERIVED = tuple(
    ["{}", "orientation_{}", "scale_{}", "intercept_{}", "coarsened_{}", "{}_object", "{}_feature"]
)
_RESERVED = {"weights", "scale_matrix", "precision", "mean", "cluster", "axis", "other_axis"}
# Degrees of freedom of the clusters' precisions, beyond the least: how alike covariances are.
_DEGREES = 10


def aligned_clusters(
    domains: Mapping[str, Any],
    n_clusters: int = 20,
    *,
    n_components: int | None = None,
    concentration: float = 1.0,
    mean_strength: float = 0.05,
    power: float = 0.8,
    links: Links = None,
    known: Mapping[str, Any] | None = None,
) -> pm.Model:
    r"""Declare clusters of domains that are rotated, scaled and shifted versions of one another.

    Use it if every *object* could be seen in any domain: images that are turned, or measurements
    by another instrument or in other units. A domain differs from the first one by a rotation, a
    scale and a shift of all its objects:

    .. math::

        x_{dn} \sim N(a_d + c_d Q_d \mu_{s_{dn}}, c_d^2 Q_d \Lambda_{s_{dn}}^{-1} Q_d^\top), \quad
        Q_d^\top Q_d = I, \quad Q_1 = I, \; c_1 = 1, \; a_1 = 0

        \mu_j \sim N(0, (\kappa \Lambda_j)^{-1}), \quad
        \Lambda_j \sim \mathrm{Wishart}(K + 11, S^{-1}), \quad
        S \sim \mathrm{Wishart}(K + 1, V)

    Every cluster has its own covariance; their common scale and shape :math:`S` is learned.
    Densities are raised to the power :math:`\zeta` (see `coarsen`), since real clusters are not
    normal and would split otherwise.

    If the columns of the domains mean different things, use `table_clusters`.

    Parameters
    ----------
    domains : mapping
        From names to tables of objects by features. Of each, the leading principal components are
        taken: the model's variables are in their units. NaN and masked values are missing: before
        that they are filled in, as the components expect them (see `standardise`).
    n_clusters : int, default 20
        Truncation: the most clusters there can be.
    n_components : int, optional
        How many components of each table, for columns of one kind, such as pixels. Default: columns
        are standardised before, and as many are taken as all tables have, at most ten.
    concentration : float, default 1.0
        :math:`\gamma` of the stick-breaking.
    mean_strength : float, default 0.05
        :math:`\kappa`: the means vary :math:`1 / \kappa` times as much as objects within clusters.
    power : float, default 0.8
        :math:`\zeta`. The nearer to 1, the smaller are the differences that make clusters: with 1,
        normal clusters are told apart as well as can be, and others are split. Clusters of many
        objects bear a smaller one, few objects need a larger one: `choose_power` finds it.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster, as in `projected_clusters`.
    known : mapping, optional
        Labels that are known, as in `projected_clusters`.

    Returns
    -------
    pymc.Model
        With the variables `weights`, `scale_matrix`, `precision` and `mean`; `cluster_<name>` and
        `<name>` for every domain; and `orientation_<name>`, `scale_<name>`, `intercept_<name>` for
        all but the first.

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described.

    Examples
    --------
    >>> model = pmm.models.aligned_clusters(pmm.datasets.iris(random_seed=0))
    >>> best = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> list(best["posterior"]["cluster_a"].dims)
    ['chain', 'draw', 'a_object']
    """
    check_count("n_clusters", n_clusters, 2)
    check_all_positive(concentration=concentration, mean_strength=mean_strength)
    check_power("power", power)
    tables = as_domains(principal_components(domains, n_components))
    check_known(known, tables)
    check_names(tables, "domain", _DERIVED, _RESERVED.__contains__)
    k = next(iter(tables.values())).values.shape[1]
    values = {name: np.asarray(table.values, float) for name, table in tables.items()}
    # Of the first domain, in whose space the clusters are.
    spread = np.diag(next(iter(values.values())).var(axis=0))

    coords: dict[str, Any] = {
        "cluster": range(n_clusters),
        "axis": range(k),
        "other_axis": range(k),
    }
    for name, table in tables.items():
        coords |= {f"{name}_object": table.objects, f"{name}_feature": table.features}
    with pm.Model(coords=coords, model=None) as model:
        weights = cluster_weights("stick-breaking", n_clusters, concentration)
        scale_matrix = pm.Wishart("scale_matrix", nu=k + 1, V=spread, dims=("axis", "other_axis"))
        precision: Any = pm.Wishart(
            "precision",
            nu=k + 1 + _DEGREES,
            V=pt.linalg.inv(scale_matrix),
            dims=("cluster", "axis", "other_axis"),
            # PyMC's own depends on V, and log densities may not depend on random numbers.
            default_transform=CholeskyCovTransform(k),
        )
        within: Any = pt.linalg.inv(precision)
        mean = pm.MvNormal(
            "mean", np.zeros(k), cov=within / real(mean_strength), dims=("cluster", "axis")
        )
        for number, (name, x) in enumerate(values.items()):
            objects, features = f"{name}_object", f"{name}_feature"
            cluster = assignment(name, weights, objects, known)
            centre, covariance = mean[cluster], within[cluster]
            if number:
                dims = (features, "axis")
                raw = pm.Normal(f"orientation_{name}", 0.0, 1.0, dims=dims)
                q = semi_orthogonal(raw)
                scale = pm.LogNormal(f"scale_{name}", 0.0, 0.5)
                intercept = pm.Normal(f"intercept_{name}", 0.0, 1.0, dims=features)
                centre = intercept + scale * (centre @ q.T)
                covariance = scale**2 * (q @ covariance @ q.T)
            pm.MvNormal(name, centre, cov=covariance, observed=x, dims=(objects, features))
            if power < 1.0:
                coarsen(f"coarsened_{name}", name, power)
        declare_links(links, list(tables))
    return model
