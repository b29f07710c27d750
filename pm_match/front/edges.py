"""Networks as people have them: matrices, files and lists of edges, and what their values are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pm_match.checks import check_option, is_count, no_such, warn
from pm_match.front.cells import InputError, is_market, whole_numbers
from pm_match.front.files import NetworkFile, read_network_file
from pm_match.networks.data import (
    FAMILIES,
    Network,
    as_network,
    cell_name,
    default_types,
    edges_alone,
)


def look_at_networks(
    given: Mapping[str, Any], columns: Sequence[str] | None, options: Mapping[str, Any]
) -> tuple[dict[str, Network], dict[str, Any], list[str], bool]:
    """Look at networks: what their values are, and whose rows and columns they have.

    Return `networks`; `options`: of `models.relational_clusters`, with what the data say: `family`,
    `types`, and `symmetric` if the files' headers do; `notes`; whether another family may be better
    for these counts.
    """
    notes: list[str] = []
    options = {name: option for name, option in options.items() if option is not None}
    if isinstance(options.get("types"), str):
        options["types"] = [options["types"]]
    graphs = [own for own in given.values() if is_graph(own)]
    alone = len(options.get("types") or (1,)) == 1
    if graphs and alone and not any(_sides(graph) for graph in graphs):
        undirected = not any(graph.is_directed() for graph in graphs)
        options.setdefault("symmetric" if undirected else "one_mode", True)
    types = options.get("types")
    one_mode = len(types or (1, 2)) == 1 or any(
        options.get(option) for option in ("one_mode", "symmetric", "self_loops")
    )
    n_axes = 2 if one_mode else len(types or (1, 2))
    symmetric = bool(options.get("symmetric"))
    read = {
        name: _named(_read(name, network, columns, n_axes, symmetric, notes), n_axes, one_mode)
        for name, network in given.items()
    }
    headers = {name: own.header for name, own in read.items() if own.header}
    if headers and len(headers) < len(read):
        other = next(name for name in read if name not in headers)
        raise ValueError(
            f"network {other!r}: expected a list of edges, as network {next(iter(headers))!r} is "
            "one; found a matrix"
        )
    if _headers_say_symmetric(list(read.values()), one_mode, options):
        options["symmetric"] = True
    family: Any = options.get("family") or ("poisson" if "exposure" in options else None)
    edges = family == "edges"
    if family is not None:
        check_option("family", family, (*FAMILIES, "edges"))
    if edges:
        for option in {"exposure", "dispersion"} & options.keys():
            raise ValueError(
                f"{option}: expected none with family='edges'; found {options[option]!r}"
            )
        family = "poisson"
    kind = {
        name: options[name] for name in ("absent", "symmetric", "self_loops") if name in options
    }
    networks = {}
    for name, own in read.items():
        with _of_file(own):
            network = as_network(
                name,
                own.cells,
                family=family or "normal",
                one_mode=one_mode,
                columns=list(own.cells.columns) if own.header else None,
                labels=own.labels,
                **kind,
            )
        if own.file is not None and is_market(own.file):  # whose rows and columns count from 1
            labels = tuple(pd.RangeIndex(1, n + 1) for n in network.shape)
            network = replace(network, labels=labels)
        networks[name] = edges_alone(network) if edges else network
    options["family"] = "bernoulli" if edges else family or _family(networks, read)
    counted = not family and options["family"] == "poisson"
    if counted and "dispersion" in options:
        options["family"], counted = "negative-binomial", False
    if edges:
        notes.append("Of counts, it is used only whether there are any (family='edges').")
    is_open = counted and {"density_prior", "noise_prior"}.isdisjoint(options)
    if counted:
        notes.append(
            "Values are counts, of family='poisson'"
            f"{' unless searches find one that describes them better' if is_open else ''}."
        )
    if "symmetric" not in options and (one_mode or not types):
        _warn_of_mirrors(networks, one_mode)
    if not types:
        options["types"] = _types(read, networks, one_mode)
    return networks, options, notes, is_open


def _read(name, network, columns, n_axes, symmetric, notes) -> NetworkFile:
    """Read a network of any form; edges that have no values get them."""
    if isinstance(network, str | PathLike):
        read = read_network_file(Path(network), n_axes)
    elif isinstance(network, pd.DataFrame) and _lists_edges(name, network, columns, n_axes):
        read = _edges(name, network, columns, n_axes)
    elif is_graph(network):
        read = _of_graph(name, network)
    else:
        return NetworkFile(None, network)
    if not read.header:
        return read
    if symmetric:
        read = _undirected(name, read, notes)
    if read.cells.shape[1] > n_axes:
        return read
    ends = list(read.cells.columns)
    counts = read.cells.groupby(ends, sort=False, dropna=False).size()
    twice = int((counts > 1).sum())
    if twice:
        notes.append(f"{name}: edges that are listed several times are counted ({twice}).")
    cells = counts.rename("the value").reset_index().astype({"the value": np.float64})
    return replace(read, cells=cells)


def _undirected(name: str, read: NetworkFile, notes: list[str]) -> NetworkFile:
    """Take edges once that are all listed in both directions; some that are will be refused."""
    first, second, *values = read.cells.columns
    codes, _ = pd.factorize(pd.concat([read.cells[first], read.cells[second]]))
    a, b = codes.reshape(2, -1)
    forth = np.column_stack([a, b, *(pd.factorize(read.cells[own])[0] for own in values)])
    back = forth[:, [1, 0, *range(2, forth.shape[1])]]
    if not _same_rows(forth, back):
        return read
    notes.append(f"{name}: all edges are listed in both directions, and taken once.")
    return replace(read, cells=read.cells[a <= b])


def _same_rows(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays (N, M) have the same rows, in any order."""
    a, b = (own[np.lexsort(own.T)] for own in (one, other))
    return np.array_equal(a, b)


