"""`pm.sample` with a matching model's steps, starts that differ, and checks that mean something."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from pymc.initial_point import make_initial_point_fn
from pymc.model.core import Model, modelcontext
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    warn_divergences,
    warn_treedepth,
)
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator
from threadpoolctl import threadpool_limits

from pm_match.clusters.cluster_gibbs import ClusterGibbs, random_labels
from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.clusters.units import units
from pm_match.features.marginal_gibbs import MarginalGibbs
from pm_match.features.projection_gibbs import ProjectionGibbs
from pm_match.features.projection_map import ProjectionMAP, random_projection
from pm_match.matching.advice import FEW_DRAWS
from pm_match.matching.diagnose import diagnose
from pm_match.matching.draws import PREFIX, RELEVANCE
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading import read
from pm_match.reading.parts import Structure, UnservedModelError
from pm_match.reading.probe import natural_function
from pm_match.search.recipe import searched
from pm_match.views.factors.factor_gibbs import FactorGibbs
from pm_match.views.hierarchy.hierarchy_gibbs import HierarchyGibbs
from pm_match.views.hinge.frequency_metropolis import FrequencyMetropolis
from pm_match.views.hinge.hinge_gibbs import HingeGibbs
from pm_match.views.hinge.latent_hmc import LatentHMC

__all__ = ["initial_points", "sample", "steps"]

# The clusters come last: all that they integrate out is then drawn given everything else's draws.
_STEPS: tuple[Any, ...] = (
    FactorGibbs,
    LatentHMC,
    ProjectionMAP,
    ProjectionGibbs,
    MarginalGibbs,
    HyperparameterGibbs,
    FrequencyMetropolis,
    HingeGibbs,
    HierarchyGibbs,
    ClusterGibbs,
)

# Parameters that the factors' rotations and labels turn: not to be judged one by one.
_TURNING = ("projection", "transposed", "normal")

# Sampler statistics that say how a chain does.
_TOLD = ("log_joint", "n_occupied", "log_likelihood", "spread")

_INITS = ("search", "dispersed")


def register() -> None:
    """Let a plain `pm.sample()` inside `with model:` choose our steps, for what they recognise.

    PyMC takes the first of equally competent steps, and its own claim any Categorical: ours come
    first, and decline every variable that is not part of a recognised model.
    """
    for step in reversed(_STEPS):
        if step not in STEP_METHODS:
            STEP_METHODS.insert(0, step)


def steps(model: Model | None = None, *, given: Sequence[Any] = ()) -> list[BlockedStep]:
    """Make the steps that serve a model.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    given : sequence of steps, optional
        Steps that exist already: the variables they hold are left out.

    Returns
    -------
    list of BlockedStep
        To be passed as `step=` to `pm.sample`. Variables that none of them holds are PyMC's.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    """
    model = modelcontext(model)
    structure = read(model)
    if structure.empty:
        raise UnservedModelError(
            f"pm_match has no step for this model: {structure.explain()}. "
            "pm.sample() samples it with PyMC's own steps."
        )
    taken = {model.values_to_rvs[value].name for step in given for value in step.vars}
    made: list[BlockedStep] = []
    for kind in _STEPS:
        for part in kind.parts(structure):
            names = kind.served(part)
            left = [name for name in names if name not in taken]
            if left and len(left) < len(names) and not kind.one_by_one:
                raise UnservedModelError(
                    f"{kind.__name__} draws {names} together, and a given step holds "
                    f"{sorted(set(names) - set(left))}: give a step for all of them or for none."
                )
            if left:
                made.append(kind([model[name] for name in left], model=model))
    return made


