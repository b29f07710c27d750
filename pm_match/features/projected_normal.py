r"""Projected normal evidence: feature vectors as noisy projections of a shared latent vector.

.. math:: x_{dn} \sim N(W_d z_{s_{dn}}, \alpha^{-1} I), \quad z_j \sim N(0, (\alpha r)^{-1} I),
          \quad \alpha \sim \mathrm{Gamma}(a, b)

with :math:`z` and :math:`\alpha` integrated out (Iwata, Hirao & Ueda 2016, eq. 4-8; 23-26 with
missing values). The term sees the data of a unit only through its Gram matrix :math:`G = \sum
W^\top W` (over the rows of :math:`W` that are observed), :math:`h = \sum W^\top x` and :math:`\sum
x^\top x`. A cluster is its precision :math:`C_j^{-1} = rI + \sum G` and its linear part :math:`m_j
= \sum h`, with :math:`\mu_j = C_j m_j` and :math:`q_j = m_j^\top C_j m_j`; all clusters share one
scalar,

.. math:: b' = b + \tfrac12 \sum x^\top x - \tfrac12 \sum_j q_j .

A unit that joins cluster :math:`j` raises :math:`q_j` by :math:`\Delta_j`, and its log predictive
is, up to what is common to all clusters (eq. 13-17, with the factor :math:`r^{K/2}` that a new
cluster brings),

.. math:: \tfrac12 \log \frac{|C_{j+}|}{|C_j|} - a' \log\left(1 - \frac{\Delta_j}{2 b'_0}\right) .

Units with the same Gram matrix share a *pattern* (one for each domain when nothing is missing). For
a pattern that many units share, :math:`\Delta_j` is a plain dot product: with :math:`C_{j+} =
(C_j^{-1} + G)^{-1}`,

.. math:: \Delta_j = h^\top C_{j+} h + 2 (C_{j+} m_j)^\top h + (m_j^\top C_{j+} m_j - q_j)

is linear in the K(K+1)/2 products of :math:`h`, in :math:`h`, and in 1, with coefficients that are
kept until cluster :math:`j` changes. The coefficients of all clusters lie side by side, so that one
pass of fused multiply-adds scores a unit against every cluster.

Deviations are factors of which a domain sees none but its own (see `emission`): a pattern has a
*part* of the factors, and its :math:`h` and :math:`G` are of these alone. The deviations of
different domains have no precision in common, and shared factors come last here: rows of Cholesky
factors then begin with zeros, and a part's rows and columns of one are all that its own block of
:math:`C_j` takes.

Intercepts, and noise of the features' own, are given: all of this is then of data that are shifted
and whitened by them (see `emission`), :math:`\alpha` being what multiplies all precisions. If there
is no such number, :math:`\alpha = 1`: the log predictive is :math:`\tfrac12 \log
\frac{|C_{j+}|}{|C_j|} + \tfrac12 \Delta_j`. Objects may then be irrelevant, with a density of their
own that no cluster enters; and the densities of a domain may count to a power (`coarsen`), by which
its :math:`G`, :math:`h` and :math:`x^\top x` are multiplied.
"""

from collections.abc import Sequence
from math import lgamma, log, log1p, pi, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.clusters.sweep import capacity
from pm_match.clusters.units import Units
from pm_match.features.emission import Emission
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import (
    factorise,
    invert,
    solve_lower,
    solve_upper,
    solve_upper_within,
)
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.zeros import zeros

# Where the numbers of `ProjectedNormal.hyper` are.
SHAPE, RATE, LATENT, NORMALISER = range(4)
# A pattern is worth keeping coefficients for when this many units share it.
_COMMON = 4
# ... and while all coefficients together stay below this many numbers (64 MB).
_MOST_COEFFICIENTS = 8_000_000
# Below this, log1p by its series in x / (2 + x): the first term left out is under 1e-17.
_SERIES = 0.1


