"""Bringing tables to scales on which their columns, and clusters' shapes, compare."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pm_match.checks import check_count
from pm_match.tables.domains import as_domains, as_new_objects


def standardise(
    domains: Mapping[str, Any],
    n_components: int | None = None,
    *,
    like: Mapping[str, Any] | None = None,
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
    like : mapping, optional
        The tables whose means, scales and components are taken, by name: those that a model was
        made of, for new objects of its domains.

    Returns
    -------
    dict of str to DataArray, shape (objects, features)
        With the objects' labels, if they have any, and the features' or (0, 1, ...) the
        components'. Every column has mean 0. Columns have variance 1; or with `n_components`, all
        columns of the table before its reduction have on average. With `like` this holds for its
        tables, not for these. Missing values stay missing.

    Raises
    ------
    TypeError, ValueError
        If a table is not as described, a column is constant, or values are missing and principal
        components are asked for.
    KeyError
        If `like` lacks a domain.

    Examples
    --------
    >>> tables = {"a": pd.DataFrame({"height": [1.5, 1.7, 1.9], "weight": [50.0, 60.0, 70.0]})}
    >>> pmm.standardise(tables)["a"].values.round(2)
    array([[-1.22, -1.22],
           [ 0.  ,  0.  ],
           [ 1.22,  1.22]])
    """
    if n_components is not None:
        check_count("n_components", n_components, 1)
    reference = as_domains(domains if like is None else like)
    strangers = [name for name in domains if name not in reference]
    if strangers:
        raise KeyError(f"like: no domain {strangers[0]!r}; there are {list(reference)}")
    found = {}
    for name in domains:
        table = reference[name]
        values = np.ma.filled(np.ma.asarray(table.values, dtype=float), np.nan)
        middle, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        given, features, own = table, table.features, values
        if like is not None:
            given = as_new_objects(name, domains[name], table.features)
            own = np.ma.filled(np.ma.asarray(given.values, dtype=float), np.nan)
        if n_components is None:
            scaled = (own - middle) / spread  # no column is constant: `as_domains` refuses those
        else:
            unit = np.sqrt(np.mean(spread**2))
            _refuse_missing(name, values)
            left, singular, axes = np.linalg.svd((values - middle) / unit, full_matrices=False)
            kept = min(int(n_components), int((singular > 1e-12 * singular[0]).sum()))
            scaled = left[:, :kept] * singular[:kept]
            if like is not None:
                _refuse_missing(name, own)
                scaled = ((own - middle) / unit) @ axes[:kept].T
            features = np.arange(kept)
        coords = {f"{name}_feature": features}
        if given.labelled:
            # Rows of a plain array stay without labels: as numbers they would count as its own.
            coords[f"{name}_object"] = given.objects
        found[name] = xr.DataArray(
            scaled, dims=(f"{name}_object", f"{name}_feature"), coords=coords
        )
    return found


def _refuse_missing(name: str, values: np.ndarray) -> None:
    if np.isnan(values).any():
        raise ValueError(
            f"domain {name!r}: expected all values for principal components; found "
            f"{int(np.isnan(values).sum())} missing."
        )
