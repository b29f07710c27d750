"""Kernels that are compiled by another process, while this one goes on.

What is compiled is kept on disk (see `kernels`): whoever needs it next finds it there. So it makes
no difference to the answer when another process is done, or whether there is one.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from pm_match.numerics.numba_internals import kept

# A kernel, and the signature that it is compiled for.
type Job = tuple[Any, Any]


def job(kernel: Any, *args: Any) -> Job:
    """Return what is to be compiled for a call of a kernel with arguments like these."""
    return kernel, tuple(kernel.typeof_pyval(value) for value in args)


def compile_ahead(jobs: Iterable[Job]) -> None:
    """Let another process compile the jobs that are not on disk, the last first.

    It ends by itself, and nobody waits for it. There is none where a process cannot be forked, or
    has one processor.

    Parameters
    ----------
    jobs : iterable of (kernel, signature)
        In the order in which this process needs them.
    """
    missing = [one for one in jobs if not kept(*one)]
    if len(missing) < 2 or sys.platform != "linux" or (os.cpu_count() or 1) < 2:
        return
    with warnings.catch_warnings():
        # Of other threads, which hold nothing that compiling needs.
        warnings.simplefilter("ignore")
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        # Its parent ends at once, so that nobody has to ask for how it ended.
        try:
            if not os.fork():
                _compile(missing)
        finally:
            os._exit(0)


def _compile(jobs: list[Job]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for kernel, signature in reversed(jobs):
        kernel.compile(signature)
