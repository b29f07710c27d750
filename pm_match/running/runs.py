"""Many independent runs of one task: here, in processes of this machine, or on any executor.

What a run draws comes from the generator, or the number of a chain, that it is handed. So where it
runs, how many run at once, and in which order they end make no difference to what comes out.
"""

import gc
import hashlib
import multiprocessing
import os
import pickle
import platform
import signal
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from pm_match.numerics.ahead import was_cold
from pm_match.reading.probe import computing_in, float_type, without_c
from pm_match.running.checkpoint import versions

# How often what a worker had that died is run again, each time in a fresh pool.
_AGAIN = 2


def runs[Item, Found](
    task: Callable[[Item], Found],
    items: Sequence[Item],
    *,
    executor: Executor | None = None,
    cores: int | None = None,
) -> Iterator[tuple[int, Found]]:
    """Call a task with every item; yield the item's number, and what it returns as soon as it does.

    What a worker had that died is run again in a fresh pool of processes, twice at most. When the
    iterator is closed, or Ctrl-C is pressed, what has not begun is cancelled.

    `task` must draw from nothing but its item, and may keep what it has made for the next one;
    `items` are generators that were spawned beforehand, or numbers. On an `executor`, the task is
    sent by cloudpickle, once for every item; runs take turns in a process, as PyTensor cannot
    compile in two threads. Without one, there are `cores` processes of this machine, by default as
    many as it has processors; one only where processes cannot be forked (all but Linux), or in a
    process that may not start others.

    Raise `TypeError` if `executor` is none, or the task cannot be pickled, and `RuntimeError` if
    workers die again and again, or have other versions of what draws depend on.
    """
    left = dict(enumerate(items))
    if executor is not None:
        check_executor(executor)
        sent = _Sent(task)
        # What is compiled on first use is so once, and found on disk by all others.
        if was_cold():
            yield from _over(_renewed(executor), sent, {0: left.pop(0)})
        yield from _over(_renewed(executor), sent, left)
        return
    n_processes = min(len(left), _n_processors() if cores is None else cores)
    parallel = n_processes > 1 and _may_fork()
    # Likewise; this process will need it, too.
    n_here = int(was_cold()) if parallel else len(left)
    for number in range(n_here):
        yield number, _run(task, left.pop(number))
    if left:
        yield from _over(_forked(task, min(n_processes, len(left))), _inherited, left)


def check_executor(executor: Any) -> None:
    """Refuse what is no executor, and Dask's if nothing would ever run there."""
    if not isinstance(executor, Executor):
        hint = " (its get_executor() gives one)" if hasattr(executor, "get_executor") else ""
        raise TypeError(
            "executor: expected a concurrent.futures.Executor; found an object of type "
            f"{type(executor).__name__}{hint}"
        )
    client = getattr(executor, "_client", None)
    # Adaptive clusters start workers when there is something to do.
    adaptive = getattr(getattr(client, "cluster", None), "_adaptive", None) is not None
    if hasattr(client, "scheduler_info") and not adaptive:
        dask_workers(client)


