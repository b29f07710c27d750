"""Projected clusters: the many-to-many matching latent variable model (MMLVM), declared."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
from pymc.exceptions import ImputationWarning

from pm_match.domains import as_domains
from pm_match.links import must_link
from pm_match.models.checks import check_count, check_option, check_positive, link_sets

__all__ = ["projected_clusters"]


def projected_clusters(
    domains: Mapping[str, Any],
    n_factors: int = 5,
    n_clusters: int = 25,
    *,
    concentration: float = 1.0,
    precision_prior: tuple[float, float] = (1.0, 1.0),
    latent_precision: float = 1.0,
    projection: Literal["map", "normal"] = "map",
    weights: Literal["stick-breaking", "dirichlet", "uniform"] = "stick-breaking",
    links: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
) -> pm.Model:
    r"""Declare the many-to-many matching model of Iwata, Hirao & Ueda (2016).

    Objects of all domains share clusters; every cluster has a latent vector, and every domain its
    own projection of it:

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad \alpha \sim \mathrm{Gamma}(a, b), \quad
        z_j \sim N(0, (\alpha r)^{-1} I), \quad s_{dn} \sim \mathrm{Categorical}(\theta), \quad
        x_{dn} \sim N(W_d z_{s_{dn}}, \alpha^{-1} I)

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
    projection : {"map", "normal"}, default "map"
        Whether projections are flat and found by MAP sub-steps (the paper's stochastic EM), or
        standard normal and sampled.
    weights : {"stick-breaking", "dirichlet", "uniform"}, default "stick-breaking"
        Prior on the clusters' weights: truncated stick-breaking; a symmetric
        Dirichlet(concentration / n_clusters); or none, all clusters being equally probable. The
        last two are for a known number of clusters.
    links : mapping or sequence of mappings, optional
        Objects known to share a cluster: from domain names to positions, the k-th entries of which
        belong together. Several mappings may name different domains. See `must_link`.

    Returns
    -------
    pymc.Model
        With the variables `weights` (unless uniform), `precision`, `latent`, and `cluster_<name>`,
        `projection_<name>` and `<name>` for every domain.

    Raises
    ------
    TypeError, ValueError
        If a table, a link or a parameter is not as described; the message says which, what was
        expected, and what was found.

    Examples
    --------
    >>> model = pmm.models.projected_clusters({"english": x, "german": y})
    >>> idata = pmm.sample(model=model)
    >>> pmm.match_probability(idata, "cluster_english", "cluster_german")
    """
    tables = as_domains(domains)
    check_count("n_factors", n_factors, 1)
    check_count("n_clusters", n_clusters, 2)
    if np.shape(precision_prior) != (2,):
        raise ValueError(f"precision_prior must be (shape, rate), found {precision_prior!r}.")
    check_positive("concentration", concentration)
    check_positive("precision_prior's shape", precision_prior[0])
    check_positive("precision_prior's rate", precision_prior[1])
    check_positive("latent_precision", latent_precision)
    check_option("projection", projection, ("map", "normal"))
    check_option("weights", weights, ("stick-breaking", "dirichlet", "uniform"))

    # PyTensor keeps a Python float that fits in single precision, and computes with it there.
    concentration, latent_precision = np.float64(concentration), np.float64(latent_precision)
    shape, rate = map(np.float64, precision_prior)

    coords: dict[str, Any] = {"cluster": range(n_clusters), "factor": range(n_factors)}
    for name, table in tables.items():
        coords |= {f"{name}_object": table.objects, f"{name}_feature": table.features}

    with pm.Model(coords=coords) as model:
        if weights == "stick-breaking":
            prior = pm.StickBreakingWeights(
                "weights", alpha=concentration, K=n_clusters - 1, dims="cluster"
            )
        elif weights == "dirichlet":
            each = np.full(n_clusters, concentration / n_clusters)
            prior = pm.Dirichlet("weights", each, dims="cluster")
        else:
            prior = np.full(n_clusters, 1.0 / n_clusters)
        precision = pm.Gamma("precision", shape, rate)
        latent = pm.Normal(
            "latent", 0.0, tau=latent_precision * precision, dims=("cluster", "factor")
        )
        for name, table in tables.items():
            objects, features = f"{name}_object", f"{name}_feature"
            cluster = pm.Categorical(f"cluster_{name}", p=prior, dims=objects)
            if projection == "map":
                w = pm.Flat(f"projection_{name}", dims=(features, "factor"))
            else:
                w = pm.Normal(f"projection_{name}", 0.0, 1.0, dims=(features, "factor"))
            with warnings.catch_warnings():
                # PyMC announces that it imputes missing values, which is what was asked for.
                warnings.simplefilter("ignore", ImputationWarning)
                pm.Normal(
                    name,
                    mu=latent[cluster] @ w.T,
                    tau=precision,
                    observed=table.values,
                    dims=(objects, features),
                )
        for number, linked in enumerate(link_sets(links)):
            _check_links(linked, tables)
            must_link(
                "links" if number == 0 else f"links_{number}",
                {f"cluster_{name}": positions for name, positions in linked.items()},
            )
    return model


def _check_links(linked, tables) -> None:
    strangers = [name for name in linked if name not in tables]
    if strangers:
        raise ValueError(f"links: no domain {strangers[0]!r}; the domains are {list(tables)}.")
