r"""The gradient of the evidence of features in all that emissions depend on.

With latent vectors and deviations integrated out, the log density of all features given the
clusters (see `feature_sums`) has a gradient by Fisher's identity: that of the log density given
latent vectors, averaged over what is known of these. Let :math:`b_j = \sum_{n \in j}
\Lambda_n (x_n - a)` and :math:`L_j = \sum_{n \in j} \Lambda_n` be what a domain says of cluster j,
and :math:`D_j = (L_j + \mathrm{diag}(\kappa)^{-2})^{-1}`. The mean of the cluster there, less the
intercept, is normal given the latent vector z,

.. math:: \mu_j = W z + e \sim N(B_j z + D_j b_j,\; D_j), \quad B_j = W - D_j L_j W,

and z has precision :math:`P_j = r I + \sum_d W^\top L_j B_j` and mean :math:`P_j^{-1} \sum_d
B_j^\top b_j`. So, with expectations over both,

.. math:: \nabla_a = \sum_j (b_j - L_j E \mu_j), \quad
          \nabla_W = \sum_j (b_j E z^\top - L_j E \mu_j z^\top), \quad
          \nabla_\Lambda = \tfrac12 \big( N \Lambda^{-1} - \sum_n E r_n r_n^\top \big), \quad
          \nabla_{\log \kappa} = \sum_j (\kappa^{-2} E e_j^2 - 1)

with :math:`r_n` the residuals. Where one precision is shared by all noise, and integrated out, all
that is not a variance is multiplied by its posterior mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.parts import Setting


@dataclass(eq=False)
class Gradient:
    """The gradient of the evidence in what the features of a domain depend on."""

    intercept: NDArray[np.float64]  # (M,)
    projection: NDArray[np.float64]  # (M, K)
    # (M, M): of dependent noise, as if its entries were independent
    precision: NDArray[np.float64] | None
    log_spread: NDArray[np.float64] | None  # (M,)


class Said:
    """What a domain says of the means of its clusters, deviations integrated out."""

    def __init__(self, sums: ClusterSums, emission: Emission, spread: NDArray | None, k: int):
        self.sums, self.emission, self.spread = sums, emission, spread
        self.left = sums.shifted(emission.intercept)
        self.w = emission.projection[:, :k]
        self.b = self.left.weigh(emission)
        if sums.full:
            by_row = sums.counts[:, :, None] * sums.precisions(emission)[sums.pattern]
            self.precision = sums.by_cluster(by_row)
        else:
            self.precision = sums.counts * emission.precision
        self.variance, self.offset = np.zeros_like(self.precision), np.zeros_like(self.b)
        self.towards = np.broadcast_to(self.w, (len(self.b), *self.w.shape))
        constant, squares = sums.noise(emission)
        if spread is not None:
            self.variance, log_det = _inverse(self.precision, spread**-2.0)
            self.offset = _times(self.variance, self.b[:, :, None])[:, :, 0]
            self.towards = self.w - _times(self.variance, _times(self.precision, self.w))
            squares -= np.sum(self.b * self.offset)
            constant -= 0.5 * log_det + len(self.b) * float(np.log(spread).sum())
        self.constant, self.squares = constant, squares
        self.seen = _times(self.precision, self.towards)
        self.gram = self.w.T @ self.seen
        self.linear = np.einsum("jmk,jm->jk", self.towards, self.b)

    def gradient(self, z: NDArray, covariance: NDArray, weight: float) -> Gradient:
        """Give the gradient of the evidence, the latent vectors having means and covariances.

        `z` (J, K); `covariance` (J, K, K): where one precision is shared, that at a precision of 1;
        `weight`: the precision that is shared, or 1.
        """
        sums, towards = self.sums, self.towards
        mean = np.einsum("jmk,jk->jm", towards, z) + self.offset
        spread_out = towards @ covariance
        with_z = spread_out + weight * mean[:, :, None] * z[:, None, :]
        explained = _times(self.precision, mean[:, :, None])[:, :, 0]
        intercept = weight * (self.b - explained).sum(axis=0)
        projection = weight * self.b.T @ z - _times(self.precision, with_z).sum(axis=0)
        precision = log_spread = None
        if self.spread is not None:
            rest = towards - self.w
            deviation = mean - z @ self.w.T
            square = weight * deviation**2 + np.einsum("jmk,jkl,jml->jm", rest, covariance, rest)
            square += _diagonal(self.variance)
            log_spread = (square / self.spread**2 - 1.0).sum(axis=0)
        if sums.full:
            square = spread_out @ towards.transpose(0, 2, 1) + self.variance
            square += weight * mean[:, :, None] * mean[:, None, :]
            precision = self._of_precision(mean, square, weight)
        return Gradient(intercept, projection, precision, log_spread)

    def _of_precision(self, mean: NDArray, square: NDArray, weight: float) -> NDArray[np.float64]:
        """Give the gradient in the precision, given first and second moments of the means."""
        sums, left = self.sums, self.left
        cross = sums.of_pattern(left.sums[:, :, None] * mean[sums.cluster][:, None, :])
        residuals = sums.about(self.emission.intercept) - cross - cross.transpose(0, 2, 1)
        n = sums.counts[:, 0]
        residuals = weight * residuals
        residuals += sums.of_pattern(n[:, None, None] * square[sums.cluster])
        precisions = sums.precisions(self.emission)
        # By the covariance, of which every pattern sees a block.
        by_covariance = (precisions @ residuals @ precisions).sum(axis=0)
        by_covariance -= np.tensordot(sums.of_pattern(n), precisions, 1)
        covariance = self.emission.covariance
        return -0.5 * covariance @ by_covariance @ covariance


def _times(a: NDArray, b: NDArray) -> NDArray[np.float64]:
    """Multiply matrices (J, M, M), or diagonal ones (J, M), by others (..., M, N)."""
    return a @ b if a.ndim == 3 else a[:, :, None] * b


def _diagonal(a: NDArray) -> NDArray[np.float64]:
    return np.diagonal(a, axis1=1, axis2=2) if a.ndim == 3 else a


def _inverse(a: NDArray, more: NDArray) -> tuple[NDArray[np.float64], float]:
    """Invert matrices (J, M, M), or diagonal ones (J, M), with `more` (M,) on the diagonal.

    And sum up their log determinants.
    """
    if a.ndim == 2:
        return 1.0 / (a + more), float(np.log(a + more).sum())
    whole = a + np.diag(more)
    return np.linalg.inv(whole), float(np.linalg.slogdet(whole)[1].sum())


def evidence(
    sums: Sequence[ClusterSums], setting: Setting, n_factors: int
) -> tuple[float, list[Gradient]]:
    """Log density of all features given the clusters, and its gradient.

    `sums`: of every domain; `n_factors`: without those of deviations. Raise
    `numpy.linalg.LinAlgError` if a precision is not positive definite.
    """
    k, r = n_factors, setting.latent_precision
    said = [Said(*own, k) for own in zip(sums, setting.emissions, setting.spreads, strict=True)]
    precision = np.add.reduce([own.gram for own in said]) + r * np.eye(k)
    linear = np.add.reduce([own.linear for own in said])
    lower = np.linalg.cholesky(precision)
    covariance = np.linalg.inv(precision)
    z = np.einsum("jkl,jl->jk", covariance, linear)
    total = sum(own.constant for own in said) + 0.5 * linear.size * log(r)
    total -= np.log(np.diagonal(lower, axis1=1, axis2=2)).sum()
    left = 0.5 * (sum(own.squares for own in said) - np.sum(linear * z))
    weight = 1.0
    if setting.gamma is None:
        total -= left
    else:
        shape, rate = setting.gamma
        after = shape + 0.5 * sum(own.n_values for own in sums)
        total += shape * log(rate) - lgamma(shape) + lgamma(after) - after * log(rate + left)
        weight = after / (rate + left)
    return float(total), [own.gradient(z, covariance, weight) for own in said]
