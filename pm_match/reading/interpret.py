"""Evaluates graphs operation by operation: nothing is copied, rewritten or compiled for it.

To rewrite a graph takes PyTensor a hundred times as long as to evaluate it, and most graphs of a
model are evaluated a handful of times while it is read.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.op import Op
from pytensor.link.c.op import COp
from pytensor.scalar.basic import Cast, Clip, Identity, Second
from pytensor.scalar.math import Softplus
from pytensor.tensor.basic import Alloc
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.linalg import Cholesky, SolveTriangular
from pytensor.tensor.math import Argmax
from pytensor.tensor.random.basic import HalfNormalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.shape import Shape
from pytensor.tensor.subtensor import (
    AdvancedSubtensor,
    Subtensor,
    unflatten_index_variables,
)

from pm_match.reading.ancestry import RV

# What is to stand for a variable: itself, or another one.
Instead = Callable[[RV], RV]
# Matrices of more rows than this are evaluated one by one: calls are few then, and long.
_MOST_ROWS = 50


# An operation, or a graph inside of one; places of its inputs; places of its outputs.
_Step = tuple[Any, list[int], slice]


class NotInterpretedError(Exception):
    """Raised for graphs that are left to PyTensor."""


class Interpreted:
    """A function of the values of `inputs`, and of `others`, which evaluates `outputs`.

    `instead`: what stands for variables, if not they themselves; it is to be of their type. What
    depends on no input, nor on shared variables, is evaluated once. Raises `NotInterpretedError`
    if there are operations that cannot be evaluated by themselves.

    It has `others`: what else the outputs depend on that has no value yet.
    """

    def __init__(self, inputs: Sequence[RV], outputs: Sequence[RV], instead: Instead = lambda v: v):
        self._places: dict[RV, int] = {}
        self._n = 0
        # Operations in an order in which they may be evaluated, with the places of their inputs
        # and outputs; and what is known, by place. Both are replaced at once: threads may share it.
        self._left: tuple[list[_Step], dict[int, Any]] = [], {}
        self._shared: list[tuple[int, SharedVariable]] = []
        self._inputs = [self._place(v) for v in inputs]
        self.others: list[RV] = []
        self._read(outputs, instead)
        self._outputs = [self._places[v] for v in outputs]
        del self._places
        self._program: list[Any] | None = None

    def _place(self, variable: RV) -> int:
        """Make room for the value of a variable."""
        self._places[variable] = self._n
        self._n += 1
        return self._n - 1

    def _read(self, outputs: Sequence[RV], instead: Instead) -> None:
        """Look up the operations that outputs are made by."""
        waiting, stands = [*reversed(outputs)], {}
        while waiting:
            variable = waiting[-1]
            if variable in self._places:
                waiting.pop()
                continue
            node = variable.owner
            for v in (variable, *(node.outputs if node else ())):
                if v not in stands:
                    stands[v] = instead(v)
            replaced = stands[variable] is not variable
            needed = [stands[variable]] if replaced else node.inputs if node else []
            missing = [v for v in needed if v not in self._places]
            if missing:
                waiting += reversed(missing)
            elif replaced:
                self._places[variable] = self._places[stands[variable]]
            elif node is None:
                self._add_leaf(variable)
            else:
                first = self._add(node)
                # An input may be what an operation gives: it is as it is given.
                own = {
                    v: first + n
                    for n, v in enumerate(node.outputs)
                    if stands[v] is v and v not in self._places
                }
                self._places |= own

    def _add_leaf(self, variable: RV) -> None:
        place = self._place(variable)
        if isinstance(variable, Constant):
            self._left[1][place] = variable.data
        elif isinstance(variable, SharedVariable):
            self._shared.append((place, variable))
        else:
            self.others.append(variable)
            self._inputs.append(place)

    def _add(self, node: Apply) -> int:
        """Add an operation; return the place of its first output."""
        given, first = [self._places[v] for v in node.inputs], self._n
        self._n += len(node.outputs)
        op: Any = node.op
        if isinstance(op, Blockwise) and not op.batch_ndim(node):
            op = op.core_op  # without the loop that there is over stacks
        if isinstance(op, OpFromGraph):
            own: Any = Interpreted(op.fgraph.inputs, op.fgraph.outputs)
        else:
            _check(op)
            # Types are all that operations ask of their inputs: the rest of the graph is let go of.
            own = Apply(op, [_bare(v) for v in node.inputs], [v.type() for v in node.outputs])
        self._left[0].append((own, given, slice(first, self._n)))
        return first

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is made ready."""
        return self.__dict__ | {"_program": None}

    def _made_ready(self) -> list[Any]:
        """Evaluate what is constant; return what is left to do, and what may be forgotten when."""
        steps, constants = self._left
        known = dict(constants)
        left, functions = [], []
        for step in steps:
            own, given, places = step
            # Of one output, without a sequence around it.
            quick = _quick(own) if isinstance(own, Apply) else None
            function: Any = quick or _function(own)
            if all(place in known for place in given):
                found = function(*[known[place] for place in given])
                each = [found] if quick else found
                known |= dict(zip(range(places.start, places.stop), each, strict=True))
            else:
                left.append(step)
                functions.append((function, places.start if quick else places))
        used, program = set(self._outputs), []
        for (_, given, _), (function, places) in zip(
            reversed(left), reversed(functions), strict=True
        ):
            last = [place for place in {*given} - used if place not in known]
            used |= {*given}
            program.append((function, given, places, last))
        self._left = left, {place: v for place, v in known.items() if place in used}
        return [*reversed(program)]

    def __call__(self, *values: Any) -> list[NDArray]:
        """Evaluate the outputs: new arrays."""
        with np.errstate(all="ignore"):
            return [np.array(v) for v in self.evaluated(*values)]

    def evaluated(self, *values: Any) -> list[Any]:
        """Evaluate the outputs, which may be the values given, or parts of them."""
        if self._program is None:
            self._program = self._made_ready()
        room: list[Any] = [None] * self._n
        for place, value in self._left[1].items():
            room[place] = value
        for place, variable in self._shared:
            room[place] = variable.get_value(borrow=True)
        for place, value in zip(self._inputs, values, strict=True):
            room[place] = value
        for function, given, places, last in self._program:
            room[places] = function(*[room[place] for place in given])
            for place in last:
                room[place] = None
        return [room[place] for place in self._outputs]


