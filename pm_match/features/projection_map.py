"""MAP sub-steps on projections that have no prior: the M-step of the papers' stochastic EM."""

import sys
from typing import Any

from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import dataclass_state

from pm_match.checks import check_count
from pm_match.clusters.step import PartitionStep, PartitionStepState, statistics
from pm_match.features.feature_sums import Contributions, draw_shared
from pm_match.features.parts import Features, random_projection
from pm_match.features.points import FeaturesPoints
from pm_match.features.projection import ProjectionObjective
from pm_match.reading.parts import Structure

# The part of the warm-up in which projections only follow the assignments, gradually.
_GRADUAL = 0.8


@dataclass_state
class ProjectionMAPState(PartitionStepState):
    """What a chain changes in the step: how far its warm-up is."""

    n_gradual: int
    n_done: int


class ProjectionMAP(PartitionStep):
    """Climb the collapsed log joint in the projections, a few quasi-Newton iterations a step.

    The chain is then the papers' stochastic EM: exact draws of everything else, given projections
    that follow their maximum. Few iterations a step do better than many while the chain looks for
    its mode: an early, fully fitted projection locks the matching of the moment in. In the last
    fifth of the warm-up and afterwards the projections are fitted to the end. Latent vectors,
    precision and missing values, which the objective integrates out, are redrawn given the new
    projections, so that the point stays consistent.

    Parameters
    ----------
    vars : sequence of variables
        The projections, declared with `pm.Flat`.
    n_iterations : int, default 1
        Iterations of L-BFGS a step, in the gradual part of the warm-up (and always, if PyMC has not
        set the step up for a chain).
    n_final : int, default 20
        The most iterations of L-BFGS a step after that.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the projections are not flat, or the model is not one that the steps can serve.

    Notes
    -----
    This maximises: it is not a Markov chain Monte Carlo kernel, and the chain's law is not the
    posterior of the projections. Declare them with `pm.Normal` for that (see `FeatureGibbs`).

    Examples
    --------
    >>> domains = pmm.datasets.synthetic(60, 20, 3, 3, random_seed=3)
    >>> model = pmm.models.projected_clusters(domains, n_factors=3)
    >>> [step for step in pmm.steps(model) if isinstance(step, pmm.ProjectionMAP)]
    [ProjectionMAP(projection_a, projection_b)]
    """

    name = "projection_map"
    order = 30
    maximises = True
    record = Features
    stats_dtypes_shapes = statistics("projection_log_joint")
    _state_class = ProjectionMAPState

    def __init__(self, vars: Any, n_iterations: int = 1, n_final: int = 20, **kwargs: Any):
        for name, value in (("n_iterations", n_iterations), ("n_final", n_final)):
            check_count(f"ProjectionMAP: {name}", value)
        self.n_iterations = n_iterations
        self.n_final = n_final
        self.n_gradual = sys.maxsize
        self.n_done = 0
        super().__init__(vars, **kwargs)

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        # Without a warm-up there is no telling where the search ends.
        self.n_gradual = round(_GRADUAL * tune) if tune else sys.maxsize
        self.n_done = 0

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the projections that the step serves."""
        return [parameter.name for parameter in part.parameters if parameter.update == "flat"]

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        for features in structure.of(Features):
            if any(p is not None and p.name == name for p in features.projections):
                return "its prior is not pm.Flat"
        return super().why_not(structure, name)

    def _prepare(self) -> None:
        super()._prepare()
        self._points = FeaturesPoints(self.model, self.part)

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        features, points = self.part, self._points
        setting, sums = features.setting(point), features.sums(points.labels(point))
        objective = ProjectionObjective(
            sums,
            setting.emissions,
            setting.latent_precision,
            features.n_factors,
            setting.gamma,
        )
        if not self.started:
            self.started = True
            if not objective.w.any():
                # Zero is a saddle point, where the gradient vanishes.
                objective.w[:] = random_projection(self.rng, objective.w.shape)
        gradual = self.n_done < self.n_gradual
        reached = objective.maximise(self.n_iterations if gradual else self.n_final)
        self.n_done += 1
        new = dict(point)
        own = zip(features.projections, objective.projections(), strict=True)
        points.write_projections(new, {p: drawn for p, drawn in own if p is not None})
        setting = features.setting(new)
        drawn_from = Contributions(sums).of(setting.emissions), setting.latent_precision
        precision, factors = draw_shared(self.rng, sums, *drawn_from, setting.gamma)
        setting = setting.given(precision)
        points.write_factors(self.rng, new, precision, factors, setting)
        return new, [{"projection_log_joint": reached}]
