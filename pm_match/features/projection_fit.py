r"""Many assignments scored with their projections fitted: the collapsed joint, maximised over W.

An assignment is a map from *groups* of objects (one domain's cluster, say) to labels, so that
cluster sums are sums over groups and no object is looked at. The projections are fitted by
parameter-expanded EM. With the latent vectors and their precision as what is missing, the M-step is
the least squares of Iwata, Hirao & Ueda (2016), eq. (19), row by row with each feature's own
counts,

.. math:: w_m = \Bigl(\sum_j N_{jm} M_j\Bigr)^{-1} \tfrac{a'}{b'} \sum_j S_{jm} \mu_j, \quad
          M_j = C_j + \tfrac{a'}{b'} \mu_j \mu_j^\top ,

and lets the latent vectors have a covariance :math:`\Phi` too, whose maximum :math:`\Phi =
\tfrac{r}{J} \sum_j M_j = L L^\top` goes into the projections as :math:`W L`. Without that, the
scale that projections and latent vectors share creeps, and a hundred iterations do not arrive.

Where nothing is missing, the objective depends on a domain's :math:`W_d` only through its products
with that domain's group sums and through :math:`W_d^\top W_d`, so that a maximum lies in the span
of the sums: a QR decomposition leaves as many rows as there are groups, exactly.
"""

from dataclasses import dataclass
from math import isnan, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.ahead import Job, job
from pm_match.numerics.cholesky import factorise, invert, solve_lower, solve_upper
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.stick_breaking import log_prior

# An iteration that gains less than this many nats is the last.
_TOLERANCE = 1e-4
_MOST_CYCLES = 100
# A fit that would have to gain this many times its last iteration's gain is given up.
_HOPELESS = 20.0
# Where the iterations start: how far the latent vectors are from known.
_VAGUE = 1e-3


class ClusterTable(NamedTuple):
    """Sums of T labels over R rows in B blocks of equal counts, and room for a fit of W."""

    # (B + 1,): where the rows of each block begin, and where the last ends
    first: NDArray[np.int64]
    # (4,): Posterior shape a', b plus half the sum of squares, r, and the log normaliser. A shape
    # of 0 says that no precision is integrated out, but 1.
    hyper: NDArray[np.float64]
    # total, number (T, R), (T, B): of every label, sums and observed values in each row of a block
    total: NDArray[np.float64]
    number: NDArray[np.float64]
    sorted: NDArray[np.int64]  # (T,): first of all, the labels that are not empty
    w: NDArray[np.float64]  # (R, K): the projections
    # moment, mean, gram (T, K, K), (T, K), (B, K, K): scratch
    moment: NDArray[np.float64]
    mean: NDArray[np.float64]
    gram: NDArray[np.float64]
    # work, vectors (3, K, K), (2, K): scratch
    work: NDArray[np.float64]
    vectors: NDArray[np.float64]

    @classmethod
    def of(cls, first, hyper, total, number, occupied, w) -> "ClusterTable":
        """Make a table of what is given, with room for a fit."""
        (t, n_blocks), k = number.shape, w.shape[1]
        room = np.empty((t, k, k)), np.empty((t, k)), np.empty((n_blocks, k, k))
        scratch = np.empty((3, k, k)), np.empty((2, k))
        return cls(first, hyper, total, number, occupied, w, *room, *scratch)


@part
def _add_up(table, sums, counts, held, labels):
    """Sum the groups by `labels` (G,); return how many labels are not empty."""
    n = 0
    for group in range(labels.shape[0]):
        label = labels[group]
        if held[group] == 0:
            continue
        new = True
        for x in range(n):
            new = new and table.sorted[x] != label
        if new:
            table.sorted[n] = label
            n += 1
            for m in range(sums.shape[1]):
                table.total[label, m] = 0.0
            for block in range(counts.shape[1]):
                table.number[label, block] = 0.0
        for m in range(sums.shape[1]):
            table.total[label, m] += sums[group, m]
        for block in range(counts.shape[1]):
            table.number[label, block] += counts[group, block]
    return n


@part
def _start(table, n, start, ratio):
    """Set means to those of `start` (T, K), and moments."""
    n_factors = table.w.shape[1]
    for x in range(n):
        for k in range(n_factors):
            table.mean[x, k] = start[table.sorted[x], k]
        for k in range(n_factors):
            for i in range(n_factors):
                table.moment[x, k, i] = ratio * table.mean[x, k] * table.mean[x, i]
            table.moment[x, k, k] += _VAGUE / table.hyper[2]


