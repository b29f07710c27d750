"""Normal clusters as a kind of evidence."""

from collections.abc import Sequence

from pymc.model.core import Model

from pm_match.clusters.evidence import Site
from pm_match.normal import search
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.normal.recognise import NormalsCandidate, mean_and_precision, normals_candidates
from pm_match.normal.state import NormalsState
from pm_match.reading.ancestry import RV
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class NormalClusters(Kind):
    """Vectors that are normal around means of their clusters, with a Wishart precision."""

    name = "normal"

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether a variable is normal around normal means that share its Wishart precision."""
        return mean_and_precision(context, rv) is not None

    def candidates(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
    ) -> list[NormalsCandidate]:
        """Group the variables of every clustering by the means that they vary around."""
        return [
            candidate
            for number, clustering in enumerate(clusterings)
            for candidate in normals_candidates(context, number, clustering, values)
        ]

    def access(self, evidence: Normals, model: Model) -> NormalsPoints:
        """Make what reads and writes its variables in points."""
        return NormalsPoints(model, evidence)

    def state(self, evidence: Normals, site: Site, access: NormalsPoints) -> NormalsState:
        """Make the state of the evidence for the units of a site."""
        return NormalsState(evidence, site, access)

    def search(self, component: Component):
        """Start at k-means of whitened views, and climb."""
        return search.search
