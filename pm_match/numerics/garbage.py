"""When Python collects garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile (a decorator, too).

    Python looks for it whenever so many objects have been made: for a sixth of the time of what
    makes as many as a compiler, or a reader of graphs, and keeps nearly all of them to the end.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