@part
def _maximise(table, n, ratio):
    """M-step: fill `w` given the moments and means of the `n` clusters that `sorted` lists."""
    n_factors = table.w.shape[1]
    r = table.hyper[2]
    matrix = table.work[0]
    lower = table.work[1]
    expanded = table.work[2]
    for k in range(n_factors):
        for i in range(n_factors):
            total = 0.0
            for x in range(n):
                total += table.moment[x, k, i]
            matrix[k, i] = r / n * total
    factorise(matrix, expanded)
    right = table.vectors[0]
    solution = table.vectors[1]
    for block in range(table.number.shape[1]):
        for k in range(n_factors):
            for i in range(k + 1):
                total = 0.0
                for x in range(n):
                    total += table.number[table.sorted[x], block] * table.moment[x, k, i]
                matrix[k, i] = total
        factorise(matrix, lower)
        for m in range(table.first[block], table.first[block + 1]):
            for k in range(n_factors):
                right[k] = 0.0
            for x in range(n):
                total = ratio * table.total[table.sorted[x], m]
                for k in range(n_factors):
                    right[k] += total * table.mean[x, k]
            solve_lower(lower, right, solution)
            solve_upper(lower, solution, right)
            for k in range(n_factors):
                total = 0.0
                for i in range(k, n_factors):
                    total += expanded[i, k] * right[i]
                table.w[m, k] = total


@part
def expect(table, n):
    """E-step: fill the moments and means given `w`; return the log evidence and a' / b'."""
    n_factors = table.w.shape[1]
    n_blocks = table.number.shape[1]
    r = table.hyper[2]
    precision = table.work[0]
    lower = table.work[1]
    scratch = table.work[2]
    vector = table.vectors[0]
    linear = table.vectors[1]
    for block in range(n_blocks):
        for k in range(n_factors):
            for i in range(k + 1):
                table.gram[block, k, i] = 0.0
        for m in range(table.first[block], table.first[block + 1]):
            for k in range(n_factors):
                for i in range(k + 1):
                    table.gram[block, k, i] += table.w[m, k] * table.w[m, i]
    value = table.hyper[3]
    rate = table.hyper[1]
    for x in range(n):
        _weigh(table, table.sorted[x], precision, linear)
        value += 0.5 * (n_factors * log(r) - factorise(precision, lower))
        rate -= 0.5 * solve_lower(lower, linear, vector)
        solve_upper(lower, vector, table.mean[x])
        invert(lower, scratch, table.moment[x])
    shape = table.hyper[0]
    ratio = shape / rate if shape > 0.0 else 1.0
    for x in range(n):
        for k in range(n_factors):
            for i in range(n_factors):
                table.moment[x, k, i] += ratio * table.mean[x, k] * table.mean[x, i]
    return value - (shape * log(rate) if shape > 0.0 else rate), ratio


@part
def _weigh(table, label, precision, linear):
    """Fill the inverse of C_j, its lower triangle, and m_j of a label, given `gram` and `w`."""
    n_factors = table.w.shape[1]
    for k in range(n_factors):
        linear[k] = 0.0
        for i in range(k + 1):
            precision[k, i] = table.hyper[2] if i == k else 0.0
    for block in range(table.number.shape[1]):
        count = table.number[label, block]
        if count == 0.0:
            continue
        for k in range(n_factors):
            for i in range(k + 1):
                precision[k, i] += count * table.gram[block, k, i]
    for m in range(table.total.shape[1]):
        total = table.total[label, m]
        for k in range(n_factors):
            linear[k] += total * table.w[m, k]


@part
def copy(source, target):
    """Copy a matrix (an assignment of slices would allocate)."""
    for m in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[m, k] = source[m, k]


@part
def _extrapolate(w, previous):
    """Put into `w` what its last two iterations point to; return whether that is far enough.

    The step length is that of squared extrapolation (Varadhan & Roland 2008, their S3).
    """
    size = 0.0
    bend = 0.0
    for m in range(w.shape[0]):
        for k in range(w.shape[1]):
            first = previous[1, m, k] - previous[0, m, k]
            second = w[m, k] - previous[1, m, k] - first
            size += first * first
            bend += second * second
    if not size > bend:
        return False
    step = sqrt(size / bend)
    for m in range(w.shape[0]):
        for k in range(w.shape[1]):
            start = previous[0, m, k]
            first = previous[1, m, k] - start
            second = w[m, k] - previous[1, m, k] - first
            previous[0, m, k] = w[m, k]
            w[m, k] = start + 2.0 * step * first + step * step * second
    return True


@part
def _fit(table, previous, n, ratio, floor):
    """Fit `w` from the means and moments of `n` clusters on; return the log evidence.

    Unless it will not reach `floor`. `previous` (2, R, K): scratch: the projections of two
    iterations ago, and of one.
    """
    _maximise(table, n, ratio)
    value, ratio = expect(table, n)
    for _ in range(_MOST_CYCLES):
        copy(table.w, previous[0])
        _maximise(table, n, ratio)
        old = value
        value, ratio = expect(table, n)
        if value - old < _TOLERANCE:
            return value
        copy(table.w, previous[1])
        _maximise(table, n, ratio)
        old = value
        value, ratio = expect(table, n)
        if value - old < _TOLERANCE or value + _HOPELESS * (value - old) < floor:
            return value
        if _extrapolate(table.w, previous):
            new, new_ratio = expect(table, n)
            if new > value:
                value, ratio = new, new_ratio
            else:
                copy(previous[0], table.w)
                value, ratio = expect(table, n)
    return value


