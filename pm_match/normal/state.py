"""Normal clusters in a collapsed state."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.normal import maps
from pm_match.normal.conjugate import NormalEvidence
from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.normal_wishart import NormalWishartEvidence
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.normal.shared_normal import SharedNormalEvidence
from pm_match.numerics.ahead import Job


class NormalsState(EvidenceState):
    """The evidence of vectors that are normal in each cluster, for the units of a site."""

    def __init__(self, normals: Normals, site: Site, points: NormalsPoints):
        self.normals, self.points, self.site = normals, points, site
        clustering, own = site.clusterings[normals.clustering], site.units[normals.clustering]
        # The vectors may be of some objects only.
        where = clustering.slices
        objects = np.concatenate([v.objects + where[v.assignment].start for v in normals.values])
        rows = NormalRows(objects, own, normals.n_features)
        self.evidence: NormalEvidence
        if normals.shared:
            self.evidence = SharedNormalEvidence(rows, clustering.truncation)
        else:
            self.evidence = NormalWishartEvidence(rows, clustering.truncation, normals.power)
        self.terms = [(normals.clustering, self.evidence.term)]

    def kernels(self) -> list[Job]:
        """List what the sums are made by."""
        found = self.evidence.kernels(self.site.slots(self.normals.clustering))
        return [*found, *maps.kernels()] if self.normals.aligned else found

    def load(self, point: Point) -> None:
        """Bring the clusters' sums to a point."""
        slots = self.site.slots(self.normals.clustering)
        given = self.normals.vectors(point), slots, self.normals.prior(point)
        self.evidence.load(*given, self.normals.log_jacobian(point))

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw means and precisions."""
        labels = self.site.labels(self.normals.clustering)
        self.points.write_parameters(new, *self.evidence.draw(rng, labels))

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula."""
        found = self.evidence.log_marginal(labels[self.normals.clustering])
        return found + self.normals.log_jacobian(point)

    def log_prior(self, point: Point) -> float:
        """Log density of maps, and of the precisions' scale matrix."""
        return self.points.log_parameters(point)
