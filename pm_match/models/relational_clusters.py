"""Relational clusters: (subset) infinite relational models of one or several networks, declared."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm

from pm_match.checks import (
    check_flag,
    check_given_by_name,
    check_identifier,
    check_option,
    check_pair,
    check_positive,
    counts_by_name,
)
from pm_match.models.declare import (
    WEIGHTS,
    Links,
    assignment,
    check_known,
    cluster_weights,
    declare_links,
    link_sets,
    real,
)
from pm_match.networks import BlockNetwork
from pm_match.networks.checks import check_exposure
from pm_match.networks.data import (
    ABSENT,
    FAMILIES,
    PROBABILITIES,
    Family,
    Network,
    as_network,
    default_types,
)
from pm_match.tables.domains import as_labels, check_names

# What the two numbers of a prior on densities or noise are.
_PARAMETERS = {
    "bernoulli": ("alpha", "beta"),
    "poisson": ("shape", "rate"),
    "negative-binomial": ("alpha", "beta"),
    "normal": ("shape", "rate"),
}
# Names that the model (or PyMC and ArviZ) uses itself, and what types and networks bring into it.
_RESERVED = frozenset((
    "chain", "draw", "sample", "density", "density_alpha", "density_beta", "density_precision",
    "noise", "noise_alpha", "noise_beta", "noise_precision", "relevance_alpha", "relevance_beta",
))  # fmt: skip
_OF_TYPE = (
    "concentration_{}",
    "weights_{}",
    "relevance_probability_{}",
    "{}_cluster",
    "{}_cluster_other",
)
_OF_NETWORK = ("cluster_{}_{}", "relevance_{}_{}", "{}_{}_object")
_LINKS = re.compile(r"links(_\d+)?")
_ZERO, _FIVE = real(0.0), real(5.0)
# The precision of a mean over that of the values, in the normal family.
_MEAN_PRECISION = real(1.0)


def relational_clusters(
    networks: Mapping[str, Any],
    *,
    relevance: bool = True,
    n_clusters: int | Mapping[str, int] = 25,
    types: str | Sequence[str] | None = None,
    family: Family = "bernoulli",
    hyperpriors: bool = True,
    concentration: float = 1.0,
    density_prior: tuple[float, float] = (1.0, 1.0),
    noise_prior: tuple[float, float] = (1.0, 1.0),
    relevance_prior: tuple[float, float] = (1.0, 1.0),
    weights: Literal["stick-breaking", "dirichlet", "uniform"] = "stick-breaking",
    one_mode: bool | None = None,
    symmetric: bool = False,
    self_loops: bool = False,
    exposure: Mapping[str, Any] | Literal["degree"] | None = None,
    dispersion: float = 1.0,
    absent: Literal["zero", "unknown"] = "zero",
    columns: Sequence[str] | None = None,
    links: Links = None,
    known: Mapping[str, Any] | None = None,
) -> pm.Model:
    r"""Declare the robust network-matching model of Iwata & Ishiguro (2017) [1]_.

    Networks that share no objects share the clusters of each type of objects, such as documents
    and words, and the densities of edges between clusters. Objects that fit no cluster are
    irrelevant: their edges are noise, and they match nothing. For types t, networks d and objects n
    (section 3 of the paper; here for two types, whose clusters are k and l):

    .. math::

        \pi_t \sim \mathrm{GEM}(\alpha_t), \quad \lambda_t \sim \mathrm{Beta}(e, f), \quad
        \theta_{kl} \sim \mathrm{Beta}(c, d), \quad \phi \sim \mathrm{Beta}(a, b),

        r_{dtn} \sim \mathrm{Bernoulli}(\lambda_t), \quad
        z_{dtn} \sim \mathrm{Categorical}(\pi_t), \quad
        x_{dnm} \sim \mathrm{Bernoulli}(\theta_{z_{d1n} z_{d2m}}) \text{ if } r_{d1n} r_{d2m} = 1,
        \text{ else } \mathrm{Bernoulli}(\phi)

    Their joint distribution is the paper's eq. 1 (with eq. 2, 4 and 6), but for the truncation of
    the stick-breaking; what irrelevant objects have as z says nothing. With ``hyperpriors``, all of
    :math:`\alpha_t, a, \ldots, f` are Gamma(5, 5), as below the paper's eq. 15.

    This is *subset ReMatch*; with ``relevance=False`` it is ReMatch. With one network the two are
    the subset infinite relational model and the infinite relational model.

    Parameters
    ----------
    networks : mapping
        From names to networks of any sizes: SciPy sparse matrices, arrays or DataFrames (NaN or
        masked for unknown), tables ``(index, values)``, or DataFrames in long form with `columns`.
        All have the same number of axes: two or more. Labels become coords. See `BlockNetwork`.
    relevance : bool, default True
        Whether objects may be irrelevant.
    n_clusters : int or mapping of str to int, default 25
        For each type the truncation of the stick-breaking: the most clusters there can be. Their
        number if `weights` is not ``"stick-breaking"``.
    types : str or sequence of str, optional
        Names of the types of objects, one for each axis; one name if all objects are of one type.
        Default: ``("row", "column")``, in one-mode networks ``("object",)``, with more axes
        ``("axis_0", "axis_1", …)``.
    family : {"bernoulli", "poisson", "negative-binomial", "normal"}, default "bernoulli"
        Edges, counts, counts that vary more (overdispersed) or weights. The densities and the noise
        are then probabilities with Beta priors; rates with Gamma priors (shape c and rate d, shape
        a and rate b); the p of `pymc.NegativeBinomial` with Beta priors, near 0 where counts are
        large; or pairs of a mean and a precision :math:`\tau`, :math:`N(0, \tau^{-1})` and Gamma.
        Weights should so be brought to mean 0 and a variance of about 1.
    hyperpriors : bool, default True
        Whether concentrations and parameters of priors are drawn too. Otherwise they are the
        numbers that follow. (c, d) and (a, b) of the normal family always are.
    concentration : float, default 1.0
        :math:`\alpha_t`, for all types. Uniform weights have none.
    density_prior, noise_prior : (float, float), default (1.0, 1.0)
        (c, d) and (a, b).
    relevance_prior : (float, float), default (1.0, 1.0)
        (e, f).
    weights : {"stick-breaking", "dirichlet", "uniform"}, default "stick-breaking"
        The prior on clusters: truncated stick-breaking; a symmetric Dirichlet with
        :math:`\alpha_t` spread over the clusters; or all clusters equally probable, known.
    one_mode : bool, optional
        Whether rows and columns are the same objects (people by people). Default: only if there is
        one type, or `symmetric` or `self_loops` is set.
    symmetric : bool, default False
        Whether one-mode networks are undirected. Only the densities with k <= l then mean anything.
    self_loops : bool, default False
        Whether the diagonals of one-mode networks are data.
    exposure : "degree" or mapping, optional
        Factors of the means of both families of counts: ``"degree"`` corrects for the objects'
        degrees; a mapping has for each network what `BlockNetwork` takes, a vector (or None) for
        each axis. A Series is matched to the objects by its index.
    dispersion : float, default 1.0
        Of the negative binomial family: the n of `pymc.NegativeBinomial`, of all cells, which
        exposures multiply. The smaller, the more overdispersed are counts of one mean.
    absent : {"zero", "unknown"}, default "zero"
        What cells are that a sparse matrix or a table does not list.
    columns : sequence of str, optional
        Columns of the DataFrames if these are in long form: one for each axis, then perhaps the
        value.
    known : mapping, optional
        From ``<network>_<type>`` to clusters that are known: a vector of whole numbers, one for
        each object, -1 where it is not known, or a Series with their labels as index. All objects
        have to be relevant then.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster, by names ``<network>_<type>`` of one type, as in
        `projected_clusters`. Only with ``relevance=False``: linked objects must be relevant.

    Returns
    -------
    pymc.Model
        With the variables `density`, `noise`, and for every type `weights_<type>` and
        `relevance_probability_<type>`; for every network `<network>` itself and
        `cluster_<network>_<type>` and `relevance_<network>_<type>` for its types. With hyperpriors
        also `concentration_<type>`, `density_alpha`, `density_beta`, and so for `noise` and
        `relevance`. In the normal family `density_precision` and `noise_precision`. The dims are
        `<network>_<type>_object` and `<type>_cluster`.

    Raises
    ------
    TypeError, ValueError
        If a network, a name, a link or a parameter is not as described; the message says which,
        what was expected, and what was found.

    References
    ----------
    .. [1] Iwata & Ishiguro (2017). Robust unsupervised cluster matching for network data. Data
       Mining and Knowledge Discovery 31.

    Examples
    --------
    >>> data = pmm.datasets.synthetic_networks(n_relevant=20, n_irrelevant=5, random_seed=1)
    >>> model = pmm.models.relational_clusters(data.networks)
    >>> [variable.name for variable in model.observed_RVs]
    ['a', 'b']
    """
    check_option("family", family, FAMILIES)
    check_option("weights", weights, WEIGHTS)
    check_option("absent", absent, ABSENT)
    check_flag("relevance", relevance)
    check_flag("hyperpriors", hyperpriors)
    check_positive("concentration", concentration)
    check_pair("density_prior", density_prior, _PARAMETERS[family])
    check_pair("noise_prior", noise_prior, _PARAMETERS[family])
    check_pair("relevance_prior", relevance_prior, ("alpha", "beta"))
    check_positive("dispersion", dispersion)
    if dispersion != 1.0 and family != "negative-binomial":
        raise ValueError(
            "dispersion: expected none but with family='negative-binomial'; found "
            f"{dispersion!r} with family={family!r}"
        )
    if hyperpriors:
        _check_unused(family, concentration, density_prior, noise_prior, relevance_prior)

    types = (types,) if isinstance(types, str) else None if types is None else tuple(types)
    one_mode = _check_one_mode(types, one_mode, symmetric, self_loops)
    tables = _read(networks, types, family, one_mode, symmetric, self_loops, absent, columns)
    n_axes = len(next(iter(tables.values())).shape)
    types = _check_types(types, n_axes, one_mode)
    sizes = counts_by_name("n_clusters", n_clusters, types, 2)
    axes = types * 2 if one_mode else types
    _check_names(tables, types)
    exposures = _check_exposure(exposure, tables)
    if dispersion != 1.0:
        exposures = {
            name: _dispersed(name, given, tables[name], symmetric, dispersion)
            for name, given in exposures.items()
        }
    linked_sets = link_sets(links)
    if linked_sets and relevance:
        raise ValueError(
            "links: expected relevance=False, as linked objects must be relevant; found links with "
            "relevance=True. Say relevance=False, or leave the links."
        )

    type_of = {f"{name}_{t}": t for name in tables for t in types}
    check_known(known, type_of)
    if known and relevance:
        raise ValueError(
            "known: expected relevance=False, as objects of known clusters must be relevant; found "
            "known with relevance=True. Say relevance=False, or leave what is known."
        )

    coords: dict[str, Any] = {_cluster_dim(t): range(sizes[t]) for t in types}
    density_dims = [_cluster_dim(t) for t in axes]
    if one_mode:  # no variable can have one dim twice
        density_dims[1] = f"{_cluster_dim(types[0])}_other"
        coords[density_dims[1]] = range(sizes[types[0]])
    for name, table in tables.items():
        for t, objects in zip(types, table.labels, strict=False):
            coords[_object_dim(name, t)] = objects

    with pm.Model(coords=coords, model=None) as model:
        probabilities = {
            t: _weights(t, weights, sizes[t], None if hyperpriors else concentration) for t in types
        }
        density = _parameters("density", family, density_prior, hyperpriors, density_dims)
        noise, relevant = None, {}
        if relevance:
            noise = _parameters("noise", family, noise_prior, hyperpriors, None)
            e, f = _pair("relevance", relevance_prior, hyperpriors)
            relevant = {t: pm.Beta(f"relevance_probability_{t}", e, f) for t in types}
        for name, table in tables.items():
            clusters, flags = {}, {}
            for t in types:
                clusters[t] = assignment(
                    f"{name}_{t}", probabilities[t], _object_dim(name, t), known
                )
                if relevance:
                    flags[t] = pm.Bernoulli(
                        f"relevance_{name}_{t}", p=relevant[t], dims=_object_dim(name, t)
                    )
            BlockNetwork(
                name,
                axes=[clusters[t] for t in axes],
                density=density,
                noise=noise,
                relevance=[flags[t] for t in axes] if relevance else None,
                family=family,
                symmetric=symmetric,
                self_loops=self_loops,
                exposure=exposures[name],
                dims=[_object_dim(name, t) for t in axes],
                observed=table,
            )
        for linked in linked_sets:
            _check_types_of_links(linked, type_of)
        declare_links(linked_sets, list(type_of))
    return model


# -- declaring -------------------------------------------------------------------------------------


def _weights(t: str, kind: str, size: int, concentration: float | None) -> Any:
    """Declare the probabilities of a type's clusters; without a concentration it has a prior."""
    alpha: Any = concentration
    if alpha is None and kind != "uniform":
        alpha = pm.Gamma(f"concentration_{t}", _FIVE, _FIVE)
    return cluster_weights(kind, size, alpha, f"weights_{t}", _cluster_dim(t))


