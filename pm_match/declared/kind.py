"""Any likelihood as a kind of evidence."""

from typing import Any

from pymc.model.core import Model

from pm_match.clusters.evidence import Site
from pm_match.declared import search
from pm_match.declared.cluster_slice import ClusterSlice
from pm_match.declared.pair_state import PairAccess, PairState
from pm_match.declared.parts import Likelihoods, PairLikelihoods
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

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether anybody does: it is asked last."""
        return True

    def access(self, evidence: Any, model: Model) -> LikelihoodAccess | PairAccess:
        """Compile the table."""
        own = PairAccess if isinstance(evidence, PairLikelihoods) else LikelihoodAccess
        return own(model, evidence)

    def state(self, evidence: Any, site: Site, access: Any) -> LikelihoodState | PairState:
        """Make a table."""
        own = PairState if isinstance(evidence, PairLikelihoods) else LikelihoodState
        return own(evidence, site, access)

    def predictor(self, model: Model, evidence: Any, state: Any) -> LikelihoodPredictor | None:
        """Predict objects with labels of their own alone."""
        served = isinstance(evidence, Likelihoods)
        return LikelihoodPredictor(model, evidence, state) if served else None

    def sharded(self, model: Model, evidence: Any, component: Component):
        """Serve objects with labels of their own alone."""
        served = isinstance(evidence, Likelihoods)
        return ShardedLikelihoods(model, evidence, component) if served else None

    def search(self, component: Component):
        """Climb labels and parameters in turn."""
        return search.search
