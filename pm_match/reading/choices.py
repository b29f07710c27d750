"""Parameters whose entries are what the labels of several objects choose of one variable.

Such as the probabilities of edges, ``density[row[:, None], column]``. They are read by numbers,
whatever the graph: every entry of the density gets a value of its own, and digits of the objects'
numbers are used as labels, so that each entry tells which objects it belongs to. What was found is
then held against the declaration: by its graph, it is linear in the density, and labels do nothing
but choose; every object has every label once, and every pair of labels meets somewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import (
    Abs,
    Add,
    Cast,
    Identity,
    Mul,
    Pow,
    ScalarMaximum,
    ScalarMinimum,
    Sign,
    Sqrt,
    Sub,
    TrueDiv,
)
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pm_match.reading.ancestry import RV
from pm_match.reading.context import Context
from pm_match.reading.laws import is_constant
from pm_match.reading.owners import binary_digits, from_digits, mixed_labels

# What leaves values as they are, and puts them elsewhere.
_PLACES = (AdvancedSubtensor, Subtensor, DimShuffle, Reshape, Alloc, SpecifyShape, ViewOp)
# Rounding errors are less, relative.
CLOSE = 1e-10

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Choice:
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

    def is_like(self, other: "Choice") -> bool:
        """Whether another parameter is chosen by the same labels."""
        same = self.axes == other.axes and self.symmetric == other.symmetric
        return same and np.array_equal(self.cells, other.cells)


def read_choice(context: Context, graph: RV, shape: tuple[int, ...]) -> Choice | None:
    """Find by numbers what the entries of a parameter are; None if it is no choice by labels.

    Parameters
    ----------
    context : Context
    graph : variable
        The parameter, of random variables.
    shape : tuple of int
        That of what is observed, to which it is broadcast.
    """
    parents = context.ancestry.of([graph])
    free = [rv for rv in context.model.free_RVs if rv in parents]
    densities = [rv for rv in free if not _is_assignment(rv)]
    if len(free) < len(parents) or len(densities) != 1 or densities[0].type.ndim < 2:
        return None
    (density,), assignments = densities, [rv for rv in free if _is_assignment(rv)]
    if min(context.shapes[density.name]) < 2 or any(rv.type.ndim != 1 for rv in assignments):
        return None
    if not _is_linear(graph, density, assignments):
        return None
    entries = pt.broadcast_to(graph, shape).ravel()
    try:
        return _Probe(context, entries, density, assignments).read()
    except (IndexError, ValueError, AssertionError):
        # Of labels or densities that it is not made for.
        return None


def _is_linear(graph: RV, density: RV, assignments: list[RV]) -> bool:
    """Whether a graph is linear in a density, and labels do nothing in it but choose.

    That is, by its operations: numbers alone would not show what happens to few of them.
    """
    # By variable: whether the density's values enter it, and whether labels do.
    inside = {density: (True, False)} | dict.fromkeys(assignments, (False, True))

    def look(variable: RV) -> tuple[bool, bool]:
        if variable not in inside:
            node = variable.owner
            if node is None or isinstance(node.op, Shape | Shape_i | RandomVariable):
                return False, False
            entered = [look(v) for v in node.inputs]
            if any(own or by_label for own, by_label in entered) and not _is_choice(node, entered):
                raise _OtherwiseError
            inside[variable] = any(own for own, _ in entered), any(own for _, own in entered)
        return inside[variable]

    try:
        return look(graph)[0]
    except _OtherwiseError:
        return False


class _OtherwiseError(Exception):
    """A graph is something else."""


def _is_choice(node: Apply, entered: list[tuple[bool, bool]]) -> bool:
    """Whether an operation is linear in the density, and its labels are nothing but chosen by.

    `entered`: for every input, whether the density and labels enter it.
    """
    core = getattr(node.op, "core_op", node.op)
    n_own = sum(own for own, _ in entered)
    # Neither the density's, nor free of labels.
    beside = any(by_label and not own for own, by_label in entered)
    if isinstance(node.op, Elemwise):
        scalar = node.op.scalar_op
        if n_own == 0:
            return isinstance(scalar, Cast | Identity | ScalarMinimum | ScalarMaximum)
        if isinstance(scalar, Mul):
            return n_own == 1 and not beside
        if isinstance(scalar, TrueDiv):
            return n_own == 1 and entered[0][0] and not beside
        return isinstance(scalar, Add | Sub | Cast | Identity) and not beside
    if isinstance(core, Dot):
        return n_own <= 1
    return isinstance(core, _PLACES) and not any(own for own, _ in entered[1:])


def precision(scale: RV) -> RV:
    """Return what a standard deviation is one over the square root of, in the ways of `pm.Normal`.

    What is in another way is a power of itself, which is not linear.
    """
    node = scale.owner
    if node is None:
        return scale**-2.0
    if isinstance(getattr(node.op, "core_op", node.op), _PLACES):
        inside, *where = node.inputs
        return node.clone_with_new_inputs([precision(inside), *where], strict=False).outputs[0]
    if _is_one_over(node):
        root = node.inputs[1].owner
        if root is not None and _is_scalar(root, Sqrt):
            return root.inputs[0]
    if _is_scalar(node, Sqrt):
        inside = node.inputs[0].owner
        if inside is not None and _is_one_over(inside):
            return inside.inputs[1]
    if _is_scalar(node, Pow) and is_constant(node.inputs[1], -0.5):
        return node.inputs[0]
    if _is_scalar(node, Mul) and len(node.inputs) == 2:
        # That of a `tau`: one over the root of its size, and its sign.
        power, sign = (factor.owner for factor in node.inputs)
        if power is not None and _is_scalar(power, Pow) and is_constant(power.inputs[1], -0.5):
            size = power.inputs[0].owner
            both = size is not None and sign is not None and size.inputs == sign.inputs
            if both and _is_scalar(size, Abs) and _is_scalar(sign, Sign):
                return size.inputs[0]
    return scale**-2.0


def _is_scalar(node: Apply, op: type) -> bool:
    return isinstance(getattr(node.op, "scalar_op", None), op)


def _is_one_over(node: Apply) -> bool:
    return _is_scalar(node, TrueDiv) and is_constant(node.inputs[0], 1.0)


class _Probe:
    """The entries of a parameter (E,), as a function of a density and of labels."""

    def __init__(self, context: Context, graph: RV, density: RV, assignments: list[RV]):
        self.density, self.assignments = density, assignments
        self.dims = context.shapes[density.name]
        self.sizes = {rv: context.shapes[rv.name][0] for rv in assignments}
        self.n_labels = {rv: context.n_labels(rv) for rv in assignments}
        self._call = context.function([graph], [density, *assignments])
        self.factor = self._at(
            np.ones(self.dims), {rv: np.zeros(n) for rv, n in self.sizes.items()}
        )

    def _at(self, density: Array, labels: Mapping[RV, NDArray]) -> Array:
        values = {self.density: density, **labels}
        return self._call({rv: np.asarray(value, rv.dtype) for rv, value in values.items()})[0]

    def read(self) -> Choice | None:
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
        choice = Choice(self.density, axes, cells, False, self.factor)
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
        number = np.where(np.isfinite(number), number, -1.0)
        place = np.clip(np.rint(number), 0, n - 1).astype(np.int64)
        found = np.stack(np.unravel_index(place, self.dims), axis=1)
        return np.where((np.abs(number - place) < 1e-6 * n)[:, None], found, -1)

    def _numbers(self, number: Callable[[Integers], Integers]) -> Integers:
        """Read a number of each entry's objects, (E, A), digit by digit."""
        own = {rv: number(np.arange(size)) for rv, size in self.sizes.items()}
        most = max(int(numbers.max()) for numbers in own.values())
        rows = zip(*(binary_digits(numbers, most) for numbers in own.values()), strict=True)
        return from_digits(self._chosen(dict(zip(own, labels, strict=True))) for labels in rows)

    def _agrees(self, choice: Choice) -> bool:
        """Whether the entries are what was found, for all labels of objects, and all pairs."""
        sizes = np.array([self.sizes[rv] for rv in choice.axes])
        if not ((choice.cells >= 0) & (choice.cells < sizes)).all():
            return False
        most = tuple(self.n_labels[rv] for rv in choice.axes)
        rng, met = np.random.default_rng(20170401), np.zeros(most, bool)
        density = rng.uniform(0.1, 0.9, self.dims)

        def fails(labels: Mapping[RV, Integers]) -> bool:
            own = [labels[rv][i] for rv, i in zip(choice.axes, choice.cells.T, strict=True)]
            met[tuple(own)] = True
            if choice.symmetric:
                own = [np.minimum(*own), np.maximum(*own)]
            expected = self.factor * density[tuple(own)]
            return not np.allclose(self._at(density, labels), expected, rtol=CLOSE, atol=0.0)

        rows: dict[RV, Integers] = {
            rv: mixed_labels(rng, self.n_labels[rv], n) for rv, n in self.sizes.items()
        }
        for turn in range(max(most)):
            if fails({rv: labels[turn % len(labels)] for rv, labels in rows.items()}):
                return False
        for pair in np.argwhere(~met):
            if met[tuple(pair)]:
                continue
            # Of one assignment on both axes, half of the objects have the first label.
            half = {rv: rng.random(n) < 0.5 for rv, n in self.sizes.items()}
            last = dict(zip(choice.axes, pair.tolist(), strict=True))
            first = dict(zip(choice.axes[::-1], pair[::-1].tolist(), strict=True))
            if fails({rv: first[rv] * own + last[rv] * ~own for rv, own in half.items()}):
                return False
        return True


def n_label_indices(context: Context, graph: RV) -> int:
    """Count the indices of a graph that depend on labels."""
    return sum(
        any(map(_is_assignment, context.ancestry.of([index])))
        for variable in ancestors([graph], blockers=context.model.basic_RVs)
        if variable.owner is not None and isinstance(variable.owner.op, AdvancedSubtensor)
        for index in variable.owner.inputs[1:]
    )


def _is_assignment(rv: RV) -> bool:
    return isinstance(rv.owner.op, CategoricalRV)
