"""Draws of all assignments whose clusters are of one set, one draw at a time.

Summaries that look at a draw, add what it says and go on need no matrix of pairs: memory grows
with the number of objects, whatever the number of draws.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from pm_match.matching.contingency import ranked
from pm_match.matching.draws import (
    IRRELEVANT,
    NOT_RECORDED,
    PREFIX,
    SET,
    assignment_names,
    assignment_of,
    by_set,
    coords_along,
    full_name,
    not_recorded,
    read_draws,
    relevance_of,
    stacked,
)


@dataclass(frozen=True, eq=False)
class SetDraws:
    """Assignments whose clusters are of one set."""

    title: str | None  # the set's name: the attribute ``clusters`` of its assignments
    variables: list[xr.DataArray]  # the assignments, sample dims first
    # labels, relevant, each (n_draws, n_objects): their values, which may be `OnDisk`, and which
    # objects are relevant (None for all), by assignment
    labels: list[Any]
    relevant: list[np.ndarray | None]

    @property
    def names(self) -> list[str]:
        """Names of the assignments."""
        return [str(v.name) for v in self.variables]

    @property
    def domains(self) -> list[str]:
        """Names of the assignments without their prefix."""
        return [name.removeprefix(PREFIX) for name in self.names]

    @property
    def sizes(self) -> list[int]:
        """Numbers of objects by assignment."""
        return [part.shape[1] for part in self.labels]

    @property
    def objects(self) -> list[np.ndarray]:
        """Labels of the objects by assignment: numbers where they have none."""
        return [v[v.dims[-1]].to_numpy() for v in self.variables]

    @property
    def domain_of(self) -> np.ndarray:
        """Which assignment every object is of, shape (objects of all,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def n_draws(self) -> int:
        """Draws of all chains."""
        return len(self.labels[0])

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield labels 0, 1, … of the objects of all, -1 if irrelevant, and the clusters' sizes."""
        for draw in range(self.n_draws):
            yield self.draw(draw)

    def draw(self, draw: int) -> tuple[np.ndarray, np.ndarray]:
        """Labels of all objects in one draw, as in `__iter__`, and the clusters' sizes."""
        labels = np.concatenate([part[draw] for part in self.labels]).astype(np.int64)
        return renumbered(labels, self._relevant(draw))

    def _relevant(self, draw: int) -> np.ndarray | None:
        if all(part is None for part in self.relevant):
            return None
        return np.concatenate(
            [
                np.ones(size, dtype=bool) if part is None else part[draw]
                for part, size in zip(self.relevant, self.sizes, strict=True)
            ]
        )

    def columns(self, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels as recorded and relevance of some objects in all draws, (n_draws, n) each."""
        labels = np.empty((self.n_draws, len(objects)), dtype=np.int64)
        relevant = np.ones(labels.shape, dtype=bool)
        first = np.concatenate([[0], np.cumsum(self.sizes)])
        domain = np.searchsorted(first, objects, side="right") - 1
        for number, (part, flags) in enumerate(zip(self.labels, self.relevant, strict=True)):
            mine = np.flatnonzero(domain == number)
            own = objects[mine] - first[number]
            labels[:, mine] = part[:, own]
            if flags is not None:
                relevant[:, mine] = flags[:, own]
        return labels, relevant

    def along(self, number: int, values: np.ndarray, *leading: Hashable) -> xr.DataArray:
        """Give values (…, n_objects) the dim and coords of an assignment's objects."""
        variable = self.variables[number]
        dim = variable.dims[-1]
        return xr.DataArray(values, coords=coords_along(variable, dim), dims=(*leading, dim))

    def split(self, values: np.ndarray, *leading: Hashable) -> dict[str, xr.DataArray]:
        """Split values (…, objects of all) into variables named as the assignments."""
        parts = np.split(values, np.cumsum(self.sizes)[:-1], axis=-1)
        result = {name: self.along(i, parts[i], *leading) for i, name in enumerate(self.names)}
        if self.title is not None:
            for variable in result.values():
                variable.attrs[SET] = self.title
        return result


def renumbered(labels: np.ndarray, relevant: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Call a draw's clusters 0, 1, …; give labels (n_objects,) and sizes (n_clusters,)."""
    inside = labels if relevant is None else labels[relevant]
    if not inside.size:
        return np.full(len(labels), IRRELEVANT), np.zeros(0, dtype=np.int64)
    _, numbers, sizes = ranked(inside)
    if relevant is None:
        return numbers, sizes
    result = np.full(len(labels), IRRELEVANT)
    result[relevant] = numbers
    return result, sizes


def full_names(idata: Any, names: Iterable[Any], group: str) -> list[str]:
    """Give the assignments that names say, theirs or their domains'."""
    variables = read_draws(idata, group).data_vars
    return [full_name(variables, name) for name in names]


def names_of(idata: Any, var_names: Sequence[str] | None, group: str) -> list[str]:
    """Give the assignments that are asked for, each once: all, unless they are named."""
    posterior = read_draws(idata, group)
    if isinstance(var_names, str):
        var_names = [var_names]
    names = (
        assignment_names(posterior)
        if var_names is None
        else list(dict.fromkeys(full_names(posterior, var_names, group)))
    )
    if not names:
        if not_recorded(posterior.data_vars):
            raise KeyError(NOT_RECORDED)
        raise KeyError(
            f"no assignment variable (its name starts with {PREFIX!r}, or pmm.sample drew it); "
            f"there are {sorted(map(str, posterior.data_vars))}"
        )
    return names


def read_sets(
    idata: Any,
    var_names: Sequence[str] | None,
    group: str,
    sample_dims: Sequence[Hashable],
    relevance: str | None = "auto",
) -> list[SetDraws]:
    """Read assignments (all, if None are named), by the set that their clusters are of.

    With `relevance` None, all objects are taken as relevant.

    Raise `KeyError` if there is no such group or variable, or no assignment at all. Raise
    `ValueError` if a variable is not an assignment, its relevance does not fit it, or there are no
    draws.
    """
    posterior = read_draws(idata, group)
    names = names_of(posterior, var_names, group)
    variables = {name: assignment_of(posterior, name, sample_dims) for name in names}
    return [
        SetDraws(
            title,
            [variables[name] for name in members],
            [stacked(variables[name]) for name in members],
            [relevance_of(posterior, variables[name], relevance, sample_dims) for name in members],
        )
        for title, members in by_set(variables).items()
    ]


def read_one_set(
    idata: Any,
    var_names: Sequence[str],
    group: str,
    sample_dims: Sequence[Hashable],
    relevance: str | None = "auto",
) -> SetDraws:
    """Read assignments that have to be of one set, in the order named.

    Raise `KeyError, ValueError` as `read_sets`, and a ValueError if their clusters are of different
    sets.
    """
    sets = read_sets(idata, var_names, group, sample_dims, relevance)
    if len(sets) > 1:
        first, second = sets[0], sets[1]
        raise ValueError(
            f"variables {first.names[0]!r} and {second.names[0]!r}: expected clusters of one set; "
            f"found those of {first.title!r} and of {second.title!r}, which are never the same"
        )
    return sets[0]


def set_of(
    idata: Any,
    name: str,
    group: str,
    sample_dims: Sequence[Hashable],
) -> list[str]:
    """Name all assignments whose clusters are of the set that those of `name` are."""
    posterior = read_draws(idata, group)
    (name,) = full_names(posterior, [name], group)
    variable = assignment_of(posterior, name, sample_dims)
    names = dict.fromkeys([*assignment_names(posterior), name])
    same = variable.attrs.get(SET)
    return [other for other in names if posterior[other].attrs.get(SET) == same]
