r"""Projections given an assignment: the collapsed objective that MAP climbs.

.. math:: L(W) = -a' \log b' + \tfrac12 \sum_j \log |C_j|

(Iwata, Hirao & Ueda 2016, eq. 4, what depends on W), or :math:`-b'` in place of the first term if
no precision is integrated out. It sees the data only through each cluster's sums and counts *per
feature*, :math:`S_{jm} = \sum_{n \in j} h_{nm} x_{nm}` and :math:`N_{jm} = \sum_{n \in j} h_{nm}`,
where :math:`h` marks what is observed, of data that are shifted and whitened. All domains' features
stand one below the other in one matrix :math:`W` with rows :math:`w_m`.
"""

from collections.abc import Sequence
from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.projection_fit import ClusterTable, copy, expect
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.kernels import entry, part, reducing

# How many steps a climb remembers, and what gain, as a share of what there is, is its last.
_REMEMBERED = 10
_GAIN = 2e-9
# What share of its slope a step has to gain, and may leave (Wolfe's conditions), and how many
# lengths are tried.
_RISE, _SLOPE, _LENGTHS = 1e-3, 0.9, 30


@part
def fill_gradient(table, n, free, gradient):
    r"""Give L at `w`, of `n` clusters that `sorted` lists, and its gradient (R, K).

    In row m of the projections, the first `free` columns alone, it is

    .. math:: -\sum_j N_{jm} M_j w_m + \tfrac{a'}{b'} \sum_j S_{jm} \mu_j .

    With nothing missing this is eq. (18) of Iwata, Hirao & Ueda (2016). Their eq. (27), for missing
    values, counts objects where it must count each feature's observed values, as here.
    """
    value, ratio = expect(table, n)
    n_factors = table.w.shape[1]
    moment = table.work[0]
    for block in range(table.number.shape[1]):
        for k in range(n_factors):
            for i in range(n_factors):
                moment[k, i] = 0.0
        for x in range(n):
            count = table.number[table.sorted[x], block]
            for k in range(n_factors):
                for i in range(n_factors):
                    moment[k, i] += count * table.moment[x, k, i]
        for m in range(table.first[block], table.first[block + 1]):
            for k in range(n_factors):
                pull = 0.0
                for i in range(n_factors):
                    pull += moment[k, i] * table.w[m, i]
                gradient[m, k] = -pull if k < free else 0.0
    for x in range(n):
        label = table.sorted[x]
        for m in range(table.total.shape[1]):
            total = ratio * table.total[label, m]
            for k in range(free):
                gradient[m, k] += total * table.mean[x, k]
    return value


@reducing
def _inner(a, b):
    """Inner product of two matrices."""
    total = 0.0
    for m in range(a.shape[0]):
        for k in range(a.shape[1]):
            total += a[m, k] * b[m, k]
    return total


@part
def _add(target, scale, a):
    """Add `scale` times a matrix."""
    for m in range(a.shape[0]):
        for k in range(a.shape[1]):
            target[m, k] += scale * a[m, k]


@part
def _head_for(way, gradient, n, past, share):
    """Fill the `way` to go by what `n` steps so far have shown of the curvature."""
    size = share.shape[0]
    copy(gradient, way)
    scale = 1.0 / sqrt(_inner(gradient, gradient))
    for i in range(n - 1, max(n - size, 0) - 1, -1):
        step, bend = past[i % size, 0], past[i % size, 1]
        product = _inner(step, bend)
        share[i % size] = _inner(step, way) / product
        _add(way, -share[i % size], bend)
        if i == n - 1:
            scale = product / _inner(bend, bend)
    _add(way, scale - 1.0, way)
    for i in range(max(n - size, 0), n):
        step, bend = past[i % size, 0], past[i % size, 1]
        _add(way, share[i % size] - _inner(bend, way) / _inner(step, bend), step)


