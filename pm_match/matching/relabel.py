"""Draws whose clusters are numbered alike, so that what belongs to a cluster can be summarised."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import no_such
from pm_match.matching.draws import (
    EACH,
    JOINT,
    MISSING,
    NUMBERS,
    PREFIX,
    RELEVANCE,
    RENUMBERED,
    ROWS_OF,
    SAMPLE_DIMS,
    bare,
    read_draws,
    weights_dim,
)
from pm_match.matching.given_labels import given_labels
from pm_match.matching.partition_loss import losses_of
from pm_match.matching.pooled import draw_keys, pool
from pm_match.matching.rotate_latent import LATENT, has_latent_space, rotated
from pm_match.matching.set_draws import SetDraws, read_sets, renumbered

# A second dim over the same clusters, as of the densities of one-mode networks.
_OTHER = "_other"


def relabel[Draws: (xr.DataTree, xr.Dataset)](
    idata: Draws,
    labels: Mapping[Any, Any],
    *,
    rotate: bool = True,
    dims: Mapping[str, str | Sequence[str]] | None = None,
    symmetric: Sequence[str] = (),
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> Draws:
    r"""Renumber every draw's clusters as in an estimate, with all variables that belong to them.

    In every draw, clusters are matched with the estimate's by linear assignment: as many objects
    of all domains of the set as possible keep their cluster. Variables with a dim of clusters
    (weights, latent vectors, deviations; densities along each of their axes) are permuted with the
    labels; computed labels, as ``pm.Deterministic("first", cluster[0])`` in draws of
    `pm_match.sample`, get the same numbers. The joint density of the draws is that of before, but
    for the prior of stick-breaking weights, which is one of clusters in some order: relabelled
    weights are summaries, and `assign` and whatever else integrates weights out takes the draws
    from before.

    Latent vectors and projections are only known up to a rotation of the latent space, which may
    differ from draw to draw. With `rotate` they are rotated to agree with the draw nearest to the
    estimate, by an orthogonal Procrustes rotation of both, which leaves every W z as it is. Without
    it, summaries of latent vectors mean nothing unless their space is fixed.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    labels : Dataset or mapping
        From assignment variables to labels, as `partition_estimate` gives them. A Series or
        DataArray may have its objects in any order.
    rotate : bool, default True
        Whether to align the latent space, if there are ``latent`` and ``projection_<name>``. The
        factors' dim is that of ``latent`` beside the clusters'; whatever else has it is turned as
        well. Factors with precisions of their own are only permuted and change sign.
    dims : mapping of str to str or sequence of str, optional
        From a set of clusters, or any of its assignments, to the dims of its clusters. Default:
        that of the weights which the assignments' attribute ``clusters`` names; otherwise
        ``cluster``, or ``<type>_cluster`` for assignments ``cluster_<network>_<type>``; and with
        each also ``<dim>_other``; and those that parameters of clusters have in draws of
        `pm_match.sample`.
    symmetric : sequence of str
        Variables of two dims of the same clusters of which only the entries with k <= l mean
        anything, as the densities of symmetric networks.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.
    var_names : sequence of str, optional
        Assignment variables whose sets of clusters are renumbered. Default: all that have labels.

    Returns
    -------
    DataTree or Dataset
        As `idata`. Assignments have the numbers of the estimate's clusters; those that share no
        object with any of these take the numbers that are left.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If labels are not those of the objects, a set's dims cannot be told, what is computed hangs
        on the numbers of clusters otherwise, or the estimate has more clusters than the draws have
        room for.

    Examples
    --------
    >>> posterior = xr.Dataset({  # the names of clusters change
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [1, 1, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [1, 0]]]),
    ... })
    >>> aligned = pmm.relabel(posterior, pmm.partition_estimate(posterior))
    >>> aligned["cluster_a"].values
    array([[[0, 0, 1],
            [0, 0, 1]]])
    """
    posterior = read_draws(idata, group)
    symmetric = [symmetric] if isinstance(symmetric, str) else list(symmetric)
    for name in symmetric:
        if name not in posterior:
            raise KeyError(f"symmetric: {no_such(f'variable {name!r}', posterior, name)}")
    sets = {draws.title: draws for draws in read_sets(posterior, None, group, sample_dims)}
    names = [str(name) for name in labels] if var_names is None else var_names
    asked = read_sets(posterior, names, group, sample_dims)
    told = _checked_dims(dims, posterior, sets)
    changed = posterior.copy()
    for compared in asked:
        title, draws = compared.title, sets[compared.title]
        own = _cluster_dims(posterior, title, sets, told, sample_dims)
        each = _each_cluster(posterior, title)
        target = given_labels(labels, compared)
        target, _ = renumbered(target, target >= 0)
        raw = [np.concatenate(parts) for parts in zip(*compared.labels, strict=True)]
        mask = [row >= 0 for row, _ in compared]
        n_labels = _n_labels(posterior, own, each, raw, mask, target, title)
        numbers = np.stack(
            [
                numbers_like(np.where(m, row, -1), target, n_labels)
                for row, m in zip(raw, mask, strict=True)
            ]
        )
        _renumber(changed, draws, numbers, sample_dims)
        _permute(changed, own, numbers, symmetric, sample_dims)
        _exchange(changed, each, numbers, sample_dims)
        if rotate and has_latent_space(posterior) and set(own) & set(posterior[LATENT].dims):
            occupied = np.zeros(numbers.shape, dtype=bool)
            for t, (row, m) in enumerate(zip(raw, mask, strict=True)):
                occupied[t, numbers[t, row[m]]] = True
            distance = losses_of(compared, target, "vi")
            key = draw_keys(pool(compared.labels, compared.relevant))
            nearest = int(np.lexsort((key, distance.round(9)))[0])
            (dim,) = set(own) & set(posterior[LATENT].dims)
            changed = rotated(changed, occupied, nearest, dim, sample_dims)
    if isinstance(idata, xr.Dataset):
        return changed
    if group not in idata.children:
        return xr.DataTree(changed)
    tree = idata.copy()
    tree[group] = xr.DataTree(changed)
    return tree


def numbers_like(
    labels: NDArray[np.int64], target: NDArray[np.int64], n_labels: int
) -> NDArray[np.int64]:
    """Give every label 0, …, T - 1 of a draw the number of a cluster of the target, or another.

    The draw's occupied clusters are matched with the target's by the largest number of objects in
    both, one to one (a linear assignment). Those that share no object with their match, or have
    none, get the free numbers by decreasing size: first those that the target does not have. Empty
    clusters come last, in their order.

    `labels`, `target` (N,): clusters of a draw, in 0, …, T - 1; of the target, from 0. Negative for
    irrelevant objects. `n_labels`: T. Return (T,): a permutation.
    """
    mine, first, size = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    mine, size = mine[np.argsort(first)], size[np.argsort(first)]
    place = np.full(n_labels, -1)
    place[mine] = np.arange(len(mine))
    n_targets = int(target.max(initial=-1)) + 1
    both = (labels >= 0) & (target >= 0)
    overlap = np.zeros((len(mine), n_targets), dtype=np.int64)
    np.add.at(overlap, (place[labels[both]], target[both]), 1)

    numbers = np.full(n_labels, -1)
    rows, columns = scipy.optimize.linear_sum_assignment(overlap, maximize=True)
    shared = overlap[rows, columns] > 0
    numbers[mine[rows[shared]]] = columns[shared]
    by_size = mine[np.argsort(-size, kind="stable")]
    left = [label for label in by_size if numbers[label] < 0]
    left += [label for label in range(n_labels) if place[label] < 0]
    taken = set(columns[shared].tolist())
    numbers[left] = [
        number for number in (*range(n_targets, n_labels), *range(n_targets)) if number not in taken
    ][: len(left)]
    return numbers


def _checked_dims(dims, posterior, sets) -> dict[str | None, list[str]]:
    """Find the sets that `dims` is about."""
    found: dict[str | None, list[str]] = {}
    for key, value in (dims or {}).items():
        titles = [title for title, draws in sets.items() if key == title or key in draws.names]
        if not titles:
            known = [name for draws in sets.values() for name in draws.names]
            what = f"set of clusters or assignment {key!r}"
            raise KeyError(f"dims: {no_such(what, known, key)}")
        listed = [value] if isinstance(value, str) else list(value)
        missing = [dim for dim in listed if dim not in posterior.dims]
        if missing:
            there = sorted(map(str, posterior.dims))
            raise KeyError(f"dims: {no_such(f'dim {missing[0]!r}', there, missing[0])}")
        found[titles[0]] = listed
    return found


def _cluster_dims(
    posterior, title, sets: Mapping[str | None, SetDraws], dims, sample_dims
) -> list[str]:
    """Dims of a set's clusters; none if no variable has any."""
    draws, single = sets[title], len(sets) == 1
    if title in dims:
        return dims[title]
    where = f"set of clusters {title!r}" if title else "clusters"
    ask = f"Say which: dims={{{draws.names[0]!r}: ...}}"
    # Sticks are one fewer than clusters, and breaking them in another order is not a summary.
    own = weights_dim(posterior, title, sample_dims)
    candidates = [own] if own else []
    if not candidates:
        suffix = "_cluster"
        for dim in map(str, posterior.dims):
            kind = dim.removesuffix(suffix)
            typed = dim.endswith(suffix) and all(
                name.startswith(PREFIX) and name.endswith(f"_{kind}") for name in draws.names
            )
            if typed or (dim == "cluster" and single):
                candidates.append(dim)
        if len(candidates) > 1:
            raise ValueError(f"{where}: expected one dim of theirs; found {candidates}. {ask}")
    joint = {v.attrs[JOINT] for v in draws.variables if JOINT in v.attrs}
    marks = {name: _marks(variable) for name, variable in posterior.data_vars.items()}
    combined = [name for name, own in marks.items() if joint & {*own.values()}]
    if combined:
        raise ValueError(
            f"{where}: expected variables with an axis for each label of an object; found "
            f"{combined[0]!r}, whose rows are of combinations of labels. Declare it with an axis "
            "for each, or drop it from the draws."
        )
    of_each = {name for names in _each_cluster(posterior, title) for name in names}
    alone = [
        name
        for name, own in marks.items()
        if title and title in np.atleast_1d(own.get("", ())) and name not in of_each
    ]
    if alone:
        raise ValueError(
            f"{where}: expected variables with a row for each cluster; found {alone[0]!r}, a "
            "parameter of one cluster alone, or made of such, which cannot be given to another. "
            "Declare one for all clusters, or drop it from the draws: what is computed can be "
            "computed of relabelled ones."
        )
    for name, sets_along in marks.items():
        there = ("", *posterior[name].dims)
        lost = [dim for dim, of in sets_along.items() if of == title and dim not in there]
        if title and lost:
            raise ValueError(
                f"{where}: expected dim {lost[0]!r} of variable {name!r}, along which it is of "
                f"them; found {posterior[name].dims}. {ask}"
            )
    marked = [dim for own in marks.values() for dim, of in own.items() if title and of == title]
    candidates = list(dict.fromkeys([*candidates, *marked]))
    # What is of other sets, or of no cluster.
    others = {name for other in sets if other != title for name in (other, *sets[other].names)}
    both = dict.fromkeys(own for dim in candidates for own in (dim, dim + _OTHER))
    found = [dim for dim in both if dim in posterior.dims]
    sizes = {posterior.sizes[d] for d in found}
    for name, variable in posterior.data_vars.items():
        if name in draws.names or name in others or str(name).startswith(RELEVANCE):
            continue
        # Which says; or it is data with values that were missing, or these; or other labels.
        missing = f"{str(name).removesuffix(MISSING)}{MISSING}"
        if any(marks[name].values()) or missing in posterior or JOINT in variable.attrs:
            continue
        unnamed = [
            d
            for d in map(str, variable.dims)
            if d not in {*found, *marks[name]}
            and bare(d).startswith(f"{name}_dim_")
            and (not sizes or posterior.sizes[d] in sizes)
        ]
        if unnamed:
            raise ValueError(
                f"{where}: expected dims with names; found {unnamed[0]!r} of variable {name!r}, "
                f"which may be theirs or not. {ask}"
            )
    if not found and LATENT in posterior.data_vars:
        raise ValueError(
            f"{where}: expected a dim of theirs in variable {LATENT!r}; found "
            f"{posterior[LATENT].dims}, of which any may be. {ask}"
        )
    return found


