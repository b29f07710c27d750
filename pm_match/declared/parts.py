"""What is read of likelihoods over an assignment."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.declared.weights import Weights
from pm_match.reading.evidence import Evidence

# Numbers a label whose parameters are drawn one number at a time.
MOST_SLICED = 32


@dataclass(frozen=True, eq=False)
class LabelRows:
    """What every label has of the parameters: rows of one variable, or a variable each."""

    # names, keys: variables, and names of their values in points: one, or one for each label
    names: tuple[str, ...]
    keys: tuple[str, ...]
    # the axis of the value along which the rows are; None if every label has a variable
    axis: int | None

    def table(self, point: Mapping[str, NDArray]) -> NDArray:
        """Return the rows at a point (T, K), a copy."""
        if self.axis is None:
            whole = np.stack([point[key] for key in self.keys])
        else:
            whole = np.moveaxis(point[self.keys[0]], self.axis, 0)
        return np.array(whole.reshape(len(whole), -1))

    def written(self, point: Mapping[str, NDArray], table: NDArray) -> dict[str, NDArray]:
        """Return the values of a point whose rows are those of a table (T, K)."""
        like = point[self.keys[0]]
        if self.axis is None:
            return {k: row.reshape(like.shape) for k, row in zip(self.keys, table, strict=True)}
        shape = np.moveaxis(like, self.axis, 0).shape
        return {self.keys[0]: np.moveaxis(table.reshape(shape), 0, self.axis)}

    def taken(self, point: Mapping[str, NDArray], source: NDArray) -> dict[str, NDArray]:
        """Give every label the row that label `source` (T,) has at a point."""
        return self.written(point, self.table(point)[source])

    def replaced(
        self, point: Mapping[str, NDArray], other: Mapping[str, NDArray], which: NDArray[np.bool_]
    ) -> dict[str, NDArray]:
        """Return the rows at a point, but for those of some labels (T,) that are another's."""
        rows = np.where(which[:, None], self.table(other), self.table(point))
        return self.written(point, rows)


@dataclass(frozen=True, eq=False)
class Likelihoods(Evidence):
    """Factors of the declared density whose entries depend on the labels of one object each."""

    kind = "declared"
    anchored = True

    clustering: int  # the number of the clustering in its component
    # assignments, factors: all of the clustering; variables and potentials in their entries' order
    assignments: tuple[str, ...]
    factors: tuple[str, ...]
    sizes: tuple[int, ...]  # numbers of entries of the factors
    truncation: int
    # (E,): object of every entry, numbered assignment after assignment; -1 if no label changes it
    owner: NDArray[np.int64]
    batch: int
    conditions: bool  # how entries are compiled (see `reading.label_tables`)
    # free variables that the factors depend on, or that labels have rows of
    parameters: tuple[str, ...]
    # of these, and of factors that are free variables, what a search climbs
    climbed: tuple[str, ...]
    rows: tuple[LabelRows, ...]  # what labels have of them
    # what the labels of one part have, if labels are joint: the title of its clusters, and the rows
    part_rows: tuple[tuple[str, LabelRows], ...]
    part_named: tuple[str, ...]  # what the labels of several parts have, all of them
    # of these, what is independent between labels, and can be drawn from its prior
    redrawn: tuple[LabelRows, ...]
    # of these, what is drawn by slices: few numbers, none of them whole
    sliced: tuple[LabelRows, ...]
    weights: tuple[Weights, ...]  # of the parameters, what labels choose a number each of
    # whether the joint density stays as it is if labels, and their rows, take others' places
    swappable: bool
    # (N, K): what is observed of every object, for a start, NaN where nothing is. K may be 0.
    numbers: NDArray[np.float64]
    all_seen: bool  # whether no factor is a free variable, missing values apart

    @property
    def names(self) -> list[str]:
        """Nothing is integrated out."""
        return []

    @property
    def has_weights(self) -> bool:
        """Whether labels' own are found."""
        return bool(self.weights)

    @property
    def searchable(self) -> bool:
        """Not where the scale of what is free could be climbed to nothing."""
        return self.all_seen

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
    def of_parts(self) -> dict[str, str]:
        """What the labels of one part have."""
        return {name: title for title, rows in self.part_rows for name in rows.names}

    @property
    def handed_on(self) -> list[str]:
        """The labels that a search finds mean little without their parameters."""
        return list(self.parameters)
