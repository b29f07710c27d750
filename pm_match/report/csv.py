"""Tables as comma-separated text whose cells a spreadsheet takes as text and numbers alone."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pm_match.checks import joined

# Columns with the names of objects.
_NAMES = ("object", "partner")
# Cells of a file that are made text at a time: 128 MB.
_CELLS = 2**24
# A spreadsheet evaluates cells that begin with one of these.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_csv(
    table: pd.DataFrame, file: Path | None = None, float_format: str | None = None, **options: Any
) -> str | None:
    """Write a table; labels that a spreadsheet would evaluate get an apostrophe in front.

    Labels are the user's, or somebody's who gave them data: ``=HYPERLINK(...)`` is a label here and
    a formula in a spreadsheet. What reads as a number stays as it is, with all its digits.

    `file`: default: the text is returned; `float_format`: of numbers that are not whole, such as
    ``"%.6g"``; `**options`: passed to `DataFrame.to_csv`.
    """
    # Draws make few probabilities that differ: pandas would format each of millions of cells.
    formatted = None if float_format is None else lru_cache(2**16)(float_format.__mod__)
    n, text = max(len(table), 1), None
    rows = n if file is None else max(_CELLS // max(table.shape[1], 1), 1)
    for first in range(0, n, rows):
        text = _safe(table.iloc[first : first + rows], formatted).to_csv(
            file, mode="a" if first else "w", header=not first, float_format=float_format, **options
        )
    return text


def _safe(table: pd.DataFrame, formatted: Callable[[float], str] | None) -> pd.DataFrame:
    named = with_text_names(table)
    cells = {j: _cells(column, formatted) for j, (_, column) in enumerate(named.items())}
    safe = pd.DataFrame(cells, index=range(len(named)))
    safe.index, safe.columns = _index(named.index), _index(named.columns)
    return safe


def _cells(column: pd.Series, formatted: Callable[[float], str] | None) -> Any:
    """Make a column's cells what is written."""
    if formatted is not None and pd.api.types.is_float_dtype(column):
        codes, values = pd.factorize(column)
        texts = np.array([*map(formatted, values), ""], dtype=object)
        return pd.Series(texts[codes], dtype=object)
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return column.array
    return column.map(as_text).to_numpy()


def with_text_names(table: pd.DataFrame) -> pd.DataFrame:
    """Make the labels of objects text, which no number of digits shortens."""
    names = [column for column in _NAMES if column in table]
    return table.assign(**{column: table[column].map(joined).astype(str) for column in names})


def as_text(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would take for a formula."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _index(index: pd.Index) -> pd.Index:
    names = [as_text(name) for name in index.names]
    if isinstance(index, pd.MultiIndex):
        return pd.MultiIndex.from_tuples([tuple(map(as_text, key)) for key in index], names=names)
    if index.dtype.kind == "f":
        index = index.astype(str)
    return index.map(as_text).rename(names[0]) if len(index) else index
