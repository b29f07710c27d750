"""Clusters of equal values whose scale has gone to zero: their density has no bound."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.matching.set_draws import SetDraws

# Beside the others, what is as small is no scale of data; and so near to a value is no mean but
# one that nothing else holds.
_SMALL, _NEAR = 1e-9, 1e-6


def unbounded(
    idata: Any,
    posterior: xr.Dataset,
    sets: Sequence[SetDraws],
    chains: Sequence[Any],
    sample_dims: Sequence[Hashable],
) -> list[str]:
    """Say which of the `chains` end where a cluster has equal values, and a scale next to zero.

    Scales are what is positive and has a value, or several, for each cluster. Probabilities and
    rates may be as small, whatever the values; but then no other number of the cluster is theirs.
    """
    if not isinstance(idata, xr.DataTree) or "observed_data" not in idata.children:
        return []
    tables = [own for own in idata["observed_data"].data_vars.values() if own.dtype.kind == "f"]
    ends = {
        name: variable.transpose(*sample_dims, ...)[:, -1].to_numpy()  # (chains, clusters, …)
        for name, variable in posterior.data_vars.items()
        if variable.dtype.kind == "f" and set(sample_dims) < set(variable.dims)
    }
    found: dict[int, str] = {}
    for name, last in ends.items():
        if last.size and (last >= 0.0).all():
            least, unit = last.reshape(*last.shape[:2], -1).min(axis=2), np.median(last)
            for chain, k in np.argwhere(least < _SMALL * unit).tolist():
                others = (own for other, own in ends.items() if other != name)
                numbers = [own[chain, k] for own in others if k < own.shape[1]]
                end = (chain + 1) / len(chains)
                where = _equal_values(tables, sets, end, k, numbers, _NEAR * unit)
                if where:
                    found.setdefault(
                        chain, f"{name!r} of cluster {k} is {least[chain, k]:.1g}, as {where}"
                    )
    if not found:
        return []
    said = "; ".join(f"chain {chains[chain]}: {own}" for chain, own in sorted(found.items()))
    return [
        f"{said[0].upper()}{said[1:]}. The density of equal values has no bound there, so that the "
        "highest log joint tells nothing of matchings. Give scales a prior that keeps off zero, "
        "such as InverseGamma or LogNormal."
    ]


def _equal_values(
    tables: Sequence[xr.DataArray],
    sets: Sequence[SetDraws],
    end: float,
    k: int,
    numbers: Iterable[NDArray],
    near: float,
) -> str:
    """Say where objects of cluster k, in the draw at the `end` of a chain, all have one value.

    It has to be one of the `numbers` of the cluster, or of those of a table's columns.
    """
    for draws in sets:
        draw = round(end * draws.n_draws) - 1
        for labels, relevant in zip(draws.labels, draws.relevant, strict=True):
            own = np.asarray(labels[draw]) == k
            own = own if relevant is None else own & np.asarray(relevant[draw], bool)
            for table in tables:
                if own.sum() < 2 or table.shape[:1] != own.shape:
                    continue
                inside = table.to_numpy()[own]
                equal = (inside == inside[0]).all(axis=0)
                for one in numbers:
                    if one.shape in ((), equal.shape):
                        found = inside[0][equal & (np.abs(one - inside[0]) <= near)]
                        if found.size:
                            return f"{len(inside)} values of {table.name!r} are {found[0]:g}"
    return ""
