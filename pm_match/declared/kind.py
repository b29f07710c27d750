"""Any likelihood as a kind of evidence."""

from collections.abc import Sequence

from pymc.model.core import Model

from pm_match.clusters.evidence import Site
from pm_match.declared import search
from pm_match.declared.cluster_slice import ClusterSlice
from pm_match.declared.parts import Likelihoods
from pm_match.declared.predictor import LikelihoodPredictor
from pm_match.declared.recognise import LikelihoodCandidate, likelihood_candidates
from pm_match.declared.sharded import ShardedLikelihoods
from pm_match.declared.state import LikelihoodAccess, LikelihoodState
from pm_match.reading.ancestry import RV
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class AnyLikelihood(Kind):
    """Likelihoods of any kind, whose parameters are not integrated out."""

    name = "declared"
    last = True
    searches_all = True
    steps = (ClusterSlice,)

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether anybody does: it is asked last."""
        return True

    def candidates(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
    ) -> list[LikelihoodCandidate]:
        """Group what is left by clustering."""
        return likelihood_candidates(context, clusterings, values)

    def access(self, evidence: Likelihoods, model: Model) -> LikelihoodAccess:
        """Compile the table."""
        return LikelihoodAccess(model, evidence)

    def state(self, evidence: Likelihoods, site: Site, access: LikelihoodAccess) -> LikelihoodState:
        """Make the state of the evidence for the units of a site."""
        return LikelihoodState(evidence, site, access)

    def predictor(
        self, model: Model, evidence: Likelihoods, state: LikelihoodState
    ) -> LikelihoodPredictor:
        """Predict by the same table."""
        return LikelihoodPredictor(model, evidence)

    def sharded(
        self, model: Model, evidence: Likelihoods, component: Component
    ) -> ShardedLikelihoods:
        """Draw parameters by slices, a pass over the rows for each try."""
        return ShardedLikelihoods(model, evidence, component)

    def search(self, component: Component):
        """Climb labels and parameters in turn."""
        return search.search
