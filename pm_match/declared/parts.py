"""What is read of likelihoods over an assignment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.declared.weights import Weights
from pm_match.reading.evidence import Evidence
from pm_match.reading.exchange import LabelRows

# Numbers a label whose parameters are drawn one number at a time.
MOST_SLICED = 32
# Tables of log densities have at most so many: half a gigabyte, of which reading holds a few.
MOST_CELLS = 2**25
# A table of more cells than this is worth the seconds that it takes to compile it well.
LARGE = 20_000


@dataclass(frozen=True, eq=False)
class Effects:
    """Random effects of objects, in groups: what enters the same entries, of one object.

    Given the labels and all else, groups are independent.
    """

    # names, keys: variables, and names of their values in points
    names: tuple[str, ...]
    keys: tuple[str, ...]
    places: tuple[NDArray[np.int64], ...]  # of each value's numbers: the group; -1 for none
    group: NDArray[np.int64]  # (E,): of every entry, the group that enters it; -1 for none
    owner: NDArray[np.int64]  # (G,): the object of every group


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampled(Evidence):
    """Factors of the declared density whose parameters are not integrated out."""

    kind = "declared"
    anchored = True

    # assignments, factors: all of the clusterings; variables and potentials in their entries' order
    assignments: tuple[str, ...]
    factors: tuple[str, ...]
    batch: int
    conditions: bool  # how entries are compiled (see `reading.label_tables`)
    # free variables that the factors depend on, or that labels have rows of
    parameters: tuple[str, ...]
    all_seen: bool  # whether no factor is a free variable, missing values apart
    # of every clustering (N, K): what is observed of every object, for a start, NaN where nothing
    # is; K may be 0
    numbers: tuple[NDArray[np.float64], ...]

    @property
    def names(self) -> list[str]:
        """Nothing is integrated out."""
        return []

    @property
    def searchable(self) -> bool:
        """Not where the scale of what is free could be climbed to nothing."""
        return self.all_seen

    @property
    def handed_on(self) -> list[str]:
        """The labels that a search finds mean little without their parameters."""
        return list(self.parameters)

    def numbers_of(self, clustering: int) -> NDArray[np.float64]:
        """Return the `numbers` of a clustering."""
        return self.numbers[self.clusterings.index(clustering)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Likelihoods(Sampled):
    """Factors of the declared density whose entries depend on the labels of one object each."""

    clustering: int  # the number of the clustering in its component
    sizes: tuple[int, ...]  # numbers of entries of the factors
    truncation: int
    # (E,): object of every entry, numbered assignment after assignment; -1 if no label changes it
    owner: NDArray[np.int64]
    rows: tuple[LabelRows, ...]  # what labels have of them
    # what the labels of one part have, if labels are joint: the title of its clusters, and the rows
    part_rows: tuple[tuple[str, LabelRows], ...]
    part_named: tuple[str, ...]  # what the labels of several parts have, all of them
    # of these, what is independent between labels, and can be drawn from its prior
    redrawn: tuple[LabelRows, ...]
    # of these, what is drawn by slices: few numbers, none of them whole
    sliced: tuple[LabelRows, ...]
    weights: tuple[Weights, ...]  # of the parameters, what labels choose a number each of
    effects: Effects | None  # of the parameters, what objects have of their own
    # whether the joint density stays as it is if labels, and their rows, take others' places
    swappable: bool

    @property
    def has_weights(self) -> bool:
        """Whether labels' own are found."""
        return bool(self.weights)

    @property
    def exchangeable(self) -> bool:
        """Whether labels may be swapped, with their rows."""
        return self.swappable

    @property
    def relabelled(self) -> list[str]:
        """What labels have rows of."""
        weights = [own.name for own in self.weights]
        return [*dict.fromkeys([*self.of_clusters, *self.part_named, *weights])]

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """What labels, or their parts, have rows of, or a variable each; and labels' weights."""
        return {
            name: {} if rows.axis is None else {rows.axis: self.clustering}
            for rows in (*self.rows, *(rows for _, rows in self.part_rows))
            for name in rows.names
        } | {own.name: {own.axis: self.clustering} for own in self.weights if own.axis is not None}

    @property
    def each_cluster(self) -> list[tuple[str, ...]]:
        """What labels have a variable each of."""
        return [rows.names for rows in self.rows if rows.axis is None]

    @property
    def of_parts(self) -> dict[str, str]:
        """What the labels of one part have."""
        return {name: title for title, rows in self.part_rows for name in rows.names}


@dataclass(frozen=True, eq=False, kw_only=True)
class PairLikelihoods(Sampled):
    """Factors of the declared density, entries of which depend on the labels of two objects each.

    Objects are numbered assignment after assignment, of one clustering after the other.
    """

    among: tuple[int, ...]  # the numbers of the clusterings in their component
    truncations: tuple[int, ...]  # of each
    # (E, 2): objects of every entry; -1 for the second if there is one only, or for both
    owners: NDArray[np.int64]
    second: tuple[bool, ...]  # of every place where labels enter: whether they are the second's
    edges: tuple[str, ...]  # the factors that are observed of pairs
    axes: dict[str, dict[int, int]]  # parameters: the clustering whose labels number an axis

    @property
    def clusterings(self) -> tuple[int, ...]:
        """All that its entries depend on labels of."""
        return self.among

    @property
    def exchangeable(self) -> bool:
        """Parameters do not go with labels yet."""
        return False

    @property
    def advice(self) -> dict[str, str]:
        """What networks are."""
        return dict.fromkeys(
            self.edges,
            "expected edges all of whose parameters are entries, which two labels choose, of "
            "matrices with conjugate priors",
        )

    @property
    def relabelled(self) -> list[str]:
        """What labels number entries of."""
        return [*self.axes]

    @property
    def of_clusters(self) -> dict[str, dict[int, int]]:
        """What labels number entries of."""
        return self.axes