def _warn_of_mirrors(networks: Mapping[str, Network], one_mode: bool) -> None:
    """Warn where every edge of all networks is there in both directions, with one value."""
    for own in networks.values():
        if len(own.shape) != 2 or not own.labels[0].equals(own.labels[1]):
            return
        cells = np.column_stack([own.index, own.values])
        loops = own.index[:, 0] == own.index[:, 1]
        if loops.all() or not _same_rows(cells, cells[:, [1, 0, 2]]):
            return
    taken = "edges have a direction" if one_mode else "rows and columns are different objects"
    warn(
        f"networks: every edge is there in both directions, and counts twice, as if {taken}; if "
        "edges have none, say symmetric=True"
    )


def _named(read: NetworkFile, n_axes: int, one_mode: bool) -> NetworkFile:
    """Say that whole numbers at the ends of edges are names, so that none between them is one."""
    if not read.header or read.labels is not None:
        return read
    cells, labels = read.cells.copy(), []
    ends = list(cells.columns[:n_axes])
    for own in [ends] if one_mode else [[end] for end in ends]:
        pool = pd.concat([cells[end] for end in own]).dropna()
        if read.file is not None:
            pool = whole_numbers(pool)
            cells[own] = cells[own].astype(pool.dtype)
        # Of nullable dtypes, too.
        whole = {"i": np.int64, "u": np.uint64}.get(pool.dtype.kind)
        labels += [pd.Index(np.unique(pool.to_numpy(whole))) if whole else None] * len(own)
    return replace(read, cells=cells, labels=tuple(labels))


def is_graph(value: Any) -> bool:
    """Whether a value is a graph of networkx, or like one."""
    return all(hasattr(value, own) for own in ("nodes", "edges", "is_directed"))


def _sides(graph: Any) -> list[list[Any]]:
    """Give the nodes of both sides, by their attribute "bipartite"; nothing without it."""
    side = dict(graph.nodes(data="bipartite"))
    if not side or None in side.values():
        return []
    return [[node for node, own in side.items() if bool(own) == k] for k in (False, True)]


def _of_graph(name: str, graph: Any) -> NetworkFile:
    """Read a graph: its edges with their attribute "weight", if any has it, and all its nodes."""
    edges = list(graph.edges(data="weight"))
    sides = _sides(graph)
    if sides:
        first = set(sides[0])
        wrong = [(u, v) for u, v, _ in edges if (u in first) == (v in first)]
        if wrong:
            raise ValueError(
                f"network {name!r}: expected edges between the two sides of the graph; found "
                f"{wrong[0]!r}, with both ends on one side"
            )
        edges = [(u, v, w) if u in first else (v, u, w) for u, v, w in edges]
    cells = pd.DataFrame(edges, columns=["row", "column", "the value"])
    cells = cells.astype({"row": object, "column": object})
    labels = tuple(map(_node_labels, sides or [list(graph.nodes)] * 2))
    for end, own in zip(("row", "column"), labels, strict=True):
        whole = own.dtype.kind == "i"
        cells[end] = cells[end].astype(np.int64) if whole else cells[end].map(str)
    if cells["the value"].isna().all():
        cells = cells.drop(columns="the value")
    else:
        cells["the value"] = cells["the value"].fillna(1.0).astype(float)
    return NetworkFile(None, cells, ("row", "column"), labels=labels)


def _node_labels(nodes: list[Any]) -> pd.Index:
    """Give whole numbers, if all nodes are, or text."""
    whole = all(is_count(node, 0) and node < 2**63 for node in nodes)
    return pd.Index(nodes, dtype=np.int64) if whole else pd.Index(list(map(str, nodes)))


