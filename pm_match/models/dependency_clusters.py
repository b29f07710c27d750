"""Dependency-seeking clusters: what several views of the same objects have in common, declared."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pymc as pm

from pm_match.checks import check_count, check_flag, check_option
from pm_match.models.declare import (
    WEIGHTS,
    Links,
    check_all_positive,
    cluster_weights,
    declare_links,
    link_sets,
    normal_view,
)
from pm_match.tables.domains import as_domains, check_names
from pm_match.tables.paired_views import refuse_unseen, same_objects, seen_rows

# The dim of objects that are seen in several views; their assignment is `cluster_object`.
_OBJECT = "object"
# What a view brings into the model.
_DERIVED = ("{}", "mean_{}", "precision_{}", "{}_object", "{}_feature", "{}_other_feature")


def dependency_clusters(
    views: Mapping[str, Any],
    n_clusters: int = 10,
    *,
    concentration: float = 1.0,
    weights: Literal["stick-breaking", "dirichlet", "uniform"] = "stick-breaking",
    within: Literal["shared", "own"] = "shared",
    mean_strength: float = 0.1,
    paired: bool = True,
    links: Links = None,
) -> pm.Model:
    r"""Declare the dependency-seeking clusters of Klami & Kaski (2006), eq. 2.

    Every object is seen in several views, and has one cluster. Within clusters the views are
    independent, and each varies in any way, the same in all clusters:

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad s_n \sim \mathrm{Categorical}(\theta), \quad
        x_{vn} \sim N(\mu_{v s_n}, \Lambda_v^{-1}), \quad
        \mu_{vj} \sim N(\bar x_v, (\kappa \Lambda_v)^{-1}), \quad
        \Lambda_v \sim \mathrm{Wishart}(D_v + 4, V_v)

    The full precision :math:`\Lambda_v` describes what varies within one view alone, so that
    clusters show what the views share. The prior is in units of each view's own columns: the
    covariance within clusters has a prior mean of a quarter of their variances.

    All views side by side, given as one, are an ordinary mixture of normal distributions, with
    full covariance, to compare with.

    Parameters
    ----------
    views : mapping
        From names to tables of objects by features: arrays, data frames, data arrays or sparse
        matrices. Row and column labels become coords. A row that is all NaN (or masked) is of an
        object that is not seen in this view.
    n_clusters : int, default 10
        Truncation of the stick-breaking: the most clusters there can be. For other `weights`, the
        number of clusters.
    concentration : float, default 1.0
        :math:`\gamma`.
    weights : {"stick-breaking", "dirichlet", "uniform"}, default "stick-breaking"
        Prior on the clusters' weights: truncated stick-breaking; a symmetric
        Dirichlet(concentration / n_clusters); or none, all clusters being equally probable.
    within : {"shared", "own"}, default "shared"
        Whether the clusters of a view share one precision, or each has its own, of the same prior.
    mean_strength : float, default 0.1
        :math:`\kappa`: the means vary :math:`1 / \kappa` times as much as objects within clusters.
    paired : bool, default True
        Whether row n of every table is of the same object. Otherwise every view has objects of its
        own, and an assignment; all share the weights, so that clusters match them.
    links : mapping, DataFrame or sequence of these, optional
        For views that are not paired, objects known to share a cluster, as in
        `projected_clusters`.

    Returns
    -------
    pymc.Model
        With the variables `weights` (unless uniform), `cluster_object` (or `cluster_<name>`, for
        views that are not paired), and `mean_<name>`, `precision_<name>` and `<name>` for every
        view.

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described; the message says which, what was
        expected, and what was found.

    Examples
    --------
    >>> data = pmm.datasets.dependent_clusters("structured", 60, random_seed=1)
    >>> model = pmm.models.dependency_clusters(data.views, n_clusters=3)
    >>> [variable.name for variable in model.observed_RVs]
    ['a', 'b']
    """
    check_flag("paired", paired)
    tables = as_domains(views, unseen=bool(paired), kind="view")
    check_count("n_clusters", n_clusters, 2)
    check_all_positive(concentration=concentration, mean_strength=mean_strength)
    check_option("weights", weights, WEIGHTS)
    check_option("within", within, ("shared", "own"))
    linked = link_sets(links)
    if linked and paired:
        raise ValueError(
            "links: expected none with paired=True, where row n of every table is the same object "
            f"already; found {len(linked)}"
        )
    taken = {_OBJECT, f"cluster_{_OBJECT}"} if paired else set()
    check_names(tables, "view", _DERIVED, taken.__contains__)
    objects = {name: table.objects for name, table in tables.items()}
    if paired:
        objects = dict.fromkeys(tables, _same_objects(tables))
    seen = {name: seen_rows(table, objects[name]) for name, table in tables.items()}

    coords: dict[str, Any] = {"cluster": range(n_clusters)}
    if paired:
        coords[_OBJECT] = next(iter(objects.values()))
    # Views that have not seen all of the objects, or have their own.
    apart = {name for name in tables if not paired or len(seen[name]) < len(objects[name])}
    for name, table in tables.items():
        if name in apart:
            coords[f"{name}_object"] = objects[name][seen[name]]
        coords |= {f"{name}_feature": table.features, f"{name}_other_feature": table.features}

    with pm.Model(coords=coords, model=None) as model:
        prior = cluster_weights(weights, n_clusters, concentration)
        common = pm.Categorical(f"cluster_{_OBJECT}", p=prior, dims=_OBJECT) if paired else None
        for name, table in tables.items():
            dim = f"{name}_object" if name in apart else _OBJECT
            if common is None:
                cluster = pm.Categorical(f"cluster_{name}", p=prior, dims=dim)
            else:
                cluster = common[seen[name]] if name in apart else common
            values = np.ma.getdata(table.values)[seen[name]]
            # The covariance is inverse Wishart, with a mean of a quarter of the columns' variances.
            precision = values.shape[1] + 4, 1.0 / (0.75 * values.var(axis=0))
            own = within == "own"
            normal_view(name, values, cluster, "cluster", dim, precision, mean_strength, own)
        declare_links(linked, list(tables))
    return model


def _same_objects(tables: Mapping[str, Any]) -> np.ndarray:
    """Return the labels of the objects that all views are of; each is seen in one of them."""
    try:
        objects = same_objects(tables)
    except ValueError as error:
        raise ValueError(f"{error}; say paired=False if views have objects of their own") from None
    refuse_unseen(tables, objects)
    return objects
