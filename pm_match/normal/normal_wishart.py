r"""Normal clusters with means and precisions of their own, integrated out.

Vectors :math:`x_n` of the objects of cluster j, and its parameters, which are conjugate:

.. math:: x_n \sim N(\mu_j, \Lambda_j^{-1}), \quad
          \mu_j \mid \Lambda_j \sim N(m_0, (\kappa_0 \Lambda_j)^{-1}), \quad
          \Lambda_j \sim \mathrm{Wishart}(\nu_0, \Psi_0^{-1})

With n vectors of mean :math:`\bar x` and scatter :math:`S` in the cluster (Murphy 2007, "Conjugate
Bayesian analysis of the Gaussian distribution", section 8; the covariance is inverse Wishart),

.. math:: \kappa_j = \kappa_0 + n, \quad \nu_j = \nu_0 + n, \quad
          m_j = \frac{\kappa_0 m_0 + n \bar x}{\kappa_j}, \quad
          \Psi_j = \Psi_0 + S + \frac{\kappa_0 n}{\kappa_j} (\bar x - m_0)(\bar x - m_0)^\top,

.. math:: p(x_1, \dots, x_n) = \pi^{-nD/2} \frac{\Gamma_D(\nu_j / 2)}{\Gamma_D(\nu_0 / 2)}
          \frac{|\Psi_0|^{\nu_0/2}}{|\Psi_j|^{\nu_j/2}}
          \left(\frac{\kappa_0}{\kappa_j}\right)^{D/2}.

A unit of n vectors with mean x and scatter W takes :math:`\Psi_j` to

.. math:: \Psi_j + W + \frac{\kappa_j n}{\kappa_j + n} (x - m_j)(x - m_j)^\top,

which for one vector (W = 0) is of rank one: with :math:`\Psi_j^{-1}` at hand, its predictive, a
multivariate t, costs :math:`D^2`, and so does a move.

Where the densities of vectors count to a power :math:`\zeta` (`coarsen`), each vector is worth
:math:`\zeta` of one in all of these but :math:`\pi^{-\zeta nD/2}`.

Where precisions have factors, :math:`x_n \sim N(\mu_j, (u_n \Lambda_j)^{-1})`, a vector weighs
:math:`\zeta u_n` in :math:`\kappa_j`, in means and in scatters, and counts as before in
:math:`\nu_j`; and the density has another factor :math:`\prod_n u_n^{\zeta D/2}`.
"""

from math import lgamma, log, log1p, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.clusters.sweep import capacity
from pm_match.normal.conjugate import NormalEvidence
from pm_match.normal.normal_rows import NormalRows
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import factorise, invert
from pm_match.numerics.kernels import entry, inlined, part
from pm_match.numerics.zeros import zeros

# Updates of rank one after which an inverse is computed anew: rounding errors do not add up.
_REFRESH = 256
# Where the power of the vectors' densities is in `NormalWishart.hyper`.
POWER = 5


