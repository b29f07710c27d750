"""Labels of objects, as users give them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import check_count, identifier, no_such
from pm_match.matching.draws import PREFIX, by_set, check_labels
from pm_match.matching.objects import in_order, objects_of
from pm_match.plots.canvas import MOST_LABELS, drawn_names
from pm_match.tables.domains import Domain


def labels_by_domain(
    labels: xr.Dataset | Mapping[str, Any], domains: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Find the labels of tables' objects, named as the domain or with ``cluster_`` before.

    They come in the order of the tables' rows: see `in_order`.
    """
    result = {}
    for name, table in domains.items():
        where = f"domain {name!r}"
        key = next((k for k in (f"{PREFIX}{name}", _assignment(labels, name)) if k in labels), None)
        if key is None:
            raise ValueError(f"{where}: {no_such('labels', sorted(map(str, labels)), name)}")
        n, objects = _rows(table)
        if np.shape(labels[key]) != (n,):
            raise ValueError(
                f"{where}: expected a label for each of its {n} objects; "
                f"found shape {np.shape(labels[key])}"
            )
        own = in_order(labels[key], objects, where=f"labels of {key!r}", whose=where)
        result[name] = np.asarray(own)
    return result


def _rows(table: Any) -> tuple[int, pd.Index | None]:
    """Count the rows of a table, or of classes; give their labels, if they have any."""
    if isinstance(table, Domain):
        return table.n_objects, pd.Index(table.objects) if table.labelled else None
    return np.shape(table)[0], objects_of(table)


def _assignment(labels: Collection[Any], name: Any) -> Any:
    """Give the assignment of a domain, if there is one."""
    own = f"{PREFIX}{identifier(str(name))}"
    return own if own in labels else name


def known_as(name: Any, variables: Iterable[Any]) -> str:
    """Give the domain, or network, that a name says: what it is in variables, or its title."""
    own = f"{PREFIX}{name}"
    there = any(str(key) == own or str(key).startswith(f"{own}_") for key in variables)
    return str(name) if there else identifier(str(name))


def labels_by_set(
    labels: xr.Dataset | Mapping[str, Any], var_names: Sequence[str] | None = None
) -> dict[str | None, dict[str, np.ndarray]]:
    """Read labels, whole numbers, by set of clusters and by domain (without ``cluster_``)."""
    check_labels(labels)
    names = list(labels) if var_names is None else list(var_names)
    names = [name if name in labels else _assignment(labels, name) for name in names]
    unknown = [name for name in names if name not in labels]
    if unknown or not names:
        raise ValueError(
            f"labels: expected variables {unknown or 'of at least one domain'}; "
            f"found {sorted(map(str, labels))}"
        )
    if isinstance(labels, xr.Dataset):
        sets = by_set({name: labels[name] for name in names})
    else:
        sets = {None: names}
    found: dict[str | None, dict[str, np.ndarray]] = {}
    for kind, members in sets.items():
        found[kind] = {}
        for name in members:
            vector = np.asarray(labels[name])
            if vector.ndim != 1 or vector.dtype.kind not in "iu" or not vector.size:
                raise ValueError(
                    f"labels of {name!r}: expected a vector of whole numbers, one for each object; "
                    f"found shape {vector.shape} of dtype {vector.dtype}"
                )
            found[kind][str(name).removeprefix(PREFIX)] = np.maximum(vector.astype(np.int64), -1)
    return found


def names_of(variable: Any) -> list[str] | None:
    """Names of objects, if the labels carry them and they are few enough to be read."""
    if not isinstance(variable, xr.DataArray) or variable.size > MOST_LABELS:
        return None
    index = variable.indexes.get(variable.dims[-1])
    return None if index is None else drawn_names(index)


def irrelevant(labels: np.ndarray) -> np.ndarray:
    """Tell which objects are in no cluster: their labels are negative numbers, or none."""
    return ~(labels >= 0) if labels.dtype.kind in "if" else np.zeros(len(labels), dtype=bool)


def by_size(vectors: Iterable[np.ndarray]) -> list[Any]:
    """List the clusters of vectors of labels, the largest first.

    Irrelevant objects, whose label is negative, are no cluster.
    """
    listed = list(vectors)
    pooled = np.concatenate(listed) if listed else np.empty(0, int)
    clusters, sizes = np.unique(pooled[~irrelevant(pooled)], return_counts=True)
    return clusters[np.argsort(-sizes, kind="stable")].tolist()


def largest(found: Mapping[str, np.ndarray], n_clusters: int | None) -> tuple[list[Any], str]:
    """List the clusters to show in the order of their labels, and say what is left out."""
    if n_clusters is not None:
        check_count("n_clusters", n_clusters)
    if not found:
        raise ValueError("domains: expected at least one; found none")
    clusters = by_size(found.values())
    if not clusters:
        raise ValueError("labels: expected clusters to draw; found irrelevant objects only")
    if n_clusters is None or len(clusters) <= n_clusters:
        return sorted(clusters), ""
    return sorted(clusters[:n_clusters]), f" (the {n_clusters} largest of {len(clusters)})"
