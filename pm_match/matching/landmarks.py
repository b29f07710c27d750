"""Summaries of runs that have counts with landmarks in place of labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import check_count
from pm_match.matching.draws import PREFIX, full_name

# The group of a DataTree that has the counts, and the attribute of those without a counterpart that
# names the domains among which it was looked for.
GROUP, OTHERS = "landmarks", "others"
_SIZE = "size_"


def landmark_counts(idata: Any, group: str) -> xr.Dataset | None:
    """Return the counts that a DataTree has in place of labels, if it has."""
    counted = group == "posterior" and isinstance(idata, xr.DataTree) and GROUP in idata.children
    return idata.children[GROUP].to_dataset() if counted else None


def match_landmarks(
    idata: Any, counts: xr.Dataset, a: str, b: str, top: int | None
) -> xr.DataArray | pd.DataFrame:
    """Do what `match_probability` does, of the objects of a and the landmarks of b."""
    a, b = (_domain(idata, name) for name in (a, b))
    if f"together_{a}_with_{b}" not in counts:
        raise ValueError(
            f"{a!r} and {b!r}: expected clusters of one set, and landmarks of {b!r}; found none "
            "that were counted together"
        )
    own = _share(counts, f"together_{a}_with_{b}").T.rename("match_probability")
    first, second = (idata["posterior"][_SIZE + name].to_numpy().astype(float) for name in (a, b))
    n = counts[f"together_{b}_with_{b}"].shape[-1] - (a == b)
    shared = (first * (second - (a == b))).sum(axis=-1).mean()
    own.attrs["chance"] = float(shared / max(own.shape[0] * n, 1))
    if top is None:
        return own
    check_count("top", top)
    objects, landmarks = (own[dim].to_numpy() for dim in own.dims)
    values = own.to_numpy()
    if a == b:
        # No object is a partner of itself.
        values = np.where(objects[:, None] == landmarks, 0.0, values)
    order = np.argsort(-values, axis=1, kind="stable")[:, :top]
    probability = np.take_along_axis(values, order, axis=1)
    row, column = np.nonzero(probability)
    table = pd.DataFrame(
        {
            "object": objects[row],
            "partner": landmarks[order[row, column]],
            "probability": probability[row, column],
        }
    )
    table.attrs = own.attrs
    return table


def unmatched_by_landmarks(
    idata: Any, counts: xr.Dataset, a: str, b: str | Sequence[str] | None
) -> xr.DataArray:
    """Do what `unmatched_probability` does."""
    a = _domain(idata, a)
    others = counts[f"unmatched_{a}"].attrs[OTHERS] if f"unmatched_{a}" in counts else []
    # Files make a text of a list of one.
    others = [others] if isinstance(others, str) else list(others)
    asked = others if b is None else [_domain(idata, n) for n in ([b] if isinstance(b, str) else b)]
    if not others or set(asked) != set(others):
        raise ValueError(
            f"b: expected all other domains of its set, {others}, as labels were not recorded; "
            f"found {asked}"
        )
    return _share(counts, f"unmatched_{a}").rename("unmatched_probability")


def _domain(idata: xr.DataTree, name: str) -> str:
    there = idata["posterior"].data_vars
    return full_name(there, name.removeprefix(PREFIX), _SIZE).removeprefix(_SIZE)


def _share(counts: xr.Dataset, name: str) -> xr.DataArray:
    found = counts[name].sum("chain") / counts["n_draws"].sum()
    found.attrs.clear()
    return found
