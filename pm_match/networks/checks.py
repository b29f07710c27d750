"""What a declaration of a block network must satisfy, checked before there is an op.

Every message begins with `where`, which names the network.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.core import modelcontext
from pytensor.graph.basic import Variable
from pytensor.graph.utils import MissingInputError
from pytensor.tensor.random.basic import CategoricalRV

from pm_match.networks.data import COUNTS, Network, cell_exposures, degrees_of
from pm_match.reading.probe import evaluate
from pm_match.tables.order import in_order


def check_axes(
    where: str, axes: Any, symmetric: bool, self_loops: bool
) -> tuple[list[Variable], bool]:
    """Give the assignments as variables, and whether the network is one-mode."""
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
            f"{where}: expected different variables on {len(axes)} axes; "
            f"found {_named(twice)} more than once"
        )
    for option, value in (("symmetric", symmetric), ("self_loops", self_loops)):
        if value and not one_mode:
            raise ValueError(
                f"{where}: expected the same assignment on both axes with {option}=True; "
                f"found {[_named(z) for z in axes]}"
            )
    return axes, one_mode


def check_dims(
    where: str, axes: Sequence[Variable], dims: Sequence[str] | None
) -> tuple[tuple[int | None, ...], list | None]:
    """Numbers of objects by the assignments, checked against the dims, and the dims' labels."""
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
        length = int(evaluate(model.dim_lengths[dim]))
        if n is not None and n != length:
            raise ValueError(
                f"{where}: expected a dim of the {n} objects of the assignment {_named(z)}; "
                f"found {dim!r} with {length}"
            )
    return shape, [model.coords[dim] for dim in dims]


def check_order(where: str, network: Network, dims: Any, labels: list | None) -> None:
    """Refuse labels that are those of the dims in another order: a silent mismatch."""
    if labels is None:
        return
    for dim, given, found in zip(dims, labels, network.labels, strict=True):
        if given is None or isinstance(found, pd.RangeIndex):
            continue
        given = pd.Index(given)
        if not given.equals(found) and len(given.symmetric_difference(found)) == 0:
            raise ValueError(
                f"{where}: expected the labels of the observed network in the order of dim "
                f"{dim!r}; found them in another order; reindex it"
            )


def check_shape(where: str, axes: Sequence[Variable], network: Network | None) -> tuple[int, ...]:
    """Give the numbers of objects, by the network or else by the assignments."""
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
                    f"{where}: expected the {n} objects of the assignment {_named(axes[axis])} on "
                    f"axis {axis}; found {found}"
                )
        return network.shape
    if None in lengths:
        raise ValueError(
            f"{where}: expected a known number of objects of the assignment "
            f"{_named(axes[lengths.index(None)])}, without an observed network; found one that "
            "depends on the inputs of its graph"
        )
    return tuple(n for n in lengths if n is not None)


def check_density(
    where: str, density: Any, family: str, axes: Sequence[Variable]
) -> list[Variable]:
    """Give the densities as variables: one, or a mean and a precision."""
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
            f"{where}: expected a square density, as both axes have the same clusters; "
            f"found shape {tuple(sizes[0])}"
        )
    for axis, (z, n_clusters) in enumerate(zip(axes, sizes[0], strict=True)):
        if n_clusters is None or z.owner is None or not isinstance(z.owner.op, CategoricalRV):
            continue
        categories = _lengths(z.owner.op.dist_params(z.owner)[0])[-1]
        if categories is not None and categories != n_clusters:
            raise ValueError(
                f"{where}: expected a density of the {categories} clusters of the assignment "
                f"{_named(z)} on axis {axis}; found {n_clusters}"
            )
    return density


