"""Random effects: free variables whose numbers enter the densities of one object each."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.declared.parts import Effects
from pm_match.declared.rows import RowReader
from pm_match.reading.entering import Marks
from pm_match.reading.label_tables import LabelDensities, has_default_transform, values_entering
from pm_match.reading.owners import binary_digits, from_digits
from pm_match.reading.parts import linked_parts


def find_effects(
    reader: RowReader,
    densities: LabelDensities,
    conditions: bool,
    owner: NDArray[np.int64],
    labels: Sequence[Sequence[NDArray[np.int64]]],
    others: Collection[str],
) -> Effects | None:
    """Find those that enter nothing else, and whose priors are independent between objects.

    It is told from the graph: at points, what matters only elsewhere is not seen.

    Parameters
    ----------
    reader : RowReader
    densities : LabelDensities
        Of all that depends on labels.
    conditions : bool
        How entries are compiled.
    owner : (E,) array
        The object of every entry, -1 if no label changes it.
    labels : sequence of sequence of (N,) array
        One label of all objects after another, for each assignment.
    others : collection of str
        Free variables that are none.
    """
    context, factors = reader.context, {*densities.factors}
    model, start = context.model, context.start
    # Effects of a few objects are not worth a look.
    least = max(len(np.unique(owner[owner >= 0])) // 2, 2)

    def entered(marks: list[dict[str, Marks]]) -> NDArray[np.int64]:
        """Return what enters each entry, under whatever labels."""
        found = np.full(len(owner), -1)
        for rows in labels:
            own = _entered(densities.entered_by(conditions, start, rows, marks))
            other = np.where(own == -1, found, -2)
            found = np.where((found == -1) | (found == own), own, other)
            if not _is_apart(found, owner):
                break
        return found

    effects = []
    for rv in model.free_RVs:
        key = context.key(rv)
        if (
            rv.name in others
            or rv in factors
            or not rv.dtype.startswith("float")
            or not factors.issuperset(context.ancestry.children(rv))
            or not has_default_transform(model, rv)
            or context.is_missing(rv)
        ):
            continue
        for place in _places(np.shape(start[key]), least):
            marks = [{key: own} for own in _digits(place)]
            found = entered(marks)
            if (
                _is_apart(found, owner)
                and (_entered(values_entering(model, [rv], start, marks)) > -2).all()
                and reader.drawn(rv)
            ):
                effects.append((rv.name, key, place, found))
                break
    return _grouped(effects, owner) if effects else None


def _places(shape: tuple[int, ...], least: int) -> Iterator[NDArray[np.int64]]:
    """Yield numbers of what may be objects' own: entries of an array, or parts along an axis."""
    size = int(np.prod(shape))
    if size >= least:
        yield np.arange(size).reshape(shape)
    for axis, n in enumerate(shape):
        if least <= n < size:
            along = np.arange(n).reshape([-1 if own == axis else 1 for own in range(len(shape))])
            yield np.broadcast_to(along, shape)


def _digits(place: NDArray[np.int64]) -> list[Marks]:
    """Mark the numbers of every part whose binary digit is 1, digit by digit, and those of 0."""
    ones = binary_digits(place.ravel()).reshape(-1, *place.shape) == 1
    return [*ones, *~ones]


def _entered(marks: Sequence[Marks]) -> NDArray[np.int64]:
    """Return the part that enters each entry; -1 if none does, -2 if several do."""
    ones, zeros = np.split(np.concatenate([own.reshape(len(own), -1) for own in marks], axis=1), 2)
    several, some = (ones & zeros).any(axis=0), (ones | zeros).any(axis=0)
    return np.where(several, -2, np.where(some, from_digits(ones), -1))


def _is_apart(index: NDArray[np.int64], owner: NDArray[np.int64]) -> bool:
    """Whether parts enter entries by themselves, each those of one object alone."""
    own = (index >= 0) & (owner >= 0)
    of = np.full(index.max(initial=-1) + 1, -1)
    of[index[own]] = owner[own]
    return bool(index.min() > -2 and own.any() and (of[index[own]] == owner[own]).all())


def _grouped(
    effects: Sequence[tuple[str, str, NDArray[np.int64], NDArray[np.int64]]],
    owner: NDArray[np.int64],
) -> Effects | None:
    """Put together what enters the same entries, for objects whose labels change some of these.

    `effects`: names of variables and of their values, the part of every number, and the part that
    enters every entry. Return None if that is of several objects.
    """
    names, keys, places, entering = zip(*effects, strict=True)
    starts = len(owner) + np.cumsum([0, *(place.max() + 1 for place in places)])
    held = [np.flatnonzero(index >= 0) for index in entering]
    pairs = [
        (own, start + index[own]) for own, start, index in zip(held, starts, entering, strict=False)
    ]
    joined = np.concatenate(pairs, axis=1).T
    group = linked_parts(starts[-1], joined)
    own = joined[owner[joined[:, 0]] >= 0, 0]
    kept, first, place = np.unique(group[own], return_index=True, return_inverse=True)
    if (owner[own] != owner[own[first]][place]).any():
        return None
    number = np.full(starts[-1], -1)
    number[kept] = np.arange(len(kept))
    group = number[group]
    return Effects(
        names=names,
        keys=keys,
        places=tuple(group[start + place] for start, place in zip(starts, places, strict=False)),
        group=group[: len(owner)],
        owner=owner[own[first]],
    )
