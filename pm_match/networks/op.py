"""The op behind `BlockNetwork`: its inputs and options, and reading them back from a variable."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.distribution import _support_point
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pm_match.networks.data import Family
from pm_match.networks.draws import Inputs, draw_table
from pm_match.reading.ancestry import itself


class BlockNetworkRV(RandomVariable):
    """The op behind `BlockNetwork`.

    Inputs are `rng`, `size` (None), the densities (a mean and a precision if the family is normal),
    the noise (as many scalars, or none), the assignments (one in a one-mode network), the relevance
    vectors of the axes that have one, the exposures of the axes that have them, and a constant
    matrix of cells: the unknown ones if absent cells are zero, else the known ones.

    `relevance` and `exposure` say for each axis whether it has one, `max_edges` is the number of
    rows of a draw, and `variable` the name that messages use.
    """

    name = "block_network"
    dtype = "float64"
    _print_name = ("BlockNetwork", "\\operatorname{BlockNetwork}")
    __props__ = (  # type: ignore[assignment]
        "name",
        "signature",
        "dtype",
        "inplace",
        "variable",
        "family",
        "n_axes",
        "one_mode",
        "symmetric",
        "self_loops",
        "absent",
        "relevance",
        "exposure",
        "max_edges",
    )

    def __init__(
        self,
        *,
        family: Any,
        n_axes: int,
        one_mode: bool,
        symmetric: bool,
        self_loops: bool,
        absent: Any,
        relevance: Sequence[bool],
        exposure: Sequence[bool],
        max_edges: int,
        variable: str = "BlockNetwork",
        name: Any = None,
        signature: Any = None,
        dtype: Any = None,
        inplace: Any = None,
    ):
        self.variable = variable
        self.family = family
        self.n_axes = n_axes
        self.one_mode = one_mode
        self.symmetric = symmetric
        self.self_loops = self_loops
        self.absent = absent
        self.relevance = tuple(relevance)
        self.exposure = tuple(exposure)
        self.max_edges = max_edges
        objects = ["n0"] * n_axes if one_mode else [f"n{axis}" for axis in range(n_axes)]
        different = objects[: self._n_different]
        density = ",".join(f"k{0 if one_mode else axis}" for axis in range(n_axes))
        core = [density] * self._n_parameters
        core += [""] * self._n_parameters * any(relevance)
        core += different
        core += [n for n, has in zip(different, self.relevance, strict=False) if has]
        core += [n for n, has in zip(objects, exposure, strict=True) if has]
        core.append("m,a")
        signature = ",".join(f"({dims})" for dims in core) + "->(e,c)"
        super().__init__(name=name, signature=signature, dtype=dtype, inplace=inplace)
        if inplace:
            _register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Come from another process, where it was known how draws are compiled."""
        self.__dict__.update(state)
        if self.inplace:
            _register()

    @property
    def _n_parameters(self) -> int:
        return 2 if self.family == "normal" else 1

    @property
    def _n_different(self) -> int:
        """Number of axes with objects of their own."""
        return 1 if self.one_mode else self.n_axes

    def split(self, inputs: Sequence[Any]) -> Inputs:
        """Sort the inputs after `rng` and `size` into their roles, one entry for each axis."""
        left = iter(inputs)
        density = tuple(next(left) for _ in range(self._n_parameters))
        noise = tuple(next(left) for _ in range(self._n_parameters * any(self.relevance)))
        axes = tuple(next(left) for _ in range(self._n_different))
        relevance = tuple(next(left) if has else None for has in self.relevance[: len(axes)])
        if self.one_mode:
            axes, relevance = axes * 2, relevance * 2
        exposure = tuple(next(left) if has else None for has in self.exposure)
        return Inputs(density, noise, axes, relevance, exposure, next(left))

    def make_node(self, rng: Any, size: Any, *params: Any) -> Any:  # type: ignore[override]
        """Make a node; the table's number of rows is not static, as observed tables have theirs."""
        size = normalize_size_param(size)
        parts = [p if isinstance(p, Variable) else pt.as_tensor_variable(p) for p in params]
        ndims = [p.type.ndim for p in parts]
        if not isinstance(size.type, NoneTypeT) or ndims != list(self.ndims_params):
            raise NotImplementedError(
                f"{self.variable!r}: a BlockNetwork is one network; it has no size, and no batch "
                "dimensions in its parameters"
            )
        if not isinstance(getattr(rng, "type", None), RandomType):
            raise TypeError("The type of rng should be an instance of RandomGeneratorType")
        rng.tag.used = True
        table = TensorType("float64", shape=(None, self.n_axes + 1))
        return Apply(self, [rng, size, *parts], [rng.type(), table()])

    def infer_shape(self, node, input_shapes):
        """Shape of a draw: its rows are known, and so is the value that one draws."""
        return [None, [pt.constant(n, dtype="int64") for n in (self.max_edges, self.n_axes + 1)]]

    def rng_fn(self, rng, *args):
        """Draw one table."""
        *params, _ = args
        return draw_table(self, rng, self.split(params))