@entry
def score(table, previous, sums, counts, held, sticks, labels, sizes, starts, ratios, margin, out):
    """Score assignments: log prior in the best order of labels, plus log evidence with W fitted.

    `previous`: as of `_fit`; `sums`, `counts`, `held`, `sticks`: as of `Groups`; `labels`, `sizes`
    (P, G), (P, T): for each of P assignments the label of every group, and the objects of every
    label in the best order; `starts`, `ratios` (P, T, K), (P,): the labels' means to start from,
    and a' / b'; `margin`: an assignment that is not going to come this near to the best one so far
    is given up: its score is then less than that, but not yet at its maximum. `out` (P,): filled:
    -inf where rounding leaves nothing of the fit. ``table.w`` is the last one's.
    """
    best = -np.inf
    for number in range(labels.shape[0]):
        n = _add_up(table, sums, counts, held, labels[number])
        _start(table, n, starts[number], ratios[number])
        prior = log_prior(sticks[0], sticks[1], sizes[number])
        value = prior + _fit(table, previous, n, ratios[number], best - margin - prior)
        out[number] = -np.inf if isnan(value) else value
        best = max(best, out[number])


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of objects, ready to be scored under any assignment to labels."""

    table: ClusterTable
    # sums, counts (G, R), (G, B): of every group, over R rows in B blocks of equal counts
    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    held: NDArray[np.int64]  # (G,): objects in each group
    sticks: NDArray[np.float64]  # (2, T - 1): Beta parameters
    order: NDArray[np.int64]  # (T,): labels, the one with the largest prior weight first
    # list of (M_d, R_d) or None: for every domain the orthonormal basis of its rows, None where
    # these are its features
    bases: list[NDArray[np.float64] | None]
    ends: NDArray[np.int64]  # (D - 1,): where the rows of the second and of later domains begin
    of_unit: NDArray[np.int64]  # (U,): the group of every unit
    # home, label (G,): the home (see `FeatureProblem.homes`) and the present label of every group
    home: NDArray[np.int64]
    label: NDArray[np.int64]

    def kernel(self) -> Job:
        """Return what `score` calls, as `compile_ahead` takes it."""
        return job(score, *self._given(self.label[None]), 0.0, np.empty(1))

    def score(self, labels: NDArray[np.int64], margin: float = np.inf) -> NDArray[np.float64]:
        """Log joint (P,) of assignments (P, G) of groups to labels, with projections fitted.

        Fits of assignments that will not come within `margin` of an earlier one are given up.
        """
        out = np.empty(len(labels))
        score(*self._given(np.ascontiguousarray(labels)), margin, out)
        return out

    def fit(self) -> tuple[float, list[NDArray[np.float64]]]:
        """Log joint of the present assignment, and its projections, (M_d, K) for every domain."""
        value = float(self.score(self.label[None])[0])
        own = np.split(self.table.w.copy(), self.ends)
        return value, [
            w if basis is None else basis @ w for w, basis in zip(own, self.bases, strict=True)
        ]

    def _given(self, labels: NDArray[np.int64]):
        """Give what `score` takes of assignments (P, G)."""
        member = labels[:, None, :] == np.arange(len(self.order))[:, None]
        sizes = np.empty(member.shape[:2], np.int64)
        # The larger a cluster, the heavier its label.
        sizes[:, self.order] = -np.sort(-(member @ self.held), axis=1)
        return (
            self.table,
            np.empty((2, *self.table.w.shape)),
            self.sums,
            self.counts,
            self.held,
            self.sticks,
            labels,
            sizes,
            *self._starts(member),
        )

    def _starts(self, member: NDArray[np.bool_]) -> tuple[NDArray, NDArray]:
        """Start from the leading principal components of labels' means.

        `member` (P, T, G): which groups are of each label. Return means (P, T, K), and a' / b'.
        """
        k, (shape, squares, r, _) = self.table.w.shape[1], self.table.hyper
        # Observed values of every group, and so of every label, in a row.
        n = self.counts @ np.diff(self.table.first) / max(self.sums.shape[1], 1)
        used = np.flatnonzero(member.any(axis=(0, 2)))
        largest = np.abs(self.sums).max(initial=0.0) or 1.0
        gram = (self.sums / largest) @ (self.sums / largest).T
        own = member[:, used] / np.sqrt(np.maximum(member[:, used] @ n, 1e-300))[:, :, None]
        values, vectors = np.linalg.eigh(own @ gram @ own.mT)
        left = squares - 0.5 * largest**2 * values.sum(axis=1)
        ratios = shape / np.maximum(left, 1e-3 * squares)
        size = np.sqrt(member.any(axis=2).sum(axis=1) / (r * ratios))
        starts = np.zeros((*member.shape[:2], k))
        leading = vectors[:, :, ::-1][:, :, :k]
        starts[:, used, : leading.shape[2]] = leading * size[:, None, None]
        return starts, ratios
