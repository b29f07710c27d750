"""The log predictive of new objects in every cluster, in one draw after the other."""

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.points import ClusteringPoints
from pm_match.features.backgrounds import Background
from pm_match.features.marginals import Marginal
from pm_match.features.parts import Features
from pm_match.features.points import FeaturesPoints
from pm_match.features.predictive import Clusters, Joined, log_noise, restricted, scaled
from pm_match.networks.edges import log_edges
from pm_match.prediction.new_objects import Edges, NewObjects
from pm_match.prediction.prior import log_prior, log_relevance
from pm_match.reading.parts import Component
from pm_match.reading.probe import natural_function


class FeaturesAt:
    """The features of a clustering at a draw.

    Parameters
    ----------
    model : pymc.Model
    features : Features

    Attributes
    ----------
    clusters : Clusters
    backgrounds : list of Marginal or None
        Of the irrelevant objects of each domain that may have any.
    """

    clusters: Clusters
    backgrounds: list[Marginal | None]

    def __init__(self, model: Model, features: Features):
        self.features = features
        self._alpha = natural_function(model, [features.precision]) if features.precision else None
        self._points = FeaturesPoints(model, features) if features.plain else None
        self._background = [Background(model, d) if d.flag else None for d in features.domains]

    def load(self, point, labels: list[NDArray[np.int64]]) -> None:
        """Bring the clusters to a point, with the labels of every domain's objects."""
        alpha = 1.0 if self._alpha is None else float(self._alpha(point)[0])
        if self._points is not None:
            ones = [np.ones(d.data.values.shape[1]) for d in self.features.domains]
            marginals = [
                Marginal(w, np.zeros(len(w)), one)
                for w, one in zip(self._points.projections(point), ones, strict=True)
            ]
            r = self.features.hyper(point).latent_precision
        else:
            view = self.features.view(point)
            marginals, r = list(view.marginals), view.latent_precision
        self.clusters = Clusters.of(
            [domain.data for domain in self.features.domains],
            labels,
            [scaled(marginal, alpha) for marginal in marginals],
            r * alpha,
            self.features.truncation,
        )
        self.backgrounds = [None if own is None else own(point) for own in self._background]


