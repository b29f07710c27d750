r"""Draws of projections that keep distances, with scales and deviations, by compiled slices.

The projection of such a domain is a scale times a polar factor, :math:`W = c Q` with :math:`Q = A
(A^\top A)^{-1/2}` and :math:`A` of independent normal entries with mean 0: then :math:`Q` is
uniform over all matrices with orthonormal columns, and independent of :math:`A^\top A`, of which
the data say nothing. So :math:`Q` is drawn itself, and :math:`A = Q (B^\top B)^{1/2}` with a new
:math:`B` from the prior of :math:`A`.

Given the clusters, latent vectors are integrated out, and so are deviations :math:`e_{dj} \sim N(0,
\kappa^2 I)`. With :math:`\Lambda = U \mathrm{diag}(\lambda) U^\top` the noise precision, the
coordinates of :math:`U^\top x` are independent. Write :math:`s_{jm} = \lambda_m N_{jm}` for the
precision with which cluster j's mean is seen in coordinate m, :math:`b_{jm}` for its sum times
:math:`\lambda_m`, and :math:`q_m` for the rows of :math:`U^\top Q`. Up to a constant,

.. math:: \log p(X_d, \ldots) = \tfrac12 \sum_{jm} \left[ \frac{\kappa^2 b_{jm}^2}{1 + \kappa^2
          s_{jm}} - \log(1 + \kappa^2 s_{jm}) \right] + \tfrac12 \sum_j \left[ m_j^\top P_j^{-1}
          m_j - \log |P_j| \right], \quad
          P_j = P_j^0 + c^2 \sum_m \frac{s_{jm} q_m q_m^\top}{1 + \kappa^2 s_{jm}}, \quad
          m_j = m_j^0 + c \sum_m \frac{b_{jm} q_m}{1 + \kappa^2 s_{jm}}

with :math:`P^0` and :math:`m^0` from the prior of the latent vectors and the other domains. The
uniform distribution of Q does not change when two rows of :math:`U^\top Q` are rotated: the angle
is drawn by a slice (Neal 2003), pair after pair. So are :math:`\log c` and :math:`\log \kappa`,
whose priors are normal.

**Matchings.** Two labels of a domain are exchanged together with a turn of its projection: given
Q, the clusters would hardly ever find their other labels as good. Let :math:`\hat z_j =
(P_j^0)^{-1} m_j^0` be where the other domains see cluster j, and :math:`F_\sigma` the polar factor
of :math:`\sum_g d_g \hat z_{\sigma(g)}^\top` with :math:`d_{gm} = b_{gm} / (1 + \kappa^2 s_{gm})`,
over the domain's clusters g with labels :math:`\sigma(g)`. Then Q becomes

.. math:: Q' = G Q, \quad G = \mathrm{polar} \left( F_{\sigma'} F_\sigma^\top + (I - F_{\sigma'}
          F_{\sigma'}^\top) (I - F_\sigma F_\sigma^\top) \right)

G depends on labels and on what the move leaves alone, and the way back has its transpose; it is
orthogonal, so that the law of Q (and of A) does not change. So Metropolis' ratio is that of the
densities above, and of the collapsed priors of all labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, exp, inf, log, pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.exchange import draw_exchange, shift_objects
from pm_match.features.emission import Emission
from pm_match.features.evidence_gradient import Said
from pm_match.features.exchanges import PROPOSALS, Exchanges
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.parts import Features, Isometry, Setting
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import factorise, solve_lower
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.polar import draw_with_polar, polar_factor
from pm_match.numerics.slices import draw_slice, slice_of
from pm_match.numerics.stick_breaking import log_prior

# What is drawn by a slice: the numbers of `Shape.numbers`, and the angle of two rows.
_SCALE, _SPREAD, _ANGLE = range(3)
# First intervals: of numbers, on the log scale, and of angles, of which some go all round.
_WIDTH = 0.5
_NARROW, _ALL_ROUND = 0.5, 0.1
_MOST_STEPS = 20
# Pairs of rows that are rotated in a draw: some for each column, but no pair is there twice.
_TURNS_A_COLUMN = 8
# Exchanges of labels whose turns are found together.
_AT_ONCE = 8
# What frames are of where clusters say nothing, as a fraction of what they say in all.
_FEW = 1e-4


class Shape(NamedTuple):
    """What a domain's projection and deviations are drawn from, for J clusters."""

    q: NDArray[np.float64]  # (M, K): U' Q
    numbers: NDArray[np.float64]  # (2,): logs of c and kappa; kappa is 0 if there are no deviations
    # (2, 2): mean and precision of each; a precision of 0 if it is not to be drawn
    prior: NDArray[np.float64]
    # weight, pull (J, M): s and b
    weight: NDArray[np.float64]
    pull: NDArray[np.float64]
    # rest, rest_linear (J, K, K), (J, K): P and m without the domain
    rest: NDArray[np.float64]
    rest_linear: NDArray[np.float64]
    # seen, damped (J, M): s and b over 1 + kappa^2 s
    seen: NDArray[np.float64]
    damped: NDArray[np.float64]
    # base, base_linear (J, K, K), (J, K): scratch: P and m without two rows of q
    base: NDArray[np.float64]
    base_linear: NDArray[np.float64]
    # rows, matrix, lower, vectors (2, K), (K, K), (K, K), (2, K): scratch
    rows: NDArray[np.float64]
    matrix: NDArray[np.float64]
    lower: NDArray[np.float64]
    vectors: NDArray[np.float64]

    @classmethod
    def of(cls, q, numbers, prior, weight, pull, rest, rest_linear) -> "Shape":
        """Make it with scratch space."""
        k = q.shape[1]
        own = q, numbers, prior, weight, pull, rest, rest_linear
        like = np.empty_like(weight), np.empty_like(weight), np.empty_like(rest)
        small = np.empty((2, k)), np.empty((k, k)), np.empty((k, k)), np.empty((2, k))
        return cls(*own, *like, np.empty_like(rest_linear), *small)