def _lists_edges(name, table, columns, n_axes) -> bool:
    if columns is not None or not all(map(pd.api.types.is_numeric_dtype, table.dtypes)):
        return True
    heads = list(table.columns)
    named = all(isinstance(head, str) for head in heads) and table.index.dtype.kind == "i"
    ends = table.dtypes.iloc[:n_axes]
    whole = all(map(pd.api.types.is_integer_dtype, ends))
    if named and whole and len(heads) in (n_axes, n_axes + 1):
        raise ValueError(
            f"network {name!r}: expected columns={heads} for a list of edges, or an array for a "
            "matrix (to_numpy()); found a table of whole numbers, which may be either"
        )
    return False


def _edges(name, table, columns, n_axes) -> NetworkFile:
    """Read a list of edges: the columns of both ends, then perhaps one of values."""
    where = f"network {name!r}"
    chosen = list(table.columns if columns is None else columns)
    for column in chosen:
        if column not in table.columns:
            raise ValueError(f"{where}: {no_such(f'column {column!r}', table.columns, column)}")
    if not n_axes <= len(chosen) <= n_axes + 1:
        raise ValueError(
            f"{where}: expected {n_axes} columns of names, then perhaps one of values; found "
            f"{chosen}. Say which by columns=[…]"
        )
    for column in chosen[:n_axes]:
        ends = table[column]
        # Whole numbers some of which are missing are floats; what is missing is refused by row.
        if pd.api.types.is_float_dtype(ends.dtype) and (ends.dropna() % 1 != 0).any():
            raise TypeError(
                f"{where}: expected names of the ends of edges (text or whole numbers) in "
                f"{chosen[:n_axes]}; found {column!r} of dtype {ends.dtype}. Of tables, a "
                f"mapping says what columns hold: columns={{{column!r}: 'number', …}}, 'ignore' "
                "of those that are not to be used"
            )
    return NetworkFile(None, table[chosen], tuple(map(str, chosen[:n_axes])))


def _headers_say_symmetric(read, one_mode, options) -> bool:
    """Whether the headers of all files say that networks are undirected."""
    folded = [own for own in read if own.symmetric]
    if options.get("symmetric") or not folded:
        return False
    if not one_mode:
        raise InputError(
            f"{folded[0].file}: expected rows and columns that are different objects; found "
            "'symmetric' in the header; say symmetric=True if edges are undirected, between "
            "objects of one type"
        )
    if len(folded) < len(read):
        other = next(own for own in read if not own.symmetric)
        raise InputError(
            f"{other.file}: expected 'symmetric' in the header, as in that of {folded[0].file}; "
            "found none; say symmetric=True if edges are undirected in all files"
        )
    return True


@contextmanager
def _of_file(read: NetworkFile) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if read.file is None:
            raise
        raise InputError(f"{read.file}: {error}") from error


def _types(read, networks, one_mode) -> tuple[str, ...]:
    """Name the types of objects after the columns, unless both ends may be the same objects."""
    if one_mode:
        return ("object",)
    n_axes = len(next(iter(networks.values())).shape)
    unnamed = default_types(n_axes)
    headers = {name: own.header for name, own in read.items() if own.header}
    for name, own in headers.items():
        ends = [set(map(str, labels)) for labels in networks[name].labels]
        both = ends[0] & ends[1]
        if both and n_axes == 2:
            raise ValueError(
                f"network {name!r}: expected different names in {own[0]!r} and {own[1]!r}; found "
                f"{len(both)} in both, such as {min(both)!r}. If these are the same objects, say "
                "types=['object'] (and symmetric=True if edges have no direction); if not, "
                f"types={[str(end) for end in own]!r}"
            )
    found = set(headers.values())
    names = next(iter(found)) if len(found) == 1 else unnamed
    fine = all(name.isidentifier() for name in names) and len(set(names)) == n_axes
    return names if fine else unnamed


def _family(networks: Mapping[str, Network], read: Mapping[str, NetworkFile]) -> str:
    """Choose the family of all values."""
    values = np.concatenate([network.values for network in networks.values()])
    if np.isin(values, (0.0, 1.0)).all():
        return "bernoulli"
    for name, network in networks.items():
        odd = (network.values < 0) | (network.values != np.floor(network.values))
        if not odd.any():
            continue
        first = int(np.argmax(odd))
        cell = cell_name(network.labels, network.index[first])
        with _of_file(read[name]):
            raise ValueError(
                f"network {name!r}: expected edges (0 and 1) or counts; found "
                f"{network.values[first]:g} at cell {cell}. Bring weights to mean 0 and variance "
                "about 1 and say family='normal', or make edges of them (x > 0)"
            )
    return "poisson"