class ProjectedNormal(NamedTuple):
    """State of the term, for U units, P patterns of which Q are kept, S slots, K factors.

    With A factors in the largest part, and L = A (A + 1) / 2 + A + 1 coefficients of a quadratic in
    as many.
    """

    # (4,): posterior shape a', prior rate b, latent precision r, and log normaliser (what of the
    # log evidence does not depend on the partition); see `SHAPE` and the following
    hyper: NDArray[np.float64]
    # (1,): whether all noise is given: a' and b are then not used, and b is 0
    given: NDArray[np.bool_]
    # (1,): posterior rate b' of the precision; with given noise half of what no cluster explains
    rate: NDArray[np.float64]
    # (U,): Log density of each unit as an irrelevant one, over the part of its density as a
    # relevant one that is common to all clusters. Empty if all units are relevant.
    background: NDArray[np.float64]
    background_total: NDArray[np.float64]  # (1,): sum of `background` over the irrelevant units
    first: NDArray[np.int64]  # (K,): the first factor with which each has a precision in common
    # part, n_part (P, A), (P,): the factors of each pattern, in their order, and how many there are
    part: NDArray[np.int64]
    n_part: NDArray[np.int64]
    # projected, pattern (U, A), (U,): h and the pattern of each unit
    projected: NDArray[np.float64]
    pattern: NDArray[np.int64]
    gram: NDArray[np.float64]  # (P, A, A): G of each pattern
    # (P,): where the coefficients of a pattern are kept, -1 if they are not
    kept: NDArray[np.int64]
    # precision, linear, quadratic, log_det (S, K, K), (S, K), (S,), (S,): the inverse of C_j, m_j,
    # q_j and log |C_j| of each slot
    precision: NDArray[np.float64]
    linear: NDArray[np.float64]
    quadratic: NDArray[np.float64]
    log_det: NDArray[np.float64]
    # held, version (S,): units in each slot; number of the slot's present state
    held: NDArray[np.int64]
    version: NDArray[np.int64]
    epoch: NDArray[np.int64]  # (1,): number of the present state of all slots
    # gain, gain_log_det, gain_stamp (Q, L, S), (Q, S), (Q, S): coefficients of Delta_j, half the
    # log determinant ratio, and the version they belong to
    gain: NDArray[np.float64]
    gain_log_det: NDArray[np.float64]
    gain_stamp: NDArray[np.int64]
    # (Q,): the epoch at which all of a pattern's coefficients were last known to be good
    gain_epoch: NDArray[np.int64]
    # loss, loss_log_det, loss_stamp (Q, S, L), (Q, S), (Q, S): the same for taking a unit out of
    # its own slot
    loss: NDArray[np.float64]
    loss_log_det: NDArray[np.float64]
    loss_stamp: NDArray[np.int64]
    # products, delta, matrix, lower, own, vector, solution: scratch; `own` is (3, A, A)
    products: NDArray[np.float64]
    delta: NDArray[np.float64]
    matrix: NDArray[np.float64]
    lower: NDArray[np.float64]
    own: NDArray[np.float64]
    vector: NDArray[np.float64]
    solution: NDArray[np.float64]
    # group_held, group_precision, group_linear (S,), (S, K, K), (S, K): scratch: what the units of
    # one assignment add to every slot
    group_held: NDArray[np.int64]
    group_precision: NDArray[np.float64]
    group_linear: NDArray[np.float64]


@implements(protocol.clear, ProjectedNormal)
def _clear(term, slot):
    n_factors = term.linear.shape[1]
    r = term.hyper[LATENT]
    for k in range(n_factors):
        for i in range(n_factors):
            term.precision[slot, k, i] = 0.0
        term.precision[slot, k, k] = r
        term.linear[slot, k] = 0.0
    term.quadratic[slot] = 0.0
    term.log_det[slot] = -n_factors * log(r)
    term.held[slot] = 0
    term.version[slot] += 1
    term.epoch[0] += 1


@part
def _add(term, unit, slot, sign, held, precision, linear):
    """Add (or with `sign` = -1 subtract) a unit's statistics to those of a slot."""
    pattern = term.pattern[unit]
    gram, own = term.gram[pattern], term.part[pattern]
    n = linear.shape[1]
    if term.n_part[pattern] == n:
        for k in range(n):
            linear[slot, k] += sign * term.projected[unit, k]
            for i in range(n):
                precision[slot, k, i] += sign * gram[k, i]
        held[slot] += sign
        return
    for k in range(term.n_part[pattern]):
        linear[slot, own[k]] += sign * term.projected[unit, k]
        for i in range(term.n_part[pattern]):
            precision[slot, own[k], own[i]] += sign * gram[k, i]
    held[slot] += sign


@part
def _shift(term, unit, slot, sign):
    """Add a unit to a slot, or subtract it, without refreshing the slot."""
    _add(term, unit, slot, sign, term.held, term.precision, term.linear)


