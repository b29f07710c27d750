"""Where shards are worked on: in this process, or by the workers of a Dask client."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from threadpoolctl import threadpool_limits

from pm_match.running.runs import check_surroundings, surroundings
from pm_match.sharded.data import Piece
from pm_match.sharded.shards import Shard
from pm_match.sharded.store import scale

# Shards for each thread of a worker: what one that is slow or dead leaves is then shared out.
_SHARDS_A_THREAD = 2
# Data that are sent along with a shard, rather than read by it, in bytes.
_MOST_SENT = 2**28


class InProcess:
    """Works on all chunks, one after the other, in this process."""

    def __init__(self, make: Callable[[Sequence[Piece]], Shard], pieces: Sequence[Piece]):
        self._shard = make(pieces)

    def call(self, method: str, *given: Any) -> list[Any]:
        """Call a method of the shard; return what it found of every chunk, in their order."""
        return getattr(self._shard, method)(*given)


class OnDask:
    """Works on chunks where the workers of a Dask client are.

    A shard is the result of a task: it stays where it was made, next to what calls it. As it has no
    state, Dask makes it anew elsewhere if its worker dies, and repeats what that worker had begun.

    Parameters
    ----------
    make : callable
    pieces : sequence of Piece
    client : dask.distributed.Client
    in_memory : int
        Bytes of the data that are arrays in memory.

    Raises
    ------
    ValueError
        If the client has no worker, or the data would have to be sent to workers.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Piece]], Shard],
        pieces: Sequence[Piece],
        client: Any,
        in_memory: int,
    ):
        workers = workers_of(client)
        if in_memory > _MOST_SENT:
            raise ValueError(
                f"data: expected at most {_MOST_SENT / 1e6:.0f} MB of arrays in memory, to "
                f"be sent to workers; found {in_memory / 1e6:,.0f} MB. Give memory maps (np.load("
                "file, mmap_mode='r')), Zarr or Dask arrays, which workers read themselves"
            )
        threads = sum(worker["nthreads"] for worker in workers.values())
        n = min(len(pieces), _SHARDS_A_THREAD * threads)
        bounds = [len(pieces) * i // n for i in range(n + 1)]
        self._client = client
        homes = [a for a, worker in workers.items() for _ in range(worker["nthreads"])]
        with _large_tasks():
            self._shards = [
                client.submit(
                    _made,
                    make(list(pieces[start:stop])),
                    surroundings(),
                    pure=False,
                    workers=[homes[i * len(homes) // n]],
                    allow_other_workers=True,
                )
                for i, (start, stop) in enumerate(pairwise(bounds))
            ]

    def call(self, method: str, *given: Any) -> list[Any]:
        """Call a method of every shard; return what was found of every chunk, in their order."""
        with _large_tasks():
            pending = [
                self._client.submit(_call, shard, method, given, pure=False)
                for shard in self._shards
            ]
        return [found for own in self._client.gather(pending) for found in own]


@contextmanager
def _large_tasks() -> Iterator[None]:
    """Say nothing of tasks that carry data: scattered data would be lost with their worker."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


def _made(shard: Shard, expected: dict[str, str]) -> Shard:
    check_surroundings(expected)
    return shard


def _call(shard: Shard, method: str, given: tuple[Any, ...]) -> list[Any]:
    with threadpool_limits(1, user_api="blas"):
        return getattr(shard, method)(*given)


def workers_of(given: Any) -> Mapping[str, Any]:
    """Find the workers of a client, by their addresses.

    Raises
    ------
    TypeError
        If it is no client.
    ValueError
        If it has no worker.
    """
    if not isinstance(given, scale("distributed").Client):
        raise TypeError(f"client: expected a dask.distributed.Client; found {given!r}")
    workers = given.scheduler_info(n_workers=-1)["workers"]
    if not workers:
        raise ValueError(
            "client: expected workers; found none. Start some, or call client.wait_for_workers() "
            "first"
        )
    return workers
