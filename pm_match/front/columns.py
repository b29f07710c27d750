"""What is in one column of a table: how it is used, or why it is not, in words."""

from __future__ import annotations

import re
from datetime import date, time, timedelta
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pm_match.checks import plain

# How a column can be used: the kinds that `models.mixture` knows.
USES = ("number", "positive", "count", "boolean", "category")
LEFT_OUT = "left out"
# Larger whole numbers vary more than counts of events do.
_LARGEST_COUNT = 30
# Codes and ratings have few values.
_MOST_CODES = 10
# Whole numbers that are found so often on average may be codes.
_REPEATED = 5
# Whole numbers that name objects are smaller, and floats of this size always whole.
_LARGEST_NAME = 1e20
# Positive numbers that span more than this differ by factors, not by amounts.
_WIDE = 100.0
# More different texts, or longer ones, are no categories.
_MOST_CATEGORIES, _MOST_WORDS = 30, 4
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}")
_ZONE = re.compile(r":\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$")
# Numbers with decimal commas, thousands apart, or a unit that goes before or after them.
_THOUSANDS = r"(0|[1-9]\d{0,2})([.,'’\s]\d{3})+"
_NUMBER = re.compile(rf"([€$£]\s*)?[+-]?({_THOUSANDS}|\d+)([.,]\d+)?(\s*[€$£%])?")
_ID = re.compile(r"(?i)(.*[_ .-])?(id|ids|key|uuid|guid|sku|ean|isbn|nr|no|index|unnamed.*)")
# From so many rows on, 1, 2, 3, … is no coincidence.
_LEAST_COUNTED = 8


class Column(NamedTuple):
    """What was found: one of `USES` or `LEFT_OUT`, what to say of it, and whether to warn.

    `dtype`: of the column, or of what a column of any objects holds.
    """

    use: str
    note: str = ""
    warn: bool = False
    dtype: Any = None


def look_at_column(where: str, values: pd.Series, told: str | None = None) -> Column:
    """Judge what a column holds.

    `where`: what messages call its table; `told`: how the user says it is to be used, which settles
    what is uncertain. Raise `TypeError` if it holds dates, free text, or what is neither numbers
    nor text; the message says what can be done.
    """
    name, seen = values.name, values.dropna()
    holes = len(values) - len(seen)
    missing = f"{holes} missing" if holes else ""
    distinct = seen.nunique() if hashable(seen) else len(seen)
    if not distinct:
        return Column(LEFT_OUT, "no value in it", warn=True)
    if distinct == 1:
        only = plain(seen.iloc[0])
        only = f"{only:g}" if isinstance(only, float) else only
        return Column(LEFT_OUT, f"one value only ({only})", warn=True)
    if told is not None:
        return Column(told, missing)
    dtype = values.dtype
    # pyarrow's categories are called dictionaries.
    if isinstance(dtype, pd.CategoricalDtype) or str(dtype).startswith("dictionary"):
        return Column("category", missing)
    held = seen.infer_objects().dtype
    if pd.api.types.is_bool_dtype(held):
        return Column("boolean", missing)
    if pd.api.types.is_numeric_dtype(held) and not pd.api.types.is_complex_dtype(held):
        return _numbers(name, seen.to_numpy(np.float64), distinct, missing)
    if pd.api.types.infer_dtype(seen) != "string":
        _refuse(where, name, *_no_texts(name, seen))
    return _texts(where, name, seen.astype(object), distinct, missing)


def _numbers(name: Any, seen: np.ndarray, distinct: int, missing: str) -> Column:
    low, high = seen.min(), seen.max()
    if set(np.unique(seen)) == {0.0, 1.0}:
        return Column("boolean", missing)
    whole = bool((seen == np.floor(seen)).all()) and np.abs(seen).max() < _LARGEST_NAME
    use = "count" if whole and low >= 0 and high <= _LARGEST_COUNT else "number"
    if whole and distinct == len(seen):
        counted = high - low + 1 == distinct and distinct >= _LEAST_COUNTED
        if counted or _ID.fullmatch(str(name)):
            return Column(LEFT_OUT, _offer(name, "number"), warn=True)
        note = f"distinct whole numbers; if they only name objects, say id={name!r}"
        return Column(use, "; ".join(filter(None, (missing, note))), warn=True)
    if use == "count":
        return Column("count", missing)
    if low > 0 and high / low > _WIDE and not whole:
        return Column("positive", missing)
    if whole and distinct <= _MOST_CODES and len(seen) >= _REPEATED * distinct:
        note = f"{distinct} different ones; if they are codes, say columns={{{name!r}: 'category'}}"
        return Column("number", "; ".join(filter(None, (missing, note))))
    return Column("number", missing)


def use_of_whole_numbers(values: np.ndarray) -> str:
    """Say whether whole numbers are counts, or vary less than any mixture of Poisson counts does.

    `values` (N,): of all tables, none missing. Codes and ratings are categories. Of counts the
    variance is about the mean or more; less by three standard errors at least is too little.
    """
    least = min(0.7, 1.0 - 3.0 * (2.0 / len(values)) ** 0.5)
    if values.var() >= least * values.mean():
        return "count"
    return "category" if len(np.unique(values)) <= _MOST_CODES else "number"


