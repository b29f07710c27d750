"""Kernels that are compiled by another process, while this one goes on.

What is compiled is kept on disk (see `kernels`): whoever needs it next finds it there. So it makes
no difference to the answer when another process is done, or whether there is one.
"""

import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pm_match.numerics.numba_internals import kept

# A kernel, and the signature that it is compiled for.
type Job = tuple[Any, Any]
# After so many seconds, another process gives up.
_LONGEST = 600


def job(kernel: Any, *args: Any) -> Job:
    """Return what is to be compiled for a call of a kernel with arguments like these."""
    return kernel, tuple(kernel.typeof_pyval(value) for value in args)


def compile_ahead(jobs: Iterable[Job]) -> bool:
    """Let another process compile the jobs that are not on disk, the last first.

    It ends by itself, and nobody waits for it. There is none where a process cannot be forked, or
    has one processor.

    `jobs`, iterable of (kernel, signature): first what this process needs first. Return
    whether there were any that are not on disk, and had not been asked for.
    """
    new = {one: kept(*one) for one in jobs if one not in _asked}
    _asked.update(new)
    missing = [one for one, on_disk in new.items() if on_disk is False]
    _missing.update(missing)
    if len(missing) > 1 and sys.platform == "linux" and (os.cpu_count() or 1) > 1:
        _fork(missing)
    return not all(new.values())


_asked: set[Job] = set()
# Those that were not on disk, since this was last looked at.
_missing: set[Job] = set()


def was_cold() -> bool:
    """Whether anything was asked for, since this was last called, that was not on disk."""
    found = bool(_missing)
    _missing.clear()
    return found


def _fork(jobs: list[Job]) -> None:
    with warnings.catch_warnings():
        # Of other threads, which hold nothing that compiling needs.
        warnings.simplefilter("ignore")
        try:
            child = os.fork()
        except OSError:
            # There are too many processes.
            return
        if child:
            # Of a parent that ignores its children's ends, there is nothing to wait for.
            with suppress(ChildProcessError):
                os.waitpid(child, 0)
            return
        # It ends at once, so that nobody has to ask how the one that compiles has ended.
        try:
            if not os.fork():
                _compile(jobs)
        finally:
            os._exit(0)


def _compile(jobs: list[Job]) -> None:
    # A program's handlers of signals, which may save something or clean up, are not run twice.
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # If it is ever stuck: it has no threads but this one, though it may have others' locks.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.alarm(_LONGEST)
    # What is collected may ask for such a lock.
    gc.disable()
    _let_go()
    for kernel, signature in reversed(jobs):
        kernel.compile(signature)


def _let_go() -> None:
    """Let go of all files: whoever reads a pipe waits until nobody has its other end."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2, *map(int, os.listdir("/proc/self/fd"))}:
        # Those that are closed would be given to others, and closed again by whoever had them.
        os.dup2(nowhere, number)
