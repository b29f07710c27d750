r"""What a draw says of the edges of new objects, densities and noise integrated out.

The cells between a new object and the objects of the network fall into blocks by the clusters of
the latter, and the noise. If the new object joins cluster j, its cells in group l add
:math:`(S_l, C_l, Q_l)` to the sums of block (j, l), and its log predictive is the sum over blocks
of

.. math:: \log p(S_{jl} + S_l,\; C_{jl} + C_l,\; Q_{jl} + Q_l) - \log p(S_{jl}, C_{jl}, Q_{jl})

with p the marginal likelihood of a block (Iwata & Ishiguro 2017, eq. 6; `networks.families`). All
cells of an irrelevant object are noise, and so are those with irrelevant objects.
"""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.families import add_gains, log_constants
from pm_match.networks.parts import NetworkCells

Sums = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NewCells(NetworkCells):
    """Cells of N new objects, on the first axis, with a network's objects on the others, in order.

    These axes are the network's own, but for the first: new objects are in no partition.
    """

    others: list[int]  # the network's other axes

    def rows(self, wanted: slice) -> "NewCells":
        """Return the cells of some of the new objects."""
        first, end, _ = wanted.indices(self.shape[0])
        keep, unsure = (
            (index[:, 0] >= first) & (index[:, 0] < end) for index in (self.index, self.unknown)
        )
        shift = np.zeros(self.index.shape[1], np.int64)
        shift[0] = first
        return replace(
            self,
            shape=(end - first, *self.shape[1:]),
            index=self.index[keep] - shift,
            values=self.values[keep],
            unknown=self.unknown[unsure] - shift,
            exposure=(self.exposures(0)[wanted], *self.exposure[1:]),
        )

    def constant(self, family: int) -> NDArray[np.float64]:
        """Return what of the log predictive (N,) neither clusters nor draws enter."""
        each = log_constants(family, self.values, self.cell_exposures(self.index))
        return np.bincount(self.index[:, 0], each, self.shape[0])

    def sums(self, labels: list[NDArray[np.int64]], widths: list[int], origin: float) -> Sums:
        """Sum the cells by the groups of the objects on the other axes.

        `labels`, list of (N_a,): clusters of the objects on the other axes, -1 for irrelevant ones;
        `widths`: clusters on these axes; `origin`: where values are counted from. Return
        (3, N, L + 1): S, C and Q for each of the L products of clusters, and of noise.
        """
        n, size = self.shape[0], int(np.prod(widths))

        def grouped(index: NDArray, weights: NDArray) -> NDArray[np.float64]:
            ends = [own[index[:, place + 1]] for place, own in enumerate(labels)]
            noisy = reduce(np.logical_or, [end < 0 for end in ends])
            group = np.ravel_multi_index([np.maximum(end, 0) for end in ends], widths)
            where = index[:, 0] * (size + 1) + np.where(noisy, size, group)
            return np.bincount(where, weights, n * (size + 1)).reshape(n, size + 1)

        x = self.values - origin
        if self.full:
            exposures = [self.exposures(axis) for axis in range(1, len(self.shape))]
            masses = [
                np.bincount(own[own >= 0], exposed[own >= 0], width)
                for own, exposed, width in zip(labels, exposures, widths, strict=True)
            ]
            everyone = np.prod([exposed.sum() for exposed in exposures])
            inside = reduce(np.multiply.outer, masses).ravel()
            mass = np.append(inside, everyone - inside.sum())
            counts = self.exposures(0)[:, None] * mass
            counts -= grouped(self.unknown, self.cell_exposures(self.unknown))
        else:
            counts = grouped(self.index, self.cell_exposures(self.index))
        return np.stack([grouped(self.index, x), counts, grouped(self.index, x * x)])


def log_edges(
    evidence: BlockEvidence,
    slot_of: list[NDArray[np.int64]],
    axis: int,
    sums: Sums,
    backward: Sums | None,
    noisy: bool,
) -> NDArray[np.float64]:
    """Log predictive of new objects' cells in every cluster.

    `evidence`: loaded with a draw; `slot_of` (each T_a,): the slots of the clusters of each
    axis; `axis`: that of the new objects; `sums` (3, N, L + 1): of their cells, from
    `NewCells.sums`; `backward` (3, N, L + 1): of cells towards the new objects, in directed
    one-mode networks; `noisy`: whether they may be irrelevant. Return (N, T + 1): the last column
    is that of irrelevant objects; -inf if there are none.
    """
    blocks = evidence.by_label(slot_of)
    if evidence.symmetric:
        blocks = blocks + np.triu(blocks, 1).transpose(0, 2, 1)
    prior, noise_prior = evidence.relation.prior
    noise = np.reshape(evidence.relation.noise, (3, 1, 1))
    inner = sums[:, :, :-1]
    into = None if backward is None else backward[:, :, :-1]
    by_row = np.moveaxis(blocks, axis + 1, 1).reshape(3, blocks.shape[axis + 1], -1)

    def gains(held: Sums, added: Sums) -> Sums:
        """Sum what cells (3, N, L) add to the density's blocks (3, J, L) of each cluster."""
        return _gains(evidence, prior, evidence.relation.tables, held, added)

    found = np.full((sums.shape[1], by_row.shape[1] + 1), -np.inf)
    found[:, :-1] = gains(by_row, inner)
    if into is not None:
        found[:, :-1] += gains(np.swapaxes(blocks, 1, 2), into)
        # The block of a cluster with itself takes the cells of both directions at once.
        for j in range(by_row.shape[1]):
            own, one, other = (x[:, :, [j]] for x in (blocks[:, [j]], inner, into))
            found[:, j] += (gains(own, one + other) - gains(own, one) - gains(own, other))[:, 0]
    outside = sums[:, :, -1:] + (0.0 if backward is None else backward[:, :, -1:])
    none = evidence.relation.tables[:, :0]
    found[:, :-1] += _gains(evidence, noise_prior, none, noise, outside)
    if noisy:
        everything = sums.sum(axis=2) + (0.0 if backward is None else backward.sum(axis=2))
        found[:, -1] = _gains(evidence, noise_prior, none, noise, everything[:, :, None])[:, 0]
    return found


def _gains(evidence: BlockEvidence, prior, tables, held: Sums, added: Sums) -> Sums:
    """Sum, over the blocks, what cells (3, N, L) add to blocks (3, J, L)."""
    found = np.zeros((added.shape[1], held.shape[1]))
    held, added = np.ascontiguousarray(held), np.ascontiguousarray(added)
    add_gains(evidence.family, prior, tables, held, added, found)
    return found