@part
def _factorise(term, matrix):
    """Factorise a matrix (K, K) into `lower`; return its log determinant."""
    if term.part.shape[1] == matrix.shape[0]:
        return factorise(matrix, term.lower)
    return factorise(matrix, term.lower, term.first)


@part
def _refresh(term, slot):
    """Bring q_j, log |C_j| and b' up to date after the slot's statistics changed."""
    term.log_det[slot] = -_factorise(term, term.precision[slot])
    quadratic = solve_lower(term.lower, term.linear[slot], term.solution, term.first)
    term.rate[0] -= 0.5 * (quadratic - term.quadratic[slot])
    term.quadratic[slot] = quadratic
    term.version[slot] += 1
    term.epoch[0] += 1


@implements(protocol.move, ProjectedNormal)
def _move(term, unit, source, target):
    if source == 0:
        term.background_total[0] -= term.background[unit]
    elif term.held[source] == 1:
        # Exactly empty, not nearly: what is left of a difference of sums would be noise.
        term.rate[0] += 0.5 * term.quadratic[source]
        protocol.clear(term, source)
    else:
        _shift(term, unit, source, -1)
        _refresh(term, source)
    if target == 0:
        term.background_total[0] += term.background[unit]
    else:
        _shift(term, unit, target, 1)
        _refresh(term, target)


@implements(protocol.relocate, ProjectedNormal)
def _relocate(term, source, target):
    n_factors = term.linear.shape[1]
    for k in range(n_factors):
        term.linear[target, k] = term.linear[source, k]
        for i in range(n_factors):
            term.precision[target, k, i] = term.precision[source, k, i]
    term.quadratic[target] = term.quadratic[source]
    term.log_det[target] = term.log_det[source]
    term.held[target] = term.held[source]
    term.version[target] += 1
    term.epoch[0] += 1


@entry
def rebuild(term, slots, sum_of_squares):
    """Compute the state from scratch, for units in the given `slots` (U,), 0 if irrelevant."""
    for slot in range(term.held.shape[0]):
        protocol.clear(term, slot)
    term.rate[0] = term.hyper[RATE] + 0.5 * sum_of_squares
    term.background_total[0] = 0.0
    n_slots = 1
    for unit in range(slots.shape[0]):
        if slots[unit] == 0:
            term.background_total[0] += term.background[unit]
            continue
        _shift(term, unit, slots[unit], 1)
        n_slots = max(n_slots, slots[unit] + 1)
    for slot in range(1, n_slots):
        _refresh(term, slot)


@part
def _joined(term, slot, pattern, sign):
    """Factorise the slot's precision with a Gram matrix added (or taken away) into `lower`.

    Return half the log determinant of C with the Gram matrix in, less that without.
    """
    gram, own = term.gram[pattern], term.part[pattern]
    precision = term.precision[slot]
    n = precision.shape[0]
    if term.n_part[pattern] == n:
        for i in range(n):
            for k in range(i + 1):
                term.matrix[i, k] = precision[i, k] + sign * gram[i, k]
    else:
        for i in range(n):
            for k in range(term.first[i], i + 1):
                term.matrix[i, k] = precision[i, k]
        for i in range(term.n_part[pattern]):
            for k in range(i + 1):
                term.matrix[own[i], own[k]] += sign * gram[i, k]
    log_det = -_factorise(term, term.matrix)
    return 0.5 * sign * (log_det - term.log_det[slot])


@part
def _coefficients(term, slot, pattern, out):
    """Write C, 2 C m and m' C m for the matrix factorised in `lower` as coefficients of h."""
    constant = solve_lower(term.lower, term.linear[slot], term.vector, term.first)
    own, n_own = term.part[pattern], term.n_part[pattern]
    lower, scratch, inverse = term.own[0], term.own[1], term.own[2]
    for k in range(lower.shape[0]):
        if k < n_own:
            # Left of the first it is of another time.
            begin = term.first[own[k]]
            term.solution[k] = term.vector[own[k]]
            for i in range(k + 1):
                lower[k, i] = term.lower[own[k], own[i]] if own[i] >= begin else 0.0
        else:
            # A smaller part, and nothing beside it.
            term.solution[k] = 0.0
            for i in range(k):
                lower[k, i] = 0.0
            lower[k, k] = 1.0
    invert(lower, scratch, inverse)
    solve_upper(lower, term.solution, term.vector)
    place = 0
    for k in range(n_own):
        out[place] = inverse[k, k]
        place += 1
        for i in range(k + 1, n_own):
            out[place] = 2.0 * inverse[k, i]
            place += 1
    for k in range(n_own):
        out[place] = 2.0 * term.vector[k]
        place += 1
    out[place] = constant


