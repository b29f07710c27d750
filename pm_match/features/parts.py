"""What is read of feature vectors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.features.marginals import Marginal
from pm_match.features.projected_normal import DomainData
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point

# Parameters that the factors' rotations and labels turn: not to be judged one by one.
_TURNING = ("projection", "transposed", "normal")


def random_projection(rng: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Draw small projections to start from: they grow with the matching instead of fixing it."""
    return 0.01 * rng.standard_normal(shape)


@dataclass(frozen=True, eq=False)
class Projected:
    """One domain: an observed variable that is normal around projected latent vectors.

    Attributes
    ----------
    name : str
        The observed variable, as the user named it.
    assignment, projection : str
        The free variables that its mean depends on, besides the latent vectors. No projection if it
        is not one free variable.
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
    deviation, flag : str or None
        The deviations of its clusters, and the relevance of its objects.
    """

    name: str
    assignment: str
    projection: str
    transposed: bool
    data: DomainData
    missing: str | None
    update: str | None
    why_not: str = ""
    deviation: str | None = None
    flag: str | None = None


@dataclass(frozen=True)
class Hyper:
    """Hyperparameters of features at a point, as numbers: Gamma(shape, rate), and r."""

    shape: float
    rate: float
    latent_precision: float


@dataclass(frozen=True, eq=False)
class View:
    """How the features of all domains vary, at a point.

    Attributes
    ----------
    marginals : tuple of Marginal
        For every domain. If one precision is shared by all noise, of features scaled by its root.
    scales : tuple of (M_d,) array or None
        Standard deviations of each domain's deviations; None if it has none.
    latent_precision : float
        Of the latent vectors; over the shared precision, if there is one.
    """

    marginals: tuple[Marginal, ...]
    scales: tuple[NDArray[np.float64] | None, ...]
    latent_precision: float


@dataclass(frozen=True)
class Parameter:
    """A free variable that the marginals of features depend on.

    Attributes
    ----------
    name : str
    update : {"intercept", "projection", "transposed", "wishart", "normal", "slice", "prior"}
        How it is drawn. From its exact conditional: an intercept, a projection (declared as it is
        or transposed) with a normal prior, a noise precision with a Wishart prior. Otherwise, with
        all latent vectors integrated out: by elliptical slices, under any normal prior; by slices,
        one number after the other; and so too if only priors of such parameters depend on it.
    domain : int
        The number of the domain that it is of; -1 if `update` does not say.
    """

    name: str
    update: str
    domain: int


@dataclass(frozen=True, eq=False)
class Features(Evidence):
    """Feature vectors of some of a clustering's objects, around shared latent vectors.

    Attributes
    ----------
    clustering : int
        The number of the clustering whose objects they are of.
    precision : str or None
        The precision that all noise shares; None if every domain has noise of its own.
    latent : str
    latent_transposed : bool
        Whether the latent vectors are declared as (K, T) rather than (T, K).
    truncation, n_factors : int
    domains : tuple of Projected
        In the order of the clustering's assignments, some of which may have none.
    parameters : tuple of Parameter
        What else is ours to draw: all that the marginals depend on, if they are not plain;
        otherwise what only the priors of projections depend on.
    """

    kind = "features"

    clustering: int
    precision: str | None
    latent: str
    latent_transposed: bool
    truncation: int
    n_factors: int
    domains: tuple[Projected, ...]
    _hyper: Callable[[Point], Hyper] | None = field(repr=False)
    _priors: Mapping[str, Callable] = field(repr=False)
    parameters: tuple[Parameter, ...] = ()
    _view: Any = field(default=None, repr=False)

    @property
    def plain(self) -> bool:
        """Whether the features are nothing but projected latent vectors and one shared noise."""
        return self._view is None

    @property
    def flagged(self) -> bool:
        """Whether objects may be irrelevant."""
        return any(domain.flag for domain in self.domains)

    @property
    def n_all_factors(self) -> int:
        """Factors of a cluster, those of deviations included."""
        return self.n_factors + sum(
            domain.data.values.shape[1] for domain in self.domains if domain.deviation
        )

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        missing = [domain.missing for domain in self.domains if domain.missing]
        deviations = [domain.deviation for domain in self.domains if domain.deviation]
        precision = [self.precision] if self.precision else []
        return [*precision, self.latent, *deviations, *missing]

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The number of its clustering."""
        return (self.clustering,)

    @property
    def projections(self) -> list[str]:
        """The projections that steps of ours update."""
        return [domain.projection for domain in self.domains if domain.update]

    @property
    def relabelled(self) -> list[str]:
        """What factors' rotations and labels turn: all but the precision and plain parameters."""
        turned = [own.name for own in self.parameters if own.update in _TURNING]
        names = [name for name in self.names if name != self.precision]
        return [*names, *self.projections, *turned]

    @property
    def handed_on(self) -> list[str]:
        """All: the step of normal projections is given the latent vectors and their precision."""
        own = [*self.projections, *(parameter.name for parameter in self.parameters)]
        return [*([self.precision] if self.precision else []), self.latent, *own]

    @property
    def conditioned_on(self) -> list[str]:
        """The noise, so that what is predicted is normal."""
        return [self.precision] if self.precision else []

    def dispersed(self, rng: np.random.Generator, start: Point) -> dict[str, NDArray]:
        """Draw projections from their normal prior or, where that is flat, small noise."""
        point = {}
        for domain in self.domains:
            shape = (domain.data.values.shape[1], self.n_factors)
            if domain.update == "map":
                projection = random_projection(rng, shape)
            elif domain.update == "normal":
                mean, precision = self.projection_prior(domain, start)
                projection = mean + rng.standard_normal(shape) / np.sqrt(precision)
            else:
                continue
            point[domain.projection] = projection.T if domain.transposed else projection
        return point

    def hyper(self, point: Point) -> Hyper:
        """Evaluate the hyperparameters at a `point` of value variables."""
        assert self._hyper is not None
        return self._hyper(point)

    def view(self, point: Point) -> View:
        """Evaluate how the features vary at a `point`, where they are not plain."""
        return self._view(point)

    def idle(self, point: Point) -> list[NDArray[np.float64] | None]:
        """Log density of every object (N_d,) as an irrelevant one, where it may be one."""
        return self._view.idle(point)

    def idle_of(self, number: int) -> tuple[Callable, list[str]] | None:
        """Return the density of a domain's irrelevant objects, if there may be any.

        A function of a point to an array (N_d,), and the value variables that enter it.
        """
        return self._view.idle_of(number)

    def projection_prior(self, domain: Projected, point: Point) -> tuple[NDArray, NDArray]:
        """Mean and precision (M_d, K) of a normal prior on the domain's projection."""
        return self._priors[domain.projection](point)
