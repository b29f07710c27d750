"""What feature vectors say of new objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.backgrounds import Background
from pm_match.features.marginals import Marginal
from pm_match.features.parts import Features, Projected
from pm_match.features.points import FeaturesPoints
from pm_match.features.predictive import Clusters, Joined, log_noise, restricted, scaled
from pm_match.prediction.predictive import Predictive
from pm_match.prediction.predictor import NewObjects, Place, Predictor, coords
from pm_match.reading.parts import Clustering
from pm_match.reading.probe import natural_function
from pm_match.tables.domains import as_new_objects


@dataclass(frozen=True, eq=False)
class NewVectors:
    """Feature vectors (N, M) of new objects, NaN where missing."""

    values: NDArray[np.float64]

    def rows(self, wanted: slice) -> NewVectors:
        """Return the vectors of some of the objects."""
        return NewVectors(self.values[wanted])


class FeaturePredictor(Predictor):
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

    def __init__(self, model: Model, features: Features, clustering: Clustering):
        self.features = features
        self._assignments = [assignment.name for assignment in clustering.assignments]
        self._ends = clustering.ends
        self._alpha = natural_function(model, [features.precision]) if features.precision else None
        self._points = FeaturesPoints(model, features) if features.plain else None
        self._background = [Background(model, d) if d.flag else None for d in features.domains]

    def number_of(self, place: Place) -> int | None:
        """Return the number of an assignment's feature vectors, if it has any."""
        if place.clustering != self.features.clustering:
            return None
        names = [domain.assignment for domain in self.features.domains]
        return names.index(place.assignment.name) if place.assignment.name in names else None

    def observed(self, place: Place) -> list[str]:
        """Name of the observed variable of an assignment's objects, if it has one."""
        number = self.number_of(place)
        return [] if number is None else [self.features.domains[number].name]

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewVectors, list[tuple[str, NDArray]]]:
        """Check a table of new objects: columns with labels are matched by these."""
        ((name, table),) = given.items()
        n_features = self.domain_of(place).data.values.shape[1]
        columns = coords(model, name, 1)
        columns = np.arange(n_features) if columns is None else np.asarray(columns)
        found = as_new_objects(place.domain, _bare(table, columns), columns)
        return NewVectors(np.asarray(found.values)), [(name, found.objects)]

    def domain_of(self, place: Place) -> Projected:
        """Return the feature vectors of an assignment's objects."""
        number = self.number_of(place)
        assert number is not None
        return self.features.domains[number]

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring the clusters to a draw."""
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
            self._labels(labels),
            [scaled(marginal, alpha) for marginal in marginals],
            r * alpha,
            self.features.truncation,
        )
        self.backgrounds = [None if own is None else own(point) for own in self._background]

    def _labels(self, labels: Sequence[NDArray]) -> list[NDArray[np.int64]]:
        """Sort the labels of a clustering's objects by domains."""
        own = np.split(labels[self.features.clustering], self._ends)
        found = dict(zip(self._assignments, own, strict=True))
        return [found[domain.assignment] for domain in self.features.domains]

    def marginal_of(self, place: Place) -> Marginal:
        """Return how the vectors of an assignment's objects vary in the draw."""
        number = self.number_of(place)
        assert number is not None
        return self.clusters.marginals[number]

    def background_of(self, place: Place) -> Marginal | None:
        """Return how those of irrelevant objects do, if there may be any."""
        number = self.number_of(place)
        assert number is not None
        return self.backgrounds[number]

    def patterns(
        self, place: Place, seen: NewVectors
    ) -> list[tuple[NDArray, NDArray[np.bool_], Joined]]:
        """Let new objects join every cluster.

        Returns
        -------
        list of (rows, features, Joined)
            Objects of which the same features are observed.
        """
        marginal = self.marginal_of(place)
        known = ~np.isnan(seen.values)
        distinct, which = np.unique(known, axis=0, return_inverse=True)
        found = []
        for pattern, observed in enumerate(distinct):
            rows = np.flatnonzero(which.ravel() == pattern)
            own = restricted(marginal, observed)
            x = seen.values[np.ix_(rows, observed)]
            found.append((rows, observed, self.clusters.joined(own, x)))
        return found

    def by_row(self, log_joint: NDArray) -> NDArray[np.float64]:
        """Add up a log joint (N, T + 1) by rows of `Clusters` (N, J): empty clusters are alike."""
        row = self.clusters.row
        found = np.full((len(log_joint), row.max() + 1), -np.inf)
        for cluster, own in enumerate(row):
            found[:, own] = np.logaddexp(found[:, own], log_joint[:, cluster])
        return found

    def log_predictive(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Log predictive of the vectors, latent vectors integrated out."""
        background = self.background_of(place)
        # Without a density of their own, irrelevant objects are told by what else is seen of them.
        found = np.zeros((len(seen.values), self.features.truncation + 1))
        for rows, observed, joined in self.patterns(place, seen):
            found[rows, :-1] = joined.log_density()
            if background is not None:
                own = restricted(background, observed)
                residual = seen.values[np.ix_(rows, observed)] - own.intercept
                found[rows, -1] = log_noise(own, own.whiten(residual))
        return found


def feature_predictor(predictive: Predictive, place: Place) -> FeaturePredictor | None:
    """Return what predicts the feature vectors of an assignment's objects, if they have any."""
    for predictor in predictive.predictors:
        if isinstance(predictor, FeaturePredictor) and predictor.number_of(place) is not None:
            return predictor
    return None


def vectors_of(new: NewObjects) -> NewVectors | None:
    """Return the feature vectors that are seen of new objects, if any are."""
    return next((own for own in new.seen.values() if isinstance(own, NewVectors)), None)


def _bare(table: Any, columns: NDArray) -> Any:
    """Drop a table's column labels where the model has none but numbers, and the table names."""
    if isinstance(table, pd.DataFrame) and np.array_equal(columns, np.arange(len(columns))):
        whole = table.columns.dtype.kind in "iu"
        return table if whole else table.set_axis(range(table.shape[1]), axis=1)
    return table
