"""Objects carried from one domain to another through the latent space."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.checks import identifier
from pm_match.matching.draws import (
    PREFIX,
    SAMPLE_DIMS,
    coords_along,
    read_draws,
    sampled,
    variable_of,
)

# A factor whose scale is this much below a projection's largest is one that the domain does not
# use; inverting it would only blow up rounding errors.
_UNUSED_FACTOR = 1e-6


def map_objects(
    idata: xr.DataTree | xr.Dataset,
    x: Any,
    *,
    source: str,
    target: str,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
) -> xr.DataArray:
    r"""Carry objects from one domain to another through the latent space.

    .. math:: \hat z = W_s^{+} (x - a_s) = (W_s^\top W_s)^{-1} W_s^\top (x - a_s), \qquad
              \hat x = a_t + W_t \hat z

    (Iwata, Hirao & Ueda 2016, below figure 4, where there are no intercepts a), averaged over
    draws. It is the map :math:`W_t W_s^{+}` that is averaged, not W: a rotation of the latent
    space, which may differ from draw to draw, cancels in the product.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    x : ndarray, DataFrame or DataArray, shape (n_objects, n_features)
        Objects of the source domain, seen or new, all values present. Labelled columns are
        matched by label with the source's features; those of an array come in their order.
    source, target : str
        Names of the domains, whose projections are the variables ``projection_<name>`` (features
        by factors), and intercepts, if they have any, ``intercept_<name>``. They may be the same:
        then the part of x within the latent space remains.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.

    Returns
    -------
    DataArray, shape (n_objects, n_features of the target)

    Raises
    ------
    KeyError
        If there is no such group or projection; the message lists those that there are.
    ValueError
        If x is not 2-D, its features are not the source's, it holds NaN or infinite values, or
        the two projections differ in their number of factors.

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> idata = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    >>> y = pmm.map_objects(idata, domains["a"][:3], source="a", target="b")
    >>> y.shape
    (3, 20)
    """
    posterior = read_draws(idata, group)
    source, target = (identifier(name.removeprefix(PREFIX)) for name in (source, target))
    w_source, source_features = projection_of(posterior, source, sample_dims)
    w_target, target_features = projection_of(posterior, target, sample_dims)
    if w_source.shape[-1] != w_target.shape[-1]:
        raise ValueError(
            f"expected projections with as many factors; found {w_source.shape[-1]} of "
            f"{source!r} and {w_target.shape[-1]} of {target!r}"
        )
    values, object_dim, objects = _objects_to_map(x, source, source_features)

    # sum_t W_t W_s^+ as one product of (features, draws * factors) matrices.
    inverse = np.linalg.pinv(w_source, rtol=_UNUSED_FACTOR)
    n_draws, n_factors, n_source = inverse.shape
    flat_target = w_target.transpose(1, 0, 2).reshape(-1, n_draws * n_factors)
    mean_map = flat_target @ inverse.reshape(n_draws * n_factors, n_source) / n_draws
    origin = np.einsum("tkm,tm->tk", inverse, _intercepts(posterior, source, w_source, sample_dims))
    mapped = np.einsum("tmk,tk->tm", w_target, origin)
    shift = (_intercepts(posterior, target, w_target, sample_dims) - mapped).mean(axis=0)

    feature_dim = target_features.dims[0]
    return xr.DataArray(
        values @ mean_map.T + shift,
        coords={**objects, **coords_along(target_features, feature_dim)},
        dims=(object_dim, feature_dim),
        name=target,
    )


def projection_of(
    posterior: xr.Dataset, domain: str, sample_dims: Sequence[Hashable]
) -> tuple[np.ndarray, xr.DataArray]:
    """Projections, shape (draws, features, factors), and one of their columns (for its coords)."""
    variable = sampled(
        variable_of(posterior, f"projection_{domain}", "projection_"), sample_dims, 2
    )
    feature_dim = f"{domain}_feature"
    if variable.dims[-1] == feature_dim:
        variable = variable.transpose(..., feature_dim, variable.dims[-2])
    values = variable.to_numpy()
    corner = dict.fromkeys((*sample_dims, variable.dims[-1]), 0)
    return values.reshape(-1, *values.shape[-2:]), variable.isel(corner, drop=True)


def _intercepts(
    posterior: xr.Dataset, domain: str, projections: np.ndarray, sample_dims: Sequence[Hashable]
) -> np.ndarray:
    """Read a domain's intercepts (draws, features) beside its projections; 0 if it has none."""
    name = f"intercept_{domain}"
    if name not in posterior:
        return np.zeros(projections.shape[:2])
    values = sampled(posterior[name], sample_dims, 1).to_numpy()
    return values.reshape(projections.shape[:2])


def _objects_to_map(
    x: Any, source: str, features: xr.DataArray
) -> tuple[np.ndarray, Hashable, dict[Hashable, Any]]:
    """Values in the order of the source's features, the objects' dim and its coordinates."""
    where = f"objects of domain {source!r}"
    columns: Any = None
    object_dim: Hashable = f"{source}_object"
    coords: dict[Hashable, Any] = {}
    if isinstance(x, pd.DataFrame):
        columns, coords = x.columns, {object_dim: x.index.to_numpy()}
    elif isinstance(x, xr.DataArray) and x.ndim == 2:
        columns, object_dim = x.indexes.get(x.dims[1]), x.dims[0]
        coords = coords_along(x, object_dim)
    values = np.ma.filled(np.ma.asarray(x, dtype=np.float64), np.nan)
    expected = features.indexes.get(features.dims[0])
    if values.ndim != 2:
        raise ValueError(
            f"{where}: expected a 2-D table (objects by features); found shape {values.shape}"
        )
    if values.shape[1] != features.sizes[features.dims[0]]:
        raise ValueError(
            f"{where}: expected {features.sizes[features.dims[0]]} features; "
            f"found {values.shape[1]}"
        )
    if columns is not None and expected is not None:
        order = pd.Index(columns).get_indexer(expected) if columns.is_unique else None
        if order is None or (order < 0).any():
            unknown = [label for label in columns if label not in expected]
            raise ValueError(
                f"{where}: expected the features of the domain, each once; found "
                + (f"{unknown[:5]}" if unknown else "one more than once")
            )
        values = values[:, order]
    if not np.isfinite(values).all():
        raise ValueError(f"{where}: expected finite values; found NaN or infinite ones")
    return values, object_dim, coords