class Predictive:
    """What the draws of a component say of new objects.

    Parameters
    ----------
    model : pymc.Model
    component : Component

    Attributes
    ----------
    labels : list of (N,) array
        Of every clustering's objects in the present draw, -1 for irrelevant ones.
    """

    labels: list[NDArray[np.int64]]

    def __init__(self, model: Model, component: Component):
        self.component = component
        self._points = [ClusteringPoints(model, c) for c in component.clusterings]
        self.features = [FeaturesAt(model, f) if f else None for f in component.features]
        self._collapsed = Collapsed.of(model, component) if component.relations else None

    def load(self, point) -> None:
        """Bring everything to a point."""
        self._point = point
        self.labels = [points.labels(point) for points in self._points]
        for number, features in enumerate(self.features):
            if features is not None:
                own = [
                    self.labels_of(number, domain.assignment)
                    for domain in features.features.domains
                ]
                features.load(point, own)
        if self._collapsed is not None:
            self._collapsed.load(point, self.labels, features=False)

    def labels_of(self, clustering: int, assignment: str) -> NDArray[np.int64]:
        """Labels of one assignment's objects, -1 for irrelevant ones."""
        own = self.component.clusterings[clustering]
        names = [a.name for a in own.assignments]
        return np.split(self.labels[clustering], own.ends)[names.index(assignment)]

    def log_joint(self, new: NewObjects) -> NDArray[np.float64]:
        r"""Log joint of the clusters of new objects, one by one, and what is seen of them.

        .. math:: \log p(s^*, r^* \mid s, r) + \log p(x^* \mid s^*, r^*, X, s, r, \ldots)

        Returns
        -------
        (N, T + 1) array
            The last column is for irrelevant objects.
        """
        place = new.place
        clustering = self.component.clusterings[place.clustering]
        labels = self.labels[place.clustering]
        a, b = clustering.prior(self._point)
        found = np.empty((len(new), clustering.truncation + 1))
        found[:, :-1] = log_prior(a, b, labels, clustering.truncation)
        found[:, -1] = -np.inf
        group = place.assignment.group
        if group >= 0:
            flags = np.concatenate(
                [
                    self.labels_of(place.clustering, other.name) >= 0
                    for other in clustering.assignments
                    if other.group == group
                ]
            )
            yes, no = log_relevance(clustering.relevance_prior(self._point)[group], flags)
            found[:, :-1] += yes
            found[:, -1] = no
        if new.values is not None:
            found += self._log_features(new)
        for edges in new.edges:
            found += self._log_edges(new, edges)
        return found

    def patterns(self, new: NewObjects) -> list[tuple[NDArray, NDArray[np.bool_], Joined]]:
        """Let new objects join every cluster.

        Returns
        -------
        list of (rows, features, Joined)
            Objects of which the same features are observed.
        """
        features, number = self.features[new.place.clustering], new.place.feature_domain
        assert features is not None
        assert number is not None
        assert new.values is not None
        marginal = features.clusters.marginals[number]
        seen = ~np.isnan(new.values)
        distinct, which = np.unique(seen, axis=0, return_inverse=True)
        found = []
        for pattern, observed in enumerate(distinct):
            rows = np.flatnonzero(which.ravel() == pattern)
            own = restricted(marginal, observed)
            x = new.values[np.ix_(rows, observed)]
            found.append((rows, observed, features.clusters.joined(own, x)))
        return found

    def by_row(self, new: NewObjects, log_joint: NDArray) -> NDArray[np.float64]:
        """Add up a log joint (N, T + 1) by rows of `Clusters` (N, J): empty clusters are alike."""
        features = self.features[new.place.clustering]
        assert features is not None
        row = features.clusters.row
        found = np.full((len(log_joint), row.max() + 1), -np.inf)
        for cluster, own in enumerate(row):
            found[:, own] = np.logaddexp(found[:, own], log_joint[:, cluster])
        return found

    def _log_features(self, new: NewObjects) -> NDArray[np.float64]:
        features, number = self.features[new.place.clustering], new.place.feature_domain
        assert features is not None
        assert number is not None
        assert new.values is not None
        background = features.backgrounds[number]
        clustering = self.component.clusterings[new.place.clustering]
        # Without a density of their own, irrelevant objects are told by what else is seen of them.
        found = np.zeros((len(new), clustering.truncation + 1))
        for rows, observed, joined in self.patterns(new):
            found[rows, :-1] = joined.log_density()
            if background is not None:
                own = restricted(background, observed)
                residual = new.values[np.ix_(rows, observed)] - own.intercept
                found[rows, -1] = log_noise(own, own.whiten(residual))
        return found

    def _log_edges(self, new: NewObjects, edges: Edges) -> NDArray[np.float64]:
        assert self._collapsed is not None
        relation = self.component.relations[edges.relation]
        evidence = self._collapsed.relations[edges.relation]
        slot_of = [self._collapsed.partitions[axis].slot_of for axis in relation.axes]
        forward, backward = (self._sums(side, edges) for side in (edges.forward, edges.backward))
        if backward is not None and forward is None:
            forward = np.zeros_like(backward)
        assert forward is not None
        noisy = new.place.assignment.relevance is not None
        found = log_edges(evidence, slot_of, edges.axis, forward, backward, noisy)
        constants = [
            cells.constant(relation.family == "poisson")
            for cells in (*edges.forward, *edges.backward)
        ]
        return found + np.add.reduce(constants)[:, None]

    def _sums(self, sides, edges: Edges) -> NDArray[np.float64] | None:
        """Sum the cells of new objects in all networks of a relation."""
        assert self._collapsed is not None
        relation = self.component.relations[edges.relation]
        origin = self._collapsed.relations[edges.relation].origin
        total = None
        for cells in sides:
            homes = [relation.axes[axis] for axis in cells.others]
            labels = [
                self.labels[home][first : first + n]
                for home, first, n in (
                    (home, cells.cells.first[axis], cells.cells.shape[axis])
                    for home, axis in zip(homes, cells.others, strict=True)
                )
            ]
            widths = [self.component.clusterings[home].truncation for home in homes]
            own = cells.sums(labels, widths, origin)
            total = own if total is None else total + own
        return total


__all__ = ["FeaturesAt", "Predictive"]
