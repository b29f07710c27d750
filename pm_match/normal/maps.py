r"""Draws of the maps by which domains are aligned, with all clusters integrated out.

Domain d's vectors are brought to the space of the clusters by :math:`y = Q_d^\top (x - a_d) / c_d`,
in which clusters are normal with means and precisions of their own, of the prior that
`normal_wishart` has. Of domain d in cluster j the evidence sees a count, a sum and a sum of squares
alone, each vector being worth :math:`\zeta` of one. With :math:`b_j` and :math:`A_j` the sums over
all domains and the prior (:math:`\kappa_0` vectors :math:`m_0`, and :math:`\Psi_0`), as a function
of the maps, up to a constant,

.. math:: \log p = -\tfrac12 \sum_j (\nu_0 + n_j) \log |\Psi_j| - \zeta D \sum_d N_d \log c_d, \quad
          \Psi_j = A_j - \frac{b_j b_j^\top}{\kappa_0 + n_j}

and the priors of :math:`a_d` and :math:`\log c_d`; :math:`Q_d` is uniform over orthogonal matrices.

Each move turns a plane of the clusters' space, or shifts or reflects one of its axes, for one
domain. Then only one or two rows of every :math:`\Psi_j` change. With these last, its determinant
is that of the rest, which stays, times that of the Schur complement of one or two rows, which is a
polynomial in the shift, or in the sine and cosine of the angle: after one factorisation, all values
of a slice (Neal 2003) are evaluated at a cost that does not depend on the dimension.
"""

from math import cos, exp, log, pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import dot, factorise, solve_lower
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.slices import slice_of

# What is drawn by a slice.
_ANGLE, _SHIFT, _SCALE = range(3)
# First intervals; some angles go all round.
_NARROW, _ALL_ROUND = 0.5, 0.1
_SHIFT_WIDTH, _SCALE_WIDTH = 0.5, 0.2
_MOST_STEPS = 50
# Planes that are turned in a draw: so many for each axis, or all if these are fewer.
_TURNS_AN_AXIS = 8


class Maps(NamedTuple):
    """Maps of E domains, and what J clusters in D dimensions see of them."""

    # held, total, square (E, J), (E, J, D), (E, J, D, D): what each domain's vectors weigh in each
    # cluster; weighted sums of them and of their outer products, in the clusters' space
    held: NDArray[np.float64]
    total: NDArray[np.float64]
    square: NDArray[np.float64]
    # strength, degrees (1,), (J,): of the prior of means; of the precisions' conditionals
    strength: NDArray[np.float64]
    degrees: NDArray[np.float64]
    # prior_total, prior_square (D,), (D, D): what the prior adds to `total` and `square`
    prior_total: NDArray[np.float64]
    prior_square: NDArray[np.float64]
    # q, scale, intercept (E, D, D), (E,), (E, D)
    q: NDArray[np.float64]
    scale: NDArray[np.float64]
    intercept: NDArray[np.float64]
    drawn: NDArray[np.int64]  # (E, 3): whether the three are
    size: NDArray[np.float64]  # (E,): how many vectors each domain's are worth
    # scale_prior, intercept_prior (E, 2), (E, 2, D): means and precisions, of the log of the scale
    scale_prior: NDArray[np.float64]
    intercept_prior: NDArray[np.float64]
    # rest_count, rest_total, rest_square (J,), (J, D), (J, D, D): scratch: of all but the domain
    # that moves
    rest_count: NDArray[np.float64]
    rest_total: NDArray[np.float64]
    rest_square: NDArray[np.float64]
    # (J, 11): scratch: half the degrees of every cluster, and the Schur complement's coefficients
    form: NDArray[np.float64]
    # matrix, lower, column, solved (D, D), (D, D), (4, D), (4, D): scratch
    matrix: NDArray[np.float64]
    lower: NDArray[np.float64]
    column: NDArray[np.float64]
    solved: NDArray[np.float64]

    @classmethod
    def of(cls, held, total, square, strength, degrees, *others) -> "Maps":
        """Make it with scratch space; `others`: from `prior_total` to `intercept_prior`."""
        j, d = total.shape[1:]
        rest = np.empty(j), np.empty((j, d)), np.empty((j, d, d))
        scratch = np.empty((j, 11)), np.empty((d, d)), np.empty((d, d))
        given = held, total, square, np.array([strength]), degrees
        return cls._make([*given, *others, *rest, *scratch, np.empty((4, d)), np.empty((4, d))])


