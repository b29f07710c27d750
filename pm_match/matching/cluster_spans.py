"""How many clusters span which domains."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from pm_match.matching.draws import SAMPLE_DIMS, SET
from pm_match.matching.interval_levels import interval_levels
from pm_match.matching.set_draws import SetDraws, read_sets
from pm_match.matching.span_probability import present_domains


def cluster_spans(
    idata: xr.DataTree | xr.Dataset,
    *,
    ci_prob: float | None = None,
    group: str = "posterior",
    sample_dims: Sequence[Hashable] = SAMPLE_DIMS,
    var_names: Sequence[str] | None = None,
) -> pd.DataFrame:
    r"""Count the clusters that hold objects of exactly these domains, for all sets of domains.

    With :math:`D_j^{(t)}` the domains that have a relevant object in cluster j of draw t, the
    number for the set D of domains is :math:`\sum_j I(D_j^{(t)} = D)`; its mean over draws, its
    standard deviation and an interval are given.

    Parameters
    ----------
    idata : DataTree or Dataset
        What `pm_match.sample` returns, or its posterior.
    ci_prob : float, optional
        Probability of the equal-tailed interval. Default: what ArviZ is set to.
    group : str
        The group of the DataTree that holds the draws.
    sample_dims : sequence of hashable
        The dimensions to average over.
    var_names : sequence of str, optional
        Assignment variables. Default: all whose name starts with ``cluster_``.

    Returns
    -------
    DataFrame
        One row for each set of domains that clusters of some draw span, those of the most
        clusters first. A column for each domain (without the prefix ``cluster_``), True if it is in
        the set; then ``mean``, ``sd`` and the interval of the number of clusters, and ``objects``,
        the mean number of objects in them. With several sets of clusters (see `assignment_sets`)
        the rows are labelled by set.

    Raises
    ------
    KeyError
        If there is no such group or variable, or no assignment at all.
    ValueError
        If a variable is not an assignment, or `ci_prob` is not between 0 and 1.

    Examples
    --------
    >>> posterior = xr.Dataset({  # four draws
    ...     "cluster_a": (["chain", "draw", "a"], [[[0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]]),
    ...     "cluster_b": (["chain", "draw", "b"], [[[0, 1], [0, 1], [1, 1], [0, 0]]]),
    ... })
    >>> pmm.cluster_spans(posterior)[["a", "b", "mean", "objects"]]
          a      b  mean  objects
    0  True   True  1.50      4.5
    1  True  False  0.25      0.5
    """
    levels = interval_levels(ci_prob)
    sets = read_sets(idata, var_names, group, sample_dims)
    tables = [_spans(draws, levels) for draws in sets]
    if len(tables) == 1:
        return tables[0]
    domains = [domain for draws in sets for domain in draws.domains]
    # Domains of another set have no objects in a set's clusters.
    tables = [table.reindex(columns=[*domains, *table.columns[-5:]]) for table in tables]
    table = pd.concat(tables, keys=[draws.title or "" for draws in sets], names=[SET, None])
    return table.astype({domain: "boolean" for domain in domains}).fillna(
        {domain: False for domain in domains}
    )


def _spans(draws: SetDraws, levels: np.ndarray) -> pd.DataFrame:
    numbers: dict[bytes, np.ndarray] = {}
    objects: dict[bytes, int] = {}
    flags: dict[bytes, np.ndarray] = {}
    for draw, (labels, sizes) in enumerate(draws):
        present = present_domains(draws, labels, len(sizes))
        found, which = np.unique(present, axis=1, return_inverse=True)
        which = which.reshape(-1)
        count = np.bincount(which, minlength=found.shape[1])
        total = np.bincount(which, weights=sizes, minlength=found.shape[1])
        for i, column in enumerate(found.T):
            key = column.tobytes()
            if key not in numbers:
                numbers[key] = np.zeros(draws.n_draws, dtype=np.int64)
                flags[key], objects[key] = column, 0
            numbers[key][draw] = count[i]
            objects[key] += int(total[i])
    taken = {"mean", "sd", "objects"} & {*draws.domains}
    if taken:
        raise ValueError(f"domains: expected names that no other column has; found {min(taken)!r}")
    low, high = (f"eti{round(100 * (levels[1] - levels[0]))}_{side}" for side in ("lb", "ub"))
    rows = []
    for key, number in numbers.items():
        bounds = np.quantile(number, levels)
        rows.append(
            dict(zip(draws.domains, flags[key].tolist(), strict=True))
            | {"mean": number.mean(), "sd": number.std(), low: bounds[0], high: bounds[1]}
            | {"objects": objects[key] / draws.n_draws}
        )
    table = pd.DataFrame(rows, columns=[*draws.domains, "mean", "sd", low, high, "objects"])
    # The most clusters first; then, so that ties do not hang on the order of draws, by domains.
    order = ["mean", *draws.domains]
    return table.sort_values(order, ascending=False, ignore_index=True)
