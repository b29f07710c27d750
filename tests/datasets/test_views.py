import os

import numpy as np
import pytest
from scipy import sparse

from pm_match import datasets

SIMULATED = {
    "xor": datasets.xor_views,
    "rings": datasets.ring_views,
    "clusters": lambda **given: datasets.dependent_clusters("multimodal", **given),
}


def _csr(name, matrix):
    matrix = sparse.csr_array(matrix)
    parts = ("data", "indices", "indptr", "shape")
    return {f"{name}_{part}": np.asarray(getattr(matrix, part)) for part in parts}


def _identical(one, other):
    return all(one[name].identical(other[name]) for name in one)


@pytest.mark.parametrize("make", SIMULATED.values(), ids=SIMULATED)
def test_drawn_views_depend_on_the_seed_alone(make):
    first, again, other = (make(n_objects=20, random_seed=seed) for seed in (1, 1, 2))
    assert _identical(first.views, again.views)
    assert not _identical(first.views, other.views)
    for name, view in first.views.items():
        assert view.dims == ("object", f"{name}_feature")
        assert view.shape[0] == len(first.labels) == 20
    assert set(first.labels) <= set(range(len(first.label_names)))


def test_xor_is_told_by_the_product_of_two_numbers():
    data = datasets.xor_views(2000, n_private=0, noise=0.0, random_seed=4)
    x = np.hstack([view.to_numpy() for view in data.views.values()])
    assert np.linalg.matrix_rank(x) == 2
    assert abs(np.mean(data.labels) - 0.5) < 0.05
    centred = x[:, :2] - x[:, :2].mean(axis=0)
    linear = np.corrcoef(np.column_stack([centred, data.labels]).T)[-1, :-1]
    assert np.abs(linear).max() < 0.1
    # Any two numbers of a plane know the two; a quadratic form of them knows their product.
    forms = np.column_stack([centred[:, 0] ** 2, centred[:, 1] ** 2, centred.prod(axis=1)])
    fitted = np.column_stack([forms, np.ones(2000)])
    said = fitted @ np.linalg.lstsq(fitted, 2.0 * data.labels - 1)[0] > 0
    assert np.mean(said == data.labels) > 0.9


def test_rings_have_their_radii():
    data = datasets.ring_views(4000, n_features=2, n_private=0, noise=0.0, random_seed=4)
    x = data.views["a"].to_numpy()
    # A ring seen through W is an ellipse; whitened, radii of the classes are as 1 to 2.
    inner = x[data.labels == 0]
    white = x @ np.linalg.inv(np.linalg.cholesky(np.cov(inner.T)).T)
    radius = np.linalg.norm(white, axis=1)
    ratio = np.median(radius[data.labels == 1]) / np.median(radius[data.labels == 0])
    assert ratio == pytest.approx(2.0, abs=0.05)


def test_correlated_views_have_the_correlations_asked_for():
    views = datasets.correlated_views(40_000, (0.9, 0.5), n_noise=2, random_seed=0)
    bases = [np.linalg.qr(view - view.mean("object"))[0] for view in views.values()]
    found = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    np.testing.assert_allclose(found, [0.9, 0.5, 0.0, 0.0], atol=0.02)
    spread = np.linalg.eigvalsh(np.cov(views["a"].to_numpy().T))
    np.testing.assert_allclose(spread, [1, 1, 4, 4], rtol=0.05)


@pytest.mark.parametrize("kind", ["structured", "multimodal"])
def test_toys_have_noise_that_tells_nothing(kind):
    data = datasets.dependent_clusters(kind, 3000, random_seed=0)
    for view in data.views.values():
        up = view[:, 1].to_numpy() > 0
        assert np.abs(np.bincount(data.labels, up) / np.bincount(data.labels) - 0.5).max() < 0.06
    signal = data.views["a"][:, 0].to_numpy()
    spread = [signal[data.labels == cluster].std() for cluster in range(3)]
    assert (spread[2] > 3) == (kind == "multimodal")
    assert max(spread[:2]) < 0.6


def test_bimodal_noise():
    views = datasets.correlated_views(20_000, n_noise=0)
    noisy = datasets.add_bimodal_noise(views, 2, separation=4.0)
    for name, view in noisy.items():
        assert list(view[f"{name}_feature"].to_numpy()[-2:]) == ["noise_0", "noise_1"]
        np.testing.assert_array_equal(view[:, :3], views[name])
        noise = view[:, 3:].to_numpy()
        np.testing.assert_allclose(noise.var(axis=0), 1, rtol=0.03)
        # One mode of both features: a correlation of 4 / (1 + 4).
        assert np.corrcoef(noise.T)[0, 1] == pytest.approx(0.8, abs=0.02)
    across = np.corrcoef(noisy["a"][:, 3], noisy["b"][:, 3])[0, 1]
    assert abs(across) < 0.03


