"""The user's tables, checked and brought into one form.

Everything that can be wrong with a table is said here, early and by name (domain, row, column),
rather than by a shape error from inside a compiled kernel.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr

from pm_match.checks import (
    LARGEST,
    astype_hint,
    check_given_by_name,
    check_identifier,
    counted,
    joined,
    plain,
    type_name,
)

# Names that the declared models (or PyMC and ArviZ) use themselves.
_RESERVED = frozenset(
    ("weights", "precision", "latent", "cluster", "factor", "chain", "draw", "sample")
)
_LINKS = re.compile(r"links(_\d+)?")
# What a domain called `name` brings into the model: variables first, then dims. PyMC adds the
# two variables with "observed" when values are missing.
_DERIVED = (
    "{}",
    "cluster_{}",
    "projection_{}",
    "{}_observed",
    "{}_unobserved",
    "{}_object",
    "{}_feature",
)

_ACCEPTED = "a 2-D NumPy array, a masked array, a DataFrame, a DataArray or a SciPy sparse matrix"


@dataclass(frozen=True)
class Domain:
    """One data set: objects by features."""

    name: str  # the domain's name, an identifier
    # (n_objects, n_features): a masked array when a value is missing,
    # otherwise a plain one
    values: np.ndarray | np.ma.MaskedArray
    objects: np.ndarray  # (n_objects,): unique labels of the rows
    features: np.ndarray  # (n_features,): unique labels of the columns
    # whether the table had labels on its rows; otherwise `objects` are their numbers
    labelled: bool = True

    @property
    def n_objects(self) -> int:
        """Number of rows."""
        return self.values.shape[0]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def missing(self) -> np.ndarray:
        """Which values are missing: a boolean array, shape (n_objects, n_features)."""
        return np.ma.getmaskarray(self.values)

    def centre_and_spread(self) -> tuple[np.ndarray, np.float64]:
        """Return the columns' means (D,), and the standard deviation of all values about them.

        Raise `ValueError` if no column varies.
        """
        filled = np.ma.filled(self.values, np.nan)
        centre = np.nanmean(filled, axis=0)
        spread = np.float64(np.sqrt(np.nanmean((filled - centre) ** 2)))
        if not spread > 0.0:
            raise ValueError(f"{self.name!r}: expected objects that differ; found all equal")
        return centre, spread


def as_domains(
    domains: Mapping[str, Any],
    *,
    unseen: bool = False,
    kind: str = "domain",
    declared: bool = True,
) -> dict[str, Domain]:
    """Check the user's tables and bring them into one form, in the order given.

    A table has one row for each object and one column a feature: a 2-D array, masked array,
    DataFrame, DataArray or SciPy sparse matrix (which is made dense). NaN, or a mask, says that a
    value is missing. Row and column labels are kept; where there are none, objects and features
    are numbered from 0. `Domain` objects pass through.

    `unseen`: whether a row may be all missing; `kind`: what messages call a domain; `declared`:
    whether names become parts of variables' names, so that they have to be identifiers.

    Raise `TypeError` if `domains` is not a mapping, a name not a string, or a table not of real
    numbers; `ValueError` if there is no domain, a name is not an identifier or clashes with one in
    the model, or a table is not 2-D, has no feature or fewer than two objects, duplicate or missing
    labels, an infinite value, a masked array's NaN outside of its mask, a column that is constant
    or all missing, or a row that is all missing.
    """
    check_given_by_name(kind, domains)
    if declared:
        check_domain_names(domains, kind)
    return {
        name: replace(table, name=name)
        if isinstance(table, Domain)
        else _as_domain(name, table, unseen, kind)
        for name, table in domains.items()
    }


def check_domain_names(names: Iterable[Any], kind: str = "domain") -> None:
    """Refuse names of domains that are not identifiers, or that a model has for something else."""
    check_names(names, kind, _DERIVED, _is_reserved)


def _is_reserved(name: str) -> bool:
    return name in _RESERVED or _LINKS.fullmatch(name) is not None


def check_names(
    names: Iterable[Any],
    kind: str,
    derived: Iterable[str],
    reserved: Callable[[str], bool],
    owner: dict[str, str] | None = None,
) -> None:
    """Refuse names that are not identifiers, or would give a model two variables of one name.

    `kind`: what messages call what has a name; `derived`: formats of the names that each brings
    into the model; `reserved`: whether the model uses a name itself; `owner`: what the model has
    names from already; those of `names` are added.
    """
    patterns = list(derived)
    owner = {} if owner is None else owner
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{kind} {name!r}: expected a string as a {kind}'s name; found {type_name(name)}"
            )
        check_identifier(f"{kind} {name!r}", name)
        for own in (pattern.format(name) for pattern in patterns):
            if reserved(own):
                raise ValueError(
                    f"{kind} {name!r}: expected a name that the model leaves free; found {own!r}, "
                    "which it uses itself"
                )
            if own in owner:
                raise ValueError(
                    f"{kind} {name!r}: expected names of its own in the model; found a second "
                    f"{own!r} beside that of {owner[own]}"
                )
            owner[own] = f"{kind} {name!r}"


def as_new_objects(
    name: str, table: Any, features: np.ndarray | None, kind: str = "domain"
) -> Domain:
    """Check a table of new objects of a domain: any number, with the features that it has.

    There may be one object alone, and features that do not vary. `features` (M,): labels of the
    domain's, None if it has none; labelled columns are matched by label, others come in their
    order. Raise `TypeError` or `ValueError` if the table is not one of finite real numbers, or its
    features are not the domain's. Return these in the domain's order, NaN where missing.
    """
    where = f"new objects of {kind} {name!r}"
    values, objects, own, labelled, labelled_columns = read_table(where, table)
    expected = own if features is None else np.asarray(features)
    more = ""
    if labelled_columns and features is not None:
        order = pd.Index(own).get_indexer(pd.Index(expected))
        if (order < 0).any():
            raise ValueError(
                f"{where}: expected the features of the {kind}; found no column "
                f"{plain(expected[np.argmax(order < 0)])!r}"
            )
        values = values[:, order]
        strange = np.delete(own, order)
        more = (
            f" ({', '.join(repr(plain(column)) for column in strange)} too)" if len(strange) else ""
        )
    if len(own) != len(expected):
        raise ValueError(f"{where}: expected {len(expected)} features; found {len(own)}{more}")
    return Domain(name, values, objects, expected, labelled)


def as_new_columns(
    where: str, table: Any, labels: Any, n_columns: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Check a table of new objects that is columns, or a single one.

    `labels` (K,) or None: of the columns, as `as_new_objects` takes them; `n_columns`: None for one
    column that may come as a vector. Return `values` (N, K): NaN for missing ones; `objects` (N,):
    labels of the rows.
    """
    if n_columns is None and np.ndim(table) == 1:
        table = table.to_frame() if isinstance(table, pd.Series) else np.asanyarray(table)[:, None]
    labels = None if labels is None else np.asarray(labels)
    found = as_new_objects(where, table, labels, "columns")
    expected = 1 if n_columns is None else n_columns
    if found.n_features != expected:
        raise ValueError(
            f"new objects of {where!r}: expected {expected} columns; found {found.n_features}"
        )
    return np.asarray(found.values, np.float64), np.asarray(found.objects)