@part
def _damp(shape):
    """Fill `seen` and `damped`; return what of the log density only deviations enter."""
    variance = exp(2.0 * shape.numbers[_SPREAD])
    total = 0.0
    for j in range(shape.weight.shape[0]):
        for m in range(shape.weight.shape[1]):
            ratio = 1.0 / (1.0 + variance * shape.weight[j, m])
            shape.seen[j, m] = shape.weight[j, m] * ratio
            shape.damped[j, m] = shape.pull[j, m] * ratio
            total += variance * shape.pull[j, m] * shape.damped[j, m] + log(ratio)
    return 0.5 * total


@part
def _add_row(row, precision, pull, matrix, vector):
    """Add a row (K,) of W to P and m; of P the lower triangle."""
    for k in range(row.shape[0]):
        vector[k] += pull * row[k]
        for i in range(k + 1):
            matrix[k, i] += precision * row[k] * row[i]


@part
def _sum_rows(shape, one, two):
    """Fill `base` with all rows of the projection but `one` and `two`."""
    scale = exp(shape.numbers[_SCALE])
    n_factors = shape.q.shape[1]
    for j in range(shape.rest.shape[0]):
        for k in range(n_factors):
            shape.base_linear[j, k] = shape.rest_linear[j, k]
            for i in range(k + 1):
                shape.base[j, k, i] = shape.rest[j, k, i]
        for m in range(shape.q.shape[0]):
            if m != one and m != two:
                precision, pull = scale * scale * shape.seen[j, m], scale * shape.damped[j, m]
                _add_row(shape.q[m], precision, pull, shape.base[j], shape.base_linear[j])


@part
def _log_evidence(shape, one, two):
    """Sum what clusters explain, with rows `one` and `two` (if not -1) as they are in `rows`."""
    scale = exp(shape.numbers[_SCALE])
    n_factors = shape.q.shape[1]
    vector, solution = shape.vectors[0], shape.vectors[1]
    total = 0.0
    for j in range(shape.rest.shape[0]):
        for k in range(n_factors):
            vector[k] = shape.base_linear[j, k]
            for i in range(k + 1):
                shape.matrix[k, i] = shape.base[j, k, i]
        if one >= 0:
            square = scale * scale
            precision, pull = square * shape.seen[j, one], scale * shape.damped[j, one]
            _add_row(shape.rows[0], precision, pull, shape.matrix, vector)
            precision, pull = square * shape.seen[j, two], scale * shape.damped[j, two]
            _add_row(shape.rows[1], precision, pull, shape.matrix, vector)
        total -= factorise(shape.matrix, shape.lower)
        total += solve_lower(shape.lower, vector, solution)
    return 0.5 * total