def _bare(variable: RV) -> RV:
    """Return a variable of the same type that nothing made."""
    return variable if variable.owner is None else variable.type()


def _check(op: Any) -> None:
    """Raise for operations that do not evaluate what they are given at once and by themselves."""
    own = type(op)
    plain = own.make_thunk in (Op.make_thunk, COp.make_thunk)
    ready = own.prepare_node is Op.prepare_node or isinstance(op, Elemwise | Blockwise | Argmax)
    if not plain or not ready or own.perform is Op.perform or getattr(op, "destroy_map", None):
        raise NotInterpretedError(op)
    if isinstance(op, Blockwise):
        if isinstance(op.core_op, OpFromGraph):
            raise NotInterpretedError(op)
        _check(op.core_op)


def _function(step: Apply | Interpreted) -> Callable[..., Sequence[Any]]:
    """Make a function of an operation's inputs, which returns its outputs."""
    if isinstance(step, Interpreted):
        return step.evaluated
    node = step.clone()
    op: Any = node.op
    if type(op) is HalfNormalRV:
        op = _HalfNormal(dtype=op.dtype)
    op.prepare_node(node, None, None, "py")
    perform, n = op.perform, len(node.outputs)
    # SciPy fails at a part of an array that was made read-only since, as PyTensor does with some.
    copied = isinstance(op, RandomVariable)

    together = _together(op)

    def performed(*values: Any) -> Sequence[Any]:
        if together is not None:
            at_once = together(*values)
            if at_once is not None:
                return (at_once,)
        if copied:
            values = tuple(np.array(v) if isinstance(v, np.ndarray) else v for v in values)
        found: list[list[Any]] = [[None] for _ in range(n)]
        perform(node, list(values), found)
        return [own for (own,) in found]

    return performed


