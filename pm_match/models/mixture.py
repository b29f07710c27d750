"""Mixtures of ordinary tables, whose columns are numbers, counts, booleans or categories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Literal

import numpy as np
import pandas as pd
import pymc as pm
from numpy.typing import NDArray

from pm_match.checks import (
    LARGEST,
    check_count,
    check_flag,
    check_identifier,
    check_option,
    check_positive,
    check_power,
    plain,
    type_name,
)
from pm_match.models.declare import (
    WEIGHTS,
    Links,
    assignment,
    check_known,
    cluster_weights,
    declare_links,
    imputing,
    warn_of_levels,
)
from pm_match.reading.coarsen import coarsen
from pm_match.tables.blanks import without_blanks
from pm_match.tables.domains import as_labels

_PARAMETERS = {
    "number": ("mean", "precision"),
    "positive": ("log_mean", "log_precision"),
    "count": ("rate",),
    "boolean": ("probability",),
    "category": ("probability",),
}
_KINDS = tuple(_PARAMETERS)
_ONE = np.float64(1.0)
# Within a cluster, a column varies half as much as over all objects, before anything is known.
_WITHIN = 0.5
# With fewer, a covariance may say more than the clusters.
_OBJECTS_PER_COLUMN = 10
# How many objects the prior of correlated columns' means is worth.
_MEAN_STRENGTH = 0.05


def mixture(
    tables: pd.DataFrame | Mapping[str, pd.DataFrame],
    n_clusters: int = 25,
    *,
    columns: Mapping[str, str] | None = None,
    shared: Collection[str] | None = None,
    concentration: float = 1.0,
    weights: Literal["stick-breaking", "dirichlet", "uniform"] = "stick-breaking",
    links: Links = None,
    known: Mapping[str, Any] | None = None,
    power: float = 1.0,
    correlated: bool = False,
) -> pm.Model:
    r"""Declare a mixture of one table with mixed columns, or of several that share some columns.

    Given its cluster, an object's columns are independent, each of a family with parameters
    :math:`\phi_{jm}` of the cluster and the column:

    .. math::

        \theta \sim \mathrm{GEM}(\gamma), \quad s_{dn} \sim \mathrm{Categorical}(\theta), \quad
        x_{dnm} \sim p_m(\cdot \mid \phi_{s_{dn} m})

    Tables that share columns share the clusters' parameters for these, which is what matches
    their objects; a column that one table has alone refines its clusters. All priors are conjugate,
    so that the steps integrate all parameters out.

    Parameters
    ----------
    tables : DataFrame or mapping of str to DataFrame
        Objects by columns; a single table is called ``"table"``. Missing values, and text that is
        empty or spaces alone, are integrated out.
    n_clusters : int, default 25
        Truncation of the stick-breaking: the most clusters there can be. For other `weights`, the
        number of clusters.
    columns : mapping of str to str, optional
        What is in a column, where its dtype does not say:

        - ``"number"``: normal, with a mean and a precision (floats, and integers below zero);
        - ``"positive"``: log-normal, likewise (never by dtype);
        - ``"count"``: Poisson (other integers);
        - ``"boolean"``: Bernoulli (booleans);
        - ``"category"``: categorical (strings, categories and other objects).
    shared : collection of str, optional
        Columns whose parameters the tables share that have them. Default: all that several tables
        have.
    concentration : float, default 1.0
        :math:`\gamma`.
    weights : {"stick-breaking", "dirichlet", "uniform"}, default "stick-breaking"
        Prior on the clusters' weights, as in `projected_clusters`.
    links : mapping, DataFrame or sequence of these, optional
        Objects known to share a cluster, by the names of tables, as in `projected_clusters`.
    known : mapping, optional
        Labels that are known, as in `projected_clusters`.
    power : float, default 1.0
        To which the densities of all data count (`coarsen`). Below 1, clusters whose columns are
        correlated, or not quite of their family, split less easily.
    correlated : bool, default False
        Whether columns of numbers that the same tables have are normal together, with one
        covariance within all clusters, :math:`x \sim N(\mu_j, \Lambda^{-1})`. Clusters are then not
        cut along what columns share; they do not differ in spread. It needs the power 1.

    Returns
    -------
    pymc.Model
        With `weights` (unless uniform), `cluster_<table>`, and for columns of every kind, by
        cluster: `mean` and `precision` of numbers, `log_mean` and `log_precision` of positive ones,
        `rate` of counts, `probability` of booleans, and `probability_<column>` of categories. The
        `precision` of correlated numbers is one matrix for all clusters. Names of parameters that
        not all tables share end with those of the tables that do. Data are called `<table>_<kind>`
        (which ends so, too), or `<table>_own_<kind>` of columns that it has alone, and
        `<table>_<column>` for categories (`<table>_object_` of a column "object").

    Raises
    ------
    TypeError, ValueError
        If a table, a column or a parameter is not as described; the message says which, what was
        expected, and what was found.

    Warns
    -----
    UserWarning
        Of categories in columns that tables share which no other table has, or spells so, as they
        cannot match.

    Notes
    -----
    With mean :math:`m` and standard deviation :math:`u` of all the column's values, precisions are
    Gamma with shape 2 and mean :math:`4 / u^2`, means are normal around :math:`m` with a quarter of
    the precision (on the log scale for positive columns), rates are exponential with mean
    :math:`m`, and probabilities are uniform. The precision of M correlated columns is Wishart with
    M + 3 degrees of freedom; its inverse has the mean :math:`\mathrm{diag}(u^2 / 4)`, and means are
    normal around :math:`m` with a twentieth of the precision.

    Examples
    --------
    >>> frame = pd.DataFrame({"visits": [1, 9, 2, 8], "member": [True, False, True, False]})
    >>> model = pmm.models.mixture({"spring": frame, "autumn": frame})
    >>> [variable.name for variable in model.observed_RVs]
    ['spring_count', 'autumn_count', 'spring_boolean', 'autumn_boolean']
    """
    frames = {"table": tables} if isinstance(tables, pd.DataFrame) else tables
    _check_tables(frames)
    check_count("n_clusters", n_clusters, 2)
    check_positive("concentration", concentration)
    check_option("weights", weights, WEIGHTS)
    check_known(known, frames)
    check_power("power", power)
    check_flag("correlated", correlated)
    if correlated and power < 1.0:
        raise ValueError(f"power: expected 1 for correlated columns; found {power}")
    groups = _groups(frames, _kinds(frames, columns or {}), _owners(frames, shared))
    _check_names(groups)
    if correlated and not any(group.several_numbers for group in groups):
        raise ValueError(
            "correlated: expected columns of numbers, two at least, that the same tables have; "
            "found none (whole numbers are counts, where `columns` does not say what they are)"
        )
    for group in groups:
        if group.kind == "category":
            warn_of_levels(f"column {group.columns[0]!r}", group.levels())

    coords: dict[str, Any] = {"cluster": range(n_clusters)}
    coords |= {
        f"{name}_object": as_labels(repr(name), "row", table.index)
        for name, table in frames.items()
    }
    with pm.Model(coords=coords, model=None) as model:
        prior = cluster_weights(weights, n_clusters, concentration)
        cluster = {name: assignment(name, prior, f"{name}_object", known) for name in frames}
        labels = list(model.observed_RVs)
        with imputing():
            for group in groups:
                if correlated and group.several_numbers:
                    group.declare_correlated(model, cluster)
                else:
                    group.declare(model, cluster)
        if power < 1.0:
            for variable in model.observed_RVs:
                if variable not in labels:
                    coarsen(f"coarsened_{variable.name}", variable, power)
        declare_links(links, list(frames))
    return model


def observed_columns(
    tables: Mapping[str, pd.DataFrame],
    columns: Mapping[str, str],
    shared: Collection[str] | None = None,
) -> dict[str, dict[str, tuple[list[str], list[Any] | None]]]:
    """Say which columns of a table every observed variable of a `mixture` has.

    `tables`, `columns`, `shared`: as `mixture` takes them. Return a dict of str to dict of str to
    (list of str, list or None): by table and variable: the columns, and the categories of a column
    that has some.
    """
    found: dict[str, dict[str, tuple[list[str], list[Any] | None]]] = {name: {} for name in tables}
    for group in _groups(tables, _kinds(tables, columns), _owners(tables, shared)):
        categories = group.categories if group.kind == "category" else None
        for name in group.values:
            found[name][group.variable(name)] = (group.columns, categories)
    return found


def why_not_correlated(
    tables: Mapping[str, pd.DataFrame],
    columns: Mapping[str, str],
    shared: Collection[str] | None = None,
) -> str | None:
    """Say why data cannot tell if numbers are correlated within clusters, or None if they can.

    `tables`, `columns`, `shared`: as `mixture` takes them. Log joints do not compare where values
    are missing. Nothing is said if no two columns of numbers are of the same tables.
    """
    groups = _groups(tables, _kinds(tables, columns), _owners(tables, shared))
    numbers = [
        np.ma.concatenate(list(own.values.values())) for own in groups if own.several_numbers
    ]
    if not numbers:
        return ""
    if any(map(np.ma.is_masked, numbers)):
        return "some are missing"
    few = [own.shape for own in numbers if len(own) < _OBJECTS_PER_COLUMN * own.shape[1]]
    if few:
        return f"{few[0][0]} objects are few for {few[0][1]} columns"
    return None


@dataclass(frozen=True)
class _Group:
    """Columns of one kind that the same tables share; one column if it is of categories."""

    kind: str
    columns: list[str]
    # by table, (N, M) or (N,): the latter are codes of categories
    values: dict[str, np.ma.MaskedArray]
    categories: list[Any]
    alone: bool  # whether one of several tables has them for itself
    suffix: str  # what tells their parameters from those of others

    def declare(self, model: pm.Model, cluster: Mapping[str, Any]) -> None:
        """Declare the parameters, and the data of every table."""
        if self.kind == "category":
            (column,) = self.columns
            dim = f"category_{column}{self.suffix}"
            model.add_coord(dim, self.categories)
            p = pm.Dirichlet(
                f"probability_{column}{self.suffix}",
                np.ones(len(self.categories)),
                dims=("cluster", dim),
            )
            for name, values in self._observed():
                pm.Categorical(
                    self.variable(name), p[cluster[name]], observed=values, dims=f"{name}_object"
                )
            return
        dim = f"{self.kind}{self.suffix}"
        model.add_coord(dim, self.columns)
        distribution, parameters = self._parameters(("cluster", dim))
        for name, values in self._observed():
            own = {option: value(cluster[name]) for option, value in parameters.items()}
            distribution(self.variable(name), **own, observed=values, dims=(f"{name}_object", dim))

    def declare_correlated(self, model: pm.Model, cluster: Mapping[str, Any]) -> None:
        """Declare numbers with one covariance within clusters, and the data of every table."""
        suffix, every = self.suffix, np.ma.concatenate(list(self.values.values()))
        dim, other = f"number{suffix}", f"numbers{suffix}"
        model.add_coords({dim: self.columns, other: self.columns})
        spread = _WITHIN * np.asarray(every.std(axis=0))
        # With M + 3 degrees of freedom, its inverse has the mean diag(spread ** 2).
        precision: Any = pm.Wishart(
            f"precision{suffix}",
            nu=len(self.columns) + 3,
            V=np.diag(0.5 / spread**2),
            dims=(dim, other),
        )
        mean = pm.MvNormal(
            f"mean{suffix}",
            np.asarray(every.mean(axis=0)),
            tau=np.float64(_MEAN_STRENGTH) * precision,
            dims=("cluster", dim),
        )
        for name, values in self._observed():
            centre, dims = mean[cluster[name]], (f"{name}_object", dim)
            pm.MvNormal(self.variable(name), centre, tau=precision, observed=values, dims=dims)

    @property
    def several_numbers(self) -> bool:
        """Whether these are numbers that may be correlated."""
        return self.kind == "number" and len(self.columns) > 1

    @property
    def names(self) -> list[str]:
        """Names of all variables that it brings into the model."""
        own = f"_{self.columns[0]}" if self.kind == "category" else ""
        parameters = [f"{parameter}{own}{self.suffix}" for parameter in _PARAMETERS[self.kind]]
        return [*parameters, *map(self.variable, self.values)]

    def variable(self, name: str) -> str:
        """Name the observed variable of a table."""
        if self.kind == "category":
            column = self.columns[0]
            # A dim is called <table>_object.
            return f"{name}_{column}{'_' * (column == 'object')}"
        if self.alone:
            return f"{name}_own_{self.kind}"
        return f"{name}_{self.kind}{self.suffix}"

    def levels(self) -> dict[str, list[Any]]:
        """Give the categories that every table has values of, if it has any."""
        used = {name: np.unique(codes.compressed()) for name, codes in self.values.items()}
        return {name: [self.categories[k] for k in own] for name, own in used.items() if len(own)}

    def _observed(self):
        for name, values in self.values.items():
            plain = not np.ma.getmaskarray(values).any()
            yield name, values.data if plain else values

    def _parameters(self, dims) -> tuple[Any, dict[str, Any]]:
        """Declare the parameters of these columns; return the family, and how it uses them."""
        suffix, every = self.suffix, np.ma.concatenate(list(self.values.values()))
        if self.kind == "boolean":
            p = pm.Beta(f"probability{suffix}", _ONE, _ONE, dims=dims)
            return pm.Bernoulli, {"p": lambda s: p[s]}
        if self.kind == "count":
            # Half an object more, so that a column of zeros has a mean.
            mean = (every.sum(axis=0) + 0.5) / (every.count(axis=0) + 0.5)
            rate = pm.Gamma(f"rate{suffix}", _ONE, 1.0 / np.asarray(mean), dims=dims)
            return pm.Poisson, {"mu": lambda s: rate[s]}
        log = "log_" if self.kind == "positive" else ""
        every = np.ma.log(every) if log else every
        centre, spread = np.asarray(every.mean(axis=0)), np.asarray(every.std(axis=0))
        shape = np.float64(2.0)
        precision = pm.Gamma(
            f"{log}precision{suffix}", shape, shape * (_WITHIN * spread) ** 2, dims=dims
        )
        mean = pm.Normal(
            f"{log}mean{suffix}", centre, tau=np.float64(_WITHIN**2) * precision, dims=dims
        )
        family = pm.LogNormal if log else pm.Normal
        return family, {"mu": lambda s: mean[s], "tau": lambda s: precision[s]}


def _check_tables(frames: Any) -> None:
    if not isinstance(frames, Mapping) or not frames:
        raise TypeError(
            "tables: expected a DataFrame, or a mapping from names to DataFrames; found "
            f"{'none' if isinstance(frames, Mapping) else type_name(frames)}"
        )
    for name, table in frames.items():
        check_identifier("a table", name)
        if not isinstance(table, pd.DataFrame):
            raise TypeError(f"{name!r}: expected a DataFrame; found {type_name(table)}")
        if not all(table.shape):
            raise ValueError(f"{name!r}: expected rows and columns; found the shape {table.shape}")
        as_labels(repr(name), "column", table.columns)  # refuses those that are not unique
        for column in table.columns:
            if not isinstance(column, str) or "/" in column:
                raise ValueError(
                    f"{name!r}: expected names of columns that are text, without '/'; found "
                    f"{plain(column)!r}"
                )


def _check_names(groups: Sequence[_Group]) -> None:
    """Refuse categories whose column is named as what the model has of other columns, or PyMC."""
    owner: dict[str, list[str]] = {}
    for group in sorted(groups, key=lambda own: own.kind == "category"):
        for name in group.names:
            if name.endswith("__"):
                raise ValueError(
                    f"column {group.columns[0]!r}: expected a name that does not end in '__', as "
                    f"those of PyMC's transformed variables do; found {name!r}. Rename the column."
                )
            if name in owner:
                raise ValueError(
                    f"column {group.columns[0]!r}: expected names of its own in the model; found a "
                    f"second {name!r} beside that of columns {owner[name]}. Rename the column."
                )
            owner[name] = group.columns


def _owners(frames, shared) -> dict[str, list[tuple[str, ...]]]:
    """Find for every column which tables have the parameters of it in common."""
    having: dict[str, list[str]] = {}
    for name, table in frames.items():
        for column in table.columns:
            having.setdefault(column, []).append(name)
    if shared is not None:
        for column in shared:
            if len(having.get(column, [])) < 2:
                raise ValueError(
                    f"shared: expected columns that several tables have; found {column!r}"
                )
    return {
        column: [tuple(names)]
        if shared is None or column in shared
        else [(name,) for name in names]
        for column, names in having.items()
    }


def _kinds(frames, given: Mapping[str, str]) -> dict[str, str]:
    """Find what is in every column: as given, or by its dtype in all tables that have it."""
    found: dict[str, str] = {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"columns: expected a mapping from names of columns to kinds; found {type_name(given)}"
        )
    for column, kind in given.items():
        check_option(f"columns[{column!r}]", kind, _KINDS)
        if not any(column in table.columns for table in frames.values()):
            raise ValueError(
                f"columns: expected names of columns; found {column!r}, which no table has"
            )
    for name, table in frames.items():
        for column in table.columns:
            own = given.get(column) or _kind_of(name, table[column])
            before = found.setdefault(column, own)
            if {before, own} == {"number", "count"}:
                # Integers in one table and floats in another: missing values make them so.
                found[column] = "number"
            elif before != own:
                raise ValueError(
                    f"{name!r}, column {column!r}: expected a {before}, as in other tables; found "
                    f"a {own}. Say which by `columns`, or rename one."
                )
    return found


def _kind_of(name: str, values: pd.Series) -> str:
    if pd.api.types.is_bool_dtype(values.dtype):
        return "boolean"
    if pd.api.types.is_integer_dtype(values.dtype):
        return "count" if not (values.dropna() < 0).any() else "number"
    if pd.api.types.is_float_dtype(values.dtype):
        return "number"
    if (
        isinstance(values.dtype, pd.CategoricalDtype)
        or pd.api.types.is_string_dtype(values.dtype)
        or values.dtype == object
    ):
        return "category"
    raise ValueError(
        f"{name!r}, column {values.name!r}: expected numbers, booleans, text or categories; found "
        f"dtype {values.dtype}. Turn it into one of these, leave it out, or say what it is by "
        "`columns`"
    )


def _groups(frames, kinds, owners) -> list[_Group]:
    """Group columns of the same kind that the same tables share."""
    groups: dict[tuple, list[str]] = {}
    for column, sharing in owners.items():
        for names in sharing:
            alone = kinds[column] == "category"
            groups.setdefault((kinds[column], names, column if alone else ""), []).append(column)
    found = []
    for (kind, names, _), columns in groups.items():
        categories: list[Any] = []
        if kind == "category":
            own = {name: _plain(without_blanks(frames[name][columns[0]])) for name in names}
            categories = _categories(list(own.values()))
            values = {name: _codes(name, cells, categories) for name, cells in own.items()}
        else:
            values = {
                name: np.ma.stack([_cells(name, frames[name][c], kind) for c in columns], axis=1)
                for name in names
            }
        if kind in ("number", "positive"):
            _check_spread(columns, values)
        alone = len(names) == 1 and len(frames) > 1
        suffix = "" if len(names) == len(frames) else "_" + "_".join(names)
        found.append(_Group(kind, columns, values, categories, alone, suffix))
    return found


def _check_spread(columns, values) -> None:
    every = np.ma.concatenate(list(values.values()))
    for column, least, most in zip(columns, every.min(axis=0), every.max(axis=0), strict=True):
        if least is np.ma.masked or least == most:
            raise ValueError(
                f"column {column!r}: expected values that differ; found "
                f"{'none' if least is np.ma.masked else f'{least} only'}"
            )
        if most - least < 1.0 / LARGEST:
            raise ValueError(
                f"column {column!r}: expected values that differ by {1.0 / LARGEST:g} at least; "
                f"found {least:g} to {most:g}: use another unit"
            )


def _plain(values: pd.Series) -> pd.Series:
    """Write categories that no file could hold, such as intervals, as text."""

    def named(category: Any) -> Any:
        simple = isinstance(category, str | bool | np.bool_ | Number)
        return category if simple else str(category)

    if isinstance(values.dtype, pd.CategoricalDtype):
        return values.cat.rename_categories([named(own) for own in values.cat.categories])
    # Not by `map`, which makes floats of whole numbers where some are missing.
    cells = [named(own) if seen else None for own, seen in zip(values, values.notna(), strict=True)]
    return pd.Series(cells, values.index, dtype=object, name=values.name)


def _categories(columns: Sequence[pd.Series]) -> list[Any]:
    """List the categories of a column in all tables: in their order, or sorted."""
    if all(isinstance(own.dtype, pd.CategoricalDtype) for own in columns):
        return list(dict.fromkeys(c for own in columns for c in own.cat.categories))
    found = {value for own in columns for value in own.dropna()}
    return sorted(found, key=lambda value: (str(type(value)), value))


def _codes(name: str, values: pd.Series, categories: list[Any]) -> np.ma.MaskedArray:
    """Write a column (N,) by the numbers of its categories."""
    if len(categories) < 2:
        raise ValueError(
            f"{name!r}, column {values.name!r}: expected at least two categories; found "
            f"{categories}"
        )
    codes = pd.Categorical(values, categories=categories).codes.astype(np.int64)
    return np.ma.array(np.maximum(codes, 0), mask=codes < 0)


def _cells(name: str, values: pd.Series, kind: str) -> np.ma.MaskedArray:
    """Read a column that is no category (N,), and check it."""
    values = without_blanks(values)
    missing = values.isna().to_numpy(bool)
    try:
        cells: NDArray = values.to_numpy(np.float64, na_value=0.0)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name!r}, column {values.name!r}: expected a {kind}; found {values.dtype} data that "
            "are no numbers"
        ) from error
    right, what = {
        "number": (np.isfinite(cells), "finite numbers"),
        "positive": (np.isfinite(cells) & (cells > 0.0), "finite numbers above zero"),
        "count": (
            np.isfinite(cells) & (cells >= 0.0) & (cells == np.floor(cells)),
            "whole numbers, zero or more",
        ),
        "boolean": ((cells == 0.0) | (cells == 1.0), "True or False"),
    }[kind]
    bad = np.flatnonzero(~right & ~missing)
    if len(bad):
        raise ValueError(
            f"{name!r}, row {values.index[bad[0]]!r}, column {values.name!r}: expected {what}; "
            f"found {cells[bad[0]]:g}"
        )
    cells = np.where(missing, 1.0 if kind == "positive" else 0.0, cells)
    # Of counts given as whole numbers, PyMC keeps 32 bits.
    return np.ma.array(cells.astype(np.int64) if kind == "boolean" else cells, mask=missing)
