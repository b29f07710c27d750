"""All that a kind of evidence outside the package is made of (see docs/extending.md).

A kind is a subclass of `Kind`, its record one of `Evidence`, its state one of `EvidenceState`; the
functions of its term are decorated with `implements`. What is not here may change without notice.
"""

from pm_match.clusters.evidence import EvidenceState, Site
from pm_match.clusters.points import Writer
from pm_match.clusters.protocol import (
    clear,
    implements,
    log_evidence,
    log_shared,
    move,
    relocate,
    score,
    tabulate,
)
from pm_match.clusters.step import PartitionStep
from pm_match.clusters.sweep import capacity
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.log_gamma import draw_log_gamma
from pm_match.prediction.mixture import Law
from pm_match.prediction.predictor import Holes, Place, Predictor
from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.clusterings import ClusteringCandidate
from pm_match.reading.context import Context
from pm_match.reading.densities import DensityCheck, common
from pm_match.reading.evidence import Evidence, Point
from pm_match.reading.kinds import Kind, register_kind

__all__ = [
    "RV",
    "ClusteringCandidate",
    "Context",
    "DensityCheck",
    "Evidence",
    "EvidenceState",
    "Holes",
    "Kind",
    "Law",
    "PartitionStep",
    "Place",
    "Point",
    "Predictor",
    "Refusal",
    "Site",
    "Writer",
    "capacity",
    "clear",
    "common",
    "draw_log_gamma",
    "entry",
    "implements",
    "log_evidence",
    "log_shared",
    "move",
    "names",
    "part",
    "register_kind",
    "relocate",
    "score",
    "tabulate",
]
