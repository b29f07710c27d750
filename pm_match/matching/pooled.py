"""The draws of a set of clusters as one array of small numbers: objects of all domains by draws."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pm_match.numerics.kernels import entry

# Draws that are numbered at a time, and labels: 128 MB.
_DRAWS, _LABELS = 64, 2**24
# Above this range, labels are first replaced by their ranks.
_RANGE = 2**20


def pool(
    labels: Sequence[NDArray], relevant: Sequence[NDArray[np.bool_] | None]
) -> NDArray[np.unsignedinteger]:
    """Give clusters of every draw numbers 1, 2, … by their first object; irrelevant objects 0.

    The numbers do not depend on how the draws' clusters were numbered. They are of the smallest
    type that holds them, and are filled some draws at a time.

    `labels`, sequence of (S, N_d): labels of every domain's objects; `relevant`, sequence of
    (S, N_d) or None: which objects are relevant; None for all. Return (N, S): an object's numbers
    in all draws are side by side.
    """
    n_draws = len(labels[0])
    n_objects = sum(part.shape[1] for part in labels)
    spans = [
        int(block.max()) - int(block.min()) + 1
        for _, block, _ in _blocks(labels, relevant)
        if block.size
    ]
    most = min(max(spans, default=0), n_objects)
    pooled = np.empty((n_objects, n_draws), dtype=np.min_scalar_type(most))
    for start, block, mask in _blocks(labels, relevant):
        if not block.size:
            continue
        low, high = int(block.min()), int(block.max())
        if high - low >= _RANGE:
            block = np.unique(block, return_inverse=True)[1].reshape(block.shape)
            low, high = 0, int(block.max())
        seen = np.zeros((len(block), high - low + 1), dtype=np.int64)
        _number(block, mask, low, seen, np.zeros(len(block), np.int64), pooled, start)
    return pooled


def _blocks(labels, relevant) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.bool_]]]:
    """Give some draws of all domains at a time: the first draw's number, labels, who is relevant.

    Irrelevant objects have the label of a relevant one, if there is any in the block: theirs mean
    nothing, and should not widen the range.
    """
    n_objects = sum(part.shape[1] for part in labels)
    step = min(_DRAWS, max(_LABELS // max(n_objects, 1), 1))
    for start in range(0, len(labels[0]), step):
        stop = start + step
        block = np.concatenate([part[start:stop] for part in labels], axis=1).astype(np.int64)
        mask = np.concatenate(
            [
                np.ones(part[start:stop].shape, dtype=bool) if flags is None else flags[start:stop]
                for part, flags in zip(labels, relevant, strict=True)
            ],
            axis=1,
        )
        block[~mask] = block[mask][0] if mask.any() else 0
        yield start, block, mask


@entry
def _number(block, mask, low, seen, found, pooled, start):
    for i in range(block.shape[1]):
        for t in range(block.shape[0]):
            number = 0
            if mask[t, i]:
                label = block[t, i] - low
                if seen[t, label] == 0:
                    found[t] += 1
                    seen[t, label] = found[t]
                number = seen[t, label]
            pooled[i, start + t] = number


def draw_keys(pooled: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """Give every draw a number that only depends on its partition: an order for ties.

    A sum of the labels with random weights, modulo 2^64.
    """
    weights = np.random.default_rng(0).integers(0, 2**64, len(pooled), dtype=np.uint64)
    keys = np.zeros(pooled.shape[1], dtype=np.uint64)
    for weight, row in zip(weights, pooled, strict=True):
        keys += weight * row.astype(np.uint64)
    return keys
