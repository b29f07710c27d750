"""Holds a model's declared log densities against the ones that the steps assume."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.transforms import CholeskyCovPacked, CholeskyCovTransform
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model
from scipy.special import betaln, gammaln

from pm_match.checks import LARGEST
from pm_match.reading.ancestry import RV, Refusal, kind, names, parameters, undivided
from pm_match.reading.context import Context
from pm_match.reading.laws import DIRICHLET, NORMAL, Law
from pm_match.reading.operations import not_analytic
from pm_match.reading.owners import OTHER_STEPS
from pm_match.reading.parts import UnservedModelError
from pm_match.reading.probe import log_densities

# Points at which there is nothing special, however numbers are scaled.
_TEST_POINTS = 3
_WIDTH = 0.7
# Further points, narrower and wider than these: precisions from 1e-3 to 1e3, and near 1.
_OTHER_WIDTHS = (0.05, 3.5)
# Precisions that are far from others.
FAR = 1e-9, 1e9
# Numbers of all densities that are worth looking at, point by point.
_MOST_NUMBERS = 4_000_000


class DensityCheck:
    """Declared log densities, entry by entry and at random points, to hold others against.

    Any way of writing the same density agrees. No other one does: what enters the densities of
    `variables` is analytic, so that random points tell for all values of what is continuous; and of
    what is discrete, every value is looked at, of every object where there are not too many.

    Parameters
    ----------
    context : Context
    variables : sequence of variables
        Those whose densities are asked for.
    labels : mapping of variables to int
        How many values the discrete variables have, labels or flags.
    analytic : callable, optional
        Which parameters of a variable's distribution have to be analytic. Default: all; those that
        are read anew at every point, and of which nothing else is assumed, may be left out.

    Attributes
    ----------
    points : list of dict
        Random points of the value variables.

    Raises
    ------
    Refusal
        If an operation that is not analytic enters a density, or one is not defined everywhere.
    """

    def __init__(
        self,
        context: Context,
        variables: Sequence[RV],
        labels: Mapping[RV, int],
        analytic: Callable[[RV], Sequence[RV]] = parameters,
    ):
        self._context = context
        for rv in (*variables, *labels):
            must_be_analytic(context, rv, analytic)
        declared = log_densities(context.model, variables)
        rng = np.random.default_rng(20160401)
        values = _values_of_labels(rng, context, labels, variables)
        planned = [(_WIDTH, own) for own in values]
        planned += zip(_OTHER_WIDTHS, values, strict=False)
        self.points, self._declared = [], []
        for width, own in planned:
            point = random_point(rng, context, width) | own
            try:
                found = declared(point)
            except ParameterValueError as error:
                if width not in _OTHER_WIDTHS:
                    # What is declared without its transform may be anything at a random point.
                    raise Refusal(
                        f"the densities of {names(variables)} are not defined everywhere: "
                        f"{str(error).splitlines()[0]}"
                    ) from error
                continue
            self.points.append(point)
            self._declared.append(found)
        for rv in variables:
            somewhere = np.any([np.isfinite(own) for own in self.declared(rv)], axis=0)
            if not somewhere.all() and self._may_have_a_density(rv):
                place = np.argwhere(~somewhere)[0].tolist()
                raise Refusal(
                    f"{rv.name!r}{place or ''} has no density at any of the points that were tried"
                )

    def _may_have_a_density(self, rv: RV) -> bool:
        """Whether a variable is no data that are out of bounds, which kinds refuse themselves."""
        seen = rv in self._context.model.observed_RVs
        return not seen or bool((np.abs(self._context.observed([rv])) <= LARGEST).all())

    def declared(self, rv: RV) -> list[NDArray]:
        """Return the declared log density of a variable at every point."""
        return [np.asarray(declared[rv]) for declared in self._declared]

    def value(self, number: int, rv: RV) -> NDArray:
        """Return the value of a variable at a point, in the space that is sampled."""
        return self.points[number][self._context.key(rv)]

    def at(self, outputs: Sequence[RV]) -> list[list[NDArray]]:
        """Evaluate `outputs` at every point."""
        return [*map(self._context.at(outputs), self.points)]

    def natural(self, rv: RV) -> list[NDArray]:
        """Return the values of a variable itself at every point."""
        return [value for (value,) in self.at([rv])]

    def agrees(self, rv: RV, expected: Sequence[NDArray]) -> bool:
        """Whether the declared log density of a variable is as expected, at every point."""
        found = self.declared(rv)
        return all(same(f, e) for f, e in zip(found, expected, strict=True))

    def is_normal(self, rv: RV, moments: Iterable[tuple[Any, Any]]) -> bool:
        """Whether a variable is declared normal with these means and precisions, by point."""
        key = self._context.key(rv)
        both = zip(self.points, moments, strict=True)
        return self.agrees(rv, [log_normal(point[key], *own) for point, own in both])


def must_be_analytic(
    context: Context, rv: RV, analytic: Callable[[RV], Sequence[RV]] = parameters
) -> None:
    """Refuse a variable whose distribution random points do not tell."""
    name = not_analytic(context.model, analytic(undivided(rv)))
    if name is not None:
        raise Refusal(
            f"{rv.name!r} depends on free variables by way of {name!r}, which is not analytic; "
            "expected sums, products, powers, exponentials and the like"
        )


def _values_of_labels(
    rng: np.random.Generator,
    context: Context,
    labels: Mapping[RV, int],
    variables: Sequence[RV],
) -> list[dict[str, NDArray]]:
    """Draw values of discrete variables for every point.

    Every object has every label once, relevant and irrelevant; or if that were too much to look at,
    every assignment has. Then labels are the digits of objects' numbers, which tell them apart; of
    millions of numbers, only the first ones, or none.
    """
    shapes = {rv: context.shapes[rv.name] for rv in labels}
    sizes = {rv: max(int(np.prod(shape)), 1) for rv, shape in shapes.items()}
    flags = [rv for rv in labels if kind(rv) == "Bernoulli"]
    n_labels = max((n for rv, n in labels.items() if rv not in flags), default=1)
    n_numbers = max(sum(_size(context, rv) for rv in variables), 1)
    least = max((-(-n // sizes[rv]) for rv, n in labels.items()), default=1)
    whole = n_labels * (2 if flags else 1)
    n_points = max(least, min(whole, _MOST_NUMBERS // n_numbers))
    found: list[dict[str, NDArray]] = [{} for _ in range(max(n_points, _TEST_POINTS))]
    for rv, n in labels.items():
        start, key = rng.permutation(sizes[rv]).reshape(shapes[rv]), context.key(rv)
        for place, values in enumerate(found):
            # Flags stay while labels go round.
            turn = place // n_labels if rv in flags else place
            values[key] = np.asarray((start + turn) % n, context.start[key].dtype)
    sized = [(sizes[rv], n) for rv, n in labels.items() if rv not in flags and n > 1]
    n_digits = max((math.ceil(math.log(size, n)) for size, n in sized), default=0)
    for digit in range(min(n_digits, _MOST_NUMBERS // n_numbers - len(found))):
        found.append({})
        for rv, n in labels.items():
            own = np.ones(sizes[rv]) if rv in flags else np.arange(sizes[rv]) // n**digit % n
            key = context.key(rv)
            found[-1][key] = np.asarray(own.reshape(shapes[rv]), context.start[key].dtype)
    return found


def _size(context: Context, rv: RV) -> int:
    """How many numbers a variable has."""
    if rv.name in context.shapes:
        return int(np.prod(context.shapes[rv.name]))
    return context.observed([rv]).size


def random_point(rng: np.random.Generator, context: Context, width: float) -> dict[str, NDArray]:
    """Draw a point of the value variables, with nothing special about it; no discrete ones."""
    point, widths = {}, _widths(context.model, context.start)
    for name, value in context.start.items():
        continuous = value.dtype.kind == "f"
        drawn = rng.normal(0.0, widths.get(name, width), size=value.shape) if continuous else value
        point[name] = np.asarray(drawn, dtype=value.dtype)
    return point


def _widths(model: Model, start) -> dict[str, float]:
    """Return standard deviations to draw Cholesky factors with, by their value variables' names.

    Of entries of order one, a triangular matrix of twenty rows is as good as singular, and no two
    ways of computing a density would agree.
    """
    found = {}
    for rv, transform in model.rvs_to_transforms.items():
        if isinstance(transform, CholeskyCovTransform | CholeskyCovPacked):
            name = model.rvs_to_values[rv].name
            found[name] = _WIDTH / np.sqrt(max(1.0, np.shape(start[name])[-1]) ** 0.5)
    return found


def log_normal(x: Any, mean: Any, tau: Any) -> Any:
    """Log density of Normal(mean, tau=tau)."""
    return 0.5 * (np.log(tau) - np.log(2.0 * np.pi)) - 0.5 * tau * (x - mean) ** 2


def log_beta(log_x: Any, log_rest: Any, a: Any, b: Any) -> Any:
    """Log density of Beta(a, b) at x, given as the logs of x and of 1 - x."""
    return (a - 1.0) * log_x + (b - 1.0) * log_rest - betaln(a, b)


def log_gamma(log_x: Any, shape: Any, rate: Any) -> Any:
    """Log density of Gamma(shape, rate) at x, given as its log."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1.0) * log_x - rate * np.exp(log_x)


