"""A progress bar for searches, which only shows up if they take long enough to be watched."""

import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# Seconds that users wait without asking what goes on.
PATIENCE = 2.0


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
