r"""Which clusters of one domain go with which latent vectors, its projection integrated out.

Given the projections, the clusters of a domain hardly ever exchange their labels: every projection
fits the matching that it was drawn under. Given the latent vectors z and the noise instead, and
with the domain's projection under its independent normal prior integrated out, the features of the
domain are so many Bayesian linear regressions,

.. math:: \log p(X_d \mid s_d, z) = \mathrm{const} + \tfrac12 \sum_m
          \left( b_m^\top A_m^{-1} b_m - \log |A_m| \right), \quad
          A_m = \mathrm{diag}(\tau_m) + \sum_j N_{jm} z_j z_j^\top, \quad
          b_m = \tau_m \circ \mu_m + \sum_j S_{jm} z_j

with the sums and counts per feature of `feature_sums.ClusterSums`, of features in units of their
independent noise, less intercepts and the deviations of their clusters (which keep these under
other labels). Exchanges of two labels within the domain are proposed and accepted by Metropolis and
Hastings' rule, with the ratio of these evidences and of the collapsed priors of all labels. The
projection is then to be drawn from its conditional, and the weights from theirs: a blocked move of
labels, projection and weights.
"""

from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.exchange import draw_exchange, shift_objects
from pm_match.clusters.label_swap import log_shift_ratio, rename_two
from pm_match.numerics.cholesky import factorise, solve_lower
from pm_match.numerics.kernels import entry, part


class Regressions(NamedTuple):
    """A domain's features as linear regressions on the latent vectors, for T labels."""

    # sums, counts (T, M')
    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    # (M',): how many features have the A of this one: 0 for those that have that of the one before
    repeats: NDArray[np.int64]
    # pull, precision (M', K): precision times mean of the prior, and precision
    pull: NDArray[np.float64]
    precision: NDArray[np.float64]
    latent: NDArray[np.float64]  # (T, K)
    groups: NDArray[np.int64]  # (J,): the labels of the domain's clusters, as it comes
    # work, vectors (2, K, K), (2, K): scratch
    work: NDArray[np.float64]
    vectors: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        sums: NDArray,
        counts: NDArray,
        mean: NDArray,
        precision: NDArray,
        latent: NDArray,
        groups: NDArray[np.int64],
    ) -> "Regressions":
        r"""Prepare the features of a domain for `permute_labels`: as few as will do.

        Features whose counts and prior precision are equal share :math:`A`, and what their
        :math:`b_m^\top A^{-1} b_m` add up to does not change if all sums, and :math:`\tau \circ
        \mu`, are turned to other axes in the space of features. With J clusters there are axes in
        which all but the first J coordinates (J + K, if :math:`\mu \neq 0`) are zero.

        `sums`, `counts` (T, M): of whitened features; `mean`, `precision` (M, K): of the prior of
        their projection, entry by entry; `latent` (T, K); `groups` (J,).
        """
        pull, (n_features, k) = precision * mean, mean.shape
        occupied = np.flatnonzero(counts.any(axis=1))
        repeats = np.ones(n_features, np.int64)
        rows = [sums[occupied]] + ([pull.T] if pull.any() else [])
        n_left = sum(map(len, rows))
        if 0 < n_left < n_features and _alike(counts.T) and _alike(precision):
            turned = np.linalg.qr(np.concatenate(rows).T, mode="r").T
            sums = np.zeros((len(sums), n_left))
            sums[occupied] = turned[: len(rows[0])]
            pull = np.zeros((n_left, k))
            if len(rows) > 1:
                pull[:] = turned[len(rows[0]) :].T
            counts, precision, repeats = counts[:, :n_left], precision[:n_left], repeats[:n_left]
            repeats[0], repeats[1:] = n_features, 0
        counts, precision = np.ascontiguousarray(counts), np.ascontiguousarray(precision)
        scratch = np.zeros((2, k, k)), np.zeros((2, k))
        return cls(sums, counts, repeats, pull, precision, latent, groups, *scratch)


@part
def log_regression(own, renamed):
    """Log p(X | labels, z), up to what no labels enter."""
    repeats, precision, latent, groups = own.repeats, own.precision, own.latent, own.groups
    matrix, lower = own.work[0], own.work[1]
    linear, solution = own.vectors[0], own.vectors[1]
    n_features, n_factors = own.pull.shape
    found = 0.0
    for m in range(n_features):
        for k in range(n_factors):
            linear[k] = own.pull[m, k]
        for i in range(groups.shape[0]):
            z = latent[renamed[groups[i]]]
            total = own.sums[groups[i], m]
            for k in range(n_factors):
                linear[k] += total * z[k]
        # Features without a matrix of their own have that of the one before.
        if repeats[m] > 0:
            for k in range(n_factors):
                for j in range(k):
                    matrix[k, j] = 0.0
                matrix[k, k] = precision[m, k]
            for i in range(groups.shape[0]):
                z = latent[renamed[groups[i]]]
                count = own.counts[groups[i], m]
                for k in range(n_factors):
                    for j in range(k + 1):
                        matrix[k, j] += count * z[k] * z[j]
            found -= 0.5 * repeats[m] * factorise(matrix, lower)
        found += 0.5 * solve_lower(lower, linear, solution)
    return found


@entry
def permute_labels(rng, a, b, held, objects, own, renamed, n_proposals):
    """Propose exchanges of two labels within a domain.

    Proposals are those of `partition.exchange`: symmetric ones.

    `a`, `b` (T - 1,): Beta parameters of the sticks (see `stick_breaking`); `held`, `objects` (T,):
    objects in each cluster, of all domains and of this one; updated in place; `own`: of the domain;
    `renamed` (T,): filled with the new label of each. Return `accepted`, `proposed`.
    """
    for label in range(renamed.shape[0]):
        renamed[label] = label
    accepted = 0
    proposed = 0
    here = log_regression(own, renamed)
    for _ in range(n_proposals):
        first, second = draw_exchange(rng, own.groups, renamed, objects)
        if first < 0:
            continue
        proposed += 1
        shift = objects[first] - objects[second]
        ratio = log_shift_ratio(a, b, held, first, second, shift)
        rename_two(renamed, first, second)
        there = log_regression(own, renamed)
        if rng.random() < exp(min(0.0, ratio + there - here)):
            accepted += 1
            here = there
            shift_objects(held, objects, first, second)
        else:
            rename_two(renamed, first, second)
    return accepted, proposed


def _alike(rows: NDArray) -> bool:
    return bool((rows == rows[0]).all())
