"""Workers: the same bits on any number of them, and if one is killed."""

import os
import signal
import time

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
def mapped(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("data"), {}
    for name, values in counts().items():
        np.save(folder / f"{name}.npy", values)
        found[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    return found


def test_draws_are_the_same_on_any_number_of_workers(either, mapped, tmp_path):
    model = either
    reference = sampled(model, mapped, labels=tmp_path / "0", n_split_merge=0.5)
    with cluster(2) as two, distributed.Client(two) as client:
        given = {"client": client, "n_split_merge": 0.5}
        assert same(reference, sampled(model, mapped, labels=tmp_path / "2", **given))
        two.scale(1)
        client.wait_for_workers(1)
        while len(client.scheduler_info(n_workers=-1)["workers"]) > 1:
            time.sleep(0.1)
        assert same(reference, sampled(model, counts(), labels=tmp_path / "1", **given))
        two.scale(0)
        while client.scheduler_info(n_workers=-1)["workers"]:
            time.sleep(0.1)
        with pytest.raises(ValueError, match="client: expected workers; found none"):
            sampled(model, mapped, **given)


def test_draws_are_the_same_on_eight_threads(model, mapped, tmp_path):
    reference = sampled(model, mapped, labels=tmp_path / "0", chunk_size=10)
    with cluster(2, threads=4) as eight, distributed.Client(eight) as client:
        options = {"client": client, "labels": tmp_path / "8", "chunk_size": 10}
        assert same(reference, sampled(model, mapped, **options))


def test_workers_of_other_versions_are_refused(model, mapped, monkeypatch):
    here = workers.surroundings() | {"numpy": "0.1"}
    monkeypatch.setattr(workers, "surroundings", lambda: here)
    with (
        cluster(1) as one,
        distributed.Client(one) as client,
        pytest.raises(RuntimeError, match=r"expected workers .*: numpy 0\.1; found numpy \d"),
    ):
        sampled(model, mapped, client=client)


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


def test_draws_are_the_same_if_a_worker_is_killed(either, tmp_path):
    model, data = either, counts()
    reference = sampled(model, data, labels=tmp_path / "0")
    with cluster(2) as two, distributed.Client(two) as client:
        before = set(client.scheduler_info(n_workers=-1)["workers"])
        log = tmp_path / "readings"
        killing = data | {"a": Killing(data["a"], str(log))}
        found = sampled(model, killing, client=client, labels=tmp_path / "1")
        assert log.stat().st_size > 4
        assert set(client.scheduler_info(n_workers=-1)["workers"]) != before
    assert same(reference, found)


class _Total:
    """A shard that holds data."""

    def __init__(self, pieces):
        self._values = np.ones(3_000_000)

    def total(self, more):
        return [self._values.sum() + more.sum()]


@pytest.mark.filterwarnings("error:Sending large graph")
def test_data_are_sent_without_a_warning():
    with cluster(1) as one, distributed.Client(one) as client:
        made = workers.OnDask(_Total, [0], client, 0)
        assert made.call("total", np.ones(3_000_000)) == [6e6]
