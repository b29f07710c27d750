"""Reads and writes points of value variables, for feature vectors."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.features.parts import Features
from pm_match.reading.priors import log_densities_function
from pm_match.reading.probe import natural_function


class FeaturesPoints(Writer):
    """Reads and writes projections, latent vectors, precision and missing values."""

    def __init__(self, model: Model, features: Features):
        domains = features.domains
        own = [domain.projection for domain in domains if domain.projection]
        own += [domain.flag for domain in domains if domain.flag]
        super().__init__(model, [*features.names, *own, *(d.assignment for d in domains)])
        self.features = features
        self.log_parameters = log_densities_function(model, [p.name for p in features.parameters])
        self._projections = natural_function(model, [d.projection for d in domains if d.projection])

    def labels(self, point: Mapping[str, NDArray]) -> list[NDArray[np.int64]]:
        """Read the labels of every domain's objects from a point."""
        return [
            np.asarray(self.read(point, domain.assignment), np.int64)
            for domain in self.features.domains
        ]

    def projections(self, point: Mapping[str, NDArray]) -> list[NDArray[np.float64]]:
        """Read every domain's projection (M_d, K) from a point, where features are plain."""
        return [
            np.ascontiguousarray(w.T if domain.transposed else w, dtype=np.float64)
            for domain, w in zip(self.features.domains, self._projections(point), strict=True)
        ]

    def write_projections(self, point, projections) -> None:
        """Write the projections (M_d, K) that are ours to update into a new `point`."""
        self.write(
            point,
            {
                domain.projection: w.T if domain.transposed else w
                for domain, w in zip(self.features.domains, projections, strict=True)
                if domain.update is not None
            },
        )

    def write_latent(self, point, alpha, latent, deviations=()) -> None:
        """Write precision (if it is free), latent vectors (T, K) and deviations (T, M_d)."""
        features = self.features
        if not (np.isfinite(alpha) and alpha > 0.0 and np.isfinite(latent).all()):
            raise FloatingPointError(
                f"{features.precision or 'the noise'!r} or {features.latent!r} is not finite any "
                "more: the data or the projections are on too extreme a scale."
            )
        if features.precision:
            precision = np.log(alpha) if self.transformed[features.precision] else alpha
            self.write(point, {features.precision: precision})
        self.write(point, {features.latent: latent.T if features.latent_transposed else latent})
        for domain, drawn in zip(features.domains, deviations, strict=False):
            if domain.deviation:
                self.write(point, {domain.deviation: drawn})

    def write_missing(self, rng, point, labels, projections, alpha, latent) -> None:
        """Draw the missing values given all else, and write them."""
        for domain, label, w in zip(self.features.domains, labels, projections, strict=True):
            if domain.missing is None or domain.data.observed is None:
                continue
            row, column = np.nonzero(~domain.data.observed)
            mean = np.einsum("ik,ik->i", latent[label[row]], w[column])
            noise = rng.standard_normal(len(mean))
            self.write(point, {domain.missing: mean + alpha**-0.5 * noise})
