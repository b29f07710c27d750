"""The user's data, looked at: what is used of them and what is not, and the model for them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm
import scipy.sparse

from pm_match import models
from pm_match.checks import (
    check_given_by_name,
    check_option,
    did_you_mean,
    identifier,
    no_such,
    type_name,
    warn,
)
from pm_match.front.cells import read_links, stem
from pm_match.front.columns import (
    LEFT_OUT,
    USES,
    Column,
    leave,
    look_at_column,
    use_of_whole_numbers,
)
from pm_match.front.edges import is_graph, look_at_networks
from pm_match.front.files import as_variable, is_matrix, read_table_file
from pm_match.front.settle import settle
from pm_match.models.declare import declare_links, link_sets, warn_of_levels
from pm_match.networks.data import Network
from pm_match.starts import initial_points
from pm_match.tables.blanks import without_blanks
from pm_match.tables.domains import as_labels, check_domain_names, read_table
from pm_match.tables.order import in_order
from pm_match.tables.standardise import standardise as scaled

# Columns that are named in one line.
_LISTED = 12
# Pairs of names in one warning.
_EXAMPLES = 3
# Models of tables of numbers, and all that there are.
_NUMERIC = ("table_clusters", "normal_clusters", "aligned_clusters", "projected_clusters")
MODELS = (*_NUMERIC, "mixture", "relational_clusters")
# Of AnnData: variables of more are not used as they are, but so many principal components of them.
_MOST_VARIABLES, _COMPONENTS = 200, 10
# Clusters that there may be beside the known classes.
_MORE = 4
# Fewer names in two columns are categories rather than the ends of edges.
_LEAST_NODES = 10
# That no two rows are the same is chance if fewer pairs of rows were to be expected the same.
_LEAST_SAME = 5
# Options that only networks have.
_OF_NETWORKS = (
    "types",
    "family",
    "one_mode",
    "symmetric",
    "self_loops",
    "exposure",
    "dispersion",
    "absent",
)


@dataclass(frozen=True, eq=False)
class PreparedData:
    """What is used of the data, how, and in which model. Printed, it says so in words.

    Attributes
    ----------
    kind : {"tables", "networks"}
    data : dict
        What is used: by names that variables can have, tables as DataFrames of numbers (NaN for
        missing values) and categories, with the objects' labels as index; networks as sorted cells,
        which `models.relational_clusters` takes.
    titles : dict of str to str
        The names that the user gave, by those of `data`.
    columns : dict of str to dict of str to Column
        What was found in the columns of every table: its ``use`` ("number", "positive", "count",
        "boolean", "category" or "left out"), a ``note`` and the ``dtype``.
    notes : list of str
        What else was found.
    options : dict
        Of the model: those given, and what networks say of their family and types of objects.
    links : list of mappings
        Objects known to share a cluster, by names of `data`.
    cannot_link : list of mappings
        Objects known not to share one.
    clusters : dict of str to (ndarray, ndarray)
        Given clusters, by names of `data`: every object's number (-1 for none), and the labels.
    whole : bool
        Whether these are kept whole; otherwise chains start from them.
    distinct : bool
        Whether no two of a domain's that are kept whole are in one cluster.
    classes : dict of str to ndarray
        Known classes, by names of `data`: every object's number among `class_names`, or -1.
    class_names : list
    model : str
        The function of `pm_match.models` that declares the model.
    ids : dict of str to str
        The columns of tables that name their objects, by names of `data`.
    raw : dict of str to DataFrame
        Tables before they were standardised, if that was asked for.
    open_family : bool
        Whether networks hold counts, and nobody said of which family.

    Examples
    --------
    >>> north = pd.DataFrame({"sku": ["n1", "n2", "n3", "n4"], "visits": [1, 9, 1, 8]})
    >>> south = pd.DataFrame({"sku": ["s1", "s2", "s3"], "visits": [9, 1, 1]})
    >>> prepared = pmm.prepare({"north": north, "south": south}, id="sku")
    >>> print(prepared)
    north: 4 objects (n1, n2, n3, …); used are visits (count).
    south: 3 objects (s1, s2, s3, …); used are visits (count).
    The model is mixture.
    >>> model = prepared.declare()
    """

    kind: Literal["tables", "networks"]
    data: dict[str, Any]
    titles: dict[str, str]
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    links: list[Mapping[str, Any]] = field(default_factory=list)
    cannot_link: list[Mapping[str, Any]] = field(default_factory=list)
    clusters: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    whole: bool = True
    distinct: bool = True
    classes: dict[str, np.ndarray] = field(default_factory=dict)
    class_names: list[Any] = field(default_factory=list)
    model: str = ""
    ids: dict[str, str] = field(default_factory=dict)
    raw: dict[str, pd.DataFrame] = field(default_factory=dict)
    open_family: bool = False

    def numeric(self) -> dict[str, pd.DataFrame]:
        """Give the columns of all tables that are not categories."""
        return {name: own.select_dtypes("number") for name, own in self.data.items()}

    def tellable(self) -> dict[str, Any] | None:
        """Give what can be told object by object: tables as they are used, or matrices."""
        return dict(self.data) if self.kind == "tables" else self.drawable()

    def drawable(self) -> dict[str, Any] | None:
        """Give what figures can draw: tables of numbers alone, or matrices; None of other data."""
        if self.kind == "tables":
            numeric = self.numeric()
            same = all(own.shape == self.data[name].shape for name, own in numeric.items())
            return numeric if same else None
        if any(len(network.shape) != 2 for network in self.data.values()):
            return None
        return {name: self._matrix(network) for name, network in self.data.items()}

    def _matrix(self, network: Network) -> scipy.sparse.coo_array:
        """Give a network as a matrix; if it is symmetric, with both triangles."""
        index, values = network.index, network.values
        if self.options.get("symmetric"):
            below = index[:, 0] != index[:, 1]
            index = np.concatenate([index, index[below][:, ::-1]])
            values = np.concatenate([values, values[below]])
        return scipy.sparse.coo_array((values, (index[:, 0], index[:, 1])), shape=network.shape)

    def own_labels(self, name: str, labels: Any) -> Any:
        """Give objects of a table, by their labels in draws, the labels that the table has."""
        own = self.data[name].index
        there = pd.Index(as_labels(name, "row", own))
        if own.equals(there):
            return labels
        at = there.get_indexer(pd.Index(labels))
        return own.to_flat_index().take(at).where(at >= 0, None)

    def axes(self) -> dict[str, tuple[str, str | None]]:
        """Give what every assignment is of, ``cluster_<name>`` by its name: domain and type."""
        if self.kind == "tables":
            return {name: (name, None) for name in self.data}
        return {f"{name}_{t}": (name, t) for name in self.data for t in self.options["types"]}

    def axis_titles(self) -> dict[str, str]:
        """Give what the user calls that which every assignment is of, by its name."""
        axes = self.axes()
        several = len(axes) > len(self.data)  # types of objects
        return {
            name: f"{self.titles[domain]}_{kind}" if several else self.titles[domain]
            for name, (domain, kind) in axes.items()
        }

    def shared(self) -> set[str]:
        """Name the columns that several tables have, if columns have names."""
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
        for name, network in self.data.items() if self.kind == "networks" else ():
            types = self.options["types"]
            sizes = ", ".join(
                f"{n:,} of type {t}" for t, n in zip(types, network.shape, strict=False)
            )
            lines.append(f"{self.titles[name]}: objects: {sizes}; {len(network.index):,} cells.")
        return [*lines, *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.words())

    __repr__ = __str__

    def declare(self, **options: Any) -> pm.Model:
        """Declare the model of the data, by the function of `pm_match.models`.

        Parameters
        ----------
        **options
            Passed to the function, beside those that `prepare` was given.

        Returns
        -------
        pymc.Model
        """
        return self._declared(self.whole, {**self.options, **options})

    def settled(
        self, random_seed: Any = None, progressbar: bool = True, **where: Any
    ) -> PreparedData:
        """Choose by searches what a look at data leaves open; the highest log joint decides.

        Whether numbers go together is asked of a `mixture` with two columns of numbers or more that
        the same tables have, none of whose values are missing and with ten objects or more for each
        column, unless `prepare` was given `correlated` or `power`. There are two searches with
        independent and two with correlated numbers.

        What counts of networks are is asked unless `prepare` was given `family`, `exposure`,
        `dispersion` or priors of densities. It may matter only whether there are any (the edges
        alone); or they are Poisson or negative binomial, without or with the objects' degrees as
        exposures. Each is tried on one network, on about 2,000 of its cells if there are more. Log
        joints are made such of all counts (`pm_match.networks.counts`). Of those that differ by
        less than 10 from the highest, the first is taken: Poisson, edges alone, negative binomial,
        with degrees.

        Parameters
        ----------
        random_seed : int, sequence of int, Generator or SeedSequence, optional
        progressbar : bool, default True
        **where
            `cores` or `executor`, as of `find_matching`.

        Returns
        -------
        PreparedData
            The same, if nothing is open.
        """
        return settle(self, random_seed, progressbar, where)

    def starts(
        self,
        chains: int = 4,
        random_seed: Any = None,
        progressbar: bool = True,
        **where: Any,
    ) -> list[dict[str, Any]] | None:
        """Give starts at the best correspondence of given clusters that are not kept whole.

        They are `initial_points` of the model in which these are kept whole; None if there are no
        such clusters, when chains start where `sample` does. `where` says where searches run, as in
        `find_matching`.
        """
        if self.whole or not self.clusters:
            return None
        whole = self._declared(True, self.options)
        return initial_points(whole, chains, random_seed, progressbar=progressbar, **where)

    def _declared(self, whole: bool, options: Mapping[str, Any]) -> pm.Model:
        apart = list(self.cannot_link)
        if whole and self.distinct:
            # One object of each stands for all of a given cluster.
            firsts = {name: [own[0] for own in groups] for name, groups in self.groups().items()}
            apart += [{name: [own]} for name, own in firsts.items() if len(own) > 1]
        with self.own_names():
            model = self._function(whole, options)
            with model:
                declare_links(apart, list(self.axes()), "cannot_link")
        return model

    @contextmanager
    def own_names(self) -> Iterator[None]:
        """Say names of domains in errors as the user does, and not as variables do."""
        try:
            yield
        except (TypeError, ValueError) as error:
            said = str(error)
            for name, title in {**self.titles, **self.axis_titles()}.items():
                said = said.replace(repr(name), repr(title))
                said = said.replace(f"'cluster_{name}'", repr(title))
            error.args = (said,)
            raise

    def _function(self, whole: bool, options: Mapping[str, Any]) -> pm.Model:
        options = dict(options)
        _check_options(self.model, options)
        groups = self.groups()
        linked = list(self.links)
        if whole:
            linked += [{name: own} for name, own in groups.items() if max(map(len, own)) > 1]
        if linked:
            options["links"] = linked
        if self.classes:
            options["known"] = self.classes
        if groups or self.classes:
            # None of them may find its like: there is room for all.
            room = sum(map(len, groups.values())) + len(self.class_names)
            options.setdefault("n_clusters", max(12, room + _MORE * bool(self.classes)))
        if self.model == "relational_clusters":
            if linked or self.cannot_link or self.classes:
                options.setdefault("relevance", False)
            return models.relational_clusters(self.data, **options)
        if self.model == "mixture":
            return models.mixture(self.data, columns=self.uses(), **options)
        return getattr(models, self.model)(self.numeric(), **options)

    def uses(self) -> dict[str, str]:
        """Give the use of every column that is used; it is the same in all tables."""
        return {
            column: own.use
            for columns in self.columns.values()
            for column, own in columns.items()
            if own.use != LEFT_OUT
        }

    def groups(self) -> dict[str, list[list[int]]]:
        """Give positions of the objects of given clusters, by domain, in the order of labels."""
        return {
            name: [np.flatnonzero(codes == k).tolist() for k in range(len(labels))]
            for name, (codes, labels) in self.clusters.items()
        }


def prepare(
    data: Any,
    *,
    links: Any = None,
    cannot_link: Any = None,
    clusters: Mapping[str, Any] | None = None,
    whole: bool = True,
    distinct: bool = True,
    classes: Mapping[str, Any] | None = None,
    id: str | Mapping[str, str] | None = None,
    columns: Any = None,
    model: str | None = None,
    standardise: bool = False,
    **options: Any,
) -> PreparedData:
    """Look at data: say what can be used of them, how, and in which model.

    Parameters
    ----------
    data : mapping, path or sequence of paths
        From names to tables (DataFrames, 2-D arrays, DataArrays, AnnData, CSV files) or to networks
        (SciPy sparse matrices, networkx graphs; ``.mtx`` and ``.npz`` files). Or files, which are
        named as they are; or MuData, whose modalities are domains.
        Numbers, booleans and categories are understood, pandas' nullable types too; NaN and blank
        text are missing values. A DataFrame's index names the objects.
    links : mapping, DataFrame, file or sequence of mappings and DataFrames, optional
        Objects known to share a cluster: a DataFrame, or a CSV file, with a column of labels for
        each domain, one row a link; or from domains to positions (whole numbers) or labels (text).
        Where no two domains have objects of one label, a list of tuples of labels will do.
        Domains of networks are called ``<network>_<type>``, or by the network's name if there is
        one type.
    cannot_link : optional
        Objects known not to share a cluster, in the forms of `links`; of one domain alone, groups
        of objects no two of which share one.
    clusters : mapping, optional
        Clusters that are known already within domains: from domains, of networks from
        ``<network>_<type>``, to a label for every object (missing where it is not known; a dict,
        Series or DataArray is matched by its keys, unless they are 0, 1, 2, … and name no object).
    whole : bool, default True
        Whether these clusters are kept whole. Otherwise chains start from the best correspondence
        of them (`PreparedData.starts`), and objects may leave them.
    distinct : bool, default True
        Whether given clusters of one domain that are kept whole stay different clusters, so that
        each has one counterpart at most in another domain. Otherwise they may become one.
    classes : mapping, optional
        Classes that are known of some objects, or all: from domains to a label for every object,
        in the form of `clusters`. Those of one class are in one cluster, whichever their domain,
        and those of two classes are not.
    id : str or mapping of str to str, optional
        The column that names the objects: of all tables, or by domain.
    columns : mapping or sequence of str, optional
        Of tables, from columns to what they hold, where it cannot be seen: "number", "positive",
        "count", "boolean" or "category"; or "ignore". Whole numbers are counts up to 30, unless
        they vary less than counts do, as codes and ratings. Of edge lists, the columns of both
        ends, whose numbers are names as text is, and perhaps the value's.
    model : str, optional
        "table_clusters", "normal_clusters", "aligned_clusters", "mixture", "projected_clusters" or
        "relational_clusters", which says that DataFrames and CSV files are networks.
        Default: what `choose_model` recommends for such data.
    standardise : bool, default False
        Whether columns of numbers are brought to mean 0 and variance 1, for models of such columns
        alone.
    **options
        Of the model; those that only networks have say that data are networks. ``correlated=None``
        leaves that of a `mixture` to `PreparedData.settled`, as no `correlated` does.

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
        Of columns that are left out, or whose use is a guess; and of classes that no other domain
        has.

    Examples
    --------
    >>> north = pd.DataFrame({"sku": ["n1", "n2", "n3", "n4"], "visits": [1, 9, 1, 8]})
    >>> south = pd.DataFrame({"sku": ["s1", "s2", "s3"], "visits": [9, 1, 1]})
    >>> prepared = pmm.prepare({"north": north, "south": south}, id="sku")
    >>> print(prepared)
    north: 4 objects (n1, n2, n3, …); used are visits (count).
    south: 3 objects (s1, s2, s3, …); used are visits (count).
    The model is mixture.
    >>> model = prepared.declare()
    """
    check_spelling(prepare, options)
    if options.get("correlated") is None:
        options.pop("correlated", None)
    if model is not None:
        check_option("model", model, MODELS)
    if isinstance(columns, str):
        raise TypeError(
            f"columns: expected names of several columns, as in [{columns!r}, …], or a mapping; "
            f"found {columns!r}"
        )
    if hasattr(getattr(data, "mod", None), "items"):  # MuData
        data = dict(data.mod)
    if isinstance(data, str | PathLike):
        data = [data]
    if not isinstance(data, Mapping):
        data = _named_files(data)
    check_given_by_name("domain", data)
    titles: dict[str, str] = {}
    for title in data:
        for mark in ("/", "::"):
            if mark in str(title):
                raise ValueError(
                    f"domain {title!r}: expected a name without {mark!r}, which separates names in "
                    "results; rename it"
                )
        if identifier(str(title)) in titles:
            raise ValueError(
                f"domain {title!r}: expected a name that makes variables of its own; found "
                f"{titles[identifier(str(title))]!r}, which makes the same: rename one"
            )
        titles[identifier(str(title))] = str(title)
    given = dict(zip(titles, data.values(), strict=True))
    if (
        model == "relational_clusters"
        or (columns is not None and not isinstance(columns, Mapping))
        or any(options.get(option) is not None for option in _OF_NETWORKS)
        or any(_is_network(own, model) for own in given.values())
    ):
        if columns and isinstance(columns, Mapping):
            raise ValueError(
                "columns: expected a list for networks, of the columns with both ends and the "
                f"value; found {dict(columns)}"
            )
        if id is not None:
            why = "" if columns is None else " (of tables, columns= is a mapping to uses)"
            raise ValueError(f"id: expected none, as these are networks{why}; found {id!r}")
        networks, options, notes, is_open = look_at_networks(given, columns, options)
        found = PreparedData(
            "networks", networks, titles, notes=notes, options=options, open_family=is_open
        )
    else:
        ids = _ids(id, titles)
        tables, looked = _look_at_tables(given, titles, ids, dict(columns or {}))
        found = PreparedData("tables", tables, titles, looked, options=options)
        found.ids.update({name: own for name, own in ids.items() if own is not None})
    axes = found.axis_titles()
    objects = {axes[name]: labels for name, labels in _objects_of(found).items()}
    for what, given_pairs, kept in (
        ("links", links, found.links),
        ("cannot_link", cannot_link, found.cannot_link),
    ):
        if isinstance(given_pairs, str | PathLike):
            given_pairs = read_links(Path(given_pairs))
        for one in link_sets(given_pairs, what, objects):
            kept.append({_assignment(found, what, key): own for key, own in one.items()})
    found.clusters.update(_known(found, "clusters", clusters))
    _set_classes(found, classes)
    chosen = model or choose_model(found)
    if (chosen == "relational_clusters") != (found.kind == "networks"):
        raise ValueError(f"model: expected one for {found.kind}; found {chosen!r}")
    _check_options(chosen, found.options)
    if chosen == "mixture":
        _find_codes(found, {as_variable(column) for column in columns or ()})
    for said in _left_out_of(found, chosen):
        found.notes.append(said)
        warn(said)
    if standardise:
        if chosen not in _NUMERIC:
            raise ValueError(
                f"standardise: expected a model of numbers, one of {', '.join(_NUMERIC)}; "
                f"found {chosen!r}"
            )
        found.raw.update(found.numeric())
        with found.own_names():
            standardised = scaled(found.raw)
        for name, own in standardised.items():
            raw = found.raw[name]
            found.data[name] = pd.DataFrame(own.to_numpy(), raw.index, raw.columns)
    found.notes.append(f"The model is {chosen}.")
    counted = [use in ("count", "boolean") for use in found.uses().values()]
    if chosen == "table_clusters" != model and np.mean(counted) > 0.9:
        found.notes.append(
            "If columns are objects too, as the words of documents are, relational_clusters "
            "matches both."
        )
    return replace(found, model=chosen, whole=whole, distinct=distinct)


def _ids(id: Any, titles: Mapping[str, str]) -> dict[str, str | None]:
    """Give the column that names the objects of every table, if one does."""
    given = id if isinstance(id, Mapping) else dict.fromkeys(titles.values(), id)
    for title, column in given.items():
        if str(title) not in titles.values():
            raise ValueError(f"id: {no_such(f'domain {title!r}', titles.values(), title)}")
        if not isinstance(column, str | None):
            raise TypeError(
                "id: expected the name of a column, or a mapping from domains to such, as in "
                f"{{'a': …, 'b': …}}; found {type_name(column)}"
            )
    by_title = {str(title): column for title, column in given.items()}
    return {name: by_title.get(title) for name, title in titles.items()}


def _look_at_tables(given, titles, ids, told):
    """Look at all tables; give what is used of them, and what was found in their columns."""
    check_domain_names(given)
    for column, use in told.items():
        check_option(f"columns[{column!r}]", use, (*USES, "ignore"))
    told = {as_variable(column): use for column, use in told.items()}
    tables: dict[str, pd.DataFrame] = {}
    looked: dict[str, dict[str, Column]] = {}
    for name, value in given.items():
        where = f"domain {titles[name]!r}"
        if isinstance(value, str | PathLike):
            where, value = str(value), read_table_file(Path(value), told, id=ids[name])
        tables[name], looked[name] = look_at_table(where, value, ids[name], told)
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


def _set_classes(found: PreparedData, classes: Mapping[str, Any] | None) -> None:
    """Give the classes of all domains numbers, the same everywhere."""
    known = dict(_known(found, "classes", classes))
    axes = found.axes()
    for kind in dict.fromkeys(axes[name][1] for name in known):
        of_kind = {name: own for name, (_, own) in known.items() if axes[name][1] == kind}
        warn_of_levels("classes", {found.titles.get(k, k): own for k, own in of_kind.items()})
    names = pd.Series([own for _, labels in known.values() for own in labels], dtype=object)
    found.class_names.extend(names.drop_duplicates())
    for name, (codes, labels) in known.items():
        number = np.array([*map(found.class_names.index, labels), -1])
        found.classes[name] = number[codes]


def _known(
    found: PreparedData, what: str, clusters: Mapping[str, Any] | None
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    """Check given clusters; give every object's number (-1 for none), and their labels."""
    if clusters is not None and not isinstance(clusters, Mapping):
        raise TypeError(
            f"{what}: expected a mapping from domains to labels of their objects, such as "
            f"{{'a': labels_of_a}}; found {type_name(clusters)}"
        )
    for title, given in (clusters or {}).items():
        where = f"{what}[{title!r}]"
        name = _assignment(found, where, title)
        objects = _objects_of(found)[name]
        given = in_order(where, given, objects, partial=True)
        cells = np.asarray(given, dtype=object)
        if cells.ndim != 1:
            found_there = f"the shape {cells.shape}" if cells.ndim else type_name(given)
            raise TypeError(
                f"{where}: expected a label for every object (a list, an array or a Series); found "
                f"{found_there}"
            )
        values = without_blanks(pd.Series(cells))
        if len(values) != len(objects):
            raise ValueError(f"{where}: expected {len(objects)} labels; found {len(values)}")
        codes, labels = pd.factorize(values, sort=values.dropna().map(type).nunique() == 1)
        if not len(labels):
            raise ValueError(f"{where}: expected labels; found none")
        names = pd.Series(labels).infer_objects().to_numpy()
        # Whole numbers are floats where some are missing.
        if names.dtype.kind == "f" and (names == np.floor(names)).all():
            names = names.astype(np.int64)
        yield name, (codes, names)


