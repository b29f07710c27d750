"""Independent columns as a kind of evidence."""

from collections.abc import Sequence

from pymc.model.core import Model

from pm_match.clusters.evidence import Site
from pm_match.columns.parts import Columns
from pm_match.columns.predictor import ColumnsPredictor
from pm_match.columns.recognise import ColumnsCandidate, columns_candidates, is_family, why_not
from pm_match.columns.sharded import ShardedColumns
from pm_match.columns.state import ColumnsPoints, ColumnsState
from pm_match.reading.ancestry import RV, Refusal
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Component


class IndependentColumns(Kind):
    """Columns of conjugate exponential families, whose parameters clusters choose."""

    name = "columns"

    def claims(self, context: Context, rv: RV) -> bool:
        """Whether the parameters of a variable are those of clusters, with a conjugate prior."""
        try:
            return why_not(context, rv) is None
        except Refusal:
            # Which is said when candidates are asked for.
            return True

    def why_not(self, context: Context, rv: RV) -> str | None:
        """Say why a variable of one of the families is not claimed."""
        return why_not(context, rv) if is_family(rv) else None

    def candidates(
        self, context: Context, clusterings: Sequence[ClusteringCandidate], values: Sequence[RV]
    ) -> list[ColumnsCandidate]:
        """Group the variables of every clustering by the parameters that they share."""
        return columns_candidates(context, clusterings, values)

    def access(self, evidence: Columns, model: Model) -> ColumnsPoints:
        """Make what reads and writes its variables in points."""
        return ColumnsPoints(model, evidence)

    def state(self, evidence: Columns, site: Site, access: ColumnsPoints) -> ColumnsState:
        """Make the state of the evidence for the units of a site."""
        return ColumnsState(evidence, site, access)

    def predictor(self, model: Model, evidence: Columns, state: ColumnsState) -> ColumnsPredictor:
        """Predict from the clusters' statistics."""
        return ColumnsPredictor(evidence, state)

    def sharded(self, model: Model, evidence: Columns, component: Component) -> ShardedColumns:
        """Draw from sums of the cells' statistics."""
        return ShardedColumns(model, evidence)
