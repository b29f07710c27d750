"""Draws of the scale matrix that the precisions of all clusters have in common."""

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.normal.conjugate import posterior
from pm_match.normal.normals_step import NormalsStep
from pm_match.normal.parts import Normals
from pm_match.numerics.wishart import draw_wishart
from pm_match.reading.parts import Structure


class ScaleMatrixGibbs(NormalsStep):
    r"""Draw the scale matrix that clusters' precisions have in common, from its conditional.

    .. math:: \Lambda_j \sim \mathrm{Wishart}(\nu_0, (f S)^{-1}), \quad
              S \sim \mathrm{Wishart}(\nu_S, V), \quad
              S \mid \Lambda \sim \mathrm{Wishart}\left(\nu_S + J \nu_0,
              \left(V^{-1} + f \sum_j \Lambda_j\right)^{-1}\right)

    with the J clusters that hold vectors. Means and precisions of the others are integrated out,
    and drawn from their prior afterwards.

    Parameters
    ----------
    vars : sequence of variables
        The scale matrix.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.

    Examples
    --------
    >>> model = pmm.models.aligned_clusters(pmm.datasets.iris())
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.ScaleMatrixGibbs)]
    [ScaleMatrixGibbs(scale_matrix_cholesky-cov__)]
    """

    name = "scale_matrix_gibbs"
    order = 33

    @classmethod
    def served(cls, part: Normals) -> list[str]:
        """Name of the scale matrix, if the precisions share one."""
        return [] if part.scale_matrix is None else [part.scale_matrix.name]

    @classmethod
    def writes(cls, structure: Structure, part: Normals) -> list[str]:
        """Names of the parameters of empty clusters."""
        return part.names

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        normals, points = self.part, self._points
        own = normals.scale_matrix
        assert own is not None
        mean, precision = (np.array(value) for value in self._points.natural(point))
        degrees, inverse = own.prior(point)
        each = normals.prior(point).degrees
        if normals.shared:
            held, total = 1, precision
        else:
            occupied = np.unique(np.concatenate(self._labels(point)))
            held, total = len(occupied), precision[occupied].sum(axis=0)
        drawn = draw_wishart(
            self.rng, np.array([degrees + held * each]), (inverse + own.factor * total)[None]
        )[0]
        new = dict(point)
        points.write_matrices(new, own.name, drawn[0])
        if not normals.shared:
            none = np.zeros((0, normals.n_features)), np.zeros(0, np.int64)
            empty = posterior(*none, normals.truncation, normals.prior(new), normals.shared)
            means, precisions = empty.draw(self.rng)
            means[occupied], precisions[occupied] = mean[occupied], precision[occupied]
            points.write_parameters(new, means, precisions)
        return new, [{}]
