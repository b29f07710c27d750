"""Workers: the same bits on any number of them, and if one is killed."""

import os
import pickle
import signal
import threading
import time

import cloudpickle
import numpy as np
import pytest

from pm_match.sharded import workers
from pm_match.sharded.data import Piece
from pm_match.sharded.evidence import added
from tests.sharded.clients import client_of
from tests.sharded.far_apart import counts, declared, dispersed, same, sampled

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def model():
    return declared(counts())


@pytest.fixture(scope="module", params=["sums", "passes"])
def either(request, model):
    """A model whose parameters are drawn from sums, and one that takes passes over the rows."""
    return model if request.param == "sums" else declared(counts(), of=dispersed)


@pytest.fixture(scope="module")
def mapped(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("data"), {}
    for name, values in counts().items():
        np.save(folder / f"{name}.npy", values)
        found[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return found


def test_draws_are_the_same_on_any_number_of_workers(either, mapped, one, two, tmp_path):
    reference = sampled(either, mapped, labels=tmp_path / "0", n_split_merge=0.5)
    for name, client, data in (("1", one, counts()), ("2", two, mapped)):
        options = {"client": client, "labels": tmp_path / name, "n_split_merge": 0.5}
        assert same(reference, sampled(either, data, **options))


def test_draws_are_the_same_on_eight_threads(model, mapped, tmp_path):
    reference = sampled(model, mapped, labels=tmp_path / "0", chunk_size=10)
    with client_of(2, threads=4) as eight:
        options = {"client": eight, "labels": tmp_path / "8", "chunk_size": 10}
        assert same(reference, sampled(model, mapped, **options))


def test_a_client_without_workers_is_refused(model, mapped):
    with (
        client_of(0) as client,
        pytest.raises(ValueError, match="client: expected workers; found none"),
    ):
        sampled(model, mapped, client=client)


def test_workers_of_other_versions_are_refused(model, mapped, one, monkeypatch):
    here = workers.surroundings() | {"numpy": "0.1"}
    monkeypatch.setattr(workers, "surroundings", lambda: here)
    with pytest.raises(RuntimeError, match=r"expected workers .*: numpy 0\.1; found numpy \d"):
        sampled(model, mapped, client=one)


class Killing:
    """A variable's rows, the fourth reading of some of which kills the worker that reads them."""

    def __init__(self, values, log):
        self.values, self.log, self.home = values, log, os.getpid()
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, rows):
        if os.getpid() != self.home and rows.start == 25:
            with open(self.log, "ab") as file:
                file.write(b".")
            if os.path.getsize(self.log) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.values[rows]


def test_draws_are_the_same_if_a_worker_is_killed(either, two, tmp_path):
    data = counts()
    reference = sampled(either, data, labels=tmp_path / "0")
    before = set(two.scheduler_info(n_workers=-1)["workers"])
    log = tmp_path / "readings"
    killing = data | {"a": Killing(data["a"], str(log))}
    found = sampled(either, killing, client=two, labels=tmp_path / "1")
    assert log.stat().st_size > 4
    assert set(two.scheduler_info(n_workers=-1)["workers"]) != before
    assert same(reference, found)


class _Total:
    """A shard that holds data."""

    def __init__(self, pieces):
        self._values = np.ones(3_000_000)

    def total(self, more):
        return [self._values.sum() + more.sum()]

    def where(self):
        return [os.getpid()]


@pytest.mark.filterwarnings("error:Sending large graph")
def test_data_are_sent_without_a_warning(one):
    made = workers.OnDask(_Total, [Piece(0, "a", 0, 1)], one, 0)
    assert made.call("total", np.ones(3_000_000)) == [6e6]


def test_actors_are_called_by_the_client_that_was_given(one, two):
    for client in (one, two):
        made = workers.OnDask(_Total, [Piece(0, "a", 0, 1)], client, 0)
        ((_, actor),) = made._actors
        assert actor.client is client
        assert made.call("total", np.ones(2)) == [3_000_002.0]


def test_every_worker_has_chunks_of_every_assignment():
    """Rows and columns of a network take turns: nobody has to wait for others."""
    numbers = iter(range(20))
    pieces = [
        Piece(next(numbers), name, i, i + 1) for name, n in (("a", 5), ("b", 3)) for i in range(n)
    ]
    found = workers.shared(pieces, 2)
    assert [[piece.number for piece in own] for own in found] == [[0, 1, 2, 5], [3, 4, 6, 7]]
    # One chunk each, if there are no more.
    assert [len(own) for own in workers.shared([pieces[0], pieces[5]], 2)] == [1, 1]
    assert workers.shared(pieces[:2], 5) == [pieces[:1], pieces[1:2]]


class _Peculiar(Exception):
    """An error that cannot be pickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class _Failing(_Total):
    def fail(self, error):
        raise error

    def lock(self):
        return [threading.Lock()]

    def fail_peculiarly(self):
        raise _Peculiar("no", "rows")


def test_what_shards_raise_comes_back_with_where_it_was_raised():
    home = workers._Home([cloudpickle.dumps(_Failing([]))], workers.surroundings())
    found, error = home.call("total", [np.ones(1)])
    assert (pickle.loads(found), error) == ([3_000_001.0], None)
    # An error of the disk is none of the connection.
    found, error = home.call("fail", (OSError(28, "No space left"),))
    assert found is None
    assert isinstance(error, OSError)
    assert "in fail" in error.__notes__[0]
    _, error = home.call("lock", ())
    assert "cannot pickle" in str(error)
    _, error = home.call("fail_peculiarly", ())
    assert str(error) == "_Peculiar: no rows"
    assert pickle.loads(pickle.dumps(error)).__notes__ == error.__notes__


class _Remote:
    """In place of a client, its futures, actors and answers: the first actors are lost."""

    def __init__(self, n_lost, how, status="finished"):
        self.n_lost, self.how, self.status, self.home = n_lost, how, status, None

    def submit(self, of, *given, **_):
        self.n_lost -= 1
        made = _Remote(self.n_lost, self.how, "error" if self.n_lost >= 0 else "finished")
        made.home = of(*given)
        return made

    def result(self, timeout=None):
        if timeout is None:
            return self
        if self.status == "error":
            raise self.how
        return self.found

    def call(self, *given):
        self.found = self.home.call(*given)
        return self

    def cancel(self, futures):
        """What is cancelled would be gone."""


@pytest.fixture
def doubled(monkeypatch):
    monkeypatch.setattr(workers, "workers_of", lambda client: {"tcp://1": {"nthreads": 1}})
    monkeypatch.setattr(workers, "_bound", lambda actor, client: actor)


@pytest.mark.parametrize("how", [TimeoutError(), OSError("connection closed")])
def test_what_workers_had_that_are_lost_is_asked_again(how, doubled):
    pieces = [Piece(0, "a", 0, 1)]
    made = workers.OnDask(_Total, pieces, _Remote(3, how, "running"), 0)
    assert made.call("total", np.ones(2)) == [3_000_002.0]
    remote = _Remote(4, how, "running")
    made = workers.OnDask(_Total, pieces, remote, 0)
    with pytest.raises(RuntimeError, match=r"client: workers died .*, and so did 3 in their place"):
        made.call("total", np.ones(2))
    remote.status = "closed"
    with pytest.raises(ConnectionError, match="client: the scheduler cannot be reached any more"):
        made.call("total", np.ones(2))


def test_actors_have_workers_of_their_own_again_and_are_given_back(two):
    made = workers.OnDask(_Total, [Piece(i, "a", i, i + 1) for i in range(2)], two, 0)
    first = made.call("where")
    assert len(set(first)) == 2
    os.kill(first[0], signal.SIGKILL)
    assert first[0] not in made.call("where")
    # A worker comes back some seconds after it was killed.
    for _ in range(60):
        two.wait_for_workers(2, timeout=120)
        if len(set(made.call("where"))) == 2:
            break
        time.sleep(0.5)
    assert len(set(made.call("where"))) == 2
    made.close()
    for _ in range(20):
        if not any(two.run(lambda dask_worker: len(dask_worker.state.actors)).values()):
            break
        time.sleep(0.5)
    assert not any(two.run(lambda dask_worker: len(dask_worker.state.actors)).values())


class _Lost:
    """The future of an actor whose worker died when it had just been made."""

    def result(self):
        raise RuntimeError("Worker holding Actor was lost")


def test_an_actor_that_is_lost_at_once_is_made_again(doubled, monkeypatch):
    remote = _Remote(1, None, "running")
    submit = remote.submit
    monkeypatch.setattr(
        remote, "submit", lambda *given, **how: (submit(*given, **how), _Lost())[remote.n_lost == 0]
    )
    made = workers.OnDask(_Total, [Piece(0, "a", 0, 1)], remote, 0)
    assert made.call("total", np.ones(2)) == [3_000_002.0]


def test_sums_do_not_depend_on_which_assignment_was_first():
    one = {0: (np.ones(2),)}
    for order in ("cab", "abc"):
        assert list(added((name, one) for name in order)[0]) == ["a", "b", "c"]
