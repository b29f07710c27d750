"""Feature vectors over shards: latent vectors are drawn from sums of features by cluster."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.feature_gibbs import FeatureGibbs
from pm_match.features.feature_sums import (
    ClusterSums,
    Contribution,
    contribution,
    draw_factors,
    draw_shared,
    posterior,
)
from pm_match.features.parts import Features, Setting
from pm_match.features.points import FeaturesPoints
from pm_match.numerics.sums import add_up
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.reading.probe import natural_function
from pm_match.sharded.evidence import Chunk, Scorer, ShardedEvidence, Sums


class FeatureScorer(Scorer):
    """The feature vectors of one domain.

    `full`: whether the noise of features is dependent.
    """

    def __init__(self, name: str, width: int, full: bool):
        self.name, self.full = name, full
        self.widths = {name: width}
        # Where tables are written: new memory for each block costs a third of a sweep on workers
        # that give it back at once, as Dask's do.
        self._room = np.empty(0)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the room for tables."""
        return self.__dict__ | {"_room": np.empty(0)}

    def totals(self, chunk: Chunk) -> Sums:
        """Sum of x^2 (M,), or of x x' (M, M)."""
        x = np.asarray(chunk[self.name], np.float64)
        return (x.T @ x if self.full else np.square(x).sum(axis=0),)

    def table(self, chunk: Chunk, parameters: tuple[NDArray, NDArray]) -> NDArray:
        """One product with the whitened means (M, T), and a constant of every cluster (T,)."""
        x = chunk[self.name]
        slopes, constants = parameters
        # Cluster after cluster, as labels are chosen.
        shape = slopes.shape[1], len(x)
        size = shape[0] * shape[1]
        if self._room.dtype != x.dtype or len(self._room) < size:
            self._room = np.empty(size, x.dtype)
        found = self._room[:size].reshape(shape)
        np.matmul(slopes.T.astype(x.dtype), x.T, out=found)
        found += constants.astype(x.dtype)[:, None]
        return found.T

    def statistics(
        self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: object = None
    ) -> Sums:
        """Objects (T,) and sums of features (T, M) of every cluster."""
        x = chunk[self.name]
        sums = np.zeros((n_clusters, x.shape[1]))
        add_up(x, labels, sums)
        return np.bincount(labels, minlength=n_clusters).astype(np.float64), sums


