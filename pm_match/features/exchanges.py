"""Exchanges of labels within the domains of a clustering of features."""

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.points import ClusteringPoints
from pm_match.clusters.units import units
from pm_match.features.parts import Features
from pm_match.features.permute import Regressions, permute_labels
from pm_match.reading import read
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Clustering, Structure

# Exchanges that are proposed for every cluster of a domain.
PROPOSALS = 4


class Exchanges:
    """Exchanges of labels within the domains of a clustering, for one step at a time.

    `domains`: those whose clusters may exchange their labels, unless something forbids it; `free`
    are the assignments of those that may. For the step, `prior` has the Beta parameters (T - 1,) of
    the weights' sticks, `held` the objects in each cluster (T,), `accepted` and `proposed` the
    numbers of exchanges, and `changed` says whether any label has, so that labels and weights are
    to be written.
    """

    def __init__(self, model: Model, features: Features, domains: set[int]):
        self._clustering, self.free = _free(read(model), features, domains)
        self._points = ClusteringPoints(model, self._clustering)
        self._renamed = np.zeros(features.truncation, np.int64)

    def load(self, rng: np.random.Generator, point: Point) -> str | None:
        """Begin with a point: choose the assignment whose clusters may exchange their labels."""
        self.accepted, self.proposed, self.changed = 0, 0, False
        if not self.free:
            return None
        clustering = self._clustering
        labels = self._points.labels(point)
        self._labels = {name: labels[where] for name, where in clustering.slices.items()}
        self.prior = clustering.prior(point)
        self.held = np.bincount(labels[labels >= 0], minlength=clustering.truncation)
        self._chosen = self.free[int(rng.integers(len(self.free)))]
        return self._chosen

    def propose(
        self,
        rng: np.random.Generator,
        sums: NDArray,
        counts: NDArray,
        mean: NDArray,
        precision: NDArray,
        latent: NDArray,
    ) -> NDArray[np.int64] | None:
        """Exchange labels of the chosen domain, of which `Regressions` takes all but the labels.

        Return (T,) or None: the new name of every label, None if all are kept.
        """
        objects = self.objects()
        groups = np.flatnonzero(objects)
        if not len(groups):
            return None
        own = Regressions.of(sums, counts, mean, precision, latent, groups)
        n_proposals = PROPOSALS * len(groups)
        accepted, proposed = permute_labels(
            rng, *self.prior, self.held, objects, own, self._renamed, n_proposals
        )
        self.accepted += accepted
        self.proposed += proposed
        if not accepted:
            return None
        self.rename(self._renamed, self.held)
        return self._renamed.copy()

    def objects(self) -> NDArray[np.int64]:
        """Count the chosen assignment's objects in each cluster (T,)."""
        labels = self._labels[self._chosen]
        return np.bincount(labels[labels >= 0], minlength=len(self.held))

    def rename(self, renamed: NDArray[np.int64], held: NDArray[np.int64]) -> None:
        """Rename the labels of the chosen assignment; all assignments then have `held` objects."""
        self.changed, self.held = True, held
        labels = self._labels[self._chosen]
        self._labels[self._chosen] = np.where(labels >= 0, renamed[labels], -1)

    def draw(self, rng: np.random.Generator, point: dict[str, NDArray]) -> None:
        """Write the labels, and weights that are drawn given them, to a new `point`."""
        labels = np.concatenate(list(self._labels.values()))
        self._points.draw(rng, point, point, labels, self.held, np.zeros((0, 2)))


def _free(
    structure: Structure, features: Features, domains: set[int]
) -> tuple[Clustering, list[str]]:
    """Find the clustering of some features, and the assignments whose labels may be exchanged."""
    for component in structure.components:
        if not any(own is features for own in component.evidence):
            continue
        clustering = component.clusterings[features.clustering]
        found: list[str] = []
        # What else sees the clusters would have to be asked about an exchange too.
        if len(component.evidence) == 1 and len(clustering.assignments) > 1:
            served = {features.domains[number].assignment for number in domains}
            of_object = units(clustering.n_objects, clustering.links).of_object
            for name, where in clustering.slices.items():
                others = np.delete(of_object, where)
                known = (clustering.known[where] >= 0).any()
                shared = np.isin(of_object[where], others).any()
                inside = (clustering.apart >= where.start) & (clustering.apart < where.stop)
                kept_from_others = (inside[:, 0] != inside[:, 1]).any()
                if name in served and not (known or shared or kept_from_others):
                    found.append(name)
        return clustering, found
    raise ValueError("expected features of the structure; found others")
