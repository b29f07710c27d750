"""Block networks: a distribution over sparse networks whose objects are in clusters.

Nothing here is ever as large as the matrix: log probability, gradients and random draws take time
and memory in proportion to the stored cells, the objects and the blocks (pairs of clusters).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import _support_point
from pymc.logprob.abstract import _logprob
from pymc.model.core import modelcontext
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.utils import MissingInputError
from pytensor.link.numba.dispatch.basic import get_numba_type, numba_njit
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.tensor.random.basic import CategoricalRV
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.type import TensorType
from pytensor.tensor.type_other import NoneTypeT

from pm_match.networks import FAMILIES, Network, as_network, cell_numbers, count_cells

__all__ = ["BlockNetwork", "BlockNetworkParts", "BlockNetworkRV", "read_block_network"]

# Constants in double precision: PyTensor would keep them in single, where they fit.
_ZERO, _ONE, _HALF = np.float64(0.0), np.float64(1.0), np.float64(0.5)
_LOG_2PI = np.float64(math.log(2.0 * math.pi))
# How many cells or counts a draw holds at once, at most, before it looks at `max_edges`.
_CHUNK = 2**21
_DEFAULT_MAX_EDGES = 100_000


class _Inputs(NamedTuple):
    """The inputs of the op after `rng` and `size`: variables, or their values in a draw."""

    density: tuple[Any, ...]
    noise: tuple[Any, ...]
    axes: tuple[Any, ...]
    relevance: tuple[Any, ...]
    exposure: tuple[Any, ...]
    cells: Any


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
        family,
        n_axes,
        one_mode,
        symmetric,
        self_loops,
        absent,
        relevance,
        exposure,
        max_edges,
        variable="BlockNetwork",
        name=None,
        signature=None,
        dtype=None,
        inplace=None,
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
        n_parameters = 2 if family == "normal" else 1
        density = ",".join(f"k{0 if one_mode else axis}" for axis in range(n_axes))
        core = [density] * n_parameters
        core += [""] * n_parameters * any(relevance)
        core += objects[:1] if one_mode else objects
        core += [n for n, has in zip(objects, relevance, strict=True) if has][: len(set(objects))]
        core += [n for n, has in zip(objects, exposure, strict=True) if has]
        core += ["m,a"]
        signature = ",".join(f"({dims})" for dims in core) + "->(e,c)"
        super().__init__(name=name, signature=signature, dtype=dtype, inplace=inplace)

    def split(self, inputs: Sequence[Any]) -> _Inputs:
        """Sort the inputs after `rng` and `size` into their roles, one entry for each axis."""
        left = iter(inputs)
        n_parameters = 2 if self.family == "normal" else 1
        density = tuple(next(left) for _ in range(n_parameters))
        noise = tuple(next(left) for _ in range(n_parameters * any(self.relevance)))
        n_different = 1 if self.one_mode else self.n_axes
        axes = tuple(next(left) for _ in range(n_different))
        relevance = tuple(next(left) if has else None for has in self.relevance[:n_different])
        if self.one_mode:
            axes, relevance = axes * 2, relevance * 2
        exposure = tuple(next(left) if has else None for has in self.exposure)
        return _Inputs(density, noise, axes, relevance, exposure, next(left))

    def make_node(self, rng, size, *params):
        """Make a node; the table's number of rows is not static, as observed tables have theirs."""
        size = normalize_size_param(size)
        params = [p if isinstance(p, Variable) else pt.as_tensor_variable(p) for p in params]
        ndims = [p.type.ndim for p in params]
        if not isinstance(size.type, NoneTypeT) or ndims != list(self.ndims_params):
            raise NotImplementedError(
                f"{self.variable!r}: a BlockNetwork is one network; it has no size, and no batch "
                "dimensions in its parameters"
            )
        if not isinstance(getattr(rng, "type", None), RandomType):
            raise TypeError("The type of rng should be an instance of RandomGeneratorType")
        rng.tag.used = True
        table = TensorType("float64", shape=(None, self.n_axes + 1))
        return Apply(self, [rng, size, *params], [rng.type(), table()])

    def infer_shape(self, node, input_shapes):
        """Shape of a draw: its rows are known, and so is the value that one draws."""
        return [None, [pt.constant(n, dtype="int64") for n in (self.max_edges, self.n_axes + 1)]]

    def rng_fn(self, rng, *args):
        """Draw one table."""
        *params, _ = args
        return _draw(self, rng, self.split(params))


@numba_core_rv_funcify.register(BlockNetworkRV)
def _draw_in_object_mode(op, node):
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


class BlockNetworkParts(NamedTuple):
    """What `read_block_network` finds: a declared network's variables and options.

    Attributes
    ----------
    density, noise : tuple of Variable
        One variable, or mean and precision if the family is normal. `noise` may be empty.
    axes : tuple of Variable
        The assignment on each axis: twice the same in a one-mode network.
    relevance : tuple of Variable or None
        One entry for each axis; twice the same in a one-mode network.
    exposure : tuple of ndarray or None
        One entry for each axis; None for ones.
    unknown : ndarray, shape (n_unknown, n_axes)
        Unknown cells where absent cells are zero; empty otherwise.
    family : str
    one_mode, symmetric, self_loops : bool
    absent : {"zero", "unknown"}
    """

    density: tuple[Variable, ...]
    noise: tuple[Variable, ...]
    axes: tuple[Variable, ...]
    relevance: tuple[Variable | None, ...]
    exposure: tuple[NDArray[np.float64] | None, ...]
    unknown: NDArray[np.int64]
    family: str
    one_mode: bool
    symmetric: bool
    self_loops: bool
    absent: str


