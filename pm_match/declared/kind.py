"""Any likelihood as a kind of evidence."""

from pymc.model.core import Model

from pm_match.declared import search
from pm_match.declared.cluster_slice import ClusterSlice
from pm_match.declared.parts import Likelihoods
from pm_match.declared.predictor import LikelihoodPredictor
from pm_match.declared.recognise import likelihood_candidates
from pm_match.declared.sharded import ShardedLikelihoods
from pm_match.declared.state import LikelihoodAccess, LikelihoodState
from pm_match.declared.weights_gibbs import WeightsGibbs
from pm_match.reading.ancestry import RV
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class AnyLikelihood(Kind):
    """Likelihoods of any kind, whose parameters are not integrated out."""

    name = "declared"
    last = True
    searches_all = True
    steps = (WeightsGibbs, ClusterSlice)
    candidates = staticmethod(likelihood_candidates)
    state = LikelihoodState
    predictor = LikelihoodPredictor
    sharded = ShardedLikelihoods

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether anybody does: it is asked last."""
        return True

    def access(self, evidence: Likelihoods, model: Model) -> LikelihoodAccess:
        """Compile the table."""
        return LikelihoodAccess(model, evidence)

    def search(self, component: Component):
        """Climb labels and parameters in turn."""
        return search.search
