"""Where shards are worked on: in this process, or by the workers of a Dask client."""

import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import cloudpickle
from threadpoolctl import threadpool_limits

from pm_match.running.runs import check_surroundings, dask_workers, surroundings
from pm_match.sharded.data import Piece
from pm_match.sharded.shards import Shard
from pm_match.sharded.store import scale

# How often shards that died with their worker are made anew for one call.
_AGAIN = 3
# Seconds between two looks at whether a worker that has not answered is still there.
_LOOK = 5.0
_DIED = (
    f"client: workers died (out of memory?), and so did {_AGAIN} in their place. Smaller chunks "
    "need less memory"
)
_GONE = "client: the scheduler cannot be reached any more"
# Data that are sent along with a shard, rather than read by it, in bytes.
_MOST_SENT = 2**28


class InProcess:
    """Works on all chunks, one after the other, in this process."""

    def __init__(self, make: Callable[[Sequence[Piece]], Shard], pieces: Sequence[Piece]):
        self._shard = make(pieces)

    def call(self, method: str, *given: Any) -> list[Any]:
        """Call a method of the shard; return what it found of every chunk, in their order."""
        return getattr(self._shard, method)(*given)

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


class OnDask:
    """Works on chunks where the workers of a Dask client are.

    Every worker has an actor with a shard for each of its threads, which a call reaches without the
    scheduling of a task. Dask does not bring back an actor that died with its worker; but shards
    have no state, so that it is made anew elsewhere, and what was asked of it is asked again. It
    moves on to a worker of its own as soon as there is one.

    `in_memory`: bytes of the data that are arrays in memory. Raise `ValueError` if the client has
    no worker, or the data would have to be sent to workers.
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
        homes = [address for address, own in workers.items() for _ in range(own["nthreads"])]
        shares = shared(pieces, min(len(pieces), len(homes)))
        sent: dict[str, list[bytes]] = {}
        for number, own in enumerate(shares):
            # Each by itself: threads must not share what shards compute in.
            shard = cloudpickle.dumps(make(own))
            sent.setdefault(homes[number * len(homes) // len(shares)], []).append(shard)
        self._client, self._sent = client, [*sent.values()]
        self._lost = False
        self._actors = self._made([*sent], self._sent)

    def call(self, method: str, *given: Any) -> list[Any]:
        """Call a method of every shard; return what was found of the chunks.

        Those of an assignment are in their order. Raise `RuntimeError` if workers die again and
        again, and `ConnectionError` if the scheduler is gone.
        """
        sent = [*given]
        try:
            return self._found(method, sent)
        finally:
            # Dask has it in cycles, until garbage is collected.
            sent.clear()

    def close(self) -> None:
        """Give back the memory of the workers."""
        if self._client.status == "running":
            self._client.cancel([future for future, _ in self._actors])

    def _found(self, method: str, given: list[Any]) -> list[Any]:
        found: list[list[Any] | None] = [None] * len(self._actors)
        for again in range(1 + _AGAIN):
            if self._client.status != "running":
                raise ConnectionError(_GONE)
            if self._lost and not again:
                self._spread()
            asked = {n: self._asked(n, method, given) for n, own in enumerate(found) if own is None}
            for number, answer in asked.items():
                found[number] = self._answered(number, answer)
            lost = [number for number, own in enumerate(found) if own is None]
            if not lost:
                return [one for own in found for one in own or ()]
            self._replace(lost, [None] * len(lost))
            self._lost = True
        raise RuntimeError(_DIED)

    def _replace(self, numbers: Sequence[int], homes: Sequence[str | None]) -> None:
        """Make actors anew, each on some worker if that is there."""
        self._client.cancel([self._actors[number][0] for number in numbers])
        made = self._made(homes, [self._sent[number] for number in numbers])
        for number, actor in zip(numbers, made, strict=True):
            self._actors[number] = actor

    def _spread(self) -> None:
        """Give actors that share a worker one of their own, if there is one without any."""
        where = [None if actor is None else actor._address for _, actor in self._actors]
        there = self._client.scheduler_info(n_workers=-1)["workers"]
        free = [address for address in there if address not in where]
        crowded = [number for number, own in enumerate(where) if own in where[:number]]
        both = [*zip(crowded, free, strict=False)]
        if both:
            self._replace([number for number, _ in both], [address for _, address in both])

    def _asked(self, number: int, method: str, given: list[Any]) -> Any:
        """Call a method of the shards of one worker; None if it is known to be dead."""
        actor = self._actors[number][1]
        try:
            return None if actor is None else actor.call(method, given)
        except RuntimeError:
            return None

    def _answered(self, number: int, answer: Any) -> list[Any] | None:
        """Wait for what a worker has found; None if it died."""
        while answer is not None:
            try:
                found, error = answer.result(timeout=_LOOK)
            except TimeoutError:
                # There is no answer of a worker that came back without its actor.
                if self._actors[number][0].status != "finished":
                    return None
            except OSError:
                # Of the connection: what shards raise is returned.
                return None
            else:
                if error is not None:
                    raise error
                return pickle.loads(found)
        return None

    def _made(
        self, homes: Sequence[str | None], sent: Sequence[list[bytes]]
    ) -> list[tuple[Any, Any]]:
        """Make actors, each on some worker if that is there; return them with their futures.

        One whose worker has died by then is None.
        """
        with _large_tasks():
            futures = [
                self._client.submit(
                    _Home,
                    own,
                    surroundings(),
                    actor=True,
                    workers=None if home is None else [home],
                    allow_other_workers=home is not None,
                )
                for home, own in zip(homes, sent, strict=True)
            ]
        return [(future, _actor(future, self._client)) for future in futures]


def shared(pieces: Sequence[Piece], n: int) -> list[list[Piece]]:
    """Share chunks out to at most `n`: a run of those of every assignment, as they take turns."""
    found: list[list[Piece]] = [[] for _ in range(n)]
    for _, each in groupby(pieces, key=lambda piece: piece.assignment):
        own = list(each)
        some, more = divmod(len(own), n)
        longer = sorted(range(n), key=lambda number: len(found[number]))[:more]
        start = 0
        for number, share in enumerate(found):
            stop = start + some + (number in longer)
            share += own[start:stop]
            start = stop
    return [own for own in found if own]


@contextmanager
def _large_tasks() -> Iterator[None]:
    """Say nothing of tasks that carry data: scattered data would be lost with their worker."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        yield