def read_block_network(rv: Variable) -> BlockNetworkParts | None:
    """Read a declared network back from its variable, in any copy of the model.

    Returns
    -------
    BlockNetworkParts or None
        None if `rv` is anything but a `BlockNetwork`.
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
        density=parts.density,
        noise=parts.noise,
        axes=parts.axes,
        relevance=parts.relevance,
        exposure=tuple(None if e is None else e.data for e in parts.exposure),
        unknown=cells if op.absent == "zero" else cells[:0],
        family=op.family,
        one_mode=op.one_mode,
        symmetric=op.symmetric,
        self_loops=op.self_loops,
        absent=op.absent,
    )


class BlockNetwork(pm.Distribution):
    r"""A network whose cells depend on the clusters of their objects: a stochastic block model.

    .. math::

        x_{ij} \sim F(\theta_{z_i, z'_j}) \text{ if } r_i r'_j = 1, \text{ else } F(\phi)

    F is Bernoulli, Poisson (with the rate multiplied by exposures :math:`e_i f_j`) or normal. The
    matrix is never built: log probability, gradient and draws are linear in its stored cells, its
    objects, and the blocks.

    Parameters
    ----------
    name : str
        Name of the variable.
    axes : sequence of TensorVariable
        Integer assignments, one vector for each axis. The same variable twice is a one-mode
        network (people by people). Three or more axes have different variables.
    density : tensor_like, or a pair of them
        Probabilities or rates, one dimension for each axis. For the normal family the mean and the
        precision. A symmetric network uses its upper triangle: ``density[k, l]`` with k <= l.
    noise : tensor_like scalar, or a pair of them, optional
        What the cells of irrelevant objects have in place of the density.
    relevance : sequence of TensorVariable or None, optional
        For each axis a vector of 0 and 1, or None if all its objects are relevant. One entry, or
        the same twice, in a one-mode network.
    family : {"bernoulli", "poisson", "normal"}, default "bernoulli"
    symmetric : bool, default False
        Whether a one-mode network is undirected.
    self_loops : bool, default False
        Whether the diagonal of a one-mode network is data.
    exposure : sequence of array or None, or "degree", optional
        For the Poisson family: a constant vector for each axis (None for ones). "degree" takes the
        sums of rows and columns, so that the product is row degree × column degree / total; in a
        symmetric network degrees count both ends, and the total is twice that of the edges.
    absent : {"zero", "unknown"}, default "zero"
        What cells are that a sparse matrix or a table does not list.
    columns : sequence of str, optional
        Columns of an observed DataFrame in long form. See `as_network`.
    max_edges : int, optional
        Number of rows of a random draw: draws are padded, so that they can be stacked, and a draw
        with more edges is an error. Where the known cells are listed, or the family is normal,
        draws have all known cells. By default 4 times the stored cells, at least 100,000, and no
        more than there are cells.
    dims : sequence of str, optional
        Names of the matrix's axes: dims of the model, of as many objects. For checks and for the
        labels in a long form; the variable itself has other dims, as its value is a table.
    observed : optional
        Sparse matrix, dense array (NaN or masked for unknown), DataFrame, DataArray, or a table
        ``(index, values)``. See `as_network`. Without it the network is a free variable.

    Notes
    -----
    The value of the variable is a table: an index column for each axis, then the value. Rows whose
    indices are -1 are padding. Cells of a symmetric network have i <= j. The log probability is
    -inf off the support, but does not look for cells listed twice, or unknown cells that are
    listed: `observed` is checked for them, once.

    Examples
    --------
    >>> pmm.BlockNetwork("ratings", axes=[cluster_user, cluster_film], density=theta, observed=x)
    """

    rv_type = BlockNetworkRV

    def __new__(
        cls,
        name: str,
        axes: Sequence[Any],
        density: Any,
        noise: Any = None,
        relevance: Sequence[Any] | None = None,
        family: Literal["bernoulli", "poisson", "normal"] = "bernoulli",
        symmetric: bool = False,
        self_loops: bool = False,
        exposure: Any = None,
        absent: Literal["zero", "unknown"] = "zero",
        columns: Sequence[str] | None = None,
        max_edges: int | None = None,
        dims: Sequence[str] | None = None,
        observed: Any = None,
        **kwargs: Any,
    ):
        """Declare the network in the model on the stack."""
        axes, one_mode = _check_axes(name, axes, symmetric, self_loops)
        shape, labels = _known_shape(name, axes, dims)
        network = None
        if observed is not None:
            network = as_network(
                name,
                observed,
                shape=None if None in shape else shape,  # type: ignore[arg-type]
                absent=absent,
                family=family,
                symmetric=symmetric,
                self_loops=self_loops,
                one_mode=one_mode,
                columns=columns,
                labels=labels if columns is not None else None,
            )
            _check_order(name, network, dims, labels)
        elif columns is not None or absent != "zero":
            raise ValueError(
                f"BlockNetwork {name!r}: `columns` and `absent` say how `observed` is read; "
                "found no `observed`"
            )
        return super().__new__(
            cls,
            name,
            axes,
            density,
            noise=noise,
            relevance=relevance,
            family=family,
            symmetric=symmetric,
            self_loops=self_loops,
            exposure=exposure,
            max_edges=max_edges,
            network=network,
            variable=name,
            observed=None if network is None else network.table,
            **kwargs,
        )

    @classmethod
    def dist(
        cls,
        axes: Sequence[Any],
        density: Any,
        noise: Any = None,
        relevance: Sequence[Any] | None = None,
        family: Literal["bernoulli", "poisson", "normal"] = "bernoulli",
        symmetric: bool = False,
        self_loops: bool = False,
        exposure: Any = None,
        max_edges: int | None = None,
        network: Network | None = None,
        variable: str = "network",
        rng: Variable | None = None,
        return_next_rng: bool = False,
        **kwargs: Any,
    ):
        """Make a variable outside of a model; `network` says which cells are known.

        Parameters are those of the class. `variable` is the name in messages.
        """
        # PyMC passes the shape of the observed table, which says nothing about draws.
        kwargs.pop("shape", None)
        if kwargs:
            raise TypeError(f"BlockNetwork {variable!r}: unexpected {list(kwargs)}")
        op, inputs = _declare(
            variable,
            axes,
            density,
            noise,
            relevance,
            family,
            symmetric,
            self_loops,
            exposure,
            max_edges,
            network,
        )
        if rng is None:
            rng = pt.random.shared_rng(seed=None)
        next_rng, rv = op(*inputs, rng=rng, return_next_rng=True)
        return (next_rng, rv) if return_next_rng else rv


# -- declaring -------------------------------------------------------------------------------------


def _check_axes(name, axes, symmetric, self_loops) -> tuple[list[Variable], bool]:
    where = f"BlockNetwork {name!r}"
    if not isinstance(axes, Sequence) or isinstance(axes, str) or len(axes) < 2:
        found = len(axes) if isinstance(axes, Sequence) else type(axes).__name__
        raise ValueError(f"{where}: expected `axes` to be two or more assignments; found {found}")
    axes = [z if isinstance(z, Variable) else pt.as_tensor_variable(z) for z in axes]
    for number, z in enumerate(axes):
        if z.type.ndim != 1 or not z.type.dtype.startswith(("int", "uint")):
            raise TypeError(
                f"{where}: expected the assignment on axis {number} to be an integer vector; "
                f"found {_named(z)}, of type {z.type}"
            )
    one_mode = len(axes) == 2 and axes[0] is axes[1]
    if len(axes) > 2 and len(set(axes)) < len(axes):
        twice = next(z for z in axes if axes.count(z) > 1)
        raise ValueError(
            f"{where}: the axes of a network with {len(axes)} of them must be different variables; "
            f"found {_named(twice)} more than once"
        )
    for option, value in (("symmetric", symmetric), ("self_loops", self_loops)):
        if value and not one_mode:
            raise ValueError(
                f"{where}: {option}=True is for one-mode networks, the same assignment on both "
                f"axes; found {[_named(z) for z in axes]}"
            )
    return axes, one_mode


def _known_shape(name, axes, dims) -> tuple[tuple[int | None, ...], list | None]:
    """Numbers of objects by the assignments, checked against the dims, and the dims' labels."""
    where = f"BlockNetwork {name!r}"
    shape = tuple(_lengths(z)[0] for z in axes)
    if dims is None:
        return shape, None
    model = modelcontext(None)
    if isinstance(dims, str) or len(dims) != len(axes):
        raise ValueError(
            f"{where}: expected `dims` to name the matrix's {len(axes)} axes; found {dims!r}"
        )
    for dim, n, z in zip(dims, shape, axes, strict=True):
        if dim not in model.coords:
            raise ValueError(
                f"{where}: expected dims that are coords of the model; found {dim!r}, and the "
                f"coords are {list(model.coords)}"
            )
        length = int(model.dim_lengths[dim].eval(mode=_plain_mode()))
        if n is not None and n != length:
            raise ValueError(
                f"{where}: dim {dim!r} has {length} objects, and the assignment {_named(z)} {n}"
            )
    return shape, [model.coords[dim] for dim in dims]


def _check_order(name, network, dims, labels) -> None:
    """Refuse labels that are those of the dims in another order: a silent mismatch."""
    if labels is None:
        return
    for dim, given, found in zip(dims, labels, network.labels, strict=True):
        if given is None or isinstance(found, pd.RangeIndex):
            continue
        given = pd.Index(given)
        if not given.equals(found) and len(given.symmetric_difference(found)) == 0:
            raise ValueError(
                f"BlockNetwork {name!r}: the labels of the observed network are those of dim "
                f"{dim!r} in another order; reindex it"
            )


def _declare(
    name,
    axes,
    density,
    noise,
    relevance,
    family,
    symmetric,
    self_loops,
    exposure,
    max_edges,
    network,
) -> tuple[BlockNetworkRV, list[Variable]]:
    where = f"BlockNetwork {name!r}"
    if family not in FAMILIES:
        raise ValueError(f"{where}: expected family to be one of {FAMILIES}; found {family!r}")
    axes, one_mode = _check_axes(name, axes, symmetric, self_loops)
    lengths = [_lengths(z)[0] for z in axes]
    if network is not None:
        if len(network.shape) != len(axes):
            raise ValueError(
                f"{where}: expected a network with {len(axes)} axes, one for each assignment; "
                f"found shape {network.shape}"
            )
        for axis, (n, found) in enumerate(zip(lengths, network.shape, strict=True)):
            if n is not None and n != found:
                raise ValueError(
                    f"{where}: axis {axis} has {found} objects, and the assignment "
                    f"{_named(axes[axis])} {n}"
                )
        lengths = list(network.shape)
    if None in lengths:
        raise ValueError(
            f"{where}: the number of objects of the assignment {_named(axes[lengths.index(None)])} "
            "depends on the inputs of its graph; without an observed network it must be known"
        )
    shape = tuple(n for n in lengths if n is not None)
    density = _check_density(where, density, family, axes)
    relevance, noise = _check_relevance(where, relevance, noise, family, axes, shape, one_mode)
    exposure = _check_exposure(where, exposure, family, shape, symmetric, network)

    absent = "zero" if network is None else network.absent
    n_cells = count_cells(shape, one_mode, symmetric, self_loops)
    if network is None:
        n_stored, cells = 0, np.empty((0, len(axes)), np.int64)
    else:
        n_stored = len(network.index)
        cells = network.unknown if absent == "zero" else network.index
    if max_edges is not None and (int(max_edges) != max_edges or max_edges < 1):
        raise ValueError(
            f"{where}: expected max_edges to be a whole number of at least 1; found {max_edges!r}"
        )
    if absent == "unknown":
        n_rows = len(cells)
    else:
        if max_edges is None:
            max_edges = max(4 * n_stored, _DEFAULT_MAX_EDGES)
        n_rows = min(int(max_edges), n_cells - len(cells))
    op = BlockNetworkRV(
        variable=name,
        family=family,
        n_axes=len(axes),
        one_mode=one_mode,
        symmetric=bool(symmetric),
        self_loops=bool(self_loops),
        absent=absent,
        relevance=[r is not None for r in relevance],
        exposure=[e is not None for e in exposure],
        max_edges=n_rows,
    )
    once = slice(0, 1) if one_mode else slice(None)
    inputs = [
        *density,
        *noise,
        *axes[once],
        *(r for r in relevance[once] if r is not None),
        *(pt.constant(e) for e in exposure if e is not None),
        pt.constant(cells),
    ]
    return op, inputs


def _check_density(where, density, family, axes) -> list[Variable]:
    density = _parameters(where, "density", density, family)
    for parameter in density:
        if parameter.type.ndim != len(axes):
            raise ValueError(
                f"{where}: expected density to have one dimension for each of {len(axes)} axes; "
                f"found {parameter.type.ndim} dimensions"
            )
    sizes = [_lengths(parameter) for parameter in density]
    if len(sizes) == 2 and None not in (*sizes[0], *sizes[1]) and sizes[0] != sizes[1]:
        raise ValueError(
            f"{where}: expected mean and precision of one shape; found {sizes[0]} and {sizes[1]}"
        )
    if len(set(axes)) == 1 and None not in sizes[0] and len(set(sizes[0])) > 1:
        raise ValueError(
            f"{where}: both axes have the same clusters, so density must be square; "
            f"found shape {tuple(sizes[0])}"
        )
    for axis, (z, n_clusters) in enumerate(zip(axes, sizes[0], strict=True)):
        if n_clusters is None or z.owner is None or not isinstance(z.owner.op, CategoricalRV):
            continue
        categories = _lengths(z.owner.op.dist_params(z.owner)[0])[-1]
        if categories is not None and categories != n_clusters:
            raise ValueError(
                f"{where}: the assignment {_named(z)} on axis {axis} has {categories} clusters, "
                f"and density {n_clusters}"
            )
    return density


def _check_relevance(where, relevance, noise, family, axes, shape, one_mode):
    if relevance is not None:
        if isinstance(relevance, Variable | np.ndarray) or not isinstance(relevance, Sequence):
            raise TypeError(
                f"{where}: expected relevance to be a list with a vector or None for each axis; "
                f"found {type(relevance).__name__}"
            )
        relevance = [None if r is None else pt.as_tensor_variable(r) for r in relevance]
        if one_mode and len(relevance) == 1:
            relevance = relevance * 2
        if len(relevance) != len(axes):
            raise ValueError(
                f"{where}: expected relevance for each of {len(axes)} axes; found {len(relevance)}"
            )
        if one_mode and relevance[0] is not relevance[1]:
            raise ValueError(
                f"{where}: both axes are the same objects, so relevance needs one entry, or the "
                f"same twice; found {[None if r is None else _named(r) for r in relevance]}"
            )
    if relevance is None or all(r is None for r in relevance):
        if noise is not None:
            raise ValueError(
                f"{where}: noise is what the cells of irrelevant objects have; "
                "found noise without relevance"
            )
        return [None] * len(axes), []
    if noise is None:
        raise ValueError(
            f"{where}: the cells of irrelevant objects have noise; found relevance without noise"
        )
    for axis, (r, n) in enumerate(zip(relevance, shape, strict=True)):
        if r is None:
            continue
        if r.type.ndim != 1 or not r.type.dtype.startswith(("int", "uint", "bool")):
            raise TypeError(
                f"{where}: expected the relevance on axis {axis} to be a vector of 0 and 1; "
                f"found {_named(r)}, of type {r.type}"
            )
        length = _lengths(r)[0]
        if length is not None and length != n:
            raise ValueError(
                f"{where}: axis {axis} has {n} objects, and its relevance {_named(r)} {length}"
            )
    noise = _parameters(where, "noise", noise, family)
    if any(parameter.type.ndim for parameter in noise):
        raise ValueError(
            f"{where}: expected noise to be a scalar; "
            f"found {max(p.type.ndim for p in noise)} dimensions"
        )
    return relevance, noise


def _parameters(where, what, given, family) -> list[Variable]:
    """Density or noise as a list: one variable, or a mean and a precision."""
    if family == "normal":
        if not isinstance(given, Sequence) or len(given) != 2:
            raise ValueError(
                f"{where}: expected {what} to be a pair (mean, precision), as family is 'normal'; "
                f"found {type(given).__name__}"
            )
    else:
        given = [given]
    return [
        p if isinstance(p, Variable) else pt.as_tensor_variable(np.asarray(p, np.float64))
        for p in given
    ]


def _check_exposure(where, exposure, family, shape, symmetric, network) -> list:
    if exposure is None:
        return [None] * len(shape)
    if family != "poisson":
        raise ValueError(
            f"{where}: exposures multiply Poisson rates; found exposure and family {family!r}"
        )
    if isinstance(exposure, str):
        if exposure != "degree":
            raise ValueError(
                f"{where}: expected exposure to be vectors or 'degree'; found {exposure!r}"
            )
        if network is None:
            raise ValueError(f"{where}: exposure='degree' needs an observed network")
        exposure = _degree_exposure(network, symmetric)
    if not isinstance(exposure, Sequence) or len(exposure) not in (len(shape), 2 - symmetric):
        raise ValueError(
            f"{where}: expected exposure to have a vector or None for each of {len(shape)} axes; "
            f"found {len(exposure) if isinstance(exposure, Sequence) else type(exposure).__name__}"
        )
    exposure = list(exposure) * (2 if len(exposure) == 1 else 1)
    checked: list[NDArray[np.float64] | None] = []
    for axis, (given, n) in enumerate(zip(exposure, shape, strict=True)):
        if given is None:
            checked.append(None)
            continue
        vector = np.array(given, np.float64)
        if vector.shape != (n,):
            raise ValueError(
                f"{where}: expected the exposure on axis {axis} to be a vector of {n} numbers; "
                f"found shape {vector.shape}"
            )
        bad = ~(np.isfinite(vector) & (vector >= 0))
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{where}: expected exposures to be finite and at least 0; found "
                f"{vector[first]:g} at position {first} of axis {axis}"
            )
        checked.append(vector)
    if symmetric and not all(
        e is f is None or (e is not None and f is not None and np.array_equal(e, f))
        for e, f in [checked]
    ):
        raise ValueError(
            f"{where}: a symmetric network has one exposure for both axes; found two that differ"
        )
    if network is not None:
        none = np.zeros(len(network.index), bool)
        for axis, given in enumerate(checked):
            if given is not None:
                none |= given[network.index[:, axis]] == 0
        bad = none & (network.values > 0)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{where}: expected no count where the exposure is 0; found "
                f"{network.values[first]:g} at cell {tuple(network.index[first].tolist())}"
            )
    return checked


