"""What says that something takes time: lines, and bars where they can be drawn."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from types import TracebackType

from rich import get_console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_log = logging.getLogger("pymc")
_silent = ContextVar("silent", default=False)

# Seconds that users wait without asking what goes on.
PATIENCE = 1.0


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


def drawn_over() -> bool:
    """Whether what is shown can be drawn over, as bars are: in a terminal or a notebook.

    In notebooks Rich needs ipywidgets, and warns at every change without.
    """
    console = get_console()
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal


class SearchProgress:
    """Shows how many of some searches are done, as a context manager.

    Where nothing can be drawn over, as in a file, one line says that they are being made.

    Parameters
    ----------
    total : int
    shown : bool
        Whether anything is to be shown.
    after : float, default 0.0
        Seconds before it is.
    title : str, default "Searching"
    """

    def __init__(self, total: int, shown: bool, after: float = 0.0, title: str = "Searching"):
        self.total, self.shown, self.after, self.title = total, shown, after, title
        self._bar: Progress | None = None
        self._done, self._best = 0, ""
        # However long the first one takes.
        self._timer = threading.Timer(after, self._show)
        self._timer.daemon = True
        self._lock = threading.Lock()

    def __enter__(self) -> "SearchProgress":
        if self.shown and self.after:
            self._timer.start()
        elif self.shown:
            self._show()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self.shown = False
            if self._bar is not None:
                self._bar.stop()

    def advance(self, best: float | None = None) -> None:
        """Say that one more search is done, and the best log joint so far."""
        with self._lock:
            self._done += 1
            self._best = "" if best is None else f"best log joint {best:.1f}"
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done, best=self._best)

    def _show(self) -> None:
        """Show the bar as it is now, or say a line."""
        with self._lock:
            if not self.shown:
                return
            if not drawn_over():
                _log.info(f"{self.title} ...")
                return
            self._bar = Progress(
                TextColumn(self.title),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[best]}"),
                TimeElapsedColumn(),
            )
            self._bar.start()
            self._task = self._bar.add_task(
                "", total=self.total, completed=self._done, best=self._best
            )
