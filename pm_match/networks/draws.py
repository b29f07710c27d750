"""Random draws of a block network: edges block by block, without the matrix."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.networks.data import (
    COUNTS,
    PROBABILITIES,
    cell_exposures,
    cell_numbers,
    count_cells,
)


class Inputs(NamedTuple):
    """The inputs of the op after `rng` and `size`: variables, or their values in a draw."""

    density: tuple[Any, ...]
    noise: tuple[Any, ...]
    axes: tuple[Any, ...]
    relevance: tuple[Any, ...]
    exposure: tuple[Any, ...]
    cells: Any


# How many cells or counts a draw holds at once, at most, before it looks at `max_edges`.
_CHUNK = 2**21


def draw_table(op: Any, rng: np.random.Generator, parts: Inputs) -> NDArray[np.float64]:
    """Draw a table of a `BlockNetworkRV`: edges by block, or the values of the known cells."""
    shape = tuple(len(z) for z in parts.axes)
    clusters, padded = _padded(op, parts)
    if op.absent == "unknown":
        return _listed(op, rng, parts.cells, clusters, padded, parts.exposure)
    if op.family == "normal":
        n_known = count_cells(shape, op.one_mode, op.symmetric, op.self_loops) - len(parts.cells)
        if n_known > op.max_edges:
            raise _too_many(op, f"{n_known} known cells, all of which have a value")
        index = _all_cells(op, shape)
        number, unknown = cell_numbers(shape, index, parts.cells)
        index = index[~np.isin(number, unknown)]
        return _listed(op, rng, index, clusters, padded, parts.exposure)

    # The objects of each cluster on each axis, in order.
    members = [
        np.split(np.argsort(z, kind="stable"), np.cumsum(np.bincount(z, minlength=k))[:-1])
        for z, k in zip(clusters, padded[0].shape, strict=True)
    ]
    edges = _Edges(op, shape, parts.cells)
    if op.family == "bernoulli":
        _draw_bernoulli(op, rng, edges, members, padded[0])
    else:
        _draw_counts(op, rng, edges, members, padded[0], parts.exposure)
        if op.symmetric and op.self_loops:
            _draw_loops(op, rng, edges, clusters[0], padded[0], parts.exposure[0])
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
        padded = [
            np.pad(theta, (0, 1), constant_values=phi)
            for theta, phi in zip(padded, parts.noise, strict=True)
        ]
    last = padded[-1]
    bad = ~np.isfinite(last) | (last < 0)
    if op.family in PROBABILITIES:
        bad |= last > 1
    if op.family in ("negative-binomial", "normal"):
        bad |= last == 0
    if bad.any():
        raise ValueError(
            f"{op.variable!r}: expected {_PARAMETER[op.family]}; found {last[bad].flat[0]:g}"
        )
    return clusters, padded


_PARAMETER = {
    "bernoulli": "density and noise from 0 to 1",
    "poisson": "density and noise of at least 0",
    "negative-binomial": "density and noise above 0 and at most 1",
    "normal": "positive precisions",
}


def _listed(op, rng, index, *given) -> NDArray[np.float64]:
    """Draw a table of listed cells."""
    parameters = cell_parameters(op.symmetric, index, *given)
    return np.column_stack([index, draw_values(op.family, rng, *parameters)])


def draw_values(
    family: str, rng: np.random.Generator, exposed: NDArray, *parameters: NDArray
) -> NDArray[np.float64]:
    """Draw the values (n,) of cells, of what `cell_parameters` returns."""
    if family == "bernoulli":
        return (rng.random(len(exposed)) < parameters[0]).astype(np.float64)
    if family not in COUNTS:
        return rng.normal(parameters[0], 1.0 / np.sqrt(parameters[1]))
    return _counts(rng, family, parameters[0], exposed).astype(np.float64)


def cell_parameters(
    symmetric: bool, index, clusters, densities, exposure
) -> list[NDArray[np.float64]]:
    """Return exposures (n,) of listed cells, and what their blocks have of every density.

    `index` (n, A): the cells; `clusters`, (N_a,) for each axis: labels of its objects; `densities`:
    that of the family, or mean and precision; `exposure`: (N_a,) or None for each axis.
    """
    cluster = [z[index[:, axis]] for axis, z in enumerate(clusters)]
    if symmetric:
        cluster = [np.minimum(*cluster), np.maximum(*cluster)]
    return [cell_exposures(exposure, index), *(theta[tuple(cluster)] for theta in densities)]


def _all_cells(op, shape) -> NDArray[np.int64]:
    index = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1)
    if op.symmetric:
        index = index[index[:, 0] <= index[:, 1]]
    if op.one_mode and not op.self_loops:
        index = index[index[:, 0] != index[:, 1]]
    return index


class _Edges:
    """The edges of a draw, counted while they are placed."""

    def __init__(self, op: Any, shape: tuple[int, ...], unknown: NDArray[np.int64]):
        self.op, self.shape, self.unknown = op, shape, unknown
        self.index = [np.empty((0, op.n_axes), np.int64)]
        self.values = [np.empty(0)]
        self.n = 0

    def add(self, positions: Sequence[NDArray], values: NDArray) -> None:
        """Add edges at positions, one vector for each axis."""
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
        raise ValueError(f"{op.variable!r}: expected fewer than 2**62 cells in a block; found more")
    cells = reduce(np.multiply.outer, sizes)
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


def _counts(rng, family, density, exposed) -> NDArray[np.int64]:
    """Draw the counts of cells by their exposures."""
    if family == "poisson":
        return rng.poisson(density * exposed)
    return rng.poisson(rng.standard_gamma(exposed) * ((1.0 - density) / density))


def _draw_counts(op, rng, edges, members, density, exposure) -> None:
    """Draw each block cell by cell, or its events, spread by the exposures, if that is less work.

    An event adds 1 to a Poisson count. A negative binomial count is a Poisson number of events,
    -n log p on average, each of which adds a number with a logarithmic distribution. Self-loops of
    undirected networks are left out.
    """
    n_cells = _numbers_of_cells(op, members)
    weights = [
        [np.ones(len(m)) if e is None else e[m] for m in clusters]
        for clusters, e in zip(members, exposure, strict=True)
    ]
    mean = density if op.family == "poisson" else -np.log(density)
    for axis, clusters in enumerate(weights):
        total = np.array([w.sum() for w in clusters])
        mean = mean * total.reshape([-1 if a == axis else 1 for a in range(op.n_axes)])
    if op.symmetric:
        # All ordered pairs of a cluster's objects: half the rate gives each unordered pair its own.
        mean = np.triu(mean, 1) + np.diag(np.diag(mean)) / 2.0
    for block in map(tuple, np.argwhere((mean > 0) & (n_cells > 0)).tolist()):
        objects = [m[k] for m, k in zip(members, block, strict=True)]
        weight = [w[k] for w, k in zip(weights, block, strict=True)]
        own = op.one_mode and block[0] == block[1]
        upper = own and op.symmetric
        no_loops = own and (op.symmetric or not op.self_loops)
        if mean[block] > n_cells[block]:
            _cell_by_cell(op, rng, edges, objects, weight, density[block], upper, no_loops)
        else:
            more = None if op.family == "poisson" else 1.0 - density[block]
            _event_by_event(rng, edges, objects, weight, mean[block], more, upper, no_loops)


def _cell_by_cell(op, rng, edges, objects, weight, density, upper, no_loops) -> None:
    """Draw the count of each cell of a block, its first objects in chunks."""
    shape = [len(m) for m in objects]
    step = max(1, _CHUNK // math.prod(shape[1:]))
    for start in range(0, shape[0], step):
        exposed = reduce(np.multiply.outer, [weight[0][start : start + step], *weight[1:]])
        if upper:
            exposed = np.triu(exposed, start + 1)
        count = _counts(rng, op.family, density, exposed)
        if no_loops:
            i = np.arange(len(count))
            count[i, i + start] = 0
        here = np.nonzero(count)
        where = [objects[0][here[0] + start]]
        where += [m[p] for m, p in zip(objects[1:], here[1:], strict=True)]
        edges.add(where, count[here])


def _event_by_event(rng, edges, objects, weight, mean, more, upper, no_loops) -> None:
    """Draw a block's events, in chunks, and the cell of each by the exposures.

    `more`: the parameter of the logarithmic distribution of what an event adds; None for ones.
    """
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
        added = np.ones(n, np.int64) if more is None else rng.logseries(more, n)
        if upper:
            position = [np.minimum(*position), np.maximum(*position)]
        if no_loops:
            proper = position[0] != position[1]
            position, added = [p[proper] for p in position], added[proper]
        hit = np.ravel_multi_index(position, shape)
        number, at = np.unique(np.concatenate([number, hit]), return_inverse=True)
        counts = np.concatenate([count, added])
        count = np.bincount(at.reshape(-1), counts, minlength=len(number)).astype(np.int64)
        edges.check(edges.n + len(number))
    positions = np.unravel_index(number, shape)
    edges.add([m[p] for m, p in zip(objects, positions, strict=True)], count)


def _draw_loops(op, rng, edges, cluster, density, exposure) -> None:
    """Draw the self-loops of an undirected network."""
    exposed = np.ones(len(cluster)) if exposure is None else exposure**2
    count = _counts(rng, op.family, density[cluster, cluster], exposed)
    loop = np.flatnonzero(count)
    edges.add([loop, loop], count[loop])
