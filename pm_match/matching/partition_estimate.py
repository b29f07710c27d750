"""One partition of the objects of all domains, from the draws."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pm_match.matching.draws import (
    IRRELEVANT,
    PREFIX,
    SAMPLE_DIMS,
    SET,
    assignment_names,
    assignment_of,
    by_set,
    coords_along,
    read_draws,
    relevance_of,
    stacked,
)
from pm_match.matching.expected_loss import least_binder

__all__ = ["partition_estimate"]


def partition_estimate(
    idata: xr.DataTree | xr.Dataset,
    var_names: Sequence[str] | None = None,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
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
    posterior = read_draws(idata, group)
    names = assignment_names(posterior) if var_names is None else list(var_names)
    if not names:
        raise KeyError(
            f"no assignment variable (its name starts with {PREFIX!r}); "
            f"there are {sorted(map(str, posterior.data_vars))}"
        )
    variables = {name: assignment_of(posterior, name, sample_dims) for name in names}
    found: dict[str, xr.DataArray] = {}
    places: list[dict[str, Any]] = []
    for members in by_set(variables).values():
        group_of = [variables[name] for name in members]
        labels, best, loss = _estimate(
            [stacked(v) for v in group_of],
            [relevance_of(posterior, v, "auto", sample_dims) for v in group_of],
        )
        parts = np.split(labels, np.cumsum([v.shape[-1] for v in group_of])[:-1])
        for name, v, part in zip(members, group_of, parts, strict=True):
            kept = {SET: v.attrs[SET]} if SET in v.attrs else {}
            found[name] = xr.DataArray(
                part, coords=coords_along(v, v.dims[-1]), dims=v.dims[-1:], attrs=kept
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
        attrs = {SET: [name or "" for name in by_set(variables)]}
        attrs |= {key: [place[key] for place in places] for key in places[0]}
    return xr.Dataset({name: found[name] for name in names}, attrs=attrs)


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
    pooled = occupied_first(np.concatenate(labels, axis=1).astype(np.int64), mask)
    best, loss = least_binder(pooled)
    size = np.bincount(pooled[best][mask[best]])
    # One entry more, for the irrelevant objects, whose label -1 finds it at the end.
    rank = np.full(len(size) + 1, IRRELEVANT, dtype=np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(len(size))
    return rank[pooled[best]], best, loss


def occupied_first(labels: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Renumber the occupied clusters of each draw 0, 1, … in their order; irrelevant is -1."""
    low = labels.min(where=relevant, initial=np.iinfo(np.int64).max)
    high = labels.max(where=relevant, initial=low)
    labels = np.where(relevant, labels - low, high - low + 1)
    occupied = np.zeros((len(labels), int(high - low) + 2), dtype=np.int64)
    np.put_along_axis(occupied, labels, 1, axis=1)
    numbers = np.take_along_axis(np.cumsum(occupied, axis=1) - 1, labels, axis=1)
    return np.where(relevant, numbers, IRRELEVANT)
