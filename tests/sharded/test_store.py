"""Labels on disk, when the disk is full in the middle of the last of it."""

import errno
import os

import numpy as np
import pytest

from pm_match.sharded.data import Piece
from pm_match.sharded.store import Store, certainty_of

N, KEPT, DRAWS = 6, 5, 3
PIECES = [
    Piece(2 * number + part, name, 3 * part, 3 * part + 3)
    for number, name in enumerate(("cluster_a", "cluster_b"))
    for part in range(2)
]


def written(path):
    """A store of five draws, three of which were made; their labels and certainties."""
    rng, store = np.random.default_rng(0), Store(path)
    store.create(PIECES, KEPT, {"cluster_a": "a", "cluster_b": "b"})
    labels = {name: np.zeros((DRAWS, N), np.int64) for name in ("cluster_a", "cluster_b")}
    sure = {name: np.zeros((DRAWS, N)) for name in labels}
    for draw in range(DRAWS):
        for piece in PIECES:
            own = rng.integers(4, size=3), rng.random(3)
            store.write(piece, draw, *own)
            for table, values in zip((labels, sure), own, strict=True):
                table[piece.assignment][draw, piece.start : piece.stop] = values
    return store, labels, sure


# Four chunks of certainties, two arrays of sums, two of labels.
@pytest.mark.parametrize("k", range(9))
def test_labels_are_kept_wherever_the_disk_is_full(k, tmp_path, monkeypatch):
    zarr = pytest.importorskip("zarr")
    store, labels, sure = written(tmp_path / "labels.zarr")
    done = []

    def failing(function):
        def fail(*args, **kwargs):
            if len(done) == k:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            done.append(function.__name__)
            return function(*args, **kwargs)

        return fail

    for owner, name in (
        (zarr.Array, "__setitem__"),
        (zarr.Group, "__delitem__"),
        (zarr.Array, "resize"),
    ):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    if k < 8:
        with pytest.raises(OSError, match="No space left"):
            store.finish(PIECES, DRAWS)
    else:
        store.finish(PIECES, DRAWS)
        assert done == ["__setitem__"] * 4 + ["__delitem__"] * 2 + ["resize"] * 2
    monkeypatch.undo()
    found = store.read(DRAWS)
    for name, expected in labels.items():
        np.testing.assert_array_equal(found[name][0], expected)
    certain = {name for name in labels if certainty_of(name) in found}
    assert len(certain) == min(max(k - 4, 0), 2)
    for name in certain:
        np.testing.assert_allclose(found[certainty_of(name)], sure[name].mean(axis=0), rtol=1e-6)
    assert set(found.data_vars) == {*labels, *map(certainty_of, certain)}


def test_where_no_folder_can_be_made_is_said_at_once(tmp_path):
    pytest.importorskip("zarr")
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"labels: expected a folder that can be made; .*"):
        Store(tmp_path / "file" / "labels.zarr")
    (tmp_path / "file").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError, match="labels: expected a folder that does not exist"):
        Store(tmp_path / "link")
    (tmp_path / "link").unlink()
    Store(tmp_path / "new" / "labels.zarr")
    assert not [*tmp_path.iterdir()]


def test_labels_may_be_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.chdir(tmp_path)
    assert Store("memory://labels.zarr").path == "memory://labels.zarr"
    assert Store("~/labels.zarr").path == os.path.expanduser("~/labels.zarr")
    assert not [*tmp_path.iterdir()]


def test_workers_find_labels_from_any_folder(tmp_path, monkeypatch):
    pytest.importorskip("zarr")
    monkeypatch.chdir(tmp_path)
    store = Store("labels.zarr")
    store.create(PIECES, KEPT, {"cluster_a": "a", "cluster_b": "b"})
    monkeypatch.chdir("/")
    store.write(PIECES[0], 0, np.array([1, 2, 3]), np.ones(3))
    assert store.read(1)["cluster_a"][0, 0, :3].values.tolist() == [1, 2, 3]
