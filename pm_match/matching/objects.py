"""Objects by their labels, in whatever order tables, networks and labels have them."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import joined, plain

# Labels of these kinds stay what they are in draws; all others become text.
_KEPT = "biufMm"


def objects_of(given: Any, axis: int = 0) -> pd.Index | None:
    """Give the labels along an axis, if there are any: pandas' numbers of rows are none."""
    if isinstance(given, xr.DataArray):
        index = given.indexes.get(given.dims[axis])
    elif isinstance(given, pd.Series | pd.DataFrame):
        index = given.axes[axis]
    else:
        return None
    return None if isinstance(index, pd.RangeIndex) else index


def in_order(
    given: Any, expected: pd.Index | None, *, axis: int = 0, where: str, whose: str = "the draws"
) -> Any:
    """Put what is given, a table or labels, along an axis into the order of the expected objects.

    They are matched by label if both sides have labels, and by place otherwise. Numbers from 0, as
    draws have where tables had no labels, are none if the other side has names.

    `expected`: None without labels; `where`, `whose`: what messages call what is given, and what
    the expected objects are of. What has another number of objects stays as it is, for whoever
    counts them to refuse. Raise `ValueError` if labels are of other objects, or not unique.
    """
    order = order_of(objects_of(given, axis), expected, where=where, whose=whose)
    if order is None:
        return given
    if isinstance(given, xr.DataArray):
        return given.isel({given.dims[axis]: order})
    return given.take(order, axis=axis)


def order_of(
    found: pd.Index | None, expected: pd.Index | None, *, where: str, whose: str
) -> NDArray[np.int64] | None:
    """Say where the expected objects are among those found (N,); None if that is by place.

    As `in_order`, which see.
    """
    if found is None or expected is None or len(found) != len(expected):
        return None
    counted = [_is_counted(index) for index in (found, expected)]
    found, wanted = _alike(found, expected)
    if found.equals(wanted) or (any(counted) and found.dtype.kind not in "iu"):
        return None
    for what, index in ((where, found), (whose, wanted)):
        if not index.is_unique:
            raise ValueError(
                f"{what}: expected unique labels of objects; found "
                f"{plain(index[index.duplicated()][0])!r} more than once"
            )
    order = found.get_indexer(wanted)
    if (order < 0).any():
        lacking, others = wanted[order < 0][0], found[wanted.get_indexer(found) < 0]
        raise ValueError(
            f"{where}: expected the objects of {whose}, such as {plain(lacking)!r}; found "
            f"others, such as {plain(others[0])!r}"
        )
    return order


def _is_counted(index: pd.Index) -> bool:
    return index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))


def _alike(*indexes: pd.Index) -> list[pd.Index]:
    """Make labels text, as draws have them, unless both sides have numbers or dates."""
    flat = [index.map(joined) if index.dtype == object else index for index in indexes]
    if all(index.dtype.kind in _KEPT for index in flat):
        return flat
    return [index.astype(str) for index in flat]
