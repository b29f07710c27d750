"""Reads emissions from declared graphs, by numbers.

What a domain looks like is what its mean is when the latent vectors are replaced by unit vectors:
that gives the projection and the intercept, however they are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model
from pytensor.tensor.random.basic import MvNormalRV

from pm_match.features.emission import Emission, with_deviations
from pm_match.features.parts import Background, Setting
from pm_match.numerics.kept import Kept
from pm_match.numerics.masked import MaskedTable
from pm_match.reading.ancestry import RV, Refusal, mean, scale, undivided
from pm_match.reading.context import Context
from pm_match.reading.densities import common
from pm_match.reading.evidence import Point
from pm_match.reading.probe import compiled, rejoined, stand_in


@dataclass(frozen=True, eq=False)
class Observed:
    """An observed variable and what it is of: where something is missing, PyMC splits it in two."""

    name: str
    assignment: RV
    # the one that is observed, and the free one that holds the missing values if there are any
    rvs: list[RV]
    # mean, scale: of the features of all objects, missing ones included: a standard deviation or a
    # covariance
    mean: RV
    scale: RV
    multivariate: bool  # whether the features of an object are one multivariate normal vector
    # deviation, flag: the deviations of its clusters, and the relevance of its objects
    deviation: RV | None = None
    flag: RV | None = None
    # potential, power: what says to which power its density counts, and the power
    potential: RV | None = None
    power: float = 1.0

    @property
    def covered(self) -> list[RV]:
        """Its variables, and the potential if there is one."""
        return self.rvs if self.potential is None else [*self.rvs, self.potential]

    @classmethod
    def of(cls, context: Context, name: str, assignment: RV, rvs: list[RV]) -> "Observed":
        """Find the mean and the scale of the whole."""
        rv = undivided(rvs[0])
        multivariate = isinstance(rv.owner.op, MvNormalRV)
        centre, width = mean(rv), scale(rv)
        if len(rvs) == 2 and rv is rvs[0]:
            shapes = [context.observed(rvs[:1]).shape, context.shapes[rvs[1].name]]

            def joined(graph_of) -> RV:
                own = {r: (graph_of(r), shape) for r, shape in zip(rvs, shapes, strict=True)}
                return rejoined(context.model[name], own)

            centre = joined(mean)
            width = width if multivariate else joined(scale)
        return cls(name, assignment, rvs, centre, width, multivariate)

    def by_object(self, declared: Sequence[NDArray], observed: NDArray[np.bool_]) -> NDArray:
        """Add up the declared log densities of its variables by objects (N,).

        `declared`, arrays: of each of `rvs`; `observed` (N, M).
        """
        total = np.zeros(len(observed))
        for rv, found, where in zip(self.rvs, declared, (observed, ~observed), strict=False):
            if undivided(rv) is not rv:
                total += found if found.size else 0.0
            elif self.multivariate:
                total[where.all(axis=1)] += found
            else:
                np.add.at(total, np.nonzero(where)[0], found.ravel())
        return total


@dataclass(frozen=True, eq=False)
class Declared:
    """The features of a clustering's objects: a variable of each assignment that has some."""

    observed: list[Observed]

    @property
    def covered(self) -> list[RV]:
        """Observed variables and missing values, and potentials that bring densities to powers."""
        return [rv for own in self.observed for rv in own.covered]

    @property
    def deviations(self) -> list[RV]:
        """Those that there are."""
        return [own.deviation for own in self.observed if own.deviation is not None]

    @property
    def rvs(self) -> list[RV]:
        """The variables with the features of all domains."""
        return [rv for own in self.observed for rv in own.rvs]


@dataclass(frozen=True, eq=False)
class Graphs(Declared):
    """The graphs of the features of a clustering, from which `Setting`s are read."""

    data: list[MaskedTable]  # of each observed variable
    latent: RV
    transposed: bool  # whether the latent vectors are declared as (K, T)
    # the precision that all noise shares; None if the noise of the domains is given
    precision: RV | None
    n_factors: int

    @property
    def integrated(self) -> list[RV]:
        """What no irrelevant object may depend on: clusters, latent vectors and deviations."""
        return [*(own.assignment for own in self.observed), self.latent, *self.deviations]


