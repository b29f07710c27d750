"""What a folder is taken for, and what is refused: others' models, steps, versions and files."""

import errno
import json
import os
import pickle
import resource
import shutil

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.running import checkpoint as checkpoints
from pm_match.running.checkpoint import Checkpoint
from pm_match.running.files import DamagedError, read_values, write, write_values
from pm_match.running.plain_values import packed, unpacked
from pm_match.running.record import Record
from tests.declared.plain import tiny_data, tiny_model
from tests.running.processes import QUIET, SEED, Sampling, same

pytestmark = pytest.mark.filterwarnings("ignore:the draws fill the truncation")
TUNE, DRAWS = 5, 10
LARGEST = 5000
LENGTH = {"tune": TUNE, "chains": 2, "cores": 1}


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def whole(model):
    return sampled(model)


@pytest.fixture(scope="module")
def ended(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "of" / "mine"
    sampled(model, checkpoint=folder, every=1e-9)
    return folder


@pytest.fixture
def folder(ended, tmp_path):
    """A run that has ended."""
    return shutil.copytree(ended, tmp_path / "run")


def sampled(model, draws=DRAWS, **kwargs):
    return pmm.sample(draws, model=model, **(LENGTH | SEED | QUIET | kwargs))


def resumed(folder, model, **kwargs):
    return pmm.resume(folder, model=model, **(QUIET | kwargs))


def cut(folder, chain=0, draws=8):
    """Take away the draws of a chain from a number on."""
    for file in (folder / f"chain-{chain}").iterdir():
        if int(file.stem) >= draws:
            file.unlink()


def test_draws_are_those_of_a_run_without(model, whole, ended):
    assert same(whole, resumed(ended, model))


def test_starts_are_kept(model, whole, folder, monkeypatch):
    def search(*args, **kwargs):
        raise AssertionError("again")

    cut(folder, 1, 0)
    monkeypatch.setattr("pm_match.sampling.initial_points", search)
    assert same(whole, resumed(folder, model))


def test_more_draws(model, folder):
    longer = sampled(model, 14)
    assert same(longer, resumed(folder, model, draws=14))
    assert resumed(folder, model)["posterior"].sizes["draw"] == 14
    with pytest.raises(ValueError, match="draws: expected at least the run's 14; found 13"):
        resumed(folder, model, draws=13)


def test_in_the_context_of_a_model(model, whole, ended):
    with model:
        assert same(whole, pmm.resume(ended, **QUIET))


def test_a_generator_as_seed(model, tmp_path):
    def seed():
        rng = np.random.default_rng(np.random.SeedSequence([3, 2**70], spawn_key=(4,)))
        rng.spawn(3)
        return rng

    expected = sampled(model, random_seed=seed())
    sampled(model, random_seed=seed(), checkpoint=tmp_path / "a", every=1e-9)
    cut(tmp_path / "a", 1)
    assert same(expected, resumed(tmp_path / "a", model))
    other = np.random.Generator(np.random.MT19937(3))
    with pytest.raises(ValueError, match=r"default_rng; found MT19937\."):
        sampled(model, random_seed=other, checkpoint=tmp_path / "b")


def test_initvals_of_ones_own(model, tmp_path):
    own = {"initvals": {"cluster_a": np.array([0, 1, 1]), "precision": 2.0}}
    expected = sampled(model, **own)
    sampled(model, **own, checkpoint=tmp_path / "a", every=1e-9)
    cut(tmp_path / "a", 0, 0)
    assert same(expected, resumed(tmp_path / "a", model))
    with pytest.raises(TypeError, match=r"initvals: expected plain values; found (Random|Tensor)V"):
        sampled(model, initvals={"precision": pm.Gamma.dist(1, 1)}, checkpoint=tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_steps_of_ones_own(model, tmp_path):
    def step(n_sweeps):
        return pmm.ClusterGibbs([model["cluster_a"]], n_sweeps=n_sweeps, model=model)

    expected = sampled(model, step=step(3))
    sampled(model, step=step(3), checkpoint=tmp_path / "a", every=1e-9)
    cut(tmp_path / "a")
    with pytest.raises(ValueError, match=r"the steps given are not those .*: 3.*found \[\]"):
        resumed(tmp_path / "a", model)
    with pytest.raises(ValueError, match=r"the steps given are not those .*: 3.*: 4"):
        resumed(tmp_path / "a", model, step=step(4))
    assert same(expected, resumed(tmp_path / "a", model, step=step(3)))


def test_arguments_that_are_kept(model, folder, tmp_path):
    warmup = {"discard_tuned_samples": False, "cluster_gibbs": {"n_sweeps": 2}}
    with pytest.raises(ValueError, match="cluster_gibbs"):
        sampled(model, checkpoint=tmp_path / "a", **warmup)  # ours are made already
    sampled(model, checkpoint=tmp_path / "b", discard_tuned_samples=False)
    assert "warmup_posterior" in resumed(tmp_path / "b", model)
    kept = resumed(tmp_path / "b", model, discard_tuned_samples=True)
    assert "warmup_posterior" not in kept
    with pytest.raises(TypeError, match=r"resume: expected .*; found random_seed, tune"):
        resumed(folder, model, tune=3, random_seed=2)
    with pytest.raises(TypeError, match="expected plain values of compile_kwargs"):
        sampled(model, checkpoint=tmp_path / "c", compile_kwargs={"mode": object()})
    with pytest.raises(TypeError, match="expected keep_warning_stat=False"):
        sampled(model, checkpoint=tmp_path / "c", keep_warning_stat=True)


@pytest.mark.parametrize("every", [0.0, -1.0, np.inf, "1"])
def test_every_is_a_positive_number(model, every, tmp_path):
    with pytest.raises(ValueError, match="every: expected a positive number"):
        sampled(model, checkpoint=tmp_path / "a", every=every)


def test_a_folder_with_anything_in_it_is_refused(model, folder, tmp_path):
    with pytest.raises(FileExistsError, match=r"holds a run; pmm\.resume\(.*\) goes on with it"):
        sampled(model, checkpoint=folder)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"a new or empty folder; found 'notes\.txt' in"):
        sampled(model, checkpoint=tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no run"):
        resumed(tmp_path, model)


def test_another_model_is_refused(model, folder):
    shapes = tiny_model(data=tiny_data(n_objects=(4, 3)))
    with pytest.raises(ValueError, match=r"not the one .*'cluster_a': expected int64 of shape \(3"):
        resumed(folder, shapes)
    values = {name: x + 1.0 for name, x in tiny_data().items()}
    with pytest.raises(
        ValueError, match=r"the log density at the initial point of 'a': expected -"
    ):
        resumed(folder, tiny_model(data=values))
    with pytest.raises(ValueError, match=r"log density at the initial point of 'weights'"):
        resumed(folder, tiny_model(concentration=1.5))
    more = pmm.models.projected_clusters(tiny_data(), 2)
    with more:
        pm.Normal("mine")
    with pytest.raises(ValueError, match="is not the one of the run"):
        resumed(folder, more)


def test_other_versions_draw_no_more(model, whole, folder, monkeypatch):
    here = checkpoints.versions()
    monkeypatch.setattr(checkpoints, "versions", lambda: here | {"numpy": "9.9"})
    # What is there can be read.
    assert same(whole, resumed(folder, model))
    expected = rf"other versions, .*: expected numpy {np.__version__}; found numpy 9\.9"
    with pytest.raises(ValueError, match=expected):
        resumed(folder, model, draws=DRAWS + 1)
    cut(folder)
    with pytest.raises(ValueError, match=expected):
        resumed(folder, model)


def test_a_run_in_another_format(model, folder):
    file = folder / "run.json"
    run = json.loads(file.read_text())
    file.write_text(json.dumps(run | {"format": 2}))
    with pytest.raises(ValueError, match=r"run\.json': expected format 1; found 2"):
        resumed(folder, model)
    file.write_text(json.dumps(run)[:-20])
    with pytest.raises(ValueError, match=r"run\.json' is damaged"):
        resumed(folder, model)


@pytest.mark.parametrize("how", ["half", "bit", "empty", "other"])
def test_a_damaged_file_is_drawn_anew(model, whole, folder, how):
    file = folder / "chain-1" / "00000007.npz"
    content = bytearray(file.read_bytes())
    if how == "bit":
        content[len(content) // 2] ^= 1
    content = {"half": content[: len(content) // 2], "empty": b"", "other": b"x" * 99}.get(
        how, content
    )
    file.write_bytes(content)
    with pytest.warns(UserWarning, match=r"00000007\.npz' is damaged.* from number 7 on are drawn"):
        found = resumed(folder, model)
    assert same(whole, found)
    assert file.with_suffix(".damaged").exists()
    assert same(whole, resumed(folder, model))


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


@pytest.mark.parametrize("where", ["chain-0/00000003.npz", "starts.npz"])
def test_pickled_objects_are_refused(model, folder, where, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    cut(folder, 0, 6)
    objects = np.array([Harmful()], dtype=object)
    with open(folder / where, "wb") as file:
        np.savez(file, contents=objects, **{"0": objects})
    with pytest.raises(ValueError, match=r"is not a file of pm_match, and is not read: Object arr"):
        resumed(folder, model)
    (folder / where).write_bytes(pickle.dumps(Harmful()))
    with (
        pytest.warns(UserWarning, match="damaged")
        if "chain" in where
        else pytest.raises(DamagedError, match="it is not an archive")
    ):
        resumed(folder, model)
    assert not (tmp_path / "harm").exists()


def test_a_full_disk_loses_nothing(model, whole, tmp_path, monkeypatch, caplog):
    """It fills up while the run is on its way; there is room again soon, or not."""
    real, calls = os.fsync, []

    def full(number):
        calls.append(number)
        if 12 < len(calls) < last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.setattr(os, "fsync", full)
    last = 16
    with caplog.at_level("ERROR", "pymc"):
        found = sampled(model, checkpoint=tmp_path / "a", every=1e-9, quiet=False)
    assert same(whole, found)
    assert Checkpoint.open(tmp_path / "a").check_draws() == [TUNE + DRAWS] * 2
    assert f"{str(tmp_path / 'a')!r} cannot be written: No space left on device" in caplog.text
    assert same(whole, resumed(tmp_path / "a", model))
    calls.clear()
    last = 10_000
    with pytest.warns(UserWarning, match=r"lacks the last draws of chain 0 and 1.* is whole"):
        found = sampled(model, checkpoint=tmp_path / "b", every=1e-9)
    assert same(whole, found)
    monkeypatch.undo()
    written = Checkpoint.open(tmp_path / "b").check_draws()
    assert 0 < written[0] < TUNE + DRAWS
    assert same(whole, resumed(tmp_path / "b", model))


def test_a_disk_that_is_full_at_the_start(model, tmp_path, monkeypatch):
    def full(*names):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match=r"checkpoint folder .*cannot be written: No space left"):
        sampled(model, checkpoint=tmp_path / "a")


def limited(folder, model, **kwargs):
    """Sample where no file may be larger than a few kilobytes: the system itself refuses."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, hard))
    return sampled(model, checkpoint=folder, **kwargs)


def test_files_that_may_not_grow(model, whole, tmp_path):
    found, (message,) = Sampling(limited, tmp_path / "a", model).found()
    assert "lacks the last draws of chain 0 and 1" in message
    assert same(whole, found)
    assert same(whole, resumed(tmp_path / "a", model))
    assert all(file.stat().st_size > LARGEST for file in (tmp_path / "a").glob("chain-*/*"))


def test_a_file_takes_its_place_at_once(tmp_path, monkeypatch):
    file = tmp_path / "a.npz"
    write(file, b"before")

    def broken(*names):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="no"):
        write(file, b"after")
    assert file.read_bytes() == b"before"
    assert [own.name for own in tmp_path.iterdir()] == ["a.npz"]


def test_values_come_back_as_they_were(tmp_path):
    value = {
        "numbers": [1, 2**90, -0.1, float("inf"), True, None, "text"],
        "nested": {"tuple": (1, np.float32(0.1)), "array": np.arange(6.0).reshape(2, 3)},
        "zero": np.array(3),
    }
    write_values(tmp_path / "a.npz", value)
    found = unpacked(*read_values(tmp_path / "a.npz"))
    assert repr(found) == repr(value)
    assert np.isnan(unpacked(packed(float("nan"), []), []))
    for other in (object(), np.array([None]), {1: 2}):
        with pytest.raises(TypeError, match="expected"):
            packed(other, [])


def test_labels_take_a_byte_and_come_back_as_they_were(tmp_path):
    record = Record(tmp_path, 3, 1e9)
    numbers = [np.array([3, -1, 99]), np.array([3, -1, 200]), np.array([2**33, -1, 0])]
    for own in numbers:
        record.add({"z": own, "flag": own > 0, "x": own / 3}, [])
        record.save(None)
    sizes = [np.load(own)["0"].itemsize for own in sorted(tmp_path.glob("*.npz"))]
    assert sizes == [1, 2, 8]
    again = Record(tmp_path, 3, 1e9)
    for own in numbers:
        point, _ = again.next()
        for name, value in {"z": own, "flag": own > 0, "x": own / 3}.items():
            np.testing.assert_array_equal(point[name], value)
            assert point[name].dtype == value.dtype
