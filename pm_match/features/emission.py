r"""Emissions: how the features of a domain vary around the latent vector of a cluster.

.. math:: x_{dn} \sim N(a_d + W_d z_{s_{dn}},\; \Lambda_d^{-1})

with an intercept :math:`a_d` and a noise of its own, private variation within clusters included. A
cluster may also have a *deviation* from what its latent vector says, private to the domain,

.. math:: x_{dn} \sim N(a_d + W_d z_{s_{dn}} + e_{d s_{dn}},\; \Lambda_d^{-1}), \quad
          e_{dj} \sim N(0, \mathrm{diag}(\kappa_d^2)),

which is nothing but more factors, whose projections are known: :math:`\kappa_d` on the domain's own
block and zero elsewhere. Everything below sees one projection of all factors.

Missing values are integrated out. Where the noise of features is dependent, what is observed of an
object (its *pattern* o) has the precision :math:`\Lambda_o = (\Sigma_{oo})^{-1} = L_o L_o^\top`,
here with zeros where something is missing, so that it multiplies whole vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kept import Kept
from pm_match.numerics.masked import MaskedTable, pattern_grams

_LOG_2PI = log(2.0 * pi)


class ObjectStatistics(NamedTuple):
    """What objects say of their factors z: log N(x_n; ...) = c - (z' G z - 2 h' z + x' x) / 2."""

    gram: NDArray  # (P, K, K): G of every pattern of what is observed
    projected: NDArray  # (N, K): h of every object
    # squares, constants (N,): x' x in units of the noise, and c
    squares: NDArray
    constants: NDArray

    def to_the(self, power: float) -> "ObjectStatistics":
        """Return those of the densities to a power."""
        return self if power == 1.0 else ObjectStatistics(*(power * own for own in self))


@dataclass(frozen=True, eq=False)
class Emission:
    """The parameters of a domain's features at a point."""

    projection: NDArray[np.float64]  # (M, K): of all factors, those of deviations included
    intercept: NDArray[np.float64]  # (M,)
    # (M,) or (M, M): L, with the noise precision L L'; or its diagonal if features are independent
    root: NDArray[np.float64]
    _scaled: Kept = field(default_factory=Kept, init=False, repr=False)

    @classmethod
    def of_projection(cls, projection: NDArray) -> "Emission":
        """Return the emission with a projection and standard noise."""
        return cls(projection, np.zeros(len(projection)), np.ones(len(projection)))

    @classmethod
    def of_noise(cls, root: NDArray) -> "Emission":
        """Return the emission that is nothing but noise with a root of its precision."""
        return cls(np.zeros((len(root), 0)), np.zeros(len(root)), root)

    @property
    def full(self) -> bool:
        """Whether the noise of features is dependent."""
        return self.root.ndim == 2

    @cached_property
    def standard(self) -> bool:
        """Whether there is no intercept, and all noise is independent with a precision of 1."""
        return not self.full and not self.intercept.any() and bool((self.root == 1.0).all())

    @property
    def log_root(self) -> NDArray[np.float64]:
        """Log of the diagonal of L (M,), whose sum is half of log |precision|."""
        return np.log(np.diagonal(self.root) if self.full else self.root)

    def whiten(self, residuals: NDArray) -> NDArray[np.float64]:
        """Scale residuals (..., M), nothing missing, so that their noise is standard normal."""
        return residuals @ self.root if self.full else residuals * self.root

    def whitened_projection(self) -> NDArray[np.float64]:
        """Return L' W, the projection of whitened residuals."""
        return self.root.T @ self.projection if self.full else self.root[:, None] * self.projection

    @property
    def precision(self) -> NDArray[np.float64]:
        """The noise precision (M, M), or its diagonal (M,)."""
        return self.root @ self.root.T if self.full else self.root**2

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance of the noise (M, M)."""
        if self.full:
            inverse = np.linalg.inv(self.root)
            return inverse.T @ inverse
        return np.diag(self.root**-2.0)

    def scaled(self, precision: float) -> "Emission":
        """Multiply the noise precision by a shared one; it is the same object for the same one."""
        return self._scaled(
            lambda own: Emission(self.projection, self.intercept, self.root * np.sqrt(own)),
            precision,
        )

    def restricted(self, seen: NDArray[np.bool_]) -> "Emission":
        """Return the emission of some of the features (M,), the others integrated out."""
        if seen.all():
            return self
        root = self.root[seen]
        if self.full:
            lower = np.linalg.cholesky(self.covariance[np.ix_(seen, seen)])
            root = np.linalg.inv(lower).T
        return Emission(self.projection[seen], self.intercept[seen], root)

    def whitened(self, data: MaskedTable) -> MaskedTable:
        """Shift and whiten data, of which nothing is missing if the noise is dependent."""
        if self.standard:
            return data
        values = self.whiten(data.values - self.intercept)
        if data.observed is not None:
            values[~data.observed] = 0.0
        return MaskedTable(np.ascontiguousarray(values), data.observed)

    def statistics(self, data: MaskedTable) -> ObjectStatistics:
        """Return what every object of the data says of its factors."""
        if self.full and data.observed is not None:
            return self._by_pattern(data)
        w = self.whitened_projection()
        white = self.whitened(data)
        constants = -0.5 * _LOG_2PI * data.n_of_object
        if data.observed is None:
            gram = (w.T @ w)[None]
            constants += self.log_root.sum()
        else:
            gram = pattern_grams(data.patterns, w)
            if not self.standard:
                constants += data.weights @ self.log_root
        return ObjectStatistics(gram, white.values @ w, white.squares, constants)

    def _by_pattern(self, data: MaskedTable) -> ObjectStatistics:
        """Whiten what is observed of each object."""
        observed, pattern = data.patterns, data.index
        n, k = len(data.values), self.projection.shape[1]
        gram = np.empty((len(observed), k, k))
        projected, squares, constants = np.empty((n, k)), np.empty(n), np.empty(n)
        order = np.argsort(pattern, kind="stable")
        ends = np.cumsum(np.bincount(pattern, minlength=len(observed)))[:-1]
        roots = block_roots(self.root, observed)
        residuals = data.values - self.intercept
        # Where something is missing, a root is zero, and its diagonal is not part of it.
        logs = np.log(np.where(observed, np.diagonal(roots, axis1=1, axis2=2), 1.0)).sum(axis=1)
        for p, rows in enumerate(np.split(order, ends)):
            w, white = roots[p].T @ self.projection, residuals[rows] @ roots[p]
            gram[p] = w.T @ w
            projected[rows] = white @ w
            squares[rows] = np.square(white).sum(axis=1)
            constants[rows] = logs[p]
        constants -= 0.5 * _LOG_2PI * data.n_of_object
        return ObjectStatistics(gram, projected, squares, constants)

    def log_noise(self, data: MaskedTable) -> NDArray[np.float64]:
        """Log density of every object (N,) as nothing but noise about the intercept."""
        found = self.statistics(data)
        return found.constants - 0.5 * found.squares


def block_roots(root: NDArray, observed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return L_o of every pattern: roots of the precisions of what is observed.

    `root` (M, M): L, with the noise precision L L'; `observed` (P, M). Return (P, M, M): zero in
    rows and columns of what is missing.
    """
    if observed.all():
        return np.broadcast_to(root, (len(observed), *root.shape))
    inverse = np.linalg.inv(root)
    covariance = inverse.T @ inverse
    both = observed[:, :, None] & observed[:, None, :]
    # An identity where something is missing leaves the other block to itself.
    padded = np.where(both, covariance, np.eye(len(root)))
    roots = np.linalg.inv(np.linalg.cholesky(padded)).transpose(0, 2, 1)
    return np.where(both, roots, 0.0)


def draw_missing(
    rng: np.random.Generator | None, emission: Emission, data: MaskedTable, factors: NDArray
) -> NDArray[np.float64]:
    r"""Draw missing values given the observed ones and all else, or give their means.

    .. math:: x_u \mid x_o \sim N(\mu_u - \Lambda_{uu}^{-1} \Lambda_{uo} (x_o - \mu_o),\;
              \Lambda_{uu}^{-1})

    `rng`: None for the means; `factors` (N, K): of the cluster of every object. Return (H,): the
    missing values, in the order of the table.
    """
    row, column = data.holes
    if not emission.full:
        drawn = np.einsum("ik,ik->i", factors[row], emission.projection[column])
        drawn += emission.intercept[column]
        if rng is not None:
            drawn += rng.standard_normal(len(row)) / emission.root[column]
        return drawn
    precision, values = emission.precision, np.empty(data.values.shape)
    observed, pattern = data.patterns, data.index
    for p, seen in enumerate(observed):
        if seen.all():
            continue
        rows = np.flatnonzero(pattern == p)
        own, cross = precision[np.ix_(~seen, ~seen)], precision[np.ix_(~seen, seen)]
        means = factors[rows] @ emission.projection.T + emission.intercept
        residuals = (data.values[rows] - means)[:, seen]
        drawn = means[:, ~seen] - np.linalg.solve(own, cross @ residuals.T).T
        if rng is not None:
            root = np.linalg.inv(np.linalg.cholesky(own))
            drawn += rng.standard_normal((len(rows), len(own))) @ root
        values[np.ix_(rows, ~seen)] = drawn
    return values[row, column]


def with_deviations(
    projection: NDArray,
    number: int,
    scales: Sequence[NDArray | None],
    latent_precision: float,
) -> NDArray[np.float64]:
    """Append to a domain's projection (M_d, K) the factors of all domains' deviations.

    `projection` (M_d, K); `number`: of the domain; `scales`, sequence of (M_d,) or None: standard
    deviations of each domain's deviations; None if it has none; `latent_precision`, r: prior
    precision that all factors have. Return (M_d, K + sum of M_e over domains e with deviations).
    """
    widths = [0 if s is None else len(s) for s in scales]
    n_factors = projection.shape[1]
    whole = np.zeros((len(projection), n_factors + sum(widths)))
    whole[:, :n_factors] = projection
    own = scales[number]
    if own is not None:
        first = n_factors + sum(widths[:number])
        features = np.arange(len(own))
        whole[features, first + features] = own * np.sqrt(latent_precision)
    return whole


def split_deviations(
    latent: NDArray, n_factors: int, scales: Sequence[NDArray | None], latent_precision: float
) -> tuple[NDArray[np.float64], list[NDArray[np.float64] | None]]:
    """Take drawn factors (T, K') apart: latent vectors (T, K), and each domain's deviations."""
    found: list[NDArray[np.float64] | None] = []
    start = n_factors
    for s in scales:
        if s is None:
            found.append(None)
            continue
        drawn = latent[:, start : start + len(s)]
        found.append(drawn * (s * np.sqrt(latent_precision)))
        start += len(s)
    return np.ascontiguousarray(latent[:, :n_factors]), found


def join_deviations(
    latent: NDArray,
    deviations: Sequence[NDArray | None],
    scales: Sequence[NDArray | None],
    latent_precision: float,
) -> tuple[NDArray[np.float64], float]:
    """Put factors (T, K') together again that `split_deviations` has taken apart.

    Return them, and the log of what the deviations of one cluster were scaled by, in all.
    """
    found, log_scale = [latent], 0.0
    for own, s in zip(deviations, scales, strict=True):
        if own is not None and s is not None:
            scale = s * np.sqrt(latent_precision)
            found.append(own / scale)
            log_scale += float(np.log(scale).sum())
    return np.concatenate(found, axis=1), log_scale
