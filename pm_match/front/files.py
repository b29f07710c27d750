"""Files of tables and of networks, read as they are: what is in them is judged elsewhere."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from pm_match.front.cells import (
    MISSING,
    InputError,
    is_market,
    numbers,
    read_cells,
    whole_numbers,
)


def read_table_file(
    file: Path, known: Collection[str] = (), text: Collection[str] = (), id: str | None = None
) -> pd.DataFrame:
    """Read one table: a header line, then a row for each object.

    The first column has the objects' labels if its header is empty, or if it is text and differs in
    every row; otherwise objects are numbered from 1. Other columns are numbers if all their cells
    are, and text otherwise; empty cells, and others in `MISSING`, are missing. Columns that are
    `known`, from another file or by their use, have no labels. Those in `text` are text, whatever
    their cells. Labels, also those in the column `id`, are text unless all are whole numbers
    without zeros before them.

    Raise `InputError` if the file cannot be read, or has no header.
    """
    cells = read_cells(file)
    header = cells.iloc[0].tolist()
    body = cells.iloc[1:]
    values = {i: numbers(body[i]) for i in range(len(header))}
    first = body[0]
    present = ~first.isin(MISSING)
    named = present.all() and bool(values[0].isna().all()) and first.is_unique and len(first) > 0
    labelled = header[0] == "" or (named and as_variable(header[0]) not in known)
    if labelled:
        index = pd.Index(whole_numbers(first), name=header[0] or None)
        if not present.all():
            row = int(np.argmin(present)) + 1
            raise InputError(f"{file}: row {row}: expected the object's label; found an empty cell")
    else:
        index = pd.RangeIndex(1, len(body) + 1)
    own = range(int(labelled), len(header))
    missing = {i: body[i].isin(MISSING) for i in own}
    mixed = [i for i in own if (values[i].isna() & ~missing[i]).any()]
    held = [i for i in mixed if (body[i] == header[i]).any()]
    others = [header[i] for i in own if i not in mixed]
    if _are_numbers(header[own.start :]):
        listed = ", ".join(header[own.start :][:3])
        raise InputError(
            f"{file}: expected names of columns in the first line; found numbers "
            f"({listed}{', …' if len(own) > 3 else ''}): add a line with names, or let names begin "
            "with a letter"
        )
    if held and (_are_numbers(others) if others else held == mixed):
        raise InputError(
            f"{file}: expected names of columns in the first line; found {header[held[0]]!r}, "
            f"which column number {held[0] + 1} holds: add a line with names"
        )
    columns = {}
    for i in own:
        if header[i] == "":
            raise InputError(
                f"{file}: column number {i + 1}: expected its name in the first line; found none"
            )
        if header[i] == id and not missing[i].any():
            columns[i] = whole_numbers(body[i])
            continue
        as_text = (
            i in mixed
            or header[i] == id
            or not {header[i], as_variable(header[i])}.isdisjoint(text)
        )
        columns[i] = body[i].mask(missing[i]).astype(object) if as_text else values[i]
    table = pd.DataFrame(columns)
    table.index = index
    table.columns = pd.Index(header[int(labelled) :], dtype=str)
    return table


def as_variable(column: Any) -> str:
    """Name a column as variables of a model may be: without "/", "::" and a last "__"."""
    return re.sub(r"__+$", "_", str(column).replace("/", "_").replace("::", ":"))


def _are_numbers(names: list[str]) -> bool:
    return bool(names) and bool(numbers(pd.Series(names, dtype=str)).notna().all())


@dataclass(frozen=True, eq=False)
class NetworkFile:
    """What a file, or what was given instead of one, says."""

    file: Path | None
    cells: Any  # a matrix, or a DataFrame of labels, and perhaps values
    header: tuple[str, ...] = ()  # what a list of edges calls rows and columns
    symmetric: bool = False  # whether the file says that the matrix is
    labels: tuple[Any, ...] | None = None  # of all objects, those without edges too


def is_matrix(file: Path) -> bool:
    """Whether a file is a matrix by its name, and not text with commas."""
    return is_market(file) or file.suffix.lower() == ".npz"


def read_network_file(file: Path, n_axes: int) -> NetworkFile:
    """Read one network: a matrix, or a list of edges between objects of `n_axes` types.

    Raise `InputError` if the file cannot be read.
    """
    if not is_matrix(file):
        return _read_edges(file, n_axes)
    if n_axes != 2:
        raise InputError(
            f"{file}: expected two types of objects, as a matrix has; found {n_axes} (edge lists "
            "may have more)"
        )
    return _read_market(file) if is_market(file) else _read_npz(file)


def _read_market(file: Path) -> NetworkFile:
    import scipy.io  # takes its time

    with _reading(file, "a MatrixMarket file that can be read"), warnings.catch_warnings():
        # SciPy announces that its matrices become arrays: either will do.
        warnings.simplefilter("ignore", DeprecationWarning)
        symmetry = scipy.io.mminfo(file)[-1]
        cells = scipy.io.mmread(file)
    if symmetry not in ("general", "symmetric"):
        raise InputError(f"{file}: expected a general or symmetric matrix; found {symmetry}")
    return NetworkFile(file, cells, symmetric=symmetry == "symmetric")


def _read_npz(file: Path) -> NetworkFile:
    with _reading(file, "a sparse matrix as scipy.sparse.save_npz writes it"):
        return NetworkFile(file, scipy.sparse.load_npz(file))


@contextmanager
def _reading(file: Path, what: str) -> Iterator[None]:
    """Say what a file was expected to be where it cannot be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{file}: No such file or directory") from error
    except Exception as error:  # of many kinds, as the file may be anything
        raise InputError(f"{file}: expected {what}; found something else ({error})") from error


def _read_edges(file: Path, n_axes: int) -> NetworkFile:
    cells = read_cells(file)
    header, body = cells.iloc[0].tolist(), cells.iloc[1:]
    if len(header) not in (n_axes, n_axes + 1):
        more = " (name all types of objects: types=[…])" if len(header) > n_axes + 1 else ""
        raise InputError(
            f"{file}: expected {n_axes} columns of labels, then perhaps one of values; found "
            f"{len(header)} columns{more}"
        )
    if not len(body):
        raise InputError(f"{file}: expected at least one edge; found none")
    for i in range(n_axes):
        if header[i] in set(body[i]) or not numbers(cells.loc[[0], i]).isna().all():
            raise InputError(
                f"{file}: expected a header line, such as row,column; found the label "
                f"{header[i]!r} there"
            )
        empty = body[i] == ""
        if empty.any():
            raise InputError(
                f"{file}: row {empty.idxmax()}, column {i + 1}: expected a label; found an empty "
                "cell"
            )
    table = body.set_axis([f"column {i + 1}" for i in range(len(header))], axis=1)
    if len(header) > n_axes:
        table = table.assign(**{table.columns[-1]: _values(file, header[n_axes], body[n_axes])})
    return NetworkFile(file, table, tuple(header[:n_axes]))


def _values(file: Path, header: str, column: pd.Series) -> pd.Series:
    if not numbers(pd.Series([header])).isna().all():
        raise InputError(
            f"{file}: expected a header line, such as row,column,value; found {header!r}"
        )
    empty = column.isin(MISSING)
    if empty.any():
        raise InputError(
            f"{file}: row {empty.idxmax()}: expected the edge's value; found none; leave out what "
            "is unknown, and say absent='unknown'"
        )
    values = numbers(column)
    text = values.isna()
    if text.any():
        raise InputError(
            f"{file}: row {text.idxmax()}: expected a number as the edge's value; "
            f"found {column[text].iloc[0]!r}"
        )
    return values
