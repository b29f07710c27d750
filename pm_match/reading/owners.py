"""Whose an entry of a log density is: found by numbers, whatever its axes are."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

# From labels (B, N) to log densities (B, E).
Entries = Callable[[NDArray[np.int64]], NDArray[np.float64]]

_CLOSE = 1e-8
# What is left to do where labels prove to be none of ours while they are sampled.
OTHER_STEPS = (
    "Sample by PyMC's own steps, of labels and weights both: "
    "pm.sample(step=[pm.CategoricalGibbsMetropolis([...]), pm.NUTS([...])])"
)
# Entries of a unit that are added up one after the other, all units at once.
_FEW = 16


def close(a: NDArray, b: NDArray) -> NDArray[np.bool_]:
    """Whether log densities are the same but for rounding, impossible ones too."""
    with np.errstate(invalid="ignore"):
        near = np.abs(a - b) <= _CLOSE * (1.0 + np.minimum(np.abs(a), np.abs(b)))
    return (a == b) | near


def binary_digits(numbers: NDArray[np.int64], most: int | None = None) -> NDArray[np.int64]:
    """Write numbers (N,) in binary digits (B, N), as many as the largest or `most` has."""
    largest = int(numbers.max(initial=0)) if most is None else most
    return (numbers >> np.arange(max(largest.bit_length(), 1))[:, None]) & 1


def from_digits(digits: Iterable[NDArray]) -> NDArray[np.int64]:
    """Return the numbers of some binary digits, which come one after another."""
    found = np.zeros((), np.int64)
    for place, own in enumerate(digits):
        found = found + (own.astype(np.int64) << place)
    return found


def each_label(n_labels: int, n_objects: int) -> NDArray[np.int64]:
    """Return rows (T, N) of labels: in row t, all objects are in cluster t."""
    return np.repeat(np.arange(n_labels)[:, None], n_objects, axis=1)


def find_owners(
    entries: Entries, table: NDArray, owner: NDArray[np.int64], n_objects: int
) -> NDArray[np.int64]:
    """Find the object that every entry depends on the label of, as far as numbers show.

    Objects' numbers are written in binary digits, and each digit used as a choice of two labels:
    the entry of an object has one of the two values that it has if all have that label.

    `table` (T, E): the entries where all objects have the same label; `owner` (E,): what is known
    already, -1 where nothing is. Return (E,): -1 where no label changes an entry; -2 where more
    than one object's does.
    """
    owner, first = owner.copy(), table[0]
    digits = binary_digits(np.arange(n_objects))
    for label in range(1, len(table)):
        left = np.flatnonzero((owner == -1) & ~close(first, table[label]))
        if not len(left):
            continue
        rows = entries(np.where(digits, label, 0))[:, left]
        one, none = close(rows, table[label, left]), close(rows, first[left])
        found = from_digits(one)
        single = (one != none).all(axis=0) & (found < n_objects)
        owner[left] = np.where(single, found, -2)
    return owner


def mixed_labels(rng: np.random.Generator, n_labels: int, n_objects: int) -> NDArray[np.int64]:
    """Draw rows (T, N) of labels in which every object has every label once, at random."""
    start = rng.integers(n_labels, size=n_objects)
    return (np.arange(n_labels)[:, None] + start) % n_labels


def check_owners(
    entries: Entries, table: NDArray, owner: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Say of which entries (E,) the labels (B, N) of other objects than their owner tell nothing.

    An entry without an owner must be the same whatever the labels are.
    """
    own = labels[:, np.maximum(owner, 0)]
    expected = np.where(owner >= 0, np.take_along_axis(table, own, axis=0), table[0])
    fine = close(entries(labels), expected).all(axis=0)
    return fine & ((owner >= 0) | close(table, table[0]).all(axis=0))


def _as_slice(index: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the slice that takes what an increasing index (N,) does, if there is one."""
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    whole = slice(int(index[0]), int(index[-1]) + 1, max(step, 1))
    return whole if np.array_equal(index, np.arange(whole.start, whole.stop, whole.step)) else index


class Owned:
    """Sums of entries over the units that own them.

    `owner` (E,): the unit of every entry, -1 if it has none. It has `free`: the entries that have
    none.
    """

    def __init__(self, owner: NDArray[np.int64], n_units: int):
        order = np.argsort(owner, kind="stable")
        n_free = int((owner < 0).sum())
        self.n_units = n_units
        self.free, self._order = np.sort(order[:n_free]), order[n_free:]
        self._units, self._starts = np.unique(owner[self._order], return_index=True)
        counts = np.diff(self._starts, append=len(self._order))
        # Most often, all units have as many entries, in the order of the units.
        self._layers: list[slice | NDArray[np.int64]] = []
        if len(counts) and counts.max() == counts.min() <= _FEW:
            self._layers = [_as_slice(own) for own in self._order.reshape(-1, counts[0]).T]

    def total(self, entries: NDArray) -> NDArray[np.float64]:
        """Sum entries (B, E) over those of every unit: (U, B)."""
        found = np.zeros((self.n_units, len(entries)))
        if self._layers:
            total = entries[:, self._layers[0]]
            for layer in self._layers[1:]:
                total = total + entries[:, layer]
            found[self._units] = total.T
        elif len(self._units):
            found[self._units] = np.add.reduceat(entries[:, self._order], self._starts, axis=1).T
        return found
