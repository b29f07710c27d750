"""What is read of normal clusters."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pm_match.normal.normal_rows import NormalWishartPrior
from pm_match.numerics.kept import Kept
from pm_match.numerics.polar import polar_factor
from pm_match.reading.evidence import Evidence, Table
from pm_match.reading.parts import Clustering, Point, UnservedModelError


class Map(NamedTuple):
    """What brings a domain's vectors to the space of its clusters: y = Q' (x - a) / c."""

    q: NDArray[np.float64]  # (D, D)
    scale: float
    intercept: NDArray[np.float64]  # (D,)

    def __call__(self, x: NDArray) -> NDArray[np.float64]:
        """Bring vectors (R, D) there."""
        return (x - self.intercept) @ self.q / self.scale


@dataclass(frozen=True, eq=False)
class Alignment:
    """The free variables of a domain's map, each with its value variable and its prior."""

    # orientation, scale, intercept: A normal matrix, of which nothing but its polar factor Q
    # matters; a lognormal number; a normal vector. None for what is not there: Q is the identity
    # then, c is 1, a is 0.
    orientation: str | None
    scale: str | None
    intercept: str | None
    keys: dict[str, str]  # the value variable of each
    logs: bool  # whether the scale is sampled as its log
    # mean and precision of every entry (of the log of the scale), at a point
    priors: dict[str, Callable] = field(repr=False)
    _kept: Kept = field(default_factory=Kept, init=False, repr=False)

    @property
    def names(self) -> list[str]:
        """Of all its variables."""
        return [name for name in (self.orientation, self.scale, self.intercept) if name]

    def read(self, point: Point, d: int) -> Map:
        """Read the map, of vectors of d numbers, from a point."""

        def made(*values: NDArray) -> Map:
            own = dict(zip(self.names, values, strict=True))
            q, scale, intercept = np.eye(d), 1.0, np.zeros(d)
            if self.orientation:
                q = polar_factor(own[self.orientation])
            if self.scale:
                value = float(own[self.scale])
                scale = float(np.exp(value)) if self.logs else value
            if self.intercept:
                intercept = np.array(own[self.intercept])
            return Map(q, scale, intercept)

        return self._kept.of_values(made, *(point[self.keys[name]] for name in self.names))


@dataclass(frozen=True, eq=False)
class ScaleMatrix:
    """A free Wishart matrix that the precisions' prior has, times a number, for inverse scale."""

    name: str
    factor: float
    # its degrees of freedom, and its own inverse scale (D, D), at a point
    prior: Callable[[Point], tuple[float, NDArray[np.float64]]] = field(repr=False)


