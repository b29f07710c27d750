"""Reads networks that are declared in plain PyMC: entries of a matrix that two labels choose.

``pm.Bernoulli("edge", p=density[row[:, None], column], observed=x)`` is a network, and so is a list
of its cells, ``density[row[i], column[j]]``. They are read by numbers, whatever the graph: every
entry of the density gets a value of its own, and digits of the objects' numbers are used as labels,
so that each entry of the data says which objects it is of. What was found is then held against the
declaration at random labels and densities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
import scipy
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import (
    BernoulliRV,
    CategoricalRV,
    NegBinomialRV,
    NormalRV,
    PoissonRV,
)
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy.sparse.linalg import lsqr

from pm_match.networks.data import Family, count_cells
from pm_match.networks.op import BlockNetworkParts, read_block_network
from pm_match.reading.ancestry import RV, parameters
from pm_match.reading.context import Context

_FAMILIES: dict[type, Family] = {
    BernoulliRV: "bernoulli",
    PoissonRV: "poisson",
    NegBinomialRV: "negative-binomial",
    NormalRV: "normal",
}
# At how many random points a parameter has to be what was found.
_N_POINTS = 3
# Rounding errors are less, relative.
_CLOSE = 1e-10
# Rounds after which exposures are products of vectors, or never.
_MOST_ROUNDS = 1000

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def read_network(context: Context, rv: RV) -> BlockNetworkParts | None:
    """Read a network back from its variable, whichever way it is declared; None if it is none."""
    return read_block_network(rv) or context.once(_read_plain, rv)


def _read_plain(context: Context, rv: RV) -> BlockNetworkParts | None:
    family = _FAMILIES.get(type(rv.owner.op))
    if family is None:
        return None
    graphs, number = parameters(rv), None
    if family == "normal":
        graphs = [graphs[0], graphs[1] ** -2.0]
    elif family == "negative-binomial":
        number, *graphs = graphs
    if not all(_n_label_indices(context, graph) >= 2 for graph in graphs):
        return None
    missing = context.is_missing(rv)
    shape = context.shapes[rv.name] if missing else context.observed([rv]).shape
    choices = [_read_choice(context, graph, shape) for graph in graphs]
    first = choices[0]
    if first is None or not all(c is not None and first.is_like(c) for c in choices):
        return None
    if family != "poisson" and not all(c is None or _is_one(c.factor) for c in choices):
        return None
    exposure = first.factor
    if number is not None:
        if context.ancestry.of([number]):
            return None
        (exposure,) = context.at([pt.broadcast_to(number, shape).ravel()])({})
    sizes = [context.shapes[own.name][0] for own in first.axes]
    exposures = _by_axis(exposure, first.cells, sizes, first.symmetric)
    if exposures is None:
        return None
    loops = first.one_mode and bool((first.cells[:, 0] == first.cells[:, 1]).any())
    n_cells = count_cells(sizes, first.one_mode, first.symmetric, loops)
    return BlockNetworkParts(
        density=tuple(choice.density for choice in choices if choice),
        noise=(),
        axes=first.axes,
        relevance=(None,) * len(sizes),
        exposure=exposures,
        unknown=first.cells[:0],
        family=family,
        one_mode=first.one_mode,
        symmetric=first.symmetric,
        self_loops=loops,
        # Cells that are there twice are refused later, in words.
        absent="zero" if len(first.cells) >= n_cells else "unknown",
        cells=first.cells,
    )


@dataclass(frozen=True, eq=False)
class _Choice:
    """A parameter each of whose entries is a factor times what labels choose of a density."""

    density: RV
    axes: tuple[RV, ...]  # the assignment on each axis of the density
    cells: Integers  # (E, A): the objects that each of the E entries is of
    symmetric: bool  # whether the two labels are sorted, so that the upper triangle serves both
    factor: Array  # (E,)

    @property
    def one_mode(self) -> bool:
        """Whether both axes are of the same objects."""
        return len(self.axes) == 2 and self.axes[0] is self.axes[1]

    def is_like(self, other: "_Choice") -> bool:
        """Whether another parameter is chosen by the same labels."""
        same = self.axes == other.axes and self.symmetric == other.symmetric
        return same and np.array_equal(self.cells, other.cells)


def _read_choice(context: Context, graph: RV, shape: tuple[int, ...]) -> _Choice | None:
    """Find by numbers what the entries of a parameter are; None if it is no choice by labels."""
    parents = context.ancestry.of([graph])
    free = [rv for rv in context.model.free_RVs if rv in parents]
    densities = [rv for rv in free if not _is_assignment(rv)]
    if len(free) < len(parents) or len(densities) != 1 or densities[0].type.ndim < 2:
        return None
    (density,), assignments = densities, [rv for rv in free if _is_assignment(rv)]
    if min(context.shapes[density.name]) < 2 or any(rv.type.ndim != 1 for rv in assignments):
        return None
    return _Probe(context, pt.broadcast_to(graph, shape).ravel(), density, assignments).read()


class _Probe:
    """The entries of a parameter (E,), as a function of a density and of labels."""

    def __init__(self, context: Context, graph: RV, density: RV, assignments: list[RV]):
        self.density, self.assignments = density, assignments
        self.dims = context.shapes[density.name]
        self.sizes = {rv: context.shapes[rv.name][0] for rv in assignments}
        # labels that each assignment may have
        chances = [parameters(rv)[0].shape[-1] for rv in assignments]
        self.n_labels = dict(
            zip(assignments, map(int, context.at(chances)(context.start)), strict=True)
        )
        self._call = context.function([graph], [density, *assignments])
        self.factor = self._at(
            np.ones(self.dims), {rv: np.zeros(n) for rv, n in self.sizes.items()}
        )

    def _at(self, density: Array, labels: Mapping[RV, NDArray]) -> Array:
        values = {self.density: density, **labels}
        return self._call({rv: np.asarray(value, rv.dtype) for rv, value in values.items()})[0]

    def read(self) -> _Choice | None:
        """Find the cells of the entries; None if they are something else."""
        if not (np.isfinite(self.factor) & (self.factor > 0.0)).all():
            return None
        owners = [
            (self._chosen({rv: np.full(n, rv is own) for rv, n in self.sizes.items()}) == 1).all(0)
            for own in self.assignments
        ]
        if not (np.sum(owners, axis=0) == 1).all():
            return None
        axes = tuple(self.assignments[number] for number in np.argmax(owners, axis=0))
        if any(self.n_labels[rv] > n for rv, n in zip(axes, self.dims, strict=True)):
            return None
        cells = self._numbers(np.asarray)
        choice = _Choice(self.density, axes, cells, False, self.factor)
        if choice.one_mode and not self._agrees(choice):
            # Labels that are sorted tell of two numbers their sum, and the sum of their squares.
            total, squares = cells.sum(axis=1), self._numbers(np.square).sum(axis=1)
            apart = np.rint(np.sqrt(np.maximum(2 * squares - total**2, 0))).astype(np.int64)
            cells = np.stack([total - apart, total + apart], axis=1) // 2
            choice = replace(choice, cells=cells, symmetric=True)
        return choice if self._agrees(choice) else None

    def _chosen(self, labels: Mapping[RV, NDArray]) -> Integers:
        """Say which entry of the density each entry is, (E, A); -1 if it is none."""
        n = int(np.prod(self.dims))
        number = self._at(np.arange(1.0, n + 1.0).reshape(self.dims), labels) / self.factor - 1.0
        place = np.clip(np.rint(number), 0, n - 1).astype(np.int64)
        found = np.stack(np.unravel_index(place, self.dims), axis=1)
        return np.where((np.abs(number - place) < 1e-6 * n)[:, None], found, -1)

    def _numbers(self, number: Callable[[Integers], Integers]) -> Integers:
        """Read a number of each entry's objects, (E, A), digit by digit."""
        own = {rv: number(np.arange(size)) for rv, size in self.sizes.items()}
        found = np.zeros((len(self.factor), len(self.dims)), np.int64)
        for digit in range(max(int(numbers.max()) for numbers in own.values()).bit_length()):
            labels = {rv: (numbers >> digit) & 1 for rv, numbers in own.items()}
            found += self._chosen(labels) << digit
        return found

    def _agrees(self, choice: _Choice) -> bool:
        """Whether the entries are what was found, at random points."""
        sizes = np.array([self.sizes[rv] for rv in choice.axes])
        if not ((choice.cells >= 0) & (choice.cells < sizes)).all():
            return False
        rng = np.random.default_rng(20170401)
        for _ in range(_N_POINTS):
            density = rng.uniform(0.1, 0.9, self.dims)
            labels = {rv: rng.integers(self.n_labels[rv], size=n) for rv, n in self.sizes.items()}
            own = [labels[rv][i] for rv, i in zip(choice.axes, choice.cells.T, strict=True)]
            if choice.symmetric:
                own = [np.minimum(*own), np.maximum(*own)]
            expected = self.factor * density[tuple(own)]
            if not np.allclose(self._at(density, labels), expected, rtol=_CLOSE, atol=0.0):
                return False
        return True


