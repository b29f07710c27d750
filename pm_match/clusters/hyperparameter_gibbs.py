"""Hyperparameters under the collapsed joint: concentrations, and parameters of conjugate priors."""

from collections.abc import Callable, Iterator

import numpy as np
import scipy
from pymc.blocking import PointType, StatsType

from pm_match.clusters.collapsed import Collapsed
from pm_match.clusters.relevance import log_flags
from pm_match.clusters.step import PartitionStep
from pm_match.numerics.slices import draw_slice
from pm_match.numerics.stick_breaking import log_prior
from pm_match.reading.ancestry import Ancestry
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component, Structure
from pm_match.reading.priors import Conditions, log_density_function

# How far a climb looks at a time, and how closely: where a log density is flat to 1e-5 or so.
_FAR = 3.0
_CLOSE = 0.003


class HyperparameterGibbs(PartitionStep):
    r"""Draw hyperparameters with all that their priors are of integrated out.

    For each number in turn, slice sampling (Neal 2003), on the scale that PyMC samples, from

    .. math:: p(h \mid X, Z, R, \ldots) \propto p(h)\, p(X, Z, R \mid h, \ldots)

    (Iwata & Ishiguro, eq. 15) with weights, densities, noise and probabilities of being relevant
    integrated out; these are then drawn anew, given the new hyperparameters, so that the step
    leaves the declared posterior alone whatever comes before or after it.

    Parameters
    ----------
    vars : sequence of variables
        Free numbers, or short vectors, with priors of any kind, on which nothing depends but the
        priors of weights, densities, noise and probabilities of being relevant.
    model : pymc.Model, optional
        Default: the model of the context.
    rng : optional
        Seed or generator; PyMC hands every chain its own.

    Raises
    ------
    UnservedModelError
        If the variables are not hyperparameters of a model that the steps can serve.

    Examples
    --------
    >>> counts = np.array([[3, 0], [2, 1], [0, 9], [1, 8]])
    >>> with pm.Model() as model:
    ...     weights = pm.StickBreakingWeights("weights", alpha=1.0, K=4)
    ...     cluster = pm.Categorical("cluster", weights, shape=4)
    ...     shape = pm.Exponential("shape", 1.0)
    ...     rate = pm.Gamma("rate", shape, 0.5, shape=(5, 2))
    ...     counted = pm.Poisson("counts", rate[cluster], observed=counts)
    ...
    >>> [type(step).__name__ for step in pmm.steps(model)]
    ['HyperparameterGibbs', 'ClusterGibbs']
    """

    name = "hyperparameter_gibbs"
    order = 40
    one_by_one = True

    @classmethod
    def served(cls, part: Component) -> list[str]:
        """Names of the hyperparameters of a component."""
        return list(part.hyperparameters)

    @classmethod
    def writes(cls, structure: Structure, part: Component) -> list[str]:
        """Names of what it integrates out, and then draws."""
        return part.collapsed

    @classmethod
    def why_not(cls, structure: Structure, name: str) -> str:
        """Say why the step does not serve the variable `name`."""
        if structure.refusals:
            return structure.explain()
        served = [h for component in structure.components for h in cls.served(component)]
        return (
            "it is not a free number that only the priors of weights, densities, noise and "
            f"probabilities of being relevant depend on (here: {', '.join(served) or 'none'})"
        )

    def _together(self, wanted: list[str]) -> list[str]:
        """Each hyperparameter can be drawn on its own: others may have other steps."""
        return wanted

    def _prepare(self) -> None:
        super()._prepare()
        component, model = self.part, self.model
        self._collapsed = Collapsed.of(model, component)
        self._names = [model.values_to_rvs[value].name for value in self.vars]
        self._value_names = {name: model.rvs_to_values[model[name]].name for name in self._names}
        self._log_prior = {name: log_density_function(model, name) for name in self._names}
        ancestry = Ancestry(model)
        children = {name: ancestry.children(model[name]) for name in self._names}
        self._conditions = {name: Conditions(model, own) for name, own in children.items()}
        self._touched = {
            name: self._touched_by({rv.name for rv in own}) for name, own in children.items()
        }

    def _touched_by(self, children: set[str]) -> tuple[list[int], list[int], list[int]]:
        """Return where a hyperparameter enters that some variables depend on.

        These are the clusterings by their weights, those by their relevance, and the evidence.
        """
        component = self.part
        numbered = list(enumerate(component.clusterings))
        clusterings = [number for number, c in numbered if c.weights in children]
        flags = [number for number, c in numbered if children & {*c.probabilities}]
        evidence = [
            n for n, own in enumerate(component.evidence) if children & set(own.hyperpriors)
        ]
        return clusterings, flags, evidence

    def step(self, point: PointType) -> tuple[PointType, StatsType]:
        """Perform one update of a point; the point given is left as it is."""
        collapsed = self._collapsed
        collapsed.load(point, collapsed.labels(point), everything=False)
        new = dict(point)
        for name in self._names:
            self._draw(name, new)
        collapsed.load_priors(new)
        collapsed.draw(self.rng, new, new, everything=False)
        return new, [{}]

    def log_prior(self, point: Point) -> float:
        """Log density of the hyperparameters, on the scale that is sampled."""
        return sum(self._log_prior[name](point) for name in self._names)

    def maximise(self, point: PointType) -> PointType:
        """Climb their posterior in each hyperparameter in turn; the point given is left as it is.

        What is integrated out stays as it was.
        """
        collapsed = self._collapsed
        collapsed.load(point, collapsed.labels(point), everything=False)
        new = dict(point)
        for name in self._names:
            for start, put in numbers_of(new, self._value_names[name]):

                def depth(x, name=name, put=put) -> float:
                    put(x)
                    return -self._log_posterior(name, new)

                before = depth(start)
                found = scipy.optimize.minimize_scalar(
                    depth,
                    bounds=(start - _FAR, start + _FAR),
                    method="bounded",
                    options={"xatol": _CLOSE},
                )
                depth(float(found.x) if found.fun < before else start)
        collapsed.load_priors(new)
        return new

    def _log_likelihood(self, name: str, point) -> float:
        """Collapsed log joint at a point, as far as it depends on the hyperparameter."""
        collapsed, component = self._collapsed, self.part
        clusterings, flags, evidence = self._touched[name]
        total = 0.0
        for number in clusterings:
            prior = component.clusterings[number].prior(point)
            total += log_prior(*prior, collapsed.partitions[number].counts)
        for number in flags:
            relevance = collapsed.partitions[number].relevance
            relevance.prior[:] = component.clusterings[number].relevance_prior(point)
            total += log_flags(relevance)
        for number in evidence:
            total += collapsed.evidence[number].log_factor(point)
        return total

    def _log_posterior(self, name: str, point) -> float:
        prior = self._log_prior[name](point)
        if not np.isfinite(prior) or not self._conditions[name].met(point):
            return -np.inf
        found = prior + self._log_likelihood(name, point)
        return found if np.isfinite(found) else -np.inf

    def _draw(self, name: str, point) -> None:
        """Draw one hyperparameter: slice sampling, by stepping out and shrinking."""
        for start, put in numbers_of(point, self._value_names[name]):

            def log_density(x, put=put) -> float:
                put(x)
                return self._log_posterior(name, point)

            draw_slice(self.rng, start, log_density)


def numbers_of(point, key: str) -> Iterator[tuple[float, Callable[[float], None]]]:
    """Yield each number of a variable, as it is, and what puts another one in its place.

    Raise `ValueError` if one is at a bound, which no slice leaves.
    """
    if not np.isfinite(point[key]).all():
        raise ValueError(
            f"{key!r}: expected a start within bounds; found one at a bound, {point[key]} on the "
            "scale that is sampled. Give the variable another one: initval="
        )
    for place in np.ndindex(np.shape(point[key])):

        def put(x: float, place=place) -> None:
            value = np.array(point[key])
            value[place] = x
            point[key] = value

        yield float(np.asarray(point[key])[place]), put
