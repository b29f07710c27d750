"""The user's data, looked at: what is used of them and what is not, and the model for them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm
import scipy.sparse

from pm_match import models
from pm_match.checks import check_given_by_name, check_option, did_you_mean, identifier, type_name
from pm_match.front.cells import stem
from pm_match.front.columns import LEFT_OUT, USES, Column, look_at_column
from pm_match.front.edges import look_at_networks
from pm_match.front.files import is_matrix, read_table_file
from pm_match.models.declare import link_sets
from pm_match.tables.domains import as_labels, check_domain_names, read_table

__all__ = ["PreparedData", "as_frame", "choose_model", "look_at_table", "prepare"]

# Warnings are of the line that called us.
PACKAGE = str(Path(__file__).parents[1])
# Columns that are named in one line.
_LISTED = 12
# Models of tables of numbers, and all that there are.
_NUMERIC = ("table_clusters", "aligned_clusters", "projected_clusters")
MODELS = (*_NUMERIC, "mixture", "relational_clusters")
# Options that only networks have.
_OF_NETWORKS = ("types", "family", "one_mode", "symmetric", "self_loops", "exposure", "absent")


@dataclass(frozen=True, eq=False)
class PreparedData:
    """What is used of the data, and how. Printed, it says so in words.

    Attributes
    ----------
    kind : {"tables", "networks"}
    data : dict
        What is used: by names that variables can have, tables as DataFrames of numbers (NaN for
        missing values) and categories, with the objects' labels as index; networks as they came.
    titles : dict of str to str
        The names that the user gave, by those of `data`.
    columns : dict of str to dict of str to Column
        What was found in the columns of every table: its ``use`` ("number", "positive", "count",
        "boolean", "category" or "left out") and a ``note``.
    notes : list of str
        What else was found.
    options : dict
        Of the model: those given, and what networks say of their family and types of objects.
    """

    kind: Literal["tables", "networks"]
    data: dict[str, Any]
    titles: dict[str, str]
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def numeric(self) -> dict[str, pd.DataFrame]:
        """Give the columns that are no categories, of all tables."""
        return {name: own.select_dtypes("number") for name, own in self.data.items()}

    def if_numeric(self) -> dict[str, pd.DataFrame] | None:
        """Give the tables, unless a column of one holds categories."""
        numeric = self.numeric()
        same = all(own.shape == self.data[name].shape for name, own in numeric.items())
        return numeric if same else None

    def shared(self) -> set[str]:
        """Name the columns that several tables have; numbers of columns are no names."""
        seen: set[str] = set()
        twice: set[str] = set()
        for table in self.data.values():
            own = {str(column) for column in table.columns if not str(column).isdigit()}
            twice |= seen & own
            seen |= own
        return twice

    def words(self) -> list[str]:
        """Say what is used and what is not, line by line."""
        lines = []
        for name, columns in self.columns.items():
            used, left = [], []
            for column, own in columns.items():
                note = f": {own.note}" if own.note else ""
                if own.use == LEFT_OUT:
                    left.append(f"{column} ({own.note})")
                else:
                    used.append(f"{column} ({own.use}{note})")
            more = f" and {len(used) - _LISTED} more" if len(used) > _LISTED else ""
            objects = self.data[name].index
            first = ", ".join(map(str, objects[:3]))
            lines.append(
                f"{self.titles[name]}: {len(objects):,} objects ({first}, …); used are "
                f"{', '.join(used[:_LISTED])}{more}."
            )
            if left:
                lines.append(f"{self.titles[name]}: left out are {', '.join(left)}.")
        return [*lines, *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.words())

    __repr__ = __str__

    def declare(
        self,
        model: str | None = None,
        *,
        links: Any = None,
        clusters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> pm.Model:
        """Declare a model of the data, by a function of `pm_match.models`.

        Parameters
        ----------
        model : str, optional
            "table_clusters", "aligned_clusters", "mixture", "projected_clusters" or
            "relational_clusters".
            Default: what `choose_model` recommends.
        links : mapping, DataFrame or sequence of these, optional
            Objects known to share a cluster, as in `models.projected_clusters`.
        clusters : mapping, optional
            Clusters known within domains, as in `match`.
        **options
            Passed to the function.

        Returns
        -------
        pymc.Model
        """
        linked = [
            {identifier(str(key)): given for key, given in one.items()} for one in link_sets(links)
        ]
        groups = self.groups(clusters)
        linked += [{name: own} for name, own in groups.items() if max(map(len, own)) > 1]
        name = model or choose_model(self, bool(linked))
        check_option("model", name, MODELS)
        if (name == "relational_clusters") != (self.kind == "networks"):
            raise ValueError(f"model: {name!r} is not for {self.kind}")
        options = {**self.options, **options}
        if linked:
            options["links"] = linked
        if groups:
            # None of them may find its like: there is room for all.
            options.setdefault("n_clusters", max(12, sum(map(len, groups.values()))))
        if name == "relational_clusters":
            if linked:
                options.setdefault("relevance", False)
            return models.relational_clusters(self.data, **options)
        if name == "mixture":
            return models.mixture(self.data, columns=self.uses(), **options)
        return getattr(models, name)(self.numeric(), **options)

    def uses(self) -> dict[str, str]:
        """Give the use of every column that is used; it is the same in all tables."""
        return {
            column: own.use
            for columns in self.columns.values()
            for column, own in columns.items()
            if own.use != LEFT_OUT
        }

    def groups(self, clusters: Mapping[str, Any] | None) -> dict[str, list[list[int]]]:
        """Give positions of the objects of given clusters, by domain, in the order of labels."""
        return {
            name: [np.flatnonzero(codes == k).tolist() for k in range(len(labels))]
            for name, (codes, labels) in self.known(clusters).items()
        }

    def known(self, clusters: Mapping[str, Any] | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Check given clusters; give every object's number (-1 for none), and their labels."""
        found = {}
        for title, given in (clusters or {}).items():
            name, where = identifier(str(title)), f"clusters[{title!r}]"
            if name not in self.data or self.kind == "networks":
                raise ValueError(
                    f"{where}: expected a table among {list(self.titles.values())}"
                    f"{did_you_mean(title, self.titles.values())}"
                )
            objects = self.data[name].index
            if isinstance(given, pd.Series) and not given.index.equals(pd.RangeIndex(len(given))):
                labelled = given.set_axis(given.index.astype(str))
                given = labelled.reindex(objects.astype(str)).to_numpy()
            values = pd.Series(np.asarray(given, dtype=object))
            if len(values) != len(objects):
                raise ValueError(f"{where}: expected {len(objects)} labels; found {len(values)}")
            codes, labels = pd.factorize(values, sort=values.dropna().map(type).nunique() == 1)
            if not len(labels):
                raise ValueError(f"{where}: expected labels of clusters; found none")
            found[name] = codes, pd.Series(labels).infer_objects().to_numpy()
        return found


