"""Networks in a collapsed state."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.clusters.points import Writer
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.draws import cell_parameters, draw_values
from pm_match.networks.families import log_values
from pm_match.networks.parts import Relation
from pm_match.numerics.ahead import Job


class RelationState(EvidenceState):
    """The evidence of networks that share their densities, for the units of a site."""

    def __init__(self, relation: Relation, site: Site, points: Writer):
        self.relation, self.points, self.site = relation, points, site
        numbers = range(len(site.clusterings))
        flagged = [site.relevance_groups(number) >= 0 for number in numbers]
        self.evidence = BlockEvidence(relation, site.board, flagged)
        self.terms = self.evidence.terms

    def kernels(self) -> list[Job]:
        """List what the blocks are made by."""
        return self.evidence.kernels()

    def load(self, point: Point) -> None:
        """Bring the blocks to the units' slots."""
        self.evidence.load()

    def load_prior(self, point: Point) -> None:
        """Bring the priors of densities and noise to a point."""
        self.evidence.set_prior(*self.relation.prior(point))

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw densities and noise, and missing cells given these."""
        relation = self.relation
        slot_of = [self.site.slot_of(axis) for axis in relation.axes]
        drawn = self.evidence.draw(rng, slot_of)
        prior = self.evidence.prior
        prior.write(self.points, new, relation.density, drawn)
        for name, own in relation.missing.items():
            parameters = self._parameters(name, prior.natural(drawn))
            values = draw_values(relation.family, rng, *parameters)
            self.points.write(new, {own.name: values.reshape(own.shape)})
        if relation.noise:
            prior.write(self.points, new, relation.noise, self.evidence.draw_noise(rng))

    def _parameters(self, name: str, drawn: Sequence) -> list[NDArray[np.float64]]:
        """Return exposures (C,) of a network's missing cells, and what their blocks have."""
        relation = self.relation
        cells, missing = relation.networks[name], relation.missing[name]
        clusters = [
            self.site.labels(axis)[first:][:n]
            for axis, first, n in zip(relation.axes, cells.first, cells.shape, strict=True)
        ]
        given = missing.index, clusters, drawn, missing.exposure
        return cell_parameters(missing.symmetric, *given)

    def log_conditional(self, point: Point) -> float:
        """Log density of densities and noise, and of missing cells given these."""
        relation = self.relation
        slot_of = [self.site.slot_of(axis) for axis in relation.axes]
        prior = self.evidence.prior
        density = prior.read(self.points, point, relation.density)
        noise = prior.read(self.points, point, relation.noise) if relation.noise else []
        total = self.evidence.log_conditional(density, noise, slot_of)
        for name, missing in relation.missing.items():
            own = self._parameters(name, prior.natural(density))
            x = self.points.read(point, missing.name).ravel()
            total += float(log_values(relation.family, x, *own).sum())
        return total

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula."""
        return self.evidence.log_marginal(labels, *self.relation.prior(point))
