"""`pm.sample` with a matching model's steps, starts that differ, and checks that mean something."""

import inspect
import json
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pymc.backends import NDArray as Trace
from pymc.model.core import Model
from pymc.stats.convergence import log_warnings
from threadpoolctl import threadpool_limits

from pm_match.checks import (
    check_count,
    check_counts,
    check_positive,
    check_seed,
    did_you_mean,
    model_to_draw,
    type_name,
    warn,
)
from pm_match.landmarks import add_counts, choose_landmarks, landmarks_of
from pm_match.matching.memory import gibibytes, limit
from pm_match.progress import SearchProgress, drawn_over, saying, silent
from pm_match.reading import read
from pm_match.reading.probe import without_c
from pm_match.results import annotate, convergence_warnings, stored_types, warn_if_full
from pm_match.running.chain import ChainSteps, all_steps, asked_less
from pm_match.running.checkpoint import Checkpoint, fingerprint, seed_state, settings
from pm_match.running.draws import Draws
from pm_match.running.interrupt import Interrupt
from pm_match.running.runs import check_executor, runs
from pm_match.serving import steps
from pm_match.starts import check_init, check_initvals, initial_points

# PyMC's: what it says of its steps is said there.
_log = logging.getLogger("pymc")

# What PyMC takes that no draw depends on: `resume` may be given others.
_NOT_OF_DRAWS = {
    "callback",
    "cores",
    "discard_tuned_samples",
    "idata_kwargs",
    "mp_ctx",
    "progressbar",
    "progressbar_theme",
    "quiet",
    "return_inferencedata",
    "trace",
    "var_names",
}
_DRAWS = 1000  # of a chain, by default
_OF_PYMC = set(inspect.signature(pm.sample).parameters) - {"kwargs"}


