"""Clusters of equal values whose scale has gone to zero: their density has no bound."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from pm_match.matching.set_draws import SetDraws

# Beside the others, what is as small is no scale of data.
_SMALL = 1e-9


def unbounded(
    idata: Any,
    posterior: xr.Dataset,
    sets: Sequence[SetDraws],
    chains: Sequence[Any],
    sample_dims: Sequence[Hashable],
) -> list[str]:
    """Say which of the `chains` end where a cluster has equal values, and a scale next to zero.

    Scales are what is positive and has a value, or several, for each cluster.
    """
    if not isinstance(idata, xr.DataTree) or "observed_data" not in idata.children:
        return []
    tables = [own for own in idata["observed_data"].data_vars.values() if own.dtype.kind == "f"]
    found: dict[int, str] = {}
    for name, variable in posterior.data_vars.items():
        if variable.dtype.kind != "f" or not set(sample_dims) < set(variable.dims):
            continue
        last = variable.transpose(*sample_dims, ...)[:, -1].to_numpy()  # (chains, clusters, …)
        if last.size and (last >= 0.0).all():
            least = last.reshape(*last.shape[:2], -1).min(axis=2)
            for chain, k in np.argwhere(least < _SMALL * np.median(last)).tolist():
                where = _equal_values(tables, sets, (chain + 1) / len(chains), k)
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
    tables: Sequence[xr.DataArray], sets: Sequence[SetDraws], end: float, k: int
) -> str:
    """Say where objects of cluster k, in the draw at the `end` of a chain, all have one value."""
    for draws in sets:
        draw = round(end * draws.n_draws) - 1
        for labels, relevant in zip(draws.labels, draws.relevant, strict=True):
            own = np.asarray(labels[draw]) == k
            own = own if relevant is None else own & np.asarray(relevant[draw], bool)
            for table in tables:
                if own.sum() < 2 or table.shape[:1] != own.shape:
                    continue
                inside = table.to_numpy()[own].reshape(own.sum(), -1)
                equal = np.flatnonzero((inside == inside[0]).all(axis=0))
                if len(equal):
                    return f"{len(inside)} values of {table.name!r} are {inside[0, equal[0]]:g}"
    return ""
