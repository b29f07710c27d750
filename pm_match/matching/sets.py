"""The assignments of a set of clusters side by side: objects of all domains."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.matching.draws import (
    IRRELEVANT,
    PREFIX,
    SET,
    assignment_names,
    assignment_of,
    by_set,
    coords_along,
    relevance_of,
    stacked,
)


class SetDraws(NamedTuple):
    """The draws of one set of clusters.

    Attributes
    ----------
    variables : dict of str to DataArray
        The assignments, sample dims first.
    labels : list of (S, N_d) array
    relevant : list of (S, N_d) array or None
        None where all objects are relevant.
    """

    variables: dict[str, xr.DataArray]
    labels: list[NDArray]
    relevant: list[NDArray[np.bool_] | None]

    def draw(self, number: int) -> NDArray[np.int64]:
        """Labels (N,) of a draw from 0, with all irrelevant objects' -1."""
        row = np.concatenate([part[number] for part in self.labels]).astype(np.int64)
        mask = np.concatenate(
            [
                np.ones(part.shape[1], dtype=bool) if flags is None else flags[number]
                for part, flags in zip(self.labels, self.relevant, strict=True)
            ]
        )
        row[mask] = np.unique(row[mask], return_inverse=True)[1]
        row[~mask] = IRRELEVANT
        return row

    def draws(self) -> Iterator[NDArray[np.int64]]:
        """Give the labels of one draw after the other."""
        return map(self.draw, range(len(self.labels[0])))

    def split(self, labels: NDArray, *leading: Hashable) -> dict[str, xr.DataArray]:
        """Cut labels (…, N) into the variables' parts, with the coordinates of their objects."""
        ends = np.cumsum([v.shape[-1] for v in self.variables.values()])[:-1]
        found = {}
        for (name, v), part in zip(
            self.variables.items(), np.split(labels, ends, axis=-1), strict=True
        ):
            kept = {SET: v.attrs[SET]} if SET in v.attrs else {}
            coords = coords_along(v, v.dims[-1])
            found[name] = xr.DataArray(part, coords=coords, dims=(*leading, v.dims[-1]), attrs=kept)
        return found


def names_of(posterior: xr.Dataset, var_names: Sequence[str] | None) -> list[str]:
    """Give the assignments that are asked for: all, unless they are named."""
    names = assignment_names(posterior) if var_names is None else list(var_names)
    if not names:
        raise KeyError(
            f"no assignment variable (its name starts with {PREFIX!r}); "
            f"there are {sorted(map(str, posterior.data_vars))}"
        )
    return names


def sets_of(
    posterior: xr.Dataset, names: Sequence[str], sample_dims: Sequence[Hashable]
) -> dict[str | None, SetDraws]:
    """Read the draws of assignments, set by set."""
    variables = {name: assignment_of(posterior, name, sample_dims) for name in names}
    found = {}
    for title, members in by_set(variables).items():
        own = {name: variables[name] for name in members}
        found[title] = SetDraws(
            own,
            [stacked(v) for v in own.values()],
            [relevance_of(posterior, v, "auto", sample_dims) for v in own.values()],
        )
    return found


def given_labels(labels: Mapping[Any, Any], draws: SetDraws) -> NDArray[np.int64]:
    """Give labels (N,) of a set's objects, from 0, all irrelevant ones -1, after checking them."""
    parts = []
    for name, variable in draws.variables.items():
        dim, n = variable.dims[-1], variable.shape[-1]
        part = labels[name]
        values = np.asarray(part)
        if values.shape != (n,) or values.dtype.kind not in "iu":
            raise ValueError(
                f"labels of {name!r}: expected {n} whole numbers, one an object; "
                f"found shape {values.shape} and dtype {values.dtype}"
            )
        ours = variable.indexes.get(dim)
        theirs = part.indexes.get(dim) if isinstance(part, xr.DataArray) else None
        if ours is not None and theirs is not None and not theirs.equals(ours):
            raise ValueError(
                f"labels of {name!r}: expected the objects of the draws in their order; "
                f"found others along {dim!r}"
            )
        parts.append(values.astype(np.int64))
    pooled = np.concatenate(parts)
    mask = pooled >= 0
    pooled[mask] = np.unique(pooled[mask], return_inverse=True)[1]
    return np.where(mask, pooled, IRRELEVANT)


def by_size(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber clusters 0, 1, … by decreasing size, then by first object; irrelevant stays -1."""
    mask = labels >= 0
    _, first, number, size = np.unique(
        labels[mask], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(size), dtype=np.int64)
    rank[np.lexsort((first, -size))] = np.arange(len(size))
    result = np.full(len(labels), IRRELEVANT, dtype=np.int64)
    result[mask] = rank[number]
    return result


def attrs_of(sets: Sequence[str | None], each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Give the attributes of the only set; of several, lists, and the sets beside them."""
    if len(sets) == 1:
        return dict(each[0])
    named: dict[str, Any] = {SET: [name or "" for name in sets]}
    return named | {key: [attrs[key] for attrs in each] for key in each[0]}
