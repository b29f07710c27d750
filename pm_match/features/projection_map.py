"""MAP sub-steps on projections that have no prior: the M-step of the papers' stochastic EM."""

import sys
from typing import Any, ClassVar

import numpy as np
from pymc.blocking import PointType, StatsType
from pymc.step_methods.state import dataclass_state

from pm_match.clusters.step import PartitionStep, PartitionStepState
from pm_match.features.parts import Features, random_projection
from pm_match.features.points import FeaturesPoints
from pm_match.features.projection import ClusterSums, ProjectionObjective
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
    posterior of the projections. Declare them with `pm.Normal` for that (see `ProjectionGibbs`).
    """

    name = "projection_map"
    order = 30
    maximises = True
    stats_dtypes_shapes: ClassVar[dict[str, Any]] = {"projection_log_joint": (np.float64, [])}

    _state_class = ProjectionMAPState

    def __init__(self, vars, n_iterations: int = 1, n_final: int = 20, **kwargs):
        for name, value in (("n_iterations", n_iterations), ("n_final", n_final)):
            if value < 1:
                raise ValueError(f"ProjectionMAP: {name} must be at least 1, found {value}.")
        self.n_iterations = n_iterations
        self.n_final = n_final
        self.n_gradual = sys.maxsize
        self.n_done = 0
        super().__init__(vars, **kwargs)

    def settings(self):
        """Return the arguments of the constructor."""
        return {"n_iterations": self.n_iterations, "n_final": self.n_final}

    def setup_chain(self, rng, tune: int, draws: int) -> None:
        """Start a chain."""
        super().setup_chain(rng, tune, draws)
        # Without a warm-up there is no telling where the search ends.
        self.n_gradual = round(_GRADUAL * tune) if tune else sys.maxsize
        self.n_done = 0

    @classmethod
    def parts(cls, structure: Structure) -> list[Features]:
        """Return the feature vectors of a model."""
        return structure.of(Features)

    @classmethod
    def served(cls, part: Features) -> list[str]:
        """Names of the projections that the step serves."""
        # All projections of shared latent vectors are climbed together, or none.
        if any(domain.update != "map" for domain in part.domains):
            return []
        return [domain.projection for domain in part.domains]

    def _prepare(self) -> None:
        super()._prepare()
        self._points = FeaturesPoints(self.model, self.part)

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        return why_not(structure, name, "map", "pm.Flat")

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        # SciPy's optimisers are slow to import: not before they are needed.
        from scipy.optimize import minimize

        features, points = self.part, self._points
        hyper = features.hyper(point)
        labels = points.labels(point)
        data = [domain.data for domain in features.domains]
        clusters = ClusterSums.of(data, labels, features.truncation)
        n_values = sum(domain.n_values for domain in data)
        squares = sum(domain.sum_of_squares for domain in data)
        objective = ProjectionObjective(
            clusters,
            hyper.shape + 0.5 * n_values,
            hyper.rate + 0.5 * squares,
            hyper.latent_precision,
            features.n_factors,
        )
        projections = points.projections(point)
        start = np.concatenate(projections)
        if not self.started:
            self.started = True
            if not start.any():
                # Zero is a saddle point, where the gradient vanishes.
                start = random_projection(self.rng, start.shape)
        n_iterations = self.n_iterations if self.n_done < self.n_gradual else self.n_final
        found = minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": n_iterations},
        )
        self.n_done += 1
        w = found.x.reshape(start.shape)
        projections = np.split(w, np.cumsum([len(w) for w in projections])[:-1])
        new = dict(point)
        points.write_projections(new, projections)
        alpha, latent = objective.draw(self.rng, w)
        points.write_latent(new, alpha, latent)
        points.write_missing(self.rng, new, labels, projections, alpha, latent)
        return new, [{"projection_log_joint": -float(found.fun)}]


def why_not(structure: Structure, name: str, update: str, prior: str) -> str:
    """Say why a projection's step does not serve the variable `name`."""
    for features in structure.of(Features):
        for domain in features.domains:
            if domain.projection == name and domain.update != update:
                return domain.why_not or f"its prior is not {prior}"
            if domain.update != update and any(d.projection == name for d in features.domains):
                return f"{domain.projection!r} of the same partition: " + (
                    domain.why_not or f"its prior is not {prior}"
                )
    return structure.explain() if structure.refusals else "it is not a projection of the model"