def _assignment(found: PreparedData, where: str, title: Any) -> str:
    """Name an assignment by its domain; by its network, if that has one type of objects."""
    name = identifier(str(title))
    if found.kind == "networks" and name in found.data and len(found.options["types"]) == 1:
        return f"{name}_{found.options['types'][0]}"
    if name not in found.axes():
        what = "table" if found.kind == "tables" else "set of objects"
        there = found.axis_titles().values()
        raise ValueError(f"{where}: {no_such(f'{what} {title!r}', there, title)}")
    return name


def _objects_of(found: PreparedData) -> dict[str, pd.Index]:
    """Give the labels of the objects of every assignment."""
    if found.kind == "tables":
        return {name: own.index for name, own in found.data.items()}
    types = found.options["types"]
    return {
        f"{name}_{t}": pd.Index(own)
        for name, network in found.data.items()
        for t, own in zip(types, network.labels, strict=False)
    }


def _options_of(model: str) -> list[str]:
    """List the options of a model's function, beside what `prepare` gives it."""
    _, *known = inspect.signature(getattr(models, model)).parameters
    return [name for name in known if name not in ("links", "columns", "known")]


def check_spelling(function: Callable, options: Iterable[str]) -> None:
    """Refuse an option of no model that is nearly an argument of the function."""
    _, *own, _ = inspect.signature(function).parameters
    known = {name for model in MODELS for name in _options_of(model)}
    for option in options:
        near = did_you_mean(option, own)
        if near and option not in known and near == did_you_mean(option, [*own, *known]):
            raise TypeError(f"{function.__name__}: no argument {option!r}{near}")


