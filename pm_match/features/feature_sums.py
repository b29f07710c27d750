r"""The evidence of features as a function of everything but the assignment.

Given the clusters, the data of a domain enter through sums alone: objects and features per cluster,
and the scatter of all. From these the evidence with latent vectors (and deviations, see
`marginals`) integrated out costs nothing that grows with the number of objects,

.. math:: \log p(X \mid s, a, W, \Lambda) = \sum_d \left[ \tfrac{N_d}{2} \log |\Lambda_d / 2\pi|
          - \tfrac12 \mathrm{tr}\, \Lambda_d T_d \right] + \tfrac12 \sum_j \left[ K \log r +
          \log |C_j| + m_j^\top C_j m_j \right]

with :math:`T_d` the scatter about the intercept, :math:`C_j^{-1} = rI + \sum_d N_{dj} W_d^\top
\Lambda_d W_d` and :math:`m_j = \sum_d W_d^\top \Lambda_d (S_{dj} - N_{dj} a_d)`. With missing
values every feature has its own counts, and the noise of features must be independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from pm_match.features.marginals import Marginal
from pm_match.features.projected_normal import DomainData
from pm_match.features.projection import draw_rows

_LOG_2PI = log(2.0 * pi)


@dataclass(frozen=True, eq=False)
class DomainSums:
    """Sums of one domain's features over its relevant objects.

    Attributes
    ----------
    sums : (J, M) array
        Of each occupied cluster.
    counts : (J, M) or (J, 1) array
        Observed values behind them; the same for all features if nothing is missing.
    scatter : (M, M) or (M,) array
        Sum of x x', or if values are missing of x^2.
    """

    sums: NDArray[np.float64]
    counts: NDArray[np.float64]
    scatter: NDArray[np.float64]

    @classmethod
    def of(cls, data: DomainData, labels: NDArray[np.int64], n_clusters: int) -> "DomainSums":
        """Sum a domain by `labels` (N,) in 0 ... n_clusters - 1, -1 for irrelevant objects."""
        kept = labels >= 0
        x, label = data.values[kept], labels[kept]
        members = np.zeros((n_clusters, len(label)))
        members[label, np.arange(len(label))] = 1.0
        if data.observed is None:
            return cls(members @ x, members.sum(axis=1, keepdims=True), x.T @ x)
        return cls(members @ x, members @ data.weights[kept], np.square(x).sum(axis=0))

    def centred(self, intercept: NDArray) -> NDArray[np.float64]:
        """Return the sums of the features less their intercept (J, M)."""
        return self.sums - self.counts * intercept

    def log_noise(self, marginal: Marginal) -> float:
        """Log density of the features as if no cluster explained anything."""
        a, precision = marginal.intercept, marginal.precision
        total, n = self.sums.sum(axis=0), self.counts.sum(axis=0)
        if self.scatter.ndim == 2:
            about = self.scatter - np.outer(total, a) - np.outer(a, total) + n[0] * np.outer(a, a)
            squares = (
                np.einsum("ij,ij->", precision, about)
                if marginal.full
                else precision @ np.diagonal(about)
            )
        else:
            squares = precision @ (self.scatter - 2.0 * total * a + n * a * a)
        return float((n * (marginal.log_root - 0.5 * _LOG_2PI)).sum() - 0.5 * squares)


Contribution = tuple[NDArray[np.float64], NDArray[np.float64], float]


def contribution(own: DomainSums, marginal: Marginal) -> Contribution:
    """Return what a domain adds to the inverse of C_j (J, K, K) and to m_j (J, K), and its noise.

    The last is the log density of its features as if no cluster explained anything.
    """
    w = marginal.whitened_projection()
    k = w.shape[1]
    linear = marginal.whiten(own.centred(marginal.intercept)) @ w
    if own.counts.shape[1] == 1:
        precision = own.counts[:, :, None] * (w.T @ w)
    else:
        outer = (w[:, :, None] * w[:, None, :]).reshape(len(w), k * k)
        precision = (own.counts @ outer).reshape(-1, k, k)
    return precision, linear, own.log_noise(marginal)


class Contributions:
    """What domains add to the evidence, kept for as long as their marginals are the same objects.

    Parameters
    ----------
    sums : sequence of DomainSums
    """

    def __init__(self, sums: Sequence[DomainSums]):
        self.sums = sums
        self._kept: list[tuple[Marginal, Contribution] | None] = [None for _ in sums]

    def of(self, marginals: Sequence[Marginal]) -> list[Contribution]:
        """Return what every domain adds with its marginal."""
        found = []
        for d, (own, marginal) in enumerate(zip(self.sums, marginals, strict=True)):
            kept = self._kept[d]
            if kept is None or kept[0] is not marginal:
                kept = self._kept[d] = marginal, contribution(own, marginal)
            found.append(kept[1])
        return found


def by_cluster(
    sums: Sequence[DomainSums], marginals: Sequence[Marginal], latent_precision: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the inverse of C_j (J, K, K), and m_j (J, K), of the occupied clusters."""
    return _totals(
        [contribution(*pair) for pair in zip(sums, marginals, strict=True)], latent_precision
    )


def _totals(contributions: Sequence[Contribution], latent_precision: float):
    """Add up the inverses of C_j, and the m_j, of all domains."""
    precision = np.add.reduce([found for found, _, _ in contributions])
    linear = np.add.reduce([found for _, found, _ in contributions])
    diagonal = np.arange(linear.shape[1])
    precision[:, diagonal, diagonal] += latent_precision
    return precision, linear