class ShardedFeatures(ShardedEvidence):
    """Feature vectors around shared latent vectors, given sums by cluster."""

    def __init__(self, model: Model, features: Features, component: Component):
        self.features, self._points = features, FeaturesPoints(model, features)
        for domain in features.domains:
            if domain.power != 1.0:
                raise UnservedModelError(
                    f"{domain.name!r}: over shards, expected densities as they are; found "
                    "coarsened ones"
                )
            if domain.missing:
                raise UnservedModelError(
                    f"{domain.name!r}: over shards, features with missing values are not served"
                )
        if features.flat:
            flat = [p.name for p in features.parameters if p.update == "flat"]
            raise UnservedModelError(
                f"{', '.join(map(repr, flat))}: over shards, a projection needs a normal prior; "
                "found a flat one"
            )
        parameters = [own.name for own in features.parameters]
        self.names = [*features.names, *parameters]
        self.scorers = {
            d.assignment: FeatureScorer(d.name, d.n_features, d.full) for d in features.domains
        }
        read = [features.latent, *(d.deviation for d in features.domains if d.deviation)]
        self._natural = natural_function(model, read)
        self._step = _FromSums([model[n] for n in parameters], model=model) if parameters else None
        self._scatter: dict[str, NDArray] = {}

    def begin(self, totals: Mapping[str, Sums]) -> None:
        """Take the scatter of all features."""
        self._scatter = {name: own[0] for name, own in totals.items()}

    def _setting(self, point: Point) -> Setting:
        return self.features.setting(point).given(self._points.precision(point))

    def parameters(self, point: Point) -> dict[str, tuple[NDArray, NDArray]]:
        """Return what `FeatureScorer.table` multiplies features by, and adds."""
        features, setting = self.features, self._setting(point)
        latent, *deviations = self._natural(point)
        z = latent.T if features.latent_transposed else latent
        own = iter(deviations)
        means = []
        for domain, emission in zip(features.domains, setting.emissions, strict=True):
            means.append(emission.intercept + z @ emission.projection[:, : features.n_factors].T)
            if domain.deviation:
                means[-1] = means[-1] + next(own)
        return self._slopes(setting, means)

    def _slopes(self, setting: Setting, means: list[NDArray]) -> dict[str, tuple[NDArray, NDArray]]:
        """Return slopes (M, T) and constants (T,) of every domain, from its clusters' means."""
        found = {}
        for domain, emission, own in zip(
            self.features.domains, setting.emissions, means, strict=True
        ):
            # Only differences between clusters matter: small numbers lose less in 32 bits.
            middle = own.mean(axis=0)
            away, precision = own - middle, emission.precision
            weighed = away @ precision if emission.full else away * precision
            constants = -0.5 * ((own + middle) * weighed).sum(axis=1)
            found[domain.assignment] = np.ascontiguousarray(weighed.T), constants
        return found

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, tuple[NDArray, NDArray]]:
        """Draw factors of some clusters."""
        setting = self._setting(point)
        factors = draw_factors(rng, self._contributions(setting, sums), setting.latent_precision)
        means = [own.intercept + factors @ own.projection.T for own in setting.emissions]
        return self._slopes(setting, means)

    def _cluster_sums(self, sums: Mapping[str, Sums]) -> list[ClusterSums]:
        found = []
        for domain in self.features.domains:
            counts, own = sums[domain.assignment]
            n, scatter = len(counts), self._scatter[domain.assignment]
            found.append(
                ClusterSums(
                    n,
                    own,
                    counts[:, None],
                    scatter[None] if domain.full else scatter,
                    np.arange(n),
                    np.zeros(n, np.int64),
                    np.ones((1, domain.n_features), np.bool_),
                )
            )
        return found

    def _contributions(self, setting: Setting, sums: Mapping[str, Sums]) -> list[Contribution]:
        pairs = zip(self._cluster_sums(sums), setting.emissions, strict=True)
        return [contribution(*pair) for pair in pairs]

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw the shared precision, then all that emissions depend on, then latent vectors."""
        setting, own = self.features.setting(new), self._contributions
        drawn_from = own(setting, sums), setting.latent_precision, setting.gamma
        precision, factors = draw_shared(rng, self._cluster_sums(sums), *drawn_from)
        setting = setting.given(precision)
        self._points.write_factors(rng, new, precision, factors, setting)
        if self._step is not None:
            self._step.rng, self._step.sums = rng, self._cluster_sums(sums)
            drawn, _ = self._step.step(new)
            new.update(drawn)

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log marginal likelihood given emissions, but for the noise, which is in `log_base`."""
        setting = self._setting(point)
        precision, linear = posterior(self._contributions(setting, sums), setting.latent_precision)
        lower = np.linalg.cholesky(precision)
        explained = np.linalg.solve(lower, linear[:, :, None])[:, :, 0]
        logs = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        k = 0.5 * linear.shape[1] * np.log(setting.latent_precision)
        return 0.5 * np.square(explained).sum(axis=1) - logs + k

    def log_base(self, point: Point, sums: Mapping[str, Sums]) -> float:
        """Log density of all features as nothing but noise."""
        own = self._contributions(self._setting(point), sums)
        return sum(constant - 0.5 * squares for *_, constant, squares in own)


class _FromSums(FeatureGibbs):
    """Projections, intercepts and noise given sums rather than the objects of a model.

    Labels are exchanged by nobody: that takes the labels of all objects.
    """

    sums: list[ClusterSums]

    def __init__(self, vars, **kwargs):
        super().__init__(vars, permute=False, **kwargs)

    def _load(self, point) -> None:
        self._take(point, self.sums, [np.zeros(0, np.int64) for _ in self.sums])

    def _held(self, point) -> NDArray[np.bool_]:
        return np.any([own.counts[:, 0] > 0 for own in self.sums], axis=0)