def initial_points(
    model: Model | None = None,
    chains: int = 4,
    random_seed: Any = None,
    *,
    init: str = "search",
    progressbar: bool = True,
) -> list[dict[str, NDArray]]:
    """Make starts that differ, one for every chain.

    PyMC starts all chains at the same point when any step is not NUTS, with every object in the
    first cluster. Here each chain gets a start of its own, from its own seed:

    - ``"search"``: the mode that one search of the chain's own finds, for each chain another one
      (see `find_matching`, which tells the best of several). Where the modes of chains agree, that
      is worth something; where they do not, the chains say so, and can be compared by log joint.
    - ``"dispersed"``: labels drawn uniformly (linked objects share theirs), all objects relevant,
      and projections drawn from their normal prior or, where that is flat, small noise.

    Other variables that our steps do not draw start jittered, as PyMC does for NUTS.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    chains : int, default 4
    random_seed : int, sequence of int, Generator or SeedSequence, optional
    init : {"search", "dispersed"}, default "search"
    progressbar : bool, default True
        Whether searches of more than two seconds show one.

    Returns
    -------
    list of dict
        For each chain, values by variable name: `initvals` of `pm.sample`.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    ValueError
        If `chains` is less than 1, or `init` is neither.
    """
    model = modelcontext(model)
    if chains < 1:
        raise ValueError(f"chains must be at least 1, found {chains}.")
    _check_init(init)
    structure = read(model)
    if structure.empty:
        raise UnservedModelError(f"no starts to disperse in this model: {structure.explain()}.")
    # PyMC gives the first `chains` children of the seed to the chains: the next is ours.
    rngs = get_random_generator(random_seed).spawn(chains + 1)[-1].spawn(chains)
    served = {name for c in structure.components for name in c.collapsed}
    served |= {d.projection for f in structure.features for d in f.domains if d.update}
    served |= {name for part in structure.parts for name in part.names}
    if init == "search":
        served |= {name for c in structure.components for name in c.hyperparameters}
    others = [rv for rv in model.free_RVs if rv.name not in served]
    jittered = {rv for rv in others if rv.dtype.startswith("float")}
    start = model.initial_point(0)
    names = sorted(rv.name for rv in jittered)
    natural = natural_function(model, names)
    jitter = make_initial_point_fn(model=model, jitter_rvs=jittered) if jittered else None
    points = []
    for rng in rngs:
        point: dict[str, NDArray] = {}
        # Parts are told where the rest of their chain starts.
        here = start
        if jitter is not None:
            drawn = jitter(int(rng.integers(2**30)))
            values = [model.rvs_to_values[model[name]].name for name in names]
            here = start | {name: np.asarray(drawn[name]) for name in values}
            point |= dict(zip(names, natural(here), strict=True))
        for part in structure.parts:
            point |= part.start(rng, here)
        points.append(point | _dispersed(structure, start, rng))
    if init == "search" and structure.components:
        found = _searched(model, structure, start, rngs, progressbar)
        points = [point | own for point, own in zip(points, found, strict=True)]
    return points


def _check_init(init: str) -> None:
    if init not in _INITS:
        raise ValueError(f"init must be 'search' or 'dispersed', found {init!r}.")


def _dispersed(structure: Structure, start, rng: np.random.Generator) -> dict[str, NDArray]:
    """Draw labels, flags and projections that favour no matching, by variable."""
    point: dict[str, NDArray] = {}
    for clustering in structure.clusterings:
        grouped = units(clustering.n_objects, clustering.links)
        labels = random_labels(rng, grouped, clustering.truncation)
        for assignment, label in zip(
            clustering.assignments, np.split(labels, clustering.ends), strict=True
        ):
            point[assignment.name] = label
            if assignment.relevance:
                point[assignment.relevance] = np.ones(len(label), np.int64)
    for features in structure.features:
        for domain in features.domains:
            shape = (domain.data.values.shape[1], features.n_factors)
            if domain.update == "map":
                projection = random_projection(rng, shape)
            elif domain.update == "normal":
                mean, precision = features.projection_prior(domain, start)
                projection = mean + rng.standard_normal(shape) / np.sqrt(precision)
            else:
                continue
            point[domain.projection] = projection.T if domain.transposed else projection
    return point


def dispersed_point(
    model: Model, structure: Structure, start, rng: np.random.Generator
) -> dict[str, NDArray]:
    """Put a dispersed start of labels, flags and projections into a point of value variables."""
    point = dict(start)
    for name, value in _dispersed(structure, start, rng).items():
        # These are sampled as they are, without a transform.
        variable = model.rvs_to_values[model[name]]
        point[variable.name] = np.asarray(value, dtype=variable.dtype)
    return point


def _searched(
    model: Model, structure: Structure, start, rngs, progressbar: bool
) -> list[dict[str, NDArray]]:
    """Search from every generator; values by variable that steps do not draw from nothing."""
    names = [name for c in structure.components for name in c.hyperparameters]
    for clustering in structure.clusterings:
        for assignment in clustering.assignments:
            names += [assignment.name, *([assignment.relevance] if assignment.relevance else [])]
    for features in structure.features:
        # The step of normal projections is given the latent vectors and their precision.
        names += [*([features.precision] if features.precision else []), features.latent]
        names += [d.projection for d in features.domains if d.update]
        names += [parameter.name for parameter in features.parameters]
    # Steps of what the priors of normal clusters depend on are given their parameters.
    names += [
        name
        for c in structure.components
        for own in c.normals
        for normals in own
        if normals.observed
        for name in normals.names
    ]
    natural = natural_function(model, names)
    # Steps of their own: those that sample have their state to themselves.
    ours = steps(model)
    points = []
    with (
        threadpool_limits(1, user_api="blas"),
        SearchProgress(len(rngs), progressbar, after=PATIENCE) as progress,
    ):
        for rng in rngs:
            chain = searched(model, ours, dispersed_point(model, structure, start, rng), rng)
            points.append(dict(zip(names, natural(chain.point), strict=True)))
            progress.advance()
    return points


