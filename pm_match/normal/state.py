"""Normal clusters in a collapsed state."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import EvidenceState, Point, Site
from pm_match.normal import maps
from pm_match.normal.conjugate import NormalEvidence, posterior
from pm_match.normal.given_observed import Given, Incomplete
from pm_match.normal.normal_rows import NormalRows
from pm_match.normal.normal_wishart import NormalWishartEvidence
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.normal.shared_normal import SharedNormalEvidence
from pm_match.numerics.ahead import Job

# Rounds in which missing values, and what they are expected by, are found in turn.
_ROUNDS = 20


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
        self._incomplete = [
            None if own.data is None else Incomplete.of(own.data, own.incomplete)
            for own in normals.values
        ]

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
        """Log density of maps, and of the precisions' scale matrix; less that of missing values.

        What is left of the log evidence is that of the observed values alone, as far as means and
        precisions given all vectors are known (J. Besag 1989, "A candidate's formula"): other
        missing values do not make a mode another one.
        """
        total = self.points.log_parameters(point)
        x, labels = self.evidence.values, self._labels()
        for rows, part, clusters in self._given(x, labels):
            total -= part.log_missing(x[rows], clusters).sum()
        return float(total)

    def expected(self, point: Point) -> dict[str, NDArray[np.float64]]:
        """Expect missing values given the others of their row, as if all were of one cluster.

        Its mean and precision are expected in turn with them. Return values by variable.
        """
        normals = self.normals
        x, labels = normals.vectors(point), np.zeros_like(self._labels())
        for _ in range(_ROUNDS if normals.missing else 0):
            for rows, part, clusters in self._given(x.copy(), labels):
                x[rows] = part.expected(clusters)
        ends = np.cumsum([len(own.objects) for own in normals.values])[:-1]
        found: dict[str, NDArray[np.float64]] = {}
        for own, vectors in zip(normals.values, np.split(x, ends), strict=True):
            found |= own.missing_of(vectors, point)
        return found

    def _labels(self) -> NDArray[np.int64]:
        """Return the labels (R,) of the objects of all vectors."""
        return self.site.labels(self.normals.clustering)[self.evidence.rows.object]

    def _given(
        self, x: NDArray, labels: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.int64], Given, NDArray[np.int64]]]:
        """Say what clusters expect of vectors with missing values, as `x` (R, D) lets expect them.

        Yield the rows of some of these, what is expected by the clusters that hold something, and
        of which of these each row is.
        """
        normals, start = self.normals, 0
        if not normals.missing:
            return
        given = self.evidence.prior, normals.shared, normals.power
        used, labels = np.unique(labels, return_inverse=True)
        _, means, degrees, scales = posterior(x, labels, len(used), *given)
        precisions = degrees[:, None, None] * np.linalg.inv(scales)
        for own, incomplete in zip(normals.values, self._incomplete, strict=True):
            if incomplete is not None:
                for part in incomplete.given(means, precisions):
                    rows = start + part.rows
                    yield rows, part, labels[rows]
            start += len(own.objects)
