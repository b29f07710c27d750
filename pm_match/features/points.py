"""Reads and writes points of value variables, for feature vectors."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import ClusteringPoints, Writer
from pm_match.features.emission import (
    Emission,
    draw_missing,
    join_deviations,
    split_deviations,
)
from pm_match.features.parts import FeatureDomain, Features, Parameter, Setting
from pm_match.numerics.masked import MaskedTable
from pm_match.reading import read
from pm_match.reading.probe import natural_function, value_density


class FeaturesPoints(Writer):
    """Reads and writes latent vectors, precision, deviations, missing values and parameters."""

    def __init__(self, model: Model, features: Features):
        domains = features.domains
        super().__init__(
            model, [*features.names, *(parameter.name for parameter in features.parameters)]
        )
        clustering = read(model).clustering_of(features)
        self._clustering = ClusteringPoints(model, clustering)
        self._where = [clustering.slices[domain.assignment] for domain in domains]
        self.features = features
        proper = [p.name for p in features.parameters if p.update != "flat"]
        self.log_parameters = value_density(model, [model[name] for name in proper], jacobian=False)
        self._precision = (
            natural_function(model, [features.precision]) if features.precision else None
        )

    def labels(self, point: Mapping[str, NDArray]) -> list[NDArray[np.int64]]:
        """Read the labels of every domain's objects from a point, -1 for irrelevant ones."""
        labels = self._clustering.labels(point)
        return [labels[where] for where in self._where]

    def precision(self, point: Mapping[str, NDArray]) -> float:
        """Read the precision that is shared, 1 if there is none."""
        return 1.0 if self._precision is None else float(self._precision(point)[0])

    def write_projections(
        self, point: dict[str, NDArray], projections: Mapping[Parameter, NDArray]
    ) -> None:
        """Write projections (M_d, K), by what they are of, into a new `point`."""
        self.write(point, {p.name: w.T if p.transposed else w for p, w in projections.items()})

    def _incomplete(
        self, point: Mapping[str, NDArray]
    ) -> Iterator[tuple[int, FeatureDomain, str, NDArray[np.int64]]]:
        """Give domains with missing values: number, variable of these, labels of the objects."""
        if not any(domain.missing for domain in self.features.domains):
            return
        for d, (domain, own) in enumerate(
            zip(self.features.domains, self.labels(point), strict=True)
        ):
            if domain.missing is not None and domain.data.observed is not None:
                yield d, domain, domain.missing, own

    def read_factors(
        self, point: Mapping[str, NDArray], setting: Setting
    ) -> tuple[NDArray[np.float64], float]:
        """Read the factors (T, K'), as `write_factors` gets them, and what scaled deviations.

        `setting`: at the point, given the shared precision. See `join_deviations`.
        """
        features, latent = self.features, self.read(point, self.features.latent)
        deviations = [
            self.read(point, domain.deviation) if domain.deviation else None
            for domain in features.domains
        ]
        return join_deviations(
            latent.T if features.latent_transposed else latent,
            deviations,
            setting.spreads,
            setting.latent_precision,
        )

    def log_missing(
        self, point: Mapping[str, NDArray], setting: Setting, factors: NDArray
    ) -> float:
        """Log density of missing values given all else: of whole vectors, less the observed."""
        total = 0.0
        for d, domain, name, label in self._incomplete(point):
            values = domain.data.filled(self.read(point, name).ravel())
            emission, background = setting.emissions[d], self.features.background(d, point)
            means = factors[label] @ emission.projection.T + emission.intercept
            cases = [(Emission.of_noise(emission.root), means, label >= 0)]
            if background is not None:
                cases.append((Emission.of_noise(background.root), background.mean, label < 0))
            for noise, mean, rows in cases:
                whole, observed = MaskedTable(values - mean), domain.data.residuals(mean)
                seen = MaskedTable(observed, domain.data.observed)
                total += float((noise.log_noise(whole) - noise.log_noise(seen))[rows].sum())
        return total

    def write_factors(
        self,
        rng: np.random.Generator,
        point: dict[str, NDArray],
        precision: float | None,
        factors: NDArray,
        setting: Setting,
    ) -> None:
        """Write what is integrated out: precision, latent vectors, deviations, missing values.

        `rng`: by which missing values are drawn given all else; `point`: a new point, with the
        present labels; `precision`: the shared one, 1 if there is none; None leaves it as it is.
        `factors` (T, K'): of all clusters, those of deviations included; `setting`: at the point,
        given the shared precision.
        """
        features = self.features
        fine = precision is None or (np.isfinite(precision) and precision > 0.0)
        if not (fine and np.isfinite(factors).all()):
            raise FloatingPointError(
                f"{features.precision or 'the noise'!r} or {features.latent!r} is not finite any "
                "more: the data or the projections are on too extreme a scale."
            )
        if features.precision and precision is not None:
            log_scale = self.transformed[features.precision]
            self.write(point, {features.precision: np.log(precision) if log_scale else precision})
        latent, deviations = split_deviations(
            factors, features.n_factors, setting.spreads, setting.latent_precision
        )
        self.write(point, {features.latent: latent.T if features.latent_transposed else latent})
        for domain, drawn in zip(features.domains, deviations, strict=True):
            if domain.deviation:
                self.write(point, {domain.deviation: drawn})
        for d, domain, name, label in self._incomplete(point):
            # Those of irrelevant objects are drawn too, and replaced.
            drawn = draw_missing(rng, setting.emissions[d], domain.data, factors[label])
            background, holes = features.background(d, point), domain.data.holes
            if background is not None and (label < 0).any():
                own = Emission.of_noise(background.root)
                left = background.residuals(domain.data)
                alone = draw_missing(rng, own, left, np.zeros((len(label), 0)))
                drawn = np.where(label[holes[0]] < 0, alone + background.mean[holes], drawn)
            self.write(point, {name: drawn.reshape(self.read(point, name).shape)})