def dask_workers(client: Any) -> Mapping[str, Any]:
    """Return the workers of a Dask client, by their addresses.

    Raise `ValueError` if there is none.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ValueError(
            "client: expected workers; found none. Start some, or call client.wait_for_workers() "
            "first"
        )
    return workers


def _n_processors() -> int:
    own = getattr(os, "sched_getaffinity", None)
    return len(own(0)) if own is not None else os.cpu_count() or 1


def _may_fork() -> bool:
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


@without_c()
def _run(task: Callable[[Any], Any], item: Any) -> Any:
    # Matrices are small: threads of BLAS would only get in each other's way.
    with threadpool_limits(1, user_api="blas"):
        return task(item)


def _over(
    pools: Iterator[Executor], call: Callable[[Any], Any], left: dict[int, Any]
) -> Iterator[tuple[int, Any]]:
    """Call a function with all that is left on one executor after another, while workers die."""
    try:
        for pool in pools:
            futures = {}
            try:
                try:
                    for number, item in left.items():
                        futures[pool.submit(call, item)] = number
                except BrokenProcessPool:
                    pass
                for future in as_completed(futures):
                    try:
                        found = future.result()
                    except BrokenProcessPool:
                        continue
                    number = futures[future]
                    del left[number]
                    yield number, found
            finally:
                for future in futures:
                    future.cancel()
            if not left:
                return
    finally:
        close = getattr(pools, "close", None)
        if close is not None:
            close()
    raise RuntimeError(
        f"executor: workers died (out of memory?), and so did those of {_AGAIN} fresh pools of "
        f"processes, before they were done with {len(left)} of the runs. Fewer workers need less "
        "memory."
    )


# -- processes of this machine ---------------------------------------------------------------------


def _forked(task: Callable[[Any], Any], n_processes: int) -> Iterator[Executor]:
    """Give pools of processes that have the task, and all that it has made, from this one."""
    for _ in range(1 + _AGAIN):
        pool = ProcessPoolExecutor(
            n_processes,
            multiprocessing.get_context("fork"),
            initializer=_inherit,
            initargs=(task,),
        )
        with _killed_if_left(pool):
            with warnings.catch_warnings():
                # Of other threads, which hold nothing that runs need.
                warnings.simplefilter("ignore", DeprecationWarning)
                pool.submit(os.getpid)  # forks
            yield pool


@contextmanager
def _killed_if_left(pool: ProcessPoolExecutor) -> Iterator[None]:
    try:
        yield
        pool.shutdown()
    finally:
        processes = [*(getattr(pool, "_processes", None) or {}).values()]
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()


_task: Any = None


def _inherit(task: Callable[[Any], Any]) -> None:
    global _task
    _task = task
    leave_inherited()
    # Ctrl-C is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _inherited(item: Any) -> Any:
    return _run(_task, item)


# -- executors -------------------------------------------------------------------------------------


def _renewed(executor: Executor) -> Iterator[Executor]:
    """Give an executor, then pools of processes like it."""
    yield executor
    for _ in range(_AGAIN):
        pool = ProcessPoolExecutor(
            getattr(executor, "_max_workers", None),
            getattr(executor, "_mp_context", None),
            initializer=getattr(executor, "_initializer", None),
            initargs=getattr(executor, "_initargs", ()),
        )
        with _killed_if_left(pool):
            yield pool


class _Sent:
    """A task as other processes are sent it; a function of an item.

    Raise `TypeError` if it cannot be pickled.
    """

    def __init__(self, task: Callable[[Any], Any]):
        try:
            self.code = cloudpickle.dumps(task)
        except Exception as error:
            # What cannot be pickled says so in any way.
            raise TypeError(
                "executor: expected a model, and steps, that cloudpickle can send to other "
                f"processes; found {type(error).__name__}: {error}. Without an executor, none is "
                "sent anywhere."
            ) from error
        self.key = hashlib.sha256(self.code).hexdigest()
        # So that no two calls are the same, which Dask would run once.
        self.call = uuid.uuid4().hex
        self.surroundings = surroundings()
        self.float_type = float_type()

    def __call__(self, item: Any) -> Any:
        """Run the task in whatever process this is."""
        check_surroundings(self.surroundings)
        leave_inherited()
        # Threads of one process take turns.
        with _turn, computing_in(self.float_type):
            if self.key not in _known:
                _known.clear()
                _known[self.key] = pickle.loads(self.code)
            return _run(_known[self.key], item)


_turn = threading.Lock()
# The last task that this process was sent, with what it has made.
_known: dict[str, Callable[[Any], Any]] = {}
# The process that has left alone what it inherited.
_left: int | None = None


def leave_inherited() -> None:
    """In a process that another one started, never collect what came from there as garbage.

    If it was forked, that may be an executor, which asks for a lock when it is collected; whoever
    held that lock when the process was forked is not here to release it.
    """
    global _left
    # What is frozen already may be so in the process that started this one.
    if multiprocessing.parent_process() is not None and _left != os.getpid():
        gc.freeze()
        _left = os.getpid()


def surroundings() -> dict[str, str]:
    """Return the versions of all that draws depend on."""
    return {"python": platform.python_version(), **versions()}


def check_surroundings(expected: Mapping[str, str]) -> None:
    """Refuse to work where other versions are installed than where a run was begun.

    Raise `RuntimeError` if one differs.
    """
    here = surroundings()
    other = [name for name, own in expected.items() if here.get(name) != own]
    if other:
        raise RuntimeError(
            "expected workers with the same versions: "
            f"{', '.join(f'{name} {expected[name]}' for name in other)}; found "
            f"{', '.join(f'{name} {here.get(name)}' for name in other)}"
        )