def sample(
    draws: int = 1000,
    *,
    model: Model | None = None,
    chains: int | None = 4,
    random_seed: Any = None,
    step: Any = None,
    initvals: Any = None,
    init: str = "search",
    compute_convergence_checks: bool = True,
    **kwargs: Any,
) -> xr.DataTree:
    """Sample a matching model.

    This is `pm.sample` with our steps, searched starts, and convergence checks fit for labels.

    Takes the arguments of `pm.sample`. What differs:

    - our steps sample what they serve (see `steps`), PyMC's own the rest;
    - chains start at `initial_points`, unless `initvals` says otherwise: every chain at the mode
      that a search of its own finds, which takes some seconds;
    - labels mean nothing across draws and chains, so convergence is judged as `diagnose` does, on
      quantities that do not depend on them, and on every variable that our steps do not draw; its
      advice is logged;
    - there are four chains by default, as these checks need.

    Parameters
    ----------
    draws : int, default 1000
    model : pymc.Model, optional
        Default: the model of the context.
    chains : int, default 4
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        The same seed gives the same draws, bit for bit, whatever `cores` is.
    step : step or list of steps, optional
        Steps of your own; ours take what these leave.
    initvals : dict or list of dict, optional
        Starts, in the form of `pm.sample`.
    init : {"search", "dispersed"}, default "search"
        What chains start from without `initvals`: see `initial_points`. (PyMC's own `init` is of
        models that NUTS samples whole.)
    compute_convergence_checks : bool, default True
    **kwargs
        Passed to `pm.sample`.

    Returns
    -------
    DataTree
        As from `pm.sample`. ``posterior.attrs["projections"]`` says how projections were found:
        ``"map"`` makes the chain the papers' stochastic EM, ``"drawn"`` a Markov chain Monte Carlo
        sample. Every assignment's ``attrs["clusters"]`` names its set of clusters: labels of
        different sets are not to be compared.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    ValueError
        If `init` is neither.

    Warns
    -----
    UserWarning
        If a part of the model is left to PyMC, or if the draws fill the truncation.
    """
    model = modelcontext(model)
    structure = read(model)
    given = [] if step is None else list(step) if isinstance(step, Sequence) else [step]
    ours = steps(model, given=given)
    if structure.refusals:
        warnings.warn(
            f"left to PyMC's own steps: {structure.explain()}.", UserWarning, stacklevel=2
        )
    chains = 4 if chains is None else chains
    _check_init(init)
    if initvals is None:
        shown = bool(kwargs.get("progressbar", True)) and not kwargs.get("quiet")
        initvals = initial_points(model, chains, random_seed, init=init, progressbar=shown)
    # The steps' matrices are small: threads of BLAS would only get in each other's way.
    with model, threadpool_limits(1, user_api="blas"):
        idata = pm.sample(
            draws,
            step=[*given, *ours],
            chains=chains,
            random_seed=random_seed,
            initvals=initvals,
            compute_convergence_checks=False,
            **kwargs,
        )
    if not isinstance(idata, xr.DataTree):
        return idata
    annotate(idata, structure, [*given, *ours])
    _warn_if_full(idata, model)
    if compute_convergence_checks and not kwargs.get("quiet"):
        log_warnings(convergence_warnings(idata, model))
    return idata


def annotate(idata: xr.DataTree, structure: Structure, used: Sequence[Any]) -> None:
    """Say in a DataTree's attributes what its variables are, and how they were found.

    Labels and flags are stored in 32 bits, which is half of what sampling took.
    """
    by_map = any(isinstance(step, ProjectionMAP) for step in used)
    posterior = idata["posterior"]
    posterior.attrs["projections"] = "map" if by_map else "drawn"
    for clustering in structure.all_clusterings:
        for assignment in clustering.assignments:
            for name in (assignment.name, assignment.relevance):
                if name and name in posterior:
                    posterior[name] = posterior[name].astype(np.int32)
            if assignment.name in posterior:
                # Labels of different sets, documents' and words', are not to be compared.
                posterior[assignment.name].attrs["clusters"] = clustering.title
    for component in structure.components:
        for relation in component.relations:
            for name in relation.density:
                if relation.symmetric and name in posterior:
                    # Below the diagonal nothing depends on them; 1, as netCDF knows no True.
                    posterior[name].attrs["symmetric"] = 1