class NormalWishart(NamedTuple):
    """State of the term, for U units, S slots, D features, Q units of several vectors."""

    # (6,): strength and degrees of the prior; log determinant of its inverse scale; log Gamma_D of
    # half its degrees; a constant of the log evidence; the power of the vectors' densities
    hyper: NDArray[np.float64]
    # (N + 1,): log Gamma_D of half the degrees of a cluster, by the number of its vectors
    log_gamma: NDArray[np.float64]
    # prior_scatter, prior_inverse (D, D)
    prior_scatter: NDArray[np.float64]
    prior_inverse: NDArray[np.float64]
    # size, weight (U,): vectors in each unit, objects may have none; and what they weigh
    size: NDArray[np.float64]
    weight: NDArray[np.float64]
    value: NDArray[np.float64]  # (U, D): their weighted means, less the prior's centre
    # (U,): the row of `within` for units of more than one vector, otherwise -1
    several: NDArray[np.int64]
    # (Q, D, D): weighted scatter of these vectors around their means
    within: NDArray[np.float64]
    # held, held_weight, log_det (S,): vectors in each slot, and what they weigh; log determinant
    # of its scatter
    held: NDArray[np.float64]
    held_weight: NDArray[np.float64]
    log_det: NDArray[np.float64]
    mean: NDArray[np.float64]  # (S, D): m_j, less the prior's centre
    # scatter, inverse (S, D, D): Psi_j, and its inverse
    scatter: NDArray[np.float64]
    inverse: NDArray[np.float64]
    updates: NDArray[np.int64]  # (S,): of the inverse, since it was computed afresh
    # away, product (D,): scratch
    away: NDArray[np.float64]
    product: NDArray[np.float64]
    # matrix, lower, scratch (D, D): scratch
    matrix: NDArray[np.float64]
    lower: NDArray[np.float64]
    scratch: NDArray[np.float64]
    # Scratch: vectors of one assignment in each slot, and of the others, and what they weigh
    # (2, S); their means, less the prior's centre (2, S, D); and scatter about these (2, S, D, D).
    part_held: NDArray[np.float64]
    part_weight: NDArray[np.float64]
    part_mean: NDArray[np.float64]
    part_scatter: NDArray[np.float64]


@inlined
def away_from(value, mean, away):
    """Fill `away` with `value` less `mean`."""
    for i in range(value.shape[0]):
        away[i] = value[i] - mean[i]


@inlined
def quadratic(matrix, vector, product):
    """Return ``vector @ matrix @ vector`` for a symmetric `matrix`; `product` is its product."""
    n = vector.shape[0]
    for i in range(n):
        product[i] = 0.0
    for k in range(n):
        v = vector[k]
        for i in range(n):
            product[i] += matrix[k, i] * v
    total = 0.0
    for i in range(n):
        total += product[i] * vector[i]
    return total


@part
def add_outer(matrix, vector, weight):
    """Add `weight` times the outer product of `vector` to a symmetric `matrix`."""
    n = vector.shape[0]
    for i in range(n):
        scaled = weight * vector[i]
        for k in range(n):
            matrix[i, k] += scaled * vector[k]


@part
def log_det_with(term, slot, unit, weight, sign):
    """Log determinant of a slot's scatter with (or without) a unit of several vectors.

    `away` holds the unit's distance from the slot's mean, and `matrix` comes to hold the scatter.
    """
    n = term.away.shape[0]
    row = term.several[unit]
    for i in range(n):
        scaled = weight * term.away[i]
        for k in range(i + 1):
            term.matrix[i, k] = term.scatter[slot, i, k] + sign * (
                term.within[row, i, k] + scaled * term.away[k]
            )
    return factorise(term.matrix, term.lower)


@inlined
def joining(term, unit, slot):
    """Log predictive of a unit in a slot that it is not in."""
    size, d, power = term.size[unit], term.value.shape[1], term.hyper[POWER]
    before, n, own = term.held[slot], power * size, term.weight[unit]
    strength = term.hyper[0] + term.held_weight[slot]
    degrees = term.hyper[1] + power * before
    weight = strength * own / (strength + own)
    away_from(term.value[unit], term.mean[slot], term.away)
    if term.several[unit] < 0:
        grown = log1p(weight * quadratic(term.inverse[slot], term.away, term.product))
    else:
        grown = log_det_with(term, slot, unit, weight, 1.0) - term.log_det[slot]
    return (
        term.log_gamma[int(before + size)]
        - term.log_gamma[int(before)]
        - 0.5 * (degrees + n) * grown
        - 0.5 * n * term.log_det[slot]
        - 0.5 * d * log1p(own / strength)
    )


