"""Linked views: what is no partition with evidence, or only in part."""

from pm_match.reading.context import Context
from pm_match.reading.kinds import Kind
from pm_match.reading.parts import Part
from pm_match.views.factors.factor_gibbs import FactorGibbs
from pm_match.views.factors.recognise import read_factor_models
from pm_match.views.hierarchy.hierarchy_gibbs import HierarchyGibbs
from pm_match.views.hierarchy.recognise import hierarchies
from pm_match.views.hinge.frequency_metropolis import FrequencyMetropolis
from pm_match.views.hinge.hinge_gibbs import HingeGibbs
from pm_match.views.hinge.labelled_latents import labelled_latents
from pm_match.views.hinge.latent_hmc import LatentHMC
from pm_match.views.hinge.recognise import hinge_models


class LinkedViews(Kind):
    """Factor models, hierarchies of clusters, and labels that views predict."""

    name = "views"
    steps = (FactorGibbs, LatentHMC, FrequencyMetropolis, HingeGibbs, HierarchyGibbs)

    def parts(self, context: Context) -> tuple[list[Part], dict[str, str]]:
        """Find them, and what hinges say of the latent vectors of factor models."""
        parts: list[Part] = []
        refusals: dict[str, str] = {}
        for reader in (hinge_models, hierarchies, read_factor_models):
            found, refused = reader(context)
            parts += found
            refusals |= refused
        latents, refused = labelled_latents(context, parts)
        return [*parts, *latents], refusals | refused
