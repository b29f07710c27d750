"""PyMC step methods, thin: point in, kernel, point out."""

from pm_match.steps.cluster_gibbs import ClusterGibbs
from pm_match.steps.factor_gibbs import FactorGibbs
from pm_match.steps.frequency_metropolis import FrequencyMetropolis
from pm_match.steps.hinge_gibbs import HingeGibbs
from pm_match.steps.hyperparameter_gibbs import HyperparameterGibbs
from pm_match.steps.latent_hmc import LatentHMC
from pm_match.steps.marginal_gibbs import MarginalGibbs
from pm_match.steps.projection_gibbs import ProjectionGibbs
from pm_match.steps.projection_map import ProjectionMAP

__all__ = [
    "ClusterGibbs",
    "FactorGibbs",
    "FrequencyMetropolis",
    "HingeGibbs",
    "HyperparameterGibbs",
    "LatentHMC",
    "MarginalGibbs",
    "ProjectionGibbs",
    "ProjectionMAP",
]
