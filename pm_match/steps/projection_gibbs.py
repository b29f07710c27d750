"""Exact draws of projections that have a normal prior."""

import numpy as np
from pymc.blocking import PointType, StatsType

from pm_match.evidence.projection import ClusterSums, draw_projection
from pm_match.evidence.rescale import rescale
from pm_match.steps.base import PartitionStep
from pm_match.steps.points import FeaturesPoints
from pm_match.steps.projection_map import why_not
from pm_match.structure import Features, Structure, natural_function


class ProjectionGibbs(PartitionStep):
    r"""Draw the projections from their exact conditional.

    What is given are assignments, latent vectors, precision and hyperparameters. Rows are then
    independent, :math:`w_m \sim N(A_m^{-1} b_m, A_m^{-1})` (see
    `evidence.projection.draw_projection`). Then projections and latent vectors exchange their
    scale (see `evidence.rescale`), without which the two creep along each other. Missing values are
    integrated out, and redrawn afterwards.

    Parameters
    ----------
    vars : sequence of variables
        Projections, declared with `pm.Normal` (any mean and scale, which may have priors of their
        own).
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the projections are not normal, or the model is not one that the steps can serve.
    """

    name = "projection_gibbs"

    @classmethod
    def parts(cls, structure: Structure) -> list[Features]:
        """Return the feature vectors of a model."""
        return structure.features

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the projections that the step serves."""
        return [domain.projection for domain in part.domains if domain.update == "normal"]

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        return why_not(structure, name, "normal", "pm.Normal")

    def _prepare(self) -> None:
        super()._prepare()
        features = self.part
        self._points = FeaturesPoints(self.model, features)
        self._given = natural_function(self.model, [features.precision, features.latent])
        self._direction = np.empty(features.n_factors)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        rng, features, points = self.rng, self.part, self._points
        labels = points.labels(point)
        alpha, latent = self._given(point)
        alpha = float(alpha)
        latent = np.ascontiguousarray(latent.T if features.latent_transposed else latent)
        projections = points.projections(point)
        priors = []
        for number, domain in enumerate(features.domains):
            if domain.update != "normal":
                continue
            clusters = ClusterSums.of([domain.data], [labels[number]], features.truncation)
            mean, precision = features.projection_prior(domain, point)
            projections[number] = draw_projection(rng, clusters, latent, alpha, mean, precision)
            priors.append((mean, precision))
        new = dict(point)
        if len(priors) == len(features.domains):
            # Only if all projections are ours can the latent vectors change their scale with them.
            tau = alpha * features.hyper(point).latent_precision
            projections, latent = self._rescale(projections, priors, latent, tau, labels)
            written = latent.T if features.latent_transposed else latent
            points.write(new, {features.latent: written})
        points.write_projections(new, projections)
        points.write_missing(rng, new, labels, projections, alpha, latent)
        return new, [{}]

    def _rescale(self, projections, priors, latent, tau, labels):
        """Exchange scale between projections and occupied latent vectors; draw the empty ones."""
        held = np.zeros(len(latent), bool)
        held[np.concatenate(labels)] = True
        w, z = np.concatenate(projections), latent[held]
        mean, precision = (np.concatenate(values) for values in zip(*priors, strict=True))
        n_directions = 2 * self.part.n_factors
        rescale(self.rng, w, mean, precision, z, tau, n_directions, self._direction)
        latent = self.rng.standard_normal(latent.shape) / np.sqrt(tau)
        latent[held] = z
        return np.split(w, np.cumsum([len(p) for p in projections])[:-1]), latent
