"""The probability that an object is relevant."""

from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.set_draws import read_sets


def relevance_probability(
    idata: xr.DataTree | xr.Dataset,
    *,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Compute the probability that an object is in a cluster at all.

    .. math:: P(r_{an} = 1 \mid X) \approx \frac{1}{S} \sum_{t=1}^{S} r_{an}^{(t)}

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``.

    Returns
    -------
    Dataset
        One variable for each assignment, with its name, shape (n_objects,), dim and coordinates: 1
        for every object of an assignment ``cluster_<name>`` without ``relevance_<name>``.

    Raises
    ------
    KeyError
        If there is no such group or variable, or no assignment at all.
    ValueError
        If a variable is not an assignment, or its relevance does not fit it.

    Examples
    --------
    >>> posterior = xr.Dataset({
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1]]]),
    ...     "relevance_a": (["chain", "draw", "a"], [[[1, 1, 0], [1, 0, 0]]]),
    ... })
    >>> pmm.relevance_probability(posterior)["cluster_a"].values
    array([1. , 0.5, 0. ])
    """
    found: dict[str, xr.DataArray] = {}
    for draws in read_sets(idata, var_names, group, sample_dims):
        shares = [
            np.ones(size) if flags is None else flags.mean(axis=0)
            for flags, size in zip(draws.relevant, draws.sizes, strict=True)
        ]
        found |= draws.split(np.concatenate(shares))
    return xr.Dataset(found)
