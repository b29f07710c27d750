"""Likelihoods of pairs at a point: tables of what they are worth under each two labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymc.model.core import Model

from pm_match.clusters.evidence import Point, Site
from pm_match.clusters.sweep import capacity
from pm_match.declared.pairs import pair_table
from pm_match.declared.parts import LARGE, PairLikelihoods
from pm_match.declared.sampled import SampledAccess, SampledState
from pm_match.declared.term import LabelTable, PairTable
from pm_match.reading.owners import OTHER_STEPS, Owned, close
from pm_match.reading.parts import UnservedModelError

# What impossible pairs score at most.
_IMPOSSIBLE = -1e12


class PairAccess(SampledAccess):
    """What is compiled of a model for likelihoods of pairs."""

    def __init__(self, model: Model, evidence: PairLikelihoods):
        super().__init__(model, evidence, by_use=True)
        self.uses = self.densities.uses
        large = max(evidence.truncations) ** 2 * len(evidence.owners) > LARGE
        self.entries = self.densities.compiled(evidence.batch, evidence.conditions, large)


class PairState(SampledState):
    """Likelihoods of pairs of objects, for the units of a site."""

    evidence: PairLikelihoods
    access: PairAccess

    def __init__(self, evidence: PairLikelihoods, site: Site, access: PairAccess):
        self.evidence, self.site, self.access = evidence, site, access
        among = [(number, site.clusterings[number]) for number in evidence.among]
        assignments = [a for _, clustering in among for a in clustering.assignments]
        home = [n for n, (_, clustering) in enumerate(among) for _ in clustering.assignments]
        self._ends = np.cumsum([a.n_objects for a in assignments])[:-1]
        self._truncations = [evidence.truncations[home[use]] for use in access.uses]
        self._n_objects = [assignments[use].n_objects for use in access.uses]
        # Units of all partitions, of every object.
        board = site.board
        of_object = np.concatenate([board.unit_of(n, 0, c.n_objects) for n, c in among])
        units = np.where(evidence.owners < 0, -1, of_object[evidence.owners])
        # Objects of one unit have one label.
        one, two = units.T
        self._pairs = np.flatnonzero((two >= 0) & (one != two))
        alone = np.where((two < 0) | (one == two), one, -1)
        self._nobody = np.flatnonzero((one < 0) & (two < 0))
        worth = np.zeros((len(self._pairs), *2 * [max(evidence.truncations)]))
        self._impossible = np.zeros(1)
        self._alone: list[Owned] = []
        self._by_label: list[LabelTable] = []
        self.terms: list[tuple[int, Any]] = []
        for place, number in enumerate(evidence.among):
            start, stop = board.start[number : number + 2]
            n_units = int(stop - start)
            inside = (start <= alone) & (alone < stop)
            self._alone.append(Owned(np.where(inside, alone - start, -1), n_units))
            self._by_label.append(
                LabelTable(
                    worth=np.zeros((n_units, capacity(evidence.truncations[place]))),
                    slot=site.partitions[number].slot,
                    constant=np.zeros(1),
                )
            )
            pairs = units[self._pairs], int(start), n_units
            own = _pair_term(worth, *pairs, board.slot, place == 0, self._impossible)
            self.terms += [(number, self._by_label[-1]), (number, own)]
        self._worth = worth

    def load(self, point: Point) -> None:
        """Bring the tables to a point."""
        given = self.access.entries, point, self.evidence.second
        table = pair_table(*given, self._truncations, self._n_objects)
        self._worth[:] = np.moveaxis(table[..., self._pairs], -1, 0)
        self.bounded = bool(np.isneginf(self._worth).any())
        same = np.diagonal(table).T
        truncations = self.evidence.truncations
        for truncation, owned, own in zip(truncations, self._alone, self._by_label, strict=True):
            own.worth[:, 1 : truncation + 1] = owned.total(same[:truncation])
        if self.bounded:
            # Worse than all that other pairs, and data of one object, may say.
            tables = [self._worth, *(own.worth for own in self._by_label)]
            most = max(np.abs(w).max(where=np.isfinite(w), initial=0.0) for w in tables)
            self._impossible[0] = min(_IMPOSSIBLE, -2.0 * (1 + len(self._pairs)) * most)
        free = np.concatenate(table[..., self._nobody])
        self._by_label[0].constant[0] = self._of_nobody(free)

    def _objects(self) -> NDArray[np.int64]:
        """Return the labels of the objects (N,) of all clusterings."""
        return np.concatenate([self.site.labels(number) for number in self.evidence.among])

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw nothing.

        Raise `UnservedModelError` if the tables are not what is declared of the labels drawn.
        """
        labels = np.split(self._objects()[None], self._ends, axis=1)
        entries = self.access.entries(point, [labels[use] for use in self.access.uses])
        declared = float(entries.sum())
        if not close(np.array(declared), np.array(self.log_evidence())):
            raise UnservedModelError(
                f"{self._named}: expected log densities whose entries depend on the labels of "
                "two objects at most, as those had that the model was read at; found draws of "
                f"labels where they depend on more. {OTHER_STEPS}"
            )


def _pair_term(
    worth: NDArray[np.float64],
    pair: NDArray[np.int64],
    start: int,
    n_units: int,
    slot: NDArray[np.int16],
    counted: bool,
    impossible: NDArray[np.float64],
) -> PairTable:
    """Sort pairs by the units of a partition, which begin at `start` among all."""
    n = len(pair)
    own, partner = pair.T.ravel(), pair[:, ::-1].T.ravel()
    number, is_second = np.tile(np.arange(n), 2), np.repeat([False, True], n)
    kept = np.flatnonzero((start <= own) & (own < start + n_units))
    kept = kept[np.argsort(own[kept], kind="stable")]
    counts = np.bincount(own[kept] - start, minlength=n_units)
    return PairTable(
        worth=worth,
        pair=np.ascontiguousarray(pair),
        first=np.append(0, np.cumsum(counts)),
        own_pair=number[kept],
        partner=np.ascontiguousarray(partner[kept]),
        is_second=is_second[kept],
        slot=slot,
        counted=np.array([counted]),
        impossible=impossible,
    )
