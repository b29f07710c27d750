"""What the page's script shows on demand: partners of objects, their rows, match matrices."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.matching import match_probability
from pm_match.matching.draws import PREFIX, read_draws
from pm_match.matching.ordered_pairs import ordered_pairs
from pm_match.report.profiles import ObjectRows

# Partners listed of an object in a domain, if there is room for so many; all together at most.
_PARTNERS, _MOST_PARTNERS = 10, 400_000
# Cells of tables that rows are shown of, and of matrices: beyond, the first columns, and means.
_MOST_VALUES, _MOST_CELLS = 400_000, 1_000_000


def page_data(
    idata: xr.DataTree | xr.Dataset,
    labels: xr.Dataset,
    objects: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    rows: Mapping[str, ObjectRows],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Collect what the script shows, as JSON has it.

    `idata`, `labels`: the draws, and the partition that is reported; `objects`: of their
    `match_summary`; `pairs`: the pairs of assignments whose clusters are of one set; `rows`: of
    `rows_of`; `options`: what summaries are given.
    """
    names = list(dict.fromkeys(objects["domain"]))
    number = {name: k for k, name in enumerate(names)}
    widest = max(1, _MOST_VALUES // max(len(objects), 1))
    domains = []
    for name in names:
        own = objects[objects["domain"] == name]
        columns, told = rows[name].told(widest) if name in rows else (None, None)
        domains.append(
            {
                "title": name,
                "objects": own["object"].astype(str).tolist(),
                "cluster": own["cluster"].tolist(),
                "confidence": _numbers(own["confidence"]),
                "unmatched": _numbers(own["unmatched"]),
                # Numbers of columns are no names: those of two domains are not the same.
                "named": name in rows and not all(own.isdigit() for own in rows[name].names),
                "columns": columns,
                "rows": told,
            }
        )
    # Positions in place of labels, which may be any.
    draws = read_draws(idata, options["group"])
    dims = {draws[name].dims[-1] for pair in pairs for name in pair}
    draws = draws.assign_coords({dim: np.arange(draws.sizes[dim]) for dim in dims})
    listed, matrices = [], []
    top = max(1, min(_PARTNERS, _MOST_PARTNERS // max(_listed(labels, pairs), 1)))
    side = max(1, int(np.sqrt(_MOST_CELLS / max(len(pairs), 1))))
    for k, (a, b) in enumerate(pairs):
        there, chance = _partners(draws, a, b, top, options)
        back, _ = _partners(draws, b, a, top, options)
        one, other = (number[name.removeprefix(PREFIX)] for name in (a, b))
        listed.append({"a": one, "b": other, "chance": round(chance, 4), "ab": there, "ba": back})
        if has_matrices(labels, pairs):
            matrices.append({"pair": k, **_matrix(draws, labels, a, b, side, options)})
    shown = objects.dropna(axis="columns", how="all").rename(
        columns={f"partners_{name}": f"partners in {name}" for name in names}
    )
    cells = [
        _numbers(column) if pd.api.types.is_float_dtype(column) else column.tolist()
        for _, column in shown.assign(object=shown["object"].astype(str)).items()
    ]
    return {
        "domains": domains,
        "pairs": listed,
        "matrices": matrices,
        "table": {
            "columns": list(map(str, shown.columns)),
            "rows": [list(row) for row in zip(*cells, strict=True)],
        },
        "place": [[k, i] for k, own in enumerate(domains) for i in range(len(own["objects"]))],
    }


def has_matrices(labels: xr.Dataset, pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether match matrices are shown, whose objects the page then lists pair by pair."""
    return _listed(labels, pairs) <= _MOST_PARTNERS


def _listed(labels: xr.Dataset, pairs: Sequence[tuple[str, str]]) -> int:
    return sum(labels[a].size + labels[b].size for a, b in pairs)


def packed(value: Any) -> str:
    """Compress text, bytes, or what JSON can hold, into letters that no HTML is made of."""
    if not isinstance(value, bytes):
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        value = text.encode()
    return base64.b64encode(gzip.compress(value, mtime=0)).decode()


def _partners(draws, a, b, top, options) -> tuple[list[list[list[float]]], float]:
    """List the partners of every object of a in b, as pairs of a position and a probability."""
    best = match_probability(draws, a, b, top=top, **options)
    lists: list[list[list[float]]] = [[] for _ in range(draws[a].shape[-1])]
    for i, j, p in best.itertuples(index=False):
        lists[i].append([int(j), round(float(p), 3)])
    return lists, float(best.attrs["chance"])


def _matrix(draws, labels, a, b, side, options) -> dict[str, Any]:
    """Give match probabilities in per cent, ordered by cluster; of many objects, means of runs."""
    orders, edges, means = ordered_pairs(draws, a, b, labels, side, **options)
    return {
        "order": [order.tolist() for order in orders],
        "edges": [edge.tolist() for edge in edges],
        "code": packed(np.round(100 * means).astype(np.uint8).tobytes()),
    }


def _numbers(column: pd.Series) -> list[float | None]:
    """Give numbers of four digits; None where there is none."""
    return [None if x != x else float(f"{x:.4g}") for x in column.astype(float)]
