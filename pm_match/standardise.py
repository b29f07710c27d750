"""Bringing tables to scales on which their columns, and clusters' shapes, compare."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pm_match.domains import as_domains
from pm_match.models.checks import check_count

__all__ = ["standardise"]


def standardise(
    domains: Mapping[str, Any], n_components: int | None = None
) -> dict[str, xr.DataArray]:
    """Standardise the columns of every table, or reduce tables to principal components.

    Distances between clusters, which matchings rest on, depend on the units of features: columns
    in units of their own (lengths, shares, counts) should be standardised. Columns of one kind
    (pixels, expression of genes) should not, since what varies most says most: keep their leading
    principal components, whose variances stay different.

    Parameters
    ----------
    domains : mapping
        From names to tables, as in `models.projected_clusters`.
    n_components : int, optional
        How many principal components to keep (no more than a table has). Default: columns are
        standardised instead.

    Returns
    -------
    dict of str to DataArray, shape (objects, features)
        With the objects' labels, and the features' or (0, 1, ...) the components'. Every column has
        mean 0. Columns have variance 1; or with `n_components`, all columns of the table before its
        reduction have on average. Missing values stay missing.

    Raises
    ------
    TypeError, ValueError
        If a table is not as described, a column is constant, or values are missing and principal
        components are asked for.
    """
    if n_components is not None:
        check_count("n_components", n_components, 1)
    found = {}
    for name, table in as_domains(domains).items():
        values = np.ma.filled(np.ma.asarray(table.values, dtype=float), np.nan)
        centred = values - np.nanmean(values, axis=0)
        spread = np.nanstd(values, axis=0)
        features = table.features
        if n_components is None:
            scaled = centred / spread  # no column is constant: `as_domains` refuses those
        else:
            if np.isnan(values).any():
                raise ValueError(
                    f"domain {name!r}: principal components need all values, found "
                    f"{int(np.isnan(values).sum())} missing."
                )
            unit = np.sqrt(np.mean(spread**2))
            left, singular, _ = np.linalg.svd(centred / unit, full_matrices=False)
            kept = min(int(n_components), int((singular > 1e-12 * singular[0]).sum()))
            scaled = left[:, :kept] * singular[:kept]
            features = np.arange(kept)
        found[name] = xr.DataArray(
            scaled,
            dims=(f"{name}_object", f"{name}_feature"),
            coords={f"{name}_object": table.objects, f"{name}_feature": features},
        )
    return found
