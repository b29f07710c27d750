"""Tables of the same objects, checked and brought into one form.

Where domains have objects of their own, that a matching is to pair, views are several tables of the
same objects: row by row, or by their labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pm_match.domains import Domain, as_table

__all__ = ["as_views", "of_same_objects"]


def as_views(
    views: Mapping[str, Any], derived: Sequence[str] = (), reserved: Sequence[str] = ()
) -> dict[str, Domain]:
    """Check tables of the same objects and bring them into one form.

    Parameters
    ----------
    views : mapping of str to table
        Each has one row an object and one column a feature: a 2-D array, masked array, DataFrame,
        DataArray or SciPy sparse matrix. NaN, or a mask, says that a value is missing; a row may be
        missing from a view altogether, but not from all. Objects are those of the first table that
        labels its rows otherwise than 0, 1, ...; other tables that do are put into its order.
    derived : sequence of str
        Formats of the names that a view brings into the model, such as "projection_{}".
    reserved : sequence of str
        Names that the model uses itself.

    Returns
    -------
    dict of str to Domain
        In the order given, all with the same objects.

    Raises
    ------
    TypeError
        If `views` is no mapping, a name no string, or a table not of real numbers.
    ValueError
        If there is no view; a name is no identifier or clashes with one in the model; a table is
        not 2-D, has fewer than two objects, duplicate or missing labels, an infinite value, a
        column that is all missing, or no two values that differ; the tables have different objects;
        or one of these is missing from every view.
    """
    if not isinstance(views, Mapping):
        raise TypeError(
            "views: expected a mapping from a view's name to its table, such as "
            f"{{'words': x, 'links': y}}; found an object of type {type(views).__name__}"
        )
    if not views:
        raise ValueError("views: expected at least one view; found none")
    _check_names(list(views), derived, reserved)
    tables = {name: as_table(f"view {name!r}", name, table) for name, table in views.items()}
    for name, table in tables.items():
        if np.ptp(table.values[~table.missing]) == 0.0:
            raise ValueError(f"view {name!r}: all its values are equal; expected some that differ")
    found = of_same_objects(tables)
    objects = next(iter(found.values())).objects
    absent = np.logical_and.reduce([table.missing.all(axis=1) for table in found.values()])
    if absent.any():
        raise ValueError(
            f"views: object {objects[absent].tolist()[0]!r} is missing from every view; expected "
            "each in at least one"
        )
    return found


def _check_names(views: list[Any], derived: Sequence[str], reserved: Sequence[str]) -> None:
    owner: dict[str, str] = {}
    for name in views:
        if not isinstance(name, str):
            raise TypeError(
                f"view {name!r}: expected a string as a view's name; found an object of type "
                f"{type(name).__name__}"
            )
        if not name.isidentifier():
            raise ValueError(
                f"view {name!r}: a view's name becomes part of variable names, so it must be an "
                "identifier (letters, digits and underscores, not starting with a digit)"
            )
        for pattern in ("{}", "{}_observed", "{}_unobserved", "{}_feature", *derived):
            own = pattern.format(name)
            if own in reserved:
                raise ValueError(
                    f"view {name!r}: the model uses the name {own!r} itself; choose another name"
                )
            if own in owner:
                raise ValueError(
                    f"view {name!r}: it would give the model a second {own!r} beside that of view "
                    f"{owner[own]!r}; choose another name"
                )
            owner[own] = name


def _numbered(table: Domain) -> bool:
    """Whether the rows have no labels but their numbers."""
    return table.objects.dtype.kind in "iu" and np.array_equal(
        table.objects, np.arange(table.n_objects)
    )


def of_same_objects(tables: Mapping[str, Domain]) -> dict[str, Domain]:
    """Put tables of the same objects into one order, that of the first whose rows have labels."""
    first = next(iter(tables.values()))
    for table in tables.values():
        if table.n_objects != first.n_objects:
            raise ValueError(
                f"view {table.name!r}: expected the {first.n_objects} objects of view "
                f"{first.name!r}; found {table.n_objects}. An object that is missing from a view "
                "is a row of NaN"
            )
    objects = next((t.objects for t in tables.values() if not _numbered(t)), first.objects)
    return {name: _in_order(table, objects) for name, table in tables.items()}


def _in_order(table: Domain, objects: np.ndarray) -> Domain:
    if _numbered(table):
        return replace(table, objects=objects)
    order = pd.Index(table.objects).get_indexer(pd.Index(objects))
    if (order < 0).any():
        absent = objects[order < 0].tolist()[0]
        raise ValueError(
            f"view {table.name!r}: expected the objects of the other views; found no row {absent!r}"
        )
    return replace(table, values=table.values[order], objects=objects)