def _as_domain(name: str, table: Any, unseen: bool, kind: str) -> Domain:
    where = f"{kind} {name!r}"
    domain = seen_domain(where, name, table)
    data, mask = np.ma.getdata(domain.values), domain.missing
    objects, features = domain.objects, domain.features
    if len(objects) == 1:
        raise ValueError(
            f"{where}: expected at least two objects (rows); found one. One row is one object"
        )
    if not unseen:
        refuse_lines(where, "row", objects, mask.all(axis=1), "an observed value", "none")
    # Not np.nanmin: reductions with `where` need no second copy of the table.
    low = data.min(axis=0, where=~mask, initial=np.inf)
    high = data.max(axis=0, where=~mask, initial=-np.inf)
    constant = low == high
    if constant.any():
        only = low[np.flatnonzero(constant)[0]]
        expected = "values that differ, without which it says nothing about clusters"
        refuse_lines(where, "column", features, constant, expected, f"{only:g} everywhere")
    return domain


def seen_domain(where: str, name: str, table: Any) -> Domain:
    """Check a table, every column of which has been observed."""
    data, objects, features, labelled, _ = read_table(where, table)
    mask = np.isnan(data)
    refuse_lines(where, "column", features, mask.all(axis=0), "an observed value", "none")
    values = np.ma.MaskedArray(data, mask) if mask.any() else data
    return Domain(name, values, objects, features, labelled)


class TableParts(NamedTuple):
    """What `read_table` finds."""

    values: np.ndarray  # (N, D): NaN for missing ones
    objects: np.ndarray  # (N,)
    features: np.ndarray  # (D,): labels, or numbers where there are none
    # labelled, labelled_columns: whether the table had labels on its rows, and on its columns
    labelled: bool
    labelled_columns: bool


def read_table(where: str, table: Any) -> TableParts:
    """Check one table, named `where` in messages, and take it apart."""
    values, objects, features = _unpack(where, table)

    n_objects, n_features = values.shape
    if n_objects == 0 or n_features == 0:
        raise ValueError(
            f"{where}: expected at least one object and one feature; found {n_objects} objects "
            f"(rows) by {n_features} features (columns)"
        )
    labelled, labelled_columns = objects is not None, features is not None
    objects = as_labels(where, "row", range(n_objects) if objects is None else objects)
    features = as_labels(where, "column", range(n_features) if features is None else features)

    mask = np.ma.getmaskarray(values)
    data = np.array(np.ma.getdata(values), dtype=np.float64, order="C")
    refused = [
        (np.isinf(data), "infinite value", "finite numbers (NaN for a missing value)"),
        (
            np.abs(data) > LARGEST,
            "excessive value",
            f"numbers of at most {LARGEST:g} in size; use another unit",
        ),
        (
            np.isnan(data) & isinstance(values, np.ma.MaskedArray),
            "NaN value",
            "a mask that covers every missing value (np.ma.masked_invalid makes one)",
        ),
    ]
    for bad, what, expected in refused:
        _refuse_cells(where, bad & ~mask, data, objects, features, what, expected)
    data[mask] = np.nan
    return TableParts(data, objects, features, labelled, labelled_columns)


