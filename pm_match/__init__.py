"""Match clusters across data sets that share no keys: a posterior over matchings, on PyMC."""

from pm_match import datasets, metrics, models, plots
from pm_match.block_network import BlockNetwork
from pm_match.choose_n_factors import choose_n_factors
from pm_match.hinge import Hinge, fourier_features
from pm_match.html_report import report
from pm_match.links import must_link
from pm_match.matching import (
    best_chain,
    cluster_sizes,
    cluster_spans,
    credible_ball,
    decide,
    diagnose,
    map_objects,
    match_probability,
    match_summary,
    partition_estimate,
    partition_loss,
    relabel,
    relevance_probability,
    span_probability,
    unmatched_probability,
)
from pm_match.prediction import assign, carry, impute, predict
from pm_match.sampling import initial_points, invariants, register, sample, steps
from pm_match.search.find_matching import find_matching
from pm_match.semi_orthogonal import semi_orthogonal
from pm_match.standardise import standardise
from pm_match.steps import (
    ClusterGibbs,
    FactorGibbs,
    FrequencyMetropolis,
    HingeGibbs,
    HyperparameterGibbs,
    LatentHMC,
    MarginalGibbs,
    ProjectionGibbs,
    ProjectionMAP,
)
from pm_match.structure import UnservedModelError

__version__ = "0.1.0"

__all__ = [
    "BlockNetwork",
    "ClusterGibbs",
    "FactorGibbs",
    "FrequencyMetropolis",
    "Hinge",
    "HingeGibbs",
    "HyperparameterGibbs",
    "LatentHMC",
    "MarginalGibbs",
    "ProjectionGibbs",
    "ProjectionMAP",
    "UnservedModelError",
    "assign",
    "best_chain",
    "carry",
    "choose_n_factors",
    "cluster_sizes",
    "cluster_spans",
    "credible_ball",
    "datasets",
    "decide",
    "diagnose",
    "find_matching",
    "fourier_features",
    "impute",
    "initial_points",
    "invariants",
    "map_objects",
    "match_probability",
    "match_summary",
    "metrics",
    "models",
    "must_link",
    "partition_estimate",
    "partition_loss",
    "plots",
    "predict",
    "relabel",
    "relevance_probability",
    "report",
    "sample",
    "semi_orthogonal",
    "span_probability",
    "standardise",
    "steps",
    "unmatched_probability",
]

register()