@part
def _set_rest(m, e):
    """Fill `rest` with what all domains but one, and the prior, add up to."""
    n_domains, n_clusters, d = m.total.shape
    for j in range(n_clusters):
        m.rest_count[j] = m.strength[0]
        for i in range(d):
            m.rest_total[j, i] = m.prior_total[i]
            for k in range(d):
                m.rest_square[j, i, k] = m.prior_square[i, k]
        for other in range(n_domains):
            if other != e:
                m.rest_count[j] += m.held[other, j]
                for i in range(d):
                    m.rest_total[j, i] += m.total[other, j, i]
                    for k in range(d):
                        m.rest_square[j, i, k] += m.square[other, j, i, k]


@part
def _without(m, e, j, one, two):
    """Factorise the rows and columns of a cluster's matrix but axes `one` and `two`.

    Return `size`: how many they are; `n`: how many vectors the cluster's are worth, with the
    prior's.
    """
    n, row = m.rest_count[j] + m.held[e, j], 0
    for i in range(m.total.shape[2]):
        if i in (one, two):
            continue
        total, column = m.rest_total[j, i] + m.total[e, j, i], 0
        for k in range(i + 1):
            if k in (one, two):
                continue
            other = m.rest_total[j, k] + m.total[e, j, k]
            own = m.rest_square[j, i, k] + m.square[e, j, i, k]
            m.matrix[row, column] = own - total * other / n
            column += 1
        row += 1
    factorise(m.matrix[:row, :row], m.lower[:row, :row])
    return row, n


@part
def _solve(m, size, number):
    """Solve for one of the columns."""
    solve_lower(m.lower[:size, :size], m.column[number, :size], m.solved[number, :size])


@part
def _columns(m, e, j, n, axis, one, two, number):
    """Solve for the columns of an axis: of all but the domain (`number`), and its own."""
    row = 0
    for i in range(m.total.shape[2]):
        if i in (one, two):
            continue
        total = m.rest_total[j, i] + m.total[e, j, i]
        m.column[number, row] = m.rest_square[j, i, axis] - total * m.rest_total[j, axis] / n
        m.column[number + 1, row] = m.square[e, j, i, axis] - total * m.total[e, j, axis] / n
        row += 1
    _solve(m, row, number)
    _solve(m, row, number + 1)


@part
def _inner(m, size, one, two):
    """Return the inner product of two solved columns."""
    return dot(m.solved[one, :size], m.solved[two, :size])


@part
def _plane(m, e, one, two):
    """Fill `form` for a turn of the plane of two axes: E, F (3 numbers each) and H (4)."""
    for j in range(m.total.shape[1]):
        size, n = _without(m, e, j, one, two)
        _columns(m, e, j, n, one, one, two, 0)
        _columns(m, e, j, n, two, one, two, 2)
        m.form[j, 0] = 0.5 * m.degrees[j]
        # Axis a of the plane has the columns 2a, of all others, and 2a + 1, of the domain.
        for a in range(2):
            for b in range(2):
                i, k = (two if a else one), (two if b else one)
                rest_i, rest_k = m.rest_total[j, i], m.rest_total[j, k]
                own_i, own_k = m.total[e, j, i], m.total[e, j, k]
                if a <= b:
                    left = m.rest_square[j, i, k] - rest_i * rest_k / n
                    m.form[j, 1 + a + b] = left - _inner(m, size, 2 * a, 2 * b)
                    left = m.square[e, j, i, k] - own_i * own_k / n
                    m.form[j, 4 + a + b] = left - _inner(m, size, 2 * a + 1, 2 * b + 1)
                cross = _inner(m, size, 2 * a, 2 * b + 1)
                m.form[j, 7 + 2 * a + b] = rest_i * own_k / n + cross