def check_relevance(
    where: str,
    relevance: Any,
    noise: Any,
    family: str,
    axes: Sequence[Variable],
    shape: Sequence[int],
    one_mode: bool,
) -> tuple[list[Variable | None], list[Variable]]:
    """Give the relevance on each axis, and the noise: of what has no relevance, none."""
    if relevance is not None:
        if not isinstance(relevance, Sequence):
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
                f"{where}: expected one relevance, or the same twice, as both axes are the same "
                f"objects; found {[None if r is None else _named(r) for r in relevance]}"
            )
    if relevance is None or all(r is None for r in relevance):
        if noise is not None:
            raise ValueError(
                f"{where}: expected relevance with noise, which is what the cells of irrelevant "
                "objects have; found none"
            )
        return [None] * len(axes), []
    if noise is None:
        raise ValueError(
            f"{where}: expected noise with relevance, for the cells of irrelevant objects; found "
            "none"
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
                f"{where}: expected relevance of the {n} objects on axis {axis}; found "
                f"{_named(r)} of {length}"
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


def check_exposure(
    where: str,
    exposure: Any,
    family: str,
    shape: Sequence[int],
    symmetric: bool,
    network: Network | None,
) -> list[NDArray[np.float64] | None]:
    """Give the exposures as vectors, None for ones."""
    if exposure is None:
        return [None] * len(shape)
    if family not in COUNTS:
        raise ValueError(
            f"{where}: expected no exposure but with family 'poisson' or 'negative-binomial', "
            f"whose means it multiplies; found family {family!r}"
        )
    if isinstance(exposure, str):
        if exposure != "degree":
            raise ValueError(
                f"{where}: expected exposure to be vectors or 'degree'; found {exposure!r}"
            )
        if network is None:
            raise ValueError(
                f"{where}: expected an observed network with exposure='degree'; found none"
            )
        exposure = _degree_exposure(network, symmetric)
    if symmetric and isinstance(exposure, Sequence) and len(exposure) == 1:
        exposure = [exposure[0]] * 2
    if not isinstance(exposure, Sequence) or len(exposure) != len(shape):
        raise ValueError(
            f"{where}: expected exposure to have a vector or None for each of {len(shape)} axes; "
            f"found {len(exposure) if isinstance(exposure, Sequence) else type(exposure).__name__}"
        )
    checked: list[NDArray[np.float64] | None] = []
    for axis, (given, n) in enumerate(zip(exposure, shape, strict=True)):
        if given is None:
            checked.append(None)
            continue
        if network is not None:
            said = f"{where}: exposure on axis {axis}"
            given = in_order(said, given, network.labels[axis])
        try:
            vector = np.array(given, np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"{where}: expected the exposure on axis {axis} to be a vector of {n} known "
                f"numbers; found {given!r}"
            ) from None
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
    if symmetric:
        e, f = checked
        if not (e is f if e is None or f is None else np.array_equal(e, f)):
            raise ValueError(
                f"{where}: expected one exposure for both axes of a symmetric network; found two"
            )
    if network is not None:
        bad = (cell_exposures(checked, network.index) == 0) & (network.values > 0)
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{where}: expected no count where the exposure is 0; found "
                f"{network.values[first]:g} at cell {tuple(network.index[first].tolist())}"
            )
    return checked


def _degree_exposure(network, symmetric) -> list[NDArray[np.float64]]:
    """Give exposures of which the product is that of the degrees over the total."""
    degrees = degrees_of(network, symmetric) * (2 if symmetric else 1)
    total = degrees[0].sum()
    # The product over all axes is the product of the degrees over that of all but one total.
    power = (len(degrees) - 1) / len(degrees)
    return [degree / total**power if total else degree for degree in degrees]


def _lengths(variable) -> list[int | None]:
    """Lengths of a variable's dimensions, None where they depend on unknown inputs."""
    known = list(variable.type.shape)
    if None in known:
        with contextlib.suppress(MissingInputError):
            known = evaluate(variable.shape).tolist()
    return known


def _named(variable) -> str:
    return repr(variable.name) if variable.name else f"without a name ({variable})"