def _check_options(model: str, options: Iterable[str]) -> None:
    """Refuse options that the model's function does not have."""
    known = _options_of(model)
    for option in options:
        if option not in known:
            raise TypeError(f"{model}: {no_such(f'option {option!r}', known, option)}")


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


def _find_codes(found: PreparedData, told: Collection[str]) -> None:
    """Use whole numbers as what they are that vary less than counts do, if nothing is `told`."""
    for column, use in found.uses().items():
        if use != "count" or column in told:
            continue
        of = {name: own[column] for name, own in found.data.items() if column in own}
        use = use_of_whole_numbers(pd.concat(of.values()).dropna().to_numpy())
        for name, values in of.items() if use != "count" else ():
            if use == "category":
                whole = values.astype("Int64").astype(object)
                found.data[name][column] = whole.where(values.notna())
            own = found.columns[name][column]
            note = "; ".join(filter(None, (own.note, "varies less than counts do")))
            found.columns[name][column] = own._replace(use=use, note=note)


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


def _named_files(files: Any) -> dict[str, Path]:
    """Name files as they are called, without what says their kind."""
    found: dict[str, Path] = {}
    several = isinstance(files, Sequence)
    for file in files if several else [files]:
        if not isinstance(file, str | PathLike):
            raise TypeError(
                "data: expected a mapping from names to tables or networks, such as "
                "{'a': table_a, 'b': table_b}, or a sequence of files; found "
                f"{type_name(file)}{' in a sequence' if several else ''}"
            )
        title = stem(Path(file))
        if title in found:
            raise ValueError(
                f"{file}: expected files of different names; found {found[title]} too: rename one"
            )
        found[title] = Path(file)
    return found


