"""Workers: the same bits on any number of them, and if one is killed."""

import os
import signal

import numpy as np
import pytest

from pm_match.sharded import workers
from tests.sharded.far_apart import counts, declared, dispersed, same, sampled

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def model():
    return declared(counts())


@pytest.fixture(scope="module", params=["sums", "passes"])
def either(request, model):
    """A model whose parameters are drawn from sums, and one that takes passes over the rows."""
    return model if request.param == "sums" else declared(counts(), of=dispersed)


def cluster(n_workers, threads=1):
    """Start workers, each a process with so many threads."""
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=threads, processes=True, dashboard_address=None
    )


@pytest.fixture(scope="module")
def one():
    """A client of one worker, for all tests: a worker takes longer to start than they do."""
    with cluster(1) as own, distributed.Client(own) as client:
        yield client


@pytest.fixture(scope="module")
def of_two():
    with cluster(2) as own, distributed.Client(own) as client:
        yield client


@pytest.fixture
def two(of_two):
    """A client of two workers, which both run: one may have been killed before."""
    of_two.wait_for_workers(2)
    return of_two


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
    with cluster(2, threads=4) as eight, distributed.Client(eight) as client:
        options = {"client": client, "labels": tmp_path / "8", "chunk_size": 10}
        assert same(reference, sampled(model, mapped, **options))


def test_a_client_without_workers_is_refused(model, mapped):
    with (
        cluster(0) as none,
        distributed.Client(none) as client,
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


@pytest.mark.filterwarnings("error:Sending large graph")
def test_data_are_sent_without_a_warning(one):
    made = workers.OnDask(_Total, [0], one, 0)
    assert made.call("total", np.ones(3_000_000)) == [6e6]
