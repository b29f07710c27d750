r"""The term of independent columns: conjugate exponential families, parameters integrated out.

A *position* is one parameter of every cluster that has a conjugate prior of its own: the rate of a
column of counts, say. What a unit has there are sufficient statistics t; a slot has those of its
units together, s. Both are up to three numbers, of one of four kinds:

- Gamma prior (a, b) of a rate: :math:`s = (\sum x, \sum e)` for counts, (number, sum) for times:
  :math:`\log\Gamma(a + s_0) - (a + s_0) \log(b + s_1)`;
- Dirichlet prior (Beta with two categories): every category is a position with its
  :math:`\alpha_k`, and so is the total, with :math:`\alpha_0 = \sum_k \alpha_k` and the sign -1:
  :math:`\sum_k \log\Gamma(\alpha_k + s_k) - \log\Gamma(\alpha_0 + s_0)`. What a unit has
  nothing of costs nothing;
- normal prior (m, k) of a mean, precision k: s is the weight w (of known precisions), the mean
  :math:`\bar x` and the scatter :math:`q = \sum w (x - \bar x)^2`:
  :math:`\tfrac12 \log \frac{k}{k + w} - \tfrac12 q - \tfrac12 \frac{k w}{k + w} (\bar x - m)^2`;
- normal-Gamma prior (m, k, a, b) of mean and precision: with the same, w being a number,
  :math:`a' = a + w / 2` and
  :math:`b' = b + \tfrac12 q + \tfrac12 \frac{k w}{k + w} (\bar x - m)^2`:
  :math:`\tfrac12 \log \frac{k}{k + w} + \log \Gamma(a') - a' \log b'`.

All that the kernel asks for is the `gain` of adding t to s, the difference of these. Where few
different t are seen at a position (a *level* is one of them), gains are kept for every slot, side
by side, so that a unit is scored in all slots by adding up rows. What a move changes is marked, and
computed when it is looked at again. Single continuous values have no levels; of their gains the
four numbers are kept that depend on the slot alone.

Counts, and sums of whole exposures, are few different numbers: the logs of rising factorials and
the logs that their gains are made of are read from tables, filled where they are looked at.
"""

from math import floor, log, log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.conjugate import DIRICHLET, GAMMA, NORMAL, NORMAL_GAMMA
from pm_match.clusters.protocol import implements
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import log_rising
from pm_match.numerics.logs import log_of_one_and

# A log_rising of log gamma by a whole number up to this is the log of a product.
_FACTORS = 8.0
# What is left of a weight below this share of what was taken off is rounding.
_ROUNDING = 1e-9


class ColumnsTerm(NamedTuple):
    """State of the term, for U units, S slots, P positions, E entries, L levels, R of them kept."""

    code: NDArray[np.int64]  # (1,): The kind of prior, DIRICHLET ... NORMAL_GAMMA.
    prior: NDArray[np.float64]  # (P, 4): of a Gamma prior a, b, and log b
    start: NDArray[np.int64]  # (U + 1,): where the entries of each unit begin
    level: NDArray[np.int32]  # (E,): the level of every entry
    position: NDArray[np.int32]  # (L,)
    statistic: NDArray[np.float64]  # (L, 3): the position of every level, and t
    row: NDArray[np.int32]  # (L,): the row of its gains, -1 if they are not kept
    row_level: NDArray[np.int32]  # (R,): the level of every row
    sums: NDArray[np.float64]  # (P, S, 3): s, of which a Dirichlet prior needs the first
    version: NDArray[np.int64]  # (P,): changes so far at a position, in any slot; of these
    slot_version: NDArray[np.int32]  # (P, S): in each
    # gains, left (R, S): gains of the levels in every slot; and if the unit is in the slot, and
    # leaves it
    gains: NDArray[np.float64]
    left: NDArray[np.float64]
    # row_version, gains_version, left_version (R,), (R, S), (R, S): the versions that they were
    # computed from
    row_version: NDArray[np.int64]
    gains_version: NDArray[np.int32]
    left_version: NDArray[np.int32]
    weight: NDArray[np.float64]  # (P,): t_0 of single values, NaN if they differ
    # (P, 4, S): what gains of single values are made of (see `_prepare`)
    ready: NDArray[np.float64]
    # ready_version, slot_ready (P,), (P, S): the versions that it was computed from
    ready_version: NDArray[np.int64]
    slot_ready: NDArray[np.int32]
    # (1,): 1 if all sums have changed, 2 if the prior has, and with it all that is kept; otherwise
    # 0
    stale: NDArray[np.int8]
    constant: NDArray[np.float64]  # (1,): what only the data enter
    # (X,): for n = 0, 1, ... log gamma(a + n) - log gamma(a), or with alpha, of each position, and
    # log(1 + n / b); NaN if yet to be computed
    table: NDArray[np.float64]
    first: NDArray[np.int64]  # (P, 2): where these begin; -1 if there are none
    total: NDArray[np.float64]  # (S,)
    apart: NDArray[np.float64]  # (P, S, 3): scratch


