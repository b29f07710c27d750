"""Runs that are killed at any moment, and resumed: the draws of one that was not, bit for bit."""

import multiprocessing
import os
import time

import numpy as np
import pytest

import pm_match as pmm
from tests.running.processes import MODELS, QUIET, SEED, Sampling, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:the draws fill the truncation"),
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="no processes to fork"
    ),
]
LENGTH = {"tune": 60, "chains": 2}
DRAWS = 90
TOTAL = 2 * (LENGTH["tune"] + DRAWS)


@pytest.fixture(scope="module")
def unbroken():
    found = {}

    def of(name):
        if name not in found:
            model = MODELS[name]()
            whole = pmm.sample(DRAWS, model=model, cores=1, **LENGTH, **SEED, **QUIET)
            found[name] = model, whole
        return found[name]

    return of


def killed_and_resumed(model, folder, kills, rng, cores):
    """Kill a run again and again at random moments, then let it end."""
    killed = 0
    while killed < kills:
        if (folder / "run.json").exists():
            process = Sampling(pmm.resume, folder, model=model, cores=cores)
        else:
            folder.mkdir(exist_ok=True)
            every = {"checkpoint": folder, "every": 1e-9}
            process = Sampling(
                pmm.sample, DRAWS, model=model, cores=cores, **LENGTH, **SEED, **every
            )
        # Draws of before are given again: so many new ones, on average.
        process.wait_for(int((killed + rng.random()) * TOTAL / kills))
        process.process.join(rng.exponential(0.002))
        if not process.kill():
            break
        killed += 1
    return killed, pmm.resume(folder, model=model, cores=1, **QUIET)


@pytest.mark.parametrize(("name", "cores"), [("robust", 2), ("features", 1)])
def test_a_run_that_was_killed_gives_the_same_draws(unbroken, name, cores, tmp_path):
    model, expected = unbroken(name)
    rng = np.random.default_rng(cores)
    killed, found = killed_and_resumed(model, tmp_path, 3, rng, cores)
    assert killed == 3
    assert same(expected, found)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_was_killed_again_and_again(unbroken, name, cores, tmp_path):
    model, expected = unbroken(name)
    killed, found = killed_and_resumed(model, tmp_path, 20, np.random.default_rng(cores), cores)
    assert killed == 20
    assert same(expected, found)


def test_workers_end_with_the_process_that_was_killed(unbroken, tmp_path):
    model, _ = unbroken("robust")
    process = Sampling(pmm.sample, 100_000, model=model, cores=2, **LENGTH, **SEED)
    process.wait_for(20)
    assert process.kill()
    until = time.monotonic() + 30.0
    while in_group(process.process.pid):
        assert time.monotonic() < until
        time.sleep(0.1)


def in_group(number) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.compiled
def test_another_interpreter_goes_on_the_same(tmp_path):
    # What is interpreted differs in the last bits, and another interpreter compiles.
    model = MODELS["robust"]()
    expected = pmm.sample(DRAWS, model=model, cores=1, **LENGTH, **SEED, **QUIET)
    every = {"checkpoint": tmp_path, "every": 1e-9}
    process = Sampling(pmm.sample, DRAWS, model=model, cores=2, **LENGTH, **SEED, **every)
    process.wait_for(100)
    assert process.kill()
    process = Sampling(pmm.resume, tmp_path, model=model, cores=1, context="spawn")
    found, _ = process.found()
    assert same(expected, found)