def sample(
    model_or_draws: Model | int | None = None,
    /,
    *,
    draws: int = _DRAWS,
    tune: int = 1000,
    model: Model | None = None,
    chains: int | None = 4,
    cores: int | None = None,
    random_seed: Any = None,
    step: Any = None,
    initvals: Any = None,
    init: str = "search",
    compute_convergence_checks: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 60.0,
    thin: int = 1,
    executor: Executor | None = None,
    record: Any = "all",
    **kwargs: Any,
) -> xr.DataTree:
    """Sample a matching model.

    It takes the arguments of `pm.sample`, and differs from it as follows:

    - Our step methods sample what they can (see `steps`), PyMC's the rest.
    - Each chain starts at the mode that its own search finds (see `initial_points`), which takes
      some seconds, unless `initvals` is given.
    - Convergence is checked as in `diagnose`: on quantities that do not depend on the numbers of
      clusters, and on every variable that our steps do not draw. Advice is logged.
    - There are four chains by default, which these checks need.
    - Ctrl-C stops all chains after the current draw and returns what they have. A second Ctrl-C,
      or one before the first draw, raises KeyboardInterrupt at once.
    - With `executor`, searches and chains run there: on a pool of processes, or a cluster.
    - With `checkpoint`, a run that is killed can be resumed (see `resume`).

    Parameters
    ----------
    model_or_draws : pymc.Model or int, optional
        What comes first, without a name: the model, as of `find_matching`, or the number of draws,
        as of `pm.sample`.
    draws, tune : int, default 1000
        Draws of each chain, and iterations before them, which are not kept.
    model : pymc.Model, optional
        Default: the model of the context.
    chains : int, default 4
    cores : int, optional
        How many searches and chains run at a time. Default: as PyMC's.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
        The same seed gives the same draws, bit for bit, whatever `cores` and `executor` are. What
        NUTS draws may differ by rounding if the same model object is sampled again, or sent to an
        executor, as PyTensor compiles it anew.
    step : step or list of steps, optional
        Your own steps. Ours are chosen for the variables that are left.
    initvals : dict or list of dict, optional
        Starts, in the form of `pm.sample`.
    init : {"search", "dispersed"}, default "search"
        Where chains start without `initvals`: see `initial_points`. (This is not PyMC's `init`,
        which initialises NUTS.)
    compute_convergence_checks : bool, default True
    checkpoint : str or path, optional
        A new or empty folder in which to save the run. The draws are the same, bit for bit, as
        without one.
    every : float, default 60.0
        Seconds between two saves of each chain.
    thin : int, default 1
        Keep every `thin`-th draw alone: all that is returned takes so many times less memory, as do
        summaries. `draws` and `tune` count those that are made.
    executor : concurrent.futures.Executor, optional
        Where to search, and to run whole chains. The model and `step` are sent there by
        cloudpickle, and draws come back when a chain has ended: Ctrl-C returns the chains that
        have. Default: in processes of this machine, as many as `cores` says; searches are in one
        process where none can be forked (all but Linux).
    record : "all", int, or dict of str to list, default "all"
        What is kept of labels: those of all draws, or counts with some objects of every domain, the
        landmarks, whose memory does not grow with the number of draws. A number of landmarks for
        each domain, which the seed draws; or their names by domain.
    **kwargs
        Passed to `pm.sample`.

    Returns
    -------
    DataTree
        As from `pm.sample`. ``posterior.attrs["projections"]`` says how projections were found:
        ``"map"`` makes the chain the papers' stochastic EM, ``"drawn"`` a Markov chain Monte Carlo
        sample. Each assignment's ``attrs["clusters"]`` names its set of clusters. Do not compare
        labels of different sets. Labels have 16 bits (32 with more than 32,768 clusters), flags of
        relevance 8: cast them before you compute with them.

        With landmarks, the posterior has ``size_<domain>``, the objects of a domain in each
        cluster, in place of labels. The group ``landmarks`` has the labels of landmarks; and of
        every chain, in how many of its ``n_draws`` an object shares a cluster with each landmark
        (``together_<domain>_with_<domain>``), and has no counterpart in other domains
        (``unmatched_<domain>``). Chains that were cut when they were interrupted are counted whole.

    Raises
    ------
    UnservedModelError
        If no part of the model is one that the steps can serve.
    pymc.exceptions.SamplingError
        If a chain has found no labels that are possible when it is warmed up.
    ValueError
        If `init` is neither, `initvals` has another shape than its variable, or a value that the
        variable cannot have, `var_names` names none of the model's, `nuts_sampler` is not PyMC's,
        `draws` or `tune` is no multiple of `thin`, or `record` is not as described.
    KeyError
        If `record` names a domain that there is not.
    KeyboardInterrupt
        If it is interrupted before any chain has a draw after tuning, or twice.
    TypeError
        If an argument is misspelt, if draws of a run with a `checkpoint` depend on an argument
        that cannot be saved, if the model cannot be pickled for an `executor`, if there is an
        argument that chains cannot have there or with landmarks, if `idata_kwargs` ask for log
        densities of variables that are not kept, or if `trace` is PyMC's ZarrTrace, or its NDArray
        with more than one chain.
    FileExistsError
        If there is anything in the folder `checkpoint`.
    OSError
        If that folder cannot be written at the start. If writing fails later (a full disk),
        sampling goes on, tries again, and warns.
    RuntimeError
        If workers of an `executor` die again and again, or have other versions than this process.

    Warns
    -----
    UserWarning
        If a part of the model is left to PyMC, if the draws will take more than 4 GiB (or what the
        environment variable ``PM_MATCH_MEMORY`` says), if they fill the truncation, or if it was
        interrupted: then chains are cut to the length that keeps most draws, and those that
        have fewer are left out.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.sample(model, draws=50, tune=50, chains=2, cores=1, random_seed=1, quiet=True,
    ...                    compute_convergence_checks=False)
    >>> dict(idata["posterior"]["cluster_a"].sizes)
    {'chain': 2, 'draw': 50, 'a_object': 60}
    """
    _check_spelling(kwargs)
    model, draws = _told(model_or_draws, model, draws)
    chains = 4 if chains is None else chains
    check_counts(draws=draws, chains=chains, cores=1 if cores is None else cores)
    check_count("tune", tune, 0)
    kwargs |= {"tune": tune} if cores is None else {"tune": tune, "cores": cores}
    check_init(init)
    sampler = kwargs.get("nuts_sampler", "pymc")
    if sampler != "pymc":
        raise ValueError(
            f"nuts_sampler: expected 'pymc', as others draw all of a model; found {sampler!r}"
        )
    check_seed(random_seed)
    if isinstance(random_seed, np.ndarray):
        random_seed = random_seed.tolist()
    if isinstance(kwargs.get("var_names"), str):
        kwargs["var_names"] = [kwargs["var_names"]]
    draws, kwargs = _thinned(draws, kwargs, thin)
    if initvals is not None:
        check_initvals(model, initvals, chains)
    if executor is not None:
        _check_elsewhere(executor, checkpoint, kwargs)
    given, ours = _steps(model, step, kwargs)
    landmarks = choose_landmarks(model, read(model), record, random_seed)
    _check_kept(model, kwargs, chains, landmarks)
    if checkpoint is None:
        run = _Run(draws, chains, random_seed, init, initvals, kwargs, thin, landmarks)
    else:
        check_positive("every", every)
        asked = {
            "draws": draws,
            "chains": chains,
            "thin": thin,
            "landmarks": landmarks,
            "init": init,
            "every": float(every),
            "seed": seed_state(random_seed),
            "kwargs": _kept(kwargs),
            "model": fingerprint(model),
            "steps": settings(given),
        }
        run = _Run.of(Checkpoint.create(checkpoint, asked, initvals), kwargs)
    return _sample(model, run, [*given, *ours], compute_convergence_checks, executor, step)