@inlined
def rejoining(term, unit, slot):
    """Log predictive of a unit in the slot that it is in, as if it were out of it."""
    size, d, power = term.size[unit], term.value.shape[1], term.hyper[POWER]
    before, n, own = term.held[slot] - size, power * size, term.weight[unit]
    strength = term.hyper[0] + term.held_weight[slot] - own
    degrees = term.hyper[1] + power * before
    # From the mean without the unit it is (strength + own) / strength times as far as with it.
    weight = (strength + own) * own / strength
    away_from(term.value[unit], term.mean[slot], term.away)
    if term.several[unit] < 0:
        shrunk = log1p(-weight * quadratic(term.inverse[slot], term.away, term.product))
    else:
        shrunk = log_det_with(term, slot, unit, weight, -1.0) - term.log_det[slot]
    return (
        term.log_gamma[int(before + size)]
        - term.log_gamma[int(before)]
        + 0.5 * degrees * shrunk
        - 0.5 * n * term.log_det[slot]
        - 0.5 * d * log1p(own / strength)
    )


@implements(protocol.score, NormalWishart)
def _score(term, unit, own, n_slots, out):
    if term.size[unit] == 0.0:
        return
    empty = joining(term, unit, 0)
    for slot in range(n_slots):
        if slot == 0:
            out[slot] += empty
        elif slot != own:
            out[slot] += joining(term, unit, slot)
        elif term.held[slot] == term.size[unit]:
            # Without the unit its cluster is empty, and scores as any other.
            out[slot] += empty
        else:
            out[slot] += rejoining(term, unit, slot)


@part
def refresh(term, slot):
    """Compute a slot's inverse and log determinant from its scatter."""
    term.log_det[slot] = factorise(term.scatter[slot], term.lower)
    invert(term.lower, term.scratch, term.inverse[slot])
    term.updates[slot] = 0


@part
def shift(term, unit, slot, sign, scatter):
    """Add a unit's mean to that of a slot and to its `scatter` (`sign` 1), or take it out (-1).

    One unit after the other, by updates of rank one: no large numbers are subtracted.

    Return what the outer product of `away`, the unit's distance from the mean before, is weighted
    by.
    """
    n = term.weight[unit]
    strength = term.hyper[0] + term.held_weight[slot]
    after = strength + sign * n
    weight = sign * strength * n / after
    away_from(term.value[unit], term.mean[slot], term.away)
    add_outer(scatter, term.away, weight)
    for i in range(term.away.shape[0]):
        term.mean[slot, i] += sign * n / after * term.away[i]
    term.held_weight[slot] += sign * n
    return weight


@part
def add_within(term, unit, scatter, sign):
    """Add the scatter within a unit of several vectors to that of a slot, or take it out."""
    row = term.several[unit]
    if row >= 0:
        for i in range(term.away.shape[0]):
            for k in range(term.away.shape[0]):
                scatter[i, k] += sign * term.within[row, i, k]


@part
def add_unit(term, unit, slot, sign):
    """Add a unit to a slot (`sign` 1), or take it out again (-1)."""
    n = term.size[unit]
    if n == 0.0:
        return
    if sign < 0.0 and term.held[slot] == n:
        # The kernel clears a slot that has become empty, but not before it may look at it.
        protocol.clear(term, slot)
        return
    weight = shift(term, unit, slot, sign, term.scatter[slot])
    term.held[slot] += sign * n
    add_within(term, unit, term.scatter[slot], sign)
    term.updates[slot] += 1
    if term.several[unit] >= 0 or term.updates[slot] >= _REFRESH:
        refresh(term, slot)
        return
    q = weight * quadratic(term.inverse[slot], term.away, term.product)
    add_outer(term.inverse[slot], term.product, -weight / (1.0 + q))
    term.log_det[slot] += log1p(q)


@implements(protocol.move, NormalWishart)
def _move(term, unit, source, target):
    if source > 0:
        add_unit(term, unit, source, -1.0)
    if target > 0:
        add_unit(term, unit, target, 1.0)