@part
def _axis(m, e, axis):
    """Fill `form` for shifts of an axis: C(t) = e + 2 h t + f t^2."""
    for j in range(m.total.shape[1]):
        size, n = _without(m, e, j, axis, -1)
        own, count = m.total[e, j, axis], m.held[e, j]
        whole, row = m.rest_total[j, axis] + own, 0
        for i in range(m.total.shape[2]):
            if i == axis:
                continue
            total = m.rest_total[j, i] + m.total[e, j, i]
            square = m.rest_square[j, i, axis] + m.square[e, j, i, axis]
            m.column[0, row] = square - total * whole / n
            m.column[1, row] = m.total[e, j, i] - total * count / n
            row += 1
        _solve(m, size, 0)
        _solve(m, size, 1)
        square = m.rest_square[j, axis, axis] + m.square[e, j, axis, axis]
        m.form[j, 0] = 0.5 * m.degrees[j]
        m.form[j, 1] = square - whole * whole / n - _inner(m, size, 0, 0)
        m.form[j, 2] = own - whole * count / n - _inner(m, size, 0, 1)
        m.form[j, 3] = count - count * count / n - _inner(m, size, 1, 1)


@part
def _turned(m, angle):
    """Log density at an angle, by `_plane`."""
    c, s = cos(angle), sin(angle)
    total = 0.0
    for j in range(m.form.shape[0]):
        e00, e01, e11 = m.form[j, 1], m.form[j, 2], m.form[j, 3]
        f00, f01, f11 = m.form[j, 4], m.form[j, 5], m.form[j, 6]
        h00, h01, h10, h11 = m.form[j, 7], m.form[j, 8], m.form[j, 9], m.form[j, 10]
        c00 = e00 + c * c * f00 - 2.0 * c * s * f01 + s * s * f11 - 2.0 * (c * h00 - s * h01)
        c11 = e11 + s * s * f00 + 2.0 * c * s * f01 + c * c * f11 - 2.0 * (s * h10 + c * h11)
        c01 = e01 + c * s * (f00 - f11) + (c * c - s * s) * f01
        c01 -= s * h00 + c * h01 + c * h10 - s * h11
        total -= m.form[j, 0] * log(c00 * c11 - c01 * c01)
    return total


@part
def _shifted(m, e, axis, shift):
    """Log density with an axis shifted, by `_axis`."""
    total = 0.0
    for j in range(m.form.shape[0]):
        schur = m.form[j, 1] + shift * (2.0 * m.form[j, 2] + shift * m.form[j, 3])
        total -= m.form[j, 0] * log(schur)
    for i in range(m.q.shape[1]):
        off = m.intercept[e, i] - m.scale[e] * shift * m.q[e, i, axis] - m.intercept_prior[e, 0, i]
        total -= 0.5 * m.intercept_prior[e, 1, i] * off * off
    return total


@part
def _scaled(m, e, change):
    """Log density with the log of a domain's scale changed."""
    n_clusters, d = m.total.shape[1:]
    shrunk, total = exp(-change), 0.0
    for j in range(n_clusters):
        n = m.rest_count[j] + m.held[e, j]
        for i in range(d):
            one = m.rest_total[j, i] + shrunk * m.total[e, j, i]
            for k in range(i + 1):
                two = m.rest_total[j, k] + shrunk * m.total[e, j, k]
                own = m.rest_square[j, i, k] + shrunk * shrunk * m.square[e, j, i, k]
                m.matrix[i, k] = own - one * two / n
        total -= 0.5 * m.degrees[j] * factorise(m.matrix, m.lower)
    off = log(m.scale[e]) + change - m.scale_prior[e, 0]
    return total - d * m.size[e] * change - 0.5 * m.scale_prior[e, 1] * off * off


@part
def _log_density(x, m, e, what, axis):
    """Log density at a value of what is drawn; minus infinity if rounding leaves none."""
    if what == _ANGLE:
        found = _turned(m, x)
    elif what == _SHIFT:
        found = _shifted(m, e, axis, x)
    else:
        found = _scaled(m, e, x)
    return found if found == found else -np.inf


@part
def _slice(rng, m, e, what, axis, width, most_steps):
    """Draw by one slice from 0."""
    return slice_of(rng, _log_density, (m, e, what, axis), 0.0, width, most_steps)


@part
def _turn(m, e, one, two, c, s):
    """Turn a domain's vectors, and its map, in the plane of two axes."""
    d = m.q.shape[1]
    for i in range(d):
        own, other = m.q[e, i, one], m.q[e, i, two]
        m.q[e, i, one], m.q[e, i, two] = c * own - s * other, s * own + c * other
    for j in range(m.total.shape[1]):
        own, other = m.total[e, j, one], m.total[e, j, two]
        m.total[e, j, one], m.total[e, j, two] = c * own - s * other, s * own + c * other
        for i in range(d):
            own, other = m.square[e, j, i, one], m.square[e, j, i, two]
            m.square[e, j, i, one] = c * own - s * other
            m.square[e, j, i, two] = s * own + c * other
        for i in range(d):
            own, other = m.square[e, j, one, i], m.square[e, j, two, i]
            m.square[e, j, one, i] = c * own - s * other
            m.square[e, j, two, i] = s * own + c * other


