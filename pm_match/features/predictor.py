"""What feature vectors say of new objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.features.emission import Emission
from pm_match.features.parts import Background, FeatureDomain, Features
from pm_match.features.points import FeaturesPoints
from pm_match.features.predictive import Clusters, Joined
from pm_match.features.state import FeatureState
from pm_match.features.values import Outlook, entries, normals
from pm_match.numerics.masked import MaskedTable
from pm_match.prediction.mixture import NormalLaw
from pm_match.prediction.predictive import Predictive
from pm_match.prediction.predictor import (
    Holes,
    NewVectors,
    Place,
    Predictor,
    coords,
)
from pm_match.tables.domains import as_new_objects


class FeaturePredictor(Predictor):
    """The features of a clustering at a draw."""

    clusters: Clusters
    # of the irrelevant objects of each domain that may have any
    backgrounds: list[Background | None]

    def __init__(self, model: Model, features: Features, state: FeatureState):
        self.features = features
        slices = state.site.clusterings[features.clustering].slices
        self._slices = [slices[domain.assignment] for domain in features.domains]
        self._points = FeaturesPoints(model, features)
        self._number = {domain.assignment: n for n, domain in enumerate(features.domains)}

    def covers(self, place: Place) -> bool:
        """Whether an assignment's objects have feature vectors."""
        return place.assignment.name in self._number

    def observed(self, place: Place) -> list[str]:
        """Name of the observed variable of an assignment's objects, if it has one."""
        return [self.domain_of(place).name] if self.covers(place) else []

    def read(
        self, model: Model, place: Place, given: Mapping[str, Any]
    ) -> tuple[NewVectors, list[tuple[str, NDArray]]]:
        """Check a table of new objects: columns with labels are matched by these."""
        ((name, table),) = given.items()
        n_features = self.domain_of(place).n_features
        columns = coords(model, name, 1)
        columns = np.arange(n_features) if columns is None else np.asarray(columns)
        found = as_new_objects(place.domain, _bare(table, columns), columns)
        return NewVectors(np.asarray(found.values)), [(name, found.objects)]

    def domain_of(self, place: Place) -> FeatureDomain:
        """Return the feature vectors of an assignment's objects."""
        return self.features.domains[self._number[place.assignment.name]]

    def deviations(self, place: Place, seen: NewVectors) -> NDArray[np.float64]:
        """Say how many standard deviations new features are from the known objects' means."""
        data = self.domain_of(place).data
        known = np.ma.masked_array(data.values, False if data.observed is None else ~data.observed)
        mean, spread = known.mean(axis=0).filled(np.nan), known.std(axis=0).filled(np.nan)
        return np.abs(seen.values - mean) / spread

    def load(self, point: Mapping[str, NDArray], labels: Sequence[NDArray]) -> None:
        """Bring the clusters to a draw."""
        features = self.features
        setting = features.setting(point).given(self._points.precision(point))
        self._labels = labels[features.clustering]
        self.clusters = Clusters.of(
            features.domains,
            [self._labels[where] for where in self._slices],
            setting.emissions,
            setting.latent_precision,
            features.truncation,
        )
        numbers = range(len(features.domains))
        self.backgrounds = [features.background(number, point) for number in numbers]

    def emission_of(self, place: Place) -> Emission:
        """Return how the vectors of an assignment's objects vary in the draw."""
        return self.clusters.emissions[self._number[place.assignment.name]]

    def irrelevant(self, place: Place) -> Background | None:
        """Return how those of irrelevant objects do, if there may be any."""
        return self.backgrounds[self._number[place.assignment.name]]

    def background_of(self, place: Place) -> Emission | None:
        """Return how those of new irrelevant objects do, if there may be any."""
        own = self.irrelevant(place)
        return None if own is None else own.emission()

    def patterns(
        self, place: Place, seen: NewVectors
    ) -> list[tuple[NDArray, NDArray[np.bool_], Joined]]:
        """Let new objects join every cluster.

        Return a list of (rows, features, Joined): objects of which the same features are observed.
        """
        emission = self.emission_of(place)
        found = []
        for rows, hidden in seen.patterns:
            own = emission.restricted(~hidden)
            x = seen.values[np.ix_(rows, ~hidden)]
            found.append((rows, ~hidden, Joined(self.clusters, own, x)))
        return found

    def by_row(self, log_joint: NDArray) -> NDArray[np.float64]:
        """Add up a log joint (N, T + 1) by rows of `Clusters` (N, J): empty clusters are alike."""
        # There is a row for empty clusters even if there are none.
        found = np.full((len(log_joint), len(self.clusters.linear)), -np.inf)
        for cluster, own in enumerate(self.clusters.row):
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
                x = MaskedTable(seen.values[np.ix_(rows, observed)])
                found[rows, -1] = background.restricted(observed).log_noise(x)
        return found

    def holes(self, place: Place, seen: NewVectors | None = None) -> list[Holes]:
        """Give the missing values of an assignment's feature vectors, or of new ones."""
        if not self.covers(place):
            return []
        domain = self.domain_of(place)
        values = domain.data.filled(np.nan) if seen is None else seen.values
        holed = np.isnan(values).any()
        return [Holes(place.domain, domain.name, values, NormalLaw.of)] if holed else []

    def of_missing(self, rng, place, holes, wanted):
        """Return means and standard deviations, factors integrated out."""
        data, clusters = self.domain_of(place).data, self.clusters
        row, column = (part[wanted] for part in data.holes)
        labels = self._labels[place.first :][: place.assignment.n_objects]
        emission, factors = self.emission_of(place), clusters.factors()
        mean, sd = entries(emission, data, *factors, clusters.row[labels], row, column)
        background = self.irrelevant(place)
        if background is not None:
            # Irrelevant objects vary around means of their own, and in no cluster.
            left = background.residuals(data)
            own = Emission.of_noise(background.root)
            nobody = np.zeros(len(labels), np.int64)
            alone = entries(own, left, np.zeros((1, 0)), np.zeros((1, 0, 0)), nobody, row, column)
            irrelevant = labels[row] < 0
            mean = np.where(irrelevant, alone[0] + background.mean[row, column], mean)
            sd = np.where(irrelevant, alone[1], sd)
        return normals(mean, sd)

    def of_new(self, rng, place, seen, holes, log_weight):
        """Return means and standard deviations, factors integrated out, by what is missing."""
        by_row = self.by_row(log_weight)
        background = self.background_of(place)
        for rows, known, joined in self.patterns(place, seen):
            if known.all():
                continue
            x = seen.values[np.ix_(rows, known)]
            outlook = Outlook.unseen(self.emission_of(place), known, x)
            factors, root = joined.factors()
            mean, sd = outlook.means(factors), outlook.deviations(root)
            weight = by_row[rows]
            if background is not None:
                own = Outlook.unseen(background, known, x)
                mean = np.concatenate([mean, own.base], axis=1)
                sd = np.concatenate([sd, np.sqrt(own.variance)[None]])
                weight = np.column_stack([weight, log_weight[rows, -1]])
            yield rows, ~known, weight, normals(mean, sd)


def feature_predictor(predictive: Predictive, place: Place) -> FeaturePredictor | None:
    """Return what predicts the feature vectors of an assignment's objects, if they have any."""
    for predictor in predictive.predictors:
        if isinstance(predictor, FeaturePredictor) and predictor.covers(place):
            return predictor
    return None


def _bare(table: Any, columns: NDArray) -> Any:
    """Drop a table's column labels where the model has none but numbers, and the table names."""
    if isinstance(table, pd.DataFrame) and np.array_equal(columns, np.arange(len(columns))):
        whole = table.columns.dtype.kind in "iu"
        return table if whole else table.set_axis(range(table.shape[1]), axis=1)
    return table
