"""From draws to matchings.

A cluster's number means nothing from one draw to the next, so everything here is invariant to
how clusters are numbered. Only the DataTree is read, never the model.

An assignment is called by its own name, or its domain's: "a" says "cluster_a" (`full_name`).

Two conventions tell how assignments belong together:

- ``relevance_<name>`` beside ``cluster_<name>`` holds 1 for the objects that are in a cluster and
  0 for those that are irrelevant, whose recorded cluster means nothing.
- The attribute ``clusters`` of an assignment variable names the set that its clusters are of (its
  weights). Clusters of different sets, such as those of documents and those of words, are never
  the same. Variables without it form one set.
"""

from pm_match.matching.chains import best_chain, log_joint_rhat
from pm_match.matching.cluster_sizes import cluster_sizes
from pm_match.matching.cluster_spans import cluster_spans
from pm_match.matching.credible_ball import credible_ball
from pm_match.matching.decide import decide
from pm_match.matching.diagnose import diagnose
from pm_match.matching.diagnosis import Diagnosis
from pm_match.matching.draws import assignment_names, assignment_sets
from pm_match.matching.map_objects import map_objects
from pm_match.matching.match_probability import match_probability
from pm_match.matching.match_summary import MatchSummary, match_summary
from pm_match.matching.partition_estimate import partition_estimate
from pm_match.matching.partition_loss import partition_loss
from pm_match.matching.relabel import relabel
from pm_match.matching.relevance_probability import relevance_probability
from pm_match.matching.span_probability import span_probability
from pm_match.matching.unmatched_probability import unmatched_probability

__all__ = [
    "Diagnosis",
    "MatchSummary",
    "assignment_names",
    "assignment_sets",
    "best_chain",
    "cluster_sizes",
    "cluster_spans",
    "credible_ball",
    "decide",
    "diagnose",
    "log_joint_rhat",
    "map_objects",
    "match_probability",
    "match_summary",
    "partition_estimate",
    "partition_loss",
    "relabel",
    "relevance_probability",
    "span_probability",
    "unmatched_probability",
]
