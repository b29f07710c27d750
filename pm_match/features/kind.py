"""Feature vectors as a kind of evidence."""

from collections.abc import Sequence

from pymc.model.core import Model

from pm_match.features.feature_gibbs import FeatureGibbs
from pm_match.features.parts import Features
from pm_match.features.points import FeaturesPoints
from pm_match.features.predictor import FeaturePredictor
from pm_match.features.projection_map import ProjectionMAP
from pm_match.features.recognise import (
    FeaturesCandidate,
    feature_flags,
    features_candidate,
    is_normal,
    noise_assignments,
)
from pm_match.features.search import plain, tables
from pm_match.features.sharded import ShardedFeatures
from pm_match.features.state import FeatureState
from pm_match.reading.ancestry import RV, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class FeatureVectors(Kind):
    """Feature vectors that are normal around the latent vectors of their clusters."""

    name = "features"
    potentials = True
    searches_known = True
    steps = (ProjectionMAP, FeatureGibbs)
    relevance = staticmethod(feature_flags)
    state = FeatureState
    predictor = FeaturePredictor
    sharded = ShardedFeatures

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether a variable is normal, with the same noise in all clusters."""
        return is_normal(rv) and self.why_not(context, rv) is None

    def why_not(self, context: Context, rv: RV) -> str | None:
        """Say whose noise depends on the cluster."""
        own = noise_assignments(context, rv) if is_normal(rv) else []
        return f"the noise of {rv.name!r} depends on {names(own)}" if own else None

    def candidates(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
    ) -> list[FeaturesCandidate]:
        """Find the feature vectors of every clustering that has any."""
        found = [
            features_candidate(context, number, clustering, values)
            for number, clustering in enumerate(clusterings)
        ]
        return [candidate for candidate in found if candidate is not None]

    def access(self, evidence: Features, model: Model) -> FeaturesPoints:
        """Make what reads and writes its variables in points."""
        return FeaturesPoints(model, evidence)

    def search(self, component: Component):
        """Match the domains' clusters, with projections fitted or drawn."""
        if all(features.only_projections for features in component.of(Features)):
            named = any(clustering.named for clustering in component.clusterings)
            return None if named else plain.search
        return tables.search
