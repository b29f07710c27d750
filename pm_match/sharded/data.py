"""The data of all rows: what can be given, how it is cut into chunks, and how workers read it."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionDtype
from scipy.sparse import issparse


class Rows(Protocol):
    """All rows of one variable, of which some are read on demand."""

    name: str
    n_rows: int
    step: int | None  # rows of its own chunks, the most if they differ

    @property
    def in_memory(self) -> int:
        """Bytes that go to workers with it."""
        ...

    def part(self, start: int, stop: int) -> Self:
        """Return what goes to a worker that reads rows `start` ... `stop` alone."""
        ...

    def rows(self, start: int, stop: int) -> Any:
        """Read some rows: something with a `shape` of which rows can be taken."""
        ...


class Source:
    """Rows of one variable: an array, or something like one, of which rows are read on demand.

    `given`: NumPy arrays and memory maps, Zarr arrays, Dask arrays and frames, pandas frames;
    `width`: the columns that are expected, None for an array without an axis of columns; `labels`:
    of the columns, if the model names them. Raise `TypeError` or `ValueError` if it is no table of
    numbers of this shape.
    """

    def __init__(self, name: str, given: Any, width: int | None, labels: Sequence | None = None):
        self.name = name
        if issparse(given):
            raise TypeError(f"{name!r}: expected a table; found a sparse matrix")
        if hasattr(given, "columns"):
            own = pd.Index(given.columns).tolist()
            wanted = None if labels is None else pd.Index(labels).tolist()
            # Tables without names have numbers in their place.
            if wanted not in (None, own, [*range(len(own))]):
                raise ValueError(f"{name!r}: expected the columns {wanted}; found {own}")
            if given.ndim == 2:
                given = _floats(name, given)
            if isinstance(given, pd.DataFrame):
                given = given.to_numpy()
            else:
                given = given.to_dask_array(lengths=True)
        if not hasattr(given, "shape") or not hasattr(given, "dtype"):
            given = np.asarray(given)
        shape = tuple(given.shape)
        expected = "(rows,)" if width is None else f"(rows, {width})"
        if len(shape) != (1 if width is None else 2) or (width is not None and shape[1] != width):
            raise ValueError(f"{name!r}: expected an array of shape {expected}; found {shape}")
        if given.dtype.kind not in "biuf":
            raise TypeError(f"{name!r}: expected numbers; found the dtype {given.dtype}")
        if np.isnan(shape[0]):
            raise ValueError(
                f"{name!r}: expected chunks with a known number of rows; found one that is not "
                "known: call compute_chunk_sizes() first"
            )
        if shape[0] == 0:
            raise ValueError(f"{name!r}: expected rows; found none")
        self.n_rows = int(shape[0])
        self._dask = hasattr(given, "dask")
        if self._dask and width is not None and len(given.chunks[1]) > 1:
            given = given.rechunk({1: -1})
        chunks: Any = getattr(given, "chunks", None)
        if self._dask and 0 in chunks[0]:
            raise ValueError(
                f"{name!r}: expected rows in every chunk; found none in chunk {chunks[0].index(0)}"
            )
        # Zarr has one number of rows for all chunks, Dask one for each.
        self.step = None if chunks is None else int(np.max(chunks[0]))
        self._given, self._offset, self._shape = given, 0, shape[1:]

    def __getstate__(self) -> dict[str, Any]:
        """Send the place of a memory map, and not what is in it."""
        state, given = self.__dict__.copy(), self._given
        place = _place(given)
        return state if place is None else state | {"_given": place}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._given, _Mapped):
            self._given = self._given.open()

    @property
    def in_memory(self) -> int:
        """Bytes that go to workers with it."""
        ours = isinstance(self._given, np.ndarray) and _place(self._given) is None
        return self._given.nbytes if ours else 0

    def part(self, start: int, stop: int) -> Self:
        """Return what goes to a worker that reads rows `start` ... `stop` alone."""
        found = copy(self)
        if self.in_memory:
            found._given, found._offset = self._given[start:stop], start
        return found

    def rows(self, start: int, stop: int) -> NDArray:
        """Read some rows, as float32 or float64."""
        found = self._given[start - self._offset : stop - self._offset]
        if self._dask:
            found = found.compute(scheduler="synchronous")
        if isinstance(found, np.ma.MaskedArray):
            # As they are computed in without a mask.
            kind = np.float32 if found.dtype == np.float32 else np.float64
            found = np.ma.filled(found.astype(kind), np.nan)
        found = np.asarray(found)
        # What computes a chunk may give another one than it has promised.
        if found.shape[1:] != self._shape:
            raise ValueError(
                f"{self.name!r}, rows {start} to {stop}: expected {self._shape[0]} columns; found "
                f"an array of shape {found.shape}"
            )
        return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


def _floats(name: str, frame: Any) -> Any:
    """Give columns that differ in their dtypes, or have pandas' own, one of NumPy's floats."""
    for column, own in frame.dtypes.items():
        if own.kind not in "biuf":
            raise TypeError(f"{name!r}, column {column!r}: expected numbers; found the dtype {own}")
    if len({*frame.dtypes}) < 2 and not any(
        isinstance(own, ExtensionDtype) for own in frame.dtypes
    ):
        return frame
    kind = np.result_type(*(getattr(own, "numpy_dtype", own.type) for own in frame.dtypes))
    return frame.astype(kind if kind == np.float32 else np.float64)


@dataclass(frozen=True)
class _Mapped:
    """Where a memory map is."""

    file: str
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int
    order: Literal["C", "F"]

    def open(self) -> NDArray:
        """Map it again."""
        if not Path(self.file).exists():
            raise FileNotFoundError(
                f"{self.file}: a worker cannot see this file; workers need the data where the "
                "caller has it, on a shared disk"
            )
        return np.memmap(self.file, self.dtype, "r", self.offset, self.shape, self.order)


def _place(given: Any) -> _Mapped | None:
    """Find where in its file a memory map is, or a part of one in one piece; None if it is none."""
    whole = given
    while isinstance(whole, np.ndarray) and isinstance(whole.base, np.ndarray):
        whole = whole.base
    if not isinstance(whole, np.memmap) or not isinstance(whole.base, mmap):
        return None
    # What is masked, or was written to a copy, is not in the file.
    if isinstance(given, np.ma.MaskedArray) or whole.filename is None or whole.mode == "c":
        return None
    if not (given.flags.c_contiguous or given.flags.f_contiguous):
        return None
    offset = whole.offset + given.ctypes.data - whole.ctypes.data
    order: Literal["C", "F"] = "C" if given.flags.c_contiguous else "F"
    return _Mapped(str(whole.filename), given.dtype, given.shape, offset, order)


@dataclass(frozen=True)
class Piece:
    """A chunk: some rows of one assignment's objects."""

    number: int  # over all assignments: what its generator is seeded by
    assignment: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def cut(sources: Mapping[str, Mapping[str, Rows]], chunk_size: int | None) -> list[Piece]:
    """Cut the rows of every assignment into chunks.

    All but the last have as many rows: `chunk_size`, or those of the first variable's own chunks.
    Raise `ValueError` if the variables of an assignment have different numbers of rows.
    """
    pieces: list[Piece] = []
    for assignment, own in sources.items():
        first = next(iter(own.values()))
        for source in own.values():
            if source.n_rows != first.n_rows:
                raise ValueError(
                    f"{source.name!r}: expected as many rows as {first.name!r} has, "
                    f"{first.n_rows}; found {source.n_rows}"
                )
        step = chunk_size or next((s.step for s in own.values() if s.step), _CHUNK)
        for start in range(0, first.n_rows, step):
            stop = min(start + step, first.n_rows)
            pieces.append(Piece(len(pieces), assignment, start, stop))
    return pieces


# Rows of a chunk where neither the data nor the caller say.
_CHUNK = 100_000