def resume(
    checkpoint: str | os.PathLike[str],
    *,
    model: Model | None = None,
    draws: int | None = None,
    step: Any = None,
    compute_convergence_checks: bool = True,
    **kwargs: Any,
) -> xr.DataTree:
    """Resume a run of `sample` with a `checkpoint` that was killed or interrupted.

    On the same machine, with the same versions of all packages, the draws and sampler statistics
    (but for times) are those of an uninterrupted run, bit for bit. A run that had ended is returned
    as it was, or extended.

    Parameters
    ----------
    checkpoint : str or path
        The folder.
    model : pymc.Model, optional
        The model, which is not saved in the folder. Default: the model of the context.
    draws : int, optional
        Draws that each chain makes. Default: as many as `sample` was asked for.
    step : step or list of steps, optional
        The steps that `sample` was given, made anew. They must keep all that they change from draw
        to draw in their `sampling_state`.
    compute_convergence_checks : bool, default True
    **kwargs
        Arguments on which no draw depends: `cores`, `progressbar`, `quiet`, `callback`,
        `idata_kwargs` and so on. The others are as they were.

    Returns
    -------
    DataTree
        As from `sample`.

    Raises
    ------
    FileNotFoundError
        If there is no run in the folder.
    ValueError
        If the model, the steps or the versions differ, or a file was not written by `sample`. No
        code in the folder is run, and nothing is unpickled.
    TypeError
        If an argument is given on which draws depend.

    Warns
    -----
    UserWarning
        If a file is damaged: draws from there on are drawn again. Otherwise as `sample`.

    Examples
    --------
    >>> import tempfile
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> folder = tempfile.mkdtemp()
    >>> idata = pmm.sample(
    ...     10, tune=9, chains=2, cores=1, model=model, random_seed=1, checkpoint=folder, quiet=True
    ... )
    >>> longer = pmm.resume(folder, draws=20, model=model, quiet=True)
    >>> dict(longer["posterior"]["cluster_a"].sizes)
    {'chain': 2, 'draw': 20, 'a_object': 60}
    """
    model = model_to_draw(model)
    others = sorted(kwargs.keys() - _NOT_OF_DRAWS)
    if others:
        raise TypeError(
            f"resume: expected no arguments that the run has already; found {', '.join(others)}."
        )
    folder = Checkpoint.open(checkpoint)
    kwargs = folder.run["kwargs"] | kwargs
    given, ours = _steps(model, step, kwargs)
    folder.check(fingerprint(model), settings(given))
    _check_kept(model, kwargs, folder.run["chains"], folder.run.get("landmarks"))
    saved = folder.check_draws()
    if draws is None:
        draws = folder.run["draws"]
    else:
        draws, _ = _thinned(draws, {"tune": 0}, folder.run.get("thin", 1))
    if draws != folder.run["draws"] or not folder.ended:
        folder.check_versions()
    folder.extend(draws)
    if not kwargs.get("quiet"):
        _log.info(f"On disk, tuning included: {_enumerated(saved)} draws of the chains.")
    return _sample(model, _Run.of(folder, kwargs), [*given, *ours], compute_convergence_checks)


