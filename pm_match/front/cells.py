"""Text files as cells, and what their cells say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

# As whole numbers of 64 bits are written; labels such as 007 are text.
_WHOLE = re.compile(r"0|-?[1-9]\d{0,17}")
# Endings of compressed files, which pandas reads.
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip", ".zst")
# Endings of files that are no text with commas.
_OTHERS = (".parquet", ".feather", ".xlsx", ".xls", ".ods", ".json", ".pkl", ".h5", ".h5ad", ".nc")
MISSING = ["", "NA", "N/A", "NaN", "nan"]


class InputError(ValueError):
    """The user's files or options cannot be used; the message says why."""


def read_cells(file: Path) -> pd.DataFrame:
    """Read all cells as stripped text: the header is row 0 and the index counts rows from 1."""
    if _uncompressed(file).suffix.lower() in _OTHERS:
        raise InputError(
            f"{file}: expected text with commas between cells (CSV); found a file that ends in "
            f"{file.name.removeprefix(stem(file))!r}: read it with pandas, or save it as CSV"
        )
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
        raise InputError(f"{file}: expected a header line; found an empty file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file}: expected text in UTF-8; found other bytes ({error.reason})"
        ) from error
    except pd.errors.ParserError as error:
        detail = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        expected = "as many cells in every row as in the header"
        if not detail.startswith("Expected") or detail.startswith("Expected 1 "):
            expected = "cells separated by commas"
        raise InputError(f"{file}: expected {expected}; found another row ({detail})") from error
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