class _HalfNormal(HalfNormalRV):
    """Draws as PyTensor's does, without `scipy.stats`: its import takes longer than a reading."""

    @classmethod
    def rng_fn_scipy(cls, rng: np.random.Generator, loc: Any, scale: Any, size: Any) -> Any:
        """Draw from a half-normal distribution, as `scipy.stats.halfnorm` does."""
        if not np.all(scale >= 0.0):
            raise ValueError(f"scale: expected nonnegative numbers; found {scale}")
        shape = np.broadcast_shapes(np.shape(loc), np.shape(scale), () if size is None else size)
        if size is not None and shape != tuple(size):
            raise ValueError(f"size: expected {shape}; found {tuple(map(int, size))}")
        if np.all(scale == 0.0):
            return loc * np.ones(shape)
        return np.abs(rng.standard_normal(shape)) * scale + loc


def _quick(node: Apply) -> Callable[..., Any] | None:
    """Return a function of NumPy's for what graphs have most of, far quicker than PyTensor's."""
    op: Any = node.op
    if isinstance(op, DimShuffle):
        return _shuffled(op)
    if isinstance(op, Elemwise):
        return _elementwise(node)
    if isinstance(op, CAReduce):
        found: RV = node.outputs[0]
        along = partial(op.ufunc.reduce, axis=op.axis, dtype=op.acc_dtype or found.dtype)
        return lambda x: np.asarray(along(x), found.dtype)
    if isinstance(op, Alloc):
        return _filled
    if isinstance(op, Shape):
        return lambda x: np.array(x.shape, np.int64)
    own = op.core_op if isinstance(op, Blockwise) else op
    if not isinstance(own, Subtensor | AdvancedSubtensor):
        return None
    entries = tuple(own.idx_list)
    # Of the first axes, one each; no slices.
    plain = entries == tuple(range(len(node.inputs) - 1))
    if own is not op:
        index: list[Any] = node.inputs[1:]
        whole = all(v.dtype != "bool" for v in index)
        return partial(_taken_of_each, op.batch_ndim(node)) if plain and whole else None
    if plain:
        return lambda x, *index: np.asarray(x[index])
    return lambda x, *index: np.asarray(x[unflatten_index_variables(index, entries)])


def _together(op: Any) -> Callable[..., NDArray | None] | None:
    """Return what does an operation on many small matrices at once, by NumPy; None if it fails."""
    own: Any = op.core_op if isinstance(op, Blockwise) else None
    if not isinstance(own, Cholesky | SolveTriangular):
        return None
    lower, unit_diagonal = own.lower, getattr(own, "unit_diagonal", False)
    vectors = getattr(own, "b_ndim", 2) == 1

    def factored(a: NDArray) -> NDArray:
        return np.linalg.cholesky(a) if lower else np.linalg.cholesky(a.mT).mT

    def solved(a: NDArray, b: NDArray) -> NDArray | None:
        n, b = a.shape[-1], b[..., None] if vectors else b
        pivots = np.ones(a.shape[:-1]) if unit_diagonal else np.diagonal(a, axis1=-2, axis2=-1)
        if not (a.shape[-2] == b.shape[-2] == n and pivots.all()):
            return None
        shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        found = np.empty((*shape, *b.shape[-2:]), np.result_type(np.float32, a, b))
        for row in range(n) if lower else reversed(range(n)):
            done = slice(row) if lower else slice(row + 1, n)
            sums = (a[..., row, None, done] @ found[..., done, :])[..., 0, :]
            found[..., row, :] = (b[..., row, :] - sums) / pivots[..., row, None]
        return found[..., 0] if vectors else found

    def together(*given: NDArray) -> NDArray | None:
        a, *right = given
        shapes = [a.shape[:-2], *(b.shape[: -1 if vectors else -2] for b in right)]
        few = math.prod(np.broadcast_shapes(*shapes)) <= a.shape[-1]
        if few or a.shape[-1] > _MOST_ROWS or any(v.dtype.kind not in "fiub" for v in given):
            return None
        try:
            found = solved(*given) if right else factored(a)
        except (np.linalg.LinAlgError, ValueError):
            # One of them at least has no result: PyTensor says which, or why.
            return None
        if found is None:
            return None
        return found.astype(np.result_type(np.float32, *given), copy=False)

    return together