def _marks(variable: xr.DataArray) -> dict[str, Any]:
    """Return the sets of clusters along a variable's dims, as `pm_match.sample` has marked them.

    By dim, "" if it is a parameter of one cluster alone: of one set, or of several.
    """
    return {
        key.removeprefix(ROWS_OF).removeprefix("_"): value if isinstance(value, str) else (*value,)
        for key, value in variable.attrs.items()
        if key.startswith(ROWS_OF)
    }


def _each_cluster(posterior, title) -> set[tuple[str, ...]]:
    """List the variables that clusters of a set have one each of, if all of them are there."""
    listed = {
        tuple(variable.attrs[EACH])
        for variable in posterior.data_vars.values()
        if title and variable.attrs.get(ROWS_OF) == title and EACH in variable.attrs
    }
    return {names for names in listed if posterior.data_vars.keys() >= {*names}}


def _n_labels(posterior, own, each, raw, mask, target, title) -> int:
    """Count the labels that there are; check those of the draws and of the estimate."""
    n_targets = int(target.max(initial=-1)) + 1
    low = min((int(row[m].min()) for row, m in zip(raw, mask, strict=True) if m.any()), default=0)
    high = max((int(row[m].max()) for row, m in zip(raw, mask, strict=True) if m.any()), default=-1)
    where = f"set of clusters {title!r}" if title else "clusters"
    sizes = [*(posterior.sizes[dim] for dim in own), *map(len, each)]
    n_labels = sizes[0] if sizes else max(n_targets, high + 1, 1)
    if low < 0 or high >= n_labels:
        raise ValueError(
            f"{where}: expected labels from 0 to {n_labels - 1}; found {low} to {high}"
        )
    if n_targets > n_labels:
        raise ValueError(
            f"{where}: expected an estimate with at most the {n_labels} that the draws have room "
            f"for; found {n_targets}. Estimate with max_clusters"
        )
    return n_labels


