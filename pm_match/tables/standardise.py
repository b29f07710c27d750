"""Bringing tables to scales on which their columns, and clusters' shapes, compare."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pm_match.checks import check_count, no_such
from pm_match.tables.domains import as_domains, as_new_objects

# Rounds of filling missing values in, and what changes them by too little for another.
_ROUNDS, _SETTLED = 200, 1e-6
# Principal components that are kept by default.
_MOST = 10


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
        tables, not for these. Missing values stay missing; components are of tables in which these
        are as the components of the others expect them (probabilistic principal components).

    Raises
    ------
    TypeError, ValueError
        If a table is not as described, or a column is constant.
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
        raise KeyError(f"like: {no_such(f'domain {strangers[0]!r}', reference, strangers[0])}")
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
            components = _Components.of((values - middle) / unit, int(n_components))
            scaled = components.filled((own - middle) / unit) @ components.axes.T
            features = np.arange(len(components.axes))
        coords = {f"{name}_feature": features}
        if given.labelled:
            # Rows of a plain array stay without labels: as numbers they would count as its own.
            coords[f"{name}_object"] = given.objects
        found[name] = xr.DataArray(
            scaled, dims=(f"{name}_object", f"{name}_feature"), coords=coords
        )
    return found


def principal_components(
    domains: Mapping[str, Any],
    n_components: int | None = None,
    *,
    like: Mapping[str, Any] | None = None,
) -> dict[str, xr.DataArray]:
    """Take as many principal components of every table, of variance 1 on average.

    This is what `models.aligned_clusters` makes of its tables.

    Parameters
    ----------
    domains : mapping
        From names to tables, as in `models.projected_clusters`.
    n_components : int, optional
        Of the tables as they are. Default: as many as all tables have of columns that are
        standardised before, at most ten.
    like : mapping, optional
        The tables that a model was made of, for new objects of its domains: theirs are the means,
        scales and components.

    Returns
    -------
    dict of str to DataArray, shape (objects, components)

    Raises
    ------
    TypeError, ValueError, KeyError
        As `standardise`.

    Examples
    --------
    >>> tables = pmm.datasets.iris(random_seed=0)
    >>> new = {"a": tables["a"][:3] + 0.1}
    >>> pmm.principal_components(new, like=tables)["a"].shape
    (3, 2)
    """
    known = domains if like is None else like
    standard, own = known, domains
    if n_components is None:
        standard, own = standardise(known), standardise(domains, like=like)
        n_components = min(_MOST, *(table.shape[1] for table in standard.values()))
    of_known = standardise(standard, n_components)
    least = min(table.shape[1] for table in of_known.values())
    spread = {name: np.sqrt(np.square(x[:, :least]).mean()) for name, x in of_known.items()}
    found = of_known if like is None else standardise(own, n_components, like=standard)
    return {name: table[:, :least] / spread[name] for name, table in found.items()}


class _Components(NamedTuple):
    """Principal components of a table, and what they leave out."""

    axes: NDArray[np.float64]  # (K, M): orthonormal rows
    # (K,): standard deviations of what the components share, without the noise
    lengths: NDArray[np.float64]
    noise: float  # standard deviation of the rest, in each direction

    @classmethod
    def of(cls, x: NDArray[np.float64], n_components: int) -> Self:
        """Find those of a table (N, M) of columns with mean 0, NaN where missing.

        Missing values are filled in as the components tell them, and the components found anew, by
        turns (J. Josse & F. Husson 2012, "Handling missing values in exploratory multivariate data
        analysis methods", section 3).
        """
        full = np.nan_to_num(x)
        found = cls._of_complete(full, n_components)
        for _ in range(_ROUNDS if np.isnan(x).any() else 0):
            before, full = full, found.filled(x)
            found = cls._of_complete(full, n_components)
            if np.abs(full - before).max() < _SETTLED:
                break
        return found

    @classmethod
    def _of_complete(cls, x: NDArray[np.float64], n_components: int) -> Self:
        _, singular, axes = np.linalg.svd(x, full_matrices=False)
        variances = singular**2 / len(x)
        kept = min(n_components, int((singular > 1e-12 * singular[0]).sum()))
        noise = variances[kept:].sum() / max(x.shape[1] - kept, 1)
        return cls(axes[:kept], np.sqrt(np.maximum(variances[:kept] - noise, 0.0)), noise**0.5)

    def filled(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give a table whose missing values are expected given the others of their row.

        Of normal latent factors and noise (M. Tipping & C. Bishop 1999, "Probabilistic principal
        component analysis"); a row with no value is at the origin.
        """
        full, loadings = x.copy(), self.lengths[:, None] * self.axes
        ridge = self.noise * np.eye(len(loadings))
        for row in np.flatnonzero(np.isnan(x).any(axis=1)):
            seen = ~np.isnan(x[row])
            left = np.vstack([loadings[:, seen].T, ridge])
            right = np.append(x[row, seen], np.zeros(len(ridge)))
            full[row, ~seen] = np.linalg.lstsq(left, right)[0] @ loadings[:, ~seen]
        return full
