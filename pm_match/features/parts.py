"""What is read of feature vectors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.numerics.kept import Kept
from pm_match.numerics.masked import MaskedTable
from pm_match.reading.evidence import Evidence
from pm_match.reading.parts import Point, UnservedModelError

# Parameters that the factors' rotations and labels turn: not to be judged one by one.
_ROTATED = ("projection", "flat", "normal")


def random_projection(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Draw small projections to start from: they grow with the matching instead of fixing it."""
    return 0.01 * rng.standard_normal(shape)


@dataclass(frozen=True, eq=False)
class FeatureDomain:
    """One domain: an observed variable that is normal around projected latent vectors."""

    name: str  # the observed variable, as the user named it
    assignment: str
    data: MaskedTable
    full: bool  # whether the noise of its features is dependent
    # the free variable that holds the missing values, in the order of the array
    missing: str | None = None
    # deviation, flag: the deviations of its clusters, and the relevance of its objects
    deviation: str | None = None
    flag: str | None = None
    power: float = 1.0  # to which the densities of its objects count

    @property
    def n_features(self) -> int:
        """M_d, the number of its features."""
        return self.data.values.shape[1]

    def sums(self, labels: NDArray[np.int64], n_clusters: int) -> ClusterSums:
        """Sum its features by `labels` (N,), -1 for irrelevant objects."""
        return ClusterSums.of(self.data, labels, n_clusters, self.full, self.power)


@dataclass(frozen=True, eq=False)
class Setting:
    """How the features of all domains vary, at a point."""

    # For every domain. If one precision is shared by all noise, of features scaled by its root.
    emissions: tuple[Emission, ...]
    # tuple of (M_d,) or None: standard deviations of each domain's deviations; None if it has none
    spreads: tuple[NDArray[np.float64] | None, ...]
    latent_precision: float  # of the latent vectors; over the shared precision, if there is one
    # (float, float) or None: shape and rate of the shared precision's prior, if there is one
    gamma: tuple[float, float] | None = None

    def given(self, precision: float) -> "Setting":
        """Return the setting with the shared precision, if there is one, at some value."""
        if self.gamma is None:
            return self
        return Setting(
            tuple(emission.scaled(precision) for emission in self.emissions),
            self.spreads,
            self.latent_precision * precision,
        )


@dataclass(frozen=True, eq=False)
class Background:
    """How the irrelevant objects of a domain vary, at a point."""

    name: str  # the observed variable
    mean: NDArray[np.float64]  # (N, M)
    root: NDArray[np.float64]  # (M,) or (M, M): of the noise precision, as in `Emission`
    kept: Kept = field(default_factory=Kept, init=False, repr=False)

    def log_density(self, data: MaskedTable) -> NDArray[np.float64]:
        """Log density (N,) of what is observed of each object, as an irrelevant one."""
        return Emission.of_noise(self.root).log_noise(self.residuals(data))

    def residuals(self, data: MaskedTable) -> MaskedTable:
        """Return what is left of the objects' features when the means are taken away."""
        left = data.values - self.mean
        if data.observed is not None:
            left[~data.observed] = 0.0
        return MaskedTable(left, data.observed)

    def emission(self) -> Emission:
        """Return the emission that a new irrelevant object has.

        Raise `UnservedModelError` if the irrelevant objects do not all vary alike: of a new one
        nothing is known.
        """
        if not (self.mean == self.mean[0]).all():
            raise UnservedModelError(
                f"{self.name!r}: the means of its irrelevant objects differ; expected one, "
                "which a new object would have too"
            )
        return Emission(np.zeros((len(self.mean[0]), 0)), self.mean[0].copy(), self.root)


@dataclass(frozen=True)
class Parameter:
    """A free variable that emissions depend on."""

    name: str
    # {"intercept", "projection", "flat", "wishart", "normal", "slice", "prior"}: How it is drawn.
    # From its exact conditional: an intercept or a projection with a normal prior, a noise
    # precision with a Wishart prior. By MAP sub-steps: a flat projection. Otherwise, with all
    # latent vectors integrated out: by elliptical slices, under any normal prior; by slices, one
    # number after the other; and so too if only priors of such parameters depend on it.
    update: str
    domain: int  # the number of the domain that it is of; -1 if `update` does not say
    transposed: bool = False  # whether a projection is declared as (K, M_d) rather than (M_d, K)


class LogNormalNumber(NamedTuple):
    """A number that multiplies something, and is normal on the log scale, which is sampled."""

    name: str
    # mean, precision: of its value variable
    mean: float
    precision: float


@dataclass(frozen=True)
class Isometry:
    """Parameters of a domain whose projection is a scale times a polar factor."""

    domain: int
    # a normal variable, with independent entries of mean 0 and one precision, of which nothing but
    # its polar factor matters
    orientation: Parameter
    # scale, spread: what multiplies the polar factor, and the standard deviation of deviations;
    # None for what is drawn otherwise, or constant
    scale: LogNormalNumber | None
    spread: LogNormalNumber | None

    @property
    def names(self) -> list[str]:
        """Of all its variables."""
        numbers = [own.name for own in (self.scale, self.spread) if own is not None]
        return [self.orientation.name, *numbers]


