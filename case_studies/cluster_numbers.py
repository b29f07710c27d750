"""Choose the numbers of clusters by the log joint, or combine the searches with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from scipy.special import gammaln

import pm_match as pmm


@dataclass(frozen=True, eq=False)
class Choice:
    """Numbers of clusters, the matching found with them, and all that were tried.

    Attributes
    ----------
    n_clusters : dict of str to int
        The number for each type of objects.
    found : DataTree
        From `pm_match.find_matching`.
    table : DataFrame
        A row for each model that was tried, in that order: the numbers by type, and the `score`.
    searches : Dataset
        What every search of every model found: labels and relevance (search, objects), and the rest
        of group `starts`.
    """

    n_clusters: dict[str, int]
    found: xr.DataTree
    table: pd.DataFrame
    searches: xr.Dataset

    def consensus(self, var_names: Sequence[str] | None = None) -> xr.Dataset:
        """Estimate what the searches of all models have in common.

        Where the log joints of models with other numbers of clusters, and of searches, are nearly
        tied, the best of them is as good as any. What they have in common is not: the partition
        with the greatest expected adjusted Rand index, all searches equally probable (see
        `pmm.partition_estimate`).

        Parameters
        ----------
        var_names : sequence of str, optional
            Assignment variables. Default: all.

        Returns
        -------
        Dataset
            As of `pm_match.partition_estimate`.
        """
        return pmm.partition_estimate(
            self.searches,
            loss="ari",
            sample_dims=("search",),
            var_names=var_names,
            progressbar=False,
        )


def score(found: xr.DataTree, n_clusters: Mapping[str, int]) -> float:
    r"""Log joint of data and partitions: of clusters without names.

    With K equally probable clusters, of which k hold objects, :math:`K! / (K - k)!` labellings are
    one partition. Without this factor larger numbers would pay for names that mean nothing. With
    all else integrated out, this is the integrated complete-data likelihood (Biernacki, Celeux &
    Govaert 2000), exact rather than approximated by BIC.

    Parameters
    ----------
    found : DataTree
        From `pm_match.find_matching`, of a model with uniform weights.
    n_clusters : mapping of str to int
        The number for each type: ``cluster_<network>_<type>`` are its assignments.
    """
    starts = found["starts"]
    best = starts.isel(start=int(starts["log_joint"].argmax("start")))
    total = float(best["log_joint"])
    for t, size in n_clusters.items():
        own = [
            best[name].to_numpy()
            for name in map(str, best.data_vars)
            if name.startswith("cluster_") and name.endswith(f"_{t}")
        ]
        if not own:
            raise ValueError(f"n_clusters: expected types of the model's objects; found {t!r}")
        labels = np.unique(np.concatenate(own))
        total += gammaln(size + 1) - gammaln(size - np.sum(labels >= 0) + 1)
    return total


def choose(
    declare: Callable[[dict[str, int]], pm.Model],
    candidates: Mapping[str, Sequence[int]],
    *,
    starts: int = 4,
    random_seed: int = 0,
) -> Choice:
    """Search with all combinations of numbers; take those with the highest score.

    Parameters
    ----------
    declare : callable
        From the numbers of clusters by type to a model with uniform weights.
    candidates : mapping of str to sequence of int
        For each type, the numbers to choose from.
    starts : int, default 4
        Searches of each model. Their noise is the score's: with few starts, large numbers of
        clusters fall short of their best more often than small ones.
    random_seed : int, default 0

    Returns
    -------
    Choice

    Raises
    ------
    ValueError
        If a type has no candidates, or one that is no positive number.
    """
    grid = {t: sorted(set(map(int, own))) for t, own in candidates.items()}
    for t, own in grid.items():
        if not own or own[0] < 1:
            raise ValueError(
                f"candidates: expected positive numbers of clusters of {t!r}; "
                f"found {list(candidates[t])}"
            )
    tried: list[tuple[dict[str, int], xr.DataTree, float]] = []
    for chosen in product(*grid.values()):
        numbers = dict(zip(grid, chosen, strict=True))
        found = pmm.find_matching(
            declare(numbers), starts=starts, random_seed=random_seed, progressbar=False
        )
        tried.append((numbers, found, score(found, numbers)))
    numbers, found, _ = max(tried, key=itemgetter(2))
    searches = xr.concat(
        [
            own["starts"].to_dataset().drop_dims("other_start").drop_vars("start")
            for _, own, _ in tried
        ],
        "start",
    ).rename(start="search")
    table = pd.DataFrame([own | {"score": value} for own, _, value in tried])
    return Choice(numbers, found, table, searches)
