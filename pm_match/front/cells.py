"""Text files as cells, and what their cells say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pm_match.checks import identifier

__all__ = [
    "MISSING",
    "InputError",
    "is_market",
    "named",
    "numbers",
    "read_cells",
    "read_links",
    "stem",
]

MISSING = ["", "NA", "N/A", "NaN", "nan"]


class InputError(ValueError):
    """The user's files or options cannot be used; the message says why."""


def read_cells(file: Path) -> pd.DataFrame:
    """Read all cells as stripped text: the header is row 0 and the index counts rows from 1."""
    try:
        cells = pd.read_csv(
            file,
            header=None,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            encoding="utf-8-sig",
            skipinitialspace=True,
        )
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{file}: the file is empty") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not a text file in UTF-8 ({error.reason})") from error
    except pd.errors.ParserError as error:
        detail = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise InputError(
            f"{file}: rows differ in their number of cells, or the header is shorter than they "
            f"({detail})"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    # A row that is too short ends in NaN; the cells it lacks are missing values.
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    if cells.shape[1] == 1 and any(mark in cells.iloc[0, 0] for mark in ";\t"):
        raise InputError(f"{file}: expected cells separated by commas; found {cells.iloc[0, 0]!r}")
    return cells


def numbers(column: pd.Series) -> pd.Series:
    """Read text as numbers: NaN where it is none, or a missing value."""
    return pd.to_numeric(column.mask(column.isin(MISSING)), errors="coerce").astype(float)


def named(files: Iterable[Path], what: str) -> Iterator[tuple[str, Path]]:
    """Name what is in files after them; refuse two of one name."""
    source: dict[str, Path] = {}
    for file in files:
        name = identifier(stem(file))
        if name in source:
            raise InputError(
                f"{file}: gives the {what} name {name!r}, as {source[name]} does; rename one"
            )
        source[name] = file
        yield name, file


def read_links(
    file: Path, objects: Mapping[str, Any], what: str = "domain"
) -> list[dict[str, list[int]]]:
    """Read which objects are known to share a cluster.

    Parameters
    ----------
    file : Path
        Comma-separated: the header says where objects are, each row has one object's label in each.
    objects : mapping of str to array
        Labels of the objects, by what the header may say.
    what : str
        What such a name is of, for messages.

    Returns
    -------
    list of dict
        Positions of objects by name; the k-th entries of a dictionary are linked. One dictionary
        for each set of names that rows link.

    Raises
    ------
    InputError
        If the file cannot be read, or a row links no two objects or names an unknown one.
    """
    cells = read_cells(file)
    columns = [identifier(name) for name in cells.iloc[0]]
    for column in columns:
        if column not in objects:
            raise InputError(f"{file}: unknown {what} {column!r}; there are {list(objects)}")
        if columns.count(column) > 1:
            raise InputError(f"{file}: {what} {column!r} has more than one column")
    position = {name: {str(label): i for i, label in enumerate(objects[name])} for name in columns}
    groups: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for line, row in zip(cells.index[1:], cells.iloc[1:].to_numpy(), strict=True):
        linked = {
            name: label for name, label in zip(columns, row, strict=True) if label not in MISSING
        }
        if len(linked) < 2:
            raise InputError(
                f"{file}: row {line}: expected labels of at least two objects; found {len(linked)}"
            )
        group = groups.setdefault(tuple(linked), {name: [] for name in linked})
        for name, label in linked.items():
            if label not in position[name]:
                raise InputError(f"{file}: row {line}: {what} {name!r} has no object {label!r}")
            group[name].append(position[name][label])
    return list(groups.values())


def stem(file: Path) -> str:
    """Give a file's name without what says its kind."""
    return file.name.removesuffix(".gz").removesuffix(".mtx") if is_market(file) else file.stem


def is_market(file: Path) -> bool:
    """Whether a file is one of MatrixMarket, compressed or not."""
    return file.name.lower().endswith((".mtx", ".mtx.gz"))
