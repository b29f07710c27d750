r"""Aligning the clusters of one data set with those of the others, all at once.

With the labels of all else fixed, the groups of one assignment (see `groups`) that take labels of
their own, no two the same, change disjoint rows of blocks. The collapsed log joint is then a sum
over groups g and their labels j,

.. math:: \sum_g v_{g, j(g)}, \quad
          v_{gj} = \sum_l \left[ \log F(S_{jl} + S_{gl}) - \log F(S_{jl}) \right] + \text{prior}

with :math:`S_{jl}` the sums of block (j, l) without the groups and F the family's marginal
likelihood (Iwata & Ishiguro 2017, eq. 6, for edges). The best labels are a linear assignment. What
is fixed here is another assignment's to change: from many starts, all are solved in turn.

Where data sets lack clusters of others, most pairs are wrong in whatever has a place for all groups
at once, and what is solved next is led astray by them. So a start is a pair or two, and what is
matched grows from there, the groups first whose place is worth most beside a label of their own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import gammaln

from pm_match.clusters.evidence import Board
from pm_match.networks.block_evidence import BlockEvidence
from pm_match.networks.families import add_gains, log_blocks
from pm_match.networks.parts import Relation
from pm_match.numerics.stick_breaking import log_prior
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Component
from pm_match.search.groups import ObjectGroups

# The label of a group that has no place yet, which counts for nothing.
ABSENT = -2
_MOST_ROUNDS = 10
# Pairs that starts begin with, if not with all groups.
_SEEDS = 1, 2
# How often a start begins with some of what is best so far.
_KEPT = 0.5


class Mobile(NamedTuple):
    """The groups of one kind: what a linear assignment gives labels to."""

    clustering: int
    kind: int


class Sums:
    """The sums of a component's networks, by groups.

    `grouped`: one for every clustering; `point`: where the priors are taken from.
    """

    def __init__(self, component: Component, grouped: list[ObjectGroups], point: Point):
        self.component = component
        self.grouped = grouped
        sizes = [len(own.kind) for own in grouped]
        board = Board([own.units for own in grouped], sizes)
        # Every group in a slot of its own: blocks are then sums by groups.
        board.slot[:] = np.concatenate([np.arange(1, n + 1) for n in sizes])
        board.n_slots[:] = np.array(sizes) + 1
        self.evidence: list[BlockEvidence] = []
        self.sums: list[NDArray[np.float64]] = []
        for relation in component.of(Relation):
            evidence = BlockEvidence(relation, board)
            evidence.set_prior(relation.prior(point)[0], None)
            evidence.load()
            by_group = evidence.by_label([np.arange(1, sizes[c] + 1) for c in relation.axes])
            self.evidence.append(evidence)
            self.sums.append(by_group)
        self.priors = [c.prior(point) for c in component.clusterings]
        n_objects = max(c.n_objects for c in component.clusterings)
        self._log_gamma = gammaln(np.maximum(np.arange(n_objects + 1), 1e-300))
        self._log_gamma[0] = 0.0

    # -- the log joint ----------------------------------------------------------------------------

    def by_label(self, relation: int, labels: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """S, C and Q (3, T, T', …) of a relation's blocks at the groups' labels."""
        found = self.sums[relation]
        for axis, c in enumerate(self.component.of(Relation)[relation].axes):
            found = _sum_axis(found, axis + 1, self._one_hot(c, labels[c]))
        if self.component.of(Relation)[relation].symmetric:
            diagonal = np.triu(np.tril(found))
            found = np.triu(found + np.swapaxes(found, 1, 2) - diagonal)
        return found

    def log_joint(self, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log joint at the groups' labels, but for what irrelevant objects add to it.

        Clusters have whatever names the prior likes best.
        """
        total = 0.0
        for number, evidence in enumerate(self.evidence):
            sums = self.by_label(number, labels).reshape(3, -1)
            relation = evidence.relation
            none = relation.tables[:, :0]
            everything = np.ones(sums.shape[1], bool)
            total += log_blocks(evidence.family, relation.prior[0], none, sums, everything)
        for c, prior in enumerate(self.priors):
            counts = self.counts(c, labels[c])
            if not self.component.clusterings[c].finite:
                counts = np.sort(counts)[::-1].copy()
            total += log_prior(*prior, counts)
        return total

    def counts(self, c: int, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Objects in each cluster of a clustering, at the groups' labels."""
        held = labels >= 0
        sizes = self.grouped[c].units.size
        return np.bincount(
            labels[held], sizes[held], self.component.clusterings[c].truncation
        ).astype(np.int64)

    def _one_hot(self, c: int, labels) -> NDArray[np.float64]:
        found = np.zeros((len(labels), self.component.clusterings[c].truncation))
        held = np.flatnonzero(labels >= 0)
        found[held, labels[held]] = 1.0
        return found

    # -- labels of one kind -----------------------------------------------------------------------

    def members(self, mobile: Mobile, labels: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Find the groups of a kind that are in a cluster, or have no place yet."""
        own = self.grouped[mobile.clustering]
        return np.flatnonzero((own.kind == mobile.kind) & (labels[mobile.clustering] != -1))

    def values(self, mobile: Mobile, labels: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """Compute what the log joint rises by if groups take labels, shape (G, T).

        `labels`, list of (G_c,): of the groups of every clustering; what those of the kind are, is
        not looked at.

        Notes
        -----
        Sums over groups are exact where no two take the same label and the prior of clusters is
        additive (a Dirichlet, known weights; for broken sticks that of a Dirichlet process takes
        its place, the best of names), unless a network has the kind on both axes.
        """
        c, chosen = mobile.clustering, self.members(mobile, labels)
        rest = labels[c].copy()
        rest[chosen] = ABSENT
        found = self._prior_values(c, rest, chosen)
        for number, relation in enumerate(self.component.of(Relation)):
            evidence, sums = self.evidence[number], self.sums[number]
            if relation.symmetric:
                sums = sums + np.triu(sums, 1).swapaxes(1, 2)
            for axis, home in enumerate(relation.axes):
                if home != c or (relation.symmetric and axis):
                    continue
                side = np.moveaxis(sums, axis + 1, 1)
                others = [a for k, a in enumerate(relation.axes) if k != axis]
                for k, other in enumerate(others):
                    side = _sum_axis(side, k + 2, self._one_hot(other, labels[other]))
                side = side.reshape(3, side.shape[1], -1)
                moved = side[:, chosen]
                met = moved[1].any(axis=0) | moved[0].any(axis=0)
                fixed = self._one_hot(c, rest).T @ side[:, :, met]
                add_gains(
                    evidence.family,
                    evidence.relation.prior[0],
                    evidence.relation.tables,
                    fixed,
                    np.ascontiguousarray(moved[:, :, met]),
                    found,
                )
        return found

    def _prior_values(self, c: int, rest, chosen) -> NDArray[np.float64]:
        """Compute what the prior of a clustering adds to `values`."""
        counts, sizes = self.counts(c, rest), self.grouped[c].units.size[chosen]
        a, b = self.priors[c]
        if self.component.clusterings[c].finite:
            base = log_prior(a, b, counts)
            found = np.empty((len(chosen), len(counts)))
            for j in range(len(counts)):
                for g, size in enumerate(sizes):
                    counts[j] += size
                    found[g, j] = log_prior(a, b, counts) - base
                    counts[j] -= size
            return found
        new = np.log(b[0]) if len(b) else 0.0
        together = self._log_gamma[counts + sizes[:, None]] - self._log_gamma[counts]
        return together + np.where(counts == 0, new, 0.0)

    def solve(self, mobile: Mobile, labels: Sequence[NDArray[np.int64]]) -> bool:
        """Give the groups of a kind their best labels, all else fixed; return if any changed."""
        own, chosen = labels[mobile.clustering], self.members(mobile, labels)
        if not len(chosen):
            return False
        values, best = self._assigned(mobile, labels)
        # A tie is no reason to move.
        rows = np.arange(len(chosen))
        before = own[chosen]
        if before.min() >= 0 and len(np.unique(before)) == len(before):
            gained = values[rows, best].sum() - values[rows, before].sum()
            if gained <= 1e-9 * max(1.0, abs(values).max()):
                return False
        own[chosen] = best
        return True

    def place(self, mobile: Mobile, labels: Sequence[NDArray[np.int64]], n: int) -> None:
        """Give the `n` groups of a kind their best labels that gain most by them; others none.

        What they gain is beside a label that nothing has, or if there is none beside any label.
        """
        own, chosen = labels[mobile.clustering], self.members(mobile, labels)
        values, best = self._assigned(mobile, labels)
        own[chosen] = ABSENT
        free = np.setdiff1d(np.arange(values.shape[1]), own)
        alone = values[:, free].max(axis=1) if len(free) else values.mean(axis=1)
        gained = values[np.arange(len(chosen)), best] - alone
        first = np.argsort(-gained, kind="stable")[:n]
        own[chosen[first]] = best[first]

    def _assigned(self, mobile: Mobile, labels: Sequence[NDArray[np.int64]]):
        """Compute the `values` (G, T) of a kind's groups, and their best labels (G,)."""
        values = np.maximum(self.values(mobile, labels), -1e300)
        return values, scipy.optimize.linear_sum_assignment(values, maximize=True)[1]


def _sum_axis(values, axis: int, one_hot):
    """Sum an axis of groups to one of labels."""
    return np.moveaxis(np.moveaxis(values, axis, -1) @ one_hot, -1, axis)


def alignments(
    sums: Sums,
    labels: list[NDArray[np.int64]],
    mobile: list[Mobile],
    rng: np.random.Generator,
    n_starts: int,
) -> list[tuple[list[NDArray[np.int64]], float]]:
    """Look for the best labels of some kinds of groups, those of the others fixed.

    `labels`, list of (G_c,): labels of the groups of every clustering: -1 if irrelevant, `ABSENT`
    if without a place; `mobile`: the kinds that move: those of one data set; `n_starts`: random
    starts, besides the present labels if these are complete. Return what all starts come to, each
    once: `labels`, and their log joint (see `Sums.log_joint`), the best first. The present labels
    are one of these, if they are complete.
    """
    reached = []
    best, highest = None, -np.inf
    mobile = [m for m in mobile if len(sums.members(m, labels))]
    if all((labels[m.clustering][sums.members(m, labels)] >= 0).all() for m in mobile):
        best, highest = labels, sums.log_joint(labels)
        reached.append((best, highest))
    seen = {_key(own) for own, _ in reached}
    for start in range(n_starts + 1 if mobile else 0):
        trial = [own.copy() for own in labels]
        order = [mobile[m] for m in rng.permutation(len(mobile))]
        if start or best is None:
            order = _grow(sums, trial, order, best, rng)
        for _ in range(_MOST_ROUNDS):
            moved = [sums.solve(m, trial) for m in order]
            if not any(moved):
                break
        key = _key(trial)
        if key in seen:
            continue
        seen.add(key)
        found = sums.log_joint(trial)
        reached.append((trial, found))
        if found > highest:
            best, highest = trial, found
    return sorted(reached, key=lambda own: -own[1])


def _key(labels: Sequence[NDArray[np.int64]]) -> bytes:
    return b"".join(own.tobytes() for own in labels)


def _grow(sums: Sums, labels, order: list[Mobile], best, rng: np.random.Generator) -> list[Mobile]:
    """Match a few groups, at random or as in `best`, then more of each kind in turn.

    Return the kinds, the first of which has waited longest.
    """
    members = [sums.members(m, labels) for m in order]
    for m, chosen in zip(order, members, strict=True):
        labels[m.clustering][chosen] = ABSENT
    c, pool = order[0].clustering, rng.permutation(members[0])
    own = labels[c]
    if best is not None and rng.random() < _KEPT:
        n = int(rng.integers(1, len(pool) + 1))
        own[pool[:n]] = best[c][pool[:n]]
    else:
        n = min(int(rng.choice([*_SEEDS, len(pool)])), len(pool))
        used = np.unique(own[own >= 0])
        free = np.setdiff1d(np.arange(sums.component.clusterings[c].truncation), used)
        names = np.append(used, free[: max(0, len(pool) - len(used))])
        own[pool[:n]] = rng.permutation(names)[:n]
    for size in range(n + 1, max(map(len, members))):
        order = [*order[1:], order[0]]
        sums.place(order[0], labels, size)
    return [*order[1:], order[0]]