def _degree_exposure(network, symmetric) -> list[NDArray[np.float64]]:
    degrees = [
        np.bincount(network.index[:, axis], network.values, minlength=n)
        for axis, n in enumerate(network.shape)
    ]
    total = network.values.sum()
    if symmetric:
        degrees = [degrees[0] + degrees[1]] * 2
        total = 2 * total
    # The product over all axes is the product of the degrees over that of all but one total.
    power = (len(degrees) - 1) / len(degrees)
    return [degree / total**power if total else degree for degree in degrees]


def _lengths(variable) -> list[int | None]:
    """Lengths of a variable's dimensions, None where they depend on unknown inputs."""
    known = list(variable.type.shape)
    if None in known:
        with contextlib.suppress(MissingInputError):
            known = variable.shape.eval(mode=_plain_mode()).tolist()
    return known


def _plain_mode() -> Mode:
    # Shapes are not worth compiling.
    return Mode(linker="py", optimizer="fast_compile")


def _named(variable) -> str:
    return repr(variable.name) if variable.name else f"without a name ({variable})"


# -- log probability -------------------------------------------------------------------------------


@_logprob.register(BlockNetworkRV)
def _log_probability(op, values, rng, size, *inputs, **kwargs):
    """Log probability of a table: a graph of sums over stored cells, then over blocks."""
    (table,) = values
    parts = op.split(inputs)
    blocks = _Blocks(op, parts)
    position = [pt.cast(table[:, axis], "int64") for axis in range(op.n_axes)]
    x = table[:, op.n_axes]
    padding = pt.eq(table[:, 0], -_ONE)
    inside = [
        pt.ge(p, 0) & pt.lt(p, z.shape[0]) & pt.eq(table[:, axis], p)
        for axis, (p, z) in enumerate(zip(position, parts.axes, strict=True))
    ]
    if op.one_mode and not op.self_loops:
        inside.append(pt.neq(position[0], position[1]))
    inside.append(_SUPPORT[op.family](x))
    inside = _all(inside)
    valid = pt.all(inside | padding)
    # Whatever is not a cell counts for nothing at cell 0, so that no position is out of range.
    listed = pt.cast(inside & ~padding, "float64")
    position = [pt.switch(inside & ~padding, p, 0) for p in position]
    x = pt.switch(inside & ~padding, x, _ZERO)

    block = blocks.of(position)
    exposure = blocks.exposure(position)
    if op.absent == "unknown":
        cells = blocks.sums(block, listed if exposure is None else listed * exposure)
    else:
        cells = blocks.cells()
        unknown = [parts.cells[:, axis] for axis in range(op.n_axes)]
        if parts.cells.type.shape[0] != 0:
            weight = blocks.exposure(unknown)
            weight = pt.ones_like(unknown[0], dtype="float64") if weight is None else weight
            cells = cells - blocks.sums(blocks.of(unknown), weight)
    if op.family == "bernoulli":
        (p,) = blocks.padded
        edges = blocks.sums(block, x)
        gaps = cells - edges
        # The logarithm's argument is switched, not the product: the gradient stays finite.
        logp = pt.sum(edges * pt.log(pt.switch(edges > 0, p, _ONE)))
        logp += pt.sum(gaps * pt.log1p(-pt.switch(gaps > 0, p, _ZERO)))
        valid = valid & pt.all(gaps >= 0)
        logp = check_parameters(logp, p >= 0, p <= 1, msg="0 <= density <= 1, 0 <= noise <= 1")
    elif op.family == "poisson":
        (rate,) = blocks.padded
        count = blocks.sums(block, x)
        logp = pt.sum(count * pt.log(pt.switch(count > 0, rate, _ONE)) - rate * cells)
        if exposure is not None:
            logp += pt.sum(x * pt.log(pt.switch(x > 0, exposure, _ONE)))
        logp -= pt.sum(pt.gammaln(x + _ONE))
        logp = check_parameters(logp, rate >= 0, msg="density >= 0, noise >= 0")
    else:
        mean, precision = blocks.padded
        n = blocks.sums(block, listed)
        # Squares around the blocks' own means: no cancellation, however far from zero they are.
        centre = blocks.sums(block, x) / pt.maximum(n, _ONE)
        spread = blocks.sums(block, listed * pt.sqr(x - centre[block]))
        squares = spread + n * pt.sqr(centre - mean) + (cells - n) * pt.sqr(mean)
        logp = _HALF * pt.sum(
            cells * (pt.log(pt.switch(cells > 0, precision, _ONE)) - _LOG_2PI) - precision * squares
        )
        valid = valid & pt.all(cells >= n)
        logp = check_parameters(logp, precision > 0, msg="precision > 0")
    logp = pt.switch(valid, logp, -np.inf)
    return check_parameters(
        logp, *blocks.inside, msg="assignments are among the clusters of the density"
    )


