"""Feature vectors in a collapsed state: brought to points, and drawn from there."""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.features import isometric, projection
from pm_match.features.emission import Emission
from pm_match.features.feature_sums import Contributions, posterior
from pm_match.features.parts import Features, Setting
from pm_match.features.points import FeaturesPoints
from pm_match.features.projected_normal import ProjectedNormalEvidence, log_marginal
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.sums import add_up
from pm_match.reading.densities import log_gamma


class FeatureState(EvidenceState):
    """The evidence of a clustering's feature vectors, for the units of a site."""

    setting: Setting

    def __init__(self, features: Features, site: Site, points: FeaturesPoints):
        self.features, self.points = features, points
        self.site, self._number = site, features.clustering
        clustering, own = site.clusterings[self._number], site.units[self._number]
        self._assignments = clustering.assignments
        # Assignments without features have none to show.
        nothing = [MaskedTable(np.zeros((a.n_objects, 0))) for a in self._assignments]
        domains = self._by_assignment([domain.data for domain in features.domains], nothing)
        # Objects without features may be irrelevant too, by what else is seen of them.
        flagged = any(a.relevance for a in self._assignments)
        widths = [d.n_features if d.deviation else 0 for d in features.domains]
        self.evidence = ProjectedNormalEvidence(
            domains,
            own,
            features.truncation,
            features.n_all_factors,
            flagged,
            self._by_assignment(widths, [0 for _ in self._assignments]),
            self._by_assignment([d.power for d in features.domains], [1.0] * len(domains)),
        )
        nobody = Emission.of_projection(np.zeros((0, features.n_all_factors)))
        self._nothing = [nobody for _ in self._assignments]
        self.terms = [(self._number, self.evidence.term)]

    def kernels(self) -> list[Job]:
        """List what the term's state, its draws and those of projections are made by."""
        numbers, matrix = np.zeros(1, np.int64), np.zeros((1, 1))
        found = self.evidence.kernels(self.site.slot_of(self._number))
        found.append(job(add_up, matrix, numbers, matrix))
        found += isometric.kernels() if self.features.sliced else []
        return found + (projection.kernels() if self.features.flat else [])

    def load(self, point: Point) -> None:
        """Bring the sums to a point."""
        self.setting = self.features.setting(point)
        slots = self.site.slots(self._number)
        self.evidence.load(self.emissions(), slots, *self._rest(point))

    def emissions(self) -> list[Emission]:
        """Return the present emission of every assignment."""
        return self._by_assignment(self.setting.emissions, self._nothing)

    def _rest(self, point: Point):
        """Latent precision, the prior of the shared precision, and the background (N,)."""
        features, background = self.features, None
        if features.flagged:
            numbers = range(len(features.domains))
            found = [features.log_background(number, point) for number in numbers]
            zeros = [np.zeros(assignment.n_objects) for assignment in self._assignments]
            own = self._by_assignment(found, zeros)
            background = np.concatenate(
                [zero if one is None else one for one, zero in zip(own, zeros, strict=True)]
            )
        return self.setting.latent_precision, self.setting.gamma, background

    def _by_assignment(self, values: Sequence, nothing: Sequence) -> list:
        """Give what every domain has to its assignment, and what is `nothing` to the others."""
        found = {
            domain.assignment: own
            for domain, own in zip(self.features.domains, values, strict=True)
        }
        return [
            found.get(assignment.name, own)
            for assignment, own in zip(self._assignments, nothing, strict=True)
        ]

    def log_prior(self, point: Point) -> float:
        """Log density of projections that have a prior, and of all other parameters."""
        return self.points.log_parameters(point)

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw precision, latent vectors, deviations and missing values."""
        precision, factors = self.evidence.draw(rng, self.site.slot_of(self._number))
        self.points.write_factors(rng, new, precision, factors, self.setting.given(precision))

    def log_conditional(self, point: Point) -> float:
        """Log density of precision, latent vectors, deviations and missing values."""
        features, plain = self.features, self.features.setting(point)
        precision, labels = self.points.precision(point), self.points.labels(point)
        contributions = Contributions(features.sums(labels)).of(plain.emissions)
        total = 0.0
        if plain.gamma is not None:
            total += log_gamma(log(precision), *self.evidence.shared_precision())
        own, linear = posterior(contributions, plain.latent_precision)
        setting = plain.given(precision)
        factors, log_scale = self.points.read_factors(point, setting)
        away = factors - np.linalg.solve(own, linear[:, :, None])[:, :, 0]
        total -= 0.5 * precision * np.einsum("tk,tkl,tl->", away, own, away)
        total += 0.5 * np.linalg.slogdet(own)[1].sum() - len(factors) * log_scale
        total += 0.5 * factors.size * np.log(precision / (2.0 * np.pi))
        return float(total + self.points.log_missing(point, setting, factors))

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula."""
        self.setting = self.features.setting(point)
        domains, label = self.evidence.domains, labels[self._number]
        latent_precision, gamma, background = self._rest(point)
        given = latent_precision, gamma, background, self.evidence.powers
        return log_marginal(domains, self.emissions(), label, *given)
