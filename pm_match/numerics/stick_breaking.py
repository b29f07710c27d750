r"""The prior of an assignment under truncated stick-breaking, with the weights integrated out.

Sticks :math:`v_l \sim \mathrm{Beta}(a_l, b_l)` for :math:`l < T - 1` and :math:`v_{T-1} = 1` give
the weights :math:`w_l = v_l \prod_{k<l} (1 - v_k)`. With :math:`N_l` objects in cluster :math:`l`
and :math:`N_{>l}` in the later ones,

.. math:: p(s) = \prod_{l < T-1} \frac{B(a_l + N_l,\; b_l + N_{>l})}{B(a_l, b_l)}

exactly, at any truncation :math:`T`. One pair of arrays serves every prior of this kind:

===================================  ===============  ==================================
prior                                :math:`a_l`      :math:`b_l`
===================================  ===============  ==================================
truncated Dirichlet process          1                :math:`\gamma`
truncated Pitman-Yor process         :math:`1 - d`    :math:`\gamma + (l + 1) d`
Dirichlet(:math:`\alpha`), finite    :math:`\alpha_l` :math:`\sum_{k>l} \alpha_k`
known weights :math:`w_l`            :math:`C w_l`    :math:`C \sum_{k>l} w_k`, C huge
===================================  ===============  ==================================

As :math:`T \to \infty` the first is the Chinese restaurant process of Iwata, Hirao & Ueda (2016),
eq. (3), (12) and (21). Labels are not exchangeable under it: see `label_swap`.
"""

from math import exp

import numpy as np

from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import draw_log_gamma, log_rising

# A product of at most this many ratios a stick cannot underflow; larger groups go through logs.
_SMALL_GROUP = 8
_CERTAIN = 1e40


@part
def predictive(a, b, counts, label, size, out):
    """Prior weight of every label for `size` objects that move together, given all others.

    `a`, `b` (T - 1,): beta parameters of the sticks; `counts` (T,): objects in each cluster, the
    moving ones included; `label`: the cluster that the moving objects are in now; they are taken
    out of it first. -1 if they are in none (irrelevant objects). `size`: how many move (1, or the
    size of a group of linked objects); `out` (T,): filled with E[w_j^size | the others], up to a
    common factor.
    """
    n_labels = counts.shape[0]
    if size <= _SMALL_GROUP:
        after = -size if label >= 0 else 0
        for j in range(n_labels):
            after += counts[j]
        left = 1.0
        for j in range(n_labels - 1):
            here = counts[j] - size if j == label else counts[j]
            after -= here
            mean = 1.0
            rest = 1.0
            for t in range(size):
                total = 1.0 / (a[j] + b[j] + here + after + t)
                mean *= (a[j] + here + t) * total
                rest *= (b[j] + after + t) * total
            out[j] = left * mean
            left *= rest
        out[n_labels - 1] = left
        return
    log_predictive(a, b, counts, label, size, out)
    top = -np.inf
    for j in range(n_labels):
        top = max(top, out[j])
    for j in range(n_labels):
        out[j] = exp(out[j] - top)


@part
def log_predictive(a, b, counts, label, size, out):
    """Log of what `predictive` gives, for any number of objects."""
    n_labels = counts.shape[0]
    after = 0
    for j in range(n_labels):
        after += counts[j]
    if label >= 0:
        after -= size
    left = 0.0
    for j in range(n_labels - 1):
        here = counts[j] - size if j == label else counts[j]
        after -= here
        total = log_rising(a[j] + b[j] + here + after, size)
        out[j] = left + log_rising(a[j] + here, size) - total
        left += log_rising(b[j] + after, size) - total
    out[n_labels - 1] = left


@part
def stick_factor(a, b, here, after):
    """Log of one stick's factor in p(s): log B(a + here, b + after) - log B(a, b)."""
    return log_rising(a, here) + log_rising(b, after) - log_rising(a + b, here + after)


@entry
def log_prior(a, b, counts):
    """Log p(s) of an assignment with these `counts`, the weights integrated out."""
    total = 0.0
    after = 0
    for j in range(counts.shape[0] - 1, -1, -1):
        if j < counts.shape[0] - 1:
            total += stick_factor(a[j], b[j], counts[j], after)
        after += counts[j]
    return total


def draw_log_sticks(rng, a, b, counts):
    """Draw the sticks from their exact conditional, v_l ~ Beta(a_l + N_l, b_l + N_{>l}).

    `a`, `b` (..., T - 1); `counts` (..., T). Return `log_sticks`, `log_rests` (..., T - 1): log v
    and log(1 - v), each to full precision however near 0 or 1 a stick is.
    """
    broken = draw_log_gamma(rng, a + counts[..., :-1])
    kept = draw_log_gamma(rng, b + _later(counts))
    total = np.logaddexp(broken, kept)
    return broken - total, kept - total


def log_weights(log_sticks, log_rests):
    """Log of the weights (..., T) that T - 1 sticks break a unit length into."""
    none = np.zeros((*log_sticks.shape[:-1], 1))
    before = np.concatenate([none, np.cumsum(log_rests, axis=-1)], axis=-1)
    return np.concatenate([log_sticks, none], axis=-1) + before


def dirichlet_sticks(concentration):
    """Beta parameters under which stick-breaking is Dirichlet(`concentration`), (..., T)."""
    return concentration[..., :-1], _later(concentration)


def _later(values):
    """Sum up what comes after each but the last of some values (..., T)."""
    return values[..., ::-1].cumsum(axis=-1)[..., ::-1][..., 1:]


def known_sticks(weights):
    """Beta parameters under which stick-breaking is certain to give the `weights`.

    No count can be told from nothing beside them, so that they are exact in floating point.
    """
    return dirichlet_sticks(_CERTAIN * weights)
