import builtins

import numpy as np
import pandas as pd
import pytest

from pm_match import datasets
from pm_match.domains import as_domains


@pytest.fixture
def digits():
    pytest.importorskip("sklearn")
    return datasets.rotated_digits(n_objects=50, random_seed=3)


def test_digits_are_different_images_turned_clockwise(digits):
    bunch = pytest.importorskip("sklearn.datasets").load_digits()
    assert list(digits) == ["upright", "quarter", "half"]
    index = {name: table[f"{name}_object"].to_numpy() for name, table in digits.items()}
    assert len(np.unique(np.concatenate(list(index.values())))) == 150
    for name, turn in {"upright": 0, "quarter": 1, "half": 2}.items():
        original = bunch.images[index[name]]
        clockwise = original
        for _ in range(turn):  # 90° clockwise: the first column, read upwards, is the first row
            clockwise = clockwise.transpose(0, 2, 1)[:, :, ::-1]
        np.testing.assert_array_equal(datasets.images(digits[name]), clockwise)
        np.testing.assert_array_equal(digits[name]["label"], bunch.target[index[name]])
        assert set(bunch.target[index[name]]) == {0, 1, 2, 3}


def test_digits_are_fit_for_a_model(digits):
    tables = as_domains(digits)  # which refuses constant pixels
    assert tables["upright"].features[0].startswith("r0c")
    assert all(table.n_objects == 50 for table in tables.values())


def test_digits_depend_on_the_seed_alone():
    pytest.importorskip("sklearn")
    first, again, other = (datasets.rotated_digits(20, random_seed=seed) for seed in (1, 1, 2))
    assert all(first[name].identical(again[name]) for name in first)
    assert not first["half"]["half_object"].equals(other["half"]["half_object"])


def test_default_digits_have_the_size_of_the_paper():
    pytest.importorskip("sklearn")
    assert {len(table) for table in datasets.rotated_digits().values()} == {200}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_objects": 400}, "3 domains of 400 different images need 1200, but there are only 720"),
        ({"digits": (0, 10)}, r"one or more of the digits 0 to 9; found \(0, 10\)"),
        ({"digits": ()}, "one or more of the digits"),
        ({"n_objects": 0}, "at least one image a domain; found 0"),
    ],
)
def test_impossible_digits(arguments, message):
    pytest.importorskip("sklearn")
    with pytest.raises(ValueError, match=message):
        datasets.rotated_digits(**arguments)


def test_without_scikit_learn(monkeypatch):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "pm_match\[examples\]"'):
        datasets.iris()


def test_images_take_a_frame_and_fill_what_is_left_out():
    image = datasets.images(pd.DataFrame([[5.0, 6.0]], columns=["r3c4", "r7c0"]))
    assert image.shape == (1, 8, 8)
    assert image[0, 3, 4] == 5
    assert image[0, 7, 0] == 6
    assert image.sum() == 11


def test_images_need_positions():
    with pytest.raises(ValueError, match="column 'u' is not a pixel's position"):
        datasets.images(pd.DataFrame({"u": [1.0]}))
    with pytest.raises(ValueError, match="column 'r8c0' is not a pixel's position"):
        datasets.images(pd.DataFrame({"r8c0": [1.0]}))
    with pytest.raises(TypeError, match="found an object of type ndarray"):
        datasets.images(np.ones((2, 2)))


def test_synthetic_follows_the_model():
    domains = datasets.synthetic(3000, 6, 3, 2, noise_precision=4.0, random_seed=5)
    assert list(domains) == ["a", "b"]
    for table in domains.values():
        label = table["label"].to_numpy()
        np.testing.assert_array_equal(np.bincount(label), 1000)
        means = np.array([table.to_numpy()[label == j].mean(axis=0) for j in range(3)])
        residual = table.to_numpy() - means[label]
        assert residual.var() == pytest.approx(1 / 4, rel=0.05)
        # Means lie in the latent space: rank 2, but for the noise in them.
        assert np.linalg.svd(means, compute_uv=False)[2] < 0.1
    shared = [d.groupby("label").mean().to_numpy() for d in domains.values()]
    assert not np.allclose(*shared)  # each domain has a projection of its own


def test_synthetic_missing_values():
    domains = datasets.synthetic(200, 20, missing=0.2, random_seed=1)
    missing = as_domains(domains)["b"].missing
    assert missing.mean() == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_features": 0}, "n_features: expected at least 1; found 0"),
        ({"n_domains": 27}, "n_domains: expected at most 26"),
        ({"noise_precision": 0.0}, "noise_precision: expected a positive number; found 0"),
        ({"missing": 1.0}, "missing: expected a fraction"),
    ],
)
def test_impossible_synthetic(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.synthetic(**arguments)


def test_split_features_shares_none_and_loses_none():
    table = pd.DataFrame(np.arange(30.0).reshape(6, 5) ** 2, columns=list("vwxyz"))
    label = np.arange(6) % 2
    domains = datasets.split_features(table, label, random_seed=0, names=("left", "right"))
    left, right = domains["left"], domains["right"]
    assert (left.shape, right.shape) == ((6, 3), (6, 2))
    columns = [*left["left_feature"].to_numpy(), *right["right_feature"].to_numpy()]
    assert sorted(columns) == list("vwxyz")
    np.testing.assert_array_equal(np.c_[left, right], table[columns])
    np.testing.assert_array_equal(datasets.true_labels(domains)["right"], label)


def test_split_features_bad_input():
    with pytest.raises(ValueError, match="at least two features to split; found 1"):
        datasets.split_features(np.ones((3, 1)), [0, 1, 2])
    with pytest.raises(ValueError, match=r"one for each of the 3 objects; found shape \(2,\)"):
        datasets.split_features(np.ones((3, 2)), [0, 1])


def test_iris():
    pytest.importorskip("sklearn")
    domains = datasets.iris()
    assert {table.shape for table in domains.values()} == {(150, 2)}
    np.testing.assert_array_equal(np.bincount(datasets.true_labels(domains)["a"]), 50)
    as_domains(domains)


def test_true_labels_must_be_there():
    with pytest.raises(ValueError, match="domain 'a': its table has no coordinate 'label'"):
        datasets.true_labels({"a": pd.DataFrame({"u": [1, 2]})})