def prepare(
    data: Any,
    *,
    id: str | Mapping[str, str] | None = None,
    columns: Any = None,
    model: str | None = None,
    **options: Any,
) -> PreparedData:
    """Look at data: say what can be used of them, and how.

    Parameters
    ----------
    data : mapping or sequence of paths
        From names to tables (DataFrames, 2-D arrays, DataArrays, CSV files) or to networks (SciPy
        sparse matrices; ``.mtx`` and ``.npz`` files). Or files, which are named as they are.
        Numbers, booleans and categories are understood, pandas' nullable types too; NaN is a
        missing value. A DataFrame's index names the objects.
    id : str or mapping of str to str, optional
        The column that names the objects: of all tables, or by domain.
    columns : mapping or sequence of str, optional
        Of tables, from columns to what they hold, where it cannot be seen: "number", "positive",
        "count", "boolean" or "category"; or "ignore". Of edge lists, the columns of both ends, and
        perhaps the value's.
    model : str, optional
        As in `match`: "relational_clusters" says that DataFrames and CSV files are networks.
    **options
        Of the model; those that only networks have say the same.

    Returns
    -------
    PreparedData

    Raises
    ------
    TypeError, ValueError
        If data cannot be used. The message names domain and column, and what can be done.

    Warns
    -----
    UserWarning
        Of columns that are left out, or whose use is a guess.

    Examples
    --------
    >>> prepared = pmm.prepare({"north": north, "south": "south.csv"}, id="sku")
    >>> print(prepared)
    >>> idata = pmm.sample(model=prepared.declare())
    """
    if model is not None:
        check_option("model", model, MODELS)
    if isinstance(data, Sequence) and not isinstance(data, str):
        data = named_files(data)
    check_given_by_name("domain", data)
    titles: dict[str, str] = {}
    for title in data:
        if identifier(str(title)) in titles:
            raise ValueError(
                f"domain {title!r}: variables would have the names of those of "
                f"{titles[identifier(str(title))]!r}; rename one"
            )
        titles[identifier(str(title))] = str(title)
    given = dict(zip(titles, data.values(), strict=True))
    of_networks = any(options.get(option) is not None for option in _OF_NETWORKS)
    listed = columns is not None and not isinstance(columns, Mapping)
    if (
        model == "relational_clusters"
        or listed
        or of_networks
        or any(map(_is_network, given.values()))
    ):
        found, own, notes = look_at_networks(given, columns, options)
        return PreparedData("networks", found, titles, notes=notes, options=options | own)
    check_domain_names(given)
    told = dict(columns or {})
    for column, use in told.items():
        check_option(f"columns[{column!r}]", use, (*USES, "ignore"))
    tables: dict[str, pd.DataFrame] = {}
    looked: dict[str, dict[str, Column]] = {}
    for name, value in given.items():
        key = id.get(titles[name]) if isinstance(id, Mapping) else id
        frame = read_table_file(Path(value)) if isinstance(value, str | PathLike) else value
        tables[name], looked[name] = look_at_table(titles[name], frame, key, told)
    everywhere = {column for columns in looked.values() for column in columns}
    for column in told:
        if column not in everywhere:
            near = did_you_mean(column, everywhere)
            raise ValueError(f"columns: no table has a column {column!r}{near}")
    _agree(looked)
    for name, found in looked.items():
        warned = [
            f"{column!r} ({own.use}: {own.note})" for column, own in found.items() if own.warn
        ]
        if warned:
            said = f"domain {titles[name]!r}: {'; '.join(warned)}."
            warnings.warn(said, UserWarning, skip_file_prefixes=(PACKAGE,))
    return PreparedData("tables", tables, titles, looked, options=options)


