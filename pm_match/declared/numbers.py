"""The numbers that labels have, side by side, and which of them may be drawn together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.reading.entering import Marks
from pm_match.reading.evidence import Point
from pm_match.reading.exchange import LabelRows


class Numbers:
    """The numbers of some rows: a table (T, K), one row for each label.

    `start`: a point of the value variables.
    """

    def __init__(self, rows: Sequence[LabelRows], start: Point):
        self.rows = rows
        self._ends = np.cumsum([own.table(start).shape[1] for own in rows])
        self._zeros = {key: np.zeros_like(start[key]) for own in rows for key in own.keys}

    def __len__(self) -> int:
        """Count the numbers of a label."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def table(self, point: Point) -> NDArray[np.float64]:
        """Return the numbers at a point (T, K), a copy."""
        return np.concatenate([own.table(point) for own in self.rows], axis=1)

    def written(self, point: Point, table: NDArray) -> dict[str, NDArray]:
        """Return the values of a point whose numbers are those of a table, which is copied."""
        parts = np.split(table.copy(), self._ends[:-1], axis=1)
        each = zip(self.rows, parts, strict=True)
        return {key: value for own, part in each for key, value in own.written(point, part).items()}

    def marked(self) -> list[dict[str, Marks]]:
        """Mark each number, of all labels, in the values that hold it."""
        found = []
        for number in range(len(self)):
            table = np.zeros_like(self.table(self._zeros))
            table[:, number] = 1
            written = self.written(self._zeros, table)
            found.append({key: value != 0 for key, value in written.items()})
        return found


def apart(enters: NDArray[np.bool_]) -> list[list[int]]:
    """Group numbers, none of which enters (K, Q) what another one of its group does."""
    groups: list[list[int]] = []
    for number, own in enumerate(enters):
        for group in groups:
            if not (enters[group] & own).any():
                group.append(number)
                break
        else:
            groups.append([number])
    return groups