@implements(protocol.clear, NormalWishart)
def _clear(term, slot):
    d = term.value.shape[1]
    for i in range(d):
        term.mean[slot, i] = 0.0
        for k in range(d):
            term.scatter[slot, i, k] = term.prior_scatter[i, k]
            term.inverse[slot, i, k] = term.prior_inverse[i, k]
    term.held[slot] = 0.0
    term.held_weight[slot] = 0.0
    term.log_det[slot] = term.hyper[2]
    term.updates[slot] = 0


@implements(protocol.relocate, NormalWishart)
def _relocate(term, source, target):
    d = term.value.shape[1]
    for i in range(d):
        term.mean[target, i] = term.mean[source, i]
        for k in range(d):
            term.scatter[target, i, k] = term.scatter[source, i, k]
            term.inverse[target, i, k] = term.inverse[source, i, k]
    term.held[target] = term.held[source]
    term.held_weight[target] = term.held_weight[source]
    term.log_det[target] = term.log_det[source]
    term.updates[target] = term.updates[source]


@implements(protocol.log_evidence, NormalWishart)
def _log_evidence(term, n_slots):
    d = term.value.shape[1]
    strength, degrees = term.hyper[0], term.hyper[1]
    total = term.hyper[4]
    for slot in range(1, n_slots):
        total += term.log_gamma[int(term.held[slot])] - term.hyper[3]
        n = term.hyper[POWER] * term.held[slot]
        total += 0.5 * degrees * term.hyper[2] - 0.5 * (degrees + n) * term.log_det[slot]
        total -= 0.5 * d * log1p(term.held_weight[slot] / strength)
    return total


@part
def take_apart(term, slots, start, stop):
    """Sum up the units `start` ... `stop` of every slot, and the others.

    From scratch: taken from the running state, far from the centre, little would be left of them.
    """
    term.part_held[:] = 0.0
    term.part_weight[:] = 0.0
    term.part_mean[:] = 0.0
    term.part_scatter[:] = 0.0
    d = term.value.shape[1]
    for unit in range(slots.shape[0]):
        which, slot = int(unit < start or unit >= stop), slots[unit]
        if term.size[unit] == 0.0 or slot == 0:
            continue
        before, n = term.part_weight[which, slot], term.weight[unit]
        away_from(term.value[unit], term.part_mean[which, slot], term.away)
        add_outer(term.part_scatter[which, slot], term.away, before * n / (before + n))
        for i in range(d):
            term.part_mean[which, slot, i] += n / (before + n) * term.away[i]
        add_within(term, unit, term.part_scatter[which, slot], 1.0)
        term.part_weight[which, slot] = before + n
        term.part_held[which, slot] += term.size[unit]


@part
def put_together(term, group, slot):
    """Log evidence of a slot with the others' vectors, and those that are in slot `group` now.

    Without these if it is 0. What does not depend on the vectors is left out.
    """
    d, held = term.value.shape[1], term.part_held[1, slot]
    others, own = term.part_weight[1, slot], 0.0
    if group > 0:
        held += term.part_held[0, group]
        own = term.part_weight[0, group]
    if held == 0.0:
        return term.log_gamma[0] - 0.5 * term.hyper[1] * term.hyper[2]
    n = others + own
    strength = term.hyper[0] * n / (term.hyper[0] + n)
    between = others * own / n
    for i in range(d):
        # The mean of both, and how far they are from each other.
        term.product[i] = others * term.part_mean[1, slot, i]
        term.away[i] = term.part_mean[1, slot, i]
        if group > 0:
            term.product[i] += own * term.part_mean[0, group, i]
            term.away[i] -= term.part_mean[0, group, i]
        term.product[i] /= n
    for i in range(d):
        for k in range(i + 1):
            total = term.prior_scatter[i, k] + term.part_scatter[1, slot, i, k]
            if group > 0:
                total += term.part_scatter[0, group, i, k]
            total += between * term.away[i] * term.away[k]
            term.matrix[i, k] = total + strength * term.product[i] * term.product[k]
    return (
        term.log_gamma[int(held)]
        - 0.5 * (term.hyper[1] + term.hyper[POWER] * held) * factorise(term.matrix, term.lower)
        - 0.5 * d * log1p(n / term.hyper[0])
    )