@part
def _log_density(x, shape, what, one, two):
    """Log density at a value of what is drawn, at which the shape is left."""
    if what == _ANGLE:
        for k in range(shape.q.shape[1]):
            shape.rows[0, k] = cos(x) * shape.q[one, k] - sin(x) * shape.q[two, k]
            shape.rows[1, k] = sin(x) * shape.q[one, k] + cos(x) * shape.q[two, k]
        return _log_evidence(shape, one, two)
    shape.numbers[what] = x
    off = x - shape.prior[what, 0]
    total = _damp(shape) - 0.5 * shape.prior[what, 1] * off * off
    _sum_rows(shape, -1, -1)
    return total + _log_evidence(shape, -1, -1)


@part
def _turn(shape, one, two):
    """Take over the two rows that the log density was last asked about."""
    for k in range(shape.q.shape[1]):
        shape.q[one, k] = shape.rows[0, k]
        shape.q[two, k] = shape.rows[1, k]


@entry
def draw_shape(rng, shape, n_turns):
    """Draw the numbers, and `n_turns` angles between rows of q, all but these being given."""
    n_features, n_factors = shape.q.shape
    _damp(shape)
    # One loop, as what is drawn by slices is compiled wherever it is called.
    for turn in range(-2, n_turns):
        what, one, two = min(turn + 2, _ANGLE), -1, -1
        start, width, most_steps = 0.0, _WIDTH, _MOST_STEPS
        if what != _ANGLE:
            if not shape.prior[what, 1] > 0.0:
                continue
            start = shape.numbers[what]
        else:
            one = int(n_features * rng.random())
            two = int((n_features - 1) * rng.random())
            if two >= one:
                two += 1
            _sum_rows(shape, one, two)
            width, most_steps = 2.0 * pi if rng.random() < _ALL_ROUND else _NARROW, 1
        slice_of(rng, _log_density, (shape, what, one, two), start, width, most_steps)
        if what == _ANGLE:
            _turn(shape, one, two)
    # A reflection: no rotation leads there if the projection is square.
    one = int(n_features * rng.random())
    _sum_rows(shape, -1, -1)
    before = _log_evidence(shape, -1, -1)
    for k in range(n_factors):
        shape.q[one, k] = -shape.q[one, k]
    _sum_rows(shape, -1, -1)
    if not _log_evidence(shape, -1, -1) - before > log(rng.random()):
        for k in range(n_factors):
            shape.q[one, k] = -shape.q[one, k]


@part
def _log_shape(shape):
    """Log density of all data, up to what neither q nor the order of clusters enters."""
    _damp(shape)
    _sum_rows(shape, -1, -1)
    return _log_evidence(shape, -1, -1)


@part
def _exchange_rows(rows, one, two):
    """Exchange two rows of a matrix."""
    for m in range(rows.shape[1]):
        rows[one, m], rows[two, m] = rows[two, m], rows[one, m]


@entry
def draw_exchanges(rng, groups, labels, objects, pairs, logs):
    """Fill `pairs` (n, 2) with labels to exchange, as `draw_exchange` does; return how many.

    `logs` (n,): filled with what the log ratio of each has to exceed.
    """
    n = 0
    for _ in range(pairs.shape[0]):
        first, second = draw_exchange(rng, groups, labels, objects)
        if first >= 0:
            pairs[n, 0], pairs[n, 1] = first, second
            logs[n] = log(1.0 - rng.random())
            n += 1
    return n


