"""The draws of a set of clusters as one array of small numbers: objects of all domains by draws."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def pool(
    labels: Sequence[NDArray], relevant: Sequence[NDArray[np.bool_] | None]
) -> NDArray[np.unsignedinteger]:
    """Give clusters of every draw numbers 1, 2, … by their first object; irrelevant objects 0.

    The numbers do not depend on how the draws' clusters were numbered. They are of the smallest
    type that holds them.

    `labels`, sequence of (S, N_d): labels of every domain's objects; `relevant`, sequence of
    (S, N_d) or None: which objects are relevant; None for all. Return (N, S): an object's numbers
    in all draws are side by side.
    """
    pooled = np.zeros((sum(part.shape[1] for part in labels), len(labels[0])), np.uint8)
    for draw in range(pooled.shape[1]):
        parts = [
            (part[draw], np.ones(part.shape[1], bool) if flags is None else flags[draw])
            for part, flags in zip(labels, relevant, strict=True)
        ]
        own, inside = map(np.concatenate, zip(*parts, strict=True))
        numbers, found = pd.factorize(own[inside])
        pooled = pooled.astype(
            np.promote_types(pooled.dtype, np.min_scalar_type(len(found))), copy=False
        )
        pooled[inside, draw] = numbers + 1
    return pooled


def draw_keys(pooled: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """Give every draw a number that only depends on its partition: an order for ties.

    A sum of the labels with random weights, modulo 2^64.
    """
    weights = np.random.default_rng(0).integers(0, 2**64, len(pooled), dtype=np.uint64)
    keys = np.zeros(pooled.shape[1], dtype=np.uint64)
    for weight, row in zip(weights, pooled, strict=True):
        keys += weight * row.astype(np.uint64)
    return keys
