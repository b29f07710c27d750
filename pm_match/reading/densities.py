"""Holds a model's declared log densities against the ones that the steps assume."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.distributions.transforms import CholeskyCovTransform
from pymc.logprob.utils import ParameterValueError
from pymc.model.core import Model

from pm_match.reading.ancestry import RV, Refusal, names
from pm_match.reading.context import Context
from pm_match.reading.probe import log_densities

_TEST_POINTS = 3
_WIDTH = 0.7


class DensityCheck:
    """Declared log densities, entry by entry and at random points, to hold others against.

    Any way of writing the same density agrees; with probability one no other density does.

    Parameters
    ----------
    context : Context
    variables : sequence of variables
        Those whose densities are asked for.
    labels : mapping of variables to int
        How many values the discrete variables have, labels or flags.

    Attributes
    ----------
    points : list of dict
        Random points of the value variables.
    """

    def __init__(self, context: Context, variables: Sequence[RV], labels: Mapping[RV, int]):
        self._context = context
        declared = log_densities(context.model, variables)
        rng = np.random.default_rng(20160401)
        start, n_labels = context.start, {context.key(rv): n for rv, n in labels.items()}
        widths = _widths(context.model, start)
        self.points = [_random_point(rng, start, n_labels, widths) for _ in range(_TEST_POINTS)]
        try:
            self._declared = [declared(point) for point in self.points]
        except ParameterValueError as error:
            # What is declared without its transform may be anything at a random point.
            raise Refusal(
                f"the densities of {names(variables)} are not defined everywhere: "
                f"{str(error).splitlines()[0]}"
            ) from error

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


def _widths(model: Model, start) -> dict[str, float]:
    """Return standard deviations to draw Cholesky factors with, by their value variables' names.

    Of entries of order one, a triangular matrix of twenty rows is as good as singular, and no two
    ways of computing a density would agree.
    """
    found = {}
    for rv, transform in model.rvs_to_transforms.items():
        if isinstance(transform, CholeskyCovTransform):
            name = model.rvs_to_values[rv].name
            found[name] = _WIDTH / np.sqrt(max(1.0, np.shape(start[name])[-1]) ** 0.5)
    return found


def _random_point(rng, start, n_labels, widths) -> dict[str, NDArray]:
    """Draw a point of the value variables, with nothing special about it."""
    point = {}
    for name, value in start.items():
        if name in n_labels:
            drawn = rng.integers(n_labels[name], size=value.shape)
        elif value.dtype.kind == "f":
            drawn = rng.normal(0.0, widths.get(name, _WIDTH), size=value.shape)
        else:
            drawn = value
        point[name] = np.asarray(drawn, dtype=value.dtype)
    return point


def log_normal(x, mean, tau):
    """Log density of Normal(mean, tau=tau)."""
    return 0.5 * (np.log(tau) - np.log(2.0 * np.pi)) - 0.5 * tau * (x - mean) ** 2


def common(values, ndim: int = 0) -> NDArray | None:
    """Return the entry, of `ndim` axes, that all of an array are; None if they differ."""
    values = np.asarray(values)
    rows = values.reshape(-1, *values.shape[values.ndim - ndim :])
    return rows[0] if np.allclose(rows, rows[0], rtol=1e-12, atol=0.0) else None


def same(found, expected) -> bool:
    """Whether two arrays of log densities are the same but for rounding."""
    found = np.asarray(found)
    if found.shape != np.shape(expected):
        return False
    return bool(np.allclose(found, expected, rtol=1e-6, atol=1e-6))