def common(values: Any, ndim: int = 0) -> NDArray | None:
    """Return the entry, of `ndim` axes, that all of an array are; None if they differ."""
    values = np.asarray(values)
    rows = values.reshape(-1, *values.shape[values.ndim - ndim :])
    alike = (rows == rows[0]).all() or np.allclose(rows, rows[0], rtol=1e-12, atol=0.0)
    return rows[0] if alike else None


def still_common(values: Any, ndim: int, of: str, advice: str = OTHER_STEPS) -> NDArray:
    """Return the entry, of `ndim` axes, that all of some parameters are at a draw.

    `of`: what has them. Raise `UnservedModelError` if they differ, as they did nowhere that the
    model was read at.
    """
    values = np.asarray(values)
    axes = values.ndim - ndim
    if values.size == 1 or not any(values.strides[:axes]):
        # One number, or one entry that was broadcast.
        return values[(0,) * axes]
    found = common(values, ndim)
    if found is None and np.isnan(values).all():
        # It is defined for none of them.
        return values.reshape(-1, *values.shape[axes:])[0]
    if found is None:
        raise UnservedModelError(
            f"{of}: expected the same everywhere, as it was wherever the model was read; found a "
            f"draw at which it differs. {advice}"
        )
    return found


def common_prior(
    context: Context, declared: Sequence[RV], law: Law, check: DensityCheck, ndim: int = 0
) -> Callable[[Any], list[NDArray]]:
    """Make a reader of what parameters of clusters have for a conjugate prior, at a point.

    `declared`: a variable of the `law`, or means and their Gamma precisions; `ndim`: axes along
    which priors may differ. Of means it reads place and precision; these for precisions of 1, if
    the means have some of their own, and shape and rate after them.

    Refuse priors that differ between clusters, and precisions of means that are no multiple of
    their own.
    """
    first, *precisions = declared
    shape, of = context.shapes[first.name], f"the prior of {names(declared)}"

    def of_means(tau: float = 1.0) -> Callable[[Any], Any]:
        return context.normal_prior(first, givens={rv: np.full(shape, tau) for rv in precisions})

    def arranged(*values: NDArray) -> list[NDArray]:
        # What may differ nowhere needs no axes, which take a while to make.
        return [np.broadcast_to(own, shape) for own in values] if ndim else [*values]

    if law is NORMAL:
        reads = [of_means(), *map(context.gamma_prior, precisions)]
    else:
        graphs = law.arguments(first)[: 1 if law is DIRICHLET else 2]
        reads = [context.prior(graphs, arranged)]

    def read(point: Any) -> list[NDArray]:
        return [value for own in reads for value in own(point)]

    for point in (*check.points, context.start):
        if any(common(value, ndim) is None for value in read(point)):
            raise Refusal(f"{of} differs between clusters; expected the same for all")
    if precisions:
        moments = []
        for point, tau in zip(check.points, check.natural(precisions[0]), strict=True):
            m, k = read(point)[:2]
            moments.append((m, k * tau))
        # What is added to a precision does not show where that is near 1.
        point = check.points[0]
        kappas = [of_means(tau)(point)[1] / tau for tau in FAR]
        fine = all(np.allclose(k, read(point)[1], rtol=1e-7, atol=0.0) for k in kappas)
        if not fine or not check.is_normal(first, moments):
            raise Refusal(
                f"{first.name!r}: its declared log density is not that of Normal(m, tau=kappa * "
                f"{precisions[0].name}), the conjugate prior"
            )
    return lambda point: [still_common(value, ndim, of) for value in read(point)]


def same(found: Any, expected: Any) -> bool:
    """Whether two arrays of log densities are the same but for rounding."""
    found = np.asarray(found)
    if found.shape != np.shape(expected):
        return False
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-6))