@entry
def maximise(table, n, free, most, past, share, work):
    """Climb L in the first `free` columns of `w`, of `n` clusters, by L-BFGS; return what it is.

    Every step meets Wolfe's conditions.

    `most`: the most steps; `past`, `share`, `work` (H, 2, R, K), (H,), (4, R, K): scratch, to
    remember H steps.
    """
    start, gradient, before, way = work[0], work[1], work[2], work[3]
    value = fill_gradient(table, n, free, gradient)
    for number in range(most):
        _head_for(way, gradient, number, past, share)
        slope = _inner(gradient, way)
        if not slope > 0.0:
            break
        copy(table.w, start)
        copy(gradient, before)
        length, short, long = 1.0, 0.0, inf
        for _ in range(_LENGTHS):
            copy(start, table.w)
            _add(table.w, length, way)
            new = fill_gradient(table, n, free, gradient)
            left = _inner(gradient, way)
            # Not a number is too far, too.
            if not new >= value + _RISE * length * slope:
                long = length
            elif left > _SLOPE * slope:
                short = length
            else:
                break
            if long == inf:
                length *= 4.0
                continue
            # The top of a parabola, if there is one in between.
            length *= slope / (slope - left)
            if not short < length < long:
                length = 0.5 * (short + long)
        else:
            copy(start, table.w)
            break
        step, bend = past[number % share.shape[0], 0], past[number % share.shape[0], 1]
        copy(table.w, step)
        _add(step, -1.0, start)
        copy(before, bend)
        _add(bend, -1.0, gradient)
        gain, value = new - value, new
        if gain <= _GAIN * max(abs(value), 1.0):
            break
    return value


class ProjectionObjective:
    """L(W) for one assignment, to climb.

    What is optimised are the projections of shifted and whitened data.

    `sums`: of every domain. Not of missing values in dependent noise. `emissions`: their
    projections of deviations stay as they are; `n_factors`: K, without those of deviations; `gamma`
    (float, float): prior of the precision that all noise and the latent vectors share. It has
    `table`: of all clusters; `sorted` lists those that are not empty.
    """

    def __init__(
        self,
        sums: Sequence[ClusterSums],
        emissions: Sequence[Emission],
        latent_precision: float,
        n_factors: int,
        gamma: tuple[float, float] | None = None,
    ):
        self.emissions, self.n_factors = emissions, n_factors
        totals, counts, widths, squares = [], [], [], 0.0
        for own, emission in zip(sums, emissions, strict=True):
            totals.append(emission.whiten(own.shifted(emission.intercept).sums))
            counts.append(own.counts)
            n_blocks = own.counts.shape[1]
            widths += [len(emission.intercept) // n_blocks] * n_blocks
            squares += own.noise(emission)[1]
        whole = np.concatenate([emission.whitened_projection() for emission in emissions])
        total, number = np.hstack(totals), np.hstack(counts)
        occupied = np.flatnonzero(number.sum(axis=1))
        shape, rate = (0.0, 0.0) if gamma is None else gamma
        shape += 0.0 if gamma is None else 0.5 * float(number.sum(axis=0) @ widths)
        # What of the log evidence the projections do not enter is left out.
        constant = -0.5 * len(occupied) * whole.shape[1] * log(latent_precision)
        hyper = np.array([shape, rate + 0.5 * squares, latent_precision, constant])
        first = np.cumsum([0, *widths])
        self.table = ClusterTable.of(first, hyper, total, number, occupied, whole)
        self._ends = np.cumsum([len(emission.intercept) for emission in emissions])[:-1]

    @property
    def w(self) -> NDArray[np.float64]:
        """What is optimised (M, K): L' W of all domains, one below the other."""
        return self.table.w[:, : self.n_factors]

    def projections(self) -> list[NDArray[np.float64]]:
        """Return the present projections (M_d, K)."""
        return [
            np.linalg.solve(e.root.T, w) if e.full else w / e.root[:, None]
            for e, w in zip(self.emissions, np.split(self.w, self._ends), strict=True)
        ]

    def maximise(self, most: int) -> float:
        """Climb from `w` by `most` steps, or fewer; return L."""
        table, h = self.table, min(most, _REMEMBERED)
        past, work = np.empty((h, 2, *table.w.shape)), np.empty((4, *table.w.shape))
        return maximise(table, len(table.sorted), self.n_factors, most, past, np.empty(h), work)


def kernels() -> list[Job]:
    """List what a step of `ProjectionMAP` calls."""
    numbers, vector, matrix = np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 1))
    cube, remembered = np.zeros((1, 1, 1)), np.zeros((1, 2, 1, 1))
    table = ClusterTable.of(numbers, vector, matrix, matrix, numbers, matrix)
    return [
        job(maximise, table, 1, 1, 1, remembered, vector, cube),
    ]