@entry
def try_exchanges(shape, q, turns, pairs, logs, a, b, held, objects):
    """Try exchanges of labels, by which q turns, until one is accepted, and is left as done.

    `q`: a copy; `turns` (n, M, M): of q; `pairs`, `logs`: as of `draw_exchanges`; `a`, `b` (T -
    1,): beta parameters of the sticks; `held`, `objects` (T,): objects in each cluster, of all
    domains and of this one. Return the number of what is accepted, n if nothing is.
    """
    here = _log_shape(shape) + log_prior(a, b, held)
    for i in range(turns.shape[0]):
        for m in range(q.shape[0]):
            for k in range(q.shape[1]):
                shape.q[m, k] = 0.0
                for other in range(q.shape[0]):
                    shape.q[m, k] += turns[i, m, other] * q[other, k]
        for trial in range(2):
            _exchange_rows(shape.weight, pairs[i, 0], pairs[i, 1])
            _exchange_rows(shape.pull, pairs[i, 0], pairs[i, 1])
            shift_objects(held, objects, pairs[i, 0], pairs[i, 1])
            if trial == 0 and logs[i] < _log_shape(shape) + log_prior(a, b, held) - here:
                return i
    for m in range(q.shape[0]):
        for k in range(q.shape[1]):
            shape.q[m, k] = q[m, k]
    return turns.shape[0]


def kernels() -> list[Job]:
    """List what a draw calls."""
    vector, matrix, cube = np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1, 1))
    shape = Shape.of(matrix, np.zeros(2), matrix, matrix, matrix, cube, matrix)
    rng, counts, pairs = np.random.default_rng(), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    beta = vector, vector, counts, counts
    return [
        job(draw_shape, rng, shape, 1),
        job(draw_exchanges, rng, counts, counts, counts, pairs, vector),
        job(try_exchanges, shape, matrix, cube, pairs, vector, *beta),
    ]


@dataclass(frozen=True, eq=False)
class _Domain:
    """What a domain says of its projection, in coordinates in which its noise is independent."""

    basis: NDArray[np.float64] | None  # (M, M): U; None for the identity
    # weight, pull (J, M): s and b
    weight: NDArray[np.float64]
    pull: NDArray[np.float64]

    @classmethod
    def of(cls, sums: ClusterSums, emission: Emission) -> "_Domain":
        left = sums.shifted(emission.intercept)
        if not emission.full:
            weight = np.broadcast_to(sums.counts, left.sums.shape) * emission.precision
            return cls(None, weight, left.sums * emission.precision)
        precision, basis = np.linalg.eigh(emission.precision)
        # Of a positive definite matrix, whatever rounding says.
        precision = np.maximum(precision, 0.0)
        return cls(basis, sums.counts * precision, (left.sums @ basis) * precision)

    def rotated(self, rows: NDArray) -> NDArray[np.float64]:
        """Return U' of (M, K) rows."""
        return np.ascontiguousarray(rows if self.basis is None else self.basis.T @ rows)

    def back(self, rows: NDArray) -> NDArray[np.float64]:
        """Return U of (M, K) rows."""
        return rows if self.basis is None else self.basis @ rows

    def says(self, w: NDArray, variance: float) -> tuple[NDArray, NDArray]:
        """Return what it adds to P (J, K, K) and m (J, K), deviations integrated out.

        `w` (M, K): U' W; `variance`: of deviations.
        """
        ratio = 1.0 / (1.0 + variance * self.weight)
        (m, k), j = w.shape, len(ratio)
        outer = (w[:, :, None] * w[:, None, :]).reshape(m, k * k)
        return ((self.weight * ratio) @ outer).reshape(j, k, k), (self.pull * ratio) @ w


def _seen(features: Features, setting: Setting, point, keys, sums):
    """Give, as `draw_isometries` takes them, what all domains say.

    Return `domains`; `shapes` with (q, numbers, prior), as `Shape` has them, of every isometric
    domain; `said`, what every domain adds to P and m.
    """
    k, own = features.n_factors, {i.domain: i for i in features.sliced}
    domains, shapes, said = {}, {}, []
    for d, (emission, spread) in enumerate(zip(setting.emissions, setting.spreads, strict=True)):
        if d not in own:
            found = Said(sums[d], emission, spread, k)
            said.append((found.gram, found.linear))
            continue
        domain = domains[d] = _Domain.of(sums[d], emission)
        w = np.ascontiguousarray(emission.projection[:, :k])
        scale = np.linalg.norm(w) / np.sqrt(k)
        variance = 0.0 if spread is None else float(spread[0]) ** 2
        numbers = np.array([log(scale), 0.5 * log(variance) if variance > 0.0 else -inf])
        prior = np.zeros((2, 2))
        for what, number in ((_SCALE, own[d].scale), (_SPREAD, own[d].spread)):
            if number is not None:
                # The prior is that of the value variable, which differs from the log by a constant.
                off = numbers[what] - float(point[keys[number.name]])
                prior[what] = number.mean + off, number.precision
        shapes[d] = domain.rotated(w / scale), numbers, prior
        said.append(domain.says(domain.rotated(w), variance))
    return domains, shapes, said