@dataclass(frozen=True)
class _Run:
    """What was asked for: draws, tuning too, are those that are kept."""

    draws: int
    chains: int
    seed: Any
    init: str
    initvals: Any
    # What else PyMC is told.
    kwargs: dict[str, Any]
    # How many iterations a draw takes.
    thin: int = 1
    landmarks: dict[str, list[int]] | None = None
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint, kwargs: dict[str, Any]) -> "_Run":
        asked = checkpoint.run
        seed = np.random.SeedSequence(**asked["seed"])
        return cls(
            asked["draws"],
            asked["chains"],
            seed,
            asked["init"],
            checkpoint.starts(),
            kwargs,
            asked.get("thin", 1),
            asked.get("landmarks"),
            checkpoint,
        )

    @property
    def again(self) -> str:
        """How to go on."""
        own = self.checkpoint
        return f" pmm.resume({str(own.folder)!r}) goes on." if own is not None else ""


def _told(first: Any, model: Model | None, draws: int) -> tuple[Model, int]:
    """Give the model and the number of draws, one of which may come first."""
    if first is not None and not isinstance(first, Model | int | np.integer):
        raise TypeError(f"sample: expected a model, or a number of draws; found {type_name(first)}")
    if isinstance(first, Model):
        if model is not None:
            raise TypeError(
                "sample: expected one model; found two (the first argument, and model=)"
            )
        model = first
    elif first is not None:
        if draws != _DRAWS:
            raise TypeError(
                f"sample: expected one number of draws; found {first} and draws={draws}"
            )
        draws = int(first)
    return model_to_draw(model), draws


def _thinned(draws: int, kwargs: dict[str, Any], thin: int) -> tuple[int, dict[str, Any]]:
    """Count the draws that are kept, and those while tuning, as PyMC is told."""
    check_count("thin", thin)
    if thin == 1:
        return draws, kwargs
    tune = kwargs["tune"]
    for name, number in {"draws": draws, "tune": tune}.items():
        if number % thin:
            raise ValueError(f"{name}: expected a multiple of thin, {thin}; found {number}")
    return draws // thin, kwargs | {"tune": tune // thin}


def _check_spelling(kwargs: Mapping[str, Any]) -> None:
    """Refuse what is nearly an argument; steps have arguments too, whose names are not known."""
    known = (_OF_PYMC | set(inspect.signature(sample).parameters)) - {"kwargs"}
    for name, value in kwargs.items():
        near = did_you_mean(name, known)
        if name not in known and near and not isinstance(value, Mapping):
            raise TypeError(f"sample: no argument {name!r}{near}")


