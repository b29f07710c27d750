"""From draws to matchings.

A cluster's number means nothing from one draw to the next, so everything here is invariant to
how clusters are numbered. Only the DataTree is read, never the model.

Two conventions tell how assignments belong together:

- ``relevance_<name>`` beside ``cluster_<name>`` holds 1 for the objects that are in a cluster and
  0 for those that are irrelevant, whose recorded cluster means nothing.
- The attribute ``clusters`` of an assignment variable names the set that its clusters are of (its
  weights). Clusters of different sets, such as those of documents and those of words, are never
  the same. Variables without it form one set.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import xarray as xr

__all__ = [
    "assignment_names",
    "assignment_sets",
    "best_chain",
    "cluster_sizes",
    "log_joint_rhat",
    "map_objects",
    "match_probability",
    "point_estimate",
]

_PREFIX = "cluster_"
_RELEVANCE = "relevance_"
_SET = "clusters"
_IRRELEVANT = -1
_SAMPLE_DIMS = ("chain", "draw")
# A factor whose scale is this much below a projection's largest is one that the domain does not
# use; inverting it would only blow up rounding errors.
_UNUSED_FACTOR = 1e-6
# Pairs of objects that are counted at a time: their bytes stay in the processor's cache.
_BLOCK = 2**18


@overload
def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = ...,
    top: None = ...,
    group: str = ...,
    sample_dims: Sequence[Hashable] = ...,
) -> xr.DataArray: ...


@overload
def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = ...,
    top: int,
    group: str = ...,
    sample_dims: Sequence[Hashable] = ...,
) -> pd.DataFrame: ...


def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    relevance: Literal["auto"] | tuple[str | None, str | None] | None = "auto",
    top: int | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = _SAMPLE_DIMS,
) -> xr.DataArray | pd.DataFrame:
    r"""Compute the probability that an object of one domain and one of another share a cluster.

    .. math:: P(s_{an} = s_{bm}, r_{an} = r_{bm} = 1 \mid X) \approx \frac{1}{S} \sum_{t=1}^{S}
              r_{an}^{(t)} r_{bm}^{(t)} I(s_{an}^{(t)} = s_{bm}^{(t)})

    An object that is irrelevant in a draw matches nothing in it, not even itself. In a model
    without relevance all r are 1.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str
        Names of two assignment variables, such as ``"cluster_upright"`` and
        ``"cluster_half"``. With the same name twice, the co-clustering within a domain.
    relevance : "auto", tuple of str or None, or None
        Names of the relevance variables of a and b (0 for irrelevant objects, else 1). "auto"
        takes ``relevance_<name>`` beside ``cluster_<name>``, where there is one; None takes every
        object as relevant.
    top : int, optional
        Give only the `top` most likely partners of each object of a. The matrix of all pairs is
        never built: memory grows with the number of objects, times draws or times `top`.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (objects of a, objects of b)
        Dims and coordinates are those of the variables. If both have the same dim, the second
        one's name ends in ``"_other"``.
    DataFrame with columns object, partner, probability
        With `top`: at most so many rows for each object of a, which come in the order of the
        objects, then from the most to the least likely partner; of equally likely ones the first
        come first. Partners of probability 0 are left out, and an object is no partner of itself.

    Raises
    ------
    KeyError
        If there is no such group or variable; the message lists those that there are.
    ValueError
        If a variable is not an assignment: one whole number an object and draw; the clusters of
        a and b are of different sets; a relevance variable does not fit its assignment; or `top`
        is not positive.
    """
    posterior = _draws(idata, group)
    first, second = (_assignment(posterior, name, sample_dims) for name in (a, b))
    sets = [variable.attrs.get(_SET) for variable in (first, second)]
    if None not in sets and sets[0] != sets[1]:
        raise ValueError(
            f"variables {a!r} and {b!r}: expected clusters of one set; found those of {sets[0]!r} "
            f"and of {sets[1]!r}, which are never the same"
        )
    by_name: Sequence[str | None] = (None, None)
    if relevance == "auto":
        by_name = ("auto", "auto")
    elif relevance is not None:
        if isinstance(relevance, str) or len(relevance) != 2:
            raise ValueError(
                f'relevance: expected "auto", None or the names of two variables; '
                f"found {relevance!r}"
            )
        by_name = relevance
    labels = _apart(
        [_stacked(first), _stacked(second)],
        [
            _relevant(posterior, variable, name, sample_dims)
            for variable, name in zip((first, second), by_name, strict=True)
        ],
    )
    rows, columns = first.dims[-1], second.dims[-1]
    if top is not None:
        if operator.index(top) < 1:
            raise ValueError(f"top: expected at least 1 partner; found {top}")
        object_, partner, count = _best_partners(labels[0], labels[1], top, same=a == b)
        return pd.DataFrame(
            {
                "object": first[rows].to_numpy()[object_],
                "partner": second[columns].to_numpy()[partner],
                "probability": count / len(labels[0]),
            }
        )
    if rows == columns:
        second = second.rename({columns: f"{columns}_other"})
        columns = f"{columns}_other"
    return xr.DataArray(
        _together(*labels) / len(labels[0]),
        coords={**_coords(first, rows), **_coords(second, columns)},
        dims=(rows, columns),
        name="match_probability",
    )


def map_objects(
    idata: xr.DataTree | xr.Dataset,
    x: Any,
    *,
    source: str,
    target: str,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = _SAMPLE_DIMS,
) -> xr.DataArray:
    r"""Carry objects from one domain to another through the latent space.

    .. math:: \hat z = W_s^{+} x = (W_s^\top W_s)^{-1} W_s^\top x, \qquad \hat x = W_t \hat z

    (Iwata, Hirao & Ueda 2016, below figure 4), averaged over draws. It is the map
    :math:`W_t W_s^{+}` that is averaged, not W: a rotation of the latent space, which may differ
    from draw to draw, cancels in the product.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    x : ndarray, DataFrame or DataArray, shape (n_objects, n_features)
        Objects of the source domain, seen or new, all values present. Labelled columns are
        matched by label with the source's features; those of an array come in their order.
    source, target : str
        Names of the domains, whose projections are the variables ``projection_<name>`` (features
        by factors). They may be the same: then the part of x within the latent space remains.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (n_objects, n_features of the target)

    Raises
    ------
    KeyError
        If there is no such group or projection; the message lists those that there are.
    ValueError
        If x is not 2-D, its features are not the source's, it holds NaN or infinite values, or
        the two projections differ in their number of factors.
    """
    posterior = _draws(idata, group)
    w_source, source_features = _projection(posterior, source, sample_dims)
    w_target, target_features = _projection(posterior, target, sample_dims)
    if w_source.shape[-1] != w_target.shape[-1]:
        raise ValueError(
            f"the projections differ in their number of factors: {w_source.shape[-1]} of "
            f"{source!r}, {w_target.shape[-1]} of {target!r}"
        )
    values, object_dim, objects = _objects_to_map(x, source, source_features)

    # sum_t W_t W_s^+ as one product of (features, draws * factors) matrices.
    inverse = np.linalg.pinv(w_source, rtol=_UNUSED_FACTOR)
    n_draws, n_factors, n_source = inverse.shape
    flat_target = w_target.transpose(1, 0, 2).reshape(-1, n_draws * n_factors)
    mean_map = flat_target @ inverse.reshape(n_draws * n_factors, n_source) / n_draws

    feature_dim = target_features.dims[0]
    return xr.DataArray(
        values @ mean_map.T,
        coords={**objects, **_coords(target_features, feature_dim)},
        dims=(object_dim, feature_dim),
        name=target,
    )


def point_estimate(
    idata: xr.DataTree | xr.Dataset,
    var_names: Sequence[str] | None = None,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = _SAMPLE_DIMS,
) -> xr.Dataset:
    r"""Give one partition of the objects of all domains: the draw with the least Binder loss.

    Binder's loss counts the pairs of objects, of one domain or of two, that one partition puts
    together and the other apart. Its posterior expectation for a partition c is

    .. math:: \sum_{i<k} I(c_i = c_k) (1 - P_{ik}) + I(c_i \ne c_k) P_{ik},

    with P the pooled co-clustering probabilities; the recorded draw that minimises it is
    returned. An object that is irrelevant in a draw is put together with nothing. Time grows with
    the square of the number of objects or of the number of draws, whichever is cheaper.

    Sets of clusters (see `assignment_sets`), such as those of documents and of words, are
    estimated one by one, each by its own best draw.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions that number the draws.

    Returns
    -------
    Dataset
        One variable an assignment, shape (n_objects,), with labels 0, 1, … by decreasing size
        of the cluster over all domains, and -1 for objects that are irrelevant in the draw. The
        attributes give the draw's place (one entry for each of `sample_dims`) and
        ``binder_loss``, the expected loss as a fraction of all pairs. With several sets of
        clusters each of these is a list with an entry for each set, and the attribute
        ``clusters`` lists the sets; so does that of every variable name its own.

    Raises
    ------
    KeyError
        If there is no such group or variable, or no assignment at all.
    ValueError
        If a variable is not an assignment, or its relevance does not fit it.
    """
    posterior = _draws(idata, group)
    names = assignment_names(posterior) if var_names is None else list(var_names)
    if not names:
        raise KeyError(
            f"no assignment variable (its name starts with {_PREFIX!r}); "
            f"there are {sorted(map(str, posterior.data_vars))}"
        )
    variables = {name: _assignment(posterior, name, sample_dims) for name in names}
    found: dict[str, xr.DataArray] = {}
    places: list[dict[str, Any]] = []
    for members in _by_set(variables).values():
        group_of = [variables[name] for name in members]
        labels, best, loss = _estimate(
            [_stacked(v) for v in group_of],
            [_relevant(posterior, v, "auto", sample_dims) for v in group_of],
        )
        parts = np.split(labels, np.cumsum([v.shape[-1] for v in group_of])[:-1])
        for name, v, part in zip(members, group_of, parts, strict=True):
            kept = {_SET: v.attrs[_SET]} if _SET in v.attrs else {}
            found[name] = xr.DataArray(
                part, coords=_coords(v, v.dims[-1]), dims=v.dims[-1:], attrs=kept
            )
        place = np.unravel_index(best, [posterior.sizes[dim] for dim in sample_dims])
        places.append(
            {
                str(dim): posterior[dim].to_numpy()[i].item() if dim in posterior.coords else int(i)
                for dim, i in zip(sample_dims, place, strict=True)
            }
            | {"binder_loss": loss}
        )
    attrs: dict[str, Any] = places[0]
    if len(places) > 1:
        attrs = {_SET: [name or "" for name in _by_set(variables)]}
        attrs |= {key: [place[key] for place in places] for key in places[0]}
    return xr.Dataset({name: found[name] for name in names}, attrs=attrs)


def cluster_sizes(labels: xr.Dataset) -> pd.DataFrame:
    """Count the objects of every cluster in every domain.

    Parameters
    ----------
    labels : Dataset
        One variable of labels a domain, as `point_estimate` gives it. Irrelevant objects have
        negative labels.

    Returns
    -------
    DataFrame, shape (n_clusters, n_domains + 1)
        One row a cluster, one column a domain (without the prefix ``cluster_``), and the
        total. If there are irrelevant objects, a last row ``"irrelevant"`` counts them. With
        several sets of clusters (see `assignment_sets`) the rows are labelled by set and
        cluster.
    """
    sets = _by_set(labels.data_vars)
    tables = []
    for members in sets.values():
        values = {str(name): labels[name].to_numpy() for name in members}
        counts = {name: pd.Series(v[v >= 0]).value_counts() for name, v in values.items()}
        table = pd.DataFrame(counts).fillna(0).astype(int).sort_index()
        irrelevant = {name: int(np.sum(v < 0)) for name, v in values.items()}
        if any(irrelevant.values()):
            table = pd.concat([table, pd.DataFrame(irrelevant, index=["irrelevant"])])
        tables.append(table.rename_axis(index="cluster"))
    if len(tables) == 1:
        table = tables[0]
    else:
        keys = [name or "" for name in sets]
        table = pd.concat(tables, keys=keys, names=[_SET]).fillna(0).astype(int)
    table = table[[str(name) for name in labels.data_vars]]
    table["total"] = table.sum(axis=1)
    return table.rename(columns=lambda name: name.removeprefix(_PREFIX))


def assignment_names(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
) -> list[str]:
    """List the assignment variables: whole numbers, called ``cluster_<domain>``.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    group : str
        The group of the DataTree that holds the draws.

    Returns
    -------
    list of str
    """
    return [
        str(name)
        for name, variable in _draws(idata, group).data_vars.items()
        if str(name).startswith(_PREFIX) and variable.dtype.kind in "iu"
    ]


def assignment_sets(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
) -> dict[str | None, list[str]]:
    """List the assignment variables by the set that their clusters are of.

    Only variables of one set can be compared: in a model of documents and words, those of the
    documents of all networks are one set and those of the words another.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, its posterior, or the labels that `point_estimate` gives.
    group : str
        The group of the DataTree that holds the draws.

    Returns
    -------
    dict of str or None to list of str
        Names of variables by their attribute ``clusters``; those without it are under None.
    """
    posterior = _draws(idata, group)
    return _by_set({name: posterior[name] for name in assignment_names(posterior)})


def best_chain(idata: xr.DataTree) -> xr.DataTree:
    """Keep only the chain with the highest mean of the collapsed log joint.

    Chains that settle in different modes are better compared than averaged: the papers run
    several and keep the one with the highest likelihood. What is left says nothing about the
    other modes.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.

    Returns
    -------
    DataTree
        With one chain, which keeps its number.
    """
    log_joint = _log_joint(idata)
    best = int(log_joint.mean("draw").argmax("chain"))
    return idata.map_over_datasets(
        lambda dataset: dataset.isel(chain=[best]) if "chain" in dataset.dims else dataset
    )


def log_joint_rhat(idata: xr.DataTree) -> float:
    """Compute R-hat of the collapsed log joint: near 1 when the chains agree.

    Parameters
    ----------
    idata : DataTree
        What `pm_match.sample` returns.

    Returns
    -------
    float
        NaN with fewer than two chains or four draws, which cannot disagree.
    """
    log_joint = _log_joint(idata)
    if log_joint.sizes["chain"] < 2 or log_joint.sizes["draw"] < 4:
        return float("nan")
    # Importing it takes as long as importing PyMC.
    from arviz_stats import rhat

    return float(rhat(log_joint))


def _log_joint(idata: xr.DataTree) -> xr.DataArray:
    """Read the log joint, summed over partitions if the model has several."""
    log_joint = _draws(idata, "sample_stats")["log_joint"]
    return log_joint.sum([dim for dim in log_joint.dims if dim not in ("chain", "draw")])


def _draws(idata: Any, group: str) -> xr.Dataset:
    if isinstance(idata, xr.Dataset):
        return idata
    if not isinstance(idata, xr.DataTree):
        raise TypeError(
            f"expected a DataTree or a Dataset of draws; "
            f"found an object of type {type(idata).__name__}"
        )
    if group not in idata.children:
        raise KeyError(f"no group {group!r}; there are {sorted(idata.children)}")
    return idata.children[group].to_dataset()


def _variable(posterior: xr.Dataset, name: str, prefix: str) -> xr.DataArray:
    if name not in posterior.data_vars:
        similar = [str(v) for v in posterior.data_vars if str(v).startswith(prefix)]
        raise KeyError(
            f"no variable {name!r} among the draws; there are {similar or list(posterior)}"
        )
    return posterior[name]


def _sampled(variable: xr.DataArray, sample_dims: Sequence[Hashable], n_dims: int) -> xr.DataArray:
    """Put the sample dims first and check how many others there are."""
    others = [dim for dim in variable.dims if dim not in sample_dims]
    if len(others) != n_dims or len(others) + len(sample_dims) != variable.ndim:
        expected = "one dim" if n_dims == 1 else f"{n_dims} dims"
        raise ValueError(
            f"variable {variable.name!r}: expected dims {tuple(sample_dims)} and {expected} "
            f"beside; found {variable.dims}"
        )
    return variable.transpose(*sample_dims, *others)


def _assignment(posterior: xr.Dataset, name: str, sample_dims: Sequence[Hashable]) -> xr.DataArray:
    variable = _sampled(_variable(posterior, name, _PREFIX), sample_dims, 1)
    if variable.dtype.kind not in "iu":
        raise ValueError(
            f"variable {name!r}: expected whole numbers, the clusters of objects; "
            f"found dtype {variable.dtype}"
        )
    return variable


def _stacked(assignment: xr.DataArray) -> np.ndarray:
    """Labels as an array of shape (draws, objects)."""
    return assignment.to_numpy().reshape(-1, assignment.shape[-1])


def _coords(variable: xr.DataArray, dim: Hashable) -> dict[Hashable, Any]:
    """All coordinates along `dim` and no other dim, such as labels and true clusters."""
    return {name: coord for name, coord in variable.coords.items() if coord.dims == (dim,)}


def _by_set(variables: Mapping[Any, xr.DataArray]) -> dict[str | None, list[Any]]:
    """Group variables' names by the set that their clusters are of, in the order given."""
    sets: dict[str | None, list[Any]] = {}
    for name, variable in variables.items():
        sets.setdefault(variable.attrs.get(_SET), []).append(name)
    return sets