def _parameters(name: str, family: str, prior, hyperpriors: bool, dims) -> Any:
    """Declare the densities of all blocks, or the noise, with their conjugate prior."""
    if family == "normal":
        shape, rate = map(real, prior)
        precision = pm.Gamma(f"{name}_precision", shape, rate, dims=dims)
        return pm.Normal(name, _ZERO, tau=_MEAN_PRECISION * precision, dims=dims), precision
    first, second = _pair(name, prior, hyperpriors)
    return (pm.Beta if family in PROBABILITIES else pm.Gamma)(name, first, second, dims=dims)


def _pair(name: str, prior, hyperpriors: bool) -> tuple[Any, Any]:
    """Give the two parameters of a prior: numbers, or drawn as in the paper."""
    if not hyperpriors:
        first, second = map(real, prior)
        return first, second
    return pm.Gamma(f"{name}_alpha", _FIVE, _FIVE), pm.Gamma(f"{name}_beta", _FIVE, _FIVE)


def _dispersed(name: str, exposure, network: Network, symmetric: bool, dispersion: float) -> list:
    """Multiply the exposures of all cells of a network, by those on an axis, or on both alike."""
    given = check_exposure(
        f"network {name!r}", exposure, "negative-binomial", network.shape, symmetric, network
    )
    axes, factor = (2, dispersion**0.5) if symmetric else (1, dispersion)
    moved = [
        factor * (np.ones(n) if own is None else own)
        for own, n in zip(given[:axes], network.shape[:axes], strict=True)
    ]
    return moved + given[axes:]