_SUPPORT = {
    "bernoulli": lambda x: pt.eq(x, _ZERO) | pt.eq(x, _ONE),
    "poisson": lambda x: (x >= 0) & pt.eq(x, pt.floor(x)) & ~pt.isinf(x),
    "normal": lambda x: ~(pt.isnan(x) | pt.isinf(x)),
}


class _Blocks:
    """Sums over blocks, as graphs.

    Blocks are numbered in one vector. Irrelevant objects are in one more cluster on their axis,
    and its blocks have the noise in place of the density.
    """

    def __init__(self, op: BlockNetworkRV, parts: _Inputs):
        self.op, self.parts = op, parts
        noisy = bool(parts.noise)
        density = parts.density[0]
        n_clusters = [density.shape[axis] for axis in range(op.n_axes)]
        self.shape = [k + 1 if noisy else k for k in n_clusters]
        self.n_blocks = pt.prod(pt.stack(self.shape))
        # Out of range, an assignment would be in some other block: clipped here, refused after.
        self.inside = [(z >= 0) & (z < k) for z, k in zip(parts.axes, n_clusters, strict=True)]
        self.clusters = [
            pt.clip(z, 0, k - 1) if r is None else pt.switch(pt.neq(r, 0), pt.clip(z, 0, k - 1), k)
            for z, r, k in zip(parts.axes, parts.relevance, n_clusters, strict=True)
        ]
        padded = [pt.cast(theta, "float64") for theta in parts.density]
        if noisy:
            inner = tuple(slice(None, -1) for _ in range(op.n_axes))
            padded = [
                pt.full(self.shape, pt.cast(phi, "float64"))[inner].set(theta)
                for theta, phi in zip(padded, parts.noise, strict=True)
            ]
        self.padded = [theta.flatten() for theta in padded]

    def of(self, position):
        """Give the blocks of cells."""
        clusters = [z[p] for z, p in zip(self.clusters, position, strict=True)]
        if self.op.symmetric:
            clusters = [pt.minimum(*clusters), pt.maximum(*clusters)]
        block = clusters[0]
        for cluster, k in zip(clusters[1:], self.shape[1:], strict=True):
            block = block * k + cluster
        return block

    def exposure(self, position):
        """Give the exposures of cells, or None if all are 1."""
        given = [e[p] for e, p in zip(self.parts.exposure, position, strict=True) if e is not None]
        return None if not given else pt.prod(pt.stack(given), axis=0) if given[1:] else given[0]

    def sums(self, block, weight):
        """Sum weights by block."""
        return pt.zeros(self.n_blocks, dtype="float64")[block].inc(weight)

    def cells(self):
        """Count the cells of each block, or sum their exposures."""
        op = self.op
        weights = [
            pt.ones_like(z, dtype="float64") if e is None else e
            for z, e in zip(self.parts.axes, self.parts.exposure, strict=True)
        ]
        sizes = [
            pt.zeros(k, dtype="float64")[z].inc(w)
            for z, w, k in zip(self.clusters, weights, self.shape, strict=True)
        ]
        cells = sizes[0]
        for size in sizes[1:]:
            cells = cells[..., None] * size
        if op.one_mode and (op.symmetric or not op.self_loops):
            loops = pt.zeros(self.shape[0], dtype="float64")[self.clusters[0]].inc(
                weights[0] * weights[1]
            )
            k = pt.arange(self.shape[0])
            diagonal = pt.eq(k[:, None], k)
            if op.symmetric:
                half = _HALF * (cells + (loops if op.self_loops else -loops))
                cells = pt.switch(diagonal, half, pt.switch(k[:, None] < k, cells, _ZERO))
            else:
                cells = pt.switch(diagonal, cells - loops, cells)
        return cells.flatten()


