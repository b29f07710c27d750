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
from pm_match.normal.parts import Normals, PrecisionFactor
from pm_match.normal.points import NormalsPoints
from pm_match.normal.precision_factor_gibbs import squares
from pm_match.normal.shared_normal import SharedNormalEvidence
from pm_match.numerics.ahead import Job
from pm_match.reading.densities import log_gamma

# Rounds in which missing values, and what they are expected by, are found in turn.
_ROUNDS = 20
# Clusters that another one may be merged with.
_NEIGHBOURS = 2


class NormalsState(EvidenceState):
    """The evidence of vectors that are normal in each cluster, for the units of a site."""

    def __init__(self, normals: Normals, site: Site, points: NormalsPoints):
        self.normals, self.points, self.site = normals, points, site
        clustering, own = site.clusterings[normals.clustering], site.units[normals.clustering]
        objects = np.concatenate(normals.objects(clustering))
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
        normals = self.normals
        given = normals.vectors(point), slots, normals.prior(point)
        factors = normals.precision_factors(point)
        self.evidence.load(*given, factors, normals.log_jacobian(point))

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw means and precisions."""
        labels = self.site.labels(self.normals.clustering)
        self.points.write_parameters(new, *self.evidence.posterior(labels).draw(rng))

    def log_conditional(self, point: Point) -> float:
        """Log density of means and precisions."""
        mean, precision = self.points.natural(point)
        labels = self.site.labels(self.normals.clustering)
        return self.evidence.posterior(labels).log_density(mean, precision)

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula."""
        found = self.evidence.log_marginal(labels[self.normals.clustering])
        return found + self.normals.log_jacobian(point)

    def log_prior(self, point: Point) -> float:
        r"""Log density of what steps of their own draw, less that of what belongs to vectors.

        That is missing values, and factors of precisions, given the observed values. What is left
        of the log evidence is that of the observed values alone, as far as means and precisions are
        known (J. Besag 1989, "A candidate's formula"): other missing values, and other factors, do
        not make a mode another one. See `optimism` for what is added back.
        """
        total = self.points.log_parameters(point) + 2.0 * self.optimism(point)
        x, labels = self.evidence.values, self._labels()
        for rows, part, clusters in self._given(x, labels):
            total -= part.log_missing(x[rows], clusters).sum()
        for factor, shape, rate in self._factors(point):
            total -= log_gamma(np.log(factor.read(point)), shape, rate).sum()
        return float(total)

    def optimism(self, point: Point) -> float:
        r"""Say by how much the density of factors given clusters expected by them is too high.

        The log evidence, less that density, is too low by so much at expected factors, and by twice
        as much at drawn ones: half the log ratio of the determinants of the information on the
        clusters' parameters, with factors known and integrated out. For t of :math:`\nu` degrees of
        freedom in D dimensions, the information is
        :math:`(\nu + D) / (\nu + D + 2)` times that of a normal distribution, but
        :math:`\nu / (\nu + D + 2)` times for the scale of a covariance (K. Lange, R. Little & J.
        Taylor 1989, "Robust statistical modeling using the t distribution", Journal of the American
        Statistical Association 84, appendix B). An approximation, for comparisons of modes: it
        enters no draw.
        """
        normals, rows = self.normals, len(self.evidence.rows.object)
        if not normals.factors:
            return 0.0
        shapes = np.concatenate([factor.prior(point)[0] for factor in normals.factors])
        nu = 2.0 * shapes.mean() / normals.power
        seen = [np.isfinite(own.data).sum() for own in normals.values if own.data is not None]
        d = sum(seen) / rows if normals.searchable else normals.n_features
        occupied = len(np.unique(self._labels()))
        covariances = 1 if normals.shared else occupied
        own = covariances * (normals.n_features * (normals.n_features + 1) / 2 - 1)
        own += occupied * normals.n_features
        information = own * np.log1p(2.0 / (nu + d)) + covariances * np.log1p((d + 2.0) / nu)
        return float(0.5 * information * len(shapes) / rows)

    def expected_factors(self, point: Point) -> dict[str, NDArray[np.float64]]:
        """Expect the factors of precisions as the present labels' clusters do, by variable."""
        return {factor.name: shape / rate for factor, shape, rate in self._factors(point)}

    def neighbours(self) -> Iterator[tuple[float, NDArray[np.int64], int]]:
        """Say which clusters are near each other.

        Yield, for every cluster that holds vectors and a few others: how far it is from the other
        one, in squared standard deviations of that; the objects of its vectors; and the other's
        label.
        """
        labels = self._labels()
        used, own = np.unique(labels, return_inverse=True)
        means, precisions = self._clusters(self.evidence.values, own, len(used))
        for j, mean in enumerate(means):
            away = means - mean
            distances = np.einsum("ki,kij,kj->k", away, precisions, away)
            for k in np.argsort(distances)[: _NEIGHBOURS + 1]:
                if k != j:
                    yield float(distances[k]), self.evidence.rows.object[own == j], int(used[k])

    def _factors(
        self, point: Point
    ) -> Iterator[tuple[PrecisionFactor, NDArray[np.float64], NDArray[np.float64]]]:
        """Say how factors (R,) are distributed in the clusters that are expected: shape, rate."""
        normals, x, labels = self.normals, self.evidence.values, self._labels()
        if not normals.factors:
            return
        away = squares(x, *self._clusters(x, labels, normals.truncation), labels)
        seen = np.full(len(x), normals.n_features)
        for rows, part, clusters in self._given(x, labels):
            away[rows], seen[rows] = part.squares(clusters), (~part.hidden).sum(axis=1)
        for own, here in zip(normals.values, normals.rows, strict=True):
            if own.factor is not None:
                given = normals.power, point, seen[here], away[here]
                yield own.factor, *own.factor.conditional(*given)

    def _clusters(
        self, x: NDArray, labels: NDArray[np.int64], n: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Expect means (n, D) and precisions (n, D, D) by vectors `x` (R, D) and labels (R,)."""
        given = self.evidence.prior, self.normals.shared, self.normals.power, self.evidence.factors
        own = posterior(x, labels, n, *given)
        precisions = own.degrees[:, None, None] * np.linalg.inv(own.inverse_scales)
        return own.means, np.broadcast_to(precisions, (n, *precisions.shape[1:]))

    def expected(self, point: Point) -> dict[str, NDArray[np.float64]]:
        """Expect missing values given the others of their row, as if all were of one cluster.

        Its mean and precision are expected in turn with them. Return values by variable.
        """
        normals = self.normals
        x, labels = normals.vectors(point), np.zeros_like(self._labels())
        for _ in range(_ROUNDS if normals.missing else 0):
            for rows, part, clusters in self._given(x.copy(), labels):
                x[rows] = part.expected(clusters)
        found: dict[str, NDArray[np.float64]] = {}
        for own, here in zip(normals.values, normals.rows, strict=True):
            found |= own.missing_of(x[here], point)
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
        normals = self.normals
        if not normals.missing:
            return
        used, labels = np.unique(labels, return_inverse=True)
        means, precisions = self._clusters(x, labels, len(used))
        factors = self.evidence.factors
        for here, incomplete in zip(normals.rows, self._incomplete, strict=True):
            if incomplete is not None:
                weights = None if factors is None else factors[here]
                for part in incomplete.given(means, precisions, weights):
                    rows = here.start + part.rows
                    yield rows, part, labels[rows]