def _n_label_indices(context: Context, graph: RV) -> int:
    """Count the indices of a graph that depend on labels."""
    return sum(
        any(map(_is_assignment, context.ancestry.of([index])))
        for variable in ancestors([graph], blockers=context.model.basic_RVs)
        if variable.owner is not None and isinstance(variable.owner.op, AdvancedSubtensor)
        for index in variable.owner.inputs[1:]
    )


def _is_assignment(rv: RV) -> bool:
    return isinstance(rv.owner.op, CategoricalRV)


def _by_axis(
    exposure: Array, cells: Integers, sizes: list[int], symmetric: bool
) -> tuple[Array | None, ...] | None:
    """Find exposures of objects whose products are those of cells; None if there are none.

    Those of both axes of a symmetric network are the same.
    """
    if _is_one(exposure):
        return (None,) * len(sizes)
    if not (np.isfinite(exposure) & (exposure > 0.0)).all():
        return None
    first = np.cumsum([0, *sizes[:-1]]) * (not symmetric)
    rows, n = np.arange(len(cells)).repeat(len(sizes)), int(first[-1]) + sizes[-1]
    ends = (np.ones(cells.size), (rows, (cells + first).ravel()))
    products = scipy.sparse.csr_array(ends, shape=(len(cells), n))
    logs = np.log(exposure)
    found = lsqr(products, logs, atol=0.0, btol=0.0, conlim=0.0, iter_lim=_MOST_ROUNDS)[0]
    if np.abs(products @ found - logs).max() > _CLOSE:
        return None
    each = np.exp(found)
    return tuple(each[start : start + size] for start, size in zip(first, sizes, strict=True))


def _is_one(factor: Array) -> bool:
    return bool((np.abs(factor - 1.0) < _CLOSE).all())