@dataclass(frozen=True, eq=False)
class PrecisionFactor:
    """A free Gamma variable (R,): a factor of the precision of every vector."""

    name: str
    key: str  # its value variable, with the log
    # shape and rate (R,) at a point
    prior: Callable[[Point], tuple[NDArray[np.float64], NDArray[np.float64]]] = field(repr=False)

    def read(self, point: Point) -> NDArray[np.float64]:
        """Read the factors (R,) from a point."""
        return np.exp(np.asarray(point[self.key]))

    def put(self, point: Point, value: float) -> dict[str, NDArray]:
        """Give a point at which all factors have one value."""
        return {**point, self.key: np.full(np.shape(point[self.key]), np.log(value))}

    def conditional(
        self, power: float, point: Point, seen: NDArray | int, squares: NDArray
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give shape and rate (R,) of the Gamma conditionals of the factors.

        `power`: of the vectors' densities; `seen` (R,): how many values of each vector are known;
        `squares` (R,): how far these are from its cluster's mean, in squared standard deviations.
        """
        shape, rate = self.prior(point)
        return shape + 0.5 * power * seen, rate + 0.5 * power * squares


@dataclass(frozen=True, eq=False)
class NormalValues:
    """Vectors that are normal around the means of their objects' clusters."""

    name: str  # the variable, observed or free
    assignment: str
    objects: NDArray[np.int64]  # (R,): the object of every vector, as its assignment numbers them
    # (R, D) or None: what is observed, NaN where it is missing; None if the variable is free, and
    # its value is read from points
    data: NDArray[np.float64] | None
    # what they are mapped by before they are compared with other domains'; None if by nothing
    alignment: Alignment | None = None
    # the free variable with the missing values, in the order of the array; None if none is missing
    missing: str | None = None
    # what each vector's precision is multiplied by; None if by nothing
    factor: PrecisionFactor | None = None

    @property
    def incomplete(self) -> NDArray[np.int64]:
        """The rows of which something is missing."""
        if self.missing is None or self.data is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(np.isnan(self.data).any(axis=1))

    def missing_of(self, x: NDArray, point: Point) -> dict[str, NDArray[np.float64]]:
        """Take what is missing out of vectors (R, D), by its variable, as a point has it."""
        if self.missing is None or self.data is None:
            return {}
        return {self.missing: x[np.isnan(self.data)].reshape(np.shape(point[self.missing]))}

    def vectors(self, point: Point) -> NDArray[np.float64]:
        """Read the vectors (R, D), brought to the space of the clusters, and nothing missing."""
        x = np.asarray(point[self.name]) if self.data is None else self.data
        if self.missing:
            x = x.copy()
            x[np.isnan(x)] = np.ravel(point[self.missing])
        return x if self.alignment is None else self.alignment.read(point, x.shape[1])(x)


@dataclass(frozen=True, eq=False)
class Normals(Evidence):
    """Normal clusters: means and precisions with conjugate priors, and what is seen of them."""

    kind = "normal"

    clustering: int  # the number of the clustering whose objects they are of
    # mean, precision: the variables with the means (T, D), and the precisions (T, D, D) or one
    # (D, D)
    mean: str
    precision: str
    shared: bool  # whether the clusters share one precision
    truncation: int
    n_features: int
    values: tuple[NormalValues, ...]
    # the prior of means and precisions at a point of value variables
    prior: Callable[[Point], NormalWishartPrior] = field(repr=False)
    power: float = 1.0  # to which the densities of all vectors count
    # what the prior of the precisions depends on, if that is free
    scale_matrix: ScaleMatrix | None = None

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        return [self.mean, self.precision]

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """Means, and precisions that are not shared."""
        own = [self.mean] if self.shared else self.names
        return {key: {0: self.clustering} for key in own}

    @property
    def conditioned_on(self) -> list[str]:
        """Means and precisions if these have factors, so that what is predicted is Student's t."""
        return self.names if self.factors else []

    @property
    def of_objects(self) -> list[str]:
        """Factors of precisions, if no vector lacks one, or a value."""
        factors = [own.factor.name for own in self.values if own.factor]
        return [] if self.missing or len(factors) < len(self.values) else factors

    @property
    def searchable(self) -> bool:
        """Whether no vector is a free variable; single values may be missing."""
        return all(values.data is not None for values in self.values)

    @property
    def handed_on(self) -> list[str]:
        """Steps of what the priors depend on are given the parameters; and all that is drawn."""
        return [*self.names, *self.drawn, *self.missing] if self.searchable else []

    @property
    def factors(self) -> list[PrecisionFactor]:
        """Factors of the vectors' precisions, of the variables that have some."""
        return [own.factor for own in self.values if own.factor is not None]

    @property
    def missing(self) -> list[str]:
        """The free variables with missing values of vectors."""
        return [own.missing for own in self.values if own.missing]

    @property
    def aligned(self) -> list[tuple[NormalValues, Alignment]]:
        """The vectors that are mapped, and by what."""
        return [(own, own.alignment) for own in self.values if own.alignment is not None]

    @property
    def mapped(self) -> list[str]:
        """The variables of all maps."""
        return [name for _, alignment in self.aligned for name in alignment.names]

    @property
    def drawn(self) -> list[str]:
        """What steps of its own draw: maps, scale matrix and factors of the precisions."""
        scale = [self.scale_matrix.name] if self.scale_matrix else []
        return [*self.mapped, *scale, *(own.name for own in self.factors)]

    @property
    def rows(self) -> list[slice]:
        """Where the vectors of each variable are among all."""
        ends = np.cumsum([0, *(len(own.objects) for own in self.values)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    def objects(self, clustering: Clustering) -> list[NDArray[np.int64]]:
        """Return the objects of each variable's vectors, as their clustering numbers them."""
        where = clustering.slices
        return [own.objects + where[own.assignment].start for own in self.values]

    def vectors(self, point: Point) -> NDArray[np.float64]:
        """Read all vectors (R, D), one variable after the other."""
        found = [values.vectors(point) for values in self.values]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def precision_factors(self, point: Point) -> NDArray[np.float64] | None:
        """Read the factors (R,) of all vectors' precisions; None if there are none."""
        if not self.factors:
            return None
        ones = [np.ones(len(own.objects)) for own in self.values]
        pairs = zip(self.values, ones, strict=True)
        return np.concatenate([v.factor.read(point) if v.factor else one for v, one in pairs])

    def integrated(
        self, assignment: str, table: Table, point: Point, *, coarsened: bool
    ) -> NDArray[np.float64]:
        r"""Integrate factors of precisions out of the log densities (N, T) of objects.

        With u the factor, the log density of D values is :math:`c + (D \log u - m u) / 2`: two
        values of u tell c and m. The log of the integral over a Gamma(a, b) factor is

        .. math:: c + \log \frac{\Gamma(a + D / 2)}{\Gamma(a)} + a \log b
                  - (a + D / 2) \log(b + m / 2) .

        To a power, D and m are multiplied by it.
        """
        d = self.n_features * (self.power if coarsened else 1.0)
        for own in self.values:
            if own.assignment == assignment and own.factor is not None:
                table = partial(_over_factor, own, d, table)
        return table(point)

    def log_jacobian(self, point: Point) -> float:
        """Log density of the vectors as they are, less that of the mapped ones."""
        total = 0.0
        for own, alignment in self.aligned:
            scale = alignment.read(point, self.n_features).scale
            total -= len(own.objects) * self.n_features * np.log(scale)
        return self.power * total


def _over_factor(own: NormalValues, d: float, table: Table, point: Point) -> NDArray[np.float64]:
    """Integrate the factors of one variable's precisions out of log densities (N, T)."""
    factor = own.factor
    assert factor is not None
    if len(np.unique(own.objects)) < len(own.objects):
        raise UnservedModelError(
            f"{own.name!r}: expected one vector of each object, as precisions are multiplied by "
            f"{factor.name!r}; found several"
        )
    once, twice = (table(factor.put(point, value)) for value in (1.0, 2.0))
    # A cluster whose weight has become 0 has no objects, whatever the factor is.
    none = np.isneginf(once)
    once, twice = np.where(none, 0.0, once), np.where(none, 0.0, twice)
    n, size = len(once), np.zeros((len(once), 1))
    size[own.objects] = d
    a, b = np.ones((n, 1)), np.ones((n, 1))
    a[own.objects, 0], b[own.objects, 0] = factor.prior(point)
    squares = 2.0 * (once - twice) + size * np.log(2.0)
    log_mean = gammaln(a + 0.5 * size) - gammaln(a) + a * np.log(b)
    log_mean = log_mean - (a + 0.5 * size) * np.log(b + 0.5 * squares)
    return np.where(none, -np.inf, once + 0.5 * squares + log_mean)
