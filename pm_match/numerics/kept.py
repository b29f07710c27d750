"""What is not made anew while it would be made of the same."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Kept:
    """What was made last, for as long as it is of the same objects, or equal numbers."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] | None = None
        self._found: Any = None

    def __call__(self, make: Callable[..., Any], *of: Any) -> Any:
        """Return ``make(*of)``, which nothing but these enters."""
        if self._of is None or len(of) != len(self._of) or not all(map(_same, of, self._of)):
            self._found, self._of = make(*of), of
        return self._found

    def of_values(self, make: Callable[..., Any], *values: Any) -> Any:
        """Return ``make(*values)`` of arrays that may be written into later, as points' are."""
        held = tuple(np.asarray(value).tobytes() for value in values)
        if held != self._of:
            self._found, self._of = make(*values), held
        return self._found


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, float) and one == other)