@part
def _shift(m, e, axis, shift):
    """Shift a domain's vectors along an axis, by its intercept."""
    d = m.q.shape[1]
    for i in range(d):
        m.intercept[e, i] -= m.scale[e] * shift * m.q[e, i, axis]
    for j in range(m.total.shape[1]):
        for i in range(d):
            m.square[e, j, i, axis] += shift * m.total[e, j, i]
        m.total[e, j, axis] += shift * m.held[e, j]
        for i in range(d):
            m.square[e, j, axis, i] += shift * m.total[e, j, i]


@part
def _rescale(m, e, change):
    """Change the log of a domain's scale."""
    d, shrunk = m.q.shape[1], exp(-change)
    m.scale[e] *= exp(change)
    for j in range(m.total.shape[1]):
        for i in range(d):
            m.total[e, j, i] *= shrunk
            for k in range(d):
                m.square[e, j, i, k] *= shrunk * shrunk


@part
def _reflect(rng, m, e, axis):
    """Reflect a domain in an axis, by the rule of Metropolis: no rotation leads there."""
    d, log_ratio = m.q.shape[1], 0.0
    for j in range(m.total.shape[1]):
        size, n = _without(m, e, j, axis, -1)
        _columns(m, e, j, n, axis, axis, -1, 0)
        square = m.rest_square[j, axis, axis] + m.square[e, j, axis, axis]
        square -= _inner(m, size, 0, 0) + _inner(m, size, 1, 1)
        cross = 2.0 * _inner(m, size, 0, 1)
        rest, own = m.rest_total[j, axis], m.total[e, j, axis]
        before = square - cross - (rest + own) * (rest + own) / n
        after = square + cross - (rest - own) * (rest - own) / n
        log_ratio -= 0.5 * m.degrees[j] * log(after / before)
    if log_ratio > log(rng.random()):
        for i in range(d):
            m.q[e, i, axis] = -m.q[e, i, axis]
        for j in range(m.total.shape[1]):
            m.total[e, j, axis] = -m.total[e, j, axis]
            for i in range(d):
                m.square[e, j, i, axis] = -m.square[e, j, i, axis]
            for i in range(d):
                m.square[e, j, axis, i] = -m.square[e, j, axis, i]


@entry
def draw_maps(rng, m, n_turns):
    """Draw the maps of all domains in turn, each given the others'."""
    n_domains, _, d = m.total.shape
    for e in range(n_domains):
        _set_rest(m, e)
        if m.drawn[e, 0]:
            for _ in range(n_turns):
                one = int(d * rng.random())
                two = int((d - 1) * rng.random())
                if two >= one:
                    two += 1
                _plane(m, e, one, two)
                width = 2.0 * pi if rng.random() < _ALL_ROUND else _NARROW
                angle = _slice(rng, m, e, _ANGLE, -1, width, 1)
                _turn(m, e, one, two, cos(angle), sin(angle))
            _reflect(rng, m, e, int(d * rng.random()))
        if m.drawn[e, 2]:
            for axis in range(d):
                _axis(m, e, axis)
                width = _SHIFT_WIDTH
                _shift(m, e, axis, _slice(rng, m, e, _SHIFT, axis, width, _MOST_STEPS))
        if m.drawn[e, 1]:
            _rescale(m, e, _slice(rng, m, e, _SCALE, -1, _SCALE_WIDTH, _MOST_STEPS))


def n_turns(d: int) -> int:
    """Return how many planes of a space of d dimensions are turned in a draw."""
    return min(d * (d - 1) // 2, _TURNS_AN_AXIS * d)


def kernels() -> list[Job]:
    """List what a draw calls."""
    one, two, three, four = (np.zeros((1,) * n) for n in (1, 2, 3, 4))
    maps = three, one, two, np.zeros((1, 3), np.int64), one, two, three
    found = Maps.of(two, three, four, 1.0, one, one, two, *maps)
    return [job(draw_maps, np.random.default_rng(), found, 1)]