def _agree(looked: Mapping[str, dict[str, Column]]) -> None:
    """Use a column in the same way in all tables that have it, if it is of numbers in all."""
    uses: dict[str, set[str]] = {}
    for columns in looked.values():
        for column, own in columns.items():
            uses.setdefault(column, set()).add(own.use)
    for columns in looked.values():
        for column, own in columns.items():
            found = uses[column] - {LEFT_OUT}
            if own.use != LEFT_OUT and len(found) > 1 and "category" not in found:
                use = "count" if found == {"count", "boolean"} else "number"
                columns[column] = own._replace(use=use)


def named_files(files: Iterable[Any]) -> dict[str, Path]:
    """Name files as they are called, without what says their kind."""
    found: dict[str, Path] = {}
    for file in files:
        if not isinstance(file, str | PathLike):
            raise TypeError(
                "data: expected a mapping from names to tables or networks, or a sequence of "
                f"files; found {type_name(file)} in a sequence"
            )
        title = stem(Path(file))
        if title in found:
            raise ValueError(f"{file}: it has the name of {found[title]}; rename one")
        found[title] = Path(file)
    return found


def _is_network(value: Any) -> bool:
    if isinstance(value, str | PathLike):
        return is_matrix(Path(value))
    return scipy.sparse.issparse(value)


def as_frame(where: str, table: Any) -> pd.DataFrame:
    """Give a table as a DataFrame, with its labels."""
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, pd.Series):
        return table.to_frame()
    read = read_table(where, table)
    index = read.objects if read.labelled else pd.RangeIndex(len(read.objects))
    return pd.DataFrame(read.values, index=index, columns=read.features)


