"""The entries of a term: statistics of cells, added up by unit and position, and their levels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pm_match.clusters.conjugate import DIRICHLET, GAMMA
from pm_match.columns.families import Statistics
from pm_match.columns.term import ColumnsTerm
from pm_match.numerics.zeros import zeros

# Gains are kept of positions with at most so many levels, and of so many numbers in all.
_MOST_LEVELS = 64
_MOST_KEPT = 2**24
# Tables have at most so many numbers, one and all.
_LONGEST = 2**16
_MOST_TABLED = 2**22


@dataclass(frozen=True, eq=False)
class Entries:
    """Statistics of U units."""

    start: NDArray[np.int64]  # (U + 1,): where the entries of each begin
    position: NDArray[np.int64]  # (E,)
    statistic: NDArray[np.float64]  # (E, 3)


def joined(statistics: Sequence[Statistics]) -> Statistics:
    """Join the statistics of several variables, whose cells are numbered one after the other."""
    cell, category, values = (np.concatenate(part) for part in zip(*statistics, strict=True))
    return cell, category, values


def entries(
    code: int,
    n_columns: int,
    n_categories: int,
    n_units: int,
    unit: NDArray[np.int64],
    column: NDArray[np.int64],
    statistics: Statistics,
) -> Entries:
    """Add up the statistics of cells by units.

    `code`: the kind of prior; `unit`, `column` (C,): of every cell.
    """
    cell, category, values = statistics
    own, position = unit[cell], column[cell]
    if code == DIRICHLET:
        # Every column has a position for each category, and one for their total, after all these.
        total = n_columns * n_categories + position
        position = position * n_categories + category
        own, position = np.concatenate([own, own]), np.concatenate([position, total])
        values = np.concatenate([values, values])
    n_positions = positions(code, n_columns, n_categories)
    key = own * n_positions + position
    if (np.diff(key) > 0).all():
        found, weights, sums = key, values[:, 0], values[:, 1]
        scatter = np.zeros(len(key))
    else:
        found, group = np.unique(key, return_inverse=True)

        def total_of(x):
            return np.bincount(group, x, len(found))

        weights, scatter = total_of(values[:, 0]), np.zeros(len(found))
        if code <= GAMMA:
            sums = total_of(values[:, 1])
        else:
            sums = total_of(values[:, 0] * values[:, 1]) / weights
            scatter = total_of(values[:, 0] * (values[:, 1] - sums[group]) ** 2)
    counts = np.bincount(found // n_positions, minlength=n_units)
    return Entries(
        np.concatenate([[0], np.cumsum(counts)]),
        found % n_positions,
        np.stack([weights, sums, scatter], axis=1),
    )


def positions(code: int, n_columns: int, n_categories: int) -> int:
    """Count the positions of a term."""
    return n_columns * (n_categories + 1) if code == DIRICHLET else n_columns


def new_term(
    code: int, n_positions: int, n_slots: int, own: Entries, continuous: bool
) -> ColumnsTerm:
    """Make a term for some entries, whose prior is still to be set.

    `continuous`: whether values are never the same.
    """
    levels = len(own.position)
    level, position, statistic = np.arange(levels), own.position, own.statistic
    row = np.full(levels, -1)
    if not continuous and levels:
        order = np.lexsort((statistic[:, 1], statistic[:, 0], position))
        sorted_position, sorted_statistic = position[order], statistic[order]
        new = np.ones(levels, bool)
        new[1:] = (np.diff(sorted_position) != 0) | (np.diff(sorted_statistic, axis=0) != 0).any(1)
        level[order] = np.cumsum(new) - 1
        position, statistic = sorted_position[new], sorted_statistic[new]
        counts = np.bincount(position, minlength=n_positions)
        counts[counts > _MOST_LEVELS] = 0
        if counts.sum() * n_slots <= _MOST_KEPT:
            kept = counts[position] > 0
            row = np.where(kept, np.cumsum(kept) - 1, -1)
    rows = np.flatnonzero(row >= 0)
    sizes = {"P": n_positions, "S": n_slots, "W": 1 if code == DIRICHLET else 3}
    sizes |= {"R": len(rows), "Q": n_positions if continuous else 0}
    first, n_tabled = _tables(code, own, n_positions)
    return ColumnsTerm(
        code=np.array([code]),
        start=own.start,
        level=level.astype(np.int32),
        position=position.astype(np.int32),
        statistic=np.ascontiguousarray(statistic),
        row=row.astype(np.int32),
        row_level=rows.astype(np.int32),
        version=np.ones(n_positions, np.int64),
        slot_version=np.ones((n_positions, n_slots), np.int32),
        weight=single_weights(position, statistic, n_positions),
        stale=np.ones(1, np.int8),
        table=np.full(n_tabled, np.nan),
        first=first,
        **zeros(
            "prior P 4, sums P S W, gains R S, left R S, ready Q 4 S, constant 1, total S, "
            "apart P S W",
            **sizes,
        ),
        **zeros("row_version R, ready_version Q", np.int64, **sizes),
        **zeros("gains_version R S, left_version R S, slot_ready Q S", np.int32, **sizes),
    )


def _tables(code: int, own: Entries, n_positions: int) -> tuple[NDArray[np.int64], int]:
    """Say where tables of each position begin (P, 2), -1 without any, and how long they are."""
    first = np.full((n_positions, 2), -1)
    if code > GAMMA:
        return first, 0
    t = own.statistic[:, : 1 + (code == GAMMA)]
    broken = np.bincount(own.position, (t != np.floor(t)).any(axis=1), n_positions)
    most = np.zeros((n_positions, t.shape[1]))
    np.maximum.at(most, own.position, t)
    # A gain is looked up of every slot: of the unit's own, with what it holds of the unit already.
    longest = [
        1 + np.bincount(own.position, column, n_positions) + top
        for column, top in zip(t.T, most.T, strict=True)
    ]
    tabled = (broken == 0) & (np.max(longest, axis=0) <= _LONGEST)
    size = np.where(tabled, longest, 0.0).astype(np.int64).T
    if size.sum() > _MOST_TABLED:
        return first, 0
    first[tabled, : size.shape[1]] = (np.cumsum(size) - size.ravel()).reshape(size.shape)[tabled]
    return first, int(size.sum())


def single_weights(position: NDArray, statistic: NDArray, n_positions: int) -> NDArray[np.float64]:
    """Find the weight of single values at each position, the least one without a scatter."""
    found, single = np.full(n_positions, np.inf), statistic[:, 2] == 0.0
    np.minimum.at(found, position[single], statistic[single, 0])
    return found