def _all(conditions):
    first, *others = conditions
    for other in others:
        first = first & other
    return first


@_support_point.register(BlockNetworkRV)
def _empty_table(op, rv, rng, size, *inputs):
    """Give a table to start from: no edges, or a zero at every known cell."""
    cells = op.split(inputs).cells
    if op.absent == "unknown":
        return pt.concatenate([pt.cast(cells, "float64"), pt.zeros((cells.shape[0], 1))], axis=1)
    table = pt.full((op.max_edges, op.n_axes + 1), -_ONE)
    return table[:, -1].set(_ZERO)


# -- random draws ----------------------------------------------------------------------------------


def _draw(op: BlockNetworkRV, rng: np.random.Generator, parts: _Inputs) -> NDArray[np.float64]:
    """Draw a table: edges by block, or the values of the known cells."""
    shape = tuple(len(z) for z in parts.axes)
    clusters, padded = _padded(op, parts)
    if op.absent == "unknown":
        return _draw_values(op, rng, parts.cells, clusters, padded, parts.exposure)
    if op.family == "normal":
        n_known = count_cells(shape, op.one_mode, op.symmetric, op.self_loops) - len(parts.cells)
        if n_known > op.max_edges:
            raise _too_many(op, f"{n_known} known cells, all of which have a value")
        index = _all_cells(op, shape)
        number, unknown = cell_numbers(shape, index, parts.cells)
        index = index[~np.isin(number, unknown)]
        return _draw_values(op, rng, index, clusters, padded, parts.exposure)

    # The objects of each cluster on each axis, in order.
    members = [
        np.split(np.argsort(z, kind="stable"), np.cumsum(np.bincount(z, minlength=k))[:-1])
        for z, k in zip(clusters, padded[0].shape, strict=True)
    ]
    edges = _Edges(op, shape, parts.cells)
    if op.family == "bernoulli":
        _draw_bernoulli(op, rng, edges, members, padded[0])
    else:
        _draw_poisson(op, rng, edges, members, padded[0], parts.exposure)
        if op.symmetric and op.self_loops:
            rate = padded[0][clusters[0], clusters[0]]
            if parts.exposure[0] is not None:
                rate = rate * parts.exposure[0] ** 2
            count = rng.poisson(rate)
            loop = np.flatnonzero(count)
            edges.add([loop, loop], count[loop])
    return edges.table()


