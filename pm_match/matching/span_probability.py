"""The probability that an object's cluster spans given domains."""

from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS
from pm_match.matching.set_draws import SetDraws, full_names, read_one_set, set_of


def span_probability(
    idata: xr.DataTree | xr.Dataset,
    domains: Sequence[str],
    *,
    exactly: bool = False,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> xr.Dataset:
    r"""Compute the probability that an object's cluster spans given domains.

    With :math:`D_j` the domains that have a relevant object in cluster j, it is

    .. math:: P(r_{an} = 1, D_{s_{an}} \supseteq \text{domains} \mid X),

    or, `exactly`, with equality. The cluster of an irrelevant object (r = 0) spans nothing.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    domains : sequence of str
        Assignment variables, such as ``["cluster_upright", "cluster_half"]``.
    exactly : bool, default False
        Whether the cluster may hold objects of these domains only.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.
    var_names : sequence of str, optional
        The assignment variables that are looked at, `domains` and others. Default: all whose
        clusters are of their set.

    Returns
    -------
    Dataset
        One variable for each assignment, shape (n_objects,), with its name, dim and coordinates.

    Raises
    ------
    KeyError
        If there is no such group or variable.
    ValueError
        If no domain is given, a variable is not an assignment, or clusters are of different sets.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> pmm.span_probability(posterior, ["a", "b"])["cluster_a"].values
    array([0.75, 0.75, 1.  ])
    """
    wanted = full_names(idata, [domains] if isinstance(domains, str) else domains, group)
    if not wanted:
        raise ValueError("domains: expected at least one assignment variable; found none")
    names = set_of(idata, wanted[0], group, sample_dims) if var_names is None else list(var_names)
    draws = read_one_set(idata, [*names, *wanted], group, sample_dims)
    inside = np.isin(draws.names, wanted)
    spans = np.zeros(len(draws.domain_of), dtype=np.int64)
    for labels, sizes in draws:
        present = present_domains(draws, labels, len(sizes))
        right = (present == inside[:, None]).all(axis=0) if exactly else present[inside].all(axis=0)
        # One entry more, which the irrelevant objects' label -1 finds at the end.
        spans += np.append(right, False)[labels]
    return xr.Dataset(draws.split(spans / draws.n_draws))


def present_domains(draws: SetDraws, labels: np.ndarray, n_clusters: int) -> np.ndarray:
    """Which domains have an object in which cluster of a draw, shape (n_domains, n_clusters)."""
    present = np.zeros((len(draws.sizes), n_clusters), dtype=bool)
    relevant = labels >= 0
    present[draws.domain_of[relevant], labels[relevant]] = True
    return present
