r"""The hinge as a mixture of normals: conditionals of scales, coefficients and their precision.

.. math::

    e^{-2 \max(0, x)} = \int_0^\infty (2 \pi \lambda)^{-1/2}
                        e^{-(\lambda + x)^2 / 2\lambda} d\lambda

with :math:`x = C (1 - y f)`: given its scale :math:`\lambda`, a label is a normal observation of
its score f, with precision :math:`w = C^2/\lambda` and value :math:`t = y (1 + \lambda/C)` (Polson
& Scott 2011, "Data augmentation for support vector machines", Bayesian Analysis 6(1)).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk, dtrsv
from scipy.linalg.lapack import dpotrf


class LostPrecision(np.linalg.LinAlgError):
    """The coefficients' prior precision is lost, to working precision, beside what labels say."""


def draw_scales(rng: np.random.Generator, distances: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Draw scales :math:`\lambda` given the scores: 1/λ is inverse Gaussian(1/d, 1).

    By the transformation of Michael, Schucany & Haas (1976), with the smaller root of their
    quadratic equation, 1/λ, written as a quotient without a difference in it: the textbook's loses
    all digits where d is small, and gives numbers of either sign. λ itself is a sum of positive
    terms.

    `distances`: d = C|1 - yf|; 0 is fine. Return positive numbers.
    """
    squares = np.square(rng.standard_normal(distances.shape))
    half = 0.5 * squares
    larger = distances + half + np.sqrt(half * (half + 2.0 * distances))
    # A square may underflow; no other way leads to 0.
    np.maximum(larger, np.finfo(np.float64).tiny, out=larger)
    take = rng.random(distances.shape) * (larger + distances) <= larger
    with np.errstate(divide="ignore", invalid="ignore"):
        smaller = distances * (distances / larger)
    return np.where(take, larger, np.maximum(smaller, np.finfo(np.float64).tiny))


def observe(
    rng: np.random.Generator,
    scores: NDArray[np.float64],
    labels: NDArray[np.float64],
    C: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw scales, and say what normal observations of the scores the labels then are.

    `scores`, `labels` (N, K): labels are 1, -1, or 0 for none. Return `weights` (N, K): precisions
    w; 0 without a label; `pulls` (N, K): w t, precision times value.
    """
    scales = draw_scales(rng, C * np.abs(1.0 - labels * scores))
    weights = np.abs(labels) * (C * C / scales)
    return weights, labels * (C * C / scales + C)


def gram(design: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the lower triangle of F' W F (P, P), of features (N, P) and weights (N,)."""
    scaled = np.ascontiguousarray(design) * np.sqrt(weights)[:, None]
    return dsyrk(1.0, scaled.T, lower=1)


def lost(size: int, largest: float) -> float:
    """Return what squared pivots of a matrix (P, P) with a diagonal up to `largest` have to exceed.

    Of smaller ones rounding leaves less than two digits.
    """
    return 100.0 * size * np.finfo(np.float64).eps * largest


def factorise(gram: NDArray[np.float64], precision: float) -> NDArray[np.float64]:
    """Cholesky-factorise F' W F + v I, of which only the lower triangle is read.

    Raise `LostPrecision` if it is singular to working precision, as with a tiny v and more features
    than labels.
    """
    matrix = np.array(gram, order="F")
    matrix.flat[:: len(matrix) + 1] += precision
    largest = matrix.diagonal().max()
    lower, info = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if info != 0 or np.square(lower.diagonal()).min() <= lost(len(lower), largest):
        raise LostPrecision(
            f"v = {precision:.2g} is lost beside inner products of features of {largest:.2g}"
        )
    return lower


def log_marginal(lower: NDArray[np.float64], pull: NDArray[np.float64], precision: float) -> float:
    """Log density of what labels say, given scales, with coefficients (P,) integrated out.

    -½ log|A| + ½ b' A⁻¹ b + ½ P log v, with b = F' W t: up to what only the scales say.
    """
    solved = dtrsv(lower, pull, lower=1)
    log_det = 2.0 * np.log(np.diagonal(lower)).sum()
    return float(0.5 * (solved @ solved - log_det + len(pull) * np.log(precision)))


def draw_coefficients(
    rng: np.random.Generator, lower: NDArray[np.float64], pull: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Draw coefficients (P,) from N(A⁻¹ b, A⁻¹), with A = `lower` `lower`' and b = `pull`."""
    solved = dtrsv(lower, pull, lower=1)
    solved += rng.standard_normal(len(pull))
    return dtrsv(lower, solved, lower=1, trans=1)


def draw_by_directions(
    rng: np.random.Generator,
    design: NDArray[np.float64],
    weights: NDArray[np.float64],
    pulls: NDArray[np.float64],
    precision: float,
) -> NDArray[np.float64]:
    """Draw coefficients (P,) given scales, however small their prior precision v is.

    Singular vectors of the weighted features take apart what the labels tell, and what the prior
    alone does: slower than `draw_coefficients`, and without a matrix that could be singular.

    `design` (N, P); `weights`, `pulls` (N,): of the observations, as `observe` has them.
    """
    roots = np.sqrt(weights)
    values = np.divide(pulls, roots, out=np.zeros(len(roots)), where=roots > 0.0)
    left, sizes, right = np.linalg.svd(design * roots[:, None], full_matrices=False)
    z = rng.standard_normal(design.shape[1])
    told, within = np.square(sizes) + precision, right @ z
    means = sizes * (left.T @ values) / told
    return right.T @ (means + within / np.sqrt(told)) + (z - right.T @ within) / np.sqrt(precision)


def draw_precision(
    rng: np.random.Generator, prior: tuple[float, float], coefficients: NDArray[np.float64]
) -> float:
    """Draw v of N(0, 1/v) coefficients of any shape under a Gamma(shape, rate) prior."""
    shape, rate = prior
    square = float(np.vdot(coefficients, coefficients))
    return float(rng.gamma(shape + 0.5 * coefficients.size) / (rate + 0.5 * square))