def _padded(op, parts) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float64]]]:
    """Clusters and densities, with one more cluster for irrelevant objects if there is noise."""
    padded = [np.asarray(theta, np.float64) for theta in parts.density]
    clusters = []
    for z, r, k in zip(parts.axes, parts.relevance, padded[0].shape, strict=True):
        z = np.asarray(z, np.int64)
        if len(z) and not 0 <= z.min() <= z.max() < k:
            raise ValueError(
                f"{op.variable!r}: expected assignments among the {k} clusters of the density; "
                f"found {z.min()} to {z.max()}"
            )
        clusters.append(z if r is None else np.where(np.asarray(r) != 0, z, k))
    if parts.noise:
        grown = [
            np.full([k + 1 for k in theta.shape], np.float64(phi))
            for theta, phi in zip(padded, parts.noise, strict=True)
        ]
        for theta, whole in zip(padded, grown, strict=True):
            whole[(slice(None, -1),) * theta.ndim] = theta
        padded = grown
    last = padded[-1]
    bad = ~np.isfinite(last) | (last < 0)
    if op.family == "bernoulli":
        bad |= last > 1
    elif op.family == "normal":
        bad |= last == 0
    if bad.any():
        raise ValueError(
            f"{op.variable!r}: expected {_PARAMETER[op.family]}; found {last[bad].flat[0]:g}"
        )
    return clusters, padded