# -- statistics -----------------------------------------------------------------------------------


@part
def _held(code, sums, p, slot):
    """Return s of a slot at a position."""
    if code == DIRICHLET:
        return sums[p, slot, 0], 0.0, 0.0
    return sums[p, slot, 0], sums[p, slot, 1], sums[p, slot, 2]


@part
def _together(code, s, t):
    """Add t to s."""
    if code <= GAMMA:
        return s[0] + t[0], s[1] + t[1], 0.0
    weight = s[0] + t[0]
    if t[0] == 0.0:
        return s
    away = t[1] - s[1]
    share = t[0] / weight
    return weight, s[1] + share * away, s[2] + t[2] + s[0] * share * away * away


@part
def _without(code, s, t):
    """Take t, which is in s, out of it."""
    if code <= GAMMA:
        return s[0] - t[0], s[1] - t[1], 0.0
    weight = s[0] - t[0]
    if t[0] == 0.0:
        return s
    if weight <= _ROUNDING * t[0]:
        return 0.0, 0.0, 0.0
    away = t[1] - s[1]
    mean = s[1] - t[0] / weight * away
    away = t[1] - mean
    return weight, mean, max(s[2] - t[2] - weight * t[0] / s[0] * away * away, 0.0)


@part
def _store(code, sums, p, slot, s):
    sums[p, slot, 0] = s[0]
    if code != DIRICHLET:
        sums[p, slot, 1] = s[1]
        sums[p, slot, 2] = s[2]


@part
def _of_level(term, level):
    """Return t of a level."""
    return term.statistic[level, 0], term.statistic[level, 1], term.statistic[level, 2]


# -- gains ----------------------------------------------------------------------------------------


@part
def _quick_log_rising(x, h):
    """Log gamma(x + h) - log gamma(x), fast where h is a small whole number."""
    if h == 1.0:
        return log(x)
    if h <= _FACTORS and h == floor(h):
        product = 1.0
        for i in range(int(h)):
            product *= x + i
        return log(product)
    return log_rising(x, h)


@part
def gain(code, prior, s, t):
    """Log marginal likelihood of t given s, without what only t enters (see the module)."""
    if code == DIRICHLET:
        return prior[1] * _quick_log_rising(prior[0] + s[0], t[0])
    if code == GAMMA:
        a, b = prior[0] + s[0], prior[1] + s[1]
        return _quick_log_rising(a, t[0]) - a * log1p(t[1] / b) - t[0] * log(b + t[1])
    mean, strength = _posterior_mean(prior, s)
    away = t[1] - mean
    square = 0.5 * t[2] + 0.5 * strength * t[0] / (strength + t[0]) * away * away
    if code == NORMAL:
        return -0.5 * log1p(t[0] / strength) - square
    a, b = prior[2] + 0.5 * s[0], _posterior_rate(prior, s)
    half = 0.5 * t[0]
    return (
        log_rising(a, half)
        - 0.5 * log1p(t[0] / strength)
        - (a + half) * log1p(square / b)
        - half * log(b)
    )


@part
def _looked_up(term, code, p, s, t):
    """`gain` at a position, from its tables if it has some."""
    first, prior = term.first[p], term.prior[p]
    if first[0] < 0:
        return gain(code, prior, s, t)
    number, more = int(s[0]), int(t[0])
    rise = _rising(term.table, first[0], prior[0], number + more)
    rise -= _rising(term.table, first[0], prior[0], number)
    if code == DIRICHLET:
        return prior[1] * rise
    before = _log_of_one_and(term.table, first[1], prior[1], int(s[1]))
    after = _log_of_one_and(term.table, first[1], prior[1], int(s[1] + t[1]))
    return rise - (prior[0] + s[0]) * (after - before) - t[0] * (after + prior[2])


@part
def _rising(table, first, x, n):
    found = table[first + n]
    if found != found:
        found = table[first + n] = log_rising(x, float(n))
    return found


@part
def _log_of_one_and(table, first, x, n):
    found = table[first + n]
    if found != found:
        found = table[first + n] = log1p(n / x)
    return found