def _is_network(value: Any, model: str | None) -> bool:
    """Whether data are a network by their form; sparse matrices may be tables, if a model says so.

    `model`: what was asked for.
    """
    if isinstance(value, str | PathLike):
        return is_matrix(Path(value))
    return (scipy.sparse.issparse(value) and model is None) or is_graph(value)


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
    where: str, table: Any, id: str | None, told: Mapping[str, str], new: bool = False
) -> tuple[pd.DataFrame, dict[str, Column]]:
    """Look at one table; return what is used of it, and what was found in its columns.

    `told` says how columns are used. Of a `new` table, which may have one row, the others are not.
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
    if not kept:
        why = "; ".join(f"{column!r}: {own.note}" for column, own in looked.items())
        raise ValueError(f"{where}: expected a column that can be used; found none ({why})")
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
        other = values[pd.to_numeric(values, errors="coerce").isna() & values.notna()]
        raise TypeError(
            f"{where}: column {values.name!r}: expected numbers, to be used as {use}; found "
            f"{other.iloc[0]!r}"
        ) from None


def choose_model(prepared: PreparedData) -> str:
    """Recommend the model to begin with.

    Networks: `relational_clusters`. Tables that have columns in common are matched by what clusters
    do there: `mixture`. Other tables are matched by the shapes that clusters form in them, which
    takes numbers: `table_clusters`; unless objects are linked, which matches tables of any columns.
    One table has nothing to be matched with: `table_clusters` if it has numbers alone, which may go
    together in clusters, and `mixture` if not.

    Parameters
    ----------
    prepared : PreparedData

    Raises
    ------
    ValueError
        If there is nothing to match tables by.

    Examples
    --------
    >>> north = pd.DataFrame({"sku": ["n1", "n2", "n3", "n4"], "visits": [1, 9, 1, 8]})
    >>> south = pd.DataFrame({"sku": ["s1", "s2", "s3"], "visits": [9, 1, 1]})
    >>> pmm.choose_model(pmm.prepare({"north": north, "south": south}, id="sku"))
    'mixture'
    """
    if prepared.kind == "networks":
        return "relational_clusters"
    tables, linked = prepared.data, bool(prepared.links or prepared.clusters)
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
            f"domain {bare[0]!r}: expected a column of numbers, or one in common with other "
            "tables, to match it by; found neither. Give columns of the same things the same "
            "names, or say which objects match (links=)"
        )
    return "table_clusters"


def _left_out_of(prepared: PreparedData, model: str) -> Iterable[str]:
    """Say which columns a model does not use; refuse if that is all of a table's."""
    for name, own in prepared.data.items() if model in _NUMERIC else ():
        left = list(own.select_dtypes(exclude="number").columns)
        if len(left) == own.shape[1]:
            raise ValueError(
                f"domain {prepared.titles[name]!r}: expected a column of numbers, as {model} takes "
                f"them; found none among {left}"
            )
        if left:
            yield (
                f"{prepared.titles[name]}: {model} takes numbers, and leaves out "
                f"{', '.join(map(str, left))}."
            )
