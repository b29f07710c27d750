r"""Moves of frequencies with all coefficients integrated out.

Given their scales, labels are normal observations of the scores (see `views.hinge.scales`), and the
coefficients of the features F integrate out: with :math:`A = vI + F^T W F` and
:math:`b = F^T W t`, the log density of the labels is

.. math:: -\tfrac12 \log|A| + \tfrac12 b^T A^{-1} b + \tfrac12 P \log v

up to a constant, summed over the columns of scores. Another frequency changes two columns J of
F: its cosines and its sines. With :math:`S = A^{-1}` and :math:`m = Sb`, what the present ones say
is :math:`\tfrac12 \log|S_{JJ}| + \tfrac12 m_J^T S_{JJ}^{-1} m_J`, and what others, :math:`\phi'`,
would say is :math:`-\tfrac12 \log|Q| + \tfrac12 e^T Q^{-1} e`, where R are all other columns and

.. math:: a = F_R^T W \phi', \quad g = (A_{RR})^{-1} a = S_{RR} a - S_{RJ} S_{JJ}^{-1} S_{JR} a,
          \quad Q = \phi'^T W \phi' + vI - a^T g, \quad e = \phi'^T W t - g^T b_R.

All candidates are made at once, and with them all inner products of present and candidate columns:
one product of matrices, the only work that grows with the objects. What is left for each is
quadratic in the number of coefficients.

To move all frequencies at once there is the gradient. In the features it is

.. math:: W t\, m^T - W F (S + m m^T)

summed over the columns of scores, and in the angles of a frequency its cosines times what is found
for its sines, less its sines times what is found for its cosines.
"""

from math import log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dsyrk
from scipy.linalg.lapack import dpotri

from pm_match.numerics.ahead import Job, job
from pm_match.numerics.kernels import entry, reducing
from pm_match.numerics.sines import sines
from pm_match.reading.densities import log_normal
from pm_match.views.hinge import fill_waves, fourier_values
from pm_match.views.hinge.scales import LostPrecision, factorise, log_marginal, lost


