"""The best matching of many searches."""

import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import to_inference_data
from pymc.backends.base import MultiTrace
from pymc.exceptions import SamplingError
from pymc.model.core import Model
from pymc.util import get_random_generator

from pm_match.checks import check_count, check_seed, model_to_draw, warn
from pm_match.matching.draws import FLAGS
from pm_match.metrics import adjusted_rand_index
from pm_match.progress import PATIENCE, SearchProgress, saying, silent
from pm_match.reading import read
from pm_match.reading.parts import Structure
from pm_match.reading.probe import without_c
from pm_match.results import annotate
from pm_match.running.draws import Draws
from pm_match.running.runs import runs
from pm_match.search.chain import Chain
from pm_match.starts import Search

# Starts that end so near in log joint, or agree so well, have found the same mode.
_SAME_LOG_JOINT = 3.0
_SAME_MATCHING = 0.99

Labels = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class _Mode:
    """What one start found: labels are those of every assignment, -1 for irrelevant objects."""

    point: dict[str, NDArray]
    labels: Labels
    log_joint: float
    n_occupied: int
    seconds: float


class _Start(Search):
    """Searches that say what they have found."""

    def __call__(self, rng: np.random.Generator) -> _Mode:
        begin = time.perf_counter()
        chain = self.from_dispersed(rng)
        seconds = time.perf_counter() - begin
        return _Mode(chain.point, _labels(chain), chain.log_joint(), chain.n_occupied(), seconds)


