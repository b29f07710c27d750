"""From draws to matchings.

A cluster's number means nothing from one draw to the next, so everything here is invariant to
how clusters are numbered. Only the DataTree is read, never the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

__all__ = [
    "assignment_names",
    "best_chain",
    "cluster_sizes",
    "log_joint_rhat",
    "map_objects",
    "match_probability",
    "point_estimate",
]

_PREFIX = "cluster_"
_SAMPLE_DIMS = ("chain", "draw")
# A factor whose scale is this much below a projection's largest is one that the domain does not
# use; inverting it would only blow up rounding errors.
_UNUSED_FACTOR = 1e-6


def match_probability(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = _SAMPLE_DIMS,
) -> xr.DataArray:
    r"""Compute the probability that an object of one domain and one of another share a cluster.

    .. math:: P(s_{an} = s_{bm} \mid X) \approx \frac{1}{S} \sum_{t=1}^{S}
              I(s_{an}^{(t)} = s_{bm}^{(t)})

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    a, b : str
        Names of two assignment variables, such as ``"cluster_upright"`` and
        ``"cluster_half"``. With the same name twice, the co-clustering within a domain.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (objects of a, objects of b)
        Dims and coordinates are those of the variables. If both have the same dim, the second
        one's name ends in ``"_other"``.

    Raises
    ------
    KeyError
        If there is no such group or variable; the message lists those that there are.
    ValueError
        If a variable is not an assignment: one whole number an object and draw.
    """
    posterior = _draws(idata, group)
    first, second = (_assignment(posterior, name, sample_dims) for name in (a, b))
    rows, columns = first.dims[-1], second.dims[-1]
    if rows == columns:
        second = second.rename({columns: f"{columns}_other"})
        columns = f"{columns}_other"
    labels = _small([_stacked(first), _stacked(second)])
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
    returned. Time and memory grow with the square of the number of objects.

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
        of the cluster over all domains. The attributes give the draw's place (one entry for
        each of `sample_dims`) and ``binder_loss``, the expected loss as a fraction of all
        pairs.

    Raises
    ------
    KeyError
        If there is no such group or variable, or no assignment at all.
    ValueError
        If a variable is not an assignment.
    """
    posterior = _draws(idata, group)
    names = assignment_names(posterior) if var_names is None else list(var_names)
    if not names:
        raise KeyError(
            f"no assignment variable (its name starts with {_PREFIX!r}); "
            f"there are {sorted(map(str, posterior.data_vars))}"
        )
    variables = [_assignment(posterior, name, sample_dims) for name in names]
    labels = _occupied_first(np.concatenate([_stacked(v) for v in variables], axis=1))
    best, loss = _least_binder(labels)

    size = np.bincount(labels[best])
    rank = np.empty(len(size), dtype=np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(len(size))
    parts = np.split(rank[labels[best]], np.cumsum([v.shape[-1] for v in variables])[:-1])
    place = np.unravel_index(best, [posterior.sizes[dim] for dim in sample_dims])
    return xr.Dataset(
        {
            name: xr.DataArray(part, coords=_coords(v, v.dims[-1]), dims=v.dims[-1:])
            for name, v, part in zip(names, variables, parts, strict=True)
        },
        attrs={
            **{
                str(dim): posterior[dim].to_numpy()[i].item() if dim in posterior.coords else int(i)
                for dim, i in zip(sample_dims, place, strict=True)
            },
            "binder_loss": loss,
        },
    )


def cluster_sizes(labels: xr.Dataset) -> pd.DataFrame:
    """Count the objects of every cluster in every domain.

    Parameters
    ----------
    labels : Dataset
        One variable of labels a domain, as `point_estimate` gives it.

    Returns
    -------
    DataFrame, shape (n_clusters, n_domains + 1)
        One row a cluster, one column a domain (without the prefix ``cluster_``), and the
        total.
    """
    counts = {
        str(name).removeprefix(_PREFIX): pd.Series(found.to_numpy()).value_counts()
        for name, found in labels.data_vars.items()
    }
    table = pd.DataFrame(counts).fillna(0).astype(int).sort_index()
    table["total"] = table.sum(axis=1)
    return table.rename_axis(index="cluster")


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


def _small(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Put labels into the smallest type that holds them: comparing them is limited by memory."""
    low = min(int(array.min()) for array in arrays)
    high = max(int(array.max()) for array in arrays)
    return [(array - low).astype(np.min_scalar_type(high - low)) for array in arrays]


def _together(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count in how many draws two objects share a label: (S, N) and (S, M) to (N, M).

    One draw at a time, summed in bytes: 255 draws fit, and a byte each is what makes it fast.
    """
    total = np.zeros((a.shape[1], b.shape[1]))
    part = np.empty(total.shape, dtype=np.uint8)
    same = np.empty(total.shape, dtype=bool)
    for start in range(0, len(a), 255):
        part[:] = 0
        for draw in range(start, min(start + 255, len(a))):
            np.equal(a[draw][:, None], b[draw], out=same)
            part += same.view(np.uint8)
        total += part
    return total


def _occupied_first(labels: np.ndarray) -> np.ndarray:
    """Renumber the occupied clusters of each draw 0, 1, … in their order."""
    labels = labels - labels.min()
    occupied = np.zeros((len(labels), int(labels.max()) + 1), dtype=np.int64)
    np.put_along_axis(occupied, labels, 1, axis=1)
    return np.take_along_axis(np.cumsum(occupied, axis=1) - 1, labels, axis=1)


def _least_binder(labels: np.ndarray) -> tuple[int, float]:
    """Draw with the least expected Binder loss, and that loss as a fraction of all pairs.

    The loss is a constant plus the sum of Q = (1 - 2P) / 2 over ordered pairs that share a
    cluster, which for all clusters of a draw is trace(Hᵀ Q H) with H its one-hot labels. In
    units of 1 / (2 S) all of it is whole numbers, so that ties do not hang on rounding.
    """
    (small,) = _small([labels])
    n_draws, n_objects = labels.shape
    together = _together(small, small)
    np.fill_diagonal(together, n_draws / 2)  # an object with itself is no pair: make it count 0
    q = n_draws - 2 * together
    loss = np.empty(n_draws)
    n_clusters = int(labels.max()) + 1
    block = max(1, 2**22 // (n_objects * n_clusters))  # at most 32 MB of one-hot labels
    for start in range(0, n_draws, block):
        part = labels[start : start + block]
        one_hot = (part[:, None, :] == np.arange(n_clusters)[:, None]).astype(float)
        flat = one_hot.reshape(-1, n_objects)
        by_cluster = np.einsum("ij,ij->i", flat @ q, flat).reshape(len(part), n_clusters)
        loss[start : start + block] = by_cluster.sum(axis=1)
    best = int(np.argmin(loss))
    np.fill_diagonal(together, 0)
    n_pairs = max(n_objects * (n_objects - 1) / 2, 1)
    return best, float((loss[best] + together.sum()) / (2 * n_draws * n_pairs))


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