def _relevant(
    posterior: xr.Dataset,
    assignment: xr.DataArray,
    name: str | None,
    sample_dims: Sequence[Hashable],
) -> np.ndarray | None:
    """Which objects are relevant, shape (draws, objects); None for all."""
    if name == "auto":
        own = str(assignment.name)
        name = _RELEVANCE + own.removeprefix(_PREFIX)
        if not own.startswith(_PREFIX) or name not in posterior.data_vars:
            return None
    if name is None:
        return None
    variable = _sampled(_variable(posterior, name, _RELEVANCE), sample_dims, 1)
    dims = variable.dims[-1], assignment.dims[-1]
    # Without dims in the model, the two have the same objects under names of their own.
    unnamed = any(f"{v.name}_dim_0" in dims for v in (variable, assignment))
    if variable.shape != assignment.shape or (dims[0] != dims[1] and not unnamed):
        raise ValueError(
            f"variable {name!r}: expected the dims of {assignment.name!r}, {assignment.dims}; "
            f"found {variable.dims}"
        )
    flags = _stacked(variable)
    if not ((flags == 0) | (flags == 1)).all():
        raise ValueError(f"variable {name!r}: expected 0 (irrelevant) or 1 (relevant) everywhere")
    return flags != 0


def _apart(labels: Sequence[np.ndarray], relevant: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Put labels into the smallest type that holds them: comparing them is limited by memory.

    Irrelevant objects get a label that no object of another array has.
    """
    inside = [
        part if mask is None else part[mask] for part, mask in zip(labels, relevant, strict=True)
    ]
    occupied = [part for part in inside if part.size]
    low = min((int(part.min()) for part in occupied), default=0)
    high = max((int(part.max()) for part in occupied), default=0) - low
    result = []
    for part, mask in zip(labels, relevant, strict=True):
        shifted = part.astype(np.int64) - low
        if mask is not None:
            high += 1
            shifted[~mask] = high
        result.append(shifted)
    return [part.astype(np.min_scalar_type(high)) for part in result]


def _counts(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Count in how many draws two objects share a label: (S, N) and (S, M), some rows at a time.

    One draw at a time, summed in bytes: 255 draws fit, and a byte each is what makes it fast.
    """
    n_rows, n_columns = a.shape[1], b.shape[1]
    b = np.ascontiguousarray(b)  # a draw's labels side by side: ten times faster
    block = max(1, _BLOCK // max(n_columns, 1))
    for start in range(0, n_rows, block):
        rows = slice(start, min(start + block, n_rows))
        ours = np.ascontiguousarray(a[:, rows])[:, :, None]
        total = np.zeros((ours.shape[1], n_columns), dtype=np.int64)
        part = np.empty(total.shape, dtype=np.uint8)
        same = np.empty(total.shape, dtype=bool)
        for first in range(0, len(a), 255):
            part[:] = 0
            for draw in range(first, min(first + 255, len(a))):
                np.equal(ours[draw], b[draw], out=same)
                part += same.view(np.uint8)
            total += part
        yield rows, total


def _together(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count in how many draws two objects share a label: (S, N) and (S, M) to (N, M)."""
    total = np.empty((a.shape[1], b.shape[1]))
    for rows, part in _counts(a, b):
        total[rows] = part
    return total


def _best_partners(
    a: np.ndarray, b: np.ndarray, top: int, *, same: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the partners that share a label most often: indices of objects and partners, counts.

    Objects whose labels are equal in all draws have the same partners, so that each such group is
    looked at once; and among a group's members only the first can be among the first partners.
    Well separated clusters leave few groups, and nothing is lost if there are none.
    """
    # One more, because the object itself may be among them.
    n_best = min(top + same, b.shape[1])
    group_b = _groups(b)[1]
    order = np.argsort(group_b, kind="stable")
    ordered = group_b[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    candidates = np.sort(order[place < n_best])
    representative, group_a = _groups(a)
    n_best = min(n_best, len(candidates))

    partner = np.empty((len(representative), n_best), dtype=np.int64)
    count = np.empty_like(partner)
    # The more often together the better, then the earlier: one number, all different.
    n_candidates = len(candidates)
    earlier = np.arange(n_candidates)[::-1]
    for rows, counts in _counts(a[:, representative], b[:, candidates]):
        key = counts * n_candidates + earlier
        if n_best < n_candidates:
            key = np.partition(key, n_candidates - n_best, axis=1)[:, n_candidates - n_best :]
        key = np.sort(key, axis=1)[:, ::-1]
        count[rows], left = np.divmod(key, n_candidates)
        partner[rows] = candidates[n_candidates - 1 - left]

    partner, count = partner[group_a], count[group_a]
    keep = count > 0
    if same:
        keep &= partner != np.arange(len(partner))[:, None]
        keep &= np.cumsum(keep, axis=1) <= top
    return np.nonzero(keep)[0], partner[keep], count[keep]


def _groups(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group the objects (columns) that have equal labels in all draws.

    Returns a representative of each group, and each object's group.
    """
    rows = np.ascontiguousarray(labels.T)
    # As bytes: to compare draws one by one would take far longer.
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    _, representative, group = np.unique(whole, return_index=True, return_inverse=True)
    return representative, group.reshape(-1)


def _estimate(
    labels: Sequence[np.ndarray], relevant: Sequence[np.ndarray | None]
) -> tuple[np.ndarray, int, float]:
    """Labels by decreasing size in the draw with the least Binder loss, its index and loss."""
    mask = np.concatenate(
        [
            np.ones(part.shape, dtype=bool) if flags is None else flags
            for part, flags in zip(labels, relevant, strict=True)
        ],
        axis=1,
    )
    pooled = _occupied_first(np.concatenate(labels, axis=1).astype(np.int64), mask)
    best, loss = _least_binder(pooled)
    size = np.bincount(pooled[best][mask[best]])
    # One entry more, for the irrelevant objects, whose label -1 finds it at the end.
    rank = np.full(len(size) + 1, _IRRELEVANT, dtype=np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(len(size))
    return rank[pooled[best]], best, loss


def _occupied_first(labels: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Renumber the occupied clusters of each draw 0, 1, … in their order; irrelevant is -1."""
    low = labels.min(where=relevant, initial=np.iinfo(np.int64).max)
    high = labels.max(where=relevant, initial=low)
    labels = np.where(relevant, labels - low, high - low + 1)
    occupied = np.zeros((len(labels), int(high - low) + 2), dtype=np.int64)
    np.put_along_axis(occupied, labels, 1, axis=1)
    numbers = np.take_along_axis(np.cumsum(occupied, axis=1) - 1, labels, axis=1)
    return np.where(relevant, numbers, _IRRELEVANT)


def _least_binder(labels: np.ndarray) -> tuple[int, float]:
    """Draw with the least expected Binder loss, and that loss as a fraction of all pairs.

    The loss is a constant plus the sum of Q = (1 - 2P) / 2 over ordered pairs that share a
    cluster. In units of 1 / (2 S) all of it is whole numbers, so that ties do not hang on
    rounding, and the two ways to compute it agree exactly.
    """
    n_draws, n_objects = labels.shape
    n_clusters = int(labels.max()) + 1
    # Where the two take about as long, as measured.
    by_pairs = n_objects * (n_clusters + 15) <= 70 * n_draws
    loss, together = (_loss_by_pairs if by_pairs else _loss_by_draws)(labels, n_clusters)
    best = int(np.argmin(loss))
    n_pairs = max(n_objects * (n_objects - 1) / 2, 1)
    return best, float((loss[best] + together) / (2 * n_draws * n_pairs))


def _loss_by_pairs(labels: np.ndarray, n_clusters: int) -> tuple[np.ndarray, float]:
    """Losses of all draws but for a constant, and the constant: time ~ S K N², memory ~ N².

    The sum of Q over pairs that share a cluster is, for all clusters of a draw, trace(Hᵀ Q H) with
    H its one-hot labels.
    """
    n_draws, n_objects = labels.shape
    relevant = labels != _IRRELEVANT
    mask = None if relevant.all() else relevant
    together = _together(*_apart([labels, labels], [mask, mask]))
    np.fill_diagonal(together, n_draws / 2)  # an object with itself is no pair: make it count 0
    q = n_draws - 2 * together
    loss = np.empty(n_draws)
    block = max(1, 2**22 // (n_objects * max(n_clusters, 1)))  # at most 32 MB of one-hot labels
    for start in range(0, n_draws, block):
        part = labels[start : start + block]
        one_hot = (part[:, None, :] == np.arange(n_clusters)[:, None]).astype(float)
        flat = one_hot.reshape(-1, n_objects)
        by_cluster = np.einsum("ij,ij->i", flat @ q, flat).reshape(len(part), n_clusters)
        loss[start : start + block] = by_cluster.sum(axis=1)
    np.fill_diagonal(together, 0)
    return loss, float(together.sum())


def _loss_by_draws(labels: np.ndarray, n_clusters: int) -> tuple[np.ndarray, float]:
    """Losses of all draws but for a constant, and the constant: time ~ S² N.

    With n_jl(c, t) objects in cluster j of draw c and l of draw t, the ordered pairs that are
    together in both number Σ_jl n_jl² - n_jl: tables of counts, and no matrix of pairs.
    """
    n_draws = len(labels)
    slots = n_clusters + 1  # the first for irrelevant objects
    labels = (labels - _IRRELEVANT).astype(np.int64)
    both = np.zeros((n_draws, n_draws), dtype=np.int64)
    block = max(1, 2**20 // max(labels.shape[1], slots**2))
    dense = slots**2 <= 16 * labels.shape[1]
    for draw in range(n_draws):
        for start in range(draw, n_draws, block):
            others = labels[start : start + block]
            cells = labels[draw] * slots + others
            if dense:
                cells += np.arange(len(others))[:, None] * slots**2
                counts = np.bincount(cells.ravel(), minlength=len(others) * slots**2)
                table = counts.reshape(-1, slots, slots)[:, 1:, 1:].astype(float)
                pairs = np.einsum("djl,djl->d", table, table - 1)
            else:
                pairs = np.array([_pairs_of_cells(row, slots) for row in cells])
            both[draw, start : start + block] = pairs
            both[start : start + block, draw] = pairs
    within = np.diagonal(both)
    loss = n_draws * within - 2 * both.sum(axis=1)
    return loss.astype(float), float(within.sum())


def _pairs_of_cells(cells: np.ndarray, slots: int) -> int:
    """Count the ordered pairs within cells whose row and column are not those of irrelevance."""
    cell, count = np.unique(cells, return_counts=True)
    count = count[(cell >= slots) & (cell % slots > 0)]
    return int(np.sum(count * (count - 1)))


def _projection(
    posterior: xr.Dataset, domain: str, sample_dims: Sequence[Hashable]
) -> tuple[np.ndarray, xr.DataArray]:
    """Projections, shape (draws, features, factors), and one of their columns (for its coords)."""
    variable = _sampled(_variable(posterior, f"projection_{domain}", "projection_"), sample_dims, 2)
    feature_dim = f"{domain}_feature"
    if variable.dims[-1] == feature_dim:
        variable = variable.transpose(..., feature_dim, variable.dims[-2])
    values = variable.to_numpy()
    corner = dict.fromkeys((*sample_dims, variable.dims[-1]), 0)
    return values.reshape(-1, *values.shape[-2:]), variable.isel(corner, drop=True)


def _objects_to_map(
    x: Any, source: str, features: xr.DataArray
) -> tuple[np.ndarray, Hashable, dict[Hashable, Any]]:
    """Values in the order of the source's features, the objects' dim and its coordinates."""
    where = f"objects of domain {source!r}"
    columns: Any = None
    object_dim: Hashable = f"{source}_object"
    coords: dict[Hashable, Any] = {}
    if isinstance(x, pd.DataFrame):
        columns, coords = x.columns, {object_dim: x.index.to_numpy()}
    elif isinstance(x, xr.DataArray) and x.ndim == 2:
        columns, object_dim = x.indexes.get(x.dims[1]), x.dims[0]
        coords = _coords(x, object_dim)
    values = np.asarray(x, dtype=np.float64)
    expected = features.indexes.get(features.dims[0])
    if values.ndim != 2:
        raise ValueError(
            f"{where}: expected a 2-D table (objects by features); found shape {values.shape}"
        )
    if values.shape[1] != features.sizes[features.dims[0]]:
        raise ValueError(
            f"{where}: expected {features.sizes[features.dims[0]]} features; "
            f"found {values.shape[1]}"
        )
    if columns is not None and expected is not None:
        order = pd.Index(columns).get_indexer(expected) if columns.is_unique else None
        if order is None or (order < 0).any():
            unknown = [label for label in columns if label not in expected]
            raise ValueError(
                f"{where}: its features are not those of the domain; "
                + (f"unknown: {unknown[:5]}" if unknown else "a label appears more than once")
            )
        values = values[:, order]
    if not np.isfinite(values).all():
        raise ValueError(f"{where}: expected finite values; found NaN or infinite ones")
    return values, object_dim, coords
