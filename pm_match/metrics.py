"""How well found clusters agree with true ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pm_match.matching.objects import in_order, objects_of

__all__ = ["adjusted_rand_index", "matching_adjusted_rand_index"]


def adjusted_rand_index(true: Mapping[str, ArrayLike], found: Mapping[str, ArrayLike]) -> float:
    r"""Compute the adjusted Rand index over the objects of all domains together.

    With :math:`n_{ij}` objects in true cluster i and found cluster j, row sums :math:`a_i`,
    column sums :math:`b_j` and n objects in all,

    .. math::

        \mathrm{ARI} = \frac{\sum_{ij} \binom{n_{ij}}{2} - E}
                            {\frac{1}{2} [\sum_i \binom{a_i}{2} + \sum_j \binom{b_j}{2}] - E},
        \qquad E = \sum_i \binom{a_i}{2} \sum_j \binom{b_j}{2} \Big/ \binom{n}{2}.

    Pairs of objects count whether they are of one domain or of two [2]_, so that clusters that
    are right within each domain but never matched score between 0 and 1.

    Parameters
    ----------
    true, found : mapping of str to array_like, shape (n_objects,)
        Cluster labels of each domain's objects, of any type that sorts. The same label in two
        domains means the same cluster. Where both name their objects, these are matched by name,
        in any order.

    Returns
    -------
    float
        At most 1, which means equal partitions; around 0 for random labels.

    Raises
    ------
    TypeError
        If `true` or `found` is not a mapping.
    ValueError
        If the domains or their objects differ, labels are not one-dimensional or some are
        missing, or there are fewer than two objects.

    References
    ----------
    .. [1] Hubert & Arabie (1985). Comparing partitions. Journal of Classification 2.
    .. [2] Iwata, Hirao & Ueda (2016). Probabilistic latent variable models for unsupervised
       many-to-many object matching. Section on experiments.

    Examples
    --------
    >>> true = {"a": [0, 0, 1], "b": [0, 1]}
    >>> pmm.metrics.adjusted_rand_index(true, {"a": [5, 5, 7], "b": [5, 7]})
    1.0
    >>> round(pmm.metrics.adjusted_rand_index(true, {"a": [5, 5, 7], "b": [7, 5]}), 2)
    -0.25
    """
    for name, labels in {"true": true, "found": found}.items():
        if not isinstance(labels, Mapping):
            raise TypeError(
                f"{name}: expected a mapping from a domain's name to its objects' labels; "
                f"found an object of type {type(labels).__name__}"
            )
    true_labels, found_labels = _same("domain", "true", true, "found", found)
    n = sum(map(len, true_labels.values()))
    if n < 2:
        raise ValueError(f"expected at least two objects; found {n}")

    rows, row = np.unique(np.concatenate(list(true_labels.values())), return_inverse=True)
    columns, column = np.unique(np.concatenate(list(found_labels.values())), return_inverse=True)
    # Only occupied cells: both partitions may be all singletons.
    cells = np.unique(row * len(columns) + column, return_counts=True)[1]
    together = _pairs(cells)
    in_true = _pairs(np.bincount(row, minlength=len(rows)))
    in_found = _pairs(np.bincount(column, minlength=len(columns)))
    if in_true == in_found == together:
        return 1.0  # equal partitions, among them the two for which the ratio is 0 / 0
    expected = in_true * in_found / (n * (n - 1) / 2)
    return float((together - expected) / ((in_true + in_found) / 2 - expected))


def matching_adjusted_rand_index(
    true: Mapping[str, ArrayLike] | Iterable[ArrayLike],
    found: Mapping[str, ArrayLike] | Iterable[ArrayLike],
    *,
    true_relevance: Mapping[str, ArrayLike] | Iterable[ArrayLike] | None = None,
    found_relevance: Mapping[str, ArrayLike] | Iterable[ArrayLike] | None = None,
) -> float:
    r"""Compute the matching adjusted Rand index of one type of objects in several networks.

    Only pairs of objects in *different* networks count, so that clusters which are right within
    each network but matched at random score 0. With P such pairs, of which :math:`h_1` are in the
    same cluster by both partitions, :math:`h_2` in different ones by both, :math:`h_3` in the same
    by the found one only and :math:`h_4` by the true one only [1]_ (eq 19-20),

    .. math::

        \mathrm{MARI} = \frac{h_1 + h_2 - \mu}{P - \mu}, \qquad
        \mu = \frac{(h_1 + h_3) (h_1 + h_4) + (h_2 + h_3) (h_2 + h_4)}{P}.

    With more than two networks the pairs of all pairs of networks are pooled: :math:`h_1, …, h_4`
    and P are sums over pairs of networks. Irrelevant objects, of all networks together, count as
    one cluster, in either partition.

    The denominator is 0 only if both partitions put all pairs together or both put all apart.
    Then every pair agrees, and the index is 1.

    Time and memory grow with the number of objects, not of pairs.

    Parameters
    ----------
    true, found : mapping of str to array_like, or sequence of array_like; shapes (n_objects,)
        Cluster labels of each network's objects, of any type that sorts. The same label in two
        networks means the same cluster. Objects with negative labels are irrelevant. Where both
        name their objects, these are matched by name, in any order.
    true_relevance, found_relevance : as `true` and `found`, optional
        0 (or False) for irrelevant objects, whose labels mean nothing, and 1 for the others.

    Returns
    -------
    float
        Between -1 and 1, which means that all pairs agree; around 0 for random matchings.

    Raises
    ------
    TypeError
        If the arguments are neither all mappings nor all sequences.
    ValueError
        If the networks or their objects differ, labels are not one-dimensional or some are
        missing, relevance is neither 0 nor 1, or fewer than two networks have objects.

    References
    ----------
    .. [1] Iwata & Ishiguro (2017). Robust unsupervised cluster matching for network data. Data
       Mining and Knowledge Discovery 31.

    Examples
    --------
    >>> from pm_match.metrics import matching_adjusted_rand_index
    >>> matching_adjusted_rand_index([[0, 0, 1], [0, 1]], [[5, 5, 7], [5, 7]])
    1.0
    >>> matching_adjusted_rand_index([[0, 0, 1], [0, 1]], [[5, 5, 7], [7, 5]])
    -1.0
    """
    if isinstance(true, Mapping) is not isinstance(found, Mapping):
        raise TypeError("true, found: expected two mappings or two sequences; found one of each")
    true_labels, found_labels = _same("network", "true", true, "found", found)
    size = np.array([len(labels) for labels in true_labels.values()])
    if np.count_nonzero(size) < 2:
        raise ValueError(
            f"expected at least two networks with objects, whose pairs are compared; "
            f"found numbers of objects {size.tolist()}"
        )
    network = np.repeat(np.arange(len(size)), size)
    row = _codes("true", true_labels, true_relevance)
    column = _codes("found", found_labels, found_relevance)

    n_pairs = _pairs_between(network, np.zeros_like(network))
    both = _pairs_between(network, row * (int(column.max()) + 1) + column)
    same_true = _pairs_between(network, row)
    same_found = _pairs_between(network, column)
    # Times P, all of it is whole numbers, which Python keeps exact whatever their size.
    agree = n_pairs - same_true - same_found + 2 * both
    chance = same_true * same_found + (n_pairs - same_true) * (n_pairs - same_found)
    if chance == n_pairs**2:
        return 1.0
    return (agree * n_pairs - chance) / (n_pairs**2 - chance)


Vectors = dict[Hashable, np.ndarray]


def _by_name(kind: str, name: str, labels: Any) -> dict[Hashable, Any]:
    """Label vectors by the name of what they are of, or by its place in a sequence."""
    if isinstance(labels, Mapping):
        vectors = dict(labels.items())
    elif isinstance(labels, Iterable) and not isinstance(labels, str):
        vectors = dict(enumerate(labels))
    else:
        raise TypeError(
            f"{name}: expected a mapping or a sequence with the labels of each {kind}'s objects; "
            f"found an object of type {type(labels).__name__}"
        )
    for key, vector in vectors.items():
        if np.ndim(vector) != 1:
            raise ValueError(
                f"{name}, {kind} {key!r}: expected one label for each object; found shape "
                f"{np.shape(vector)}"
            )
        values = np.ma.asarray(vector)
        missing = np.flatnonzero(np.ma.getmaskarray(values) | pd.isna(values.data))
        if len(missing):
            raise ValueError(
                f"{name}, {kind} {key!r}: expected no missing values; found {len(missing)}, the "
                f"first at position {missing[0]}"
            )
    return vectors


def _domain(key: Hashable) -> Hashable:
    return key.removeprefix("cluster_") if isinstance(key, str) else key


def _same(
    kind: str, name: str, labels: Any, other_name: str, other: Any
) -> tuple[Vectors, Vectors]:
    """Label vectors of two partitions of the same objects, in one order."""
    one, two = _by_name(kind, name, labels), _by_name(kind, other_name, other)
    if set(one) != set(two):
        # What is known is called as domains are, what is found as their assignments.
        short = [{_domain(key): own for key, own in labels.items()} for labels in (one, two)]
        if set(short[0]) == set(short[1]):
            one, two = short
    if set(one) != set(two):
        raise ValueError(
            f"expected the same {kind}s in {name} and {other_name}; found {list(one)} and "
            f"{list(two)}"
        )
    aligned: Vectors = {}
    for key, vector in one.items():
        where = f"{kind} {key!r}"
        if len(vector) != len(two[key]):
            raise ValueError(
                f"{where}: expected as many objects in both; "
                f"found {len(vector)} in {name} and {len(two[key])} in {other_name}"
            )
        where = f"{where} of {other_name}"
        own = in_order(two[key], objects_of(vector), where=where, whose=f"{name!r}")
        aligned[key] = np.asarray(own)
    return {key: np.asarray(vector) for key, vector in one.items()}, aligned


def _codes(name: str, labels: Mapping[Hashable, np.ndarray], relevance: Any) -> np.ndarray:
    """Give each cluster of all networks' objects a number, and the irrelevant ones one more."""
    pooled = np.concatenate(list(labels.values()))
    codes = np.unique(pooled, return_inverse=True)[1].reshape(-1)
    irrelevant = pooled < 0 if pooled.dtype.kind in "if" else np.zeros(len(pooled), dtype=bool)
    if relevance is not None:
        argument = f"{name}_relevance"
        _, flags = _same("network", name, labels, argument, relevance)
        for key, flag in flags.items():
            strange = flag[~np.isin(flag, (0, 1))]
            if len(strange):
                raise ValueError(
                    f"{argument}, network {key!r}: expected only 0 and 1; found {strange[0]}"
                )
        irrelevant |= np.concatenate(list(flags.values())) == 0
    codes[irrelevant] = codes.max() + 1
    return codes


def _pairs_between(network: np.ndarray, cluster: np.ndarray) -> int:
    """Count the pairs of objects in different networks that share a cluster.

    With n_dj objects of network d in cluster j, it is the sum over j of the products of two
    networks' counts, Σ_{d<e} n_dj n_ej = ((Σ_d n_dj)² - Σ_d n_dj²) / 2.
    """
    clusters = np.unique(cluster, return_inverse=True)[1].reshape(-1)
    of_all = np.bincount(clusters)
    # Only occupied cells: all objects may be alone in their cluster.
    of_one = np.unique(clusters * (int(network.max()) + 1) + network, return_counts=True)[1]
    return (_squares(of_all) - _squares(of_one)) // 2


def _squares(counts: np.ndarray) -> int:
    # Up to the square of the number of objects: exact in 64 bits for 3 thousand million of them.
    return int(np.sum(counts.astype(np.int64) ** 2))


def _pairs(counts: np.ndarray) -> float:
    """Sum over clusters of the number of pairs of objects within."""
    return float(np.sum(counts * (counts - 1.0) / 2))
