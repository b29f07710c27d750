"""The model to begin with for real tables: shapes and sizes match, everything else may differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import pymc as pm

from pm_match.checks import check_count, check_positive, check_power
from pm_match.models.projected_clusters import projected_clusters
from pm_match.reading.coarsen import coarsen
from pm_match.tables.domains import check_names
from pm_match.tables.standardise import standardise

# Beyond so many dimensions a shape of a few clusters has no more to say.
_MOST_FACTORS = 6


def table_clusters(
    domains: Mapping[str, Any],
    n_clusters: int = 12,
    *,
    n_components: int | None = None,
    concentration: float = 1e-3,
    power: float = 1.0,
    links: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    known: Mapping[str, Any] | None = None,
) -> pm.Model:
    r"""Declare a matching model for real tables without a common column.

    The paper's model, `projected_clusters`, has one noise for everything, and lets projections
    distort clusters in any way. Real clusters then split, and any matching fits. Here every domain
    has an intercept and a full covariance within clusters. Projections keep distances, up to
    deviations of the clusters' means. Few clusters are expected:

    .. math::

        x_{dn} \sim N(a_d + c_d Q_d z_{s_{dn}} + e_{d s_{dn}}, \Sigma_d), \quad
        Q_d^\top Q_d = I, \quad e_{dj} \sim N(0, \kappa_d^2 I)

    It is ``projected_clusters(..., projection="isometric", intercept=True, within="full",
    deviations=True)`` of standardised tables, whose densities count to a power if there is one.

    Parameters
    ----------
    domains : mapping
        From names to tables of objects by features. They are standardised (see `standardise`): the
        model's variables are in the units of standardised features. NaN and masked values are
        missing: integrated out, and drawn.
    n_clusters : int, default 12
        Truncation: the most clusters there can be.
    n_components : int, optional
        For features of one kind, such as pixels: keep so many principal components of each table,
        instead of standardising its columns. About ten do for images of a few clusters.
    concentration : float, default 0.001
        :math:`\gamma` of the stick-breaking. Small: with larger ones, clusters that are not normal
        are split, and small clusters match anything.
    power : float, default 1.0
        :math:`\zeta`, in (0, 1]: to which densities count (see `coarsen`). Clusters that are not
        normal, as those of images are not, are split the less the smaller it is: with
        `n_components` and hundreds of objects, try a half. Few objects need all that they say.
        Below 1 no value may be missing.
    links : mapping or sequence of mappings, optional
        Objects known to share a cluster, as in `projected_clusters`.
    known : mapping, optional
        Labels that are known, as in `projected_clusters`.

    Returns
    -------
    pymc.Model

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described.

    Examples
    --------
    >>> model = pmm.models.table_clusters(pmm.datasets.iris(random_seed=0))
    >>> best = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> pmm.cluster_sizes(pmm.partition_estimate(best)).sum().to_dict()
    {'a': 150, 'b': 150, 'total': 300}
    """
    check_count("n_clusters", n_clusters, 2)
    check_positive("concentration", concentration)
    check_power("power", power)
    tables = standardise(domains, n_components)
    if power < 1.0:
        _check_coarsened(tables, power)
    n_factors = min(_MOST_FACTORS, n_clusters - 1, *(t.shape[1] for t in tables.values()))
    model = projected_clusters(
        tables,
        n_factors=n_factors,
        n_clusters=n_clusters,
        concentration=concentration,
        projection="isometric",
        intercept=True,
        within="full",
        deviations=True,
        links=links,
        known=known,
    )
    if power < 1.0:
        with model:
            for name in tables:
                coarsen(f"coarsened_{name}", name, power)
    return model


def _check_coarsened(tables: Mapping[str, Any], power: float) -> None:
    """Refuse names that potentials would have too, and missing values."""
    check_names(tables, "domain", ("{}", "coarsened_{}"), lambda name: False)
    for name, table in tables.items():
        missing = int(table.isnull().sum())
        if missing:
            raise ValueError(
                f"power: expected 1 where values are missing; found {power!r}, and {missing} "
                f"missing values in domain {name!r}"
            )
