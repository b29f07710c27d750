"""Room for records of arrays."""

from typing import Any

import numpy as np


def zeros(fields: str, dtype: type = np.float64, /, **sizes: int) -> dict[str, Any]:
    """Make arrays of zeros for some fields of a record, by name.

    `fields`: names and shapes, as in ``"mean S D, hyper 6"``; `sizes`: of the axes that have a
    letter.
    """
    found: dict[str, Any] = {}
    for field in fields.split(","):
        name, *axes = field.split()
        found[name] = np.zeros([sizes[own] if own in sizes else int(own) for own in axes], dtype)
    return found
