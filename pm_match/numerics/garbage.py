"""When Python collects garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(lasting: bool = False) -> Iterator[None]:
    """Collect no garbage meanwhile (a decorator, too).

    Python looks for it whenever so many objects have been made: for a sixth of the time of what
    makes as many as a compiler, or a reader of graphs, and keeps nearly all of them to the end.

    `lasting`: whether what is made stays, as modules do. It then counts as old at once, as if the
    collections left out had found it in use; the next would look at all of it, twice.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # What others have frozen is left as it is.
        if lasting and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()
