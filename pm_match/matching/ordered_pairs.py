"""Match probabilities in the order of clusters, as pictures show them."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from pm_match.matching.match_probability import read_pair
from pm_match.matching.pair_counts import apart, together

# Numbers that are held at a time.
_MOST = 2**24


class OrderedPairs(NamedTuple):
    """Match probabilities of runs of objects, which are ordered by cluster."""

    orders: list[NDArray[np.intp]]  # (N,), (M,): the objects of either side
    edges: list[NDArray[np.int64]]  # (P + 1,), (Q + 1,): where runs of these begin, and end
    means: NDArray[np.float64]  # (P, Q): of all pairs of two runs


def ordered_pairs(
    idata: xr.DataTree | xr.Dataset,
    a: str,
    b: str,
    labels: xr.Dataset,
    most: int,
    group: str,
    sample_dims: Sequence[Hashable],
) -> OrderedPairs:
    """Order the objects of two assignments, and average match probabilities over `most` runs.

    Objects are ordered by their `labels`, and within a cluster by how sure their matches are;
    irrelevant ones, whose label is negative, come last. All runs are of one length but the last.
    The matrix of all pairs is never built.
    """
    draws = read_pair(idata, a, b, group, sample_dims, whole=False)
    relevant = [draws.relevant[0], draws.relevant[-1]]
    first, second = apart([draws.labels[0], draws.labels[-1]], relevant)
    if first.itemsize > 2:  # labels may be any numbers
        codes = np.unique(np.append(first, second), return_inverse=True)[1]
        first, second = (
            own.reshape(like.shape)
            for own, like in zip(np.split(codes, [first.size]), (first, second), strict=True)
        )
    rows, columns = (labels[name].to_numpy() for name in (a, b))
    orders = [_order(first, rows, second, columns), _order(second, columns, first, rows)]
    edges = [np.append(np.arange(0, n, -(-n // most)), n) for n in (len(rows), len(columns))]
    return OrderedPairs(orders, edges, _means(first[:, orders[0]], second[:, orders[1]], edges))


def _order(own: NDArray, labels: NDArray, others: NDArray, theirs: NDArray) -> NDArray[np.intp]:
    """Order objects with draws `own` (S, N) by `labels` (N,), then by how sure their matches are.

    `others` (S, M), `theirs` (M,): the draws and labels of those that they are matched with.
    """
    known, n = theirs >= 0, 1 + int(max(own.max(), others.max()))
    codes = np.unique(np.append(labels, theirs), return_inverse=True)[1]
    mine, yours = n * codes[: len(labels)], n * codes[len(labels) :]
    sure = np.zeros(len(labels))
    for here, there in zip(own, others, strict=True):
        alike, found = pd.factorize(np.append(mine + here, yours + there))
        like, partners = np.split(alike, [len(labels)])
        sure += np.bincount(partners[known], minlength=len(found))[like]
    return np.lexsort((-sure, labels, labels < 0))


def _means(first: NDArray, second: NDArray, edges: Sequence[NDArray]) -> NDArray[np.float64]:
    """Average over runs, between `edges`, in what share of draws (S, N), (S, M) labels are equal.

    The equal pairs of two runs are a sum, over labels, of how often either run has each.
    """
    n_draws, sizes = len(first), [np.diff(own) for own in edges]
    if all((own == 1).all() for own in sizes):
        return together(first, second) / n_draws
    n = 1 + int(max(first.max(), second.max()))
    held = [np.bincount(own.ravel(), minlength=n) > 0 for own in (first, second)]
    both = np.flatnonzero(held[0] & held[1])
    runs = [np.repeat(np.arange(len(own)), own) * n for own in sizes]
    total = np.zeros((len(sizes[0]), len(sizes[1])))
    step = max(1, _MOST // (max(total.shape) * max(len(both), 1)))
    for start in range(0, n_draws, step):
        stop = min(start + step, n_draws)
        counts = []
        for own, run, size in zip((first, second), runs, sizes, strict=True):
            found = np.empty((len(size), stop - start, len(both)), np.float32)
            for k in range(start, stop):
                seen = np.bincount(run + own[k], minlength=len(size) * n).reshape(len(size), n)
                found[:, k - start] = seen[:, both]
            counts.append(found.reshape(len(size), -1))
        total += counts[0] @ counts[1].T
    return total / (np.outer(*sizes) * n_draws)
