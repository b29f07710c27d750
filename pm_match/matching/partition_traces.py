"""Numbers that say of each draw's partition what no relabelling changes."""

from __future__ import annotations

import numpy as np

from pm_match.matching.contingency import contingency
from pm_match.matching.set_draws import SetDraws


def partition_traces(draws: SetDraws, reference: np.ndarray) -> dict[str, np.ndarray]:
    """Trace occupied clusters, entropy of their sizes, and distance from a partition.

    Parameters
    ----------
    draws : SetDraws
    reference : array, shape (objects of all,)
        Labels 0, 1, … of the partition that distances are from, -1 for irrelevant objects.

    Returns
    -------
    dict of str to array, shape (n_draws,)
        The entropy is that of a relevant object's cluster, in nats; the distance the variation of
        information (see `variation_of_information`).
    """
    occupied, entropy, distance = (np.empty(draws.n_draws) for _ in range(3))
    for draw, (labels, sizes) in enumerate(draws):
        occupied[draw] = len(sizes)
        # In order of size, or rounding would depend on how clusters are numbered: ranks, and with
        # them R-hat, see any difference.
        share = np.sort(sizes) / max(sizes.sum(), 1)
        entropy[draw] = -(share * np.log(share)).sum()
        distance[draw] = variation_of_information(labels, reference)
    return {
        "occupied clusters": occupied,
        "entropy of sizes": entropy,
        "distance from estimate": distance,
    }


def variation_of_information(a: np.ndarray, b: np.ndarray) -> float:
    r"""Compute the variation of information of two partitions, in nats.

    .. math:: \frac{1}{N} \Big(\sum_j n_j \log n_j + \sum_k m_k \log m_k
              - 2 \sum_{jk} n_{jk} \log n_{jk}\Big),

    with n and m the sizes of their clusters and :math:`n_{jk}` of the intersections (M. Meilă 2007,
    "Comparing clusterings", eq. 16). An irrelevant object (label -1) is a cluster by itself, and
    adds nothing: 1 log 1 = 0.
    """
    both = (a >= 0) & (b >= 0)
    cells = contingency(a[both], b[both]).number
    sizes = np.bincount(a[a >= 0]), np.bincount(b[b >= 0])
    total = sum(_n_log_n(n) for n in sizes) - 2 * _n_log_n(cells)
    return max(float(total), 0.0) / max(len(a), 1)


def _n_log_n(n: np.ndarray) -> float:
    n = np.sort(n)
    return float((n * np.log(np.maximum(n, 1))).sum())
