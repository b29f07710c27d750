"""Text files as cells, and what their cells say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# As whole numbers of 64 bits are written; labels such as 007 are text.
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
# Endings of compressed files, which pandas reads.
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
# Endings of files that are no text with commas.
_OTHERS = re.compile(r"\.(parquet|feather|xlsx?|ods|json|pkl|npy|h5|h5ad|nc)")
MISSING = ["", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null"]


class InputError(ValueError):
    """The user's files or options cannot be used; the message says why."""


def read_cells(file: Path) -> pd.DataFrame:
    """Read all cells as stripped text: the header is row 0 and the index counts rows from 1.

    Commas are between them, or what the header and other rows have in their place: semicolons, tabs
    or bars.
    """
    if _OTHERS.fullmatch(_uncompressed(file).suffix.lower()):
        raise InputError(
            f"{file}: expected text with commas between cells (CSV); found a file that ends in "
            f"{file.name.removeprefix(stem(file))!r}: read it with pandas, or save it as CSV"
        )
    try:
        given = file if file.is_file() else file.read_bytes()  # a pipe is read once
        # Of other marks, a header holds one cell, as it seems; or more, if names have commas.
        header, *more = _all_cells(given, nrows=1, skipinitialspace=False).iloc[0].astype(str)
        others = [own for own in ";\t|" if own in "".join([header, *more])]
        cells = _by_mark(given, [",", *others] if more else [*others, ","])
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{file}: expected a header line; found an empty file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: expected text in UTF-8; found other bytes ({error.reason}): save it as UTF-8"
        ) from error
    except pd.errors.ParserError as error:
        detail = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        only = detail.startswith("Expected 1 ")
        found = f"only {header!r} there, and " if only else ""
        raise InputError(
            f"{file}: expected as many cells in every row as in the header; found {found}another "
            f"row ({detail})"
        ) from error
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    # A row that is too short ends in NaN; the cells it lacks are missing values.
    cells = cells.fillna("").apply(lambda column: column.str.strip())
    # Commas at the end of all lines are no columns.
    return cells.loc[:, : np.flatnonzero((cells != "").any()).max(initial=0)]


def _by_mark(given: Path | bytes, marks: Sequence[str]) -> pd.DataFrame:
    """Read what is between the marks by which no row is short, and most cells; or else the first.

    They are marks that rows below the header have, too.
    """
    failed, found = None, []
    for mark in marks:
        try:
            cells = _all_cells(given, sep=mark, skipinitialspace=True)
        except pd.errors.ParserError as error:
            failed = failed or error
        else:
            if cells.iloc[1:, 1:].fillna("").any(axis=None):
                found.append(cells)
    if found:
        return max(found, key=lambda own: 0 if own.isna().any(axis=None) else own.shape[1])
    if failed is not None:
        raise failed
    return _all_cells(given, skipinitialspace=True)


def _all_cells(given: Path | bytes, **how: Any) -> pd.DataFrame:
    return pd.read_csv(
        BytesIO(given) if isinstance(given, bytes) else given,
        header=None,
        dtype=str,
        keep_default_na=False,
        na_filter=False,
        encoding="utf-8-sig",
        **how,
    )


def numbers(column: pd.Series) -> pd.Series:
    """Read text as numbers: NaN where it is none, or a missing value."""
    return pd.to_numeric(column.mask(column.isin(MISSING)), errors="coerce").astype(float)


def whole_numbers(column: pd.Series) -> pd.Series:
    """Read labels as whole numbers, if they all are, written as these are; else leave the text."""
    if len(column) and column.str.fullmatch(_WHOLE).all():
        return column.astype(np.int64)
    return column


def read_links(file: Path) -> pd.DataFrame:
    """Read which objects are known to share a cluster.

    The header says where objects are, and each row has one object's label in each; empty cells
    link none.
    """
    cells = read_cells(file)
    rows = cells.iloc[1:].set_axis(cells.iloc[0].tolist(), axis=1)
    return rows.mask(rows.isin(MISSING))


def stem(file: Path) -> str:
    """Give a file's name without what says its kind, and how it is compressed."""
    return _uncompressed(file).stem


def _uncompressed(file: Path) -> Path:
    return Path(file.stem) if file.suffix.lower() in _COMPRESSED else file


def is_market(file: Path) -> bool:
    """Whether a file is one of MatrixMarket, compressed or not."""
    return file.name.lower().endswith((".mtx", ".mtx.gz"))
