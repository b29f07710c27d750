"""Observed networks, checked and brought into one form: a sorted table of cells.

Everything that can be wrong with a network is said here, early and by name (network, cell, what was
expected and found). Memory is linear in what the user stored: matrices that are given sparse, or
as a table, are never made dense.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import scipy.sparse
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import LARGEST, astype_hint, check_option, no_such, plain, type_name

Family = Literal["bernoulli", "poisson", "negative-binomial", "normal"]
FAMILIES = get_args(Family)
# Families of counts, which may have exposures; and those whose parameters are probabilities.
COUNTS = ("poisson", "negative-binomial")
PROBABILITIES = ("bernoulli", "negative-binomial")
ABSENT = ("zero", "unknown")

_ACCEPTED = (
    "a SciPy sparse matrix, a NumPy or masked array, a DataFrame, a DataArray, or a table: a tuple "
    "(index, values), or a DataFrame with `columns` to name its columns"
)
# What each family's values are, in words.
_SUPPORT = {
    "bernoulli": "0 or 1",
    **dict.fromkeys(COUNTS, "whole numbers of at least 0"),
    "normal": f"finite numbers of at most {LARGEST:g} in size",
}


@dataclass(frozen=True, eq=False)
class Network:
    """One network: values at listed cells of a matrix, or of an array with more axes."""

    name: str
    shape: tuple[int, ...]  # number of objects on each axis
    # (n_listed, n_axes): the listed cells: distinct, sorted, and with i <= j if the network is
    # symmetric
    index: NDArray[np.int64]
    values: NDArray[np.float64]  # (n_listed,)
    # What a cell is that is not listed. Zeros are listed only where absent
    # cells are unknown.
    absent: Literal["zero", "unknown"]
    # (n_unknown, n_axes): cells that are unknown although absent cells are zero: sorted, none of
    # them listed
    unknown: NDArray[np.int64]
    # labels of the objects on each axis; a `RangeIndex` where there are none
    labels: tuple[pd.Index, ...]

    @property
    def table(self) -> NDArray[np.float64]:
        """The value of the random variable: index columns, then the value."""
        return np.column_stack([self.index, self.values])


def as_network(
    name: str,
    observed: Any,
    *,
    shape: Sequence[int] | None = None,
    absent: Literal["zero", "unknown"] = "zero",
    family: Family = "bernoulli",
    symmetric: bool = False,
    self_loops: bool = False,
    one_mode: bool = False,
    columns: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    n_axes: int | None = None,
) -> Network:
    """Check the user's network and bring it into one form.

    Parameters
    ----------
    name : str
        Name of the network, for messages.
    observed : sparse matrix, array, masked array, DataFrame, DataArray, tuple or Network
        A SciPy sparse matrix or array, whose absent cells are 0 unless `absent` says otherwise. A
        dense array of two or more axes, masked or not, with labels or not: NaN and masked cells
        are unknown, zeros are known. Or a table of cells: a tuple of an index (an integer array,
        one row for each cell, or a tuple of one vector for each axis) and the values (None for
        ones), or a DataFrame in long form with `columns`.
    shape : sequence of int, optional
        Number of objects on each axis. Matrices must agree with it; tables need it where the last
        objects have no cell.
    absent : {"zero", "unknown"}, default "zero"
        What a cell is that is not listed in a sparse matrix or a table. A stored zero says nothing
        in the first case and is known in the second. Dense data say themselves what is unknown
        (with "unknown" their known cells are listed, zeros too), and a `Network` has its own.
    family : {"bernoulli", "poisson", "negative-binomial", "normal"}
        The values are 0 and 1, or (in two families) whole numbers from 0, or finite numbers.
    symmetric : bool, default False
        Undirected: a matrix is symmetric or has nothing in one of its triangles, and a table lists
        each undirected cell once.
    self_loops : bool, default False
        Whether the diagonal of a one-mode network is data. If not, it must be 0 or unknown.
    one_mode : bool, default False
        Whether both axes are the same objects; `symmetric` and `self_loops` imply it.
    columns : sequence of str, optional
        The columns of a DataFrame in long form: one for each axis, then the value (ones without).
        Whole numbers are positions; other labels are numbered in sorted order.
    labels : sequence, optional
        For each axis, the labels of all its objects, or None: those in a DataFrame in long form
        are looked up in it.
    n_axes : int, optional
        How many of the `columns` are axes. Default: as `shape` says, or all but the last, and two
        at least.

    Returns
    -------
    Network

    Raises
    ------
    TypeError
        If `observed` is nothing of the above, or does not hold real numbers.
    ValueError
        If the axes do not fit, a position or value is not possible, a cell is given twice, or
        nothing is known. The message names the network, the cell, what was expected and found.
    """
    where = f"network {name!r}"
    check_option(f"{where}: family", family, FAMILIES)
    check_option(f"{where}: absent", absent, ABSENT)
    one_mode = one_mode or symmetric or self_loops
    expected = None if shape is None else tuple(int(n) for n in shape)
    if labels is not None and expected is not None and len(labels) != len(expected):
        raise ValueError(f"{where}: expected labels for {len(expected)} axes; found {len(labels)}")
    unknown = None
    if isinstance(observed, Network):
        absent, unknown = observed.absent, observed.unknown
    cells = _read(where, observed, expected, one_mode, columns, labels, n_axes)
    _check_shape(where, cells.shape, expected, one_mode)
    kind = _Kind(where, family, absent, one_mode, symmetric, self_loops)
    if isinstance(cells, _Dense):
        index, values, unknown, absent = _from_dense(kind, cells)
    else:
        index, values = _from_listed(kind, cells)
    if unknown is None:
        unknown = np.empty((0, len(cells.shape)), np.int64)
    elif isinstance(observed, Network):
        if symmetric:
            unknown = np.unique(np.sort(unknown, axis=1), axis=0)
        if one_mode and not self_loops:
            unknown = unknown[unknown[:, 0] != unknown[:, 1]]

    known = (
        len(index) if absent == "unknown" else count_cells(cells.shape, *kind[3:]) - len(unknown)
    )
    if known == 0:
        raise ValueError(
            f"{where}: expected at least one known cell; found none in a network of "
            f"{_by(cells.shape)} objects"
            + (" (its diagonal is not data)" if one_mode and not self_loops else "")
        )
    return Network(name, cells.shape, index, values, absent, unknown, cells.labels)


def cell_exposures(
    exposure: Sequence[NDArray[np.float64] | None], index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the exposures (n,) of cells (n, A): products of their objects', None for ones."""
    found = np.ones(len(index))
    for axis, given in enumerate(exposure):
        if given is not None:
            found *= given[index[:, axis]]
    return found