class FrequencyEvidence:
    """What labels, as normal observations of scores, say of frequencies and of v.

    `latent` (N, m); `frequencies` (M, m); `weights`, `pulls` (N, K): of the observations: see
    `hinge.observe`. `precision`: v. It has `frequencies` (M, m): the present ones; `log_evidence`:
    the log density of the labels, at these.
    """

    def __init__(
        self,
        latent: NDArray,
        frequencies: NDArray,
        weights: NDArray,
        pulls: NDArray,
        precision: float,
    ):
        self.latent = np.ascontiguousarray(latent, np.float64)
        self.frequencies = np.array(frequencies, np.float64)
        self.precision = float(precision)
        self._roots = np.sqrt(weights)
        self._pulls = pulls
        self._n_columns = weights.shape[1]
        self._set(*self._summed(self.frequencies))

    def _summed(self, frequencies):
        """Sum up the data by features: (K, P, P) inner products and (K, P) pulls."""
        features = fourier_values(self.latent, frequencies)
        return self._products(features), self._pulls.T @ features

    def _products(self, features):
        n = features.shape[1]
        products = np.empty((self._n_columns, n, n))
        for own, root in zip(products, self._roots.T, strict=True):
            # In place: the lower triangle in BLAS's order is the upper one here.
            dsyrk(1.0, (features * root[:, None]).T, c=own.T, overwrite_c=1, lower=1)
            _mirror(own)
        return products

    def _set(self, products, pulls) -> None:
        self._products_now, self._pulls_now = products, pulls
        self._factors = [factorise(own, self.precision) for own in products]
        self.log_evidence = self._log_evidence(self._factors, pulls, self.precision)

    @staticmethod
    def _log_evidence(factors, pulls, precision: float) -> float:
        return sum(
            log_marginal(lower, pull, precision) for lower, pull in zip(factors, pulls, strict=True)
        )

    def sweep(self, candidates: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray:
        """Let every frequency move to its candidate, one after the other.

        Where a candidate might be one at which A cannot be factorised, each is factorised: what
        cannot be is refused, by itself.

        `candidates` (M, m); `levels` (M,): what the gain in log density must exceed: the log of a
        uniform number where candidates are drawn from a kernel that leaves the prior alone. Return
        `accepted` (M,) of bool.
        """
        if not self.safe:
            return self._sweep_one_by_one(candidates, levels)
        n = len(self.frequencies)
        p = 2 * n + 1
        features = np.empty((len(self.latent), p + 2 * n))
        fill_waves(self.latent, self.frequencies, features[:, : 2 * n])
        features[:, 2 * n] = 1.0
        fill_waves(self.latent, candidates, features[:, p:])
        products, pulls = self._products(features), self._pulls.T @ features
        inverses = np.stack([_inverse(lower) for lower in self._factors])
        current = np.arange(p)
        accepted = np.zeros(n, np.bool_)
        scratch = np.empty((self._n_columns, 4, p))
        pairs = np.empty((self._n_columns, 6))
        _sweep(
            products,
            pulls,
            np.array(pulls[:, :p]),
            inverses,
            self.precision,
            current,
            levels,
            accepted,
            scratch,
            pairs,
        )
        self.frequencies[accepted] = candidates[accepted]
        self._set(products[:, current[:, None], current], pulls[:, current])
        return accepted

    @property
    def safe(self) -> bool:
        """Whether A can be factorised at all frequencies: its squared pivots are at least v.

        The largest of its diagonal is that of the constant feature, whatever the others are.
        """
        largest = self._products_now[:, -1, -1].max() + self.precision
        return self.precision > 2.0 * lost(self._products_now.shape[1], largest)

    def _sweep_one_by_one(self, candidates, levels) -> NDArray:
        """Sweep with an evaluation of its own for every candidate."""
        accepted = np.zeros(len(levels), np.bool_)
        for j, level in enumerate(levels):
            moved = np.array(self.frequencies)
            moved[j] = candidates[j]
            try:
                other = self.at(moved)
            except LostPrecision:
                continue
            if other.log_evidence - self.log_evidence > level:
                vars(self).update(vars(other))
                accepted[j] = True
        return accepted

    def gradient(self) -> NDArray[np.float64]:
        """Differentiate the log evidence by the present frequencies: an array (M, m)."""
        n = len(self.frequencies)
        features = fourier_values(self.latent, self.frequencies)
        means = np.empty((self._n_columns, features.shape[1]))
        # In BLAS's order features are columns, as they are in what is summed up.
        slopes = np.zeros(features.shape[::-1], order="F")
        for mean, lower, pull, root in zip(
            means, self._factors, self._pulls_now, self._roots.T, strict=True
        ):
            spread = _inverse(lower)
            mean[:] = spread @ pull
            spread += np.outer(mean, mean)
            weighted = (features * np.square(root)[:, None]).T
            slopes = dgemm(-1.0, spread.T, weighted, 1.0, slopes, overwrite_c=1)
        slopes = slopes.T
        slopes += self._pulls @ means
        by_angle = features[:, :n] * slopes[:, n : 2 * n]
        by_angle -= features[:, n : 2 * n] * slopes[:, :n]
        return by_angle.T @ self.latent

    def at(self, frequencies: NDArray[np.float64]) -> "FrequencyEvidence":
        """Return the evidence at other frequencies, all of them."""
        other = object.__new__(FrequencyEvidence)
        other.__dict__.update(self.__dict__)
        other.frequencies = np.array(frequencies, np.float64)
        other._set(*other._summed(other.frequencies))
        return other

    def try_precision(self, precision: float):
        """Return the log evidence at another v, and the Cholesky factors there.

        Where numbers end, there is nothing to go to.
        """
        try:
            factors = [factorise(own, precision) for own in self._products_now]
        except LostPrecision:
            return -np.inf, []
        return self._log_evidence(factors, self._pulls_now, precision), factors

    def set_precision(self, precision: float, log_evidence: float, factors: list[NDArray]) -> None:
        """Move to another v, as `try_precision` found it."""
        self.precision, self.log_evidence, self._factors = precision, log_evidence, factors

    def coefficients(self):
        """Give for every column the Cholesky factor of A and b: what to draw coefficients from."""
        return list(zip(self._factors, self._pulls_now, strict=True))


def _inverse(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """Invert the matrix whose Cholesky factor is `lower`; both triangles."""
    inverse, _ = dpotri(lower, lower=1)
    # In this order, BLAS's lower triangle is the upper one.
    inverse = inverse.T
    _mirror(inverse)
    return inverse


class FrequencyPrior(NamedTuple):
    """Independent normal priors of frequencies: means + factors z, with z standard normal."""

    means: NDArray[np.float64]  # (M, m)
    factors: NDArray[np.float64]  # (M, m, m): lower Cholesky factors of the covariances

    def coloured(self, z: NDArray) -> NDArray[np.float64]:
        """Give the frequencies (..., M, m) at which the standard coordinates are `z`."""
        return self.means + np.einsum("jab,...jb->...ja", self.factors, z)

    def whitened(self, frequencies: NDArray) -> NDArray[np.float64]:
        """Give the standard coordinates (..., M, m) of frequencies."""
        return np.linalg.solve(self.factors, (frequencies - self.means)[..., None])[..., 0]

    def log_density(self, frequencies: NDArray) -> float:
        """Log density of the frequencies (M, m)."""
        scales = np.diagonal(self.factors, axis1=-2, axis2=-1)
        return float((log_normal(self.whitened(frequencies), 0.0, 1.0) - np.log(scales)).sum())

    def pulled(self, gradient: NDArray) -> NDArray[np.float64]:
        """Turn gradients in the frequencies into gradients in their standard coordinates."""
        return np.einsum("jab,...ja->...jb", self.factors, gradient)

    def propose(
        self, rng: np.random.Generator, frequencies: NDArray, steps: NDArray
    ) -> NDArray[np.float64]:
        r"""Propose frequencies by preconditioned Crank-Nicolson, which leaves the prior alone.

        :math:`\omega' = \mu + \sqrt{1 - \rho^2} (\omega - \mu) + \rho L \xi`, with `steps` (M,)
        ρ; a draw from the prior at :math:`\rho = 1` (Cotter, Roberts, Stuart & White 2013, "MCMC
        methods for functions").
        """
        rest = np.sqrt(1.0 - np.square(steps))[:, None] * (frequencies - self.means)
        return self.coloured(steps[:, None] * rng.standard_normal(frequencies.shape)) + rest


class EvidenceTerm:
    """Log evidence of frequencies as a function of them, for Hamiltonian moves of all at once.

    Its `evidence` is at the last place where it could be evaluated.
    """

    def __init__(self, evidence: FrequencyEvidence):
        self.evidence = evidence

    def __call__(self, frequencies: NDArray) -> tuple[NDArray, NDArray]:
        """Evaluate the log evidence (1,) and its gradient at frequencies, both (1, M, m)."""
        # Where numbers end, as far from where a move began they may, there is nothing to go to.
        try:
            if not np.isfinite(frequencies).all():
                raise np.linalg.LinAlgError
            self.evidence = self.evidence.at(frequencies[0])
        except np.linalg.LinAlgError:
            return np.array([-np.inf]), np.zeros_like(frequencies)
        return np.array([self.evidence.log_evidence]), self.evidence.gradient()[None]


def kernels() -> list[Job]:
    """List what moves of frequencies call."""
    row, square, cube = np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1, 1))
    columns, accepted = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    given = cube, square, square, cube, 1.0, columns, row, accepted, cube, square
    return [job(sines, square, square, square), job(_mirror, square), job(_sweep, *given)]


