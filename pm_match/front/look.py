"""Tables of the user, looked at: which columns are used, and as what."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from pm_match.checks import check_option, no_such, warn
from pm_match.front.columns import LEFT_OUT, USES, Column, hashable, leave, look_at_column
from pm_match.front.files import as_variable, read_table_file
from pm_match.tables.blanks import without_blanks
from pm_match.tables.domains import as_labels, check_domain_names, read_table

# Pairs of names in one warning.
_EXAMPLES = 3
# Of AnnData: variables of more are not used as they are, but so many principal components of them.
_MOST_VARIABLES, _COMPONENTS = 200, 10
# Fewer names in two columns are categories rather than the ends of edges.
_LEAST_NODES = 10
# Columns whose pairs are looked at, and how often what tells of another is there on average.
_MOST_COMPARED, _REPEATED = 50, 5
# If more rows have one value, it is little to tell.
_MOST_OF_ONE = 0.9
# Rows by which most columns are seen not to tell each other.
_FIRST = 1000
# That no two rows are the same is chance if fewer pairs of rows were to be expected the same.
_LEAST_SAME = 5


def look_at_tables(given, titles, ids, told, comparable):
    """Look at all tables; give what is used of them, and what was found in their columns.

    `comparable`: whether columns of one name in several tables are compared.
    """
    check_domain_names(given)
    for column, use in told.items():
        check_option(f"columns[{column!r}]", use, (*USES, "ignore"))
    told = {as_variable(column): use for column, use in told.items()}
    read: dict[str, tuple[str, Any]] = {}
    tables: dict[str, pd.DataFrame] = {}
    looked: dict[str, dict[str, Column]] = {}
    for name, value in given.items():
        where = f"domain {titles[name]!r}"
        if isinstance(value, str | PathLike):
            where, value = str(value), read_table_file(Path(value), told, id=ids[name])
        read[name] = where, value
        tables[name], looked[name] = look_at_table(where, value, ids[name], told, {})
    varied = _seen_elsewhere(tables, looked) if comparable else {}
    for name, (where, value) in read.items():
        if not varied.keys().isdisjoint(looked[name].keys() - tables[name].keys()):
            tables[name], looked[name] = look_at_table(where, value, ids[name], told, varied)
        if tables[name].empty:
            why = "; ".join(f"{column!r}: {own.note}" for column, own in looked[name].items())
            raise ValueError(f"{where}: expected a column that can be used; found none ({why})")
    everywhere = {column for columns in looked.values() for column in columns}
    for column in told:
        if column not in everywhere:
            what = f"column {column!r} in any table"
            raise ValueError(f"columns: {no_such(what, sorted(everywhere), column)}")
    _agree(looked, titles)
    _warn_of_spellings(looked)
    square = {name: set(map(str, own.index)) == set(looked[name]) for name, own in tables.items()}
    # Of tables without names, one may be square by chance.
    uses = {own.use for columns in looked.values() for own in columns.values()}
    edges = len(square) > 1 and all(square.values()) and uses <= {"boolean", "count", LEFT_OUT}
    for name, found in looked.items():
        warned = [
            f"{column!r} ({own.use}: {own.note})" for column, own in found.items() if own.warn
        ]
        if warned:
            said = f"domain {titles[name]!r}: {'; '.join(warned)}."
            warn(said)
        objects = tables[name].index
        named = not isinstance(objects, pd.RangeIndex)
        if square[name] and (named or edges):
            what = "rows and columns have the same names" if named else "as many rows as columns"
            warn(
                f"domain {titles[name]!r}: {what}; if these are the nodes of a network, say "
                "model='relational_clusters'"
            )
        ends = tables[name].select_dtypes(exclude="number")
        # Lists of edges have a value beside the ends at most, and their rows have no names.
        numbered = objects.name is None and pd.api.types.is_integer_dtype(objects.dtype)
        may_be = ends.shape[1] == 2 and len(looked[name]) <= 3 and numbered
        if may_be and (what := _like_edges(ends)):
            warn(
                f"domain {titles[name]!r}: {what}; if rows are edges of a network, say "
                "model='relational_clusters'"
            )
    return tables, looked


def _like_edges(ends: pd.DataFrame) -> str:
    """Say in which way two columns of names look like the ends of edges, if they do."""
    one, other = ends
    shares = [ends[column].value_counts(normalize=True) for column in ends]
    first, second = (set(share.index) for share in shares)
    if len(first | second) >= _LEAST_NODES and first & second:
        return f"{one!r} and {other!r} hold the same names"
    # Of independent columns, so many pairs of rows are the same on average.
    same = len(ends) * (len(ends) - 1) / 2 * np.prod([(share**2).sum() for share in shares])
    few = min(len(first), len(second)) < _LEAST_NODES or same < _LEAST_SAME
    if few or ends.duplicated().any():
        return ""
    return f"{one!r} and {other!r} are never the same in two rows"


def _agree(looked: Mapping[str, dict[str, Column]], titles: Mapping[str, str]) -> None:
    """Use a column in the same way in all tables that have it; refuse one that cannot be."""
    uses: dict[str, dict[str, str]] = {}  # by column, then use: the first domain
    for name, columns in looked.items():
        for column, own in columns.items():
            if own.use != LEFT_OUT:
                uses.setdefault(column, {}).setdefault(own.use, titles[name])
    for column, found in uses.items():
        if len(found) > 1 and "category" in found:
            other = next(use for use in found if use != "category")
            first, second = (use for use in found if use in (other, "category"))
            raise ValueError(
                f"column {column!r}: expected the same in all tables; found {first} in domain "
                f"{found[first]!r} and {second} in domain {found[second]!r}. Say columns="
                f"{{{column!r}: 'category'}} if it holds categories in both, {leave(column)}, or "
                "rename one"
            )
    for columns in looked.values():
        for column, own in columns.items():
            if own.use != LEFT_OUT and len(uses[column]) > 1:
                use = "count" if set(uses[column]) == {"count", "boolean"} else "number"
                columns[column] = own._replace(use=use)


def _warn_of_spellings(looked: Mapping[str, dict[str, Column]]) -> None:
    """Warn of columns of different tables whose names differ in case, spaces and marks alone."""
    spelled: dict[str, set[str]] = {}
    apart: set[str] = set()
    for columns in looked.values():
        own: set[str] = set()
        for column in (column for column, found in columns.items() if found.use != LEFT_OUT):
            word = re.sub(r"[\W_]", "", column).casefold()
            apart |= {word} & own
            own.add(word)
            spelled.setdefault(word, set()).add(column)
    alike = [
        " and ".join(map(repr, sorted(names)))
        for word, names in spelled.items()
        if len(names) > 1 and word not in apart and re.search(r"[^\W\d]", word)
    ]
    if alike:
        more = f", and {len(alike) - _EXAMPLES} more" if len(alike) > _EXAMPLES else ""
        warn(
            f"columns {', '.join(alike[:_EXAMPLES])}{more}: expected one name in all tables, if "
            "they hold the same; found different ones, so that they are not compared. Rename them"
        )


def warn_of_repetitions(tables: Mapping[str, pd.DataFrame], columns: list[str]) -> None:
    """Warn where values of a column tell those of another, as codes do names, or cities countries.

    To columns that are independent within clusters that is worth two of them.
    """
    if len(columns) > _MOST_COMPARED:
        return
    pooled = pd.concat([table.reindex(columns=columns) for table in tables.values()])
    codes = {column: pd.factorize(pooled[column])[0] for column in columns}
    told = []
    for pair in combinations(columns, 2):
        ways = [
            (one, other) for one, other in (pair, pair[::-1]) if _tells(codes[one], codes[other])
        ]
        told += ways[:1]
    if told:
        alike = ", ".join(f"{one!r} tells {other!r}" for one, other in told[:_EXAMPLES])
        more = f", and {len(told) - _EXAMPLES} more" if len(told) > _EXAMPLES else ""
        warn(
            f"columns: {alike}{more}: each value of the first goes with one of the second. If it "
            "says the same, as a code does that stands for a name, both together count for too "
            "much, as columns are independent within clusters: leave one out, as by columns="
            f"{{{told[0][1]!r}: 'ignore'}}"
        )


def _tells(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether each value goes with one of the other column, by more than chance (-1 is none)."""
    for some in (slice(_FIRST), slice(None)):
        rows = (one[some] >= 0) & (other[some] >= 0)
        own, its = one[some][rows], other[some][rows]
        partner = np.zeros(own.max(initial=0) + 1, its.dtype)
        partner[own] = its  # the last of them
        if (partner[own] != its).any():
            return False
    few = np.count_nonzero(np.bincount(own)) * _REPEATED <= len(own)
    return bool(len(own) and few and np.bincount(its).max() <= _MOST_OF_ONE * len(own))


