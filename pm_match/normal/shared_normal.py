r"""Normal clusters that share one precision, which is integrated out with their means.

A view of dependency-seeking clusters (Klami & Kaski, eq. 2): vectors :math:`x_n` of the objects of
cluster j, whose covariance within clusters is full, the same in all of them, and not known:

.. math:: x_n \sim N(\mu_j, \Lambda^{-1}), \quad
          \mu_j \mid \Lambda \sim N(m_0, (\kappa_0 \Lambda)^{-1}), \quad
          \Lambda \sim \mathrm{Wishart}(\nu_0, \Psi_0^{-1})

With :math:`n_j` vectors of mean :math:`\bar x_j` and scatter :math:`S_j` in cluster j, N in all,
:math:`\kappa_j = \kappa_0 + n_j` and :math:`m_j = (\kappa_0 m_0 + n_j \bar x_j) / \kappa_j`,

.. math:: \Psi = \Psi_0 + \sum_j \Bigl( S_j + \frac{\kappa_0 n_j}{\kappa_j}
              (\bar x_j - m_0)(\bar x_j - m_0)^\top \Bigr),

.. math:: p(X \mid s) = \pi^{-ND/2} \frac{\Gamma_D((\nu_0 + N)/2)}{\Gamma_D(\nu_0/2)}
          \frac{|\Psi_0|^{\nu_0/2}}{|\Psi|^{(\nu_0 + N)/2}}
          \prod_j \left(\frac{\kappa_0}{\kappa_j}\right)^{D/2}.

Whatever a unit's scatter is, it is in :math:`\Psi` wherever the unit is. So to leave a cluster and
to join another one are updates of rank one, :math:`\Psi - g\,dd^\top`, :math:`\Psi + c\,ee^\top`.
With :math:`\Psi^{-1}` at hand, and :math:`m_j^\top \Psi^{-1} m_j` for every cluster, a unit is
scored in all of T clusters at a cost of :math:`D^2 + TD`, and moved at the same.
"""

from math import log1p
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import multigammaln

from pm_match.clusters import protocol
from pm_match.clusters.protocol import implements
from pm_match.clusters.sweep import capacity
from pm_match.normal.conjugate import NormalEvidence
from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.normal_wishart import add_outer, away_from, quadratic, shift
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import dot, factorise, invert
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.zeros import zeros

# Updates of rank one after which the inverse is computed anew: rounding errors do not add up.
_REFRESH = 512


class SharedNormal(NamedTuple):
    """State of the term, for U units, S slots, D features."""

    # (3,): strength of the prior; degrees of the conditional, nu_0 + N; a constant of the log
    # evidence
    hyper: NDArray[np.float64]
    weight: NDArray[np.float64]  # (U,): what the vectors of each unit weigh; it may have none
    value: NDArray[np.float64]  # (U, D): their weighted means, less the prior's centre
    held_weight: NDArray[np.float64]  # (S,): what the vectors in each slot weigh
    mean: NDArray[np.float64]  # (S, D): m_j, less the prior's centre
    # scatter, inverse (D, D): Psi, and its inverse
    scatter: NDArray[np.float64]
    inverse: NDArray[np.float64]
    log_det: NDArray[np.float64]  # (1,): log determinant of Psi
    length: NDArray[np.float64]  # (S,): m_j' Psi^-1 m_j
    updates: NDArray[np.int64]  # (1,): of the inverse, since it was computed afresh
    # away, product, solved (D,): scratch
    away: NDArray[np.float64]
    product: NDArray[np.float64]
    solved: NDArray[np.float64]
    # lower, scratch (D, D): scratch
    lower: NDArray[np.float64]
    scratch: NDArray[np.float64]


@implements(protocol.score, SharedNormal)
def _score(term, unit, own, n_slots, out):
    n, d = term.weight[unit], term.value.shape[1]
    if n == 0.0:
        return
    x = term.value[unit]
    # `solved` is Psi^-1 x, and `product` Psi^-1 d for the distance d from the unit's own mean.
    x_length = quadratic(term.inverse, x, term.solved)
    away_from(x, term.mean[own], term.away)
    own_length = quadratic(term.inverse, term.away, term.product)
    left = term.hyper[0] + term.held_weight[own] - n
    g = n * (left + n) / left
    # |Psi - g d d'| is |Psi| times this.
    remaining = 1.0 - g * own_length
    x_product = dot(x, term.product)
    half = 0.5 * term.hyper[1]
    for slot in range(n_slots):
        if slot == own:
            out[slot] += half * log1p(-g * own_length) - 0.5 * d * log1p(n / left)
            continue
        mean = term.mean[slot]
        strength = term.hyper[0] + term.held_weight[slot]
        straight = x_length - 2.0 * dot(mean, term.solved) + term.length[slot]
        across = x_product - dot(mean, term.product)
        c = strength * n / (strength + n)
        joined = c * (straight + g * across * across / remaining)
        out[slot] -= half * log1p(joined) + 0.5 * d * log1p(n / strength)


