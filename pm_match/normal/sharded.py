"""Normal clusters over shards: means and precisions from sums of vectors and of their squares."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.normal.conjugate import Posterior, update
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.numerics.sums import add_up
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, UnservedModelError
from pm_match.reading.probe import initial_point
from pm_match.sharded.evidence import Chunk, Scorer, ShardedEvidence, Sums


class NormalScorer(Scorer):
    """The vectors of one variable.

    `centre` (D,): what vectors are summed about, so that squares keep their digits; `shared`:
    whether the clusters share one precision: sums of squares are then those of all.
    """

    def __init__(self, name: str, centre: NDArray, shared: bool):
        self.name, self.centre, self.shared = name, centre, shared
        self.widths = {name: len(centre)}

    def _away(self, chunk: Chunk) -> NDArray[np.float64]:
        return np.asarray(chunk[self.name], np.float64) - self.centre

    def totals(self, chunk: Chunk) -> Sums:
        """Sum of squares (D, D)."""
        x = self._away(chunk)
        return (x.T @ x,)

    def table(self, chunk: Chunk, parameters: tuple[NDArray, NDArray]) -> NDArray:
        """Log density by means (T, D), and roots (T, D, D) of precisions."""
        x = chunk[self.name]
        means, roots = (own.astype(x.dtype) for own in parameters)
        if self.shared:
            # What is the same in all clusters is left out.
            white, own = x @ roots[0], means @ roots[0]
            return white @ own.T - 0.5 * np.square(own).sum(axis=1)
        found = np.empty((len(x), len(means)), x.dtype)
        for j, (mean, root) in enumerate(zip(means, roots, strict=True)):
            white = (x - mean) @ root
            found[:, j] = -0.5 * np.einsum("nd,nd->n", white, white)
        found += np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        return found

    def statistics(
        self, chunk: Chunk, labels: NDArray, n_clusters: int, parameters: object = None
    ) -> Sums:
        """Vectors (T,), their sums (T, D), and sums of their squares (T, D, D)."""
        x = self._away(chunk)
        counts = np.bincount(labels, minlength=n_clusters).astype(np.float64)
        sums = np.zeros((n_clusters, x.shape[1]))
        add_up(x, labels, sums)
        if self.shared:
            return counts, sums
        squares = np.zeros((n_clusters, x.shape[1], x.shape[1]))
        for j in np.flatnonzero(counts):
            own = x[labels == j]
            squares[j] = own.T @ own
        return counts, sums, squares


class ShardedNormals(ShardedEvidence):
    """Means and precisions of normal clusters, given sums by cluster."""

    def __init__(self, model: Model, normals: Normals, component: Component):
        self.normals, self._points = normals, NormalsPoints(model, normals)
        self.names = normals.names
        if normals.power != 1.0 or normals.scale_matrix:
            raise UnservedModelError(
                f"{normals.precision!r}: over shards, expected densities as they are and a "
                "constant prior; found coarsened ones, or a free scale matrix"
            )
        clustering = component.clusterings[normals.clustering]
        n = {own.name: own.n_objects for own in clustering.assignments}
        for own in normals.values:
            if own.data is None or own.missing or own.alignment or own.factor:
                raise UnservedModelError(
                    f"{own.name!r}: over shards, expected observed vectors, without a map, missing "
                    "values, or factors of their precisions (`normal_clusters`: tails=None)"
                )
            if not np.array_equal(own.objects, np.arange(n[own.assignment])):
                raise UnservedModelError(
                    f"{own.name!r}: over shards, expected one row for each object, in their order"
                )
        assignments = [own.assignment for own in normals.values]
        if len(set(assignments)) < len(assignments):
            raise UnservedModelError(
                f"{normals.mean!r}: over shards, expected one variable of each domain's objects"
            )
        self._centre = normals.prior(initial_point(model)).center
        self.scorers = {
            own.assignment: NormalScorer(own.name, self._centre, normals.shared)
            for own in normals.values
        }
        self._squares = np.zeros((len(self._centre), len(self._centre)))

    def begin(self, totals: Mapping[str, Sums]) -> None:
        """Take the squares of all vectors."""
        self._squares = np.sum([own[0] for own in totals.values()], axis=0)

    def _read(self, point: Point) -> tuple[NDArray, NDArray]:
        """Means (T, D), and precisions (P, D, D)."""
        means, precisions = self._points.natural(point)
        return means, precisions[None] if self.normals.shared else precisions

    def parameters(self, point: Point) -> dict[str, tuple[NDArray, NDArray]]:
        """Return means, and roots of precisions."""
        means, precisions = self._read(point)
        return dict.fromkeys(self.scorers, (means, np.linalg.cholesky(precisions)))

    def _posterior(self, point: Point, sums: Mapping[str, Sums], shared: bool) -> Posterior:
        """Update the prior by sums; scatters of a shared precision lack the squares of all."""
        counts, total, *squares = (np.sum(own, axis=0) for own in zip(*sums.values(), strict=True))
        averages = total / np.maximum(counts, 1.0)[:, None]
        scatters = -total[:, :, None] * averages[:, None, :]
        if squares:
            scatters += squares[0]
        return update(counts, averages + self._centre, scatters, self.normals.prior(point), shared)

    def draw(
        self, rng: np.random.Generator, new: dict[str, NDArray], sums: Mapping[str, Sums]
    ) -> None:
        """Draw means and precisions from their conjugate conditional."""
        own = self._posterior(new, sums, self.normals.shared)
        if own.shared:
            own = own._replace(inverse_scales=own.inverse_scales + self._squares)
        self._points.write_parameters(new, *own.draw(rng))

    def proposed(
        self, rng: np.random.Generator, point: Point, sums: Mapping[str, Sums]
    ) -> dict[str, tuple[NDArray, NDArray]]:
        """Draw parameters of some clusters."""
        own = self._posterior(point, sums, False)
        if self.normals.shared:
            _, precisions = self._read(point)
            roots = np.linalg.cholesky(precisions)
            noise = np.linalg.solve(roots[0].T, rng.standard_normal(own.means.shape).T).T
            means = own.means + noise / np.sqrt(own.prior.strength + own.weights)[:, None]
        else:
            means, precisions = own.draw(rng)
            roots = np.linalg.cholesky(precisions)
        return dict.fromkeys(self.scorers, (means, roots))

    def log_marginals(self, point: Point, sums: Mapping[str, Sums]) -> NDArray[np.float64]:
        """Log marginal likelihood; given the precision, if it is shared."""
        own = self._posterior(point, sums, False)
        if self.normals.shared:
            _, (precision,) = self._read(point)
            scatters = own.inverse_scales - own.prior.inverse_scale
            return own.means_out() - 0.5 * np.einsum("jkl,kl->j", scatters, precision)
        found = own.means_out() + own.precisions_out()
        return found - 0.5 * len(self._centre) * own.weights * np.log(np.pi)

    def log_base(self, point: Point, sums: Mapping[str, Sums]) -> float:
        """Log density of a shared precision's own, and of squares about the centre."""
        if not self.normals.shared:
            return 0.0
        _, (precision,) = self._read(point)
        n = sum(own[0].sum() for own in sums.values())
        squares = float(np.sum(precision * self._squares))
        return float(0.5 * n * np.linalg.slogdet(precision)[1] - 0.5 * squares)