def invariants(idata: xr.DataTree, model: Model | None = None) -> xr.Dataset:
    """Collect what a chain's convergence can be judged on: quantities that no relabelling changes.

    Parameters
    ----------
    idata : DataTree
        From `sample`.
    model : pymc.Model, optional
        Default: the model of the context.

    Returns
    -------
    Dataset
        The collapsed log joint, the number of occupied clusters, precisions, and all free variables
        that our steps do not draw.
    """
    model = modelcontext(model)
    posterior, stats = idata["posterior"], idata["sample_stats"]
    structure = read(model)
    bound = {name for c in structure.components for name in c.collapsed}
    bound |= {d.projection for f in structure.features for d in f.domains if d.update}
    bound |= {p.name for f in structure.features for p in f.parameters if p.update in _TURNING}
    bound |= {name for part in structure.parts for name in getattr(part, "turning", ())}
    # What no relabelling changes may stay: numbers, but not what there is one of for each cluster.
    bound -= {f.precision for f in structure.features if f.precision}
    bound -= {name for c in structure.clusterings for name in c.probabilities if name}
    bound -= {name for c in structure.components for r in c.relations for name in r.noise}
    chosen = {name: stats[name] for name in _TOLD if name in stats}
    for rv in model.free_RVs:
        if rv.name in posterior and rv.name not in bound:
            chosen[rv.name] = posterior[rv.name]
    return xr.Dataset(chosen)


def convergence_warnings(idata: xr.DataTree, model: Model) -> list[SamplerWarning]:
    """Judge convergence as `diagnose` does, and on `invariants`; what it says, as PyMC's warnings.

    That the truncation is full is warned of elsewhere.
    """
    found = [*warn_divergences(idata), *warn_treedepth(idata)]
    also = [str(name) for name in invariants(idata, model) if name in idata["posterior"]]
    diagnosis = diagnose(_conventional(idata, model), also=also)
    sizes = idata["posterior"].sizes
    level = "info" if sizes["draw"] < FEW_DRAWS or sizes["chain"] == 1 else "warn"
    return found + [
        SamplerWarning(WarningType.CONVERGENCE, message, level) for message in diagnosis.convergence
    ]


def _conventional(idata: xr.DataTree, model: Model) -> xr.DataTree:
    """Call assignments and their relevance by the names that summaries look for."""
    posterior = idata["posterior"].to_dataset()
    names = {}
    for clustering in read(model).all_clusterings:
        for assignment in clustering.assignments:
            own = assignment.name.removeprefix(PREFIX)
            names[assignment.name] = PREFIX + own
            if assignment.relevance:
                names[assignment.relevance] = RELEVANCE + own
    # Dims that were not named in the model are named after their variables.
    names |= {f"{old}_dim_0": f"{new}_dim_0" for old, new in names.items()}
    there = {*posterior.variables, *posterior.dims}
    renamed = {old: new for old, new in names.items() if old in there and new not in there}
    return xr.DataTree.from_dict(
        {"posterior": posterior.rename(renamed), "sample_stats": idata["sample_stats"]}
    )


def _warn_if_full(idata: xr.DataTree, model: Model) -> None:
    """Warn if draws use every cluster that a truncated stick-breaking has."""
    if "filled" not in idata["sample_stats"]:
        return
    filled = idata["sample_stats"]["filled"]
    full = float((filled >= 1.0).mean())
    truncated = [c for c in read(model).all_clusterings if not c.finite]
    if full > 0 and truncated:
        # With several components, the statistic has one entry for each.
        one = truncated[0] if len(truncated) == 1 else None
        which = (
            f"all {one.truncation} clusters of {one.weights!r} are"
            if one
            else f"all clusters of one of {', '.join(repr(c.weights) for c in truncated)} are"
        )
        warnings.warn(
            f"the draws fill the truncation: {which} occupied in {full:.0%} of the draws. Declare "
            "more clusters; if they fill too, the model may be too simple for these data.",
            UserWarning,
            stacklevel=3,
        )