@cache
def _register() -> None:
    """Tell PyTensor how to compile a draw, once it draws in place, as it does where it compiles.

    Looking up how takes .2 s.
    """
    import numba
    from pytensor.link.numba.dispatch.basic import get_numba_type, numba_njit
    from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

    @numba_core_rv_funcify.register(BlockNetworkRV)
    def draw_in_object_mode(op, node):
        # PyTensor would do this by itself, with a warning at each compilation.
        table = get_numba_type(TensorType("float64", shape=(None, None)))

        def perform(rng, *params):
            return np.ascontiguousarray(op.rng_fn(rng, *params, None), dtype=np.float64)

        @numba_njit
        def draw(rng, *params):
            with numba.objmode(drawn=table):
                drawn = perform(rng, *params)
            return drawn

        return draw, None


@_support_point.register(BlockNetworkRV)
def _empty_table(op, rv, rng, size, *inputs):
    """Give a table to start from: no edges, or a zero at every known cell."""
    cells = op.split(inputs).cells
    if op.absent == "unknown":
        return pt.concatenate([pt.cast(cells, "float64"), pt.zeros((cells.shape[0], 1))], axis=1)
    table = pt.full((op.max_edges, op.n_axes + 1), np.float64(-1.0))
    return table[:, -1].set(np.float64(0.0))


class BlockNetworkParts(NamedTuple):
    """What `read_block_network` finds: a declared network's variables and options."""

    # density, noise: One variable, or mean and precision if the family is normal. `noise` may be
    # empty.
    density: tuple[Variable, ...]
    noise: tuple[Variable, ...]
    axes: tuple[Variable, ...]  # the assignment on each axis: twice the same in a one-mode network
    # one entry for each axis; twice the same in a one-mode network
    relevance: tuple[Variable | None, ...]
    exposure: tuple[NDArray[np.float64] | None, ...]  # one entry for each axis; None for ones
    # (n_unknown, n_axes): unknown cells where absent cells are zero; empty otherwise
    unknown: NDArray[np.int64]
    family: Family
    one_mode: bool
    symmetric: bool
    self_loops: bool
    absent: Literal["zero", "unknown"]
    # (n, n_axes): the cells of the variable's entries, in order; None if its value is a table
    cells: NDArray[np.int64] | None = None


def read_block_network(rv: Variable) -> BlockNetworkParts | None:
    """Read a declared network back from its variable, in any copy of the model.

    Return None if `rv` is anything but a `BlockNetwork`.
    """
    node = rv.owner
    if node is None or not isinstance(node.op, BlockNetworkRV):
        return None
    op = node.op
    parts = op.split(op.dist_params(node))
    data = [parts.cells, *(e for e in parts.exposure if e is not None)]
    if not all(isinstance(variable, Constant) for variable in data):
        return None
    cells = parts.cells.data
    return BlockNetworkParts(
        density=tuple(map(itself, parts.density)),
        noise=tuple(map(itself, parts.noise)),
        axes=tuple(map(itself, parts.axes)),
        relevance=tuple(flag if flag is None else itself(flag) for flag in parts.relevance),
        exposure=tuple(None if e is None else e.data for e in parts.exposure),
        unknown=cells if op.absent == "zero" else cells[:0],
        family=op.family,
        one_mode=op.one_mode,
        symmetric=op.symmetric,
        self_loops=op.self_loops,
        absent=op.absent,
    )
