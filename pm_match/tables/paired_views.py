"""The user's tables of the same objects seen in several views, checked."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pm_match.checks import check_given_by_name
from pm_match.tables.domains import Domain, check_names, refuse_lines, seen_domain

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


def as_paired_views(
    views: Mapping[str, Any],
    derived: Iterable[str] = _DERIVED,
    reserved: Collection[str] = _RESERVED,
) -> dict[str, Domain]:
    """Check tables of the same objects, as `as_domains` takes them, and bring them into one form.

    Row k of every table is the same object. If several have labels on their rows, these must
    agree, in order. A row may be all missing, unless it is in every view.

    `derived`: formats of the names that a view brings into the model; `reserved`: names that the
    model uses itself. Raise `TypeError` or `ValueError` as `as_domains` does, and if tables differ
    in their number of objects or in the labels of these, or no view has seen an object.
    """
    check_given_by_name("view", views)
    check_names(views, "view", derived, reserved.__contains__)
    tables = {name: seen_domain(f"view {name!r}", name, table) for name, table in views.items()}
    objects = same_objects(tables)
    refuse_unseen(tables, objects)
    return {name: replace(table, objects=objects) for name, table in tables.items()}


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
                    f"view {name!r}: expected objects (rows) in the order of view {known.name!r}; "
                    "found them in another"
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
    refuse_lines("views", "object", objects, unseen, "an observed value in some view", "none")


def seen_rows(table: Any, objects: np.ndarray) -> np.ndarray:
    """Find the rows (N_v,) of the objects that a view has seen: of each, all values or none."""
    where = f"view {table.name!r}"
    absent = table.missing.all(axis=1)
    partly = table.missing.any(axis=1) & ~absent
    if partly.any():
        raise ValueError(
            f"{where}: object {objects[partly].tolist()[0]!r}: expected all values, or none (an "
            "object that the view has not seen); found some missing"
        )
    rows = np.flatnonzero(~absent)
    if len(rows) < 2:
        raise ValueError(
            f"{where}: expected at least two objects that are seen in it; found {len(rows)}"
        )
    constant = ~(np.ma.getdata(table.values)[rows].var(axis=0) > 0.0)
    expected = "values that differ between the objects that are seen"
    refuse_lines(where, "column", table.features, constant, expected, "one value")
    return rows
