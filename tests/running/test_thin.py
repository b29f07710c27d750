"""Every k-th draw alone is kept: of the same chain."""

import numpy as np
import pytest

import pm_match as pmm
from pm_match.running.draws import Draws
from tests.running.processes import MODELS, QUIET, SEED

pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")
LENGTH = {"tune": 6, "chains": 2, "cores": 1}


def drawn(draws=12, **kwargs):
    """Sample a model of its own: PyTensor may round otherwise in a gradient's second graph."""
    return pmm.sample(draws, model=MODELS["robust"](), **LENGTH | SEED | QUIET | kwargs)


@pytest.fixture(scope="module")
def whole():
    return drawn()


def assert_thinned(found, whole, group="posterior"):
    kept = whole[group].to_dataset().isel(draw=slice(2, None, 3))
    assert found[group].sizes == kept.sizes
    for name in kept.data_vars:
        np.testing.assert_array_equal(found[group][name], kept[name], err_msg=name)


def test_what_is_kept_is_every_third_draw(whole):
    found = drawn(thin=3)
    assert found["posterior"].sizes["draw"] == 4
    assert_thinned(found, whole)
    np.testing.assert_array_equal(
        found["sample_stats"]["log_joint"], whole["sample_stats"]["log_joint"][:, 2::3]
    )


def test_draws_while_tuning_too(whole):
    found = drawn(thin=3, discard_tuned_samples=False)
    assert found["warmup_posterior"].sizes["draw"] == 2
    assert_thinned(found, whole)
    assert_thinned(found, drawn(discard_tuned_samples=False), "warmup_posterior")


def test_in_processes_and_on_executors(whole):
    from concurrent.futures import ProcessPoolExecutor

    assert_thinned(drawn(thin=3, cores=2), whole)
    options = {name: own for name, own in (LENGTH | SEED | QUIET).items() if name != "cores"}
    with ProcessPoolExecutor(1) as pool:
        found = pmm.sample(12, model=MODELS["robust"](), thin=3, executor=pool, **options)
    assert_thinned(found, whole)


def test_with_a_checkpoint_and_more_draws(whole, tmp_path):
    found = drawn(6, thin=3, checkpoint=tmp_path / "run")
    assert found["posterior"].sizes["draw"] == 2
    model = MODELS["robust"]()
    with pytest.raises(ValueError, match="draws: expected a multiple of thin, 3; found 10"):
        pmm.resume(tmp_path / "run", model=model, draws=10)
    more = pmm.resume(tmp_path / "run", model=model, draws=12, progressbar=False, quiet=True)
    assert_thinned(more, whole)


@pytest.mark.parametrize(("name", "value"), [("draws", 10), ("tune", 7)])
def test_the_numbers_must_be_multiples(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a multiple of thin, 3; found {value}"):
        drawn(**{name: value}, thin=3)


def test_it_is_a_whole_number():
    with pytest.raises(ValueError, match="thin: expected a whole number of at least 1; found 0"):
        drawn(thin=0)


def test_draws_while_tuning_take_no_memory(whole, monkeypatch):
    written = []
    real = Draws.record

    def record(self, point, stats=None, *, in_warmup):
        before = {name: own.copy() for name, own in self.samples.items()}
        real(self, point, stats, in_warmup=in_warmup)
        written.append(
            any(own.tobytes() != before[name].tobytes() for name, own in self.samples.items())
        )

    monkeypatch.setattr(Draws, "record", record)
    found = drawn()
    assert written == ([False] * 6 + [True] * 12) * 2
    np.testing.assert_array_equal(found["posterior"]["cluster"], whole["posterior"]["cluster"])


def test_labels_take_a_quarter_of_the_memory(monkeypatch):
    kept = {}
    real = Draws.close

    def close(self):
        real(self)
        kept.update({name: own.dtype for name, own in self.samples.items()})

    monkeypatch.setattr(Draws, "close", close)
    found = drawn(chains=1)
    assert kept["cluster"] == found["posterior"]["cluster"].dtype == np.int16
    assert kept["nu"] == np.int64