def test_digit_halves():
    pytest.importorskip("sklearn")
    data = datasets.digit_halves()
    assert data.views["left"].shape[0] == data.views["right"].shape[0] == len(data.labels) == 1797
    for name, columns in {"left": "0123", "right": "4567"}.items():
        view = data.views[name]
        assert {label[-1] for label in view[f"{name}_feature"].to_numpy()} == set(columns)
        assert (np.ptp(view.to_numpy(), axis=0) > 0).all()


def test_webkb(tmp_path):
    content = np.array([[1, 0, 0, 1], [0, 0, 1, 1], [1, 0, 1, 1]])
    links = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    arrays = {"y": np.array([2, 5, 2]), "label_names": np.array(["staff", "student"])}
    np.savez(tmp_path / "webkb_texas.npz", **arrays, **_csr("content", content),
             **_csr("links", links))  # fmt: skip
    data = datasets.load_webkb(tmp_path, "texas")
    np.testing.assert_array_equal(data.labels, [0, 1, 0])
    np.testing.assert_array_equal(data.views["content"], content[:, [0, 2]])
    np.testing.assert_array_equal(data.views["content"]["content_feature"], [0, 2])
    assert data.views["links"].shape == (3, 2)
    with pytest.raises(FileNotFoundError, match="webkb_cornell"):
        datasets.load_webkb(tmp_path, "cornell")
    with pytest.raises(ValueError, match="expected one of"):
        datasets.load_webkb(tmp_path, "oxford")
    np.savez(tmp_path / "webkb_cornell.npz", **(arrays | {"label_names": np.array(["a", "b"])}),
             **_csr("content", content), **_csr("links", links))  # fmt: skip
    with pytest.raises(ValueError, match="'student' once"):
        datasets.load_webkb(tmp_path, "cornell")


def test_multiple_features(tmp_path):
    kar = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "mfeat.npz", y=np.array([3, 7, 3]), kar=kar)
    data = datasets.load_multiple_features(tmp_path, ["kar"])
    np.testing.assert_array_equal(data.views["kar"], kar)
    np.testing.assert_array_equal(data.labels, [0, 1, 0])
    assert data.label_names == ("3", "7")
    with pytest.raises(ValueError, match="expected arrays"):
        datasets.load_multiple_features(tmp_path)
    with pytest.raises(ValueError, match="expected some of"):
        datasets.load_multiple_features(tmp_path, ["kar", "abc"])


def test_yeast_stress(tmp_path):
    x = np.arange(12.0).reshape(3, 4)
    x[1, 3] = np.nan  # not measured under diamide
    x[2, 0] = np.nan  # of neither series
    given = {
        "genes": np.array(["g", "h", "i"]), "columns": np.array(list("pqrs")),
        "col_heat": np.array([1, 2]), "col_diamide": np.array([3]),
        "esr": np.array([True, False, False]),
    }  # fmt: skip
    np.savez(tmp_path / "gasch2000.npz", X=x, **given)
    data = datasets.load_yeast_stress(tmp_path)
    np.testing.assert_array_equal(data.views["heat"], [[1, 2], [9, 10]])
    np.testing.assert_array_equal(data.views["diamide"]["object"], ["g", "i"])
    np.testing.assert_array_equal(data.labels, [1, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: datasets.xor_views(0),
            "n_objects: expected a whole number .* 1; found 0",
        ),
        (lambda: datasets.ring_views(n_features=0), "features: expected a whole number"),
        (lambda: datasets.xor_views(noise=-1.0), "at least 0; found 1 and -1.0"),
        (lambda: datasets.correlated_views(correlations=(1.2,)), "numbers from 0 to 1"),
        (lambda: datasets.dependent_clusters("round"), "found 'round'"),
        (lambda: datasets.add_bimodal_noise({}, -1), "at least 0; found -1"),
    ],
)
def test_impossible_views(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif("PM_MATCH_DATA" not in os.environ, reason="PM_MATCH_DATA names no folder")
def test_real_files_have_their_sizes():
    folder = os.environ["PM_MATCH_DATA"]
    students = {"cornell": (195, 83), "texas": (187, 103), "washington": (230, 107)}
    for university, (pages, own) in (students | {"wisconsin": (265, 122)}).items():
        data = datasets.load_webkb(folder, university)
        assert (len(data.labels), data.labels.sum()) == (pages, own)
    yeast = datasets.load_yeast_stress(folder)
    assert yeast.views["heat"].shape == (3483, 8)
    features = datasets.load_multiple_features(folder)
    assert {name: view.shape for name, view in features.views.items()} == {
        "kar": (2000, 64),
        "zer": (2000, 47),
    }