@without_c()
def find_matching(
    model: Model | None = None,
    *,
    starts: int = 4,
    random_seed: Any = None,
    progressbar: bool = True,
    cores: int | None = None,
    executor: Executor | None = None,
) -> xr.DataTree:
    """Search for the best matching: the mode of the collapsed log joint.

    This is to matchings what `pm.find_MAP` is to continuous parameters. It returns the assignments
    and relevance with the highest joint probability that several independent searches find, with
    all that the steps can integrate out integrated out. A mode does not say how sure it is: for
    that, `sample`, whose chains start where such searches end.

    Networks are clustered on their own, and aligned: given one type's clusters, those of the other
    are a linear assignment; sweeps, and moves of whole clusters, refine that. Variables that our
    steps do not draw keep their initial values.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    starts : int, default 4
        Independent searches.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        The same seed gives the same result, bit for bit, wherever searches run.
    progressbar : bool, default True
    cores : int, optional
        How many processes of this machine search at once. Default: as many as it has processors.
        Only Linux has more than one.
    executor : concurrent.futures.Executor, optional
        Where to search instead: on a pool of processes, or a Dask cluster. The model is sent there
        by cloudpickle.

    Returns
    -------
    DataTree
        Group `posterior` has one chain with one draw, the best start's, in the form of `sample`:
        all summaries take it. Weights, densities and other parameters are drawn from their
        conditional given the matching. Group `sample_stats` has `log_joint`, the collapsed log
        joint with the log density of the hyperparameters and of normal projections, and
        `n_occupied`. Group `starts` is for diagnosis: for every `start` the same two, `seconds`,
        all assignments, with -1 for irrelevant objects, and which objects are relevant; and
        `agreement` (start, other_start), the adjusted Rand index of two starts' labels of all
        objects of a set of clusters, averaged over the sets. Where starts disagree,
        ``partition_estimate(idata, loss="ari", group="starts", sample_dims=["start"])`` agrees most
        with all of them.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    TypeError
        If `executor` is none, or the model cannot be pickled.
    ValueError
        If `starts` or `cores` is less than 1.
    RuntimeError
        If workers die again and again, or have other versions than this process.
    pymc.exceptions.SamplingError
        If no start finds labels that are possible.

    Warns
    -----
    UserWarning
        If of several starts only one found the best mode, or if a part of the model is left to
        PyMC; if it is interrupted (Ctrl-C), when the best of the finished starts is returned, if
        there is one.

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
    model = model_to_draw(model)
    check_count("starts", starts)
    check_seed(random_seed)
    if cores is not None:
        check_count("cores", cores)
    search = _Start(model)
    with silent(not progressbar):
        with saying("Reading the model"):
            structure = read(model)
        ours = search.steps
    if structure.refusals:
        warn(f"left as it is, since no step of ours serves it: {structure.explain()}.")
    done: dict[int, _Mode] = {}
    with SearchProgress(starts, bool(progressbar), after=PATIENCE) as progress:
        rngs = get_random_generator(random_seed).spawn(starts)
        try:
            for number, own in runs(search, rngs, executor=executor, cores=cores):
                done[number] = own
                progress.advance(max(own.log_joint for own in done.values()))
        except KeyboardInterrupt:
            if not done:
                raise
            warn(f"interrupted: the best of {len(done)} finished starts, of {starts}.")
    ends = [done[number] for number in sorted(done)]
    log_joints = np.array([own.log_joint for own in ends])
    winner = int(np.argmax(log_joints))
    if log_joints[winner] == -np.inf:
        raise SamplingError(
            "find_matching: expected a start that finds labels that are possible; found none of "
            f"{len(ends)}: try more starts, or say less of what cannot be"
        )
    agreement = _agreement(structure, [own.labels for own in ends])
    _warn_if_alone(log_joints, agreement, winner)
    best = ends[winner]
    found = one_draw(
        model, best.point, {"log_joint": best.log_joint, "n_occupied": best.n_occupied}
    )
    annotate(found, model, ours)
    found["starts"] = xr.DataTree(_diagnosis(found["posterior"], ends, agreement))
    return found


def _labels(chain: Chain) -> Labels:
    """Labels of every assignment, -1 for irrelevant objects."""
    found: Labels = {}
    for number, component in enumerate(chain.components):
        for clustering, label in zip(component.clusterings, chain.labels(number), strict=True):
            for own, part in clustering.by_assignment(label):
                found |= own.by_variable(part)
    return found


def _agreement(structure: Structure, labels: list[Labels]) -> NDArray[np.float64]:
    """Compute how well every two starts agree, on average over the sets of clusters."""
    found = np.ones((len(labels), len(labels)))
    every = [[name for name in own if name in labels[0]] for own in structure.sets.values()]
    # One object alone is in the same cluster whatever its label.
    sets = [own for own in every if sum(len(labels[0][name]) for name in own) > 1]
    for i, one in enumerate(labels if sets else []):
        for j, other in enumerate(labels[:i]):
            by_set = [
                adjusted_rand_index(
                    {name: one[name] for name in names}, {name: other[name] for name in names}
                )
                for names in sets
            ]
            found[i, j] = found[j, i] = np.mean(by_set)
    return found


def _warn_if_alone(log_joints, agreement, winner: int) -> None:
    """Warn if of several starts only the best found its mode."""
    near = log_joints >= log_joints[winner] - _SAME_LOG_JOINT
    same = near | (agreement[winner] > _SAME_MATCHING)
    if len(log_joints) > 1 and same.sum() == 1:
        next_best = np.delete(log_joints, winner).max()
        warn(
            f"only one of {len(log_joints)} starts found the best matching, whose log joint is "
            f"{log_joints[winner] - next_best:.1f} above the next: there may be better ones. Try "
            "more starts; group 'starts' of the result compares them."
        )


def one_draw(model: Model, point, stats) -> xr.DataTree:
    """Bring one point, and numbers to say of it, into the form in which PyMC returns draws."""
    dtypes = {name: np.asarray(value).dtype.type for name, value in stats.items()}
    ordered = {value.name: point[value.name] for value in model.value_vars}
    trace = Draws(model=model, test_point=ordered)
    trace.setup(1, 0, [dtypes])
    trace.record(ordered, [stats], in_warmup=False)
    trace.close()
    return to_inference_data(MultiTrace([trace]), model=model, save_warmup=False)


def _diagnosis(posterior, ends: list[_Mode], agreement) -> xr.Dataset:
    """Collect what every start found."""
    variables: dict[str, Any] = {
        name: ("start", [getattr(own, name) for own in ends])
        for name in ("log_joint", "n_occupied", "seconds")
    }
    variables["agreement"] = (("start", "other_start"), agreement)
    coords: dict[Any, Any] = {"start": np.arange(len(ends)), "other_start": np.arange(len(ends))}
    for name in ends[0].labels:
        (dim,) = (d for d in posterior[name].dims if d not in ("chain", "draw"))
        attrs = posterior[name].attrs
        labels = np.stack([own.labels[name] for own in ends])
        variables[name] = (("start", dim), labels, attrs)
        if FLAGS in attrs:
            variables[attrs[FLAGS]] = (("start", dim), (labels >= 0).astype(np.int8))
        if dim in posterior.coords:
            coords[dim] = posterior[dim]
    return xr.Dataset(variables, coords)