def _shape(d: int, domain: _Domain, own: tuple, said: Sequence, r: float) -> Shape:
    """Make the shape of a domain, of what it says itself and of what all others do."""
    q, numbers, prior = own
    k = q.shape[1]
    rest = sum(gram for e, (gram, _) in enumerate(said) if e != d) + r * np.eye(k)
    linear = sum((linear for e, (_, linear) in enumerate(said) if e != d), np.zeros(k))
    rest = np.array(np.broadcast_to(rest, (len(domain.weight), k, k)))
    linear = np.array(np.broadcast_to(linear, (len(domain.weight), k)))
    return Shape.of(q, numbers, prior, domain.weight, domain.pull, rest, linear)


def draw_isometries(
    rng: np.random.Generator,
    features: Features,
    setting: Setting,
    point: dict[str, NDArray],
    keys: dict[str, str],
    sums: Sequence[ClusterSums],
) -> None:
    """Draw the projections of all domains with an isometry, and write them to a new `point`.

    `setting`: at the point; `keys`: the value variable of every parameter; `sums`: of each domain,
    of the clusters with objects.
    """
    k, r = features.n_factors, setting.latent_precision
    own = {i.domain: i for i in features.sliced}
    domains, shapes, said = _seen(features, setting, point, keys, sums)
    for d, (q, numbers, _) in shapes.items():
        domain, before = domains[d], numbers.copy()
        shape = _shape(d, domain, shapes[d], said, r)
        n_turns = min(len(q) * (len(q) - 1) // 2, _TURNS_A_COLUMN * k)
        draw_shape(rng, shape, n_turns)
        said[d] = domain.says(exp(numbers[_SCALE]) * q, exp(2.0 * numbers[_SPREAD]))
        for what, number in ((_SCALE, own[d].scale), (_SPREAD, own[d].spread)):
            if number is not None:
                key = keys[number.name]
                point[key] = np.asarray(point[key] + (numbers[what] - before[what]))
        orientation = own[d].orientation
        _, precision = features.prior(orientation, point)
        point[keys[orientation.name]] = draw_with_polar(rng, domain.back(q), precision.flat[0])
    _draw_common_scale(rng, point, keys, [own[d] for d in shapes], shapes, said, r)


def _draw_common_scale(
    rng: np.random.Generator, point, keys, isometries: Sequence[Isometry], shapes, said, r: float
) -> None:
    """Multiply the scales of all domains that have one by a number: latent vectors hide it."""
    scaled = [i for i in isometries if i.scale is not None]
    if len(scaled) < 2:
        return
    moving = {i.domain for i in scaled}
    gram, linear = (np.sum([said[d][part] for d in moving], axis=0) for part in (0, 1))
    still = np.zeros_like(gram) + r * np.eye(gram.shape[1])
    still_linear = np.zeros_like(linear)
    for d, (own, pull) in enumerate(said):
        if d not in moving:
            still, still_linear = still + own, still_linear + pull
    logs, means, precisions = np.array(
        [[shapes[i.domain][1][_SCALE], *shapes[i.domain][2][_SCALE]] for i in scaled]
    ).T

    # In coordinates in which what is still has unit precision, and what moves is independent.
    whiten = np.linalg.inv(np.linalg.cholesky(still))
    values, vectors = np.linalg.eigh(whiten @ gram @ whiten.mT)
    values, across = np.maximum(values, 0.0), vectors.mT @ whiten
    first, second = ((across @ own[:, :, None])[:, :, 0] for own in (still_linear, linear))

    def log_density(shift: float) -> float:
        grown = exp(shift)
        precision = 1.0 + grown * grown * values
        total = 0.5 * (np.square(first + grown * second) / precision - np.log(precision)).sum()
        return float(total - 0.5 * precisions @ np.square(logs + shift - means))

    shift = draw_slice(rng, 0.0, log_density)
    for i in scaled:
        assert i.scale is not None
        key = keys[i.scale.name]
        point[key] = np.asarray(point[key] + shift)


# -- matchings -------------------------------------------------------------------------------------


def exchange_labels(
    rng: np.random.Generator,
    features: Features,
    setting: Setting,
    point: dict[str, NDArray],
    keys: dict[str, str],
    sums: Sequence[ClusterSums],
    isometry: Isometry,
    exchanges: Exchanges,
) -> NDArray[np.float64]:
    """Propose exchanges of two labels of a domain, its projection being turned along.

    `rng`, `features`, `setting`, `point`, `keys`: as of `draw_isometries`; `sums`: of each domain,
    of all T clusters; `isometry`: of the domain; `exchanges`: of which this domain is the chosen
    one. Return (M, K): the matrix whose polar factor is the projection's.
    """
    d, r = isometry.domain, setting.latent_precision
    domains, shapes, said = _seen(features, setting, point, keys, sums)
    domain = domains[d]
    shape = _shape(d, domain, shapes[d], said, r)
    raw = domain.rotated(point[keys[isometry.orientation.name]])
    held, objects = exchanges.held.copy(), exchanges.objects()
    groups, renamed, vacant = np.flatnonzero(objects), np.arange(len(held)), objects == 0
    expected = np.linalg.solve(shape.rest, shape.rest_linear[:, :, None])[:, :, 0]
    damped = shape.pull / (1.0 + exp(2.0 * shape.numbers[_SPREAD]) * shape.weight)
    frames = _Frames(damped[groups], expected)
    frame = frames(renamed[groups])
    # All are drawn as if none was accepted. What they are drawn as, then has other names.
    drawn = np.empty((PROPOSALS * len(groups), 2), np.int64)
    logs, names = np.empty(len(drawn)), renamed
    proposed = draw_exchanges(rng, groups, renamed, objects, drawn, logs)
    done = accepted = 0
    while done < proposed:
        some = slice(done, min(done + _AT_ONCE, proposed))
        pairs = names[drawn[some]]
        first, second = pairs[:, :1], pairs[:, 1:]
        moved = np.where(renamed == first, second, np.where(renamed == second, first, renamed))
        new = frames(moved[:, groups])
        turns = _turn_between(frame, new)
        given = shape, shape.q.copy(), turns, pairs, logs[some], *exchanges.prior
        at = try_exchanges(*given, held, objects)
        done += at
        if at < len(pairs):
            done, accepted = done + 1, accepted + 1
            frame, renamed, raw = new[at], moved[at], turns[at] @ raw
            names = renamed.copy()
            names[vacant] = np.flatnonzero(objects == 0)
    exchanges.accepted, exchanges.proposed = accepted, proposed
    if accepted:
        exchanges.rename(renamed, held)
    return domain.back(raw)


class _Frames:
    """The directions in which a domain's clusters are, by those of the factors at their labels.

    `damped` (J, M): of the domain's clusters; `expected` (T, K): factors of all labels, as the
    other domains have them.
    """

    def __init__(self, damped: NDArray, expected: NDArray):
        self._damped, self._expected = damped, expected
        # Where clusters are too few to tell directions, all labels are to give the same.
        size = np.linalg.norm(damped) * max(float(np.linalg.norm(expected)), 1e-6)
        self._rest = _FEW * size * np.eye(damped.shape[1], expected.shape[1])

    def __call__(self, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give the frames (..., M, K) of the clusters' labels (..., J)."""
        return polar_factor(self._damped.T @ self._expected[labels] + self._rest)


def _turn_between(one: NDArray, other: NDArray) -> NDArray[np.float64]:
    """Give the orthogonal (..., M, M) matrices that turn a frame (M, K) into others (..., M, K).

    Those from the others back are their transposes.
    """
    eye, back = np.eye(len(one)), other.mT
    return polar_factor(other @ one.T + (eye - other @ back) @ (eye - one @ one.T))
