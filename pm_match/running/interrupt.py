"""Ctrl-C while chains run: all of them stop, and what they have is kept."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from pymc.backends import NDArray as Trace

_log = logging.getLogger("pymc")

# Seconds between a worker's looks at whether the process that started it is there.
_LOOKS = 1.0


class Interrupt:
    """Lets Ctrl-C stop chains after the draw that they are at, as a context manager.

    Before the first draw it raises at once, and so does the second Ctrl-C. It is PyMC's callback
    meanwhile: it is called after every draw, and keeps the traces of all chains. A `callback` of
    the user's own is called first; it may raise KeyboardInterrupt to stop the run.
    """

    def __init__(self, callback: Callable[..., Any] | None = None):
        self.asked = 0  # how often Ctrl-C was pressed
        self.before_stop: Callable[[], None] = lambda: None  # called before chains are stopped
        # Draws of every chain that has begun, by its number: all, and those after tuning.
        self.made: dict[int, int] = {}
        self.drawn: dict[int, int] = {}
        self._callback = callback
        self._traces: dict[int, Any] = {}
        self._before: Any = None
        self._process = os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        """Give a worker what it needs: whether to stop."""
        return {"asked": self.asked, "_process": self._process}

    def __enter__(self) -> "Interrupt":
        # Only there can signals be handled; and one that is ignored (`nohup`) stays so.
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):
                self._before = before
                signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def leave_to_parent(self) -> None:
        """Leave Ctrl-C, if this is a worker, to the process that started it; end soon after that.

        PyMC's workers would wait forever for one that was killed: they hold each other's pipes.
        """
        if os.getpid() != self._process:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()

    def _ask(self, number: int, frame: Any) -> None:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt("twice")
        if not self.made:
            raise KeyboardInterrupt("there are no draws yet")
        _log.warning("Stopping after the current draws. Press Ctrl-C again to stop at once.")

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take notice of a draw; raise KeyboardInterrupt if chains are to stop."""
        self._traces[draw.chain] = trace
        self.made[draw.chain] = self.made.get(draw.chain, 0) + 1
        self.drawn[draw.chain] = self.drawn.get(draw.chain, 0) + (not draw.tuning)
        if self._callback is not None:
            try:
                self._callback(trace=trace, draw=draw)
            except KeyboardInterrupt:
                self.asked = max(self.asked, 1)
        if self.asked:
            self.before_stop()
            self._level()
            raise KeyboardInterrupt

    @property
    def n_draws(self) -> int:
        """Draws after tuning that are kept of a chain: those that keep most in all."""
        lengths = sorted(n for n in self.drawn.values() if n)
        return max(lengths, key=lambda n: n * sum(own >= n for own in lengths), default=0)

    def _level(self) -> None:
        """Cut chains to one length; leave out those that have fewer draws after tuning."""
        kept = self.n_draws
        for chain, trace in self._traces.items():
            if isinstance(trace, Trace):
                own = self.drawn[chain]
                trace.draw_idx = len(trace) - own + kept if own >= kept > 0 else 0


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKS)
    os._exit(1)