class _Part:
    """A graph as a function of a point, read anew only when what enters it has changed.

    `stands`, sequence of (variable, variable): random variables, and the inputs that replace them;
    `probes`: values of these inputs; one evaluation for each; `finish`: what is made of the list of
    values found.
    """

    def __init__(
        self,
        model: Model,
        graph: RV,
        stands: Sequence[tuple[RV, Any]],
        probes: Sequence[list[NDArray]],
        finish: Callable,
    ):
        inputs = [stand for _, stand in stands]
        self._function, self.inputs = compiled(model, [graph], dict(stands), inputs)
        self.watched = self.inputs
        self._probes, self._finish = probes, finish
        self._kept = Kept()

    def __call__(self, point: Point) -> Any:
        def found(*_: NDArray) -> Any:
            return self._finish([self._function(point, *probe)[0] for probe in self._probes])

        return self._kept.of_values(found, *(point[name] for name in self.watched))

    def forget(self, points: Sequence[Point], keys: set[str]) -> None:
        """Watch no more what does not matter: values `keys`, and what moves nothing at `points`."""
        self.watched = [n for n in self.inputs if n not in keys and self._matters(points, n)]

    def _matters(self, points, name: str) -> bool:
        """Whether a value moves what is found: a little, or to where another point has it."""
        for point, other in zip(points, [*points[1:], points[0]], strict=True):
            found = self(point)
            for value in (point[name] + 0.1, other[name]):
                try:
                    moved = self(point | {name: np.asarray(value, point[name].dtype)})
                except (ValueError, np.linalg.LinAlgError):
                    return True
                parts = (
                    zip(found, moved, strict=True) if isinstance(found, tuple) else [(found, moved)]
                )
                if not all(np.array_equal(one, two) for one, two in parts):
                    return True
        return False


