r"""Which clusters of one domain go with which latent vectors, its projection integrated out.

Given the projections, the clusters of a domain hardly ever exchange their labels: every projection
fits the matching that it was drawn under. Given the latent vectors z and the noise precision
:math:`\alpha` instead, and with the domain's projection under its independent normal prior
integrated out, the features of the domain are so many Bayesian linear regressions,

.. math:: \log p(X_d \mid s_d, z, \alpha) = \mathrm{const} + \tfrac12 \sum_m
          \left( b_m^\top A_m^{-1} b_m - \log |A_m| \right), \quad
          A_m = \mathrm{diag}(\tau_m) + \alpha \sum_j N_{jm} z_j z_j^\top, \quad
          b_m = \tau_m \circ \mu_m + \alpha \sum_j S_{jm} z_j

with the sums and counts per feature of `projection.ClusterSums`. Exchanges of two labels within the
domain are proposed and accepted by Metropolis and Hastings' rule, with the ratio of these evidences
and of the collapsed priors of all labels. The projection is then to be drawn from its conditional,
and the weights from theirs: a blocked move of labels, projection and weights.
"""

from math import exp

import numpy as np
from numpy.typing import NDArray

from pm_match.evidence.cholesky import factorise, solve_lower
from pm_match.kernels import entry, part
from pm_match.partition.exchange import draw_exchange, rename_two, shift_objects
from pm_match.partition.label_swap import log_shift_ratio


@part
def log_regression(
    sums, counts, alike, mean, precision, latent, alpha, groups, renamed, work, vectors
):
    """Log p(X | labels, z, alpha), up to what no labels enter; `work` and `vectors` are scratch."""
    n_features, n_factors = mean.shape
    matrix, lower = work[0], work[1]
    linear, solution = vectors[0], vectors[1]
    found = 0.0
    log_det = 0.0
    for m in range(n_features):
        for k in range(n_factors):
            linear[k] = precision[m, k] * mean[m, k]
        for i in range(groups.shape[0]):
            z = latent[renamed[groups[i]]]
            total = alpha * sums[groups[i], m]
            for k in range(n_factors):
                linear[k] += total * z[k]
        if not alike[m]:
            for k in range(n_factors):
                for j in range(k):
                    matrix[k, j] = 0.0
                matrix[k, k] = precision[m, k]
            for i in range(groups.shape[0]):
                z = latent[renamed[groups[i]]]
                count = alpha * counts[groups[i], m]
                for k in range(n_factors):
                    for j in range(k + 1):
                        matrix[k, j] += count * z[k] * z[j]
            log_det = factorise(matrix, lower)
        found += 0.5 * (solve_lower(lower, linear, solution) - log_det)
    return found


@entry
def permute_labels(
    rng,
    a,
    b,
    held,
    objects,
    sums,
    counts,
    alike,
    mean,
    precision,
    latent,
    alpha,
    groups,
    renamed,
    work,
    vectors,
    n_proposals,
):
    """Propose exchanges of two labels within a domain.

    Proposals are those of `partition.exchange`: symmetric ones.

    Parameters
    ----------
    rng : numpy.random.Generator
    a, b : (T - 1,) array
        Beta parameters of the sticks (see `stick_breaking`).
    held, objects : (T,) integer array
        Objects in each cluster, of all domains and of this one; updated in place.
    sums, counts : (T, M) array
        Of this domain, by the labels that it comes with (see `projection.ClusterSums`).
    alike : (M,) boolean array
        Which features have the counts and the prior precision of the one before.
    mean, precision : (M, K) array
        Of the projection's prior, entry by entry.
    latent : (T, K) array
    alpha : float
        Noise precision.
    groups : (J,) integer array
        The labels of the domain's clusters, as it comes.
    renamed : (T,) integer array
        Filled with the new label of each.
    work, vectors : (2, K, K), (2, K) array
        Scratch.
    n_proposals : int

    Returns
    -------
    accepted, proposed : int
    """
    for label in range(renamed.shape[0]):
        renamed[label] = label
    accepted = 0
    proposed = 0
    here = log_regression(
        sums, counts, alike, mean, precision, latent, alpha, groups, renamed, work, vectors
    )
    for _ in range(n_proposals):
        first, second = draw_exchange(rng, groups, renamed, objects)
        if first < 0:
            continue
        proposed += 1
        shift = objects[first] - objects[second]
        ratio = log_shift_ratio(a, b, held, first, second, shift)
        rename_two(renamed, first, second)
        there = log_regression(
            sums, counts, alike, mean, precision, latent, alpha, groups, renamed, work, vectors
        )
        if rng.random() < exp(min(0.0, ratio + there - here)):
            accepted += 1
            here = there
            shift_objects(held, objects, first, second)
        else:
            rename_two(renamed, first, second)
    return accepted, proposed


def like_the_one_before(counts: NDArray, precision: NDArray) -> NDArray[np.bool_]:
    """Which features (M,) have the `counts` (T, M) and `precision` (M, K) of the one before."""
    found = np.zeros(len(precision), np.bool_)
    found[1:] = (counts[:, 1:] == counts[:, :-1]).all(axis=0)
    found[1:] &= (precision[1:] == precision[:-1]).all(axis=1)
    return found
