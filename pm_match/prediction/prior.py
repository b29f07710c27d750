r"""The prior of a new object's cluster given the others' labels, with the weights integrated out.

.. math:: p(s^* = j \mid s) = E[w_j \mid s] = \frac{a_j + N_j}{a_j + b_j + N_{\ge j}}
          \prod_{k<j} \frac{b_k + N_{>k}}{a_k + b_k + N_{\ge k}}

for sticks :math:`v_k \sim \mathrm{Beta}(a_k, b_k)` (see `numerics.stick_breaking`); and the new
object is relevant with probability :math:`(e + R) / (e + f + N)`, R of N flags being 1.
"""

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.stick_breaking import log_weights


def log_prior(a: NDArray, b: NDArray, labels: NDArray, n_clusters: int) -> NDArray[np.float64]:
    """Log probability of every cluster (T,), given the `labels` (N,) of others, -1 for none."""
    counts = np.bincount(labels[labels >= 0], minlength=n_clusters)
    after = counts[::-1].cumsum()[::-1][1:]
    total = np.log(a + b + counts[:-1] + after)
    return log_weights(np.log(a + counts[:-1]) - total, np.log(b + after) - total)


def log_relevance(prior: NDArray, flags: NDArray[np.bool_]) -> tuple[float, float]:
    """Log probability of being relevant, and of being not.

    `prior` (3,): e, f, and whether the probability is free (see `clusters.relevance`); `flags`
    (N,): those of the objects that share it.
    """
    e, f, free = prior
    yes, no = e + free * flags.sum(), f + free * (~flags).sum()
    return float(np.log(yes / (yes + no))), float(np.log(no / (yes + no)))