def _shuffled(op: DimShuffle) -> Callable[..., Any]:
    """Return what transposes, and then takes away and adds axes of length 1."""
    axes: Any = (*op.shuffle, *op.drop)
    index = *(None if i == "x" else slice(None) for i in op.new_order), *(0 for _ in op.drop)
    if axes == tuple(range(len(axes))):
        return lambda x: x[index]
    if index == (slice(None),) * len(axes):
        return lambda x: x.transpose(axes)
    return lambda x: x.transpose(axes)[index]


def _elementwise(node: Apply) -> Callable[..., Any] | None:
    """Return NumPy's or SciPy's function for an operation on each entry, where there is one."""
    op: Any = node.op
    output: RV = node.outputs[0]
    if isinstance(op.scalar_op, Second):
        return _second
    if isinstance(op.scalar_op, Identity):
        return lambda x: x
    if isinstance(op.scalar_op, Clip):
        return partial(_clipped, output.dtype)
    inputs: list[RV] = node.inputs
    if isinstance(op.scalar_op, Cast) and not inputs[0].dtype.startswith("complex"):
        return lambda x: np.asarray(x, output.dtype)
    if isinstance(op.scalar_op, Softplus) and inputs[0].dtype == "float64":
        return _softplus
    if op.nfunc_spec is None or op.nfunc_spec[1:] != (len(inputs), 1):
        return None
    ready = node.clone()
    op.prepare_node(ready, None, None, "py")
    function, dtype = op.nfunc, output.dtype
    if "." not in op.nfunc_spec[0] and any(v.dtype.startswith("float") for v in inputs):
        return function
    # Of whole numbers alone, NumPy's results have other types than PyTensor's.
    types = {"sig": ready.tag.sig} if hasattr(ready.tag, "sig") else {}
    return lambda *values: np.asarray(function(*values, **types), dtype)


def _filled(value: NDArray, *shape: Any) -> NDArray:
    """Return a value all over a shape."""
    found = np.empty(shape, value.dtype)
    found[...] = value
    return found


def _taken_of_each(n_axes: int, x: NDArray, *index: NDArray) -> NDArray:
    """Return `x[b][index[b]]` for every place b along some first axes; of length 1, for all."""
    most = max(own.ndim for own in index)
    given = tuple(
        own.reshape(*own.shape[:n_axes], *(1,) * (most - own.ndim), *own.shape[n_axes:])
        for own in index
    )
    if x.shape[:n_axes] == (1,) * n_axes:
        return x[(0,) * n_axes][given]
    places = (
        np.arange(n).reshape(n, *(1,) * (most - axis - 1))
        for axis, n in enumerate(x.shape[:n_axes])
    )
    return x[(*places, *given)]


def _clipped(dtype: str, x: NDArray, low: NDArray, high: NDArray) -> NDArray:
    """Return what is below `low` as that, what is above `high` as that: in this order."""
    return np.where(x < low, low, np.where(x > high, high, x)).astype(dtype, copy=False)


def _softplus(x: NDArray) -> NDArray:
    """Return log(1 + exp(x)), with PyTensor's limits beyond which it is simpler."""
    plain = np.log1p(np.exp(np.minimum(x, 18.0)))
    large = np.where(x < 33.3, x + np.exp(-np.maximum(x, 18.0)), x)
    return np.where(x < -37.0, np.exp(np.minimum(x, 0.0)), np.where(x < 18.0, plain, large))


def _second(like: NDArray, value: NDArray) -> NDArray:
    """Return a value in the shape of it and another array."""
    return np.broadcast_to(value, np.broadcast_shapes(like.shape, value.shape))
