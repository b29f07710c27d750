"""Networks as a kind of evidence."""

from collections.abc import Sequence
from typing import Any

from pymc.model.core import Model

from pm_match.clusters.points import Writer
from pm_match.networks import search
from pm_match.networks.parts import Relation
from pm_match.networks.plain import read_network
from pm_match.networks.predictor import RelationPredictor
from pm_match.networks.recognise import RelationCandidate, relation_candidates, relevance_of
from pm_match.networks.sharded import ShardedRelation
from pm_match.networks.state import RelationState
from pm_match.reading.ancestry import RV
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class Networks(Kind):
    """Networks whose objects are in clusters: `BlockNetwork`, or indexed densities."""

    name = "networks"
    state = RelationState
    predictor = RelationPredictor
    sharded = ShardedRelation

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether a variable is a network, or holds the missing cells of one."""
        own = rv in context.model.observed_RVs or context.is_missing(rv)
        return own and read_network(context, rv) is not None

    def relevance(self, context: Context, values: Sequence[RV]) -> dict[RV, RV]:
        """Find the flags that networks were declared with."""
        return relevance_of(_parts(context, values))

    def ties(self, context: Context, rv: RV) -> set[RV]:
        """Give the densities and the noise: what shares them is drawn together."""
        parts = _parts(context, [rv])[rv]
        return {*parts.density, *parts.noise}

    def axes(self, context: Context, rv: RV, assignment: RV) -> set[Any]:
        """Say which axes of which densities the labels of an assignment number."""
        parts = _parts(context, [rv])[rv]
        return {
            (parts.density, 0 if parts.one_mode else axis)
            for axis, own in enumerate(parts.axes)
            if own is assignment
        }

    def candidates(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
    ) -> list[RelationCandidate]:
        """Group the networks by the densities that they share."""
        return relation_candidates(context, clusterings, _parts(context, values))

    def access(self, evidence: Relation, model: Model) -> Writer:
        """Make what reads and writes its variables in points."""
        return Writer(model, evidence.names)

    def search(self, component: Component):
        """Cluster each network alone, and align them."""
        return search.search


def _parts(context: Context, values: Sequence[RV]) -> dict[RV, Any]:
    return {rv: read_network(context, rv) for rv in values}
