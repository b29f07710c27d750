"""Independent columns as a kind of evidence."""

from pymc.model.core import Model

from pm_match.columns.parts import Columns
from pm_match.columns.predictor import ColumnsPredictor
from pm_match.columns.recognise import columns_candidates, is_family, why_not
from pm_match.columns.sharded import ShardedColumns
from pm_match.columns.state import ColumnsPoints, ColumnsState
from pm_match.reading.ancestry import RV, Refusal
from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind


class IndependentColumns(Kind):
    """Columns of conjugate exponential families, whose parameters clusters choose."""

    name = "columns"
    potentials = True
    candidates = staticmethod(columns_candidates)
    state = ColumnsState
    predictor = ColumnsPredictor
    sharded = ShardedColumns

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

    def access(self, evidence: Columns, model: Model) -> ColumnsPoints:
        """Make what reads and writes its variables in points."""
        return ColumnsPoints(model, evidence)
