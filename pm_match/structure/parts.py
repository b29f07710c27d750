"""What is read from a model: its partitions, their domains, and what is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pm_match.evidence.projected_normal import DomainData


class UnservedModelError(ValueError):
    """The model is not one that the steps can serve; the message says which variable, and why."""


@dataclass(frozen=True, eq=False)
class Projected:
    """One domain: an observed variable that is normal around projected latent vectors.

    Attributes
    ----------
    name : str
        The observed variable, as the user named it.
    assignment, projection : str
        The free variables that its mean depends on, besides the latent vectors.
    transposed : bool
        Whether the projection is declared as (K, M_d) rather than (M_d, K).
    data : DomainData
    missing : str or None
        The free variable that holds the missing values, in the order of the array.
    update : {"map", "normal", None}
        What serves the projection: MAP sub-steps for a flat prior, Gibbs draws for a normal one,
        and nothing of ours for any other (its own step can still be PyMC's).
    why_not : str
        If `update` is None, the reason.
    """

    name: str
    assignment: str
    projection: str
    transposed: bool
    data: DomainData
    missing: str | None
    update: str | None
    why_not: str = ""


@dataclass(frozen=True)
class Hyper:
    """The hyperparameters at a point, as numbers: sticks' Beta(a, b), Gamma(shape, rate), and r."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]
    shape: float
    rate: float
    latent_precision: float


@dataclass(frozen=True, eq=False)
class ProjectedPartition:
    """A recognised model: one partition of the objects of all domains, with its evidence.

    Attributes
    ----------
    weights : str
        The variable with the prior on weights: stick-breaking weights, a Dirichlet, or Beta sticks.
    sticks : bool
        Whether `weights` holds sticks rather than weights.
    finite : bool
        Whether the number of clusters is declared (a Dirichlet) rather than a truncation.
    free_weights_prior : bool
        Whether the prior on weights depends on other free variables.
    precision, latent : str
    latent_transposed : bool
        Whether the latent vectors are declared as (K, T) rather than (T, K).
    truncation, n_factors : int
    domains : tuple of Projected
    links : (L, 2) array
        Pairs of objects that share a cluster, numbered domain after domain.
    """

    weights: str
    sticks: bool
    finite: bool
    free_weights_prior: bool
    precision: str
    latent: str
    latent_transposed: bool
    truncation: int
    n_factors: int
    domains: tuple[Projected, ...]
    links: NDArray[np.int64]
    _hyper: Callable[[Mapping[str, NDArray]], Hyper] = field(repr=False)
    _priors: Mapping[str, Callable] = field(repr=False)

    @property
    def n_objects(self) -> int:
        """Objects of all domains together."""
        return sum(len(domain.data.values) for domain in self.domains)

    @property
    def collapsed(self) -> list[str]:
        """The variables that `ClusterGibbs` draws."""
        missing = [domain.missing for domain in self.domains if domain.missing]
        assignments = [domain.assignment for domain in self.domains]
        return [self.weights, self.precision, self.latent, *assignments, *missing]

    def hyper(self, point: Mapping[str, NDArray]) -> Hyper:
        """Evaluate the hyperparameters at a `point` of value variables."""
        return self._hyper(point)

    def projection_prior(self, domain: Projected, point) -> tuple[NDArray, NDArray]:
        """Mean and precision (M_d, K) of a normal prior on the domain's projection."""
        return self._priors[domain.projection](point)


@dataclass(frozen=True, eq=False)
class Structure:
    """What was read from a model.

    Attributes
    ----------
    partitions : tuple of ProjectedPartition
    refusals : dict of str to str
        For every assignment that is not served, the reason.
    """

    partitions: tuple[ProjectedPartition, ...]
    refusals: dict[str, str]

    def explain(self) -> str:
        """Say why nothing, or not everything, is served."""
        if not self.refusals:
            return "it has no assignment (a pm.Categorical over random weights)"
        grouped: dict[str, list[str]] = {}
        for name, reason in self.refusals.items():
            grouped.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in grouped.items())