def _unpack(where: str, table: Any) -> tuple[np.ndarray, Any, Any]:
    """Return the values (real, 2-D, perhaps masked) and the labels of rows and columns or None."""
    if isinstance(table, pd.DataFrame):
        _check_columns(where, table)
        # Nullable dtypes say NA and sparse ones need densifying: pandas does both here.
        values = table.to_numpy(dtype=np.float64, na_value=np.nan)
        return values, table.index, table.columns
    if isinstance(table, xr.DataArray):
        values = _real(where, _two_dimensional(where, table.to_numpy()))
        rows, columns = (table.indexes.get(dim) for dim in table.dims)
        return values, rows, columns
    if scipy.sparse.issparse(table):
        return _real(where, _two_dimensional(where, table).toarray()), None, None
    if isinstance(table, np.ndarray):
        return _real(where, _two_dimensional(where, table)), None, None
    ways = [own for own in ("to_pandas", "compute") if hasattr(table, own)]
    instead = f": say table.{ways[0]}()" if ways else ""
    raise TypeError(f"{where}: expected {_ACCEPTED}; found {type_name(table)}{instead}")


def _check_columns(where: str, table: pd.DataFrame) -> None:
    for position, label in enumerate(table.columns):
        column = table.iloc[:, position]
        numeric = pd.api.types.is_numeric_dtype(column.dtype)
        if numeric and not pd.api.types.is_complex_dtype(column.dtype):
            continue
        for row, value in zip(column.index, column.array, strict=True):
            if isinstance(value, str):
                raise TypeError(
                    f"{where}: expected numbers in column {label!r}; found text, for example "
                    f"{plain(value)!r} in row {plain(row)!r}"
                )
        raise TypeError(
            f"{where}: expected real numbers in column {label!r}; found dtype {column.dtype}"
            + astype_hint(column.dtype)
        )


def _two_dimensional(where: str, values: Any) -> Any:
    if len(values.shape) != 2:
        raise ValueError(
            f"{where}: expected a 2-D table (objects by features); found shape {values.shape}"
        )
    return values


def _real(where: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "biuf":
        return values
    text = values.dtype.kind in "US"
    for (row, column), value in np.ndenumerate(np.ma.getdata(values)):
        if text or isinstance(value, str):
            raise TypeError(
                f"{where}: expected numbers in column {column}; found text, for example "
                f"{plain(value)!r} in row {row}"
            )
    raise TypeError(
        f"{where}: expected real numbers; found dtype {values.dtype}" + astype_hint(values.dtype)
    )


def as_labels(where: str, kind: str, labels: Any) -> np.ndarray:
    """Check the labels of rows or columns and make them a coordinate that can be saved."""
    labels = pd.Index(labels)  # of several levels: tuples
    if labels.dtype == object:
        labels = labels.map(joined).infer_objects()
    if labels.hasnans:
        raise ValueError(
            f"{where}: expected a label of every {kind}; found none of {kind} number "
            f"{int(np.argmax(labels.isna()))} (from 0)"
        )
    if np.asarray(labels).dtype.kind not in "biufMm":
        # Text, categories, times of a zone or a mixture, which no file format could hold.
        labels = pd.Index(labels.astype(str))
    if not labels.is_unique:
        duplicated = labels[labels.duplicated()]
        raise ValueError(
            f"{where}: expected unique {kind} labels; found {str(duplicated[0])!r} more than once"
        )
    return np.asarray(labels, dtype=str if labels.dtype.kind not in "biufMm" else None)


def _refuse_cells(
    where: str,
    bad: np.ndarray,
    data: np.ndarray,
    objects: np.ndarray,
    features: np.ndarray,
    what: str,
    expected: str,
) -> None:
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{where}: expected {expected}; found {counted(int(bad.sum()), what)}, the first "
            f"({data[row, column]}) in row {plain(objects[row])!r}, column "
            f"{plain(features[column])!r}"
        )


def refuse_lines(
    where: str, kind: str, labels: np.ndarray, bad: np.ndarray, expected: str, found: str
) -> None:
    """Refuse a table for the lines, of this `kind`, that are `bad`; name the first."""
    if bad.any():
        first = plain(labels[np.flatnonzero(bad)[0]])
        others = int(bad.sum()) - 1
        more = f" (as in {counted(others, f'other {kind}')})" if others else ""
        raise ValueError(f"{where}: {kind} {first!r}: expected {expected}; found {found}{more}")
