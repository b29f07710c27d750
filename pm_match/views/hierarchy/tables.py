r"""Clusters of samples above clusters of each view: assignments given precisions, all else out.

Sample n has a cluster :math:`z_n`, and in every view v that has seen it a cluster :math:`w_{vn}`:

.. math::

    z_n \sim \mathrm{Mult}(\theta), \quad w_{vn} \mid z_n \sim \mathrm{Mult}(\theta_v^{z_n}), \quad
    x_{vn} \mid w_{vn} \sim N(\mu_v^{w_{vn}}, \Lambda_v^{-1})

(Klami & Kaski, "Generative models that discover dependencies between data sets", eq. 3), with
:math:`\theta_v^t \sim \mathrm{Dirichlet}(a_v^t)` and
:math:`\mu_v^u \sim N(m_v, (\kappa_v \Lambda_v)^{-1})`. The weights, the links :math:`\theta_v` and
the means are integrated out. Views are independent given z, so that all clusters of a sample are
drawn jointly: first

.. math::

    p(z_n = t \mid \text{rest}) \propto p(t \mid z_{-n}) \prod_v \sum_u
        p(w_{vn} = u \mid z_n = t, \text{rest}) \, p(x_{vn} \mid u, \text{rest}),

then each :math:`w_{vn}` given :math:`z_n`, at a cost of :math:`T \sum_v T_v` a sample. With
features scaled so that :math:`\Lambda_v = I`, and :math:`k = \kappa_v + n_u` for the n_u other
vectors of cluster u,

.. math:: p(w = u \mid t) = \frac{a_{tu} + n_{tu}}{\sum_{u'} a_{tu'} + n_{tu'}}, \quad
          p(x \mid u) = N\Bigl(x; \frac{\kappa_v m_v + \sum x}{k}, \frac{k + 1}{k} I\Bigr).
"""

from collections.abc import Sequence
from math import exp, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.label_swap import swap_labels
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import log_rising
from pm_match.numerics.stick_breaking import predictive
from pm_match.numerics.zeros import zeros

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class HierarchyState(NamedTuple):
    """Assignments and what is counted of them: N samples, V views, padded to the largest view.

    Values, and the prior on means, are on the scale where precisions are 1.
    """

    z: Labels  # (N,)
    w: Labels  # (V, N): -1 where the view has not seen the sample
    counts: Labels  # (T,): samples of every z
    pairs: Labels  # (V, T, T_max): samples of every z and w
    totals: Labels  # (V, T): samples of every z that the view has seen
    held: Labels  # (V, T_max): samples of every w
    n_marginal: Labels  # (V,)
    n_features: Labels  # (V,)
    values: Array  # (V, N, D_max): 0 beyond a view's features
    sums: Array  # (V, T_max, D_max): of the values of every w
    center: Array  # (V, D_max): of the prior on means
    strength: Array  # (V,): kappa
    concentration: Array  # (V, T, T_max): of the links' prior; 0 beyond a view's clusters
    concentration_total: Array  # (V, T)
    sticks_a: Array  # (T - 1,): of the prior on weights (see `numerics.stick_breaking`)
    sticks_b: Array  # (T - 1,)
    weight: Array  # (T,): scratch
    link: Array  # (V, T_max): scratch, a sample's densities in the clusters of each view
    named: Labels  # (T,): zeros, as no label is known
    renamed: Labels  # (T,): scratch


def new_state(
    n: int, n_clusters: int, n_marginal: Sequence[int], n_features: Sequence[int]
) -> HierarchyState:
    """Make an empty state for `n` samples, views with so many clusters and features."""
    v = len(n_marginal)
    sizes = {"N": n, "V": v, "T": n_clusters, "U": max(n_marginal), "D": max(n_features)}
    counts = "z N, counts T, pairs V T U, totals V T, held V U, named T, renamed T"
    return HierarchyState(
        w=np.full((v, n), -1, np.int64),
        n_marginal=np.array(n_marginal, np.int64),
        n_features=np.array(n_features, np.int64),
        sticks_a=np.zeros(n_clusters - 1),
        sticks_b=np.zeros(n_clusters - 1),
        **zeros(counts, np.int64, **sizes),
        **zeros(
            "values V N D, sums V U D, center V D, strength V, concentration V T U, "
            "concentration_total V T, weight T, link V U",
            **sizes,
        ),
    )


