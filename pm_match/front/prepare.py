"""The user's data, looked at: what is used of them and what is not, and the model for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

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
from pm_match.front.columns import use_of_whole_numbers
from pm_match.front.edges import is_graph, look_at_networks
from pm_match.front.files import as_variable, is_matrix
from pm_match.front.look import look_at_tables, warn_of_repetitions
from pm_match.front.prepared import PreparedData, check_options, options_of
from pm_match.models.declare import link_sets, warn_of_levels
from pm_match.tables.blanks import without_blanks
from pm_match.tables.order import in_order
from pm_match.tables.standardise import standardise as scaled

# Models of tables of numbers, and all that there are.
_NUMERIC = ("table_clusters", "normal_clusters", "aligned_clusters", "projected_clusters")
MODELS = (*_NUMERIC, "mixture", "relational_clusters")
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
        Of columns that are left out, whose use is a guess, or that tell the same; and of classes
        that no other domain has.

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
        tables, looked = look_at_tables(
            given, titles, ids, dict(columns or {}), model in (None, "mixture")
        )
        found = PreparedData("tables", tables, titles, looked, options=options)
        found.ids.update({name: own for name, own in ids.items() if own is not None})
    axes = found.axis_titles()
    objects = {axes[name]: labels for name, labels in found.objects().items()}
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
    check_options(chosen, found.options)
    if chosen == "mixture":
        _find_codes(found, {as_variable(column) for column in columns or ()})
        uses = found.uses().items()
        discrete = [column for column, use in uses if use in ("category", "boolean", "count")]
        warn_of_repetitions(found.data, discrete)
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


def check_spelling(function: Callable, options: Iterable[str]) -> None:
    """Refuse an option of no model that is nearly an argument of the function."""
    _, *own, _ = inspect.signature(function).parameters
    known = {name for model in MODELS for name in options_of(model)}
    for option in options:
        near = did_you_mean(option, own)
        if near and option not in known and near == did_you_mean(option, [*own, *known]):
            raise TypeError(f"{function.__name__}: no argument {option!r}{near}")


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
        objects = found.objects()[name]
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
    TypeError
        If it is not what `prepare` returns.
    ValueError
        If there is nothing to match tables by.

    Examples
    --------
    >>> north = pd.DataFrame({"sku": ["n1", "n2", "n3", "n4"], "visits": [1, 9, 1, 8]})
    >>> south = pd.DataFrame({"sku": ["s1", "s2", "s3"], "visits": [9, 1, 1]})
    >>> pmm.choose_model(pmm.prepare({"north": north, "south": south}, id="sku"))
    'mixture'
    """
    if not isinstance(prepared, PreparedData):
        raise TypeError(f"prepared: expected what prepare returns; found {type_name(prepared)}")
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