@dataclass(frozen=True, eq=False)
class Features(Evidence):
    """Feature vectors of some of a clustering's objects, around shared latent vectors."""

    kind = "features"

    clustering: int  # the number of the clustering whose objects they are of
    # a precision that all noise and the latent vectors share, and that is integrated out
    precision: str | None
    latent: str
    latent_transposed: bool  # whether the latent vectors are declared as (K, T) rather than (T, K)
    truncation: int
    n_factors: int
    # in the order of the clustering's assignments, some of which may have none
    domains: tuple[FeatureDomain, ...]
    parameters: tuple[Parameter, ...]  # what else is ours to draw
    isometries: tuple[Isometry, ...]  # of the domains that have one
    _reader: Any = field(repr=False)
    _priors: Mapping[str, Callable] = field(repr=False)
    _standard: bool = field(repr=False)

    @property
    def sliced(self) -> list[Isometry]:
        """Isometries that compiled slices draw: all objects of a domain have the same noise."""
        own = [(self.domains[i.domain], i) for i in self.isometries]
        return [i for domain, i in own if not domain.full or domain.data.observed is None]

    @property
    def flagged(self) -> bool:
        """Whether objects may be irrelevant."""
        return any(domain.flag for domain in self.domains)

    @property
    def n_all_factors(self) -> int:
        """Factors of a cluster, those of deviations included."""
        return self.n_factors + sum(d.n_features for d in self.domains if d.deviation)

    @property
    def names(self) -> list[str]:
        """The variables that are drawn with the clusters."""
        missing = [domain.missing for domain in self.domains if domain.missing]
        deviations = [domain.deviation for domain in self.domains if domain.deviation]
        precision = [self.precision] if self.precision else []
        return [*precision, self.latent, *deviations, *missing]

    @property
    def relabelled(self) -> list[str]:
        """What factors' rotations and labels turn: all but the precision and other parameters."""
        turned = [own.name for own in self.parameters if own.update in _ROTATED]
        return [*(name for name in self.names if name != self.precision), *turned]

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """Latent vectors and deviations, a row for each cluster."""
        deviations = [domain.deviation for domain in self.domains if domain.deviation]
        return {key: {0: self.clustering} for key in [self.latent, *deviations]}

    @property
    def handed_on(self) -> list[str]:
        """All that is drawn given the rest, so that a chain goes on from there."""
        own = [parameter.name for parameter in self.parameters]
        return [*([self.precision] if self.precision else []), self.latent, *own]

    @property
    def conditioned_on(self) -> list[str]:
        """The noise, so that what is predicted is normal."""
        return [self.precision] if self.precision else []

    def dispersed(self, rng: np.random.Generator, start: Point) -> dict[str, NDArray]:
        """Draw projections, and what they are the directions of, from their normal prior.

        Flat projections are small noise.
        """
        point, turned = {}, {isometry.orientation.name for isometry in self.isometries}
        for p in self.parameters:
            if p.update == "flat":
                drawn = random_projection(rng, (self.domains[p.domain].n_features, self.n_factors))
            elif p.update == "projection" or p.name in turned:
                centre, precision = self.prior(p, start)
                drawn = centre + rng.standard_normal(centre.shape) / np.sqrt(precision)
            else:
                continue
            point[p.name] = drawn.T if p.transposed else drawn
        return point

    @property
    def projections(self) -> list[Parameter | None]:
        """The projection of every domain, None where it is not one free variable."""
        found = {p.domain: p for p in self.parameters if p.update in ("projection", "flat")}
        return [found.get(number) for number in range(len(self.domains))]

    @property
    def flat(self) -> bool:
        """Whether the projections have no prior, and are found rather than drawn."""
        return any(p.update == "flat" for p in self.parameters)

    @property
    def only_projections(self) -> bool:
        """Whether projections are all that emissions have besides the shared precision.

        What else there is, such as scales of independent noise, is constant.
        """
        own = {p.name for p in self.projections if p is not None}
        others = [p for p in self.parameters if p.name not in own and p.update != "prior"]
        plain = all(not (d.flag or d.deviation or d.full) for d in self.domains)
        return plain and bool(self.precision) and None not in self.projections and not others

    @property
    def standard(self) -> bool:
        """Whether there is nothing but projections and one noise for all features."""
        return self.only_projections and self._standard

    def setting(self, point: Point) -> Setting:
        """Evaluate how the features vary at a `point` of value variables.

        Emissions are the same objects as long as nothing of them changes.
        """
        return self._reader(point)

    def background(self, number: int, point: Point) -> Background | None:
        """Evaluate how a domain's irrelevant objects vary, if there may be any.

        It is the same object as long as nothing of it changes.
        """
        return self._reader.background(number, point)

    def log_background(self, number: int, point: Point) -> NDArray[np.float64] | None:
        """Log density of a domain's objects (N_d,) as irrelevant ones, if there may be any."""
        own, domain = self.background(number, point), self.domains[number]
        return None if own is None else domain.power * own.log_density(domain.data)

    def log_irrelevant(self, irrelevant: Sequence[NDArray[np.int64]], point: Point) -> float:
        """Log density of the irrelevant objects, whose numbers are given for every domain.

        It is found anew only when how they vary has changed.
        """

        def found(d: int, rows: NDArray) -> float:
            own = self.log_background(d, point)
            assert own is not None
            return float(own[rows].sum())

        total = 0.0
        for d, rows in enumerate(irrelevant):
            if len(rows):
                background = self.background(d, point)
                assert background is not None
                total += background.kept(partial(found, d), rows)
        return total

    def sums(self, labels: Sequence[NDArray[np.int64]]) -> list[ClusterSums]:
        """Sum the features of every domain by the labels of its objects."""
        own = zip(self.domains, labels, strict=True)
        return [domain.sums(label, self.truncation) for domain, label in own]

    def prior(self, parameter: Parameter, point: Point) -> tuple[NDArray, NDArray]:
        """Mean and precision of a parameter's normal prior, in its shape.

        Those of a projection as (M_d, K), however it is declared.
        """
        return self._priors[parameter.name](point)
