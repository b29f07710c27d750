"""What counts say apart from blocks: how large they are where there are any, and of whom.

Log joints of counts, of counts corrected for degrees and of edges alone are of different data. With
what these functions add they are of the same: all counts. That is exact for a given model of sizes,
and approximate for degrees.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, logsumexp, xlogy

from pm_match.networks.data import Network, degrees_of

# Standard deviations of the logarithm of the means of objects of one cluster.
_SPREADS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
# Where integrals over standard normal variables are evaluated.
_NODES = np.linspace(-6.0, 6.0, 121)


def log_sizes(sizes: NDArray[np.float64]) -> float:
    """Give the log evidence of counts of at least 1, as draws of one distribution.

    How many binary digits they have is categorical, with a Dirichlet(1/2, …) prior (Jeffreys') on
    1, …, K, and with probability 1/K(K + 1) for every K, of which the least that is possible counts
    alone: a lower bound. Of counts with as many digits, x is as probable as 1/x says. That
    describes heavy tails and counts of one size alike, and nothing is fitted.

    Parameters
    ----------
    sizes : ndarray (n,)

    Returns
    -------
    float
    """
    digits = np.frexp(sizes)[1]  # 2 ** (digits - 1) <= size < 2 ** digits
    counts = np.bincount(digits)[1:]
    least = 2.0 ** np.arange(len(counts))
    # The sums of 1/x from `least` to the last count of as many digits.
    totals = digamma(2.0 * least) - digamma(least)
    k, half = len(counts), 0.5 * len(counts)
    of_digits = gammaln(half) - gammaln(half + len(sizes)) + gammaln(counts + 0.5).sum()
    return float(
        of_digits
        - k * gammaln(0.5)
        - np.log(k * (k + 1.0))
        - np.log(sizes).sum()
        - counts @ np.log(totals)
    )


def log_degrees(
    network: Network,
    clusters: Sequence[NDArray[np.int64]],
    symmetric: bool = False,
    dispersion: float = np.inf,
) -> float:
    r"""Give what degrees add to log joints in which they are exposures, so that they are data too.

    Such a log joint knows every object's degree :math:`d_i`: it counts as if that were the mean.
    Here the mean is :math:`m_i e^{s u - s^2/2}`, with u standard normal, :math:`m_i` the mean
    degree of the object's cluster, and s the best of a few, the same for all:

    .. math::

        \sum_i \log \frac{\int p(d_i \mid m_i e^{s u - s^2/2}) \, N(u) \, du}{p(d_i \mid d_i)}

    This is approximate: clusters, their mean degrees and s are estimates, objects are taken one by
    one, and degrees of negative binomial counts have one p.

    Parameters
    ----------
    network : Network
    clusters : sequence of ndarray (n,)
        For every axis the objects' clusters.
    symmetric : bool, default False
    dispersion : float, default inf
        The variance of a degree is its mean times 1 + 1 / dispersion, as that of sums of negative
        binomial counts whose n is the dispersion times the exposure.

    Returns
    -------
    float
    """
    log_weights = -0.5 * _NODES**2
    log_weights = log_weights - logsumexp(log_weights)
    total = np.zeros(len(_SPREADS))
    # Of a symmetric network, there are degrees of one axis.
    for degrees, labels in zip(degrees_of(network, symmetric), clusters, strict=False):
        frame = pd.DataFrame({"degree": degrees, "cluster": labels})
        frame["mean"] = frame.groupby("cluster")["degree"].transform("mean")
        alike = frame.groupby(["degree", "mean"]).size()
        d, mean = (alike.index.get_level_values(level).to_numpy() for level in (0, 1))
        known = _log_count(d, d, dispersion)
        for i, spread in enumerate(_SPREADS):
            means = mean[:, None] * np.exp(spread * _NODES - 0.5 * spread**2)
            told = logsumexp(_log_count(d[:, None], means, dispersion) + log_weights, axis=1)
            total[i] += alike.to_numpy() @ (told - known)
    return float(total.max())


def _log_count(d, mean, dispersion):
    """Give log probabilities of degrees; their terms in d alone are left out."""
    if np.isinf(dispersion):
        return xlogy(d, mean) - mean
    # A mean of 0 has a count of 0; gammaln(0) is infinite.
    n = np.maximum(dispersion * mean, 1e-300)
    return gammaln(n + d) - gammaln(n) - n * np.log1p(1.0 / dispersion) - d * np.log1p(dispersion)


def sample_objects(
    network: Network, most: int, one_mode: bool, rng: np.random.Generator
) -> Network:
    """Give the network of some objects, with at most so many cells that are listed.

    Objects come as ends of random edges do, so that those with many edges come first: few of a
    sparse network's cells would be between objects taken at random.

    Parameters
    ----------
    network : Network
    most : int
    one_mode : bool
        Whether both axes are the same objects.
    rng : Generator

    Returns
    -------
    Network
        Itself, if it has no more cells.
    """
    # Imported when it is needed: it takes a quarter of a second.
    from scipy.stats import rankdata

    if len(network.index) <= most:
        return network
    degrees = degrees_of(network, symmetric=one_mode)
    # Exponential times by degree: the first are a sample without replacement.
    times = [rng.exponential(size=len(own)) / np.maximum(own, 1e-9) for own in degrees]
    orders = [(rankdata(own, "ordinal") - 1) / len(own) for own in times]
    orders *= 2 if one_mode else 1
    last = np.max([own[network.index[:, axis]] for axis, own in enumerate(orders)], axis=0)
    cut = np.partition(last, most)[most]
    kept = [np.flatnonzero(own < cut) for own in orders]

    def renumbered(index):
        inside = np.all([np.isin(index[:, axis], own) for axis, own in enumerate(kept)], axis=0)
        own = [np.searchsorted(kept[axis], index[inside, axis]) for axis in range(len(kept))]
        return np.column_stack(own), inside

    index, inside = renumbered(network.index)
    return replace(
        network,
        shape=tuple(map(len, kept)),
        index=index,
        values=network.values[inside],
        unknown=renumbered(network.unknown)[0],
        labels=tuple(pd.RangeIndex(len(own)) for own in kept),
    )
