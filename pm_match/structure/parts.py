"""What is read from a model: its clusterings, what they are seen by, and what is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pm_match.evidence.block_evidence import NetworkCells, Prior
from pm_match.evidence.marginals import Marginal
from pm_match.evidence.normal_rows import NormalWishartPrior
from pm_match.evidence.projected_normal import DomainData

Point = Mapping[str, NDArray]


class UnservedModelError(ValueError):
    """The model is not one that the steps can serve; the message says which variable, and why."""


@dataclass(frozen=True)
class Assignment:
    """The clusters of the objects of one domain, or of one axis of a network.

    Attributes
    ----------
    name : str
    n_objects : int
    relevance : str or None
        The variable that says which objects are relevant; None if all are.
    group : int
        Which probability of being relevant they share, -1 if all are relevant.
    """

    name: str
    n_objects: int
    relevance: str | None = None
    group: int = -1


@dataclass(frozen=True, eq=False)
class Clustering:
    """One set of clusters, and the assignments of objects to them.

    Attributes
    ----------
    weights : str
        The variable with the prior on weights: stick-breaking weights, a Dirichlet, or Beta sticks.
        Empty if the weights are constant.
    sticks : bool
        Whether `weights` holds sticks rather than weights.
    finite : bool
        Whether the number of clusters is declared (a Dirichlet, or constant weights) rather than a
        truncation.
    free_weights_prior : bool
        Whether the prior on weights depends on other free variables.
    truncation : int
    assignments : tuple of Assignment
    probabilities : tuple of str or None
        For every group of relevance flags, the variable that is their probability of being
        relevant; None if it is constant.
    links : (L, 2) array
        Pairs of objects that share a cluster, numbered assignment after assignment.
    """

    weights: str
    sticks: bool
    finite: bool
    free_weights_prior: bool
    truncation: int
    assignments: tuple[Assignment, ...]
    probabilities: tuple[str | None, ...]
    links: NDArray[np.int64]
    _sticks: Callable[[Point], tuple[NDArray, NDArray]] = field(repr=False)
    _relevance_prior: Callable[[Point], NDArray] = field(repr=False)

    @property
    def n_objects(self) -> int:
        """Objects of all assignments together."""
        return sum(assignment.n_objects for assignment in self.assignments)

    @property
    def title(self) -> str:
        """A name for the set of clusters, which no other set has."""
        return self.weights or f"clusters of {self.assignments[0].name}"

    @property
    def ends(self) -> NDArray[np.int64]:
        """Where the objects of the second and of later assignments begin."""
        return np.cumsum([assignment.n_objects for assignment in self.assignments])[:-1]

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        assignments = [assignment.name for assignment in self.assignments]
        flags = [assignment.relevance for assignment in self.assignments if assignment.relevance]
        probabilities = [name for name in self.probabilities if name]
        weights = [self.weights] if self.weights else []
        return [*weights, *probabilities, *flags, *assignments]

    def prior(self, point: Point) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Beta parameters (T - 1,) of the sticks at a `point` of value variables."""
        return self._sticks(point)

    def relevance_prior(self, point: Point) -> NDArray[np.float64]:
        """Prior (G, 3) of the groups of relevance flags (see `partition.relevance`)."""
        return self._relevance_prior(point)


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
class Features:
    """Feature vectors of some of a clustering's objects, around shared latent vectors.

    Attributes
    ----------
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


@dataclass(frozen=True, eq=False)
class NormalValues:
    """Vectors that are normal around the means of their objects' clusters.

    Attributes
    ----------
    name : str
        The variable, observed or free.
    assignment : str
    objects : (R,) integer array
        The object of every vector, as its assignment numbers them.
    data : (R, D) array or None
        What is observed; None if the variable is free, and its value is read from points.
    """

    name: str
    assignment: str
    objects: NDArray[np.int64]
    data: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class Normals:
    """Normal clusters: means and precisions with conjugate priors, and what is seen of them.

    Attributes
    ----------
    mean, precision : str
        The variables with the means (T, D), and the precisions (T, D, D) or one (D, D).
    shared : bool
        Whether the clusters share one precision.
    truncation, n_features : int
    values : tuple of NormalValues
    """

    mean: str
    precision: str
    shared: bool
    truncation: int
    n_features: int
    values: tuple[NormalValues, ...]
    _prior: Callable[[Point], NormalWishartPrior] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [self.mean, self.precision]

    @property
    def observed(self) -> bool:
        """Whether all vectors are observed."""
        return all(values.data is not None for values in self.values)

    def vectors(self, point: Point) -> NDArray[np.float64]:
        """Read all vectors (R, D), one variable after the other."""
        found = [
            np.asarray(point[values.name]) if values.data is None else values.data
            for values in self.values
        ]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def prior(self, point: Point) -> NormalWishartPrior:
        """Evaluate the prior of means and precisions at a `point` of value variables."""
        return self._prior(point)


@dataclass(frozen=True, eq=False)
class Relation:
    """Networks that share their densities.

    Attributes
    ----------
    family : {"bernoulli", "poisson", "normal"}
    density, noise : tuple of str
        The variables with the parameters of blocks and of noise: one, or for the normal family mean
        and precision. No noise if all objects are relevant.
    axes : tuple of int
        The number of each axis' clustering in the component.
    networks : mapping of str to NetworkCells
    one_mode, symmetric, self_loops : bool
    """

    family: str
    density: tuple[str, ...]
    noise: tuple[str, ...]
    axes: tuple[int, ...]
    networks: Mapping[str, NetworkCells]
    one_mode: bool
    symmetric: bool
    self_loops: bool
    _prior: Callable[[Point], tuple[Prior, Prior | None]] = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [*self.density, *self.noise]

    def prior(self, point: Point) -> tuple[Prior, Prior | None]:
        """Parameters of the prior on densities, and of that on the noise (see `families`)."""
        return self._prior(point)


@dataclass(frozen=True, eq=False)
class Component:
    """What has to be drawn together: clusterings that are connected by what is observed of them.

    Attributes
    ----------
    clusterings : tuple of Clustering
    features : tuple of Features or None
        For every clustering, its feature vectors if it has any.
    normals : tuple of tuple of Normals
        For every clustering, its normal clusters: one set for each view of the objects.
    relations : tuple of Relation
    hyperparameters : tuple of str
        Free numbers that only priors of what is integrated out depend on.
    """

    clusterings: tuple[Clustering, ...]
    features: tuple[Features | None, ...]
    normals: tuple[tuple[Normals, ...], ...]
    relations: tuple[Relation, ...]
    hyperparameters: tuple[str, ...]
    # What the steps keep for the component, as long as it is kept itself.
    workspace: dict[str, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def collapsed(self) -> list[str]:
        """The variables that `ClusterGibbs` draws."""
        names = [name for clustering in self.clusterings for name in clustering.names]
        names += [name for features in self.features if features for name in features.names]
        names += [name for own in self.normals for normals in own for name in normals.names]
        return names + [name for relation in self.relations for name in relation.names]


class Part(Protocol):
    """What steps serve besides components: one class a kind, read by a reader of its own."""

    @property
    def names(self) -> list[str]:
        """The free variables that our steps draw for it."""

    def start(self, rng: np.random.Generator, point: Point) -> dict[str, NDArray]:
        """Make values to start a chain from, by variable, at some `point` of value variables."""


@dataclass(frozen=True, eq=False)
class Structure:
    """What was read from a model.

    Attributes
    ----------
    components : tuple of Component
    refusals : dict of str to str
        For every assignment that is not served, the reason.
    parts : tuple of Part
        What else is served.
    """

    components: tuple[Component, ...]
    refusals: dict[str, str]
    parts: tuple[Part, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to serve."""
        return not self.components and not self.parts

    @property
    def clusterings(self) -> list[Clustering]:
        """Return all clusterings."""
        return [clustering for c in self.components for clustering in c.clusterings]

    @property
    def features(self) -> list[Features]:
        """Return all feature evidence."""
        return [features for c in self.components for features in c.features if features]

    def explain(self) -> str:
        """Say why nothing, or not everything, is served."""
        if not self.refusals:
            return "it has no assignment (a pm.Categorical over random weights)"
        grouped: dict[str, list[str]] = {}
        for name, reason in self.refusals.items():
            grouped.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in grouped.items())