def _object_dim(network: str, t: str) -> str:
    return f"{network}_{t}_object"


def _cluster_dim(t: str) -> str:
    return f"{t}_cluster"


# -- checking --------------------------------------------------------------------------------------


def _read(
    networks, types, family, one_mode, symmetric, self_loops, absent, columns
) -> dict[str, Network]:
    """Check the networks and bring them into one form, with labels that are fit for coords."""
    check_given_by_name("network", networks, "matrix")
    n_axes = None if types is None else 2 if one_mode else len(types)
    tables: dict[str, Network] = {}
    for name, observed in networks.items():
        network = as_network(
            name,
            observed,
            absent=absent,
            family=family,
            symmetric=symmetric,
            self_loops=self_loops,
            one_mode=one_mode,
            columns=columns,
            n_axes=n_axes,
        )
        labels = network.labels
        if one_mode:
            # Rows and columns have the same labels, or only one of them has any.
            bare = isinstance(labels[0], pd.RangeIndex)
            labels = (labels[1] if bare else labels[0],) * 2
        where = f"network {name!r}: axis"
        checked = tuple(
            own
            if isinstance(own, pd.RangeIndex)
            else pd.Index(as_labels(f"{where} {axis}", "object", own))
            for axis, own in enumerate(labels)
        )
        tables[name] = replace(network, labels=checked)
    first = next(iter(tables))
    for name, network in tables.items():
        if len(network.shape) != len(tables[first].shape):
            raise ValueError(
                f"network {name!r}: expected {len(tables[first].shape)} axes, as network "
                f"{first!r} has; found shape {network.shape}"
            )
    return tables