def look_at_table(
    title: str, table: Any, id: str | None = None, told: Mapping[str, str] | None = None
) -> tuple[pd.DataFrame, dict[str, Column]]:
    """Look at one table; return what is used of it, and what was found in its columns."""
    where, told = f"domain {title!r}", told or {}
    frame = as_frame(where, table)
    if 0 in frame.shape:
        raise ValueError(
            f"{where}: the table is empty: {frame.shape[0]} objects (rows) by "
            f"{frame.shape[1]} features (columns)"
        )
    if len(frame) == 1:
        raise ValueError(
            f"{where}: expected at least two objects (rows); found one. One row is one object"
        )
    frame = frame.set_axis(as_labels(where, "column", frame.columns).astype(str), axis=1)
    if id is not None and id not in frame and frame.index.name != id:
        raise ValueError(
            f"{where}: no column {id!r}{did_you_mean(id, frame)} (where ids have names of their "
            "own, say which by domain: id={'a': …, 'b': …})"
        )
    if id in frame:
        frame = frame.set_index(id)
    plain_index = isinstance(frame.index, pd.RangeIndex)
    labels = frame.index if plain_index else as_labels(where, "row", frame.index)
    frame = frame.set_axis(pd.Index(labels, name=None), axis=0)
    looked, kept = {}, {}
    for column, values in frame.items():
        use = told.get(str(column))
        ignored = Column(LEFT_OUT, "as you said")
        found = ignored if use == "ignore" else look_at_column(where, values, use)
        # A model may not have a variable of such a name.
        name = str(column).replace("/", "_")
        looked[name] = found
        if found.use == "category":
            kept[name] = values if values.dtype == "category" else values.astype(object)
        elif found.use != LEFT_OUT:
            kept[name] = _floats(where, values, found.use)
    if not kept:
        why = "; ".join(f"{column!r}: {own.note}" for column, own in looked.items())
        raise ValueError(f"{where}: no column can be used ({why})")
    used = pd.DataFrame(kept, index=frame.index)
    if any(own.use not in ("category", LEFT_OUT) for own in looked.values()):
        read_table(where, used.select_dtypes("number"))  # refuses infinite numbers, by name
    return used, looked


def _floats(where: str, values: pd.Series, use: str) -> pd.Series:
    if isinstance(values.dtype, pd.SparseDtype):
        values = values.astype(values.dtype.subtype)
    try:
        return pd.Series(values.to_numpy(np.float64, na_value=np.nan), values.index)
    except (TypeError, ValueError):
        raise TypeError(
            f"{where}: column {values.name!r} is to be used as {use}, and holds what is no number"
        ) from None


def choose_model(prepared: PreparedData, linked: bool = False) -> str:
    """Recommend the model to begin with.

    Networks: `relational_clusters`. Tables that have columns in common are matched by what clusters
    do there, and one table has nothing to be matched with: `mixture`. Other tables are matched by
    the shapes that clusters form in them, which takes numbers: `table_clusters`; unless objects are
    linked, which matches tables of any columns.

    Parameters
    ----------
    prepared : PreparedData
    linked : bool, default False
        Whether there are links.

    Raises
    ------
    ValueError
        If there is nothing to match tables by.
    """
    if prepared.kind == "networks":
        return "relational_clusters"
    tables = prepared.data
    categories = {
        prepared.titles[name]: list(own.select_dtypes(exclude="number").columns)
        for name, own in tables.items()
    }
    mixed = any(categories.values())
    if prepared.shared() or (len(tables) == 1 and mixed) or (linked and mixed):
        return "mixture"
    bare = [prepared.titles[name] for name, own in prepared.numeric().items() if not own.shape[1]]
    if bare:
        raise ValueError(
            f"domain {bare[0]!r}: it has no column of numbers, and none in common with other "
            "tables: nothing to match it by. Give columns of the same things the same names, or "
            "say which objects match (links=)"
        )
    return "table_clusters"


def left_out_of(prepared: PreparedData, model: str) -> Iterable[str]:
    """Say which columns a model does not use."""
    for name, own in prepared.data.items() if model in _NUMERIC else ():
        left = list(own.select_dtypes(exclude="number").columns)
        if left:
            yield (
                f"{prepared.titles[name]}: {model} takes numbers, and leaves out "
                f"{', '.join(map(str, left))}."
            )