_PARAMETER = {
    "bernoulli": "density and noise from 0 to 1",
    "poisson": "density and noise of at least 0",
    "normal": "positive precisions",
}


def _draw_values(op, rng, index, clusters, padded, exposure) -> NDArray[np.float64]:
    """Draw the values of listed cells."""
    cluster = [z[index[:, axis]] for axis, z in enumerate(clusters)]
    if op.symmetric:
        cluster = [np.minimum(*cluster), np.maximum(*cluster)]
    parameters = [theta[tuple(cluster)] for theta in padded]
    if op.family == "bernoulli":
        values = rng.random(len(index)) < parameters[0]
    elif op.family == "poisson":
        rate = parameters[0]
        for axis, given in enumerate(exposure):
            if given is not None:
                rate = rate * given[index[:, axis]]
        values = rng.poisson(rate)
    else:
        values = rng.normal(parameters[0], 1.0 / np.sqrt(parameters[1]))
    return np.column_stack([index, values]).astype(np.float64)


def _all_cells(op, shape) -> NDArray[np.int64]:
    index = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    if op.symmetric:
        index = index[index[:, 0] <= index[:, 1]]
    if op.one_mode and not op.self_loops:
        index = index[index[:, 0] != index[:, 1]]
    return index


class _Edges:
    """The edges of a draw, counted while they are placed."""

    def __init__(self, op, shape, unknown):
        self.op, self.shape, self.unknown = op, shape, unknown
        self.index = [np.empty((0, op.n_axes), np.int64)]
        self.values = [np.empty(0)]
        self.n = 0

    def add(self, positions, values) -> None:
        """Add edges at positions, one vector an axis."""
        self.check(self.n + len(values))
        self.n += len(values)
        index = np.stack(positions, axis=1)
        if self.op.symmetric:
            index.sort(axis=1)
        self.index.append(index)
        self.values.append(np.asarray(values, np.float64))

    def check(self, n: int) -> None:
        """Refuse more edges than a draw may have, though some may yet prove unknown cells."""
        if n - len(self.unknown) > self.op.max_edges:
            raise _too_many(self.op, f"at least {n - len(self.unknown)} edges")

    def table(self) -> NDArray[np.float64]:
        """Sort the edges, without those at unknown cells, and pad the table."""
        index, values = np.concatenate(self.index), np.concatenate(self.values)
        number, unknown = cell_numbers(self.shape, index, self.unknown)
        order = np.argsort(number)
        if len(unknown):
            order = order[~np.isin(number[order], unknown)]
        if len(order) > self.op.max_edges:
            raise _too_many(self.op, f"{len(order)} edges")
        table = np.full((self.op.max_edges, self.op.n_axes + 1), -1.0)
        table[:, -1] = 0.0
        table[: len(order), :-1] = index[order]
        table[: len(order), -1] = values[order]
        return table


def _too_many(op, found) -> ValueError:
    return ValueError(
        f"{op.variable!r}: expected a random draw to have at most {op.max_edges} rows; found "
        f"{found}. Declare the network with a larger max_edges"
    )


