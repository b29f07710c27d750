"""What the objects of a cluster have, beside those of their whole domain."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import sparse

from pm_match.matching.draws import PREFIX

# What an object of a network is told by: its largest values.
_STRONGEST = 12


class Feature(NamedTuple):
    """What sets a cluster apart in its domain.

    ``apart`` is signed, and larger the more a feature tells; ``here`` and ``overall`` say what the
    cluster and its domain have, in words.
    """

    name: str
    apart: float
    here: str
    overall: str


class ObjectRows(NamedTuple):
    """What is known of the objects of one assignment: columns of a table, or of a network."""

    names: list[str]
    table: pd.DataFrame | sparse.csr_array

    def told(self, most: int) -> tuple[list[str] | None, list[list[Any]]]:
        """Give every object's row, ready for a page.

        Of a table, the names of at most `most` columns, and their values by object; of a network,
        None, and each object's pairs of a name and a value, the largest first.
        """
        if isinstance(self.table, pd.DataFrame):
            own = self.table.iloc[:, :most]
            columns = [list(map(_plain, own.iloc[:, k])) for k in range(own.shape[1])]
            return self.names[:most], [list(row) for row in zip(*columns, strict=True)]
        rows = []
        for i in range(self.table.shape[0]):
            one = slice(self.table.indptr[i], self.table.indptr[i + 1])
            index, value = self.table.indices[one], self.table.data[one]
            first = np.argsort(-value, kind="stable")[: min(most, _STRONGEST)]
            rows.append([[self.names[index[k]], _plain(value[k])] for k in first])
        return None, rows


def rows_of(labels: xr.Dataset, data: Mapping[str, Any]) -> dict[str, ObjectRows]:
    """Find what is known of the objects of every assignment, by its name without prefix.

    `labels`: one variable for each assignment, with the objects' labels; `data`: tables by the
    names of assignments, or networks, matrices, whose assignments are called
    ``cluster_<network>_<type>``. Raise `ValueError` if a table has not as many rows as labels.
    """
    found: dict[str, ObjectRows] = {}
    for name, own in data.items():
        if f"{PREFIX}{name}" in labels:
            found[name] = _table(own)
            n, n_rows = labels[f"{PREFIX}{name}"].size, len(found[name].table)
            if n != n_rows:
                raise ValueError(
                    f"data: expected a row for each of the {n} objects of {name!r}; found {n_rows}"
                )
            continue
        sides = [str(key) for key in labels if str(key).startswith(f"{PREFIX}{name}_")]
        if np.ndim(own) != 2 and not sparse.issparse(own):
            continue
        values = np.ma.filled(own, 0) if not sparse.issparse(own) else own
        cells = sparse.csr_array(values, dtype=np.float64)
        sides = [key for key in sides if labels[key].size in cells.shape]
        for key, other, table in zip(sides[:2], sides[:2][::-1], (cells, cells.T), strict=False):
            names = list(map(str, _labels(labels[other])))
            if table.shape == (labels[key].size, len(names)):
                found[key.removeprefix(PREFIX)] = ObjectRows(names, sparse.csr_array(table))
    return found


def profile(rows: ObjectRows, members: np.ndarray, most: int) -> list[Feature]:
    r"""Say what sets some objects apart from all: the features that tell most come first.

    Numbers are compared by their means, in standard deviations. Of text, by the share of the
    value that is most in excess. Of networks, by the part that a column has in the relative
    entropy of what the objects have, :math:`m_c \log(m_c / m)`, with means m over all and
    :math:`m_c` over the cluster: neither rare nor common everywhere.

    `members` (n_objects,), booleans.
    """
    if not isinstance(rows.table, pd.DataFrame):
        overall = np.asarray(rows.table.mean(axis=0)).ravel()
        here = np.asarray(rows.table[np.flatnonzero(members)].mean(axis=0)).ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            part = np.where((here > overall) & (overall > 0), here * np.log(here / overall), 0.0)
        best = np.argsort(-part, kind="stable")[:most]
        largest = part[best[0]] if len(best) else 1.0
        return [
            Feature(rows.names[k], part[k] / largest, f"{here[k]:.2g}", f"{overall[k]:.2g}")
            for k in best
            if part[k] > 0
        ]
    features = (_column(name, rows.table.iloc[:, k], members) for k, name in enumerate(rows.names))
    found = [feature for feature in features if feature is not None]
    return sorted(found, key=lambda feature: -abs(feature.apart))[:most]


def digits(value: float) -> str:
    """Write a number with three digits, or all that are before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _column(name: str, column: pd.Series, members: np.ndarray) -> Feature | None:
    """Compare one column of a table."""
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(np.float64, na_value=np.nan)
        own = values[members & np.isfinite(values)]
        seen = values[np.isfinite(values)]
        if not len(own) or not seen.std() > 0:
            return None
        apart = (own.mean() - seen.mean()) / seen.std()
        return Feature(name, float(apart), digits(own.mean()), digits(seen.mean()))
    shares = column.astype(object).value_counts(normalize=True)
    here = column[members].astype(object).value_counts(normalize=True)
    if not len(here) or len(shares) < 2:
        return None
    among = shares.reindex(here.index).to_numpy()
    excess = here.to_numpy() - among
    best = int(np.argmax(excess))
    spread = np.sqrt(among[best] * (1 - among[best]))
    return Feature(
        f"{name}: {here.index[best]}",
        float(excess[best] / spread),
        f"{here.iloc[best]:.0%}",
        f"{among[best]:.0%}",
    )


def _table(own: Any) -> ObjectRows:
    if isinstance(own, xr.DataArray):
        own = own.to_pandas()
    if sparse.issparse(own):
        own = own.toarray()
    if not isinstance(own, pd.DataFrame):
        own = pd.DataFrame(np.ma.filled(np.ma.asarray(own, dtype=np.float64), np.nan))
    return ObjectRows([str(column) for column in own.columns], own)


def _labels(variable: xr.DataArray) -> Sequence[Hashable] | Iterator[int]:
    index = variable.indexes.get(variable.dims[-1])
    return range(variable.size) if index is None else list(index)


def _plain(value: Any) -> Any:
    """Give a cell as JSON has it: a number of five digits, text, or None if it is missing."""
    if (
        value is None
        or value is pd.NA
        or (isinstance(value, float | np.floating) and value != value)
    ):
        return None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.5g}") if np.isfinite(value) else str(value)
    return str(value)
