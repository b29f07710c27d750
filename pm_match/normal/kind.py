"""Normal clusters as a kind of evidence."""

from collections.abc import Sequence

from pymc.model.core import Model

from pm_match.normal import search, search_aligned
from pm_match.normal.alignment_gibbs import AlignmentGibbs
from pm_match.normal.missing_value_gibbs import MissingValueGibbs
from pm_match.normal.parts import Normals
from pm_match.normal.points import NormalsPoints
from pm_match.normal.precision_factor_gibbs import PrecisionFactorGibbs
from pm_match.normal.predictor import NormalsPredictor
from pm_match.normal.recognise import (
    NormalsCandidate,
    mean_and_precision,
    normals_candidates,
)
from pm_match.normal.scale_matrix_gibbs import ScaleMatrixGibbs
from pm_match.normal.sharded import ShardedNormals
from pm_match.normal.state import NormalsState
from pm_match.reading.ancestry import RV
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class NormalClusters(Kind):
    """Vectors that are normal around means of their clusters, with a Wishart precision."""

    name = "normal"
    potentials = True
    searches_known = True
    steps = (AlignmentGibbs, ScaleMatrixGibbs, PrecisionFactorGibbs, MissingValueGibbs)
    state = NormalsState
    sharded = ShardedNormals

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

    def predictor(
        self, model: Model, evidence: Normals, state: NormalsState
    ) -> NormalsPredictor | None:
        """Predict from the clusters of the draws, if no vector is a free variable."""
        return NormalsPredictor(model, evidence, state) if evidence.searchable else None

    def search(self, component: Component):
        """Start at k-means of whitened views, or of domains that are aligned, and climb."""
        aligned = [own.aligned for own in component.of(Normals)]
        return search_aligned.search if len(aligned) == 1 and aligned[0] else search.search