@entry
def _mirror(matrix):
    """Copy the upper triangle of a matrix to the lower one."""
    for i in range(matrix.shape[0]):
        for j in range(i):
            matrix[i, j] = matrix[j, i]


@reducing
def _multiply(matrix, one, other, out_one, out_other):
    """Multiply a symmetric matrix (P, P) by two vectors at once."""
    n = matrix.shape[0]
    for i in range(n):
        first = 0.0
        second = 0.0
        for j in range(n):
            first += matrix[i, j] * one[j]
            second += matrix[i, j] * other[j]
        out_one[i] = first
        out_other[i] = second


@reducing
def _dot(one, other):
    total = 0.0
    for i in range(one.shape[0]):
        total += one[i] * other[i]
    return total


@entry
def _sweep(products, pulls, pull, inverses, precision, current, levels, accepted, scratch, pairs):
    """Move frequencies one after the other; see the module.

    `products` (K, P + 2M, P + 2M): inner products of present, then candidate columns; `pulls`
    (K, P + 2M). Brought up to date are `pull` (K, P), of the present columns; `inverses` (K, P, P),
    S of every column of scores; and `current` (P,), which columns the present ones are. `levels`
    (M,); `accepted` (M,): filled; `scratch` (K, 4, P) and `pairs` (K, 6).
    """
    n_columns, p = pull.shape
    n = levels.shape[0]
    for j in range(n):
        first, second = j, n + j
        new_first, new_second = p + j, p + n + j
        gain = 0.0
        for k in range(n_columns):
            inverse, own = inverses[k], products[k]
            a, b, g, h = scratch[k, 0], scratch[k, 1], scratch[k, 2], scratch[k, 3]
            for i in range(p):
                a[i] = own[new_first, current[i]]
                b[i] = own[new_second, current[i]]
            # What a and b have in J is taken out again below, with the present columns.
            _multiply(inverse, a, b, g, h)
            # The present columns: S_JJ, its inverse, and m_J.
            s00, s01, s11 = inverse[first, first], inverse[first, second], inverse[second, second]
            det = s00 * s11 - s01 * s01
            t00, t01, t11 = s11 / det, -s01 / det, s00 / det
            m0 = _dot(inverse[first], pull[k])
            m1 = _dot(inverse[second], pull[k])
            gain -= 0.5 * (log(det) + t00 * m0 * m0 + 2.0 * t01 * m0 * m1 + t11 * m1 * m1)
            # Without them.
            c0, c1 = t00 * g[first] + t01 * g[second], t01 * g[first] + t11 * g[second]
            d0, d1 = t00 * h[first] + t01 * h[second], t01 * h[first] + t11 * h[second]
            for i in range(p):
                g[i] -= inverse[first, i] * c0 + inverse[second, i] * c1
                h[i] -= inverse[first, i] * d0 + inverse[second, i] * d1
            g[first] = g[second] = h[first] = h[second] = 0.0
            q00 = own[new_first, new_first] + precision - _dot(a, g)
            q01 = own[new_first, new_second] - _dot(a, h)
            q11 = own[new_second, new_second] + precision - _dot(b, h)
            e0 = pulls[k, new_first] - _dot(g, pull[k])
            e1 = pulls[k, new_second] - _dot(h, pull[k])
            det = q00 * q11 - q01 * q01
            u00, u01, u11 = q11 / det, -q01 / det, q00 / det
            gain += 0.5 * (u00 * e0 * e0 + 2.0 * u01 * e0 * e1 + u11 * e1 * e1 - log(det))
            pairs[k, 0], pairs[k, 1], pairs[k, 2] = t00, t01, t11
            pairs[k, 3], pairs[k, 4], pairs[k, 5] = u00, u01, u11
        # False, too, if rounding has made the gain no number.
        if not gain > levels[j]:
            continue
        accepted[j] = True
        current[first], current[second] = new_first, new_second
        for k in range(n_columns):
            inverse = inverses[k]
            a, b, g, h = scratch[k, 0], scratch[k, 1], scratch[k, 2], scratch[k, 3]
            t00, t01, t11 = pairs[k, 0], pairs[k, 1], pairs[k, 2]
            u00, u01, u11 = pairs[k, 3], pairs[k, 4], pairs[k, 5]
            for i in range(p):
                a[i], b[i] = inverse[first, i], inverse[second, i]
            for i in range(p):
                c0, c1 = t00 * a[i] + t01 * b[i], t01 * a[i] + t11 * b[i]
                d0, d1 = u00 * g[i] + u01 * h[i], u01 * g[i] + u11 * h[i]
                row = inverse[i]
                for m in range(p):
                    row[m] += d0 * g[m] + d1 * h[m] - c0 * a[m] - c1 * b[m]
            for i in range(p):
                c0, c1 = -(u00 * g[i] + u01 * h[i]), -(u01 * g[i] + u11 * h[i])
                inverse[i, first] = inverse[first, i] = c0
                inverse[i, second] = inverse[second, i] = c1
            inverse[first, first], inverse[second, second] = u00, u11
            inverse[first, second] = inverse[second, first] = u01
            pull[k, first], pull[k, second] = pulls[k, new_first], pulls[k, new_second]
