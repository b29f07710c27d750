"""Choose the numbers of clusters by the log joint of the best matching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
    """

    n_clusters: dict[str, int]
    found: xr.DataTree
    table: pd.DataFrame


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
    """Climb the score over a grid of numbers from the smallest, of all types and of one at a time.

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
    tried: dict[tuple[int, ...], float] = {}
    best: tuple[tuple[int, ...], xr.DataTree] | None = None

    def value(place: tuple[int, ...]) -> float:
        nonlocal best
        if place not in tried:
            numbers = {t: own[i] for i, (t, own) in zip(place, grid.items(), strict=True)}
            found = pmm.find_matching(
                declare(numbers), starts=starts, random_seed=random_seed, progressbar=False
            )
            tried[place] = score(found, numbers)
            if tried[place] >= max(tried.values()):
                best = place, found
        return tried[place]

    here = (0,) * len(grid)
    value(here)
    moved = True
    sizes = [len(own) for own in grid.values()]
    # All together first: more rows' clusters may be worth their cost only with more columns'.
    directions = [(1,) * len(sizes)]
    for axis in range(len(sizes)):
        directions += [tuple(step * (axis == a) for a in range(len(sizes))) for step in (1, -1)]
    while moved:
        moved = False
        for direction in directions:
            while True:
                to = tuple(i + step for i, step in zip(here, direction, strict=True))
                inside = all(0 <= i < n for i, n in zip(to, sizes, strict=True))
                if not inside or value(to) <= value(here):
                    break
                here, moved = to, True
    assert best is not None
    places = np.array([[own[i] for i, own in zip(p, grid.values(), strict=True)] for p in tried])
    table = pd.DataFrame(places, columns=list(grid)).assign(score=list(tried.values()))
    chosen = dict(
        zip(grid, (own[i] for i, own in zip(best[0], grid.values(), strict=True)), strict=True)
    )
    return Choice(chosen, best[1], table)