def _kept(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a checkpoint keeps; refuse others that draws depend on."""
    if kwargs.get("keep_warning_stat"):
        raise TypeError(
            "checkpoint: expected keep_warning_stat=False, as warnings are no plain values; found "
            "True."
        )
    kept = {}
    for name, value in kwargs.items():
        try:
            kept[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            if name not in _NOT_OF_DRAWS:
                raise TypeError(
                    f"checkpoint: expected plain values of {name}, which can be kept; found "
                    f"{value!r}."
                ) from None
    return kept


@without_c()
def _steps(model: Model, step: Any, kwargs: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the steps given, and ours; say what is left to PyMC."""
    given = [] if step is None else list(step) if isinstance(step, Sequence) else [step]
    with silent(bool(kwargs.get("quiet"))):
        with saying("Reading the model"):
            structure = read(model)
        ours = steps(model, given=given)
    if structure.refusals:
        warn(f"left to PyMC's own steps: {structure.explain()}.")
    if structure.notes and not kwargs.get("quiet"):
        _log.info(f"By tables of log densities, which takes longer: {structure.remarks()}.")
    return given, ours


@without_c()
def _sample(
    model: Model,
    run: _Run,
    methods: list[Any],
    compute_convergence_checks: bool,
    executor: Executor | None = None,
    step: Any = None,
) -> xr.DataTree:
    quiet = bool(run.kwargs.get("quiet"))
    shown = bool(run.kwargs.get("progressbar", True)) and not quiet
    if run.initvals is None:
        try:
            with silent(quiet):
                found = initial_points(
                    model,
                    run.chains,
                    run.seed,
                    init=run.init,
                    progressbar=shown,
                    cores=run.kwargs.get("cores"),
                    executor=executor,
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                "there are no draws yet: starts were being searched for"
            ) from None
        if run.checkpoint is not None:
            run.checkpoint.keep_starts(found)
        run = replace(run, initvals=found)
    if executor is None:
        idata = _drawn(model, run, methods)
        if not isinstance(idata, xr.DataTree):
            return idata
    else:
        idata = _drawn_elsewhere(executor, _Chains(model, run, step), shown)
    warn_if_full(idata, model)
    if compute_convergence_checks and not quiet:
        try:
            log_warnings(convergence_warnings(idata, model))
        except KeyboardInterrupt:
            warn("interrupted: convergence was not checked (pmm.diagnose does).")
    return idata


def _drawn(model: Model, run: _Run, methods: list[Any]) -> Any:
    """Run the chains; say what their draws are."""
    # The steps' matrices are small: threads of BLAS would only get in each other's way.
    with model, threadpool_limits(1, user_api="blas"):
        idata = _draw(model, run, methods)
    if isinstance(idata, xr.DataTree):
        annotate(idata, model, methods)
    return idata


def _check_kept(model: Model, kwargs: Mapping[str, Any], chains: int, landmarks: Any) -> None:
    """Refuse variables that there are not, what needs others, and what cannot keep draws."""
    names, trace = kwargs.get("var_names"), kwargs.get("trace")
    if names is not None:
        unknown = sorted(set(names) - {rv.name for rv in model.unobserved_RVs})
        if unknown or not names:
            raise ValueError(
                f"var_names: expected unobserved variables of the model; found {unknown}"
            )
    if type(trace).__module__ == "pymc.backends.zarr":
        raise TypeError(
            "trace: expected one in memory; found PyMC's ZarrTrace, which needs Zarr 2 and loads "
            "all draws in the end. checkpoint= saves draws while they are made, to_zarr of what is "
            "returned afterwards; thin= and record= keep less of them."
        )
    asked = [name for name in _OF_ALL if (kwargs.get("idata_kwargs") or {}).get(name)]
    dropped = set() if landmarks is None else set(stored_types(read(model)))
    missing = [
        rv.name
        for rv in model.free_RVs
        if rv.name in dropped or (names is not None and rv.name not in names)
    ]
    if asked and missing:
        raise TypeError(
            f"idata_kwargs: expected {asked[0]} where draws of all free variables are kept; found "
            f"var_names or record without {missing}"
        )
    if type(trace) is Trace and chains > 1:
        raise TypeError(
            "trace: expected chains=1 with PyMC's NDArray, into one copy of which all chains are "
            f"written, each over the others; found {chains} chains. Without trace, their draws are "
            "in memory, too."
        )
    if landmarks is not None and (
        trace is not None or not kwargs.get("return_inferencedata", True)
    ):
        raise TypeError(
            "record: expected neither trace nor return_inferencedata=False, as counts are kept by "
            "a trace of our own and returned in a DataTree; found landmarks with one of them."
        )


# What PyMC computes of draws of all free variables.
_OF_ALL = ("log_likelihood", "log_prior")
# What belongs to the process that asked, or says how chains run in it.
_OF_HERE = ("callback", "cores", "mp_ctx", "trace")


def _check_elsewhere(executor: Any, checkpoint: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse what chains on an executor cannot have."""
    check_executor(executor)
    unserved = [name for name in _OF_HERE if kwargs.get(name) is not None]
    if checkpoint is not None:
        unserved.insert(0, "checkpoint")
    if not kwargs.get("return_inferencedata", True):
        unserved.append("return_inferencedata=False")
    if unserved:
        raise TypeError(
            f"sample: expected no {unserved[0]} with an executor, on which chains run in other "
            "processes and come back whole; found one. Without an executor, chains run in "
            "processes of this machine (`cores`)."
        )


class _Chains:
    """The chains of a run, each of which runs by itself, wherever it is: a function of its number.

    It gives what the chain draws in one process with all the others: PyMC spawns a generator for
    each of them from the seed, one after another.
    """

    def __init__(self, model: Model, run: _Run, step: Any):
        self.model, self.step = model, step
        self.seed = seed_state(run.seed)
        kwargs = {name: own for name, own in run.kwargs.items() if name not in _OF_HERE}
        self.run = replace(run, kwargs=kwargs | {"cores": 1, "quiet": True, "progressbar": False})

    def __call__(self, number: int) -> xr.DataTree:
        spawned = self.seed["n_children_spawned"] + number
        seed = np.random.SeedSequence(**self.seed | {"n_children_spawned": spawned})
        starts = self.run.initvals
        own = starts if isinstance(starts, Mapping) else [starts[number]]
        run = replace(self.run, chains=1, seed=seed, initvals=own)
        with warnings.catch_warnings():
            # It was said before.
            warnings.filterwarnings("ignore", "left to PyMC's own steps")
            given, ours = _steps(self.model, self.step, run.kwargs)
        idata = _drawn(self.model, run, [*given, *ours])
        if idata["posterior"].sizes["draw"] < run.draws:
            raise KeyboardInterrupt
        return idata


def _drawn_elsewhere(executor: Executor, chains: _Chains, shown: bool) -> xr.DataTree:
    """Run chains on an executor, and join them."""
    done: dict[int, xr.DataTree] = {}
    total = chains.run.chains
    with SearchProgress(total, shown, title="Sampling") as progress:
        try:
            for number, own in runs(chains, range(total), executor=executor):
                done[number] = own
                progress.advance()
        except KeyboardInterrupt:
            if not done:
                raise KeyboardInterrupt("no chain has ended") from None
            warn(f"interrupted: {len(done)} of {total} chains have ended, and are returned.")
    return _joined(done)


def _joined(chains: Mapping[int, xr.DataTree]) -> xr.DataTree:
    """Join chains, by number; what has none, as observed data, is the first's."""
    numbers = sorted(chains)
    found = chains[numbers[0]].copy()
    for name, group in found.children.items():
        if "chain" in group.dims:
            own = [chains[number][name].to_dataset() for number in numbers]
            joined = xr.concat(own, "chain", data_vars="all", combine_attrs="override")
            found[name] = xr.DataTree(joined.assign_coords(chain=numbers))
    return found


def _draw(model: Model, run: _Run, methods: list[Any]) -> Any:
    """Run the chains until they end, or are interrupted."""
    kwargs = dict(run.kwargs)
    told = {name: kwargs.pop(name) for name in run.kwargs.keys() - _OF_PYMC}
    compiling = {name: kwargs[name] for name in ("backend", "compile_kwargs") if name in kwargs}
    with Interrupt(kwargs.pop("callback", None)) as interrupt:
        own = all_steps(model, methods, told, **compiling)
        chain = ChainSteps(own, interrupt, run.checkpoint, run.thin)
        interrupt.before_stop = chain.save
        if not drawn_over():
            # PyMC's bars would be left as a table, cut at the width of no terminal.
            kwargs["progressbar"] = False
        if kwargs.get("trace") is None:
            looked_at = run.kwargs.get("callback") is not None
            tuned = looked_at or not kwargs.get("discard_tuned_samples", True)
            kwargs["trace"] = _draws(model, kwargs.get("var_names"), tuned, run.landmarks)
            _warn_if_large(kwargs["trace"], run)
        try:
            with asked_less(model):
                found = pm.sample(
                    run.draws,
                    step=chain,
                    chains=run.chains,
                    random_seed=run.seed,
                    initvals=run.initvals,
                    compute_convergence_checks=False,
                    callback=interrupt,
                    **kwargs,
                )
        except ValueError:
            # PyMC's, of traces without draws.
            if not interrupt.asked or interrupt.n_draws:
                raise
            raise KeyboardInterrupt(f"no chain has a draw after tuning.{run.again}") from None
        if interrupt.asked > 1:
            raise KeyboardInterrupt(f"twice: nothing is returned.{run.again}")
    drawn = [interrupt.drawn.get(number, 0) for number in range(run.chains)]
    if run.landmarks is not None:
        least = found["posterior"].sizes["draw"]
        counted = [kwargs["trace"].counts[number] for number, n in enumerate(drawn) if n >= least]
        add_counts(found, model, counted, stored_types(read(model)))
    if interrupt.asked and min(drawn) < run.draws:
        left_out = [str(number) for number, n in enumerate(drawn) if n < interrupt.n_draws]
        warn(
            f"interrupted: chains have {_enumerated(drawn)} of {run.draws} draws, and are cut to "
            f"{interrupt.n_draws}."
            + (f" With fewer, and left out: chain {_enumerated(left_out)}." if left_out else "")
            + run.again
        )
    elif run.checkpoint is not None:
        short = [str(k) for k, n in interrupt.made.items() if run.checkpoint.written(k)[0] < n]
        if short:
            warn(
                f"the checkpoint folder {str(run.checkpoint.folder)!r} could not be written: it "
                f"lacks the last draws of chain {_enumerated(short)}. What is returned is whole."
            )
    return found


def _draws(
    model: Model, names: Sequence[str] | None, tuned: bool, landmarks: dict[str, list[int]] | None
) -> Draws:
    """Make what keeps the draws of chains: of all variables, or of those that are asked for."""
    structure = read(model)
    types = stored_types(structure)
    asked = None
    if names is not None:
        chosen = [rv for rv in model.unobserved_RVs if rv.name in set(names)]
        asked = model.replace_rvs_by_values(chosen)
    if landmarks is not None:
        kept = model.unobserved_value_vars if asked is None else asked
        asked = [v for v in kept if v.name not in types]
    marks = landmarks_of(structure, landmarks)
    return Draws(model=model, vars=asked, types=types, tuned=tuned, landmarks=marks)


def _warn_if_large(trace: Draws, run: _Run) -> None:
    """Say before the first draw if all draws together will take much memory."""
    sizes = {
        name: gibibytes((run.chains, run.draws, *shape), trace.var_dtypes[name])
        for name, shape in trace.var_shapes.items()
    }
    for own in trace.landmarks:
        shape = (run.chains, len(own.objects), own.clustering.n_objects)
        sizes[f"landmarks of {own.clustering.title}"] = gibibytes(shape, np.int16)
    total = sum(sizes.values())
    if total > limit():
        largest = max(sizes, key=lambda name: sizes[name])
        warn(
            f"{run.chains} chains of {run.draws} draws will take {total:,.1f} GiB, most of it for "
            f"{largest!r}: thin keeps every so many draws alone, var_names fewer variables, record "
            "counts in place of labels."
        )


def _enumerated(values: Sequence[Any]) -> str:
    """Join values as a list in words."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last
