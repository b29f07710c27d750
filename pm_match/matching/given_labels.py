"""A partition's labels, side by side for all objects of a set of clusters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.checks import no_such
from pm_match.matching.draws import IRRELEVANT, PREFIX, SET
from pm_match.matching.objects import in_order, objects_of
from pm_match.matching.set_draws import SetDraws


def given_labels(labels: Mapping[Any, Any], draws: SetDraws) -> NDArray[np.int64]:
    """Check the labels of a set's objects; give them (N,), with those of irrelevant objects -1.

    Labels that carry their objects are put into the order of the draws.
    Raise `KeyError` if there are no labels of an assignment. Raise `ValueError` if labels are not
    whole numbers, not one for every object, or of other objects.
    """
    parts = []
    for name, variable in zip(draws.names, draws.variables, strict=True):
        key = name if name in labels else name.removeprefix(PREFIX)
        if key not in labels:
            raise KeyError(no_such(f"labels of {name!r}", labels, name))
        n = variable.shape[-1]
        part = labels[key]
        values = np.asarray(part)
        if np.ma.is_masked(part):
            raise ValueError(f"labels of {name!r}: expected all {n}; found masked ones")
        if values.shape != (n,) or values.dtype.kind not in "iu":
            raise ValueError(
                f"labels of {name!r}: expected {n} whole numbers, one for each object; "
                f"found shape {values.shape} and dtype {values.dtype}"
            )
        part = in_order(part, objects_of(variable, -1), where=f"labels of {name!r}")
        parts.append(np.asarray(part, np.int64))
    pooled = np.concatenate(parts)
    return np.where(pooled >= 0, pooled, IRRELEVANT)


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