def _as_frame(where: str, table: Any) -> pd.DataFrame:
    """Give a table as a DataFrame, with its labels."""
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, pd.Series):
        return table.to_frame()
    if hasattr(table, "obs_names") and hasattr(table, "var_names"):  # AnnData
        return _of_anndata(where, table)
    read = read_table(where, table)
    index = read.objects if read.labelled else pd.RangeIndex(len(read.objects))
    return pd.DataFrame(read.values, index=index, columns=read.features)


def _of_anndata(where: str, table: Any) -> pd.DataFrame:
    """Give the leading components, if there are many variables and these were computed, or all."""
    names, components = list(map(str, table.var_names)), getattr(table, "obsm", {}).get("X_pca")
    values = table.X
    if len(names) > _MOST_VARIABLES:
        if components is None:
            raise ValueError(
                f"{where}: expected AnnData of at most {_MOST_VARIABLES} variables, or with "
                f"obsm['X_pca'] (scanpy.pp.pca computes it), whose first {_COMPONENTS} components "
                f"are used then; found {len(names):,} variables"
            )
        values = np.asarray(components)[:, :_COMPONENTS]
        # Components of different tables have nothing in common: their names say so.
        title = where.removeprefix("domain ").strip("'")
        names = [f"{title} component {i + 1}" for i in range(values.shape[1])]
    values = values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)
    return pd.DataFrame(values, index=pd.Index(table.obs_names), columns=names)


