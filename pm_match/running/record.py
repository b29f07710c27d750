"""The draws of one chain, and what its steps had changed after the last of them, on disk."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.checks import warn
from pm_match.running.files import DamagedError, read_values, write_values
from pm_match.running.plain_values import unpacked

_log = logging.getLogger("pymc")

# A point of value variables, and the statistics of every step.
Draw = tuple[dict[str, NDArray], list[dict[str, Any]]]


class Record:
    """The draws of a chain: those on disk, one after the other, and then those that are made.

    Each file is named after the number of its first draw. Whoever draws the same chain makes the
    same draws, so that a process that has not noticed yet that its run was killed does no harm.

    The `folder` is the chain's own. It is to have `total` draws, tuning included, in a file `every`
    so many seconds.
    """

    def __init__(self, folder: Path, total: int, every: float):
        self.n = 0  # how many draws were given or added
        self._folder, self._total, self._every = folder, total, every
        self._last = time.monotonic()
        # Draws of a file that are still to be given, the next one last; and of no file yet.
        self._old: list[Draw] = []
        self._new: list[Draw] = []
        # What whole numbers are, which are kept in the smallest type.
        self._types: dict[str, str] = {}
        self._state: tuple[Any, list[NDArray]] | None = None

    def next(self) -> Draw | None:
        """Give the next draw, if it is on disk."""
        if not self._old and not self._new:
            self._read()
        if not self._old:
            return None
        self.n += 1
        return self._old.pop()

    def state_at_end(self) -> tuple[Any, list[NDArray]] | None:
        """Return the state that belongs to the last draw on disk, if that was just given."""
        if self._old or (self._read() and self._old):
            return None
        state, self._state = self._state, None
        return state

    def add(self, point: dict[str, NDArray], stats: list[dict[str, Any]]) -> bool:
        """Add a draw; return whether it is time to save."""
        # PyMC may hand over memory that processes share.
        copy = {name: _smallest(np.array(value)) for name, value in point.items()}
        self._types = {name: str(value.dtype) for name, value in point.items()}
        self._new.append((copy, [dict(own) for own in stats]))
        self.n += 1
        return self.n == self._total or time.monotonic() - self._last >= self._every

    @property
    def unsaved(self) -> int:
        """How many draws were added and are not on disk."""
        return len(self._new)

    def save(self, state: Any) -> None:
        """Write the draws that were added, and the state after the last of them.

        If that fails, they are kept for the next time, and the error is logged.
        """
        points, stats = zip(*self._new, strict=True)
        value = {
            "n_draws": len(points),
            "total": self._total,
            "points": _stacked(points),
            "types": self._types,
            "stats": [_stacked(own) for own in zip(*stats, strict=True)],
            "state": state,
        }
        try:
            write_values(self._file(self.n - len(points)), value)
            self._new.clear()
        except OSError as error:
            _log.error(f"{unwritable(self._folder.parent, error)} Sampling goes on.")
        self._last = time.monotonic()

    def check(self) -> int:
        """Count the draws on disk; a file that is damaged is set aside, with a warning.

        Raise `ValueError` if a file holds what no checkpoint holds, such as pickled objects.
        """
        for unfinished in self._folder.glob("*.part"):
            unfinished.unlink(missing_ok=True)
        try:
            while self._read():
                self.n += len(self._old)
        except DamagedError as error:
            damaged = self._file(self.n)
            os.replace(damaged, damaged.with_suffix(".damaged"))
            warn(f"{error}. Draws of this chain from number {self.n} on are drawn again.")
        return self.n

    def _file(self, first: int) -> Path:
        return self._folder / f"{first:08d}.npz"

    def _read(self) -> bool:
        """Read the file with the next draws, if there is one."""
        try:
            contents, arrays = read_values(self._file(self.n))
        except FileNotFoundError:
            return False
        own = contents["dict"]
        n, points, stats = (unpacked(own[name], arrays) for name in ("n_draws", "points", "stats"))
        self._state = own["state"], arrays
        # Files of before have none: their values are as they were.
        types = unpacked(own.get("types", {"dict": {}}), arrays)
        points = {
            name: value.astype(types.get(name, value.dtype)) for name, value in points.items()
        }
        self._old = [(_at(points, i), [_at(each, i) for each in stats]) for i in range(n)][::-1]
        return True


def unwritable(folder: Path, error: OSError) -> str:
    """Say that a checkpoint cannot be written."""
    return (
        f"The checkpoint folder {str(folder)!r} cannot be written: {error.strerror or error}. "
        "What it holds stays valid."
    )


def _smallest(values: NDArray) -> NDArray:
    """Put whole numbers, such as labels, into the smallest signed type that holds them."""
    if values.dtype.kind != "i" or not values.size:
        return values
    low, high = values.min(), values.max()
    types = (np.iinfo(own) for own in (np.int8, np.int16, np.int32, values.dtype))
    return values.astype(next(own.dtype for own in types if own.min <= low and high <= own.max))


def _stacked(rows: Any) -> dict[str, NDArray | None]:
    """Stack the values of each name; objects, such as PyMC's warnings, are not kept."""
    stacked = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {name: None if own.dtype.hasobject else own for name, own in stacked.items()}


def _at(stacked: dict[str, NDArray | None], i: int) -> dict[str, Any]:
    return {name: None if own is None else np.array(own[i]) for name, own in stacked.items()}