def _no_texts(name: Any, seen: pd.Series) -> tuple[str, str]:
    """Say what a column holds that is neither numbers nor text, and what can be done."""
    dtype, other = seen.dtype, next(value for value in seen if not isinstance(value, str))
    if isinstance(other, timedelta):
        return "durations", _instead(name, f"pd.to_timedelta(frame[{name!r}]).dt.total_seconds()")
    if isinstance(other, date | time | pd.Period):
        return "dates or times", _dates(name, seen)
    texts = [value for value in seen if isinstance(value, str)]
    if texts and isinstance(other, Number):
        what = f"numbers and text, for example {plain(other)!r} and {texts[0]!r}"
        return what, _categories_or_missing(name)
    what = f"values of dtype {dtype}, for example {plain(other)!r}"
    if not isinstance(other, Number) or isinstance(other, complex):
        return what, ""
    return what, f"if these are numbers, convert them: frame[{name!r}].astype(float)"


def _texts(where: str, name: Any, seen: pd.Series, distinct: int, missing: str) -> Column:
    rows, different = pd.factorize(seen)
    texts, counts = pd.Series(list(different), dtype=object), np.bincount(rows)
    numeric = pd.to_numeric(texts, errors="coerce").notna().to_numpy()
    if numeric.all():
        _refuse(
            where,
            name,
            "numbers as text",
            f"convert it (pd.to_numeric(frame[{name!r}])), or say columns={{{name!r}: 'category'}}",
        )
    if texts.str.fullmatch(_NUMBER).all():
        _refuse(
            where,
            name,
            f"numbers as text, for example {seen.iloc[0]!r}",
            f"write them as 1234.5 is, or say columns={{{name!r}: 'category'}}",
        )
    if counts[numeric].sum() >= 0.5 * len(seen):
        at = int(np.argmin(numeric[rows]))
        row = plain(seen.index[at])
        text = f"numbers and text, for example {seen.iloc[at]!r} in row {row!r}"
        _refuse(
            where,
            name,
            text,
            _categories_or_missing(name),
        )
    if texts.str.match(_DATE).all():
        _refuse(where, name, f"dates as text ({seen.iloc[0]!r})", _dates(name, seen))
    if distinct == len(seen):
        return Column(LEFT_OUT, _offer(name, "text"), warn=True)
    words = np.average([len(text.split()) for text in texts], weights=counts)
    if words > _MOST_WORDS or distinct > max(_MOST_CATEGORIES, len(seen) // 2):
        _refuse(
            where,
            name,
            f"free text ({distinct} different texts, for example {seen.iloc[0][:40]!r})",
            f"make features of it (counts of words, say), say columns={{{name!r}: 'category'}} if "
            f"these are categories, or {leave(name)}",
        )
    return Column("category", missing)


def _categories_or_missing(name: Any) -> str:
    return (
        f"say columns={{{name!r}: 'category'}} if these are categories, or leave cells empty where "
        "values are missing"
    )


def _offer(name: Any, what: str) -> str:
    return f"a {what} of its own for every object; if it names them, say id={name!r}"


def _dates(name: Any, seen: pd.Series) -> str:
    """Say how to make a number of dates, of periods, or of times of the day."""
    column, one = f"frame[{name!r}]", seen.iloc[0]
    if isinstance(one, time):
        return _instead(name, f"pd.to_timedelta({column}.astype(str)).dt.total_seconds()")
    if isinstance(one, pd.Period):
        column = f"{column}.dt.to_timestamp()"
    options, zone, hint = "", "", ""
    parts = seen.astype(str).str.extract(r"^(\d+)([./])(\d+)").dropna()
    if len(parts):
        day_first, month_first = (bool((parts[k].astype(int) > 12).any()) for k in (0, 2))
        options = "" if month_first else ", dayfirst=True"
        if not day_first and not month_first and parts[1].iloc[0] == "/":
            hint = "; leave out dayfirst if months come first"
    elif _ZONE.search(str(one)):
        options, zone = ", utc=True", ', tz="UTC"'
    days = f"(pd.to_datetime({column}{options}) - pd.Timestamp(2000, 1, 1{zone})).dt.days"
    return _instead(name, f"days since one day for all tables: {days}{hint}")


def _instead(name: Any, number: str) -> str:
    return f"make a number of it ({number}) or a category, or {leave(name)}"


def leave(name: Any) -> str:
    """Say how a column is left out."""
    return f"leave it out: columns={{{name!r}: 'ignore'}}"


def _refuse(where: str, name: Any, what: str, remedy: str) -> None:
    remedy = f". {remedy[0].upper()}{remedy[1:]}." if remedy else ""
    raise TypeError(
        f"{where}: column {name!r}: expected numbers, booleans, categories or names of categories; "
        f"found {what}{remedy}"
    )


def hashable(seen: pd.Series) -> bool:
    """Say whether values can be counted."""
    try:
        seen.nunique()
    except TypeError:
        return False
    return True
