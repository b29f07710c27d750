"""Feature vectors in a collapsed state: brought to points, and drawn from there."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.features.marginals import Marginal, split_deviations
from pm_match.features.parts import Features, View
from pm_match.features.points import FeaturesPoints
from pm_match.features.projected_normal import DomainData, ProjectedNormalEvidence


class FeatureState(EvidenceState):
    """The evidence of a clustering's feature vectors, for the units of a site."""

    def __init__(self, features: Features, site: Site, points: FeaturesPoints):
        self.features, self.points = features, points
        self.site, self._number = site, features.clustering
        clustering, own = site.clusterings[self._number], site.units[self._number]
        self._assignments = clustering.assignments
        by_assignment = {domain.assignment: domain.data for domain in features.domains}
        # Assignments without features have none to show.
        domains = [
            by_assignment.get(a.name) or DomainData(np.zeros((a.n_objects, 0)))
            for a in self._assignments
        ]
        # Objects without features may be irrelevant too, by what else is seen of them.
        flagged = any(a.relevance for a in self._assignments)
        self.evidence = ProjectedNormalEvidence(
            domains, own, features.truncation, features.n_all_factors, flagged
        )
        self.terms = [(self._number, self.evidence.term)]
        self.view: View | None = None

    def load(self, point: Point) -> None:
        """Bring the sums to a point."""
        features, slots = self.features, self.site.slots(self._number)
        if features.plain:
            hyper = features.hyper(point)
            self.evidence.load(
                self.projections(point), slots, hyper.shape, hyper.rate, hyper.latent_precision
            )
            return
        self.view = view = features.view(point)
        k = features.n_all_factors
        nothing = Marginal(np.zeros((0, k)), np.zeros(0), np.zeros(0))
        marginals = self._by_assignment(view.marginals, nothing)
        pairs = list(zip(marginals, self.evidence.domains, strict=True))
        whitened = [m.whitened(data) for m, data in pairs]
        projections = [marginal.whitened_projection() for marginal in marginals]
        if features.precision:
            hyper = features.hyper(point)
            self.evidence.load(
                projections,
                slots,
                hyper.shape,
                hyper.rate,
                view.latent_precision,
                whitened,
                sum(m.log_root.sum() * len(data.values) for m, data in pairs),
            )
            return
        constants = np.concatenate([m.log_constants(data) for m, data in pairs])
        self.evidence.load_known(
            whitened, projections, slots, view.latent_precision, constants, self._idle(point)
        )

    def _by_assignment(self, values, nothing) -> list:
        """Give what every domain has to its assignment, and `nothing` to the others."""
        found = {
            domain.assignment: own
            for domain, own in zip(self.features.domains, values, strict=True)
        }
        return [found.get(assignment.name, nothing) for assignment in self._assignments]

    def _idle(self, point: Point) -> NDArray[np.float64] | None:
        """Log density of every object (N,) as an irrelevant one; None if all are relevant."""
        if not self.features.flagged:
            return None
        found = self._by_assignment(self.features.idle(point), None)
        return np.concatenate(
            [
                np.zeros(assignment.n_objects) if own is None else own
                for assignment, own in zip(self._assignments, found, strict=True)
            ]
        )

    def projections(self, point: Point) -> list[NDArray[np.float64]]:
        """Read the projection of every assignment, (0, K) for those without features."""
        nothing = np.zeros((0, self.features.n_factors))
        return self._by_assignment(self.points.projections(point), nothing)

    def log_prior(self, point: Point) -> float:
        """Log density of projections that have a normal prior, and of marginals' parameters."""
        total = self.points.log_parameters(point)
        if not self.features.plain:
            return total
        for domain, w in zip(self.features.domains, self.points.projections(point), strict=True):
            if domain.update == "normal":
                mean, precision = self.features.projection_prior(domain, point)
                squares = precision * (w - mean) ** 2
                total += 0.5 * float((np.log(precision / (2.0 * np.pi)) - squares).sum())
        return total

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw precision, latent vectors, deviations and missing values."""
        points = self.points
        alpha, latent = self.evidence.draw(rng, self.site.slot_of(self._number))
        if self.view is not None:
            view = self.view
            latent, deviations = split_deviations(
                latent, self.features.n_factors, view.scales, view.latent_precision
            )
            points.write_latent(new, alpha, latent, deviations)
            return
        points.write_latent(new, alpha, latent)
        projections = points.projections(point)
        points.write_missing(rng, new, points.labels(new), projections, alpha, latent)

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula."""
        hyper = self.features.hyper(point)
        return self.evidence.log_marginal(
            self.projections(point),
            labels[self._number],
            hyper.shape,
            hyper.rate,
            hyper.latent_precision,
        )
