"""Independent runs of one task, wherever they run: nothing of a model here."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from pm_match.running import runs as module
from pm_match.running.runs import runs

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="no processes to fork"
)
# Where runs can run: by `cores`, or on what.
PLACES = {
    "here": lambda: {"cores": 1},
    "forked": lambda: {"cores": 2},
    "one process": lambda: {"executor": ProcessPoolExecutor(1)},
    "two processes": lambda: {"executor": ProcessPoolExecutor(2)},
    "threads": lambda: {"executor": ThreadPoolExecutor(3)},
}
IN_PROCESSES = ("forked", "one process", "two processes")


@pytest.fixture(params=PLACES)
def place(request):
    where = PLACES[request.param]()
    yield where
    if "executor" in where:
        where["executor"].shutdown(cancel_futures=True)


def normals(rng):
    return rng.normal(size=3)


def spawned():
    return np.random.default_rng(5).spawn(5)


def test_what_comes_out_depends_on_the_items_alone(place):
    expected = [normals(rng) for rng in spawned()]
    found = dict(runs(normals, spawned(), **place))
    assert sorted(found) == [*range(5)]
    for number, own in enumerate(expected):
        np.testing.assert_array_equal(found[number], own)


def test_runs_are_in_other_processes_and_results_come_as_they_end():
    begun = time.perf_counter()
    order = []
    for number, process in runs(slow_first, [3.0, 0.0, 0.0], cores=2):
        order.append(number)
        assert process != os.getpid()
    assert order == [1, 2, 0]
    assert time.perf_counter() - begun < 60.0


def slow_first(seconds):
    time.sleep(seconds)
    return os.getpid()


def test_processors_are_those_that_the_process_may_use(n_processors, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda own: {0, 3, 5}, raising=False)
    assert n_processors() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert n_processors() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert n_processors() == 1


def test_what_is_compiled_on_first_use_is_so_here(monkeypatch):
    cold = [True, False]
    monkeypatch.setattr(module, "was_cold", lambda: cold.pop(0))
    processes = dict(runs(slow_first, [0.0, 0.0, 0.0], cores=2))
    assert processes[0] == os.getpid()
    assert os.getpid() not in (processes[1], processes[2])
    assert os.getpid() not in dict(runs(slow_first, [0.0, 0.0], cores=2)).values()


def test_on_an_executor_it_is_so_by_the_first_alone(monkeypatch):
    cold = [True]
    monkeypatch.setattr(module, "was_cold", lambda: cold.pop())
    with ProcessPoolExecutor(3) as pool:
        spans = dict(runs(span, [0.3] * 3, executor=pool))
    assert min(spans[1][0], spans[2][0]) >= spans[0][1]


def span(seconds):
    begun = time.monotonic()
    time.sleep(seconds)
    return begun, time.monotonic()


def dies_once(flag, item):
    if item == 2 and not os.path.exists(flag):
        with open(flag, "w"):
            os._exit(1)
    return item**2


@pytest.mark.parametrize("place", IN_PROCESSES, indirect=True)
def test_what_a_worker_had_that_died_is_run_again(place, tmp_path):
    found = dict(runs(partial(dies_once, tmp_path / "died"), range(5), **place))
    assert (tmp_path / "died").exists()
    assert found == {number: number**2 for number in range(5)}


@pytest.mark.parametrize("place", IN_PROCESSES, indirect=True)
def test_workers_that_die_again_and_again_end_it(place):
    with pytest.raises(RuntimeError, match=r"those of 2 fresh pools .* with 1 of the runs"):
        list(runs(dies_always, [0, 1], **place))


def dies_always(item):
    if item == 1:
        time.sleep(0.5)
        os._exit(1)
    return item


def test_what_goes_wrong_is_said_as_it_is(place):
    with pytest.raises(ZeroDivisionError):
        list(runs(reciprocal, [1, 2, 0], **place))


def reciprocal(item):
    return 1 / item


def test_ctrl_c_leaves_what_has_ended_and_no_process_behind():
    before = {*multiprocessing.active_children()}
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    found, begun = {}, time.perf_counter()
    iterator = runs(slow_first, [0.0, 60.0, 60.0], cores=2)
    with pytest.raises(KeyboardInterrupt):
        found.update(iterator)
    assert [*found] == [0]
    assert time.perf_counter() - begun < 30.0
    # A pool's own thread may be just about to say what it knows, and `join` does not wait for that.
    until = time.monotonic() + 10.0
    while {*multiprocessing.active_children()} - before and time.monotonic() < until:
        time.sleep(0.05)
    assert not {*multiprocessing.active_children()} - before


def test_ctrl_c_cancels_on_an_executor_what_has_not_begun():
    with ProcessPoolExecutor(1) as pool:
        iterator = runs(slow_first, [0.0, *[1.0] * 60], executor=pool)
        assert next(iterator)[0] == 0
        begun = time.perf_counter()
        iterator.close()
    assert time.perf_counter() - begun < 30.0


def test_threads_of_one_process_take_turns():
    inside = []

    def alone(item):
        inside.append(item)
        time.sleep(0.05)
        n = len(inside)
        inside.clear()
        return n

    # Sent by cloudpickle: the list is the task's own, and the same in all of its calls.
    with ThreadPoolExecutor(4) as pool:
        assert dict(runs(alone, range(6), executor=pool)) == dict.fromkeys(range(6), 1)


def test_a_process_that_may_start_no_others_runs_all_itself():
    context = multiprocessing.get_context("fork")
    process = context.Process(target=in_a_daemon, daemon=True)
    process.start()
    process.join(60.0)
    assert process.exitcode == 0


def in_a_daemon():
    assert dict(runs(slow_first, [0.0, 0.0], cores=2)) == dict.fromkeys(range(2), os.getpid())


def test_what_cannot_be_pickled_is_refused():
    lock = threading.Lock()
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TypeError, match=r"cloudpickle can send .* found TypeError: cannot pickle"),
    ):
        list(runs(lambda item: lock, [1], executor=pool))


def test_workers_with_other_versions_are_refused(monkeypatch):
    seen = iter([{"numpy": "9.9", "pymc": "1"}, {"numpy": "2.0", "pymc": "1"}])
    monkeypatch.setattr(module, "surroundings", lambda: next(seen))
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(RuntimeError, match=r"same versions: numpy 9\.9; found numpy 2\.0$"),
    ):
        list(runs(normals, [1], executor=pool))


@pytest.mark.parametrize("executor", [2, ProcessPoolExecutor])
def test_only_an_executor_is_one(executor):
    with pytest.raises(TypeError, match=r"expected a concurrent\.futures\.Executor"):
        list(runs(normals, [1], executor=executor))


def test_a_client_is_told_to_give_its_executor():
    class Client:
        get_executor = None

    with pytest.raises(TypeError, match=r"type Client \(its get_executor\(\) gives one\)"):
        list(runs(normals, [1], executor=Client()))


def left_alone(item):
    """Say in which process this is, and how much it never collects."""
    return os.getpid(), gc.get_freeze_count()


@pytest.mark.parametrize("ours", [True, False])
def test_what_forked_workers_inherited_is_not_collected(ours):
    before = gc.get_freeze_count()
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        options = {"cores": 2} if ours else {"executor": pool}
        found = [own for _, own in runs(left_alone, [1, 2, 3], **options)]
    counts = [count for pid, count in found if pid != os.getpid()]
    assert counts
    # Whether or not something was frozen here before.
    assert min(counts) > before
    assert gc.get_freeze_count() <= before
