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
from pm_match.numerics.stick_breaking import stick_factor

# An iteration that gains less than this many nats is the last.
_TOLERANCE = 1e-4
_MOST_CYCLES = 100
# A fit that would have to gain this many times its last iteration's gain is given up.
_HOPELESS = 20.0
# Where the iterations start: how far the latent vectors are from known.
_VAGUE = 1e-3
_MOST_ROTATIONS = 30


class GroupTable(NamedTuple):
    """Sums of G groups over R rows in B blocks of equal counts, and room for a fit of T labels."""

    sums: NDArray[np.float64]  # (G, R)
    counts: NDArray[np.float64]  # (G, B): observed values of a group in each row of a block
    held: NDArray[np.int64]  # (G,): objects in each group
    # (B + 1,): where the rows of each block begin, and where the last ends
    first: NDArray[np.int64]
    # (4,): Posterior shape a', b plus half the sum of squares, r, and the log normaliser. A shape
    # of 0 says that no precision is integrated out, but 1.
    hyper: NDArray[np.float64]
    # a, b (T - 1,): Beta parameters of the sticks
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    order: NDArray[np.int64]  # (T,): labels, the one with the largest prior weight first
    # total, number, size, sorted (T, R), (T, B), (T,), (T,): sums, counts and objects of every
    # label; the objects by label, largest first
    total: NDArray[np.float64]
    number: NDArray[np.float64]
    size: NDArray[np.int64]
    sorted: NDArray[np.int64]
    w: NDArray[np.float64]  # (R, K): the fitted projections
    # (2, R, K): scratch: the projections of two iterations ago, and of one
    previous: NDArray[np.float64]
    # moment, mean, gram, eigen (T, K, K), (T, K), (B, K, K), (2, T, T): scratch
    moment: NDArray[np.float64]
    mean: NDArray[np.float64]
    gram: NDArray[np.float64]
    eigen: NDArray[np.float64]
    # work, vectors (3, K, K), (2, K): scratch
    work: NDArray[np.float64]
    vectors: NDArray[np.float64]

    @classmethod
    def of(cls, sums, counts, held, first, hyper, prior, n_factors: int) -> "GroupTable":
        """Make a table of what is given, with room for a fit; `prior` is a, b and the order."""
        a, b, order = prior
        t, k, n_rows, n_blocks = len(order), n_factors, sums.shape[1], counts.shape[1]
        return cls(
            sums=np.ascontiguousarray(sums),
            counts=np.ascontiguousarray(counts),
            held=held,
            first=first,
            hyper=hyper,
            a=np.ascontiguousarray(a, np.float64),
            b=np.ascontiguousarray(b, np.float64),
            order=order,
            total=np.zeros((t, n_rows)),
            number=np.zeros((t, n_blocks)),
            size=np.zeros(t, np.int64),
            sorted=np.zeros(t, np.int64),
            w=np.zeros((n_rows, k)),
            previous=np.zeros((2, n_rows, k)),
            moment=np.zeros((t, k, k)),
            mean=np.zeros((t, k)),
            gram=np.zeros((n_blocks, k, k)),
            eigen=np.zeros((2, t, t)),
            work=np.zeros((3, k, k)),
            vectors=np.zeros((2, k)),
        )


@part
def _add_up(table, labels):
    """Sum the groups by `labels` (G,) into `total`, `number` and `size`."""
    n_rows = table.sums.shape[1]
    n_blocks = table.counts.shape[1]
    for label in range(table.size.shape[0]):
        table.size[label] = 0
    for group in range(labels.shape[0]):
        label = labels[group]
        if table.held[group] == 0:
            continue
        if table.size[label] == 0:
            for m in range(n_rows):
                table.total[label, m] = 0.0
            for block in range(n_blocks):
                table.number[label, block] = 0.0
        table.size[label] += table.held[group]
        for m in range(n_rows):
            table.total[label, m] += table.sums[group, m]
        for block in range(n_blocks):
            table.number[label, block] += table.counts[group, block]