@part
def _products(vector, n_own, out):
    """Fill `out` with the quadratic features of `vector` (A,) that coefficients multiply."""
    place = 0
    for k in range(n_own):
        for i in range(k, n_own):
            out[place] = vector[k] * vector[i]
            place += 1
    for k in range(n_own):
        out[place] = vector[k]
        place += 1
    out[place] = 1.0


@part
def _moved(term, unit, slot, sign):
    """Add a unit's h to m of a slot (or subtract it), in thought: solve for it; return q."""
    pattern = term.pattern[unit]
    for k in range(term.vector.shape[0]):
        term.vector[k] = term.linear[slot, k]
    for k in range(term.n_part[pattern]):
        term.vector[term.part[pattern, k]] += sign * term.projected[unit, k]
    return solve_lower(term.lower, term.vector, term.solution, term.first)


@part
def _leave(term, unit, own):
    """Take `unit` out of slot `own`, in thought: return the drop in q, and half the log ratio."""
    pattern = term.pattern[unit]
    n_factors = term.n_part[pattern]
    if term.held[own] == 1:
        return term.quadratic[own], 0.5 * (term.log_det[own] - term.log_det[0])
    kept = term.kept[pattern]
    if kept < 0:
        half = _joined(term, own, pattern, -1)
        return term.quadratic[own] - _moved(term, unit, own, -1), half
    loss = term.loss[kept, own]
    if term.loss_stamp[kept, own] != term.version[own]:
        term.loss_log_det[kept, own] = _joined(term, own, pattern, -1)
        _coefficients(term, own, pattern, loss)
        term.loss_stamp[kept, own] = term.version[own]
    # (m - h)' C (m - h): the linear coefficients change their sign. Four sums run side by side.
    n_square = n_factors * (n_factors + 1) // 2
    n_products = n_square + n_factors + 1
    one = 0.0
    two = 0.0
    three = 0.0
    four = 0.0
    for quarter in range(n_square // 4):
        place = 4 * quarter
        one += loss[place] * term.products[place]
        two += loss[place + 1] * term.products[place + 1]
        three += loss[place + 2] * term.products[place + 2]
        four += loss[place + 3] * term.products[place + 3]
    for place in range(n_square // 4 * 4, n_square):
        one += loss[place] * term.products[place]
    for place in range(n_square, n_products - 1):
        two -= loss[place] * term.products[place]
    left = (one + two) + (three + four) + loss[n_products - 1]
    return term.quadratic[own] - left, term.loss_log_det[kept, own]


@part
def _gains(term, unit, n_slots):
    """Fill ``delta[0]`` with Delta_j and ``delta[1]`` with half the log determinant ratios."""
    pattern = term.pattern[unit]
    n_factors = term.n_part[pattern]
    kept = term.kept[pattern]
    delta = term.delta[0]
    half = term.delta[1]
    if kept < 0:
        for slot in range(n_slots):
            half[slot] = _joined(term, slot, pattern, 1)
            delta[slot] = _moved(term, unit, slot, 1) - term.quadratic[slot]
        return
    gain = term.gain[kept]
    n_products = n_factors * (n_factors + 1) // 2 + n_factors + 1
    if term.gain_epoch[kept] != term.epoch[0]:
        for slot in range(n_slots):
            if term.gain_stamp[kept, slot] != term.version[slot]:
                term.gain_log_det[kept, slot] = _joined(term, slot, pattern, 1)
                column = gain[:, slot]
                _coefficients(term, slot, pattern, column)
                column[n_products - 1] -= term.quadratic[slot]
                term.gain_stamp[kept, slot] = term.version[slot]
        term.gain_epoch[kept] = term.epoch[0]
    log_det = term.gain_log_det[kept]
    for slot in range(n_slots):
        half[slot] = log_det[slot]
    # Whole vectors of 8 slots; what lies beyond n_slots is never looked at.
    padded = (n_slots + 7) // 8 * 8
    constant = gain[n_products - 1]
    for slot in range(padded):
        delta[slot] = constant[slot]
    products = term.products
    n_fours = (n_products - 1) // 4
    for four in range(n_fours):
        place = 4 * four
        p0 = products[place]
        p1 = products[place + 1]
        p2 = products[place + 2]
        p3 = products[place + 3]
        g0 = gain[place]
        g1 = gain[place + 1]
        g2 = gain[place + 2]
        g3 = gain[place + 3]
        for slot in range(padded):
            delta[slot] += p0 * g0[slot] + p1 * g1[slot] + p2 * g2[slot] + p3 * g3[slot]
    for place in range(4 * n_fours, n_products - 1):
        p0 = products[place]
        g0 = gain[place]
        for slot in range(padded):
            delta[slot] += p0 * g0[slot]


@implements(protocol.score, ProjectedNormal)
def _score(term, unit, own, n_slots, out):
    delta = term.delta[0]
    half = term.delta[1]
    ratio = term.delta[2]
    _products(term.projected[unit], term.n_part[term.pattern[unit]], term.products)
    dropped = 0.0
    own_half = 0.0
    if own > 0:
        dropped, own_half = _leave(term, unit, own)
    _gains(term, unit, n_slots)
    if own > 0:
        delta[own] = dropped
        half[own] = own_half
    if term.given[0]:
        for slot in range(n_slots):
            out[slot] += half[slot] + 0.5 * delta[slot]
        if term.background.shape[0] > 0:
            out[n_slots] += term.background[unit]
        return
    # b' without the unit, plus its own sum of squares: what every candidate starts from.
    start = term.rate[0] + 0.5 * dropped
    shape = term.hyper[SHAPE]
    scale = -0.5 / start
    # Counted on its own: a running maximum would keep the series from being vectorised.
    far = 0
    for slot in range(n_slots):
        far += abs(delta[slot] * scale) > _SERIES
    padded = (n_slots + 7) // 8 * 8
    for slot in range(padded):
        x = delta[slot] * scale
        s = x / (2.0 + x)
        t = s * s
        series = 1.0 / 13.0 + t / 15.0
        series = 1.0 / 11.0 + t * series
        series = 1.0 / 9.0 + t * series
        series = 1.0 / 7.0 + t * series
        series = 1.0 / 5.0 + t * series
        series = 1.0 / 3.0 + t * series
        ratio[slot] = 2.0 * s * (1.0 + t * series)
    if far > 0:
        # b' is at least b; the bound only bites when rounding has eaten a difference of sums.
        lowest = term.hyper[RATE] / start - 1.0
        for slot in range(n_slots):
            x = delta[slot] * scale
            if abs(x) > _SERIES:
                ratio[slot] = log1p(max(x, lowest))
    for slot in range(n_slots):
        out[slot] += half[slot] - shape * ratio[slot]


@implements(protocol.log_evidence, ProjectedNormal)
def _log_evidence(term, n_slots):
    n_factors = term.linear.shape[1]
    if term.given[0]:
        total = term.hyper[NORMALISER] - term.rate[0] + term.background_total[0]
    else:
        total = term.hyper[NORMALISER] - term.hyper[SHAPE] * log(
            max(term.rate[0], term.hyper[RATE])
        )
    for slot in range(1, n_slots):
        total += 0.5 * (term.log_det[slot] + n_factors * log(term.hyper[LATENT]))
    return total


@part
def _group(term, slots, start, stop, n_slots):
    """Sum the statistics of the units `start` ... `stop` in every slot."""
    for slot in range(n_slots):
        term.group_held[slot] = 0
        term.group_linear[slot] = 0.0
        term.group_precision[slot] = 0.0
    for unit in range(start, stop):
        if slots[unit] > 0:
            held, precision, linear = term.group_held, term.group_precision, term.group_linear
            _add(term, unit, slots[unit], 1, held, precision, linear)


@part
def _joined_groups(term, group, slot):
    """Join what a slot holds of other assignments and a `group` (0: nothing) of this one.

    Return `log_det`, `quadratic`: of the precision (not of its inverse), and q.
    """
    n_factors = term.linear.shape[1]
    alone = term.held[slot] == term.group_held[slot]
    for k in range(n_factors):
        # Exactly empty, not nearly: what is left of a difference of sums would be noise.
        term.vector[k] = 0.0 if alone else term.linear[slot, k] - term.group_linear[slot, k]
        for i in range(k + 1):
            prior = term.hyper[LATENT] if i == k else 0.0
            rest = term.precision[slot, k, i] - term.group_precision[slot, k, i]
            term.matrix[k, i] = prior if alone else rest
        if group > 0:
            term.vector[k] += term.group_linear[group, k]
            for i in range(k + 1):
                term.matrix[k, i] += term.group_precision[group, k, i]
    log_det = _factorise(term, term.matrix)
    return log_det, solve_lower(term.lower, term.vector, term.solution, term.first)


@implements(protocol.tabulate, ProjectedNormal)
def _tabulate(term, slots, start, stop, n_slots, worth, shared):
    _group(term, slots, start, stop, n_slots)
    for slot in range(n_slots):
        log_det, quadratic = _joined_groups(term, 0, slot)
        for group in range(1, n_slots):
            if term.group_held[group] > 0:
                with_group, raised = _joined_groups(term, group, slot)
                worth[group, slot] += 0.5 * (log_det - with_group)
                shared[group, slot] += 0.5 * (quadratic - raised)


@implements(protocol.log_shared, ProjectedNormal)
def _log_shared(term, change):
    # What slots share is b'.
    if term.given[0]:
        return -change
    rate = max(term.rate[0], term.hyper[RATE])
    return -term.hyper[SHAPE] * log(max(rate + change, term.hyper[RATE]) / rate)


@entry
def draw_latent(rng, precision, linear, first, slot_of, shape, rate, lower, vector, out):
    """Draw the precision and every latent vector from their exact conditional (eq. 9 and 10).

    `precision`, `linear` (S, K, K), (S, K): inverse of C_j and m_j of every slot; slot 0 holds the
    prior's. `first` (K,): as in `ProjectedNormal`; `slot_of` (T,): slot of each label; labels
    without objects (0) draw from the prior. `shape`, `rate`: posterior a' and b'; a rate of 0 if
    the precision is known to be 1. `lower`, `vector` (K, K), (K,): scratch; `out` (T, K): filled
    with the latent vectors. Return the precision.
    """
    alpha = rng.standard_gamma(shape) / rate if rate > 0.0 else 1.0
    scale = alpha**-0.5
    for label in range(slot_of.shape[0]):
        slot = slot_of[label]
        factorise(precision[slot], lower, first)
        solve_lower(lower, linear[slot], vector, first)
        for k in range(vector.shape[0]):
            vector[k] += scale * rng.standard_normal()
        solve_upper_within(lower, first, vector, out[label])
    return alpha


def aligned_zeros(*shape: int) -> NDArray[np.float64]:
    """Zeros that begin at a cache line: vectors that straddle two cost nearly twice as much."""
    room = np.zeros(prod(shape) + 8)
    skip = -room.ctypes.data % 64 // 8
    return room[skip : skip + prod(shape)].reshape(shape)


class ProjectedNormalEvidence:
    """The data behind one `ProjectedNormal` term: all domains that share a latent and a precision.

    `domains`: their objects, one domain after the other, are the objects of the partition; `units`:
    what moves together; `flagged`: whether objects may be irrelevant; those with features only if
    no precision is integrated out. `deviations`: how many of the last factors are deviations of
    each domain, one domain after the other. Default: none. `powers`: to which the densities of each
    domain count, if no precision is integrated out. Default: 1.
    """

    def __init__(
        self,
        domains: Sequence[MaskedTable],
        units: Units,
        truncation: int,
        n_factors: int,
        flagged=False,
        deviations: Sequence[int] | None = None,
        powers: Sequence[float] | None = None,
    ):
        self.flagged = flagged
        self.domains = list(domains)
        self.powers = [1.0] * len(self.domains) if powers is None else list(powers)
        self.units = units
        self.truncation = truncation
        self.n_factors = n_factors
        self.n_values = sum(domain.n_values for domain in self.domains)
        widths = np.array([0 for _ in self.domains] if deviations is None else deviations)
        # Shared factors come last in the term.
        self._n_shared = n_factors - int(widths.sum())
        self._members, unit_pattern, seen = self._unit_patterns(widths)
        self.term = self._allocate(unit_pattern, widths, seen)

    def _unit_patterns(self, widths: NDArray[np.int64]):
        """Patterns of units: as (Q, P) counts of the objects' patterns, and one for each unit.

        And which factors each pattern has: (Q, K) boolean array.
        """
        offset = 0
        of_object, seen = [], []
        whose = np.repeat(np.arange(len(widths)), widths)
        for d, domain in enumerate(self.domains):
            rows, inverse = domain.patterns, domain.index
            of_object.append(inverse + offset)
            offset += len(rows)
            own = np.append(whose == d, np.ones(self._n_shared, np.bool_))
            seen.append(np.broadcast_to(own, (len(rows), len(own))))
        pattern = np.concatenate(of_object)
        parts = np.concatenate(seen)
        if not self.units.linked:
            return None, pattern, parts
        kinds: dict[tuple[int, ...], int] = {}
        unit_pattern = np.empty(len(self.units.size), np.int64)
        for unit, members in enumerate(self.units.members()):
            kind = tuple(sorted(pattern[members].tolist()))
            unit_pattern[unit] = kinds.setdefault(kind, len(kinds))
        counts = np.zeros((len(kinds), offset))
        for kind, number in kinds.items():
            np.add.at(counts[number], list(kind), 1.0)
        return counts, unit_pattern, counts @ parts > 0

    def _allocate(self, pattern, widths, seen) -> ProjectedNormal:
        k, slots = self.n_factors, capacity(self.truncation)
        usage = np.bincount(pattern)
        n_part = seen.sum(axis=1)
        a = int(n_part.max(initial=1))
        n_products = a * (a + 1) // 2 + a + 1
        first = np.append(
            np.repeat(np.cumsum(widths) - widths, widths), np.zeros(self._n_shared, np.int64)
        )
        room = _MOST_COEFFICIENTS // (2 * n_products * slots)
        common = np.argsort(-usage, kind="stable")[:room]
        common = common[usage[common] >= _COMMON]
        kept = np.full(len(usage), -1, np.int64)
        kept[common] = np.arange(len(common))
        n_kept = len(common)
        return ProjectedNormal(
            given=np.zeros(1, np.bool_),
            background=np.zeros(len(pattern) if self.flagged else 0),
            # If some pattern has all factors, nothing is to be had by leaving zeros out.
            first=first if a < k else np.zeros(k, np.int64),
            # Those that are there come first, in their order.
            part=np.ascontiguousarray(np.argsort(~seen, axis=1, kind="stable")[:, :a]),
            n_part=n_part,
            pattern=np.ascontiguousarray(pattern),
            kept=kept,
            gain=aligned_zeros(n_kept, n_products, slots),
            gain_log_det=aligned_zeros(n_kept, slots),
            gain_stamp=np.full((n_kept, slots), -1, np.int64),
            gain_epoch=np.full(n_kept, -1, np.int64),
            loss=aligned_zeros(n_kept, slots, n_products),
            loss_stamp=np.full((n_kept, slots), -1, np.int64),
            products=aligned_zeros(n_products),
            delta=aligned_zeros(3, slots),
            **zeros("held S, version S, epoch 1, group_held S", np.int64, S=slots),
            **zeros(
                "hyper 4, rate 1, background_total 1, projected U A, gram P A A, precision S K K, "
                "linear S K, quadratic S, log_det S, loss_log_det Q S, matrix K K, lower K K, "
                "own 3 A A, vector K, solution K, group_precision S K K, group_linear S K",
                U=len(pattern),
                P=len(usage),
                Q=n_kept,
                A=a,
                S=slots,
                K=k,
            ),
        )

    def load(
        self,
        emissions: Sequence[Emission],
        slots: NDArray[np.int64],
        latent_precision: float,
        gamma: tuple[float, float] | None = None,
        background: NDArray[np.float64] | None = None,
    ) -> None:
        """Bring the term to a point.

        `emissions`: of every domain; `slots` (U,): the slot of every unit, 0 if it is irrelevant;
        `latent_precision`: r; `gamma` (float, float): shape and rate of the prior of a precision
        that multiplies those of all noise and of the latent vectors, and is integrated out;
        `background` (N,): log density of every object as an irrelevant one, without such a
        precision.
        """
        pairs = zip(emissions, self.domains, self.powers, strict=True)
        found = [e.statistics(data).to_the(power) for e, data, power in pairs]
        term, k = self.term, self.n_factors
        squares = sum(float(own.squares.sum()) for own in found)
        term.hyper[LATENT] = latent_precision
        term.hyper[NORMALISER] = sum(float(own.constants.sum()) for own in found)
        term.given[0] = gamma is None
        term.hyper[SHAPE] = term.hyper[RATE] = 0.0
        if gamma is not None:
            shape, rate = gamma
            term.hyper[SHAPE] = shape + 0.5 * self.n_values
            term.hyper[RATE] = rate
            term.hyper[NORMALISER] += shape * log(rate) - lgamma(shape) + lgamma(term.hyper[SHAPE])
        gram = np.concatenate([own.gram for own in found])
        if self._members is not None:
            gram = (self._members @ gram.reshape(len(gram), k * k)).reshape(-1, k, k)
        projected = self.units.total(np.concatenate([own.projected for own in found]))
        # Where the term's factors are in those of emissions; beyond a part's number, never read.
        place = (term.part + self._n_shared) % k
        term.gram[:] = np.take_along_axis(
            np.take_along_axis(gram, place[:, :, None], axis=1), place[:, None, :], axis=2
        )
        term.projected[:] = np.take_along_axis(projected, place[term.pattern], axis=1)
        if background is not None:
            each = np.concatenate([0.5 * own.squares - own.constants for own in found])
            term.background[:] = self.units.total(background + each)
        rebuild(term, slots, squares)

    def kernels(self, slot_of: NDArray[np.int64]) -> list[Job]:
        """List what `load` and `draw` call."""
        own, rng, latent = self.term, np.random.default_rng(), np.empty((0, self.n_factors))
        given = own.precision, own.linear, own.first, slot_of, 1.0, 1.0, own.lower, own.vector
        return [job(rebuild, own, slot_of, 1.0), job(draw_latent, rng, *given, latent)]

    def shared_precision(self) -> tuple[float, float]:
        """Return shape and rate of a shared precision's conditional; rate 0 if there is none."""
        term = self.term
        rate = 0.0 if term.given[0] else max(term.rate[0], term.hyper[RATE])
        return float(term.hyper[SHAPE]), float(rate)

    def draw(
        self, rng: np.random.Generator, slot_of: NDArray[np.int64]
    ) -> tuple[float, NDArray[np.float64]]:
        """Draw the shared precision and the factors (T, K) given the term's present state.

        The precision is 1 if it is not integrated out.
        """
        term = self.term
        latent = np.empty((self.truncation, self.n_factors))
        shape, rate = self.shared_precision()
        alpha = draw_latent(
            rng,
            term.precision,
            term.linear,
            term.first,
            slot_of,
            shape,
            rate,
            term.lower,
            term.vector,
            latent,
        )
        return alpha, np.roll(latent, self._n_shared, axis=1)


def log_marginal(
    domains: Sequence[MaskedTable],
    emissions: Sequence[Emission],
    labels: NDArray[np.int64],
    latent_precision: float,
    gamma: tuple[float, float] | None = None,
    background: NDArray[np.float64] | None = None,
    powers: Sequence[float] | None = None,
) -> float:
    """Log p(X | s, W, ...) by the plain formula, object after object: slow and obvious.

    With one shared precision eq. (4), and (23)-(26) with missing values.

    `labels` (N,): cluster of every object, domain after domain; -1 for irrelevant ones;
    `latent_precision`, `gamma`, `background`: as in `ProjectedNormalEvidence.load`; `powers`: to
    which the densities of each domain count. Default: 1.
    """
    powers = [1.0] * len(domains) if powers is None else powers
    r, k = latent_precision, emissions[0].projection.shape[1]
    by_domain = np.split(np.asarray(labels), np.cumsum([len(d.values) for d in domains])[:-1])
    total = 0.0 if background is None else float(background[np.asarray(labels) < 0].sum())
    squares: Any = 0.0
    n_values = 0
    for j in sorted(set(np.asarray(labels).tolist()) - {-1}):
        precision, linear = r * np.eye(k), np.zeros(k)
        own = zip(domains, emissions, by_domain, powers, strict=True)
        for domain, emission, label, power in own:
            for n in np.flatnonzero(label == j):
                m = len(emission.intercept)
                seen = np.ones(m, bool) if domain.observed is None else domain.observed[n]
                noise = np.linalg.inv(emission.covariance[np.ix_(seen, seen)])
                x, w = (domain.values[n] - emission.intercept)[seen], emission.projection[seen]
                precision += power * w.T @ noise @ w
                linear += power * w.T @ noise @ x
                squares += power * x @ noise @ x
                log_root = 0.5 * np.linalg.slogdet(noise)[1]
                total += power * (log_root - 0.5 * seen.sum() * log(2.0 * pi))
                n_values += int(seen.sum())
        squares -= linear @ np.linalg.solve(precision, linear)
        total += 0.5 * (k * log(r) - np.linalg.slogdet(precision)[1])
    if gamma is None:
        return float(total - 0.5 * squares)
    shape, rate = gamma
    after = shape + 0.5 * n_values
    total += shape * log(rate) - after * log(rate + 0.5 * squares)
    return float(total + lgamma(after) - lgamma(shape))
