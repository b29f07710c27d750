"""In how many draws two objects share a cluster."""

from collections.abc import Iterator, Sequence

import numpy as np

from pm_match.matching.partners import best_of

# Pairs of objects that are counted at a time: their bytes stay in the processor's cache.
_BLOCK = 2**18


def apart(labels: Sequence[np.ndarray], relevant: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """Put labels into the smallest type that holds them: comparing them is limited by memory.

    Irrelevant objects get a label that no object of another array has.
    """
    occupied = [part for part in labels if part.size]
    low = min((int(part.min()) for part in occupied), default=0)
    high = max((int(part.max()) for part in occupied), default=0) - low
    marks = high + np.cumsum([mask is not None for mask in relevant])
    result = []
    for part, mask, mark in zip(labels, relevant, marks, strict=True):
        small = np.empty(part.shape, np.min_scalar_type(marks[-1]))
        for draw in range(len(part)):  # whole, wide labels would take several times as much
            own = part[draw].astype(np.int64) - low
            small[draw] = own if mask is None else np.where(mask[draw], own, mark)
        result.append(small)
    return result


def counts_together(a: np.ndarray, b: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Count in how many draws two objects share a label: (S, N) and (S, M), some rows at a time.

    One draw at a time, summed in bytes: 255 draws fit, and a byte each is what makes it fast.
    """
    n_rows, n_columns = a.shape[1], b.shape[1]
    b = np.ascontiguousarray(b)  # a draw's labels side by side: ten times faster
    block = max(1, _BLOCK // max(n_columns, 1))
    for start in range(0, n_rows, block):
        rows = slice(start, min(start + block, n_rows))
        ours = np.ascontiguousarray(a[:, rows])[:, :, None]
        total = np.zeros((ours.shape[1], n_columns), dtype=np.int64)
        part = np.empty(total.shape, dtype=np.uint8)
        same = np.empty(total.shape, dtype=bool)
        for first in range(0, len(a), 255):
            part[:] = 0
            for draw in range(first, min(first + 255, len(a))):
                np.equal(ours[draw], b[draw], out=same)
                part += same.view(np.uint8)
            total += part
        yield rows, total


def together(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Count in how many draws two objects share a label: (S, N) and (S, M) to (N, M)."""
    total = np.empty((a.shape[1], b.shape[1]))
    for rows, part in counts_together(a, b):
        total[rows] = part
    return total


def best_partners(
    a: np.ndarray, b: np.ndarray, top: int, *, same: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the partners that share a label most often: indices of objects and partners, counts.

    Objects whose labels are equal in all draws have the same partners, so that each such group is
    looked at once; and among a group's members only the first can be among the first partners.
    Well separated clusters leave few groups, and nothing is lost if there are none. See `partners`.
    """
    # One more, because the object itself may be among them.
    n_best = min(top + same, b.shape[1])
    group_b = groups(b)[1]
    order = np.argsort(group_b, kind="stable")
    ordered = group_b[order]
    place = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    candidates = np.sort(order[place < n_best])
    representative, group_a = groups(a)
    n_best = min(n_best, len(candidates))

    partner, count = best_of(
        np.ascontiguousarray(a[:, representative].T),
        np.ascontiguousarray(b[:, candidates].T),
        n_best,
    )
    partner, count = candidates[partner[group_a]], count[group_a]
    keep = count > 0
    if same:
        keep &= partner != np.arange(len(partner))[:, None]
        keep &= np.cumsum(keep, axis=1) <= top
    return np.nonzero(keep)[0], partner[keep], count[keep]


def groups(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group the objects (columns) that have equal labels in all draws.

    Returns a representative of each group, and each object's group.
    """
    rows = np.ascontiguousarray(labels.T)
    # As bytes: to compare draws one by one would take far longer.
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
    _, representative, group = np.unique(whole, return_index=True, return_inverse=True)
    return representative, group.reshape(-1)
