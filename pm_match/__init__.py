"""Match clusters across data sets that share no keys: a posterior over matchings, on PyMC."""

from pm_match.numerics.garbage import uncollected

# What is imported stays: to look through it for garbage takes a sixth of the time.
with uncollected(lasting=True):
    # Its import looks through all modules; early, they are few. PyMC imports it late.
    import arviz_base  # noqa: F401

    from pm_match import datasets, metrics, models, plots
    from pm_match.choose_power import choose_power
    from pm_match.clusters.cluster_gibbs import ClusterGibbs
    from pm_match.clusters.hyperparameter_gibbs import HyperparameterGibbs
    from pm_match.columns.kind import IndependentColumns
    from pm_match.compare_matchings import compare_matchings
    from pm_match.declared.cluster_slice import ClusterSlice
    from pm_match.declared.kind import AnyLikelihood
    from pm_match.declared.weights_gibbs import WeightsGibbs
    from pm_match.features.choose_n_factors import choose_n_factors
    from pm_match.features.feature_gibbs import FeatureGibbs
    from pm_match.features.kind import FeatureVectors
    from pm_match.features.projection_map import ProjectionMAP
    from pm_match.features.semi_orthogonal import semi_orthogonal
    from pm_match.features.translate import translate
    from pm_match.find_matching import find_matching
    from pm_match.fit_em import fit_em
    from pm_match.front.match import match
    from pm_match.front.prepare import choose_model, prepare
    from pm_match.front.prepared import PreparedData
    from pm_match.front.result import MatchResult
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
    from pm_match.networks import BlockNetwork
    from pm_match.networks.kind import Networks
    from pm_match.normal.alignment_gibbs import AlignmentGibbs
    from pm_match.normal.kind import NormalClusters
    from pm_match.normal.missing_value_gibbs import MissingValueGibbs
    from pm_match.normal.precision_factor_gibbs import PrecisionFactorGibbs
    from pm_match.normal.scale_matrix_gibbs import ScaleMatrixGibbs
    from pm_match.prediction.assign import assign
    from pm_match.prediction.impute import impute
    from pm_match.prediction.log_predictive import log_predictive
    from pm_match.reading.coarsen import coarsen
    from pm_match.reading.evidence import Evidence
    from pm_match.reading.kinds import Kind, register_kind
    from pm_match.reading.links import cannot_link, must_link
    from pm_match.reading.parts import UnservedModelError
    from pm_match.reading.show import show
    from pm_match.report.html_report import report
    from pm_match.results import invariants
    from pm_match.sampling import resume, sample
    from pm_match.serving import steps
    from pm_match.sharded.sample_sharded import sample_sharded
    from pm_match.starts import initial_points
    from pm_match.tables.standardise import principal_components, standardise
    from pm_match.views.factors.factor_gibbs import FactorGibbs
    from pm_match.views.hierarchy.hierarchy_gibbs import HierarchyGibbs
    from pm_match.views.hinge import Hinge, fourier_features
    from pm_match.views.hinge.frequency_metropolis import FrequencyMetropolis
    from pm_match.views.hinge.hinge_gibbs import HingeGibbs
    from pm_match.views.hinge.latent_hmc import LatentHMC
    from pm_match.views.hinge.predict import predict
    from pm_match.views.kind import LinkedViews

standardize = standardise  # in American spelling

__version__ = "0.1.0"

__all__ = [
    "AlignmentGibbs",
    "BlockNetwork",
    "ClusterGibbs",
    "ClusterSlice",
    "Evidence",
    "FactorGibbs",
    "FeatureGibbs",
    "FrequencyMetropolis",
    "HierarchyGibbs",
    "Hinge",
    "HingeGibbs",
    "HyperparameterGibbs",
    "Kind",
    "LatentHMC",
    "MatchResult",
    "MissingValueGibbs",
    "PrecisionFactorGibbs",
    "PreparedData",
    "ProjectionMAP",
    "ScaleMatrixGibbs",
    "UnservedModelError",
    "WeightsGibbs",
    "assign",
    "best_chain",
    "cannot_link",
    "choose_model",
    "choose_n_factors",
    "choose_power",
    "cluster_sizes",
    "cluster_spans",
    "coarsen",
    "compare_matchings",
    "credible_ball",
    "datasets",
    "decide",
    "diagnose",
    "find_matching",
    "fit_em",
    "fourier_features",
    "impute",
    "initial_points",
    "invariants",
    "log_predictive",
    "map_objects",
    "match",
    "match_probability",
    "match_summary",
    "metrics",
    "models",
    "must_link",
    "partition_estimate",
    "partition_loss",
    "plots",
    "predict",
    "prepare",
    "principal_components",
    "register_kind",
    "relabel",
    "relevance_probability",
    "report",
    "resume",
    "sample",
    "sample_sharded",
    "semi_orthogonal",
    "show",
    "span_probability",
    "standardise",
    "steps",
    "translate",
    "unmatched_probability",
]


def __dir__() -> list[str]:
    """List what is for users."""
    return [*__all__, "__version__"]


# The kind that was registered last is asked first; but `AnyLikelihood` after all others.
for _kind in (
    AnyLikelihood(),
    FeatureVectors(),
    Networks(),
    NormalClusters(),
    IndependentColumns(),
    LinkedViews(),
):
    register_kind(_kind)