class EmissionReader:
    """Evaluates how features vary, at any point.

    Raise `Refusal` if the mean of a domain is not a function of the label alone.
    """

    def __init__(self, context: Context, graphs: Graphs):
        self.graphs = graphs
        self._model, self._shapes = context.model, context.shapes
        latent, precision = graphs.latent, graphs.precision
        self._latent = self._part(scale(latent), None, lambda found: _one_number(latent, found[0]))
        self._means: list[_Part] = []
        self._noises, self._spreads, self._backgrounds = [], [], []
        for d, (own, domain) in enumerate(zip(graphs.observed, graphs.data, strict=True)):
            self._means.append(self._mean(context, d))
            self._noises.append(self._noise(d, self._stands(d, None)))
            self._spreads.append(None if own.deviation is None else self._spread(d))
            self._backgrounds.append(
                None if own.flag is None else self._background(own.flag, d, domain.values.shape)
            )
        self._kept = [Kept() for _ in graphs.data]
        self._kept_backgrounds = [Kept() for _ in graphs.data]
        self._gamma = None if precision is None else context.gamma_prior(precision)
        # A reading must not keep its model alive (see `structure.read`).
        del self._model

    def _part(self, graph: RV, d: int | None, finish: Callable) -> _Part:
        """Make a part in which nothing is probed: neither clusters nor latent vectors enter it."""
        stands, values = self._stands(d, None)
        return _Part(self._model, graph, stands, [values], finish)

    def _noise(self, d: int, stands: tuple[list, list[NDArray]]) -> _Part:
        """Make the part with the root of a domain's noise precision."""
        own, m = self.graphs.observed[d], self.graphs.data[d].values.shape[1]
        return _Part(
            self._model,
            own.scale,
            stands[0],
            [stands[1]],
            lambda found: noise_root(own, found[0], m),
        )

    def _spread(self, d: int) -> _Part:
        """Make the part with the scales of a domain's deviations."""
        rv, m = self.graphs.observed[d].deviation, self.graphs.data[d].values.shape[1]
        assert rv is not None
        why = f"the scale of {rv.name!r} differs between clusters"
        return self._part(scale(rv), None, lambda found: _one_row(found[0], m, why))

    def _background(self, flag: RV, d: int, shape: tuple[int, ...]) -> tuple[_Part, _Part]:
        """Make the parts with mean and noise of irrelevant objects, which no cluster enters."""
        own = self._shapes[flag.name]
        stands, values = [(flag, stand_in(flag, own))], [np.zeros(own, flag.dtype)]

        def finish(found):
            return np.broadcast_to(found[0], shape).astype(float)

        centre = _Part(self._model, self.graphs.observed[d].mean, stands, [values], finish)
        return centre, self._noise(d, (stands, values))

    def _stands(self, d: int | None, n: int | None) -> tuple[list, list[NDArray]]:
        """Make inputs for what is replaced, and values for them: all relevant, all else zero.

        With `n`, domain `d` is one of so many objects.
        """
        graphs, stands, values = self.graphs, [], []
        for rv in (graphs.latent, graphs.precision, *graphs.deviations):
            if rv is not None:
                shape = self._shapes[rv.name]
                stands.append((rv, stand_in(rv, shape)))
                values.append(np.full(shape, float(rv is graphs.precision), rv.dtype))
        own = None if d is None else graphs.observed[d]
        for rv in [] if own is None else [own.assignment, own.flag]:
            if rv is not None:
                shape = self._shapes[rv.name] if n is None else (n,)
                stands.append((rv, stand_in(rv, (None,) if n else shape)))
                values.append(np.full(shape, int(own is not None and rv is own.flag), rv.dtype))
        return stands, values

    @property
    def _truncation(self) -> int:
        return self._shapes[self.graphs.latent.name][int(self.graphs.transposed)]

    def _mean(self, context: Context, d: int) -> _Part:
        """Make the part with a domain's mean: its intercept and its projection.

        Read from a few objects alone if their number does not matter to the graph, as it should.
        """
        graphs, own = self.graphs, self.graphs.observed[d]
        n_rows = min(self._truncation, graphs.n_factors + 1)
        n_objects = self._shapes[own.assignment.name][0]
        why: Exception | None = None
        for n in (n_rows, None):
            try:
                part = self._probed_mean(d, n, n_objects)
                part(context.start)
                return part
            except Refusal as refusal:
                why = refusal
            except Exception as error:
                why = Refusal(
                    f"the mean of {own.name!r} is not a function of its objects' clusters alone "
                    f"({type(error).__name__})"
                )
        assert why is not None
        raise why

    def _probed_mean(self, d: int, n: int | None, n_objects: int) -> _Part:
        """Probe a mean: put a cluster at the origin and one at each unit vector.

        They are put there in as many goes as there are rows for.
        """
        graphs, k = self.graphs, self.graphs.n_factors
        own, m = graphs.observed[d], graphs.data[d].values.shape[1]
        n_rows = n or min(self._truncation, n_objects)
        corners = np.vstack([np.zeros((1, k)), np.eye(k)])
        stands, _ = self._stands(d, n)
        probes = []
        for first in range(0, k + 1, n_rows):
            rows = corners[first : first + n_rows]
            _, values = self._stands(d, n)
            for (rv, _), value in zip(stands, values, strict=True):
                if rv is graphs.latent:
                    (value.T if graphs.transposed else value)[: len(rows)] = rows
                elif rv is own.assignment:
                    value[: len(rows)] = np.arange(len(rows))
            probes.append(values)

        def finish(found):
            for values in found:
                if values.shape != (n or n_objects, m):
                    raise Refusal(f"the mean of {own.name!r} has not one row for each object")
            rows = np.concatenate([values[:n_rows] for values in found])[: k + 1]
            return rows[0].copy(), np.ascontiguousarray((rows[1:] - rows[0]).T)

        return _Part(self._model, own.mean, stands, probes, finish)

    def forget(self, points: Sequence[Point], keys: set[str]) -> None:
        """Let means and backgrounds be evaluated no more often than they change.

        `points`: random points of value variables; `keys`: value variables that backgrounds do not
        depend on.
        """
        for mean_part in self._means:
            mean_part.forget(points, set())
        for parts in self._backgrounds:
            for part in parts or ():
                part.forget(points, keys)

    def __call__(self, point: Point) -> Setting:
        """Read the setting at a point of value variables.

        The emission of a domain is the same object as long as nothing of it changes.
        """
        latent_precision = self._latent(point) ** -2.0
        spreads = tuple(None if part is None else part(point) for part in self._spreads)
        own = any(s is not None for s in spreads)

        def emission(d: int, centre: tuple[NDArray, NDArray], root: NDArray, *_: Any) -> Emission:
            intercept, projection = centre
            if own:
                projection = with_deviations(projection, d, spreads, latent_precision)
            return Emission(projection, intercept, root)

        emissions = []
        for d, (mean_part, noise) in enumerate(zip(self._means, self._noises, strict=True)):
            deviations = (spreads[d], latent_precision) if own else ()
            kept = self._kept[d]
            emissions.append(
                kept(partial(emission, d), mean_part(point), noise(point), *deviations)
            )
        gamma = None
        if self._gamma is not None:
            shape, rate = self._gamma(point)
            gamma = float(shape), float(rate)
        return Setting(tuple(emissions), spreads, latent_precision, gamma)

    def background(self, number: int, point: Point) -> Background | None:
        """Read how a domain's irrelevant objects vary, if there may be any.

        It is the same object as long as nothing of it changes.
        """
        parts = self._backgrounds[number]
        if parts is None:
            return None
        name = self.graphs.observed[number].name
        return self._kept_backgrounds[number](Background, name, parts[0](point), parts[1](point))


def _one_number(rv: RV, value: NDArray) -> float:
    number = common(value)
    if number is None:
        raise Refusal(f"the scale of {rv.name!r} is not one number")
    return float(number)


def _one_row(value: NDArray, n: int, why: str) -> NDArray[np.float64]:
    row = common(np.atleast_2d(value), 1)
    if row is None or len(row) not in (1, n):
        raise Refusal(f"{why}; expected one for each feature")
    return np.broadcast_to(row, (n,)).astype(float)


def noise_root(own: Observed, width: NDArray, n: int) -> NDArray[np.float64]:
    """Return L, with noise precision L L', from a standard deviation or a covariance."""
    if own.multivariate:
        covariance = common(width, 2)
        if covariance is None or covariance.shape != (n, n):
            raise Refusal(f"the covariance of {own.name!r} differs between objects; expected one")
        # The inverse of the transposed factor of the covariance is a root of the precision.
        lower = np.linalg.cholesky(covariance)
        return np.ascontiguousarray(np.linalg.inv(lower).T)
    return 1.0 / _one_row(width, n, f"the noise of {own.name!r} differs between objects")
