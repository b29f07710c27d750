"""The log probability of a block network: a graph of sums over stored cells, then over blocks."""

import math
from functools import reduce
from operator import and_, mul

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.logprob.abstract import _logprob

from pm_match.networks.data import COUNTS
from pm_match.networks.op import BlockNetworkRV, Inputs

# Constants in double precision: PyTensor would keep them in single, where they fit.
_ZERO, _ONE, _HALF = np.float64(0.0), np.float64(1.0), np.float64(0.5)
_LOG_2PI = np.float64(math.log(2.0 * math.pi))


@_logprob.register(BlockNetworkRV)
def _log_probability(op, values, rng, size, *inputs, **kwargs):
    """Log probability of a table."""
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
    inside = reduce(and_, inside)
    valid = pt.all(inside | padding)
    # Whatever is not a cell counts for nothing at cell 0, so that no position is out of range.
    is_cell = inside & ~padding
    listed = pt.cast(is_cell, "float64")
    position = [pt.switch(is_cell, p, 0) for p in position]
    x = pt.switch(is_cell, x, _ZERO)

    block = blocks.of(position)
    exposure = blocks.exposure(position)
    if op.absent == "unknown":
        cells = blocks.sums(block, listed if exposure is None else listed * exposure)
    else:
        cells = blocks.cells()
        if parts.cells.type.shape[0] != 0:
            unknown = [parts.cells[:, axis] for axis in range(op.n_axes)]
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
    elif op.family == "negative-binomial":
        (p,) = blocks.padded
        count = blocks.sums(block, x)
        logp = pt.sum(cells * pt.log(pt.switch(cells > 0, p, _ONE)))
        logp += pt.sum(count * pt.log1p(-pt.switch(count > 0, p, _ZERO)))
        if exposure is not None:
            n = pt.switch(x > 0, exposure, _ONE)
            logp += pt.sum(pt.gammaln(x + n) - pt.gammaln(n) - pt.gammaln(x + _ONE))
        logp = check_parameters(logp, p >= 0, p <= 1, msg="0 <= density <= 1, 0 <= noise <= 1")
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
    **dict.fromkeys(COUNTS, lambda x: (x >= 0) & pt.eq(x, pt.floor(x)) & ~pt.isinf(x)),
    "normal": lambda x: ~(pt.isnan(x) | pt.isinf(x)),
}


class _Blocks:
    """Sums over blocks, as graphs.

    Blocks are numbered in one vector. Irrelevant objects are in one more cluster on their axis,
    and its blocks have the noise in place of the density.
    """

    def __init__(self, op: BlockNetworkRV, parts: Inputs):
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
            inner = (slice(None, -1),) * op.n_axes
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
        return reduce(mul, given) if given else None

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
