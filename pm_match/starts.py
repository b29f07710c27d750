"""Where chains start."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model, modelcontext
from pymc.step_methods.compound import BlockedStep
from pymc.util import get_random_generator

from pm_match.checks import check_count, check_option, check_seed, type_name
from pm_match.clusters.cluster_gibbs import random_labels
from pm_match.clusters.units import units
from pm_match.progress import PATIENCE, SearchProgress
from pm_match.reading import read
from pm_match.reading.ancestry import RV
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Structure, UnservedModelError
from pm_match.reading.probe import (
    Reader,
    compiled,
    entered_density,
    initial_point,
    natural_function,
    starts,
    with_values,
    without_c,
)
from pm_match.running.runs import runs
from pm_match.search.chain import Chain
from pm_match.search.recipe import ahead, searched
from pm_match.serving import steps

_INITS = ("search", "dispersed")
# Starts that are tried until one has a density, as many as PyMC tries.
_MOST_JITTERS = 10


@without_c()
def initial_points(
    model: Model | None = None,
    chains: int = 4,
    random_seed: Any = None,
    *,
    init: str = "search",
    progressbar: bool = True,
    cores: int | None = None,
    executor: Executor | None = None,
) -> list[dict[str, NDArray]]:
    """Make starts that differ, one for every chain.

    Without NUTS, PyMC starts all chains at one point, with every object in the first cluster. Here
    each chain gets its own start, from its own seed:

    - ``"search"``: the mode that the chain's own search finds (see `find_matching`). If the chains'
      modes differ, compare them by log joint.
    - ``"dispersed"``: labels drawn uniformly (linked objects share theirs), all objects relevant,
      and projections drawn from their normal prior or, where that is flat, small noise.

    Other variables that our steps do not draw start jittered, as PyMC does for NUTS: anew, up to
    ten times, where there is no density.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    chains : int, default 4
    random_seed : int, sequence of int, Generator or SeedSequence, optional
    init : {"search", "dispersed"}, default "search"
    progressbar : bool, default True
        Whether searches of more than two seconds show one.
    cores, executor : optional
        Where searches run, as in `find_matching`.

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

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> points = pmm.initial_points(model, 2, random_seed=1, init="dispersed", progressbar=False)
    >>> sorted(points[0])
    ['cluster_a', 'cluster_b', 'projection_a', 'projection_b']
    """
    model = modelcontext(model)
    check_count("chains", chains, 1)
    check_init(init)
    check_seed(random_seed)
    structure = read(model)
    if structure.empty:
        raise UnservedModelError(f"no starts to disperse in this model: {structure.explain()}.")
    # PyMC gives the first `chains` children of the seed to the chains: the next is ours.
    own = get_random_generator(random_seed).spawn(chains + 1)[-1]
    rngs, others = own.spawn(chains), own.spawn(chains)
    start = initial_point(model)
    served = {name for c in structure.components for name in c.collapsed}
    served |= {name for part in structure.parts for name in part.names}
    served |= set(_dispersed(structure, start, np.random.default_rng(0)))
    if init == "search":
        served |= set(structure.hyperparameters)
    jittered = {
        rv for rv in model.free_RVs if rv.name not in served and rv.dtype.startswith("float")
    }
    names = sorted(rv.name for rv in jittered)
    natural = natural_function(model, names)
    jitter = starts(model, jittered) if jittered else None

    def drawn(rng: np.random.Generator) -> dict[str, NDArray]:
        point: dict[str, NDArray] = {}
        # Parts are told where the rest of their chain starts.
        here = start
        if jitter is not None:
            there = jitter(int(rng.integers(2**30)))
            values = [model.rvs_to_values[model[name]].name for name in names]
            here = start | {name: np.asarray(there[name]) for name in values}
            point |= dict(zip(names, natural(here), strict=True))
        for part in structure.parts:
            point |= part.start(rng, here)
        return point | _dispersed(structure, start, rng)

    points = [drawn(rng) for rng in rngs]
    found: list[dict[str, NDArray]] = [{} for _ in rngs]
    if init == "search" and structure.components:
        with SearchProgress(len(rngs), progressbar, after=PATIENCE) as progress:
            for number, point in runs(_Start(model), rngs, executor=executor, cores=cores):
                found[number] = point
                progress.advance()
    points = [point | best for point, best in zip(points, found, strict=True)]
    if jitter is not None:
        possible = _density_at(model, start, jittered)
        for number, (rng, best) in enumerate(zip(others, found, strict=True)):
            for _ in range(_MOST_JITTERS):
                if possible(points[number]):
                    break
                points[number] = drawn(rng) | best
    return points


def _density_at(
    model: Model, start: Point, jittered: Iterable[RV]
) -> Callable[[Mapping[str, NDArray]], bool]:
    """Make what says whether all that is jittered has a density, given values by variable."""
    read, _ = compiled(model, [entered_density(model, jittered)])

    def possible(values: Mapping[str, NDArray]) -> bool:
        try:
            with np.errstate(all="ignore"):
                return bool(np.isfinite(read(with_values(model, start, values))[0]))
        except ParameterValueError:
            return False

    return possible


def check_init(init: str) -> None:
    """Refuse an `init` that is none."""
    check_option("init", init, _INITS)


def check_initvals(model: Model, initvals: Any, chains: int) -> None:
    """Refuse starts of one's own that are no values of the variables that they name.

    `initvals`: by variable or its name; what PyMC makes numbers of itself ("prior", a graph) is
    left to it. Raise `TypeError, ValueError` if there are not as many as chains, a name is none of
    a free variable's, or a value has another shape, or numbers that the variable cannot have.
    """
    if isinstance(initvals, Mapping):
        initvals = [initvals]
    elif not isinstance(initvals, Sequence) or len(initvals) != chains:
        raise ValueError(
            f"initvals: expected a dict, or one for each of {chains} chains; found "
            f"{len(initvals) if isinstance(initvals, Sequence) else type_name(initvals)}"
        )
    given: dict[str, list[NDArray]] = {}
    names = {rv.name for rv in model.free_RVs}
    sampled = {model.rvs_to_values[rv].name for rv in model.free_RVs}
    for own in initvals:
        for key, value in (own or {}).items():
            name = getattr(key, "name", key)
            if name not in names | sampled:
                raise ValueError(
                    f"initvals: expected names of free variables, which are {sorted(names)}; found "
                    f"{name!r}"
                )
            # A graph has an owner, or could have one.
            if not isinstance(value, str) and not hasattr(value, "owner"):
                given.setdefault(name, []).append(np.asarray(value))
    start = initial_point(model)
    natural = [name for name in given if name in names]
    like = start | dict(zip(natural, natural_function(model, natural)(start), strict=True))
    n_labels = {
        name: n
        for clustering in read(model).clusterings
        for own in clustering.assignments
        for name, n in own.n_labels(clustering.truncation).items()
    }
    for name, values in given.items():
        for value in values:
            _check_initval(name, value, np.asarray(like[name]))
            # What depends on labels is looked up before a step sees them.
            if name in n_labels and not 0 <= value.min() <= value.max() < n_labels[name]:
                raise ValueError(
                    f"initvals: {name!r}: expected labels in 0 ... {n_labels[name] - 1}; found "
                    f"{value.min()} to {value.max()}"
                )


def _check_initval(name: str, value: NDArray, like: NDArray) -> None:
    if value.shape != like.shape:
        raise ValueError(
            f"initvals: expected an array of shape {like.shape} of {name!r}; found {value.shape}"
        )
    if value.dtype.kind not in "buif":
        raise TypeError(f"initvals: expected numbers of {name!r}; found dtype {value.dtype}")
    whole = like.dtype.kind in "biu"
    fine = np.isfinite(value) & (not whole or value == np.floor(value))
    if not fine.all():
        expected = "whole" if whole else "finite"
        raise ValueError(
            f"initvals: expected {expected} numbers of {name!r}; found {value[~fine][0]}"
        )


def _dispersed(structure: Structure, start, rng: np.random.Generator) -> dict[str, NDArray]:
    """Draw labels, flags and projections that favour no matching, by variable."""
    point: dict[str, NDArray] = {}
    for clustering in structure.clusterings:
        grouped = units(clustering.n_objects, clustering.links)
        labels = clustering.respected(random_labels(rng, grouped, clustering.truncation))
        for assignment, label in clustering.by_assignment(labels):
            point |= assignment.values(label)
            if assignment.relevance:
                point[assignment.relevance] = np.ones(len(label), np.int64)
    for evidence in structure.evidence:
        point |= evidence.dispersed(rng, start)
    return point


class Search:
    """Searches of a model, each from a dispersed start of labels, flags and projections.

    What they need besides the model is made where they run: the model alone is pickled.
    """

    def __init__(self, model: Model):
        self.model = model

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model}

    @cached_property
    def steps(self) -> list[BlockedStep]:
        """Steps of their own: those that sample have their state to themselves."""
        found = steps(self.model)
        ahead(self.model)
        return found

    @cached_property
    def _initial(self) -> Point:
        return initial_point(self.model)

    @property
    def structure(self) -> Structure:
        """What was read of the model."""
        return read(self.model)

    def dispersed(self, rng: np.random.Generator) -> Point:
        """Put a dispersed start into a point of value variables."""
        values = _dispersed(self.structure, self._initial, rng)
        return with_values(self.model, self._initial, values)

    def from_dispersed(self, rng: np.random.Generator) -> Chain:
        """Search once; return the chain at the mode that was found."""
        return searched(self.model, self.steps, self.dispersed(rng), rng)


class _Start(Search):
    """Searches for starts: values by variable that steps do not draw from nothing."""

    @cached_property
    def _natural(self) -> tuple[list[str], Reader]:
        structure = self.structure
        names = structure.hyperparameters
        for clustering in structure.clusterings:
            for assignment in clustering.assignments:
                names += assignment.variables
        names += [name for own in structure.evidence for name in own.handed_on]
        return names, natural_function(self.model, names)

    def __call__(self, rng: np.random.Generator) -> dict[str, NDArray]:
        names, natural = self._natural
        return dict(zip(names, natural(self.from_dispersed(rng).point), strict=True))
