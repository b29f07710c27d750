"""Draws of the maps by which domains are aligned."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.blocking import PointType, StatsType

from pm_match.normal.conjugate import posterior
from pm_match.normal.maps import Maps, draw_maps, n_turns
from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.normal.normals_step import NormalsStep
from pm_match.normal.parts import Map, Normals
from pm_match.numerics.polar import draw_with_polar
from pm_match.reading.parts import Structure


class AlignmentGibbs(NormalsStep):
    """Draw the maps through which domains see their common normal clusters.

    Orientations, scales and intercepts of every domain that has some, by compiled slices given the
    assignments, with the clusters' means and precisions integrated out (see `normal.maps`). These
    are drawn last, so that the step leaves the declared posterior alone whatever comes before or
    after it.

    Parameters
    ----------
    vars : sequence of variables
        The orientations, scales and intercepts.
    model, rng : optional
        As of `ClusterGibbs`.

    Raises
    ------
    UnservedModelError
        If the variables are not of a model that the steps can serve.

    Examples
    --------
    >>> model = pmm.models.aligned_clusters(pmm.datasets.iris())
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.AlignmentGibbs)]
    [AlignmentGibbs(orientation_b, scale_b_log__, intercept_b)]
    """

    name = "alignment_gibbs"
    order = 32

    @classmethod
    def served(cls, part: Normals) -> list[str]:
        """Names of the variables of the maps."""
        return part.mapped

    @classmethod
    def writes(cls, structure: Structure, part: Normals) -> list[str]:
        """Names of what it integrates out, and then draws."""
        return part.names

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        normals, points, rng = self.part, self._points, self.rng
        d, prior, labels = normals.n_features, normals.prior(point), self._labels(point)
        own = domain_maps(normals, point, labels, prior)
        draw_maps(rng, own, n_turns(d))
        new = dict(point)
        for e, values in enumerate(normals.values):
            alignment = values.alignment
            if alignment is not None:
                raw = None
                if alignment.orientation:
                    precision = alignment.priors[alignment.orientation](point)[1]
                    raw = draw_with_polar(rng, own.q[e], float(precision.flat[0]))
                drawn = Map(own.q[e], float(own.scale[e]), own.intercept[e])
                points.write_map(new, alignment, drawn, raw)
        given = normals.truncation, prior, normals.shared, normals.power
        drawn_from = normals.vectors(new), np.concatenate(labels), *given
        factors = normals.precision_factors(point)
        points.write_parameters(new, *posterior(*drawn_from, factors).draw(rng))
        return new, [{}]


def domain_maps(
    normals: Normals,
    point: PointType,
    labels: Sequence[NDArray[np.int64]],
    prior: NormalWishartPrior,
) -> Maps:
    """Read the maps at a point, and sum up what the clusters see of the domains.

    `labels`, sequence of (R,): of the vectors of every variable; `prior`: at the point.
    """
    d, power, n_domains = normals.n_features, normals.power, len(labels)
    occupied = np.unique(np.concatenate(labels))
    worth = np.zeros(len(occupied))
    sums: list[Any] = [np.zeros((n_domains, len(occupied), *(d,) * n)) for n in range(3)]
    maps = np.tile(np.eye(d), (n_domains, 1, 1)), np.ones(n_domains), np.zeros((n_domains, d))
    drawn = np.zeros((n_domains, 3), np.int64)
    scale_prior, intercept_prior = np.zeros((n_domains, 2)), np.zeros((n_domains, 2, d))
    for e, (values, label) in enumerate(zip(normals.values, labels, strict=True)):
        vectors = values.vectors(point)
        weights = np.full(len(label), power)
        if values.factor is not None:
            weights *= values.factor.read(point)
        for j, cluster in enumerate(occupied):
            inside, weight = vectors[label == cluster], weights[label == cluster, None]
            worth[j] += power * len(inside)
            sums[0][e, j] = weight.sum()
            sums[1][e, j] = (weight * inside).sum(axis=0)
            sums[2][e, j] = (weight * inside).T @ inside
        if values.alignment is not None:
            own = values.alignment
            maps[0][e], maps[1][e], maps[2][e] = own.read(point, d)
            drawn[e] = [bool(name) for name in (own.orientation, own.scale, own.intercept)]
            if own.scale:
                scale_prior[e] = [float(x.flat[0]) for x in own.priors[own.scale](point)]
            if own.intercept:
                intercept_prior[e] = own.priors[own.intercept](point)
    strength, center = prior.strength, prior.center
    square = prior.inverse_scale + strength * np.outer(center, center)
    size = power * np.array([float(len(label)) for label in labels])
    return Maps.of(
        *sums,
        strength,
        prior.degrees + worth,
        strength * center,
        square,
        *maps,
        drawn,
        size,
        scale_prior,
        intercept_prior,
    )