def log_evidence(contributions: Sequence[Contribution], latent_precision: float) -> float:
    """Log p(X | s, a, W, noise), latent vectors integrated out; -inf where it is not a number."""
    precision, linear = _totals(contributions, latent_precision)
    try:
        lower = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        return -np.inf
    explained = np.linalg.solve(lower, linear[:, :, None])
    diagonal = np.diagonal(lower, axis1=1, axis2=2)
    total = sum(noise for _, _, noise in contributions)
    total += 0.5 * np.square(explained).sum() - np.log(diagonal).sum()
    total += 0.5 * diagonal.size * log(latent_precision)
    return float(total) if np.isfinite(total) else -np.inf


def draw_intercepts(
    rng: np.random.Generator,
    sums: Sequence[DomainSums],
    marginals: Sequence[Marginal],
    latent_precision: float,
    priors: Sequence[tuple[NDArray, NDArray] | None],
) -> list[NDArray[np.float64]]:
    r"""Draw intercepts under normal priors jointly, with latent vectors integrated out.

    The evidence is quadratic in all intercepts :math:`a` together: with :math:`B_j` the matrices
    :math:`W_d^\top \Lambda_d N_{dj}` side by side, their precision is the prior's plus
    :math:`\mathrm{diag}(N_d \Lambda_d) - \sum_j B_j^\top C_j B_j`.

    Parameters
    ----------
    rng : numpy.random.Generator
    sums, marginals : sequences, one item for each domain
    latent_precision : float
    priors : sequence of (mean (M_d,), precision (M_d,)) or None
        None for intercepts that stay as they are.

    Returns
    -------
    list of (M_d,) array
    """
    moving = [number for number, prior in enumerate(priors) if prior is not None]
    still = [
        m if number not in moving else Marginal(m.projection, np.zeros_like(m.intercept), m.root)
        for number, m in enumerate(marginals)
    ]
    # With the moving intercepts at zero, what is left is linear and quadratic in them.
    inverse, linear = by_cluster(sums, still, latent_precision)
    ends = np.cumsum([0, *(len(marginals[number].intercept) for number in moving)])
    precision = np.zeros((ends[-1], ends[-1]))
    weight = np.zeros(ends[-1])
    pull = np.zeros((len(inverse), inverse.shape[1], ends[-1]))
    for place, number in enumerate(moving):
        own, marginal, prior = sums[number], marginals[number], priors[number]
        assert prior is not None
        here = slice(ends[place], ends[place + 1])
        n = own.counts.sum(axis=0)
        noise = marginal.precision
        precision[here, here] = (noise * n) if marginal.full else np.diag(noise * n)
        precision[here, here] += np.diag(prior[1])
        total = own.sums.sum(axis=0)
        weight[here] = (noise @ total if marginal.full else noise * total) + prior[0] * prior[1]
        loading = (
            (noise @ marginal.projection)
            if marginal.full
            else (noise[:, None] * marginal.projection)
        )
        pull[:, :, here] = loading.T[None] * own.counts[:, None, :]
    solved = np.linalg.solve(inverse, np.concatenate([pull, linear[:, :, None]], axis=2))
    precision -= np.einsum("jki,jkl->il", pull, solved[:, :, :-1])
    weight -= np.einsum("jki,jk->i", pull, solved[:, :, -1])
    lower = np.linalg.cholesky(0.5 * (precision + precision.T))
    mean = cho_solve((lower, True), weight)
    drawn = mean + solve_triangular(lower.T, rng.standard_normal(len(mean)))
    found = [m.intercept for m in marginals]
    for place, number in enumerate(moving):
        found[number] = drawn[ends[place] : ends[place + 1]]
    return found


def draw_latent(
    rng: np.random.Generator,
    sums: Sequence[DomainSums],
    marginals: Sequence[Marginal],
    latent_precision: float,
) -> NDArray[np.float64]:
    """Draw the latent vectors (J, K) of the occupied clusters from their exact conditional."""
    precision, linear = by_cluster(sums, marginals, latent_precision)
    lower = np.linalg.cholesky(precision)
    noise = (
        np.linalg.solve(lower, linear[:, :, None]) + rng.standard_normal(linear.shape)[..., None]
    )
    return np.linalg.solve(lower.transpose(0, 2, 1), noise)[:, :, 0]


def draw_projection(
    rng: np.random.Generator,
    own: DomainSums,
    marginal: Marginal,
    latent: NDArray,
    explained: NDArray,
    mean: NDArray,
    precision: NDArray,
) -> NDArray[np.float64]:
    r"""Draw a domain's projection under independent normal priors from its exact conditional.

    With features in dependent noise the entries of W are normal together: the precision of W, row
    after row, is :math:`\Lambda \otimes Z^\top N Z` plus the prior's.

    Parameters
    ----------
    rng : numpy.random.Generator
    own : DomainSums
    marginal : Marginal
        Of which the projection is not used.
    latent : (J, K) array
    explained : (J, M) array
        What deviations add to the mean of each cluster.
    mean, precision : (M, K) array
        Of the prior.

    Returns
    -------
    (M, K) array
    """
    m, k = mean.shape
    left = own.centred(marginal.intercept) - own.counts * explained
    noise = marginal.precision
    if marginal.full:
        outer = (latent[:, :, None] * latent[:, None, :]).reshape(len(latent), k * k)
        gram = (own.counts[:, 0] @ outer).reshape(k, k)
        a = np.kron(noise, gram)
        a[np.arange(m * k), np.arange(m * k)] += precision.ravel()
        b = (noise @ (left.T @ latent)).ravel() + (precision * mean).ravel()
        lower = np.linalg.cholesky(a)
        centre = cho_solve((lower, True), b)
        return (centre + solve_triangular(lower.T, rng.standard_normal(m * k))).reshape(m, k)
    counts = np.broadcast_to(own.counts, (len(latent), m))
    return draw_rows(rng, left, counts, latent, noise, mean, precision)
