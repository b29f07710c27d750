"""Numbers that say of each draw's partition what no relabelling changes."""

from __future__ import annotations

import numpy as np

from pm_match.matching.losses import loss_between
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
        The entropy is that of a relevant object's cluster, in nats; the distance is the variation
        of information, in bits.
    """
    occupied, entropy, distance = (np.empty(draws.n_draws) for _ in range(3))
    for draw, (labels, sizes) in enumerate(draws):
        occupied[draw] = len(sizes)
        # In order of size, or rounding would depend on how clusters are numbered: ranks, and with
        # them R-hat, see any difference.
        share = np.sort(sizes) / max(sizes.sum(), 1)
        entropy[draw] = -(share * np.log(share)).sum()
        distance[draw] = loss_between(labels, reference, "vi")
    return {
        "occupied clusters": occupied,
        "entropy of sizes": entropy,
        "distance from a partition": distance,
    }