@part
def _posterior_mean(prior, s):
    """Mean of a mean, and its precision (over that of the data, if that is not known)."""
    strength = prior[1] + s[0]
    return prior[0] + s[0] / strength * (s[1] - prior[0]), strength


@part
def _posterior_rate(prior, s):
    away = s[1] - prior[0]
    return prior[3] + 0.5 * s[2] + 0.5 * prior[1] * s[0] / (prior[1] + s[0]) * away * away


@part
def _prepare(term, p, n_slots):
    """Compute what gains of a single value x are made of, in every slot of a position.

    That is c, m, r and h, of which a gain is c - h log(1 + r x), c - r (x - m)^2 or
    c - h log(1 + r (x - m)^2), by the kind of prior.
    """
    code, prior, weight, ready = term.code[0], term.prior[p], term.weight[p], term.ready[p]
    for slot in range(n_slots):
        if term.slot_ready[p, slot] == term.slot_version[p, slot]:
            continue
        term.slot_ready[p, slot] = term.slot_version[p, slot]
        s = _held(code, term.sums, p, slot)
        if code == GAMMA:
            a, b = prior[0] + s[0], prior[1] + s[1]
            ready[0, slot] = _quick_log_rising(a, weight) - weight * log(b)
            ready[2, slot] = 1.0 / b
            ready[3, slot] = a + weight
            continue
        mean, strength = _posterior_mean(prior, s)
        ready[1, slot] = mean
        ready[0, slot] = -0.5 * log1p(weight / strength)
        ready[2, slot] = 0.5 * strength * weight / (strength + weight)
        if code == NORMAL_GAMMA:
            a, b = prior[2] + 0.5 * s[0], _posterior_rate(prior, s)
            ready[0, slot] += log_rising(a, 0.5 * weight) - 0.5 * weight * log(b)
            ready[2, slot] /= b
            ready[3, slot] = a + 0.5 * weight
    term.ready_version[p] = term.version[p]


@part
def _refresh(term, row, n_slots):
    """Compute the gains of a level that have changed."""
    level = term.row_level[row]
    p, t, code = term.position[level], _of_level(term, level), term.code[0]
    gains, seen, present = term.gains[row], term.gains_version[row], term.slot_version[p]
    for slot in range(n_slots):
        if seen[slot] != present[slot]:
            gains[slot] = _looked_up(term, code, p, _held(code, term.sums, p, slot), t)
            seen[slot] = present[slot]
    term.row_version[row] = term.version[p]


@part
def _left_gain(term, level, slot):
    """Gain of a level that is in a slot, as if it had left it."""
    p, t, code = term.position[level], _of_level(term, level), term.code[0]
    return _looked_up(term, code, p, _without(code, _held(code, term.sums, p, slot), t), t)


@part
def _mark(term, p, slot):
    """Mark what was computed of a slot at a position: its statistics have changed."""
    term.slot_version[p, slot] += 1
    term.version[p] += 1


@part
def _mark_all(term):
    for p in range(term.prior.shape[0]):
        for slot in range(term.sums.shape[1]):
            _mark(term, p, slot)
    if term.stale[0] > 1:
        term.table[:] = np.nan
    term.stale[0] = 0


# -- the protocol ---------------------------------------------------------------------------------