@part
def _log_prior(table):
    """Log p(s) with the labels in their best order: the larger a cluster, the heavier its label."""
    n_labels = table.size.shape[0]
    # Insertion sort: a few clusters, most of them empty.
    for label in range(n_labels):
        size = table.size[label]
        place = label
        while place > 0 and table.sorted[place - 1] < size:
            table.sorted[place] = table.sorted[place - 1]
            place -= 1
        table.sorted[place] = size
    counts = table.size
    for place in range(n_labels):
        counts[table.order[place]] = table.sorted[place]
    total = 0.0
    after = 0
    for label in range(n_labels - 1, -1, -1):
        if label < n_labels - 1:
            total += stick_factor(table.a[label], table.b[label], counts[label], after)
        after += counts[label]
    return total


@part
def _start(table):
    """Set means and moments to start from: the leading principal components of cluster means."""
    n_labels = table.size.shape[0]
    n_factors = table.w.shape[1]
    r = table.hyper[2]
    gram = table.eigen[0]
    vectors = table.eigen[1]
    rate = table.hyper[1]
    n = 0
    for i in range(n_labels):
        if table.size[i] == 0:
            continue
        table.sorted[n] = i
        n += 1
    for x in range(n):
        i = table.sorted[x]
        for y in range(x + 1):
            j = table.sorted[y]
            value = 0.0
            for block in range(table.counts.shape[1]):
                scale = table.number[i, block] * table.number[j, block]
                if scale > 0.0:
                    product = 0.0
                    for m in range(table.first[block], table.first[block + 1]):
                        product += table.total[i, m] * table.total[j, m]
                    value += product / sqrt(scale)
            gram[x, y] = value
            gram[y, x] = value
            vectors[x, y] = 0.0
            vectors[y, x] = 0.0
        vectors[x, x] = 1.0
        rate -= 0.5 * gram[x, x]
    if n > n_factors:
        _diagonalise(gram, vectors, n)
    ratio = table.hyper[0] / max(rate, 1e-12 * table.hyper[1])
    size = sqrt(n / (r * ratio))
    for x in range(n):
        for k in range(n_factors):
            table.mean[x, k] = 0.0
    for k in range(min(n, n_factors)):
        best = k
        if n > n_factors:
            # The k-th largest: what was taken is marked.
            best = -1
            for x in range(n):
                if gram[x, x] > -np.inf and (best < 0 or gram[x, x] > gram[best, best]):
                    best = x
            gram[best, best] = -np.inf
        for x in range(n):
            table.mean[x, k] = size * vectors[x, best]
    for x in range(n):
        for k in range(n_factors):
            for i in range(n_factors):
                table.moment[x, k, i] = ratio * table.mean[x, k] * table.mean[x, i]
            table.moment[x, k, k] += _VAGUE / r
    return n, ratio