@part
def refresh(term):
    """Compute what follows from the scatter and the means."""
    term.log_det[0] = factorise(term.scatter, term.lower)
    invert(term.lower, term.scratch, term.inverse)
    term.updates[0] = 0
    for slot in range(term.mean.shape[0]):
        term.length[slot] = quadratic(term.inverse, term.mean[slot], term.product)


@part
def add_unit(term, unit, slot, sign):
    """Add a unit to a slot (`sign` 1), or take it out again (-1)."""
    weight = shift(term, unit, slot, sign, term.scatter)
    q = weight * quadratic(term.inverse, term.away, term.product)
    shrunk = weight / (1.0 + q)
    add_outer(term.inverse, term.product, -shrunk)
    term.log_det[0] += log1p(q)
    for other in range(term.mean.shape[0]):
        if other != slot:
            across = dot(term.mean[other], term.product)
            term.length[other] -= shrunk * across * across
    term.length[slot] = quadratic(term.inverse, term.mean[slot], term.product)


@implements(protocol.move, SharedNormal)
def _move(term, unit, source, target):
    if term.weight[unit] == 0.0:
        return
    add_unit(term, unit, source, -1.0)
    add_unit(term, unit, target, 1.0)
    term.updates[0] += 2
    if term.updates[0] >= _REFRESH:
        refresh(term)


@implements(protocol.clear, SharedNormal)
def _clear(term, slot):
    for i in range(term.value.shape[1]):
        term.mean[slot, i] = 0.0
    term.held_weight[slot] = 0.0
    term.length[slot] = 0.0


@implements(protocol.relocate, SharedNormal)
def _relocate(term, source, target):
    for i in range(term.value.shape[1]):
        term.mean[target, i] = term.mean[source, i]
    term.held_weight[target] = term.held_weight[source]
    term.length[target] = term.length[source]


@implements(protocol.log_evidence, SharedNormal)
def _log_evidence(term, n_slots):
    d = term.value.shape[1]
    total = term.hyper[2] - 0.5 * term.hyper[1] * term.log_det[0]
    for slot in range(1, n_slots):
        total -= 0.5 * d * log1p(term.held_weight[slot] / term.hyper[0])
    return total


@entry
def rebuild(term, slots):
    """Compute the state from scratch, for units in the given `slots` (U,).

    `scatter` holds the prior's inverse scale, and the scatter within units.
    """
    for slot in range(term.mean.shape[0]):
        protocol.clear(term, slot)
    for unit in range(slots.shape[0]):
        if term.weight[unit] > 0.0:
            shift(term, unit, slots[unit], 1.0, term.scatter)
    refresh(term)


class SharedNormalEvidence(NormalEvidence):
    """The data behind one `SharedNormal` term."""

    shared = True

    def __init__(self, rows: NormalRows, truncation: int):
        super().__init__(rows, truncation)
        d, slots = rows.n_features, capacity(truncation)
        self.term = SharedNormal(
            updates=np.zeros(1, np.int64),
            **zeros(
                "hyper 3, weight U, value U D, held_weight S, mean S D, scatter D D, inverse D D, "
                "log_det 1, length S, away D, product D, solved D, lower D D, scratch D D",
                U=len(rows.size),
                S=slots,
                D=d,
            ),
        )

    def kernels(self, slots: NDArray) -> list[Job]:
        """List what `load` calls."""
        return [job(rebuild, self.term, slots)]

    def fill(self, slots: NDArray, constant: float) -> None:
        """Fill the term, as `NormalEvidence.fill`."""
        term, values, prior, (n, d) = self.term, self.values, self.prior, self.values.shape
        degrees = prior.degrees + n
        constant += multigammaln(0.5 * degrees, d) - multigammaln(0.5 * prior.degrees, d)
        constant += 0.5 * prior.degrees * np.linalg.slogdet(prior.inverse_scale)[1]
        term.hyper[:] = prior.strength, degrees, constant
        term.scatter[:] = prior.inverse_scale
        if len(self.rows.several_units):
            within = values - prior.center - term.value[self.rows.unit]
            term.scatter[:] += (self.weights[:, None] * within).T @ within
        rebuild(term, slots)