def _check_one_mode(types, one_mode, symmetric, self_loops) -> bool:
    for option, flag in (("symmetric", symmetric), ("self_loops", self_loops)):
        if flag and one_mode is not None and not one_mode:
            raise ValueError(f"{option}=True: expected one-mode networks; found one_mode=False")
    if one_mode is None:
        return bool(symmetric or self_loops or (types is not None and len(types) == 1))
    return bool(one_mode)


def _check_types(types, n_axes: int, one_mode: bool) -> tuple[str, ...]:
    if types is None:
        return ("object",) if one_mode else default_types(n_axes)
    expected = 1 if one_mode else n_axes
    if len(types) != expected:
        why = "the objects of one-mode networks" if one_mode else f"each of {n_axes} axes"
        raise ValueError(
            f"types: expected {expected} name{'s' * (expected > 1)}, for {why}; "
            f"found {list(types)!r}"
        )
    for t in types:
        check_identifier("types", t)
    if len(set(types)) < len(types):
        raise ValueError(f"types: expected different names; found {list(types)!r}")
    return tuple(types)


def _check_names(networks, types) -> None:
    """Refuse names that the model would have twice."""
    owner: dict[str, str] = {}

    def reserved(name: str) -> bool:
        return name in _RESERVED or _LINKS.fullmatch(name) is not None

    # Not `cluster_<type>`: variables are called `cluster_<network>_<type>`.
    check_names(types, "type", _OF_TYPE, reserved, owner)
    derived = [pattern.format("{}", t) for t in types for pattern in _OF_NETWORK]
    check_names(networks, "network", ["{}", *derived], reserved, owner)


