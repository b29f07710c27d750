r"""Relevance: objects that belong to no cluster, with the share of relevant ones integrated out.

.. math:: r_n \sim \mathrm{Bernoulli}(\lambda), \quad \lambda \sim \mathrm{Beta}(e, f), \qquad
          p(R) = \frac{B(e + L_1, f + L_0)}{B(e, f)}

with L_1 relevant and L_0 irrelevant objects (Iwata & Ishiguro, eq. 2, where (3) counts the relevant
ones only). A declared model gives irrelevant objects a cluster too, which nothing depends on: it is
integrated out, and drawn from the weights afterwards.
"""

from math import lgamma, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import log_rising
from pm_match.numerics.numba_internals import record


@record
class Relevance(NamedTuple):
    """The relevance flags of U units, in G groups that share a probability of being relevant."""

    group: NDArray[np.int64]  # (U,): the group of each unit, -1 if it is relevant for certain
    counts: NDArray[np.float64]  # (G, 2): irrelevant and relevant objects of each group
    # (G, 3): Beta parameters e and f of the probability, and 1; or a known probability of being
    # relevant, its complement, and 0
    prior: NDArray[np.float64]


def new_relevance(group: NDArray[np.int64]) -> Relevance:
    """Allocate the flags for units in the given groups (U,)."""
    n_groups = max(int(group.max(initial=-1)) + 1, 1)
    return Relevance(
        np.ascontiguousarray(group, np.int64), np.zeros((n_groups, 2)), np.ones((n_groups, 3))
    )


@part
def flag_weight(relevance, unit, relevant, size):
    """Log odds of `size` objects being irrelevant, given the flags of the others.

    `relevant`: whether they are relevant now.
    """
    group = relevance.group[unit]
    prior = relevance.prior[group]
    e, f, learned = prior[0], prior[1], prior[2]
    own = size * int(relevant)
    with_others = e + learned * (relevance.counts[group, 1] - own)
    without = f + learned * (relevance.counts[group, 0] - (size - own))
    if size == 1 or learned == 0.0:
        return size * log(without / with_others)
    return log_rising(without, size) - log_rising(with_others, size)


@entry
def log_flags(relevance):
    """Log p(R), the probabilities of being relevant integrated out."""
    total = 0.0
    for group in range(relevance.counts.shape[0]):
        prior = relevance.prior[group]
        e, f, learned = prior[0], prior[1], prior[2]
        no, yes = relevance.counts[group, 0], relevance.counts[group, 1]
        if no + yes == 0.0:
            continue
        if learned > 0.0:
            total += lgamma(e + yes) - lgamma(e) + lgamma(f + no) - lgamma(f)
            total += lgamma(e + f) - lgamma(e + f + no + yes)
        else:
            total += yes * log(e) + no * log(f)
    return total