@part
def _diagonalise(matrix, vectors, n):
    """Diagonalise the symmetric ``matrix[:n, :n]`` in place by Jacobi rotations of `vectors`."""
    for _ in range(_MOST_ROTATIONS):
        off = 0.0
        size = 0.0
        for x in range(n):
            size += matrix[x, x] * matrix[x, x]
            for y in range(x):
                off += matrix[x, y] * matrix[x, y]
        # A start need not be more exact than this.
        if off <= 1e-12 * size:
            return
        for x in range(n):
            for y in range(x):
                if matrix[x, y] == 0.0:
                    continue
                theta = 0.5 * (matrix[x, x] - matrix[y, y]) / matrix[x, y]
                sign = 1.0 if theta >= 0.0 else -1.0
                t = sign / (abs(theta) + sqrt(1.0 + theta * theta))
                c = 1.0 / sqrt(1.0 + t * t)
                s = t * c
                for z in range(n):
                    one = matrix[z, y]
                    two = matrix[z, x]
                    matrix[z, y] = c * one - s * two
                    matrix[z, x] = s * one + c * two
                for z in range(n):
                    one = matrix[y, z]
                    two = matrix[x, z]
                    matrix[y, z] = c * one - s * two
                    matrix[x, z] = s * one + c * two
                for z in range(n):
                    one = vectors[z, y]
                    two = vectors[z, x]
                    vectors[z, y] = c * one - s * two
                    vectors[z, x] = s * one + c * two


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
    for block in range(table.counts.shape[1]):
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
        weigh(table, table.sorted[x], precision, linear)
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
def weigh(table, label, precision, linear):
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
def _extrapolate(table):
    """Put into `w` what its last two iterations point to; return whether that is far enough.

    The step length is that of squared extrapolation (Varadhan & Roland 2008, their S3).
    """
    size = 0.0
    bend = 0.0
    for m in range(table.w.shape[0]):
        for k in range(table.w.shape[1]):
            first = table.previous[1, m, k] - table.previous[0, m, k]
            second = table.w[m, k] - table.previous[1, m, k] - first
            size += first * first
            bend += second * second
    if not size > bend:
        return False
    step = sqrt(size / bend)
    for m in range(table.w.shape[0]):
        for k in range(table.w.shape[1]):
            start = table.previous[0, m, k]
            first = table.previous[1, m, k] - start
            second = table.w[m, k] - table.previous[1, m, k] - first
            table.previous[0, m, k] = table.w[m, k]
            table.w[m, k] = start + 2.0 * step * first + step * step * second
    return True


@part
def _fit(table, labels, floor):
    """Fit `w` to an assignment, unless it will not reach `floor`; return the log evidence."""
    _add_up(table, labels)
    n, ratio = _start(table)
    _maximise(table, n, ratio)
    value, ratio = expect(table, n)
    for _ in range(_MOST_CYCLES):
        copy(table.w, table.previous[0])
        _maximise(table, n, ratio)
        old = value
        value, ratio = expect(table, n)
        if value - old < _TOLERANCE:
            return value
        copy(table.w, table.previous[1])
        _maximise(table, n, ratio)
        old = value
        value, ratio = expect(table, n)
        if value - old < _TOLERANCE or value + _HOPELESS * (value - old) < floor:
            return value
        if _extrapolate(table):
            new, new_ratio = expect(table, n)
            if new > value:
                value, ratio = new, new_ratio
            else:
                copy(table.previous[0], table.w)
                value, ratio = expect(table, n)
    return value


@entry
def score(table, labels, margin, out):
    """Score assignments: log prior in the best order of labels, plus log evidence with W fitted.

    Parameters
    ----------
    table : GroupTable
    labels : (P, G) integer array
        For each of P assignments, the label of every group.
    margin : float
        An assignment that is not going to come this near to the best one so far is given up: its
        score is then less than that, but not yet at its maximum.
    out : (P,) array
        Filled: -inf where rounding leaves nothing of the fit. ``table.w`` is the last one's.
    """
    best = -np.inf
    for number in range(labels.shape[0]):
        _add_up(table, labels[number])
        prior = _log_prior(table)
        value = prior + _fit(table, labels[number], best - margin - prior)
        out[number] = -np.inf if isnan(value) else value
        best = max(best, out[number])


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of objects, ready to be scored under any assignment to labels."""

    table: GroupTable
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
        return job(
            score, self.table, np.zeros((1, len(self.table.held)), np.int64), 0.0, np.empty(1)
        )

    def score(self, labels: NDArray[np.int64], margin: float = np.inf) -> NDArray[np.float64]:
        """Log joint (P,) of assignments (P, G) of groups to labels, with projections fitted.

        Fits of assignments that will not come within `margin` of an earlier one are given up.
        """
        out = np.empty(len(labels))
        score(self.table, np.ascontiguousarray(labels), margin, out)
        return out

    def fit(self) -> tuple[float, list[NDArray[np.float64]]]:
        """Log joint of the present assignment, and its projections, (M_d, K) for every domain."""
        value = float(self.score(self.label[None])[0])
        own = np.split(self.table.w.copy(), self.ends)
        return value, [
            w if basis is None else basis @ w for w, basis in zip(own, self.bases, strict=True)
        ]