@implements(protocol.score, ColumnsTerm)
def _score(term, unit, own, n_slots, out):
    if term.stale[0] != 0:
        _mark_all(term)
    code, mine, total = term.code[0], 0.0, term.total
    # In whole blocks: what is added beyond the last slot is never read.
    width = min((n_slots + 7) // 8 * 8, total.shape[0])
    for slot in range(width):
        total[slot] = 0.0
    for number in range(term.start[unit], term.start[unit + 1]):
        level = term.level[number]
        row, p = term.row[level], term.position[level]
        if row >= 0:
            if term.row_version[row] != term.version[p]:
                _refresh(term, row, n_slots)
            gains = term.gains[row]
            for slot in range(width):
                total[slot] += gains[slot]
            if term.left_version[row, own] != term.slot_version[p, own]:
                term.left[row, own] = _left_gain(term, level, own)
                term.left_version[row, own] = term.slot_version[p, own]
            mine += term.left[row, own]
            continue
        t = _of_level(term, level)
        # What several values of a unit add up to may have their weight, but a scatter as well.
        if term.ready.shape[0] > 0 and t[0] == term.weight[p] and t[2] == 0.0:
            if term.ready_version[p] != term.version[p]:
                _prepare(term, p, n_slots)
            _add_single(code, term.ready[p], t[1], width, total)
        else:
            for slot in range(n_slots):
                total[slot] += _looked_up(term, code, p, _held(code, term.sums, p, slot), t)
        mine += _left_gain(term, level, own)
    # Its own slot without it.
    total[own] = mine
    for slot in range(n_slots):
        out[slot] += total[slot]


@part
def _add_single(code, ready, x, width, out):
    c, mean, r, h = ready[0], ready[1], ready[2], ready[3]
    if code == NORMAL:
        for slot in range(width):
            out[slot] += c[slot] - r[slot] * (x - mean[slot]) * (x - mean[slot])
    elif code == NORMAL_GAMMA:
        for slot in range(width):
            q = r[slot] * (x - mean[slot]) * (x - mean[slot])
            out[slot] += c[slot] - h[slot] * log_of_one_and(q)
    else:
        for slot in range(width):
            out[slot] += c[slot] - h[slot] * log_of_one_and(r[slot] * x)


@implements(protocol.move, ColumnsTerm)
def _move(term, unit, source, target):
    code = term.code[0]
    for number in range(term.start[unit], term.start[unit + 1]):
        level = term.level[number]
        p, t = term.position[level], _of_level(term, level)
        _store(code, term.sums, p, source, _without(code, _held(code, term.sums, p, source), t))
        _store(code, term.sums, p, target, _together(code, _held(code, term.sums, p, target), t))
        _mark(term, p, source)
        _mark(term, p, target)


@implements(protocol.clear, ColumnsTerm)
def _clear(term, slot):
    code = term.code[0]
    for p in range(term.prior.shape[0]):
        _store(code, term.sums, p, slot, (0.0, 0.0, 0.0))
        _mark(term, p, slot)


@implements(protocol.relocate, ColumnsTerm)
def _relocate(term, source, target):
    code = term.code[0]
    for p in range(term.prior.shape[0]):
        _store(code, term.sums, p, target, _held(code, term.sums, p, source))
        _mark(term, p, target)


@implements(protocol.log_evidence, ColumnsTerm)
def _log_evidence(term, n_slots):
    code, total, nothing = term.code[0], term.constant[0], (0.0, 0.0, 0.0)
    for p in range(term.prior.shape[0]):
        for slot in range(1, n_slots):
            s = _held(code, term.sums, p, slot)
            if s[0] != 0.0 or s[1] != 0.0:
                total += gain(code, term.prior[p], nothing, s)
    return total


@implements(protocol.tabulate, ColumnsTerm)
def _tabulate(term, slots, start, stop, n_slots, worth, shared):
    code, apart, nothing = term.code[0], term.apart, (0.0, 0.0, 0.0)
    for p in range(term.prior.shape[0]):
        for slot in range(n_slots):
            _store(code, apart, p, slot, nothing)
    for unit in range(start, stop):
        for number in range(term.start[unit], term.start[unit + 1]):
            level = term.level[number]
            p, slot = term.position[level], slots[unit]
            both = _together(code, _held(code, apart, p, slot), _of_level(term, level))
            _store(code, apart, p, slot, both)
    for p in range(term.prior.shape[0]):
        for j in range(n_slots):
            others = _without(code, _held(code, term.sums, p, j), _held(code, apart, p, j))
            for g in range(1, n_slots):
                t = _held(code, apart, p, g)
                if t[0] != 0.0 or t[1] != 0.0:
                    worth[g, j] += gain(code, term.prior[p], others, t)


@entry
def rebuild(term, slots):
    """Compute the sums from scratch, for units in the given `slots` (U,)."""
    code = term.code[0]
    term.sums[:] = 0.0
    for unit in range(slots.shape[0]):
        for number in range(term.start[unit], term.start[unit + 1]):
            level = term.level[number]
            p, slot = term.position[level], slots[unit]
            both = _together(code, _held(code, term.sums, p, slot), _of_level(term, level))
            _store(code, term.sums, p, slot, both)
    term.stale[0] = max(term.stale[0], 1)


@entry
def add_gains(term, start, position, statistic, n_slots, out):
    """Add to `out` (N, S) the gains of N new units in every slot, given as the term's own are."""
    code = term.code[0]
    for unit in range(out.shape[0]):
        for number in range(start[unit], start[unit + 1]):
            p = position[number]
            t = statistic[number, 0], statistic[number, 1], statistic[number, 2]
            for slot in range(n_slots):
                out[unit, slot] += gain(code, term.prior[p], _held(code, term.sums, p, slot), t)
