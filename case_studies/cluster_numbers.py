"""Choose the numbers of clusters by the log joint, or combine searches with all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
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
        From `pm_match.find_matching`, with three times as many starts.
    table : DataFrame
        A row for each model that was tried, in that order: the numbers by type, and the `score` of
        its best search.
    searches : Dataset
        What `starts` searches of every model found: labels and relevance (search, objects), the
        `score` (search,), and the rest of group `starts`.
    """

    n_clusters: dict[str, int]
    found: xr.DataTree
    table: pd.DataFrame
    searches: xr.Dataset

    def consensus(self, var_names: Sequence[str]) -> xr.Dataset:
        """Estimate what those searches, of all models, have in common that agree with the best.

        Where scores are nearly tied, the best matching errs in its own way, as every other does.
        What many have in common is right more often; but where most searches end in the same wrong
        matching, the score tells. So it is the partition with the greatest expected adjusted Rand
        index (see `pmm.partition_estimate`) to the half of the searches that agree most with the
        best, by the same index. Of these n, the best counts n times, the next n - 1 times, and so
        on.

        Parameters
        ----------
        var_names : sequence of str
            Assignment variables, of one type of objects.

        Returns
        -------
        Dataset
            As of `pm_match.partition_estimate`.
        """
        order = np.argsort(-self.searches["score"].to_numpy(), kind="stable")
        searches = self.searches.isel(search=order)
        labels = [
            {name: searches[name].to_numpy()[number] for name in var_names}
            for number in range(len(order))
        ]
        agreement = [pmm.metrics.adjusted_rand_index(labels[0], own) for own in labels]
        n = (len(order) + 1) // 2
        half = np.sort(np.argsort(-np.array(agreement), kind="stable")[:n])
        return pmm.partition_estimate(
            searches.isel(search=np.repeat(half, np.arange(n, 0, -1))),
            loss="ari",
            sample_dims=("search",),
            var_names=list(var_names),
            progressbar=False,
        )


def score(starts: xr.Dataset, n_clusters: Mapping[str, int]) -> NDArray[np.float64]:
    r"""Compute the log joint of data and partitions, of clusters without names, search by search.

    With K equally probable clusters, of which k hold objects, :math:`K! / (K - k)!` labellings are
    one partition. Without this factor larger numbers would pay for names that mean nothing. With
    all else integrated out, this is the integrated complete-data likelihood (Biernacki, Celeux &
    Govaert 2000), exact rather than approximated by BIC.

    Parameters
    ----------
    starts : Dataset
        The group of `pm_match.find_matching`, of a model with uniform weights.
    n_clusters : mapping of str to int
        The number for each type: ``cluster_<network>_<type>`` are its assignments.

    Returns
    -------
    ndarray, shape (start,)
    """
    total = starts["log_joint"].to_numpy().copy()
    for t, size in n_clusters.items():
        own = [
            starts[name].to_numpy()
            for name in map(str, starts.data_vars)
            if name.startswith("cluster_") and name.endswith(f"_{t}")
        ]
        if not own:
            raise ValueError(f"n_clusters: expected types of the model's objects; found {t!r}")
        for number, labels in enumerate(np.concatenate(own, axis=1)):
            used = np.unique(labels[labels >= 0]).size
            total[number] += gammaln(size + 1) - gammaln(size - used + 1)
    return total


def choose(
    declare: Callable[[dict[str, int]], pm.Model],
    candidates: Mapping[str, Sequence[int]],
    *,
    starts: int = 4,
    random_seed: int = 0,
) -> Choice:
    """Search with all combinations of numbers; take those with the highest score.

    With these are three times as many searches, as with few the best ones may all be wrong. The
    best `starts` of them count, so that of no model there are more than of the others.

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
    combinations = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]

    def search(numbers: dict[str, int], n_starts: int) -> tuple[xr.DataTree, xr.Dataset]:
        found = pmm.find_matching(
            declare(numbers), starts=n_starts, random_seed=random_seed, progressbar=False
        )
        ends = found["starts"].to_dataset().drop_dims("other_start").drop_vars("start")
        return found, ends.assign(score=("start", score(ends, numbers)))

    searches = [search(numbers, starts)[1] for numbers in combinations]
    best = int(np.argmax([own["score"].max() for own in searches]))
    # With the same seed, the first of them are those that there were.
    found, ends = search(combinations[best], 3 * starts)
    kept = np.argsort(-ends["score"].to_numpy(), kind="stable")[:starts]
    searches[best] = ends.isel(start=kept)
    table = pd.DataFrame(combinations).assign(score=[float(own["score"].max()) for own in searches])
    return Choice(
        combinations[best], found, table, xr.concat(searches, "start").rename(start="search")
    )
