"""The user's data as they are used, and the model for them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm
import scipy.sparse

from pm_match import models
from pm_match.checks import no_such
from pm_match.front.columns import LEFT_OUT, Column
from pm_match.front.settle import settle
from pm_match.models.declare import declare_links
from pm_match.networks.data import Network
from pm_match.starts import initial_points
from pm_match.tables.domains import as_labels

# Columns that are named in one line.
_LISTED = 12
# Clusters that there may be beside the known classes.
_MORE = 4


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
    >>> prepared = pmm.prepare({"north": pd.DataFrame({"visits": [1, 9, 1, 8]})})
    >>> prepared.uses()
    {'visits': 'count'}
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

    def objects(self) -> dict[str, pd.Index]:
        """Give the labels of the objects of every assignment."""
        if self.kind == "tables":
            return {name: own.index for name, own in self.data.items()}
        types = self.options["types"]
        return {
            f"{name}_{t}": pd.Index(own)
            for name, network in self.data.items()
            for t, own in zip(types, network.labels, strict=False)
        }

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
        independent and two with correlated numbers. Of other numbers a note says why it is not.

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
        check_options(self.model, options)
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


def options_of(model: str) -> list[str]:
    """List the options of a model's function, beside what `prepare` gives it."""
    _, *known = inspect.signature(getattr(models, model)).parameters
    return [name for name in known if name not in ("links", "columns", "known")]


def check_options(model: str, options: Iterable[str]) -> None:
    """Refuse options that the model's function does not have."""
    known = options_of(model)
    for option in options:
        if option not in known:
            raise TypeError(f"{model}: {no_such(f'option {option!r}', known, option)}")
