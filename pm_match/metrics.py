"""How well found clusters agree with true ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["adjusted_rand_index"]


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
        domains means the same cluster.

    Returns
    -------
    float
        At most 1, which means equal partitions; around 0 for random labels.

    Raises
    ------
    TypeError
        If `true` or `found` is no mapping.
    ValueError
        If the domains or their numbers of objects differ, labels are not one-dimensional, or
        there are fewer than two objects.

    References
    ----------
    .. [1] Hubert & Arabie (1985). Comparing partitions. Journal of Classification 2.
    .. [2] Iwata, Hirao & Ueda (2016). Probabilistic latent variable models for unsupervised
       many-to-many object matching. Section on experiments.
    """
    for name, labels in {"true": true, "found": found}.items():
        if not isinstance(labels, Mapping):
            raise TypeError(
                f"{name}: expected a mapping from a domain's name to its objects' labels; "
                f"found an object of type {type(labels).__name__}"
            )
    if set(true) != set(found):
        raise ValueError(
            f"the domains differ: only in true: {sorted(set(true) - set(found))}, "
            f"only in found: {sorted(set(found) - set(true))}"
        )
    pairs = {name: (np.asarray(true[name]), np.asarray(found[name])) for name in true}
    for name, (a, b) in pairs.items():
        if a.ndim != 1 or b.ndim != 1 or a.shape != b.shape:
            raise ValueError(
                f"domain {name!r}: expected one label an object in both; "
                f"found shapes {a.shape} in true and {b.shape} in found"
            )
    n = sum(len(a) for a, _ in pairs.values())
    if n < 2:
        raise ValueError(f"expected at least two objects; found {n}")

    rows, row = np.unique(np.concatenate([a for a, _ in pairs.values()]), return_inverse=True)
    columns, column = np.unique(np.concatenate([b for _, b in pairs.values()]), return_inverse=True)
    # Only occupied cells: both partitions may be all singletons.
    cells = np.unique(row * len(columns) + column, return_counts=True)[1]
    together = _pairs(cells)
    in_true = _pairs(np.bincount(row, minlength=len(rows)))
    in_found = _pairs(np.bincount(column, minlength=len(columns)))
    if in_true == in_found == together:
        return 1.0  # equal partitions, among them the two for which the ratio is 0 / 0
    expected = in_true * in_found / (n * (n - 1) / 2)
    return float((together - expected) / ((in_true + in_found) / 2 - expected))


def _pairs(counts: np.ndarray) -> float:
    """Sum over clusters of the number of pairs of objects within."""
    return float(np.sum(counts * (counts - 1.0) / 2))
