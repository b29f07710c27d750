"""Arrays that are refused before they are made, as they would take more memory than there may be.

The limit is 4 GiB for each array. The environment variable ``PM_MATCH_MEMORY`` sets another one, in
GiB.
"""

import math
import os
from collections.abc import Sequence

import numpy as np

_GIB = 2**30


def limit() -> float:
    """Return how many GiB an array may take.

    Raise `ValueError` if the environment variable is no positive number.
    """
    given = os.environ.get("PM_MATCH_MEMORY", "4")
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not found > 0.0:
        raise ValueError(
            f"environment variable PM_MATCH_MEMORY: expected a positive number of GiB; found "
            f"{given!r}"
        )
    return found


def gibibytes(shape: Sequence[int], dtype: type = np.float64) -> float:
    """Return how many GiB an array takes."""
    return math.prod(map(int, shape)) * np.dtype(dtype).itemsize / _GIB


def check_size(what: str, shape: Sequence[int], instead: str) -> None:
    """Refuse to make an array of floats that is too large.

    `what`: whose it is, and what it holds; `instead`: what takes less memory, as an order to the
    user. Raise `MemoryError` if it would take more than the limit.
    """
    size, most = gibibytes(shape), limit()
    if size > most:
        raise MemoryError(
            f"{what} of {' x '.join(f'{n:,}' for n in shape)}: expected at most {most:g} GiB; "
            f"found {size:,.1f} GiB. {instead}, or let the environment variable PM_MATCH_MEMORY "
            "say more GiB."
        )
