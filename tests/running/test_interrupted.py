"""Ctrl-C, pressed for real: all chains stop, and what they have is returned."""

import multiprocessing
import signal

import numpy as np
import pytest

import pm_match as pmm
from pm_match.running.checkpoint import Checkpoint
from pm_match.running.interrupt import Interrupt
from tests.running.processes import MODELS, QUIET, SEED, Sampling, same

pytestmark = [
    pytest.mark.filterwarnings("ignore:the draws fill the truncation"),
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="no processes to fork"
    ),
]
TUNE, DRAWS = 10, 60
LENGTH = {"tune": TUNE, "chains": 2}
# Draws take so long that there is time to press Ctrl-C between them.
PAUSE = 0.02


@pytest.fixture(scope="module")
def model():
    return MODELS["robust"]()


@pytest.fixture(scope="module")
def whole(model):
    return pmm.sample(DRAWS, model=model, cores=1, **LENGTH, **SEED, **QUIET)


def interrupted(model, after, times=1, pause=PAUSE, draws=DRAWS, **kwargs):
    """Press Ctrl-C after so many draws of all chains."""
    options = {"cores": 1} | LENGTH | SEED | kwargs
    process = Sampling(pmm.sample, draws, model=model, pause=pause, **options)
    process.wait_for(after)
    for _ in range(times):
        process.interrupt()
        process.process.join(0.2)
    return process.found()


@pytest.mark.parametrize("tune", [TUNE, 0])
def test_the_chain_that_is_being_drawn_and_none_after_it(model, whole, tune):
    found, (message,) = interrupted(model, tune + 8, tune=tune)
    assert found["posterior"].chain.values.tolist() == [0]
    n = found["posterior"].sizes["draw"]
    assert 8 <= n < DRAWS
    assert message.startswith(f"interrupted: chains have {n} and 0 of {DRAWS} draws")
    assert "With fewer, and left out: chain 1." in message
    if tune != TUNE:
        return
    for name in whole["posterior"].data_vars:
        own = whole["posterior"][name].isel(chain=[0], draw=slice(n))
        np.testing.assert_array_equal(found["posterior"][name], own)


def test_chains_are_cut_to_one_length(model, whole):
    most = DRAWS // 2 + 3
    found, (message,) = interrupted(model, TUNE + DRAWS + TUNE + most, discard_tuned_samples=False)
    n = found["posterior"].sizes["draw"]
    assert found["posterior"].sizes["chain"] == 2
    assert most <= n < DRAWS
    assert f"chains have {DRAWS} and {n} of {DRAWS} draws, and are cut to {n}" in message
    assert found["warmup_posterior"].sizes["draw"] == TUNE
    assert same(found, whole, n)


def test_a_chain_that_has_just_begun_costs_the_others_nothing(model, whole):
    found, (message,) = interrupted(model, TUNE + DRAWS + TUNE + 1)
    assert "With fewer, and left out: chain 1" in message
    assert dict(found["posterior"].sizes)["draw"] == DRAWS
    assert found["posterior"].sizes["chain"] == 1


def test_chains_in_processes(model, whole):
    # No pauses: PyMC serves one chain after the other if its callback takes long.
    found, (message,) = interrupted(model, 600, pause=0.0, draws=100_000, cores=2)
    n = found["posterior"].sizes["draw"]
    assert found["posterior"].sizes["chain"] == 2
    assert 0 < n < 100_000
    assert f"are cut to {n}" in message
    assert same(found, whole, min(n, DRAWS))


@pytest.mark.parametrize("cores", [1, 2])
def test_without_a_draw_after_tuning_there_is_nothing_to_return(model, cores):
    found, _ = interrupted(model, 3, cores=cores)
    assert isinstance(found, KeyboardInterrupt)
    assert "no chain has a draw after tuning" in str(found)


@pytest.mark.parametrize("cores", [1, 2])
def test_the_second_raises_at_once(model, cores):
    # Every draw takes long: the second comes while the first waits for it.
    found, _ = interrupted(model, 2, times=2, pause=1.0, tune=0, cores=cores)
    assert isinstance(found, KeyboardInterrupt)
    assert "twice" in str(found)


def test_while_starts_are_searched_for(model, monkeypatch):
    def search(*args, **kwargs):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("pm_match.sampling.initial_points", search)
    with pytest.raises(KeyboardInterrupt, match="starts were being searched for"):
        pmm.sample(DRAWS, model=model, **LENGTH, **QUIET)


def test_while_convergence_is_checked_nothing_is_lost(model, monkeypatch):
    def check(*args):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("pm_match.sampling.convergence_warnings", check)
    with pytest.warns(UserWarning, match="convergence was not checked"):
        found = pmm.sample(4, model=model, cores=1, **LENGTH, **SEED, progressbar=False)
    assert found["posterior"].sizes["draw"] == 4


@pytest.mark.parametrize("cores", [1, 2])
def test_a_callback_can_stop_all_chains(model, cores):
    def stop(trace, draw):
        if draw.draw_idx == TUNE + 2:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: chains have"):
        found = pmm.sample(
            DRAWS, model=model, cores=cores, callback=stop, **LENGTH, **SEED, **QUIET
        )
    assert found["posterior"].sizes["draw"] <= 3


def test_what_was_interrupted_can_be_resumed(model, whole, tmp_path):
    found, (message,) = interrupted(model, TUNE + 8, checkpoint=tmp_path)
    assert f"pmm.resume({str(tmp_path)!r}) goes on" in message
    n = found["posterior"].sizes["draw"]
    # All that was drawn is there, though `every` is a minute.
    assert Checkpoint.open(tmp_path).check_draws() == [TUNE + n, 0]
    assert same(whole, pmm.resume(tmp_path, model=model, **QUIET))


def test_handlers_are_as_before():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked
    finally:
        signal.signal(signal.SIGINT, before)
