"""What says that something takes time: lines, or the rows of one display where it can be drawn."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from multiprocessing import parent_process
from types import TracebackType
from typing import Any

from rich import get_console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

_log = logging.getLogger("pymc")
_silent = ContextVar("silent", default=False)
_purpose = ContextVar("purpose", default="")
# What has been said in rows that are still shown.
_said: ContextVar[dict[str, "_Row"] | None] = ContextVar("said", default=None)

# Seconds that users wait without asking what goes on.
PATIENCE = 1.0
# What "Searching (independent numbers)" takes: rows that follow each other are in line.
_WIDTH = 31


class _Display:
    """One progress display, which is there as long as it has rows."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._open: set[TaskID] = set()
        self._lock = threading.RLock()
        self._process = os.getpid()

    @property
    def possible(self) -> bool:
        """Whether this process may draw one: those that it starts would draw over it."""
        own = os.getpid() == self._process and parent_process() is None
        return own and drawn_over()

    def begin(self, title: str, **fields: Any) -> TaskID:
        """Add a row."""
        with self._lock:
            if self._progress is None:
                progress = Progress(
                    TextColumn("{task.description}", table_column=Column(min_width=_WIDTH)),
                    BarColumn(),
                    TextColumn("{task.fields[said]}"),
                    TimeElapsedColumn(),
                )
                progress.start()
                self._progress = progress
            row = self._progress.add_task(title, **fields)
            self._open.add(row)
            return row

    def update(self, row: TaskID, **fields: Any) -> None:
        """Change a row."""
        with self._lock:
            if self._progress is not None:
                self._progress.update(row, **fields)

    def end(self, row: TaskID) -> None:
        """End a row; the display stays as it is with the last of them."""
        with self._lock:
            self._open.discard(row)
            if self._progress is not None:
                self._progress.stop_task(row)
                if not self._open:
                    self._progress.stop()
                    self._progress = None


_DISPLAY = _Display()


class _Row:
    """A row of the display, or a line where there is none."""

    def __init__(self, title: str, total: int | None = None, done: int = 0, said: str = ""):
        self._row: TaskID | None = None
        self._total = total
        if _DISPLAY.possible:
            self._row = _DISPLAY.begin(title, total=total, completed=done, said=said)
        else:
            _log.info(f"{title} ...")

    def update(self, done: int, said: str) -> None:
        """Say how much is done."""
        if self._row is not None:
            _DISPLAY.update(self._row, completed=done, said=said)

    def end(self, done: bool = True) -> None:
        """Leave the row as it is; say so if what it is about was not `done`, but stopped."""
        if self._row is not None:
            if self._total is None:
                # A bar that moves would go on to do so.
                _DISPLAY.update(self._row, total=1, completed=int(done))
            if not done:
                _DISPLAY.update(self._row, said="stopped")
            _DISPLAY.end(self._row)


@contextmanager
def silent(asked: bool) -> Iterator[None]:
    """Let `say` and `saying` say nothing meanwhile, if that is asked for."""
    token = _silent.set(asked or _silent.get())
    try:
        yield
    finally:
        _silent.reset(token)


@contextmanager
def searching_for(what: str) -> Iterator[None]:
    """Say meanwhile what searches are for."""
    token = _purpose.set(f" ({what})")
    try:
        yield
    finally:
        _purpose.reset(token)


def say(what: str) -> None:
    """Say what is being done: in a row until `said` ends, else in a line."""
    rows = _said.get()
    if _silent.get():
        return
    if rows is None:
        _log.info(f"{what} ...")
    elif what not in rows:
        rows[what] = _Row(what)


@contextmanager
def said() -> Iterator[None]:
    """Show what is said meanwhile, once, until this ends (a decorator, too)."""
    rows: dict[str, _Row] = {}
    token = _said.set(rows)
    done = False
    try:
        yield
        done = True
    finally:
        _said.reset(token)
        for row in rows.values():
            row.end(done)


@contextmanager
def saying(what: str, after: float = 1.0) -> Iterator[None]:
    """Say what is being done, if it takes longer than so many seconds."""
    with SearchProgress(None, not _silent.get(), after, what):
        yield


def drawn_over() -> bool:
    """Whether what is shown can be drawn over, as bars are: in a terminal or a notebook.

    In notebooks Rich needs ipywidgets, and warns at every change without.
    """
    console = get_console()
    if console.is_jupyter:
        return find_spec("ipywidgets") is not None
    return console.is_terminal


class SearchProgress:
    """Shows how much of something is done, as a context manager.

    Where nothing can be drawn over, as in a file, one line says that it is being done.

    `total`: how much there is to do, if that is known; `shown`: whether anything is to be shown;
    `after`: seconds before it is.
    """

    def __init__(
        self, total: int | None, shown: bool, after: float = 0.0, title: str | None = None
    ):
        self.total, self.shown, self.after = total, shown, after
        self.title = title or f"Searching{_purpose.get()}"
        self._row: _Row | None = None
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
            if self._row is not None:
                self._row.end(kind is None)

    def advance(self, best: float | None = None) -> None:
        """Say that one more search is done, and the best log joint so far."""
        with self._lock:
            self._done += 1
            self._best = "" if best is None else f" best log joint {best:.1f}"
            if self._row is not None:
                self._row.update(self._done, self._said)

    @property
    def _said(self) -> str:
        return "" if self.total is None else f"{self._done}/{self.total}{self._best}"

    def _show(self) -> None:
        """Show the row as it is now, or say a line."""
        with self._lock:
            if self.shown:
                self._row = _Row(self.title, self.total, self._done, self._said)
