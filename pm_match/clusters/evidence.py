"""Evidence in a collapsed state: where its units stand, and what the core asks of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pm_match.checks import lacking
from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import Partition, log_evidence_of
from pm_match.clusters.units import Units
from pm_match.numerics.ahead import Job
from pm_match.reading.evidence import Point
from pm_match.reading.parts import Clustering


class Board:
    """Where the units of several partitions stand, for evidence that looks at more than one.

    `units`: one a partition. It has `slot` (U',): the slots of all units, partition after
    partition; `n_slots` (P,); `start` (P + 1,): where each partition's units begin.
    """

    def __init__(self, units: Sequence[Units], truncations: Sequence[int]):
        self.units = list(units)
        self.truncations = list(truncations)
        self.start = np.cumsum([0, *(len(u.size) for u in self.units)])
        self.slot = np.zeros(self.start[-1], np.int16)
        self.n_slots = np.ones(len(self.units), np.int64)

    def slots_of(self, partition: int) -> NDArray[np.int16]:
        """Return the slots of one partition's units."""
        return self.slot[self.start[partition] : self.start[partition + 1]]

    def unit_of(self, partition: int, first: int, n: int) -> NDArray[np.int64]:
        """Return the units, numbered over all partitions, of `n` objects from the `first` on."""
        return self.start[partition] + self.units[partition].of_object[first : first + n]


@dataclass(frozen=True, eq=False)
class Site:
    """The partitions of a component that evidence is about.

    Attributes
    ----------
    clusterings : sequence of Clustering
    units : sequence of Units
        What moves together in each.
    board : Board
    partitions : sequence of Partition
    """

    clusterings: Sequence[Clustering]
    units: Sequence[Units]
    board: Board
    partitions: Sequence[Partition]

    def slots(self, number: int) -> NDArray[np.int64]:
        """Return the present slot of every unit (U,) of a clustering, 0 for irrelevant ones."""
        return self.partitions[number].slot.astype(np.int64)

    def slot_of(self, number: int) -> NDArray[np.int64]:
        """Return the slot of every label (T,) of a clustering, 0 for empty ones."""
        return self.partitions[number].slot_of

    def labels(self, number: int) -> NDArray[np.int64]:
        """Return the label of every object (N,) of a clustering, -1 for irrelevant ones."""
        return self.partitions[number].label[self.units[number].of_object]

    def relevance_groups(self, number: int) -> NDArray[np.int64]:
        """Return the group of relevance flags of every unit (U,), -1 for those that have none."""
        return relevance_groups(self.clusterings[number], self.units[number])


def relevance_groups(clustering: Clustering, own: Units) -> NDArray[np.int64]:
    """Return the group of relevance flags of every unit (U,), -1 for those that have none."""
    of_object = np.repeat(
        [assignment.group for assignment in clustering.assignments],
        [assignment.n_objects for assignment in clustering.assignments],
    )
    return of_object[own.first]


class EvidenceState:
    """Evidence at a point and a partition: the base of every kind's own.

    Attributes
    ----------
    site : Site
    terms : list of (int, NamedTuple)
        What the kernel scores units by (see `clusters.protocol`): each with the number of the
        clustering that it is a term of.
    """

    site: Site
    terms: list[tuple[int, Any]]

    # Whether labels of objects rule each other out: between possible partitions there are
    # impossible ones then, which moves of several objects cannot add up.
    bounded = False

    def load(self, point: Point) -> None:
        """Bring the terms to a point, and to the slots in which the units of the site are."""
        raise lacking(self, "load")

    def kernels(self) -> list[Job]:
        """List the kernels that `load` and `draw` call, so that they can be compiled ahead."""
        return []

    def load_prior(self, point: Point) -> None:
        """Bring the parameters of priors alone to a point: needed with `hyperpriors`."""

    def refreshed(self, rng: np.random.Generator, point: Point) -> Point:
        """Draw anew what belongs to empty clusters and is not integrated out, from its prior.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : mapping
            At which the terms are.

        Returns
        -------
        mapping
            A new point, to which the terms have been brought; the one given if there is nothing to
            draw.
        """
        return point

    def pool(self, rng: np.random.Generator, point: Point) -> None:
        """Let the terms sum over several values of what units have of their own at a point.

        Labels are then drawn by them, and `choose` is called.
        """

    def choose(self, point: Point) -> Point:
        """Return a new point with the values that were drawn, to which the terms are brought.

        Given the labels, out of those that were summed over; the point given if there are none.
        """
        return point

    def same_renamed(self, point: Point) -> bool:
        """Whether the density stays as it is at labels that were swapped, with what is theirs."""
        return True

    def draw(self, rng: np.random.Generator, point: Point, new: dict[str, NDArray]) -> None:
        """Draw what is integrated out from its exact conditional, and write it to `new`.

        Parameters
        ----------
        rng : numpy.random.Generator
        point : mapping
            The point that was loaded.
        new : dict
            A point with the present labels.
        """
        raise lacking(self, "draw")

    def log_prior(self, point: Point) -> float:
        """Log density of the kind's own parameters that are not integrated out."""
        return 0.0

    def log_factor(self, point: Point) -> float:
        """Log evidence as a function of hyperparameters (see `Evidence.hyperpriors`).

        Of terms that are loaded, whose priors `load_prior` brings to the point.
        """
        self.load_prior(point)
        return self.log_evidence()

    def log_evidence(self) -> float:
        """Log evidence of the terms as they are loaded."""
        return sum(
            log_evidence_of(table, self.site.partitions[number].n_slots[0])
            for number, table in self._tables
        )

    @cached_property
    def _tables(self) -> list[tuple[int, Any]]:
        """A table for every term, as kernels get them."""
        return [(number, collect([term])) for number, term in self.terms]

    def log_conditional(self, point: Point) -> float:
        """Log density of what `draw` drew, given all else, at the `point` that it was written to.

        With it, chains look whether they sample what is declared (see `reading.declared_draws`).
        """
        raise lacking(self, "log_conditional")

    def log_marginal(self, point: Point, labels: Sequence[NDArray[np.int64]]) -> float:
        """Log marginal likelihood by the plain formula, for labels (N,) of every clustering.

        Slow, and obviously right: what tests hold the terms against.
        """
        raise lacking(self, "log_marginal")
