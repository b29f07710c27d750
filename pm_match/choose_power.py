"""How much the densities of coarsened data should count: by how many objects clusters have."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pymc as pm

from pm_match.find_matching import find_matching
from pm_match.matching.draws import assignment_sets

# The power of the search that objects are counted by.
_FIRST = 0.85


def choose_power(
    declare: Callable[[float], pm.Model],
    *,
    enough: float = 200.0,
    starts: int = 4,
    random_seed: Any = None,
    progressbar: bool = True,
) -> float:
    r"""Choose the power to which densities of coarsened data count, from the clusters' size.

    Real clusters are not exactly normal. What is left over is worth a split if there are objects
    enough to see it, and the more objects there are, the smaller is what they see. So a power has
    to shrink as clusters grow (J. Miller & D. Dunson 2019, "Robust Bayesian inference via
    coarsening", JASA 114, equation 2.3, there with the size of the whole sample):

    .. math:: \zeta = \frac{\alpha}{\alpha + n}, \qquad n = N \exp(-H), \qquad
              H = -\sum_j \frac{n_j}{N} \log \frac{n_j}{N}

    n is the size of the clusters that the best of some searches finds with a power of .85, of all
    data sets together: N objects among as many clusters as the entropy of their labels is worth.
    However many objects there are, a cluster is worth at most :math:`\alpha` of them.

    Parameters
    ----------
    declare : callable
        From a power to a model, such as
        ``lambda power: pmm.models.aligned_clusters(tables, power=power)``.
    enough : float, default 200.0
        :math:`\alpha`: the smaller, the larger are the differences that make clusters.
    starts : int, default 4
        Searches. One alone may end in clusters of another size.
    random_seed : int, sequence of int, Generator or SeedSequence, optional
    progressbar : bool, default True

    Returns
    -------
    float
        The power, to declare the model with.

    Raises
    ------
    ValueError
        If `enough` is not positive, or `starts` less than 1.

    Examples
    --------
    >>> tables = pmm.datasets.iris(random_seed=0)
    >>> declare = lambda power: pmm.models.aligned_clusters(tables, power=power)
    >>> power = pmm.choose_power(declare, random_seed=0, progressbar=False)
    >>> bool(0 < power <= 1)
    True
    """
    # Imported when it is needed: it takes a quarter of a second.
    from scipy.stats import entropy

    if not enough > 0.0:
        raise ValueError(f"enough: expected a positive number; found {enough!r}")
    found = find_matching(
        declare(_FIRST), starts=starts, random_seed=random_seed, progressbar=progressbar
    )
    searches = found["starts"].to_dataset().drop_dims("other_start")
    best = searches.isel(start=int(searches["log_joint"].argmax("start")))
    sets = [
        np.concatenate([best[name].to_numpy() for name in names])
        for names in assignment_sets(best).values()
    ]
    counts = np.concatenate([np.bincount(labels[labels >= 0]) for labels in sets])
    return float(enough / (enough + counts.sum() * np.exp(-entropy(counts))))