def _renumber(
    changed: xr.Dataset, draws: SetDraws, numbers: NDArray[np.int64], sample_dims
) -> None:
    """Renumber assignments; numbers that are no cluster's, of irrelevant objects, stay."""
    # Those that are not known of some are in a variable of their own, too; others are computed.
    missing = {f"{own}{MISSING}" for own in draws.names}
    parts = [
        name
        for name, variable in changed.data_vars.items()
        if name in missing or (draws.title and variable.attrs.get(NUMBERS) == draws.title)
    ]
    own = [changed[name].transpose(*sample_dims, ...) for name in parts]
    for name, variable in zip([*draws.names, *parts], [*draws.variables, *own], strict=True):
        values = np.array(variable).reshape(len(numbers), -1)
        for row, number in zip(values, numbers, strict=True):
            inside = (row >= 0) & (row < len(number))
            row[inside] = number[row[inside]]
        values = values.reshape(variable.shape)
        changed[name] = variable.copy(data=values).transpose(*changed[name].dims)
        changed[name].attrs[RENUMBERED] = "as in an estimate"


def _permute(changed, own, numbers, symmetric, sample_dims) -> None:
    """Permute all that has a dim of the clusters: the new k-th is the old one with number k."""
    source = np.argsort(numbers, axis=1)
    for name, variable in list(changed.data_vars.items()):
        # What is of no cluster along a dim of theirs, as when it is sorted, stays.
        told = _marks(variable)
        along = [dim for dim in own if dim in variable.dims and told.get(dim) != ""]
        if not along or not set(sample_dims) <= set(variable.dims):
            continue
        ordered = variable.transpose(*sample_dims, *along, ...)
        shape = ordered.shape
        values = ordered.to_numpy().reshape(len(numbers), *shape[len(sample_dims) :])
        if name in symmetric or variable.attrs.get("symmetric"):
            if len(along) != 2:
                raise ValueError(
                    f"symmetric: variable {name!r}: expected two dims of {own}; found "
                    f"{variable.dims}"
                )
            lower = np.tril(np.ones(values.shape[1:3], dtype=bool), -1)
            lower = lower.reshape(1, *lower.shape, *[1] * (values.ndim - 3))
            values = np.where(lower, np.swapaxes(values, 1, 2), values)
        for axis in range(1, len(along) + 1):
            index_shape = [1] * values.ndim
            index_shape[0], index_shape[axis] = source.shape
            values = np.take_along_axis(values, source.reshape(index_shape), axis=axis)
        changed[name] = ordered.copy(data=values.reshape(shape)).transpose(*variable.dims)


def _exchange(changed, each: Collection[tuple[str, ...]], numbers, sample_dims) -> None:
    """Permute variables that clusters have one each of, as if they were rows of one."""
    source = np.argsort(numbers, axis=1)
    for names in each:
        own = [changed[name].transpose(*sample_dims, ...) for name in names]
        values = np.stack([v.to_numpy().reshape(len(numbers), -1) for v in own])
        for number, (name, variable) in enumerate(zip(names, own, strict=True)):
            taken = values[source[:, number], np.arange(len(numbers))].reshape(variable.shape)
            changed[name] = variable.copy(data=taken).transpose(*changed[name].dims)