@implements(protocol.tabulate, NormalWishart)
def _tabulate(term, slots, start, stop, n_slots, worth, shared):
    take_apart(term, slots, start, stop)
    seen = 0.0
    for group in range(1, n_slots):
        seen += term.part_held[0, group]
    if seen == 0.0:
        # Nothing of this assignment.
        return
    for slot in range(n_slots):
        others = put_together(term, 0, slot)
        for group in range(1, n_slots):
            if term.part_held[0, group] > 0.0:
                worth[group, slot] += put_together(term, group, slot) - others


@entry
def rebuild(term, slots):
    """Compute the state from scratch, for units in the given `slots` (U,)."""
    n_slots = term.mean.shape[0]
    for slot in range(n_slots):
        protocol.clear(term, slot)
    for unit in range(slots.shape[0]):
        if term.size[unit] > 0.0:
            own = slots[unit]
            shift(term, unit, own, 1.0, term.scatter[own])
            term.held[own] += term.size[unit]
            add_within(term, unit, term.scatter[own], 1.0)
    for slot in range(n_slots):
        if term.held[slot] > 0.0:
            refresh(term, slot)


@entry
def fill_log_gamma(degrees, power, d, out):
    """Fill `out` (N + 1,) with log Gamma_D((degrees + power n) / 2)."""
    for n in range(out.shape[0]):
        out[n] = 0.25 * d * (d - 1) * log(pi)
        for i in range(d):
            out[n] += lgamma(0.5 * (degrees + power * n - i))


class NormalWishartEvidence(NormalEvidence):
    """The data behind one `NormalWishart` term."""

    shared = False

    def __init__(self, rows: NormalRows, truncation: int, power: float = 1.0):
        super().__init__(rows, truncation, power)
        d, slots = rows.n_features, capacity(truncation)
        n_units, n_several = len(rows.size), len(rows.several_units)
        several = np.full(n_units, -1)
        several[rows.several_units] = np.arange(n_several)
        self.term = NormalWishart(
            size=rows.size,
            several=several,
            updates=np.zeros(slots, np.int64),
            **zeros(
                "hyper 6, log_gamma N, prior_scatter D D, prior_inverse D D, weight U, value U D, "
                "within Q D D, held S, held_weight S, log_det S, mean S D, scatter S D D, "
                "inverse S D D, away D, product D, matrix D D, lower D D, scratch D D, "
                "part_held 2 S, part_weight 2 S, part_mean 2 S D, part_scatter 2 S D D",
                N=len(rows.unit) + 1,
                U=n_units,
                Q=n_several,
                S=slots,
                D=d,
            ),
        )

    def kernels(self, slots: NDArray) -> list[Job]:
        """List what `load` calls."""
        filled = job(fill_log_gamma, 1.0, 1.0, 1, self.term.log_gamma)
        return [filled, job(rebuild, self.term, slots)]

    def fill(self, slots: NDArray, constant: float) -> None:
        """Fill the term, as `NormalEvidence.fill`."""
        term, values, prior, d = self.term, self.values, self.prior, self.rows.n_features
        if term.hyper[1] != prior.degrees:
            fill_log_gamma(float(prior.degrees), self.power, d, term.log_gamma)
        term.hyper[:] = (
            prior.strength,
            prior.degrees,
            np.linalg.slogdet(prior.inverse_scale)[1],
            term.log_gamma[0],
            constant,
            self.power,
        )
        term.prior_scatter[:] = prior.inverse_scale
        term.prior_inverse[:] = np.linalg.inv(prior.inverse_scale)
        for place, members in enumerate(self.rows.several):
            own = self.weights[members, None]
            away = values[members] - (own * values[members]).sum(axis=0) / own.sum()
            term.within[place] = (own * away).T @ away
        rebuild(term, slots)
