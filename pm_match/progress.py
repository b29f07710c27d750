"""What says that something takes time: lines, and a bar for searches that are long enough."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_log = logging.getLogger("pymc")
_silent = ContextVar("silent", default=False)

# Seconds that users wait without asking what goes on.
PATIENCE = 2.0


@contextmanager
def silent(asked: bool) -> Iterator[None]:
    """Let `say` and `saying` say nothing meanwhile, if that is asked for."""
    token = _silent.set(asked or _silent.get())
    try:
        yield
    finally:
        _silent.reset(token)


def say(what: str) -> None:
    """Say what is being done, in a line."""
    if not _silent.get():
        _log.info(f"{what} ...")


@contextmanager
def saying(what: str, after: float = 1.0) -> Iterator[None]:
    """Say what is being done, if it takes longer than so many seconds."""
    timer = None if _silent.get() else threading.Timer(after, _log.info, (f"{what} ...",))
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


class SearchProgress:
    """Shows how many of some searches are done, as a context manager.

    Parameters
    ----------
    total : int
    shown : bool
        Whether there is to be any bar.
    after : float, default 0.0
        Seconds before it appears: it does at the first `advance` after that.
    title : str, default "Searching"
    """

    def __init__(self, total: int, shown: bool, after: float = 0.0, title: str = "Searching"):
        self.total, self.shown, self.after, self.title = total, shown, after, title
        self._begin = time.monotonic()
        self._bar: Progress | None = None
        self._done = 0

    def __enter__(self) -> "SearchProgress":
        self._begin = time.monotonic()
        self.show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, best: float | None = None) -> None:
        """Say that one more search is done, and the best log joint so far."""
        self._done += 1
        self.show()
        if self._bar is not None:
            text = "" if best is None else f"best log joint {best:.1f}"
            self._bar.update(self._task, completed=self._done, best=text)

    def show(self) -> None:
        """Show the bar, if it is time."""
        if not self.shown or self._bar is not None:
            return
        if time.monotonic() - self._begin < self.after or self._done == self.total:
            return
        self._bar = Progress(
            TextColumn(self.title),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            TimeElapsedColumn(),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=self.total, best="")
