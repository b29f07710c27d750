"""Labels of networks' rows and columns, as users give them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import sparse

from pm_match.checks import no_such
from pm_match.matching.draws import PREFIX
from pm_match.matching.objects import in_order, objects_of
from pm_match.plots.labels import known_as, names_of


def edges_of(name: str, network: Any) -> sparse.coo_array:
    """Where the edges of a network are."""
    if sparse.issparse(network):
        matrix: Any = network
    else:
        matrix = np.ma.filled(np.ma.asarray(network), 0)
    if matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"network {name!r}: expected a matrix of numbers; found values of dtype "
            f"{matrix.dtype} (of lists of edges, PreparedData.drawable gives matrices)"
        )
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ValueError(
            f"network {name!r}: expected a matrix with rows and columns; found shape {matrix.shape}"
        )
    edges = sparse.csr_array(matrix).tocoo()
    edge = (edges.data != 0) & (edges.data == edges.data)  # NaN is none
    row, column = (place[edge] for place in edges.coords)
    return sparse.coo_array((np.ones(len(row), dtype=bool), (row, column)), shape=edges.shape)


def labels_by_type(
    labels: xr.Dataset | Mapping[str, Any],
    networks: Mapping[str, Any],
    types: Sequence[str] | None,
) -> tuple[dict[str, list[np.ndarray | None]], Sequence[str], dict[str, list[list[str] | None]]]:
    """Label vectors of each network's rows and columns, what those are, and names of few.

    They come in the order of the networks' rows and columns: see `in_order`. Networks with the same
    objects as rows and columns have the same vector twice, and one type.
    """
    types = (types,) if isinstance(types, str) else types
    if types is not None and len(types) not in (1, 2):
        raise ValueError(f"types: expected one name or two; found {list(types)}")
    found: dict[str, list[np.ndarray | None]] = {}
    objects: dict[str, list[list[str] | None]] = {}
    known = {name: known_as(name, labels) for name in networks}
    for name, network in networks.items():
        parts: list[Any]
        if isinstance(labels, xr.Dataset):
            kinds = types_of(known[name], labels, known.values()) if types is None else types
            keys = [f"{PREFIX}{known[name]}_{kind}" for kind in kinds]
            if len(keys) not in (1, 2) or not set(keys) <= set(labels):
                raise ValueError(
                    f"network {name!r}: expected labels {keys or [f'{PREFIX}{name}_<type>']} of "
                    f"one or two types (set types=); found {sorted(map(str, labels))}"
                )
            types, parts = kinds, [labels[key] for key in keys]
        elif name not in labels:
            raise ValueError(
                f"network {name!r}: {no_such('labels', sorted(map(str, labels)), name)}"
            )
        else:
            value = labels[name]
            several = isinstance(value, tuple | list) and any(
                part is None or np.ndim(part) for part in value
            )
            parts = list(value) if several else [value]
        if len(parts) not in (1, 2) or (types is not None and len(parts) != len(types)):
            raise ValueError(
                f"network {name!r}: expected labels of "
                f"{'one or two types' if types is None else f'the types {list(types)}'}; "
                f"found {len(parts)} vectors"
            )
        sides = [
            None if part is None else _in_order(name, network, axis, part)
            for axis, part in enumerate(parts * (2 // len(parts)))
        ]
        objects[name] = [names_of(part) for part in sides]
        vectors = [None if part is None else np.asarray(part) for part in sides]
        row, column = vectors
        if row is not None and column is not None and len(parts) == 1:
            vectors = [row, row if np.array_equal(row, column) else column]
        found[name] = vectors
    if types is None:
        one_mode = all(row is column and row is not None for row, column in found.values())
        types = ("object",) if one_mode else ("row", "column")
    return found, types, objects


def _in_order(name: str, network: Any, axis: int, labels: Any) -> Any:
    """Check the labels of a network's rows, or columns, and put them into their order."""
    side, size = ("row", "column")[axis], network.shape[axis]
    if np.shape(labels) != (size,):
        raise ValueError(
            f"network {name!r}: expected a label for each of its {size} {side}s; "
            f"found shape {np.shape(labels)}"
        )
    where = f"labels of network {name!r}"
    return in_order(labels, objects_of(network, axis), where=where, whose=f"its {side}s")


def types_of(name: str, labels: xr.Dataset, networks: Iterable[str]) -> list[str]:
    """Types of a network's objects, as the names of variables tell them."""
    start = f"{PREFIX}{name}_"
    # One network's name may begin with another's.
    longer = tuple(f"{PREFIX}{other}_" for other in networks if other.startswith(f"{name}_"))
    return [
        str(key).removeprefix(start)
        for key in labels
        if str(key).startswith(start) and not str(key).startswith(longer)
    ]
