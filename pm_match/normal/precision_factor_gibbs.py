"""Draws of the factors that the precisions of normal vectors have: they make them Student's t."""

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType

from pm_match.normal.normals_step import NormalsStep
from pm_match.normal.parts import Normals


class PrecisionFactorGibbs(NormalsStep):
    r"""Draw a factor of the precision of every vector from its conditional.

    .. math:: x_n \sim N(\mu_{s_n}, (u_n \Lambda_{s_n})^{-1}), \quad
              u_n \sim \mathrm{Gamma}(a, b)

    .. math:: u_n \mid x_n, \ldots \sim \mathrm{Gamma}\left(a + \tfrac{\zeta D}{2},
              b + \tfrac{\zeta}{2} (x_n - \mu_{s_n})^\top \Lambda_{s_n} (x_n - \mu_{s_n})\right)

    With the factors integrated out and a = b, vectors are Student's t of 2a degrees of freedom
    (D. Peel & G. McLachlan 2000, "Robust mixture modelling using the t distribution", Statistics
    and Computing 10, section 2). :math:`\zeta` is the power of densities that are coarsened, or 1.

    Parameters
    ----------
    vars : sequence of variables
        The factors.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.

    Examples
    --------
    >>> model = pmm.models.normal_clusters(pmm.datasets.iris(random_seed=0))
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.PrecisionFactorGibbs)]
    [PrecisionFactorGibbs(precision_factor_a_log__), PrecisionFactorGibbs(precision_factor_b_log__)]
    """

    name = "precision_factor_gibbs"
    order = 36

    @classmethod
    def served(cls, part: Normals) -> list[str]:
        """Names of the factors."""
        return [own.name for own in part.factors]

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        new = dict(point)
        means, precisions = self._points.natural(point)
        for values, labels in zip(self.part.values, self._labels(point), strict=True):
            if values.factor is not None:
                x = values.vectors(point)
                away = squares(x, means, precisions, labels)
                given = self.part.power, point, x.shape[1], away
                shape, rate = values.factor.conditional(*given)
                drawn = self.rng.standard_gamma(shape) / rate
                self._points.write_positive(new, values.factor.name, np.log(drawn))
        return new, [{}]


def squares(
    vectors: NDArray, means: NDArray, precisions: NDArray, labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Square how many standard deviations vectors (R, D) are from their clusters' means: (R,).

    `means` (T, D); `precisions` (T, D, D), or (D, D) if the clusters share one; `labels` (R,).
    """
    precisions = np.broadcast_to(precisions, (len(means), *precisions.shape[-2:]))
    away, found = vectors - means[labels], np.empty(len(vectors))
    for j in np.unique(labels):
        own = away[labels == j]
        found[labels == j] = np.einsum("ri,ij,rj->r", own, precisions[j], own)
    return found