def degrees_of(network: Network, symmetric: bool) -> list[NDArray[np.float64]]:
    """Give the degrees of the objects on every axis; of a symmetric network, once."""
    degrees = [
        np.bincount(network.index[:, axis], network.values, minlength=n)
        for axis, n in enumerate(network.shape)
    ]
    return [degrees[0] + degrees[1]] if symmetric else degrees


def edges_alone(network: Network) -> Network:
    """Give a network of counts as edges, 1 where there are any."""
    return replace(network, values=(network.values > 0).astype(np.float64))


def cell_numbers(shape: Sequence[int], *indices: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Give cells numbers in lexicographic order, so that one comparison serves all axes.

    `*indices` (n, n_axes): sets of cells. Equal cells get equal numbers, in one set or another.
    """
    if math.prod(shape) < 2**63:
        return [np.ravel_multi_index(tuple(index.T), tuple(shape)) for index in indices]
    # Too many cells for the position in the whole array: rank those that there are.
    _, rank = np.unique(np.concatenate(indices), axis=0, return_inverse=True)
    return np.split(rank.reshape(-1), np.cumsum([len(index) for index in indices])[:-1])


def default_types(n_axes: int) -> tuple[str, ...]:
    """Name the types of objects on the axes of networks where nobody does."""
    return ("row", "column") if n_axes == 2 else tuple(f"axis_{i}" for i in range(n_axes))


def count_cells(
    shape: Sequence[int], one_mode: bool = False, symmetric: bool = False, self_loops: bool = False
) -> int:
    """Count the cells that a network has, known or not."""
    n = shape[0]
    if symmetric:
        return n * (n + 1) // 2 if self_loops else n * (n - 1) // 2
    return n * (n - 1) if one_mode and not self_loops else math.prod(shape)


class _Kind(NamedTuple):
    """What kind of network is expected."""

    where: str
    family: str
    absent: str
    one_mode: bool
    symmetric: bool
    self_loops: bool


@dataclass(frozen=True, eq=False)
class _Listed:
    """Cells as listed by the user."""

    index: NDArray[np.int64]
    values: NDArray[np.float64]
    shape: tuple[int, ...]
    labels: tuple[pd.Index, ...]
    matrix: bool


@dataclass(frozen=True, eq=False)
class _Dense:
    """A whole array, and which of its cells are known."""

    values: NDArray[np.float64]
    known: NDArray[np.bool_]
    labels: tuple[pd.Index, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


# -- reading ---------------------------------------------------------------------------------------


def _read(where, observed, shape, one_mode, columns, labels, n_axes) -> _Listed | _Dense:
    if columns is not None:
        if not isinstance(observed, pd.DataFrame):
            raise TypeError(
                f"{where}: expected a DataFrame in long form with `columns`; "
                f"found {type_name(observed)}"
            )
        return _from_long(where, observed, shape, one_mode, columns, labels, n_axes)
    if isinstance(observed, Network):
        return _Listed(observed.index, observed.values, observed.shape, observed.labels, False)
    if scipy.sparse.issparse(observed):
        return _from_sparse(where, observed)
    if isinstance(observed, tuple):
        return _from_table(where, observed, shape, one_mode)
    if isinstance(observed, pd.DataFrame):
        for label, dtype in zip(observed.columns, observed.dtypes, strict=True):
            if not _is_real(dtype):
                raise TypeError(
                    f"{where}: column {label!r}: expected numbers; found dtype {dtype}"
                    f"{astype_hint(dtype)}. (A DataFrame in long form needs `columns`.)"
                )
        values = observed.to_numpy(dtype=np.float64, na_value=np.nan)
        indexes: Sequence[Any] = (observed.index, observed.columns)
    elif isinstance(observed, xr.DataArray):
        values = observed.to_numpy()
        indexes = [observed.indexes.get(dim) for dim in observed.dims]
    elif isinstance(observed, np.ndarray):
        values, indexes = observed, [None] * observed.ndim
    else:
        raise TypeError(f"{where}: expected {_ACCEPTED}; found {type_name(observed)}")
    _check_real(where, values.dtype)
    labelled = [i for i in indexes if i is not None and not isinstance(i, pd.RangeIndex)]
    if one_mode and len(labelled) == values.ndim == 2:
        rows, cols = labelled
        if len(rows) == len(cols) and not rows.equals(cols):
            first = int(np.flatnonzero(rows != cols)[0])
            raise ValueError(
                f"{where}: expected the same labels of rows and columns in the same order, as both "
                f"axes are the same objects; found {plain(rows[first])!r} and "
                f"{plain(cols[first])!r} at position {first}"
            )
    data = np.asarray(np.ma.getdata(values), dtype=np.float64)
    known = ~(np.ma.getmaskarray(values) | np.isnan(data))
    names = tuple(
        pd.RangeIndex(n) if index is None else index
        for n, index in zip(data.shape, indexes, strict=True)
    )
    return _Dense(np.where(known, data, 0.0), known, names)


def _from_sparse(where, observed) -> _Listed:
    _check_real(where, observed.dtype)
    cells = observed.tocoo()
    # Arrays of any number of axes have `coords`; the older matrices `row` and `col`.
    coords = cells.coords if hasattr(cells, "coords") else (cells.row, cells.col)
    index = np.stack([np.asarray(c, np.int64) for c in coords], axis=1)
    values = np.asarray(cells.data, np.float64)
    return _Listed(index, values, tuple(map(int, cells.shape)), _no_labels(cells.shape), True)


def _from_table(where, table, shape, one_mode) -> _Listed:
    if len(table) != 2:
        raise ValueError(f"{where}: expected a table (index, values); found a {len(table)}-tuple")
    index, values = table
    if isinstance(index, tuple):
        vectors = [np.asarray(vector) for vector in index]
        lengths = [v.shape for v in vectors]
        if any(len(s) != 1 for s in lengths) or len(set(lengths)) > 1:
            raise ValueError(
                f"{where}: expected index vectors of one length; found shapes {lengths}"
            )
        kinds = {v.dtype for v in vectors}
        index = np.stack(vectors, axis=1) if vectors else np.empty((0, 0))
    else:
        index = np.asarray(index)
        kinds = {index.dtype}
    if index.ndim != 2 or index.shape[1] < 2:
        raise ValueError(
            f"{where}: expected an index of shape (cells, axes) with two or more axes, or a tuple "
            f"of index vectors; found shape {index.shape}"
        )
    wrong = [str(dtype) for dtype in kinds if dtype.kind not in "iu"]
    if wrong and len(index):
        raise TypeError(f"{where}: expected whole numbers as positions; found dtype {wrong[0]}")
    index = np.asarray(index, np.int64)
    values = _table_values(where, values, len(index))
    if shape is None:
        shape = _shape_of(where, index, one_mode)
    return _Listed(index, values, shape, _no_labels(shape), False)


def _table_values(where, values, n_cells) -> NDArray[np.float64]:
    if values is None:
        return np.ones(n_cells)
    if np.ma.is_masked(values):
        raise ValueError(
            f"{where}: expected a table of cells with their values; found masked values. Leave the "
            'cell out (with absent="unknown"), or give a dense array'
        )
    values = np.asarray(np.ma.getdata(values))
    _check_real(where, values.dtype)
    if values.shape != (n_cells,):
        raise ValueError(
            f"{where}: expected one value for each of {n_cells} cells; found shape {values.shape}"
        )
    return np.asarray(values, np.float64)


def _shape_of(where, index, one_mode) -> tuple[int, ...]:
    if not len(index):
        raise ValueError(f"{where}: expected a shape with a table that lists no cell; found none")
    last = [int(n) + 1 for n in index.max(axis=0)]
    return tuple([max(last)] * len(last) if one_mode else last)


def _from_long(where, frame, shape, one_mode, columns, labels, n_axes) -> _Listed:
    columns = list(columns)
    absentees = [c for c in columns if c not in frame.columns]
    if absentees:
        raise ValueError(
            f"{where}: {no_such(f'column {absentees[0]!r}', frame.columns, absentees[0])}"
        )
    if n_axes is None:
        # Without a shape two columns can only be axes, and the last of more the value.
        n_axes = len(shape) if shape is not None else max(2, len(columns) - 1)
    if len(columns) not in (n_axes, n_axes + 1):
        raise ValueError(
            f"{where}: expected `columns` to name one column for each of {n_axes} axes, then "
            f"perhaps the value; found {columns}"
        )
    given = [None] * n_axes if labels is None else list(labels)
    if len(given) != n_axes:
        raise ValueError(f"{where}: expected labels for {n_axes} axes; found {len(given)}")
    axes = [frame[column] for column in columns[:n_axes]]
    for axis in axes:
        if axis.isna().any():
            row = plain(frame.index[int(np.argmax(axis.isna()))])
            raise ValueError(
                f"{where}: column {axis.name!r}, row {row!r}: expected a label; found none"
            )
        if axis.dtype.kind in "bfc":
            raise TypeError(
                f"{where}: column {axis.name!r}: expected positions (whole numbers) or labels; "
                f"found dtype {axis.dtype}"
            )
    if one_mode and len({axis.dtype.kind in "iu" for axis in axes}) == 2:
        raise TypeError(
            f"{where}: expected positions, or labels, on both axes, which are the same objects; "
            f"found positions in one of the columns {columns[:n_axes]} and labels in the other"
        )
    positions, known = [], []
    for number, axis in enumerate(axes):
        # Both axes of a one-mode network number the same objects.
        pool = pd.concat(axes) if one_mode else axis
        position, label = _positions(where, axis, pool, given[number])
        if label is not None and shape is not None and len(label) != shape[number]:
            raise ValueError(
                f"{where}: expected labels for all {shape[number]} objects in column "
                f"{axis.name!r}; found {len(label)} different ones. Which objects have no cell? "
                "Give positions instead, or dims whose coords list all labels"
            )
        positions.append(position)
        known.append(label)
    index = np.stack(positions, axis=1)
    values = None
    if len(columns) > n_axes:
        column = frame[columns[-1]]
        if not _is_real(column.dtype):
            raise TypeError(
                f"{where}: column {columns[-1]!r}: expected numbers; found dtype {column.dtype}"
                f"{astype_hint(column.dtype)}"
            )
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    values = _table_values(where, values, len(index))
    if shape is None:
        listed = _shape_of(where, index, one_mode) if len(index) else (0,) * n_axes
        shape = tuple(
            n if label is None else len(label) for n, label in zip(listed, known, strict=True)
        )
    names = tuple(
        pd.RangeIndex(n) if label is None else label for n, label in zip(shape, known, strict=True)
    )
    return _Listed(index, values, shape, names, False)


def _positions(where, column, pool, labels) -> tuple[NDArray[np.int64], pd.Index | None]:
    """Turn labels into positions: by those of all objects if they are given, else sorted."""
    whole = column.dtype.kind in "iu"
    labels = None if labels is None else pd.Index(labels)
    if whole and (labels is None or labels.dtype.kind not in "iu"):
        return column.to_numpy(np.int64), labels
    if labels is None:
        labels = pd.Index(pd.factorize(pool.astype(object), sort=True)[1])
    elif not labels.is_unique:
        twice = plain(labels[labels.duplicated()][0])
        raise ValueError(f"{where}: expected different labels of objects; found {twice!r} twice")
    position = labels.get_indexer(column.astype(object) if not whole else column)
    if (position < 0).any():
        stranger = plain(column.iloc[int(np.argmax(position < 0))])
        raise ValueError(
            f"{where}: expected labels of the {len(labels)} objects in column {column.name!r}; "
            f"found {stranger!r}"
        )
    return position.astype(np.int64), labels


# -- checking --------------------------------------------------------------------------------------


def _check_shape(where, shape, expected, one_mode) -> None:
    if len(shape) < 2:
        raise ValueError(f"{where}: expected two or more axes; found shape {shape}")
    if expected is not None and shape != expected:
        raise ValueError(
            f"{where}: expected {_by(expected)} objects (shape {expected}); found shape {shape}"
        )
    if 0 in shape:
        raise ValueError(
            f"{where}: expected objects on every axis; found none on axis {shape.index(0)} "
            f"(shape {shape})"
        )
    if one_mode and (len(shape) != 2 or shape[0] != shape[1]):
        raise ValueError(
            f"{where}: expected a square matrix, as both axes are the same objects; found shape "
            f"{shape}"
        )


def _from_listed(kind: _Kind, cells: _Listed):
    """Check listed cells; return those that stay, sorted."""
    where, shape = kind.where, cells.shape
    index, values = cells.index, cells.values
    if index.shape[1] != len(shape):
        raise ValueError(
            f"{where}: expected {len(shape)} index columns, one for each axis; "
            f"found {index.shape[1]}"
        )
    for axis, n in enumerate(shape):
        position = index[:, axis]
        bad = (position < 0) | (position >= n)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{where}: expected positions of {n} objects (0 to {n - 1}) on axis {axis}; found "
                f"{position[first]}, in listed cell {first}"
            )
    if kind.symmetric and not cells.matrix:
        index = np.sort(index, axis=1)
    index, values = _distinct(kind, index, values, shape, cells.labels)
    _check_values(kind, index, values, cells.labels)
    # A zero says something only where absent cells are unknown.
    keep = np.ones(len(index), bool) if kind.absent == "unknown" else values != 0
    if kind.one_mode and not kind.self_loops:
        keep &= ~_loops(kind, index, values, cells.labels)
    if not keep.all():
        index, values = index[keep], values[keep]
    if kind.symmetric and cells.matrix:
        index, values = _fold(kind, index, values, shape, cells.labels)
    return index, values


def _from_dense(kind: _Kind, cells: _Dense):
    """Check a dense array; list its nonzero and its unknown cells, or its known ones."""
    where, shape = kind.where, cells.shape
    values, known = cells.values, cells.known
    bad = ~np.isfinite(values) | _outside(kind.family, values)
    if bad.any():
        first = np.argwhere(bad)[:1]
        _check_values(kind, first, values[tuple(first.T)], cells.labels)
    if kind.one_mode and not kind.self_loops:
        position = np.arange(shape[0])[:, None].repeat(2, axis=1)
        _loops(kind, position, np.diagonal(values), cells.labels)
    if kind.symmetric:
        if _is_blank(values.T, known.T):
            pass
        elif _is_blank(values, known):
            values, known = values.T, known.T
        else:
            unlike = (values != values.T) | (known != known.T)
            if unlike.any():
                i, j = np.argwhere(unlike)[0]
                raise _asymmetric(
                    where,
                    cells.labels,
                    (i, j),
                    *(
                        values[c] if known[c] else np.nan  # what the user wrote
                        for c in ((i, j), (j, i))
                    ),
                )
    exists = np.ones(shape, bool)
    if kind.one_mode and not kind.self_loops:
        np.fill_diagonal(exists, False)
    if kind.symmetric:
        exists = np.triu(exists)
    n_known, n_unknown = int((known & exists).sum()), int((~known & exists).sum())
    # Whichever list is shorter: that of the unknown cells or that of the known.
    if kind.absent == "unknown" or n_unknown > n_known:
        index = np.argwhere(known & exists)
        return index, values[tuple(index.T)], None, "unknown"
    index = np.argwhere((values != 0) & exists)
    return index, values[tuple(index.T)], np.argwhere(~known & exists), "zero"


def _is_blank(values, known) -> bool:
    """Whether a matrix has nothing above its diagonal: all known zeros, or all unknown."""
    if np.triu(values, 1).any():
        return False
    unknown = int(np.triu(~known, 1).sum())
    return unknown in (0, len(values) * (len(values) - 1) // 2)


def _distinct(kind, index, values, shape, labels):
    """Sort cells and refuse those that are listed twice."""
    (number,) = cell_numbers(shape, index)
    if (number[1:] > number[:-1]).all():
        return index, values
    order = np.argsort(number, kind="stable")
    number = number[order]
    twice = number[1:] == number[:-1]
    if twice.any():
        cell = index[order[int(np.argmax(twice))]]
        more = int(twice.sum()) - 1
        raise ValueError(
            f"{kind.where}: expected each cell once; found {cell_name(labels, cell)} more than once"
            + (f" (and {more} other repetitions)" if more else "")
            + (
                ", counting (i, j) and (j, i) as one cell: list each once, or leave out "
                "symmetric=True"
                if kind.symmetric
                else ""
            )
        )
    return index[order], values[order]


def _check_values(kind, index, values, labels) -> None:
    bad = ~np.isfinite(values) | _outside(kind.family, values)
    if not bad.any():
        return
    first = int(np.argmax(bad))
    found = f"found {values[first]:g} at cell {cell_name(labels, index[first])}"
    expected = f"{kind.where}: expected {_SUPPORT[kind.family]} (family {kind.family!r})"
    if np.isnan(values[first]):
        found += '. Leave an unknown cell out, with absent="unknown", or give a dense array'
    elif kind.family == "bernoulli" and values[first] > 1 and values[first] % 1 == 0:
        found += ' (counts have family="poisson")'
    raise ValueError(f"{expected}; {found}")


def _outside(family, values):
    if family == "bernoulli":
        return (values != 0) & (values != 1)
    if family in COUNTS:
        return (values < 0) | (values != np.floor(values))
    return np.abs(values) > LARGEST


def _loops(kind, index, values, labels):
    """Find the diagonal's cells, and refuse those that are not zero."""
    loop = index[:, 0] == index[:, 1]
    bad = loop & (values != 0)
    if bad.any():
        first = int(np.argmax(bad))
        label = plain(labels[0][index[first, 0]])
        raise ValueError(
            f"{kind.where}: expected no self-loops; found one ({values[first]:g}) of object "
            f"{label!r}. If the diagonal is data, say self_loops=True"
        )
    return loop


def _fold(kind, index, values, shape, labels):
    """List each undirected cell of a symmetric matrix once."""
    above, below = index[:, 0] < index[:, 1], index[:, 0] > index[:, 1]
    upper, lower = index[above], index[below][:, ::-1]
    if len(upper) and len(lower):
        numbers = cell_numbers(shape, upper, lower)
        order = np.argsort(numbers[1], kind="stable")
        lower, there, value = lower[order], numbers[1][order], values[below][order]
        here = numbers[0]
        if len(here) != len(there) or (here != there).any() or (values[above] != value).any():
            raise _first_asymmetry(kind.where, labels, index, values)
        keep = ~below
        return index[keep], values[keep]
    if len(upper):
        return index, values
    index = np.sort(index, axis=1)
    order = np.argsort(cell_numbers(shape, index)[0], kind="stable")
    return index[order], values[order]


def _first_asymmetry(where, labels, index, values) -> ValueError:
    """Name the first cell (i, j) that is not as (j, i) is."""
    cells = dict(zip(map(tuple, index.tolist()), values.tolist(), strict=True))
    first = next(cell for cell, value in cells.items() if cells.get(cell[::-1]) != value)
    i, j = sorted(first)
    return _asymmetric(where, labels, (i, j), cells.get((i, j)), cells.get((j, i)))


def _asymmetric(where, labels, cell, here, there) -> ValueError:
    here, there = ("nothing" if v is None else f"{v:g}" for v in (here, there))
    return ValueError(
        f"{where}: expected a symmetric matrix, or one with nothing in one of its triangles; found "
        f"{here} at {cell_name(labels, cell)} and {there} at {cell_name(labels, cell[::-1])}"
    )


def _check_real(where, dtype) -> None:
    if dtype.kind not in "biuf":
        raise TypeError(f"{where}: expected real numbers; found dtype {dtype}{astype_hint(dtype)}")


def _is_real(dtype) -> bool:
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype)


def _no_labels(shape) -> tuple[pd.Index, ...]:
    return tuple(pd.RangeIndex(int(n)) for n in shape)


def cell_name(labels, position) -> str:
    """Name a cell by the labels of its objects."""
    names = (plain(label[int(i)]) for label, i in zip(labels, position, strict=True))
    return "(" + ", ".join(map(repr, names)) + ")"


def _by(shape) -> str:
    return " × ".join(map(str, shape))