def look_at_table(
    where: str,
    table: Any,
    id: str | None,
    told: Mapping[str, str],
    varied: Mapping[str, tuple[str, Collection]],
    new: bool = False,
) -> tuple[pd.DataFrame, dict[str, Column]]:
    """Look at one table; return what is used of it, and what was found in its columns.

    `told` says how columns are used. Of a `new` table, which may have one row, the others are not.
    `varied`: the use and the values of columns that tables use. What would be left out, as it has
    one value or a text of its own for every object, is used if it holds such values alone.
    """
    frame = _as_frame(where, table)
    if 0 in frame.shape:
        raise ValueError(
            f"{where}: expected at least one object and one feature; found {frame.shape[0]} "
            f"objects (rows) by {frame.shape[1]} features (columns)"
        )
    if len(frame) == 1 and not new:
        raise ValueError(
            f"{where}: expected at least two objects (rows); found one. One row is one object"
        )
    frame = frame.set_axis(as_labels(where, "column", frame.columns).astype(str), axis=1)
    if id is not None and id not in frame and frame.index.name != id and not new:
        there = [*frame, *filter(None, [frame.index.name])]
        raise ValueError(
            f"{where}: {no_such(f'column {id!r}', there, id)} (where ids have names of their own, "
            "say which by domain: id={'a': …, 'b': …})"
        )
    if id in frame:
        frame = frame.set_index(id)
    as_labels(where, "row", frame.index)  # refuses those that are not unique
    looked, kept, refused = {}, {}, []
    for column, values in frame.items():
        name, dtype = as_variable(column), values.dropna().infer_objects().dtype
        values = without_blanks(values)
        if name in looked:
            raise ValueError(
                f"{where}: expected columns of different names; found two of {name!r} (where '/' "
                "counts as '_', '::' as ':', and '__' at the end as '_'): rename one"
            )
        if new:
            found = Column(told.get(name, LEFT_OUT), "not used of known objects")
        elif told.get(name) == "ignore":
            found = Column(LEFT_OUT, "as you said")
        else:
            try:
                found = look_at_column(where, values, told.get(name))
            except TypeError as error:
                refused.append(str(error))
                continue
            if found.use == LEFT_OUT and name in varied:
                found = _as_elsewhere(values, found, *varied[name])
        looked[name] = found._replace(dtype=dtype)
        if found.use == "category":
            kept[name] = values if values.dtype == "category" else values.astype(object)
        elif found.use != LEFT_OUT:
            kept[name] = _floats(where, values, found.use)
    if refused:
        raise TypeError("\n".join(refused))
    if not kept and new:
        known = [column for column, use in told.items() if use not in (LEFT_OUT, "ignore")]
        raise ValueError(
            f"{where}: expected columns that known objects have, of {known}; found "
            f"{list(looked)}{' (one object is a table of one row)' if len(looked) == 1 else ''}"
        )
    used = pd.DataFrame(kept, index=frame.index)
    if any(own.use not in ("category", LEFT_OUT) for own in looked.values()):
        read_table(where, used.select_dtypes("number"))  # refuses infinite numbers, by name
    return used, looked


def _seen_elsewhere(
    tables: Mapping[str, pd.DataFrame], looked: Mapping[str, Mapping[str, Column]]
) -> dict[str, tuple[str, set[Any]]]:
    """Give use and values of the columns with names that some tables use, and others leave out."""
    pairs = [(column, own.use) for columns in looked.values() for column, own in columns.items()]
    left = {column for column, use in pairs if use == LEFT_OUT and not column.isdigit()}
    return {
        column: (use, {value for table in tables.values() for value in table.get(column, ())})
        for column, use in pairs
        if use != LEFT_OUT and column in left
    }


def _as_elsewhere(values: pd.Series, found: Column, use: str, there: Collection) -> Column:
    """Use a column as other tables do, if its values are among theirs and do not name objects."""
    seen = values.dropna().astype(object)
    if seen.empty or not hashable(seen) or not seen.isin(there).all():
        return found
    if seen.nunique() > 1 and not isinstance(seen.iloc[0], str):
        return found  # whole numbers may name objects
    holes = len(values) - len(seen)
    return Column(use, f"{holes} missing" if holes else "")


def _floats(where: str, values: pd.Series, use: str) -> pd.Series:
    if isinstance(values.dtype, pd.SparseDtype):
        values = values.astype(values.dtype.subtype)
    try:
        return pd.Series(values.to_numpy(np.float64, na_value=np.nan), values.index)
    except (TypeError, ValueError):
        other = values[pd.to_numeric(values, errors="coerce").isna() & values.notna()]
        raise TypeError(
            f"{where}: column {values.name!r}: expected numbers, to be used as {use}; found "
            f"{other.iloc[0]!r}"
        ) from None