class _Home:
    """The shards of one worker, one for each of its threads."""

    def __init__(self, shards: Sequence[bytes], expected: dict[str, str]):
        check_surroundings(expected)
        self._shards = [pickle.loads(own) for own in shards]

    def call(
        self, method: str, given: Sequence[Any]
    ) -> tuple[bytes, None] | tuple[None, Exception]:
        """Call a method of every shard; return what was found, pickled, or what was raised."""
        try:
            with (
                threadpool_limits(1, user_api="blas"),
                ThreadPoolExecutor(len(self._shards)) as pool,
            ):
                each = [*pool.map(lambda own: getattr(own, method)(*given), self._shards)]
            # Here, where what cannot be sent is told of: Dask would not answer.
            return pickle.dumps([found for own in each for found in own], protocol=5), None
        except Exception as error:
            return None, _sendable(error)


def _actor(future: Any, client: Any) -> Any:
    """Wait for an actor to be made; None if its worker has died."""
    distributed = scale("distributed")
    try:
        return _bound(future.result(), client)
    except CancelledError as error:
        raise ConnectionError(_GONE) from error
    except distributed.KilledWorker as error:
        raise RuntimeError(_DIED) from error
    except RuntimeError as error:
        if "Worker holding Actor was lost" in str(error):
            return None
        raise


def _bound(actor: Any, client: Any) -> Any:
    """Let an actor be called by a client; Dask lets the one that was made last do it."""
    with client.as_current():
        return scale("distributed").Actor(_Home, actor._address, actor.key)


def _sendable(error: Exception) -> Exception:
    """Return an error that can be pickled, with where it was raised."""
    where = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        # What cannot be pickled says so in any way.
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"On a worker:\n{where}")
    return error


def workers_of(given: Any) -> Mapping[str, Any]:
    """Find the workers of a client, by their addresses.

    Raise `TypeError` if it is no client, `ValueError` if it has no worker.
    """
    if not isinstance(given, scale("distributed").Client):
        raise TypeError(f"client: expected a dask.distributed.Client; found {given!r}")
    return dask_workers(given)
