"""The data behind block evidence: from the stored cells of networks to the terms of the kernel."""

from collections.abc import Sequence
from math import lgamma, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.evidence import Board
from pm_match.clusters.sweep import capacity
from pm_match.networks import blocks, one_mode
from pm_match.networks.blocks import BlockSums, Contacts, Side
from pm_match.networks.families import (
    BERNOULLI,
    FAMILIES,
    NEGATIVE_BINOMIAL,
    NORMAL,
    POISSON,
    PRIORS,
    TABLE,
    fill_tables,
    log_block,
    log_constants,
    posterior,
)
from pm_match.networks.one_mode import OneMode
from pm_match.networks.parts import NetworkCells, Prior, Relation
from pm_match.numerics.ahead import Job, job
from pm_match.numerics.zeros import zeros


class BlockEvidence:
    """The networks of one relation, for the units of a board.

    `flagged`: for each partition of the board, which units may be irrelevant; by default none. It
    has `terms`: the terms of evidence, each with the partition whose sweeps it takes part in.
    """

    def __init__(
        self, own: Relation, board: Board, flagged: Sequence[NDArray[np.bool_]] | None = None
    ):
        if flagged is None:
            flagged = [np.zeros(len(units.size), np.bool_) for units in board.units]
        self.family, self.networks = FAMILIES[own.family], list(own.networks.values())
        self.prior = PRIORS[self.family]
        self.partitions, self.board = list(own.axes), board
        self.one_mode, self.symmetric = own.one_mode, own.symmetric
        self.self_loops = own.self_loops
        self._capacities = [capacity(board.truncations[p]) for p in self.partitions]
        self._unit_of = [
            [
                board.unit_of(p, first, n)
                for p, first, n in zip(self.partitions, network.first, network.shape, strict=True)
            ]
            for network in self.networks
        ]
        self.origin = self._origin()
        self.relation = self._relation()
        self._tabulated: tuple[float, ...] = ()
        self._sides = [(p, self._side(axis, flagged[p])) for axis, p in enumerate(self.partitions)]
        self.terms: list[tuple[int, Side | OneMode]] = [*self._sides]
        if self.one_mode:
            self.terms = [(self.partitions[0], self._one_mode_term())]

    # -- building ---------------------------------------------------------------------------------

    def _relation(self) -> BlockSums:
        counted = np.ones(self._capacities, np.bool_)
        n_blocks = counted.size
        return BlockSums(
            family=np.array([self.family]),
            prior=np.ones((2, 4)),
            tables=np.zeros((3, TABLE)),
            sums=np.zeros((3, n_blocks)),
            counted=np.triu(counted).ravel() if self.symmetric else counted.ravel(),
            noise=np.zeros(3),
            everything=self._everything(),
            mass=np.zeros((len(self.networks), len(self.partitions), max(self._capacities))),
            full=np.array([float(network.full) for network in self.networks]),
            version=np.zeros(1, np.int64),
            slot=self.board.slot,
            n_slots=self.board.n_slots,
        )

    def _everything(self) -> NDArray[np.float64]:
        """S, C and Q of all cells, and the part of the log evidence that only the data enter."""
        found = np.zeros(4)
        for network in self.networks:
            exposed = network.cell_exposures(network.index)
            cells = exposed.sum()
            if network.full:
                cells = self._n_cells(network) - network.cell_exposures(network.unknown).sum()
            x = self._moved(network.values)
            found[:3] += x.sum(), cells, np.square(x).sum()
            found[3] += log_constants(self.family, x, exposed).sum()
        return found

    def _origin(self) -> float:
        """Where values are counted from: sums of squares of large numbers would lose their digits.

        Absent zeros keep it where it is.
        """
        if self.family != NORMAL or any(
            network.full and self._n_cells(network) > len(network.index) + len(network.unknown)
            for network in self.networks
        ):
            return 0.0
        values = np.concatenate([network.values for network in self.networks])
        return float(values.mean()) if len(values) else 0.0

    def _moved(self, values):
        return values - self.origin if self.origin else values

    def _moved_prior(self, prior: Prior) -> Prior:
        return prior[0] - self.origin if self.family == NORMAL else prior[0], *prior[1:]

    def _moved_back(self, drawn):
        return [drawn[0] + self.origin, *drawn[1:]] if self.family == NORMAL else drawn

    def _n_cells(self, network: NetworkCells) -> float:
        """All cells of a network, or the sum of their exposures."""
        sums = [network.exposures(axis).sum() for axis in range(len(network.shape))]
        if not self.one_mode:
            return float(np.prod(sums))
        diagonal = (network.exposures(0) * network.exposures(1)).sum()
        return float(self._between(sums[0] * sums[1], diagonal))

    def _between(self, pairs: Any, diagonal: Any) -> Any:
        """Count the cells of objects with each other, of so many pairs in order and with itself."""
        if not self.symmetric:
            return pairs if self.self_loops else pairs - diagonal
        return 0.5 * (pairs + diagonal if self.self_loops else pairs - diagonal)

    @property
    def _valued(self) -> bool:
        # Unknown cells are stored with a value of zero.
        return any(
            len(network.unknown) or (self._moved(network.values) != 1.0).any()
            for network in self.networks
        )

    @property
    def _weighted(self) -> bool:
        return any(not network.full or len(network.unknown) for network in self.networks)

    @property
    def _exposed(self) -> bool:
        return any(e is not None for network in self.networks for e in network.exposure)

    @property
    def plain(self) -> bool:
        """Whether all cells are known zeros and ones."""
        odd = self._valued or self._weighted or self._exposed
        return self.family == BERNOULLI and not self.one_mode and not odd

    def _contacts(self, axis: int, flagged) -> Contacts:
        """Sort the stored cells by the units of an axis; undirected ones at both ends."""
        board, partition = self.board, self.partitions[axis]
        start, n_units = board.start[partition], len(board.units[partition].size)
        own, others, values, weights = [], [], [], []
        for network, units in zip(self.networks, self._unit_of, strict=True):
            cells = np.concatenate([network.index, network.unknown])
            x = np.concatenate([self._moved(network.values), np.zeros(len(network.unknown))])
            # Beyond what the masses count: known cells where absent ones are not, and the reverse.
            beyond = np.zeros(len(cells))
            if network.full:
                beyond[len(network.index) :] = -network.cell_exposures(network.unknown)
            else:
                beyond[: len(network.index)] = network.cell_exposures(network.index)
            ends = [units[a][cells[:, a]] for a in range(len(network.shape))]
            keep = ends[0] != ends[1] if self.one_mode else slice(None)
            for flip in (False, True) if self.symmetric else (False,):
                mine = ends[1 - axis] if flip else ends[axis]
                theirs = [e for a, e in enumerate(ends) if (a == axis) == flip]
                own.append((mine - start)[keep].astype(np.int32))
                others.append(np.stack([e[keep].astype(np.int32) for e in theirs], axis=1))
                values.append(x[keep])
                weights.append(beyond[keep])
        mine = np.concatenate(own)
        order = np.argsort(mine, kind="stable")
        counts = np.bincount(mine, minlength=n_units)
        parts = self._parts(axis, start, n_units)
        return Contacts(
            first=np.append(0, np.cumsum(counts)),
            others=np.ascontiguousarray(np.concatenate(others)[order].ravel()),
            values=np.concatenate(values)[order] if self._valued else np.zeros(0),
            weights=np.concatenate(weights)[order] if self._weighted else np.zeros(0),
            part=parts[0],
            part_network=parts[1],
            part_exposure=parts[2],
            kind=parts[3],
            flagged=np.ascontiguousarray(flagged, np.bool_),
        )

    def _parts(self, axis: int, start: int, n_units: int):
        """Find the networks that each unit's objects are in on an axis, and its kind."""
        units = np.concatenate([units[axis] - start for units in self._unit_of])
        network = np.repeat(
            np.arange(len(self.networks)), [network.shape[axis] for network in self.networks]
        )
        exposure = np.concatenate([network.exposures(axis) for network in self.networks])
        # Several objects of a unit may be in one network.
        key = units * len(self.networks) + network
        distinct, place = np.unique(key, return_inverse=True)
        total = np.bincount(place, exposure, len(distinct))
        unit, net = np.divmod(distinct, len(self.networks))
        part = np.append(0, np.cumsum(np.bincount(unit, minlength=n_units)))
        kind = np.where(np.diff(part) > 0, 0, -1)
        if not self._exposed:
            # Kinds are for plain networks: elsewhere it is enough to know who takes part.
            objects = np.zeros((n_units, len(self.networks)))
            objects[unit, net] = total
            kinds = np.unique(objects, axis=0, return_inverse=True)[1].ravel()
            kind = np.where(kind < 0, -1, kinds)
        return part, net.astype(np.int64), total, kind

    def _side(self, axis: int, flagged) -> Side:
        n_axes = len(self.partitions)
        others = [a for a in range(n_axes) if a != axis]
        widths = [self._capacities[a] for a in others]
        strides = np.append(np.cumprod(self._capacities[::-1])[::-1][1:], 1)
        other_stride = np.append(np.cumprod(widths[::-1])[::-1][1:], 1).astype(np.int64)
        n = int(np.prod(widths))
        digit = np.stack(np.unravel_index(np.arange(n), widths), axis=1).astype(np.int64)
        slots = self._capacities[axis] if self.plain else 0
        return Side(
            relation=self.relation,
            contacts=self._contacts(axis, flagged),
            axis=np.array([axis]),
            stride=strides[[axis]].astype(np.int64),
            plain=np.array([self.plain]),
            other_axis=np.array(others),
            other_partition=np.array([self.partitions[a] for a in others]),
            other_stride=other_stride,
            digit=np.ascontiguousarray(digit),
            place=(digit @ strides[others]).astype(np.int64),
            stamp=np.full(2, -1, np.int64),
            **zeros("active C, n_active 1, seen O, hits C", np.int64, C=n, O=len(others)),
            **zeros(
                "amounts 3 C, grouped 3 C T, expected C, total C S, rest C S, log_total C S, "
                "log_rest C S, edgeless S, leaving S",
                C=n,
                T=self._capacities[axis],
                S=slots,
            ),
        )

    def _one_mode_term(self) -> OneMode:
        (partition, out), (_, into) = self._sides
        return OneMode(
            out=out,
            into=into,
            directed=np.array([not self.symmetric]),
            inner=self._inner(partition),
            kept=np.zeros((2, 3, self._capacities[0])),
        )

    def _inner(self, partition: int) -> NDArray[np.float64]:
        """Sum what the cells within each unit add to S, C and Q, shape (3, U)."""
        start = self.board.start[partition]
        n_units = len(self.board.units[partition].size)
        found = np.zeros((3, n_units))
        for network, (rows, columns) in zip(self.networks, self._unit_of, strict=True):
            if network.full:
                out, into = network.exposures(0), network.exposures(1)
                both = np.bincount(rows - start, out, n_units)
                both = both * np.bincount(rows - start, into, n_units)
                diagonal = np.bincount(rows - start, out * into, n_units)
                found[1] += self._between(both, diagonal)
            for index, sign in ((network.index, 1.0), (network.unknown, -1.0)):
                ends = rows[index[:, 0]] - start, columns[index[:, 1]] - start
                within = ends[0] == ends[1]
                unit = ends[0][within]
                if sign < 0.0 or not network.full:
                    exposed = network.cell_exposures(index)[within]
                    found[1] += sign * np.bincount(unit, exposed, n_units)
                if sign > 0.0:
                    x = self._moved(network.values)[within]
                    found[0] += np.bincount(unit, x, n_units)
                    found[2] += np.bincount(unit, x * x, n_units)
        return found

    # -- the protocol's Python half ---------------------------------------------------------------

    def set_prior(self, density: Prior, noise: Prior | None) -> None:
        """Set the prior of the densities' and of the noise's parameters (see `families`)."""
        self.relation.prior[0] = self._moved_prior(density)
        self.relation.prior[1] = 1.0 if noise is None else self._moved_prior(noise)

    def kernels(self) -> list[Job]:
        """List what `load` calls."""
        tables = self.family, self.relation.prior[0], self.relation.tables
        return [job(fill_tables, *tables), *(job(*call) for call in self._sums())]

    def _sums(self) -> list[tuple[Any, ...]]:
        """List the kernels that compute masses and blocks, with what they are given."""
        start = self.board.start
        ((partition, term), *_) = self.terms
        return [
            (blocks.reset, self.relation),
            *((blocks.weigh, side, start[number]) for number, side in self._sides),
            (one_mode.rebuild if self.one_mode else blocks.rebuild, term, start[partition]),
        ]

    def load(self) -> None:
        """Bring the state to where the units stand on the board, and to the prior that is set."""
        if self._tabulated != tuple(self.relation.prior[0]):
            self._tabulated = tuple(self.relation.prior[0])
            fill_tables(self.family, self.relation.prior[0], self.relation.tables)
        for kernel, *given in self._sums():
            kernel(*given)

    def by_label(self, slot_of: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """S, C and Q (3, T, …) of the blocks by the labels, from the slots of each axis' labels.

        Blocks without objects are zero; those of undirected networks have label k <= label l.
        """
        by_slot = self.relation.sums.reshape(3, *self._capacities)
        by_label = by_slot[np.ix_(range(3), *slot_of)]
        return np.triu(by_label) if self.symmetric else by_label

    def draw(
        self, rng: np.random.Generator, slot_of: Sequence[NDArray[np.int64]]
    ) -> list[NDArray[np.float64]]:
        """Draw the densities given the present state (see `clusters.conjugate`)."""
        given = posterior(self.family, self.relation.prior[0], *self.by_label(slot_of))
        return self._moved_back(self.prior.draw(rng, given))

    def draw_noise(self, rng: np.random.Generator) -> list[NDArray[np.float64]]:
        """Draw the noise's parameters given the present state."""
        given = posterior(self.family, self.relation.prior[1], *self.relation.noise)
        return self._moved_back([x[0] for x in self.prior.draw(rng, given)])

    def log_conditional(
        self,
        density: Sequence[NDArray],
        noise: Sequence[NDArray],
        slot_of: Sequence[NDArray[np.int64]],
    ) -> float:
        """Log density of densities and noise given the present state.

        They are given as they are drawn; none if they are not drawn.
        """
        cases = (density, self.by_label(slot_of)), (noise, self.relation.noise)
        total = 0.0
        for prior, (drawn, (s, c, q)) in zip(self.relation.prior, cases, strict=True):
            if drawn:
                moved = drawn[0] - self.origin, *drawn[1:]
                total += self.prior.log_density(posterior(self.family, prior, s, c, q), moved)
        return total

    def log_marginal(
        self, labels: Sequence[NDArray[np.int64]], density: Prior, noise: Prior | None
    ) -> float:
        """Log p(X | assignments, relevance), eq. (6), by the plain formula: slow and obvious.

        `labels`, sequence of (N,): for each partition of the board, the cluster of every object, or
        -1 if it is irrelevant; `density`, `noise`: priors.
        """
        sums: dict[tuple[int, ...] | None, NDArray[np.float64]] = {}
        constant = 0.0
        for network in self.networks:
            values = {tuple(cell): x for cell, x in zip(network.index, network.values, strict=True)}
            unknown = set(map(tuple, network.unknown))
            for cell in np.ndindex(network.shape):
                if self.one_mode and (
                    (self.symmetric and cell[0] > cell[1])
                    or (not self.self_loops and cell[0] == cell[1])
                ):
                    continue
                if cell in unknown or (not network.full and cell not in values):
                    continue
                x = values.get(cell, 0.0)
                ends = [
                    int(labels[p][first + i])
                    for p, first, i in zip(self.partitions, network.first, cell, strict=True)
                ]
                if self.symmetric:
                    ends.sort()
                block = None if min(ends) < 0 else tuple(ends)
                exposure = float(network.cell_exposures(np.array([cell]))[0])
                entry = sums.setdefault(block, np.zeros(3))
                entry += x, exposure, x * x
                if self.family == POISSON:
                    constant -= lgamma(x + 1.0)
                    constant += x * log(exposure) if x > 0 else 0.0
                if self.family == NEGATIVE_BINOMIAL and x > 0:
                    constant += lgamma(x + exposure) - lgamma(exposure) - lgamma(x + 1.0)
        for block, (total, cells, squares) in sums.items():
            prior = noise if block is None else density
            assert prior is not None
            constant += log_block(self.family, prior, total, cells, squares)
        return constant
