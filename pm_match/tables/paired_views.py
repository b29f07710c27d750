"""The user's tables of the same objects seen in several views, checked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pm_match.tables.domains import check_names, read_table, refuse_lines

__all__ = ["PairedView", "as_paired_views", "refuse_unseen", "same_objects", "seen_rows"]

# Names that the declared models (or PyMC and ArviZ) use themselves.
_RESERVED = frozenset((
    "latent", "object", "factor", "component", "kernel_component", "component_weights",
    "component_precision", "component_mean", "frequency", "frequencies", "fourier", "coefficients",
    "coefficient_precision", "label", "class", "chain", "draw", "sample",
))  # fmt: skip
# What a view called `name` brings into the model.
_DERIVED = (
    "{}",
    "column_precision_{}",
    "projection_{}",
    "private_{}",
    "private_latent_{}",
    "intercept_{}",
    "precision_{}",
    "{}_observed",
    "{}_unobserved",
    "{}_feature",
    "{}_factor",
)


@dataclass(frozen=True)
class PairedView:
    """One view: objects by features.

    Parameters
    ----------
    name : str
    values : ndarray or MaskedArray, shape (n_objects, n_features), float64
        A masked array when a value is missing, otherwise a plain one.
    objects : ndarray, shape (n_objects,)
        Labels of the rows, the same in all views.
    features : ndarray, shape (n_features,)
        Labels of the columns.
    labelled : bool
        Whether the table had labels on its rows.
    """

    name: str
    values: np.ndarray | np.ma.MaskedArray
    objects: np.ndarray
    features: np.ndarray
    labelled: bool

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.values.shape[1]

    @property
    def missing(self) -> np.ndarray:
        """Which values are missing: a boolean array, shape (n_objects, n_features)."""
        return np.ma.getmaskarray(self.values)

    def centre_and_spread(self) -> tuple[np.ndarray, np.float64]:
        """Return the columns' means (D,), and the standard deviation of all values about them."""
        filled = np.ma.filled(self.values, np.nan)
        middle = np.nanmean(filled, axis=0)
        return middle, np.float64(np.sqrt(np.nanmean((filled - middle) ** 2)))


def as_paired_views(
    views: Mapping[str, Any],
    derived: Iterable[str] = _DERIVED,
    reserved: Collection[str] = _RESERVED,
) -> dict[str, PairedView]:
    """Check tables of the same objects, and bring them into one form.

    Parameters
    ----------
    views : mapping of str to table
        As `domains.as_domains` takes them, row k of every table being the same object. If several
        have labels on their rows, these must agree, in order. A row may be all missing, unless it
        is in every view.
    derived : iterable of str
        Formats of the names that a view brings into the model.
    reserved : collection of str
        Names that the model uses itself.

    Returns
    -------
    dict of str to PairedView
        In the order given.

    Raises
    ------
    TypeError
        If `views` is no mapping, a name no string, or a table not of real numbers.
    ValueError
        If there is no view; a name is no identifier or clashes with a name in the model; a table
        is empty, not 2-D, has an infinite value, duplicate labels, or a column without observed
        values; tables differ in their number of objects or in the labels of these; an object has no
        observed value in any view.
    """
    if not isinstance(views, Mapping):
        raise TypeError(
            "views: expected a mapping from a view's name to its table, such as {'a': table_a, "
            f"'b': table_b}}; found an object of type {type(views).__name__}"
        )
    if not views:
        raise ValueError("views: expected at least one view; found none")
    check_names(views, "view", derived, reserved.__contains__)
    tables = {name: _table(name, table) for name, table in views.items()}
    objects = same_objects(tables)
    refuse_unseen(tables, objects)
    return {name: replace(table, objects=objects) for name, table in tables.items()}


def _table(name: str, table: Any) -> PairedView:
    where = f"view {name!r}"
    values, objects, features, labelled, _ = read_table(where, table)
    missing = np.isnan(values)
    refuse_lines(where, "column", features, missing.all(axis=0), "no observed value")
    masked = np.ma.MaskedArray(values, missing) if missing.any() else values
    return PairedView(name, masked, objects, features, labelled)


def same_objects(tables: Mapping[str, Any]) -> np.ndarray:
    """Return the labels that the rows of all tables have: numbers, if none has any others.

    Rows of plain arrays have no labels. An index 0, 1, ... is taken for one that nobody set if
    another table has names; not if that has numbers, which can be the same index with rows
    dropped or moved.
    """
    first = next(iter(tables.values()))
    n_objects = len(first.values)
    labelled = [table for table in tables.values() if table.labelled]
    named = [table for table in labelled if table.objects.dtype.kind not in "iuf"]
    known: Any = None
    for name, table in tables.items():
        if len(table.values) != n_objects:
            raise ValueError(
                f"view {name!r}: expected {n_objects} objects (rows), as in view {first.name!r}; "
                f"found {len(table.values)}"
            )
        unset = named and np.array_equal(table.objects, np.arange(n_objects))
        if unset or not table.labelled:
            continue
        if known is None:
            known = table
        elif not np.array_equal(table.objects, known.objects):
            if set(table.objects.tolist()) == set(known.objects.tolist()):
                raise ValueError(
                    f"view {name!r}: its objects (rows) are those of view {known.name!r} in "
                    "another order; bring them into one order"
                )
            row = int(np.argmax(table.objects != known.objects))
            raise ValueError(
                f"view {name!r}: expected the objects of view {known.name!r}; found "
                f"{table.objects[row].item()!r} for {known.objects[row].item()!r} in row number "
                f"{row} (from 0)"
            )
    return first.objects if known is None else known.objects


def refuse_unseen(tables: Mapping[str, Any], objects: np.ndarray) -> None:
    """Refuse objects that no view has seen."""
    unseen = np.all([table.missing.all(axis=1) for table in tables.values()], axis=0)
    refuse_lines("views", "object", objects, unseen, "no observed value in any view")


def seen_rows(table: Any, objects: np.ndarray) -> np.ndarray:
    """Find the rows (N_v,) of the objects that a view has seen: of each, all values or none."""
    where = f"view {table.name!r}"
    absent = table.missing.all(axis=1)
    partly = table.missing.any(axis=1) & ~absent
    if partly.any():
        raise ValueError(
            f"{where}: some values of object {objects[partly].tolist()[0]!r} are missing; expected "
            "all (an object that the view has not seen) or none."
        )
    rows = np.flatnonzero(~absent)
    if len(rows) < 2:
        raise ValueError(
            f"{where}: expected at least two objects that are seen in it; found {len(rows)}"
        )
    constant = ~(np.ma.getdata(table.values)[rows].var(axis=0) > 0.0)
    what = "one constant value where objects are seen; drop it"
    refuse_lines(where, "column", table.features, constant, what)
    return rows