def _check_unused(family, concentration, density_prior, noise_prior, relevance_prior) -> None:
    """Refuse numbers that would be ignored."""
    given = {"concentration": concentration, "relevance_prior": tuple(relevance_prior)}
    if family != "normal":
        given |= {"density_prior": tuple(density_prior), "noise_prior": tuple(noise_prior)}
    for name, value in given.items():
        if value not in (1.0, (1.0, 1.0)):
            raise ValueError(
                f"{name}: expected none with hyperpriors=True, as it is drawn; found {value!r}"
            )


def _check_exposure(exposure, networks) -> dict[str, Any]:
    if exposure is None or isinstance(exposure, str):
        return dict.fromkeys(networks, exposure)
    if not isinstance(exposure, Mapping):
        raise TypeError(
            "exposure: expected 'degree', or a mapping from networks' names to a vector (or None) "
            f"for each axis; found an object of type {type(exposure).__name__}"
        )
    if set(exposure) != set(networks):
        raise ValueError(
            f"exposure: expected an entry for each of the networks {list(networks)}; "
            f"found {list(exposure)}"
        )
    return dict(exposure)


def _check_types_of_links(linked: Mapping[str, Any], known: Mapping[str, str]) -> None:
    kinds = {known[key] for key in linked if key in known}
    if len(kinds) > 1:
        raise ValueError(
            f"links: expected objects of one type, as others have no cluster in common; found "
            f"{list(linked)}, of the types {sorted(kinds)}"
        )
