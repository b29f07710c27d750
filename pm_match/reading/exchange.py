"""What labels have of the variables, and what is as it was if labels take others' places."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pymc.logprob.utils import ParameterValueError

from pm_match.reading.owners import close

# From a point to what is read there: NaN where it is not defined.
Read = Callable[[dict[str, NDArray]], NDArray]
# The label whose place every label took (T,), and what was read before and afterwards.
Pair = tuple[NDArray[np.int64], NDArray, NDArray]


@dataclass(frozen=True, eq=False)
class LabelRows:
    """What every label has of the parameters: rows of one variable, or a variable each."""

    # names, keys: variables, and names of their values in points: one, or one for each label
    names: tuple[str, ...]
    keys: tuple[str, ...]
    # the axis of the value along which the rows are; None if every label has a variable
    axis: int | None

    def table(self, point: Mapping[str, NDArray]) -> NDArray:
        """Return the rows at a point (T, K), a copy."""
        whole = self.in_front([point[key] for key in self.keys])
        return np.array(whole.reshape(len(whole), -1))

    def in_front(self, each: Sequence[NDArray]) -> NDArray:
        """Bring what there is of each variable to one array, labels along its first axis."""
        if self.axis is None:
            return np.stack(each)
        # It is 0 most often; NumPy takes its time to see that there is nothing to do.
        return np.moveaxis(each[0], self.axis, 0) if self.axis else each[0]

    def written(self, point: Mapping[str, NDArray], table: NDArray) -> dict[str, NDArray]:
        """Return the values of a point whose rows are those of a table (T, K)."""
        like = point[self.keys[0]]
        if self.axis is None:
            return {k: row.reshape(like.shape) for k, row in zip(self.keys, table, strict=True)}
        whole = table.reshape(self.in_front([like]).shape)
        return {self.keys[0]: np.moveaxis(whole, 0, self.axis) if self.axis else whole}

    def taken(self, point: Mapping[str, NDArray], source: NDArray) -> dict[str, NDArray]:
        """Give every label the row that label `source` (T,) has at a point."""
        return self.written(point, self.table(point)[source])

    def replaced(
        self, point: Mapping[str, NDArray], other: Mapping[str, NDArray], which: NDArray[np.bool_]
    ) -> dict[str, NDArray]:
        """Return the rows at a point, but for those of some labels (T,) that are another's."""
        rows = np.where(which[:, None], self.table(other), self.table(point))
        return self.written(point, rows)


def where_defined(
    read: Read, undefined: type[Exception] = ParameterValueError
) -> Callable[[dict[str, NDArray]], NDArray]:
    """Read NaN where nothing is defined, as operations say by raising `undefined`."""

    def at(point: dict[str, NDArray]) -> NDArray:
        try:
            return np.asarray(read(point), np.float64)
        except undefined:
            return np.array(np.nan)

    return at


def exchanged(
    read: Read,
    points: Sequence[Mapping[str, NDArray]],
    n_labels: int,
    keys: Sequence[str],
    rows: Sequence[LabelRows],
) -> Iterator[Pair]:
    """Read at points before and after labels take others' places, with their rows.

    `keys`: of the values of the assignments, whose objects get the labels to match. All orders of
    labels are made of the two that are looked at.
    """
    label = np.arange(n_labels)
    first_two = np.array([1, 0, *label[2:]])
    for point in points:
        before = read({**point})
        for order in [np.roll(label, -1), first_two][: n_labels - 1]:
            there, place = {**point}, np.argsort(order)
            for own in rows:
                there |= own.taken(there, order)
            there |= {key: place[point[key]].astype(point[key].dtype) for key in keys}
            yield order, before, read(there)


def is_same(pairs: Iterator[Pair] | Sequence[Pair], axes: Sequence[int] = ()) -> bool:
    """Whether what is read is as it was, but that along some axes it took others' places, too."""
    seen = False
    for order, before, after in pairs:
        if before.shape != after.shape:
            return False
        for axis in axes if before.ndim else ():  # nothing is defined there
            before = np.take(before, order, axis)
        if not (close(before, after) | (np.isnan(before) & np.isnan(after))).all():
            return False
        seen |= bool(np.isfinite(before).any())
    return seen
