"""The entrance: draws of a declared model on all rows of a huge data set."""

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pymc.model.core import Model
from pymc.util import get_random_generator
from threadpoolctl import threadpool_limits

from pm_match.checks import check_count, check_seed, model_to_draw, warn
from pm_match.find_matching import find_matching
from pm_match.matching.draws import PREFIX, SAMPLE_DIMS
from pm_match.prediction.points import RecordedPoints, dims_of
from pm_match.progress import say
from pm_match.reading import read
from pm_match.reading.ancestry import depends
from pm_match.reading.probe import initial_point, natural_function
from pm_match.results import annotate
from pm_match.sharded.centre import Centre
from pm_match.sharded.data import Rows, cut
from pm_match.sharded.evidence import Scorer
from pm_match.sharded.shards import Shard
from pm_match.sharded.split_merge import split_or_merge
from pm_match.sharded.store import Store
from pm_match.sharded.workers import InProcess, OnDask, workers_of


def sample_sharded(
    model: Model | None,
    data: Mapping[str, Any],
    *,
    draws: int = 200,
    tune: int = 100,
    client: Any = None,
    labels: Any = None,
    thin: int = 1,
    n_split_merge: float = 0.25,
    start: xr.DataTree | None = None,
    sampled: Mapping[str, Any] | None = None,
    chunk_size: int | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> xr.DataTree:
    r"""Draw from the posterior of a model on all rows of a data set that one machine cannot hold.

    The model is declared on a sample of the rows, which gives its structure, and where the chain
    starts: at the matching that `find_matching` finds in the sample. `data` are all rows. An
    iteration has two parts, each an exact draw from a conditional of the *declared*, truncated
    model:

    .. math:: s_i \mid w, \theta, x_i \ \text{for all objects, independently}; \qquad
              w, \theta \mid \text{sums over the objects of each cluster}

    If there are several sets of clusters, as of the rows and of the columns of a network, the
    labels of one are drawn given those of the others, set after set. Labels are drawn chunk by
    chunk wherever the rows are, and what comes back are sums. Draws are the same bit for bit on any
    number of workers, and if workers die: every chunk has a generator in every iteration, and sums
    are added in the order of the chunks. Other chunks give other draws of the same posterior.
    Parameters of likelihoods that have no such sums are drawn by slices, whose every try is a pass
    over the rows (see `declared.sharded`).

    Parameters
    ----------
    model : pymc.Model
        On a sample of the rows; None for the model of the context.
    data : dict of str to array-like
        All rows of every observed variable, by its name: NumPy arrays and memory maps, Zarr arrays,
        Dask arrays and frames; float32 or float64, in which tables are then computed. Variables of
        the same objects have as many rows. Networks are SciPy sparse matrices.
    draws, tune : int
        Iterations that are kept, and those before.
    client : dask.distributed.Client, optional
        Whose workers hold the chunks. Default: this process, chunk after chunk.
    labels : str or Path, optional
        A folder that does not exist yet, for a Zarr group with the labels of kept draws, and the
        mean probability of every object's likeliest label. Workers write to it. Default: labels are
        not kept.
    thin : int, default 1
        Keep one of so many iterations: parameters and labels.
    n_split_merge : float, default 0.25
        Probability that an iteration proposes to split or to merge clusters (see
        `sharded.split_merge`), which looks four times at the objects of one or two clusters, and
        reads all data as often. Clusters whose parameters are drawn by passes are left as they are.
    start : DataTree, optional
        Whose last draw the chain starts at, with all variables of the model; of labels, only those
        of networks' objects are used. Default: that of `find_matching`.
    sampled : dict of str to array, optional
        For networks, by the name of each assignment (``cluster_<network>_<type>``): where in the
        rows or columns of `data` the objects are that the model was declared on, whose labels the
        chain starts with, if `start` does not have those of all objects. Default: the first.
    chunk_size : int, optional
        Rows of a chunk. Default: those of the data's own chunks, 100 000 if they have none.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
    progressbar : bool, default True

    Returns
    -------
    DataTree
        Group ``posterior``, with one chain: all variables but labels; ``size_<domain>``, the
        objects of a domain in each cluster; and with `labels`, the labels ``cluster_<domain>`` and
        the certainty ``certainty_<domain>``, which are read from disk when they are used. Group
        ``sample_stats``: ``log_joint``, up to a constant, ``n_occupied``, ``filled``,
        ``swap_accepted`` and ``split_merge_accepted`` (of the set of clusters that was drawn last),
        as in `ClusterGibbs`; and ``seconds``.

    Warns
    -----
    UserWarning
        If it is interrupted (Ctrl-C), or cannot write (the disk is full): the draws so far are
        returned.

    Raises
    ------
    UnservedModelError
        If a part of the model is not one that can be drawn over shards: one-mode networks, objects
        that may be irrelevant or are linked, observed labels, missing values, log densities that
        need more of an object than its row, and parameters that are whole numbers or take more
        than a few passes. The message names the variable.
    ValueError, TypeError
        If data do not fit the model, or there is no worker; the message says which row and column.
    FloatingPointError
        If no cluster can have a row; the message says which.
    KeyError
        If `data` are not of the variables that the model observes, `sampled` names something else,
        or `start` lacks a variable.
    FileExistsError
        If `labels` exists.
    OSError
        If no folder can be made there.
    RuntimeError
        If workers have other versions of what draws depend on.
    ImportError
        If Dask or Zarr are needed and not installed: ``pip install 'pm_match[scale]'``.

    Notes
    -----
    Labels that are drawn all at once, given weights and parameters, mix more slowly than in
    `ClusterGibbs`, which integrates these out. A good start matters: clusters that the sample does
    not show are seldom found, and which clusters of two domains match changes seldom.

    Examples
    --------
    >>> data = {
    ...     name: table.values
    ...     for name, table in pmm.datasets.synthetic(400, 10, 3, 3, random_seed=3).items()
    ... }
    >>> sample = {name: rows[:60] for name, rows in data.items()}
    >>> model = pmm.models.projected_clusters(sample, n_factors=3, projection="normal")
    >>> idata = pmm.sample_sharded(
    ...     model, data, draws=5, tune=5, chunk_size=100, random_seed=1, progressbar=False
    ... )
    >>> idata["posterior"]["size_a"].sum("size_a_dim_0").values
    array([[400, 400, 400, 400, 400]])
    """
    model = model_to_draw(model)
    for name, value, least in (("draws", draws, 1), ("tune", tune, 0), ("thin", thin, 1)):
        check_count(name, value, least)
    if not 0.0 <= n_split_merge <= 1.0:
        raise ValueError(f"n_split_merge: expected a probability; found {n_split_merge!r}")
    if chunk_size is not None:
        check_count("chunk_size", chunk_size)
    if client is not None:
        workers_of(client)
    check_seed(random_seed)
    store = None if labels is None else Store(labels)
    rng = get_random_generator(random_seed)
    seed, search_seed = (int(rng.integers(2**63)) for _ in range(2))
    structure = read(model)
    for clustering in structure.clusterings:
        for own in clustering.assignments:
            own.must_be_alone()
    centre = Centre(model, structure, rng, initial_point(model))
    sources = _sources(model, centre.scorers, data)
    pieces = cut(sources, chunk_size)
    n_kept = -(-draws // thin)
    dims = {name: dims_of(model, name)[0] for name in centre.scorers}
    if start is None:
        start = find_matching(model, random_seed=search_seed, progressbar=progressbar)
    centre.point = _point(start, model, centre)
    centre.look(_begun(centre, start, sources, sampled or {}))
    make = partial(Shard, seed, sources=sources, scorers=centre.scorers, store=store)
    in_memory = sum(source.in_memory for own in sources.values() for source in own.values())
    made = InProcess(make, pieces) if client is None else OnDask(make, pieces, client, in_memory)
    with closing(made) as workers:
        with threadpool_limits(1, user_api="blas"):
            centre.begin(workers.call("survey"))
        # Not before the data were read once: what is wrong with them leaves no folder behind.
        if store is not None:
            store.create(pieces, n_kept, dims)
        record = _Record(model, centre.scorers)
        began = time.monotonic()
        try:
            with threadpool_limits(1, user_api="blas"):
                for iteration in range(tune + draws):
                    kept = iteration >= tune and (iteration - tune) % thin == 0
                    clock = time.perf_counter()
                    for setting in centre.settings(iteration):
                        found = workers.call("draw", setting, len(record) if kept else None)
                        centre.load(found)
                    told = centre.told() if kept else {}
                    before, sizes = centre.point, centre.sizes
                    moved = rng.random() < n_split_merge and split_or_merge(
                        centre, workers.call, setting
                    )
                    stats = told | {"split_merge_accepted": float(bool(moved))}
                    stats |= centre.update(workers.call, iteration < tune)
                    stats["seconds"] = time.perf_counter() - clock
                    if kept:
                        record.add(before, sizes, stats)
                    if progressbar and time.monotonic() - began > _PATIENCE:
                        say(f"Iteration {iteration + 1} of {tune + draws}")
                        began = time.monotonic()
        except (KeyboardInterrupt, OSError) as error:
            if not len(record):
                raise
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else f"stopped by {error!r}"
            warn(f"{why}: the first {len(record)} of {n_kept} draws.")
    if store is not None:
        try:
            store.finish(pieces, len(record))
        except OSError as error:
            warn(f"stopped by {error!r}: labels are in {store.path!r}, but not all certainties.")
    idata = record.tree(store)
    annotate(idata, model, ())
    return idata


# Seconds between two lines of progress.
_PATIENCE = 10.0


def _sources(
    model: Model, scorers: Mapping[str, Mapping[int, Scorer]], data: Mapping[str, Any]
) -> dict[str, dict[str, Rows]]:
    """Take the data of every variable that some evidence looks at, by assignment."""
    if not isinstance(data, Mapping):
        raise TypeError(f"data: expected a dict of names of observed variables; found {data!r}")
    wanted = {n for own in scorers.values() for scorer in own.values() for n in scorer.widths}
    if set(data) != wanted:
        raise KeyError(
            f"data: expected all rows of {sorted(wanted)}, which the model observes; found "
            f"{sorted(map(str, data))}"
        )
    found: dict[str, dict[str, Rows]] = {}
    for assignment, own in scorers.items():
        for scorer in own.values():
            for name, width in scorer.widths.items():
                dims = model.named_vars_to_dims.get(name, (None, None))
                columns = model.coords.get(dims[1]) if width is not None else None
                source = scorer.source(name, data[name], columns)
                found.setdefault(assignment, {})[name] = source
    return found


def _begun(
    centre: Centre,
    start: xr.DataTree,
    sources: Mapping[str, Mapping[str, Rows]],
    sampled: Mapping[str, Any],
) -> dict[str, NDArray[np.int16]]:
    """Return the labels of watched assignments at the start, -1 where they are not known."""
    sizes, draws = centre.n_objects, start["posterior"].to_dataset()
    n_rows = {name: next(iter(own.values())).n_rows for name, own in sources.items()}
    unknown = sorted(map(str, set(sampled) - centre.watched))
    if unknown:
        raise KeyError(
            "sampled: expected assignments of objects of networks, which are "
            f"{sorted(centre.watched) or 'none'}; found {unknown}"
        )
    found = {}
    for name in centre.watched:
        if name not in draws:
            raise KeyError(
                f"start: expected draws of {name!r}, which `labels` lets a run keep; found none"
            )
        own, most = np.asarray(draws[name].isel(chain=-1, draw=-1)), centre.truncation(name) - 1
        if own.min() < 0 or own.max() > most:
            raise ValueError(
                f"start: expected labels of {name!r} in 0 ... {most}; found {own.min()} to "
                f"{own.max()}"
            )
        found[name] = own.astype(np.int16)
    whole = all(len(own) == n_rows[name] for name, own in found.items())
    if whole and any(n_rows[name] != sizes[name] for name in found):
        return found
    labels, places = {}, {}
    for name, own in found.items():
        n, place = n_rows[name], np.asarray(sampled.get(name, np.arange(sizes[name])))
        fine = place.shape == own.shape == (sizes[name],) and place.dtype.kind in "iu"
        if not fine or len(np.unique(place % n)) < len(place) or (place != place % n).any():
            raise ValueError(
                f"sampled[{name!r}]: expected {sizes[name]} different positions from 0 to {n - 1}, "
                f"one for each object of the model; found {place}"
            )
        places[name], labels[name] = place, np.full(n, -1, np.int16)
        labels[name][place] = own
    for evidence in centre.evidence:
        evidence.check_sample(sources, places)
    return labels


def _point(start: xr.DataTree, model: Model, centre: Centre) -> dict[str, NDArray]:
    """Return the last draw of a DataTree as a point, whose labels mean nothing."""
    draws = start["posterior"].to_dataset()
    sizes = centre.n_objects
    wanted = [str(rv.name) for rv in model.free_RVs if rv.name not in sizes]
    last = draws[[name for name in wanted if name in draws]].isel(draw=[-1], chain=[-1])
    for name, n in sizes.items():
        last[name] = (*SAMPLE_DIMS, f"{name}_object"), np.zeros((1, 1, n), np.int64)
    tree = xr.DataTree.from_dict({"posterior": last})
    (point,) = RecordedPoints(tree, model, "posterior", SAMPLE_DIMS, None, everything=True)
    return point


class _Record:
    """The kept draws of everything but labels."""

    def __init__(self, model: Model, assignments: Iterable[str]):
        self._model = model
        hidden = {model[name] for name in assignments}
        self._names = [
            str(rv.name)
            for rv in (*model.free_RVs, *model.deterministics)
            if not depends(rv, hidden)
        ]
        self._natural = natural_function(model, self._names)
        self._values: list[list[NDArray]] = []
        self._sizes: list[dict[str, NDArray]] = []
        self._stats: list[dict[str, float]] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(
        self,
        point: Mapping[str, NDArray],
        sizes: Mapping[str, NDArray],
        stats: Mapping[str, float],
    ) -> None:
        """Keep a draw: labels, of which there are the sizes, and what they were drawn given."""
        self._values.append([np.array(value) for value in self._natural(point)])
        self._sizes.append({name: own.copy() for name, own in sizes.items()})
        self._stats.append(dict(stats))

    def tree(self, store: Store | None) -> xr.DataTree:
        """Make a DataTree, with the labels as they are on disk."""
        model = self._model
        variables: dict[str, Any] = {}
        used: set[str] = set()
        for name, values in zip(self._names, zip(*self._values, strict=True), strict=True):
            dims = dims_of(model, name)
            used.update(dims)
            variables[name] = ((*SAMPLE_DIMS, *dims), np.stack(values)[None])
        for assignment in self._sizes[0]:
            name = f"size_{assignment.removeprefix(PREFIX)}"
            values = [sizes[assignment] for sizes in self._sizes]
            variables[name] = ((*SAMPLE_DIMS, f"{name}_dim_0"), np.stack(values)[None])
        coords: dict[str, Any] = {
            dim: list(model.coords[dim]) for dim in used if model.coords.get(dim) is not None
        }
        coords |= {"chain": [0], "draw": np.arange(len(self))}
        posterior = xr.Dataset(variables, coords)
        if store is not None:
            posterior.update(store.read(len(self)).data_vars)
        stats = {
            name: (SAMPLE_DIMS, np.array([[own[name] for own in self._stats]]))
            for name in self._stats[0]
        }
        return xr.DataTree.from_dict(
            {
                "posterior": posterior,
                "sample_stats": xr.Dataset(stats, {n: coords[n] for n in SAMPLE_DIMS}),
            }
        )