@entry
def count(state):
    """Compute all counts and sums from the assignments and values."""
    state.counts[:] = 0
    state.pairs[:] = 0
    state.totals[:] = 0
    state.held[:] = 0
    state.sums[:] = 0.0
    for n in range(state.z.shape[0]):
        _shift(state, n, 1)


@part
def _shift(state, n, by):
    """Add a sample to the counts (`by` 1), or take it out of them (-1)."""
    t = state.z[n]
    state.counts[t] += by
    for v in range(state.n_features.shape[0]):
        u = state.w[v, n]
        if u < 0:
            continue
        state.pairs[v, t, u] += by
        state.totals[v, t] += by
        state.held[v, u] += by
        for d in range(state.n_features[v]):
            state.sums[v, u, d] += by * state.values[v, n, d]


@part
def _densities(state, v, n):
    """Fill `link` with the densities of a sample's vector, up to a factor."""
    top = -np.inf
    for u in range(state.n_marginal[v]):
        k = state.strength[v] + state.held[v, u]
        distance = 0.0
        for d in range(state.n_features[v]):
            mean = (state.strength[v] * state.center[v, d] + state.sums[v, u, d]) / k
            distance += (state.values[v, n, d] - mean) ** 2
        found = -0.5 * (state.n_features[v] * log1p(1.0 / k) + distance * k / (k + 1.0))
        state.link[v, u] = found
        top = max(top, found)
    for u in range(state.n_marginal[v]):
        state.link[v, u] = exp(state.link[v, u] - top)


@entry
def sweep(rng, state, n_swaps):
    """Draw the clusters of every sample in turn; then exchange names of z.

    Exchanges leave the prior of the links as it is if that is the same for every z: `n_swaps` is
    how many to propose, 0 if it is not.

    Return `moved`, `accepted`, `proposed`: samples whose z changed, and exchanges.
    """
    n_clusters = state.counts.shape[0]
    moved = 0
    for n in range(state.z.shape[0]):
        old = state.z[n]
        _shift(state, n, -1)
        # The sample is out of the counts already.
        predictive(state.sticks_a, state.sticks_b, state.counts, -1, 1, state.weight)
        for v in range(state.n_features.shape[0]):
            if state.w[v, n] < 0:
                continue
            _densities(state, v, n)
            for t in range(n_clusters):
                total = 0.0
                for u in range(state.n_marginal[v]):
                    share = state.concentration[v, t, u] + state.pairs[v, t, u]
                    total += share * state.link[v, u]
                total /= state.concentration_total[v, t] + state.totals[v, t]
                state.weight[t] *= total
        new = _draw(rng, state.weight, n_clusters)
        state.z[n] = new
        moved += new != old
        for v in range(state.n_features.shape[0]):
            if state.w[v, n] < 0:
                continue
            for u in range(state.n_marginal[v]):
                state.link[v, u] *= state.concentration[v, new, u] + state.pairs[v, new, u]
            state.w[v, n] = _draw(rng, state.link[v], state.n_marginal[v])
        _shift(state, n, 1)
    for t in range(n_clusters):
        state.renamed[t] = t
    accepted, proposed = swap_labels(
        rng,
        state.sticks_a,
        state.sticks_b,
        state.counts,
        state.named,
        state.renamed,
        n_swaps,
    )
    if accepted:
        for n in range(state.z.shape[0]):
            state.z[n] = state.renamed[state.z[n]]
        count(state)
    return moved, accepted, proposed


@part
def _draw(rng, weights, n):
    """Draw one of the first `n` weights, which need not sum to 1."""
    total = 0.0
    for j in range(n):
        total += weights[j]
    left = rng.random() * total
    for j in range(n - 1):
        left -= weights[j]
        if left < 0.0:
            return j
    return n - 1


@entry
def log_links(state):
    """Log p(w | z) of all views, the links integrated out."""
    total = 0.0
    for v in range(state.n_features.shape[0]):
        for t in range(state.counts.shape[0]):
            total -= log_rising(state.concentration_total[v, t], state.totals[v, t])
            for u in range(state.n_marginal[v]):
                if state.pairs[v, t, u]:
                    total += log_rising(state.concentration[v, t, u], state.pairs[v, t, u])
    return total