def _numbers_of_cells(op, members) -> NDArray[np.int64]:
    """Count the cells of each block: in the upper triangle if symmetric, without self-loops."""
    sizes = [np.array([len(m) for m in clusters]) for clusters in members]
    if math.prod(float(size.max()) for size in sizes) >= 2.0**62:
        raise ValueError(f"{op.variable!r}: a block has too many cells to number")
    cells = sizes[0]
    for size in sizes[1:]:
        cells = cells[..., None] * size
    if op.symmetric:
        n = sizes[0]
        cells = np.triu(cells, 1) + np.diag(n * (n + 1 if op.self_loops else n - 1) // 2)
    elif op.one_mode and not op.self_loops:
        cells = cells - np.diag(sizes[0])
    return cells


def _draw_bernoulli(op, rng, edges, members, density) -> None:
    """Draw the number of edges in each block, then their cells."""
    cells = _numbers_of_cells(op, members)
    n_edges = rng.binomial(cells, density)
    edges.check(int(n_edges.sum()))
    for block in map(tuple, np.argwhere(n_edges).tolist()):
        number = _distinct(rng, int(n_edges[block]), int(cells[block]))
        objects = [m[k] for m, k in zip(members, block, strict=True)]
        if op.one_mode and block[0] == block[1]:
            positions: Sequence = _decode(number, len(objects[0]), op.symmetric, op.self_loops)
        else:
            positions = np.unravel_index(number, [len(m) for m in objects])
        where = [m[p] for m, p in zip(objects, positions, strict=True)]
        edges.add(where, np.ones(len(number)))


def _distinct(rng, n: int, size: int) -> NDArray[np.int64]:
    """Draw n of `size` numbers without replacement, in memory of order n."""
    if size <= 2**16:
        return rng.choice(size, n, replace=False, shuffle=False)
    if 2 * n > size:
        keep = np.ones(size, bool)
        keep[_distinct(rng, size - n, size)] = False
        return np.flatnonzero(keep)
    # What is missing is drawn anew: at every stage all sets of numbers are equally probable.
    numbers = np.empty(0, np.int64)
    while len(numbers) < n:
        more = rng.integers(size, size=n - len(numbers))
        numbers = np.unique(np.concatenate([numbers, more]))
    return numbers


def _decode(number, n: int, symmetric: bool, self_loops: bool):
    """Positions of numbered cells in the block of a cluster with itself."""
    if not symmetric:
        if self_loops:
            return np.divmod(number, n)
        row, col = np.divmod(number, n - 1)
        return row, col + (col >= row)
    # Pairs i < j in the order (0, 1), (0, 2), (1, 2), (0, 3), ...; with loops, j is one more.
    j = ((1.0 + np.sqrt(1.0 + 8.0 * number)) / 2.0).astype(np.int64)
    j -= j * (j - 1) // 2 > number  # where rounding went up
    j += j * (j + 1) // 2 <= number
    i = number - j * (j - 1) // 2
    return i, j - 1 if self_loops else j


def _draw_poisson(op, rng, edges, members, density, exposure) -> None:
    """Draw the total of each block and spread it by the exposures; small blocks cell by cell."""
    n_cells = _numbers_of_cells(op, members)
    weights = [
        [np.ones(len(m)) if e is None else e[m] for m in clusters]
        for clusters, e in zip(members, exposure, strict=True)
    ]
    mean = density
    for axis, clusters in enumerate(weights):
        total = np.array([w.sum() for w in clusters])
        mean = mean * total.reshape([-1 if a == axis else 1 for a in range(op.n_axes)])
    if op.symmetric:
        # All ordered pairs of a cluster's objects: half the rate gives each unordered pair its own.
        mean = np.triu(mean, 1) + np.diag(np.diag(mean)) / 2.0
    for block in map(tuple, np.argwhere((mean > 0) & (n_cells > 0)).tolist()):
        objects = [m[k] for m, k in zip(members, block, strict=True)]
        weight = [w[k] for w, k in zip(weights, block, strict=True)]
        loops = op.one_mode and block[0] == block[1]
        upper = loops and op.symmetric
        place = _cell_by_cell if mean[block] > n_cells[block] else _event_by_event
        place(
            op,
            rng,
            edges,
            objects,
            weight,
            density[block],
            mean[block],
            upper,
            loops and (op.symmetric or not op.self_loops),
        )


def _cell_by_cell(op, rng, edges, objects, weight, density, mean, upper, no_loops) -> None:
    shape = [len(m) for m in objects]
    step = max(1, _CHUNK // math.prod(shape[1:]))
    for start in range(0, shape[0], step):
        rate = density * weight[0][start : start + step]
        for w in weight[1:]:
            rate = rate[..., None] * w
        if upper:
            rate = np.triu(rate, start + 1)
        count = rng.poisson(rate)
        if no_loops and not upper:
            i = np.arange(len(rate))
            count[i, i + start] = 0
        here = np.nonzero(count)
        where = [objects[0][here[0] + start]]
        where += [m[p] for m, p in zip(objects[1:], here[1:], strict=True)]
        edges.add(where, count[here])


def _event_by_event(op, rng, edges, objects, weight, density, mean, upper, no_loops) -> None:
    shape = [len(m) for m in objects]
    ends = [np.cumsum(w) for w in weight]
    left = int(rng.poisson(mean))
    number, count = np.empty(0, np.int64), np.empty(0, np.int64)
    while left:
        n = min(left, _CHUNK)
        left -= n
        # Objects without exposure end where their predecessor does, so none of them is hit.
        position: Sequence = [
            np.minimum(np.searchsorted(end, rng.random(n) * end[-1], side="right"), len(end) - 1)
            for end in ends
        ]
        if upper:
            position = [np.minimum(*position), np.maximum(*position)]
        if no_loops:
            proper = position[0] != position[1]
            position = [p[proper] for p in position]
        more = np.ravel_multi_index(position, shape)
        number, at = np.unique(np.concatenate([number, more]), return_inverse=True)
        old = np.concatenate([count, np.ones(len(more), np.int64)])
        count = np.bincount(at.reshape(-1), old, minlength=len(number)).astype(np.int64)
        edges.check(edges.n + len(number))
    positions = np.unravel_index(number, shape)
    edges.add([m[p] for m, p in zip(objects, positions, strict=True)], count)
