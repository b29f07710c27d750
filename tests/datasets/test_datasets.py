import builtins
import os

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pm_match import datasets
from pm_match.tables.domains import as_domains


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
        ({"n_objects": 400}, "at most 240 images .* 720 .* for 3 domains; found 400"),
        ({"digits": (0, 10)}, r"one or more of the digits 0 to 9; found \(0, 10\)"),
        ({"digits": ()}, "one or more of the digits"),
        ({"n_objects": 0}, "at least 1 image in each domain; found 0"),
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
    with pytest.raises(
        ValueError, match=r"expected columns named by pixels' positions, .* found 'u'"
    ):
        datasets.images(pd.DataFrame({"u": [1.0]}))
    with pytest.raises(
        ValueError, match=r"expected columns named by pixels' positions, .* found 'r8c0'"
    ):
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
        ({"n_features": 0}, "n_features: expected a whole number of at least 1; found 0"),
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


def test_wine():
    bunch = pytest.importorskip("sklearn.datasets").load_wine()
    domains = datasets.wine(4)
    assert {name: table.shape for name, table in domains.items()} == {"a": (178, 7), "b": (178, 6)}
    joined = {}
    for name, table in domains.items():
        np.testing.assert_array_equal(table["label"], bunch.target)
        columns = table[f"{name}_feature"].to_numpy().tolist()
        joined |= dict(zip(columns, table.to_numpy().T, strict=True))
    original = dict(zip(bunch.feature_names, bunch.data.T, strict=True))
    assert joined.keys() == original.keys()
    assert all(np.array_equal(joined[name], original[name]) for name in original)
    again, other = datasets.wine(4), datasets.wine(5)
    assert all(domains[name].identical(again[name]) for name in domains)
    assert not domains["a"].equals(other["a"])
    as_domains(domains)


@pytest.fixture
def glass_folder(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 9)), rng.permutation(np.repeat([1, 2, 7], 4))
    np.savez(tmp_path / "glass.npz", X=x, y=y, columns=np.array(list("qrstuvwxy")))
    return tmp_path


def test_glass(glass_folder):
    domains = datasets.load_glass(glass_folder, 2)
    file = np.load(glass_folder / "glass.npz")
    assert {name: table.shape for name, table in domains.items()} == {"a": (12, 5), "b": (12, 4)}
    seen = []
    for name, table in domains.items():
        np.testing.assert_array_equal(table["label"], file["y"])
        columns = table[f"{name}_feature"].to_numpy().tolist()
        np.testing.assert_array_equal(table, file["X"][:, ["qrstuvwxy".index(c) for c in columns]])
        seen += columns
    assert sorted(seen) == list("qrstuvwxy")
    assert not datasets.load_glass(glass_folder, 3)["a"].equals(domains["a"])


def test_glass_needs_its_arrays(tmp_path):
    np.savez(tmp_path / "glass.npz", X=np.ones((2, 2)), y=[0, 1])
    with pytest.raises(ValueError, match=r"expected arrays \['columns'\]; found \['X', 'y'\]"):
        datasets.load_glass(tmp_path)


def test_true_labels_must_be_there():
    with pytest.raises(ValueError, match="domain 'a': expected a table with a coordinate 'label'"):
        datasets.true_labels({"a": pd.DataFrame({"u": [1, 2]})})


def by_block(drawn, name):
    """Share of edges by the clusters of row and column, and the number of cells."""
    x, labels = drawn.networks[name].toarray(), drawn.clusters[name]
    row, column = labels[0], labels[-1]
    k = np.arange(-1, len(drawn.density))
    u, v = (row[:, None] == k).astype(float), (column[:, None] == k).astype(float)
    cells = np.outer(u.sum(axis=0), v.sum(axis=0))
    with np.errstate(invalid="ignore"):
        return u.T @ x @ v / cells, cells


@pytest.mark.parametrize("kind", ["noisy-dirichlet", "noisy-partial", "dirichlet"])
def test_synthetic_networks_follow_the_model(kind):
    drawn = datasets.synthetic_networks(
        kind, n_relevant=900, n_irrelevant=200, n_clusters=3, random_seed=4
    )
    assert list(drawn.networks) == list(drawn.clusters) == ["a", "b"]
    assert drawn.types == ("row", "column")
    expected = np.full((4, 4), drawn.noise)
    expected[1:, 1:] = drawn.density
    for name, network in drawn.networks.items():
        assert isinstance(network, sparse.csr_array)
        assert set(network.data) == {1}
        assert network.shape == tuple(len(labels) for labels in drawn.clusters[name])
        share, cells = by_block(drawn, name)
        error = np.sqrt(expected * (1 - expected) / cells.clip(1))
        assert (np.abs(share - expected) <= 5 * error)[cells > 0].all()
    # Proportions are each network's and each type's own; edges are independent.
    a, b = drawn.clusters["a"], drawn.clusters["b"]
    sizes = [np.bincount(labels[labels >= 0], minlength=3).tolist() for labels in (*a, *b)]
    assert len({tuple(part) for part in sizes}) == (2 if kind == "noisy-partial" else 4)
    assert not np.array_equal(a[0], np.sort(a[0]))


def test_kinds_of_synthetic_networks_have_the_paper_s_sizes():
    noisy = datasets.synthetic_networks("noisy-dirichlet", random_seed=0)
    assert all(np.sum(part == -1) == 20 and len(part) == 120 for part in noisy.clusters["a"])
    clean = datasets.synthetic_networks("dirichlet", random_seed=0)
    assert all(part.min() >= 0 and len(part) == 100 for part in clean.clusters["b"])
    partial = datasets.synthetic_networks("noisy-partial", n_networks=3, random_seed=0)
    for name, absent in zip("abc", (4, 0, 1), strict=True):
        for part in partial.clusters[name]:
            sizes = [0 if k == absent else 20 for k in range(5)]
            assert np.bincount(part[part >= 0], minlength=5).tolist() == sizes
            assert np.sum(part == -1) == 20


def test_synthetic_networks_of_one_type():
    drawn = datasets.synthetic_networks(n_types=1, n_networks=1, random_seed=1)
    (network,) = drawn.networks.values()
    assert drawn.types == ("node",)
    assert len(drawn.clusters["a"]) == 1
    assert network.shape == (120, 120)
    assert not network.diagonal().any()
    assert (network != network.T).nnz > 0


def test_densities_are_from_the_arcsine_law():
    density = datasets.synthetic_networks(
        "dirichlet", n_relevant=1, n_clusters=60, random_seed=0
    ).density
    # Beta(1/2, 1/2) has variance 1/8, and a third of it lies beyond 3/4 or under 1/4 each.
    assert density.var() == pytest.approx(1 / 8, rel=0.05)
    assert np.mean(density < 0.25) == pytest.approx(1 / 3, abs=0.03)


def test_synthetic_networks_depend_on_the_seed_alone():
    first, again, other = (datasets.synthetic_networks(random_seed=seed) for seed in (1, 1, 2))
    assert (first.networks["b"] != again.networks["b"]).nnz == 0
    assert (first.networks["b"] != other.networks["b"]).nnz > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "noisy"}, "kind: expected one of .*'noisy-partial'.*; found 'noisy'"),
        ({"n_relevant": 0}, "n_relevant: expected a whole number of at least 1; found 0"),
        ({"n_irrelevant": -1}, "n_irrelevant: expected a whole number of at least 0; found -1"),
        (
            {"kind": "noisy-partial", "n_clusters": 1},
            "n_clusters: expected a whole number of at least 2; found 1",
        ),
        ({"kind": "noisy-partial", "n_relevant": 7}, "n_relevant: .* multiple of the 5 clusters"),
        ({"n_types": 3}, "n_types: expected 1 or 2, for matrices; found 3"),
        ({"n_networks": 27}, "n_networks: expected at most 26; found 27"),
    ],
)
def test_impossible_synthetic_networks(arguments, message):
    with pytest.raises(ValueError, match=message):
        datasets.synthetic_networks(**arguments)


def csr_parts(prefix, dense):
    matrix = sparse.csr_array(dense)
    names = ("data", "indices", "indptr", "shape")
    values = (matrix.data, matrix.indices, matrix.indptr, matrix.shape)
    return {f"{prefix}_{name}": value for name, value in zip(names, values, strict=True)}


words_of = ("en", "de", "ja")


@pytest.fixture
def folder(tmp_path):
    """Small files as the loaders expect them, with counts and ratings that are not 0 or 1."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, 2, 4], [12, 11, 14])
    words = rng.poisson(0.8, (37, 5))
    np.savez(
        tmp_path / "20news_w100.npz",
        y=y,
        words=np.array(list("pqrst")),
        label_names=np.array(["one", "two", "four"]),
        **csr_parts("X", words),
    )
    stars = rng.integers(0, 11, (40, 30)) * (rng.random((40, 30)) < 0.6)
    stars[:, :5] = 0
    stars[:3] = 0
    genres = np.zeros((40, 5), dtype=np.uint8)
    genres[:30, 1] = genres[20:38, 2] = genres[25:35, 3] = genres[::2, 4] = 1
    genres[38:] = [1, 0, 0, 0, 1]
    np.savez(
        tmp_path / "movielens_latest_small.npz",
        genres=genres,
        genre_names=np.array(["(no genres listed)", "Drama", "Comedy", "War", "IMAX"]),
        titles=np.array([f"film {i}" for i in range(40)]),
        **csr_parts("half_stars", stars),
    )
    y = np.repeat([0, 1], 25)
    translated = np.arange(50) % 2 == 0
    np.savez(
        tmp_path / "libreoffice_help_multilingual.npz",
        y=y,
        label_names=np.array(["Calc", "Writer"]),
        doc=np.array([f"page {i}" for i in range(50)]),
        ja_translated=translated,
        **{f"words_{language}": [f"{language}{i}" for i in range(20)] for language in words_of},
        **{
            name: value
            for language in words_of
            for name, value in csr_parts(
                f"X_{language}", rng.poisson(np.linspace(0.1, 2, 20), (50, 20))
            ).items()
        },
    )
    return tmp_path


def check(loaded):
    """What holds for all of them; gives sets of the rows' names."""
    for name, network in loaded.networks.items():
        assert isinstance(network, sparse.csr_array)
        assert network.has_canonical_format
        assert set(network.data) == {1}
        assert network.shape == tuple(map(len, loaded.objects[name]))
        labels = loaded.labels[name]
        assert labels.shape == (network.shape[0],)
        assert set(labels) <= set(range(len(loaded.label_names)))
        assert not np.array_equal(labels, np.sort(labels))
    rows = [set(loaded.objects[name][0]) for name in loaded.networks]
    assert all(
        len(part) == n.shape[0] for part, n in zip(rows, loaded.networks.values(), strict=True)
    )
    assert sum(map(len, rows)) == len(set.union(*rows))
    return rows


def test_newsgroups_halves(folder):
    loaded = datasets.load_newsgroups_halves(folder, 3, n_per_category=5)
    check(loaded)
    assert loaded.types == ("document", "word")
    assert loaded.label_names == ("one", "two", "four")
    file = np.load(folder / "20news_w100.npz")
    x = sparse.csr_array((file["X_data"], file["X_indices"], file["X_indptr"]), shape=(37, 5))
    for name, network in loaded.networks.items():
        documents, words = loaded.objects[name]
        assert np.bincount(loaded.labels[name]).tolist() == [5, 5, 5]
        assert file["y"][documents].tolist() == np.array([1, 2, 4])[loaded.labels[name]].tolist()
        assert sorted(words) == list("pqrst")
        column = ["pqrst".index(word) for word in words]
        np.testing.assert_array_equal(network.toarray(), x.toarray()[documents][:, column] > 0)
    assert loaded.objects["a"][1].tolist() != loaded.objects["b"][1].tolist()
    again, other = (datasets.load_newsgroups_halves(folder, s, n_per_category=5) for s in (3, 4))
    np.testing.assert_array_equal(again.objects["b"][0], loaded.objects["b"][0])
    assert set(other.objects["b"][0]) != set(loaded.objects["b"][0])
    with pytest.raises(ValueError, match=r"documents than 2 networks .* found 6, .* in category 1"):
        datasets.load_newsgroups_halves(folder, n_per_category=6)


def test_movielens_networks(folder):
    loaded = datasets.load_movielens_networks(folder, 1, min_ratings=10)
    check(loaded)
    assert loaded.types == ("film", "user")
    assert loaded.label_names == ("Drama", "Comedy", "War")
    file = np.load(folder / "movielens_latest_small.npz")
    parts = [file[f"half_stars_{part}"] for part in ("data", "indices", "indptr")]
    stars = sparse.csr_array(tuple(parts), shape=(40, 30)).toarray()
    users = [set(loaded.objects[name][1]) for name in "ab"]
    assert users[0].isdisjoint(users[1])
    assert users[0] | users[1] == set(np.flatnonzero((stars > 0).sum(axis=0) >= 10))
    for name, network in loaded.networks.items():
        titles, columns = loaded.objects[name]
        rows = [int(title.split()[1]) for title in titles]
        np.testing.assert_array_equal(network.toarray(), stars[rows][:, columns] > 0)
        assert network.sum(axis=1).min() > 0
        # 30 dramas, 18 comedies, 10 war films: the rarest of a film's genres.
        expected = [2 if 25 <= i < 35 else 1 if i >= 20 else 0 for i in rows]
        assert loaded.labels[name].tolist() == expected
        assert max(rows) < 38  # the others have no genre
    with pytest.raises(ValueError, match="two users with 500 ratings; found 0"):
        datasets.load_movielens_networks(folder, min_ratings=500)


def test_help_networks(folder):
    languages = ("en", "ja", "de")
    loaded = datasets.load_help_networks(folder, languages, 1, n_per_category=7, n_words=12)
    rows = check(loaded)
    assert list(loaded.networks) == ["en", "ja", "de"]
    assert loaded.types == ("page", "word")
    assert rows[1] <= {f"page {i}" for i in range(0, 50, 2)}  # those that are translated
    file = np.load(folder / "libreoffice_help_multilingual.npz")
    for name, network in loaded.networks.items():
        parts = tuple(file[f"X_{name}_{part}"] for part in ("data", "indices", "indptr"))
        pages, words = loaded.objects[name]
        page = [int(title.split()[1]) for title in pages]
        present = sparse.csr_array(parts, shape=(50, 20)).toarray()[page] > 0
        column = [int(word.removeprefix(name)) for word in words]
        np.testing.assert_array_equal(network.toarray(), present[:, column])
        left_out = np.setdiff1d(np.arange(20), column)
        assert present[:, left_out].sum(axis=0).max() <= network.sum(axis=0).min()
        np.testing.assert_array_equal(file["y"][page], loaded.labels[name])
    with pytest.raises(ValueError, match=r"pages than 3 networks .* found 9, .* in category 0"):
        datasets.load_help_networks(folder, languages, n_per_category=9)
    with pytest.raises(ValueError, match=r"n_words: expected at most the .* words of the 10 pages"):
        datasets.load_help_networks(folder, n_per_category=5, n_words=21)
    with pytest.raises(ValueError, match=r"expected arrays \['words_it'.*found \['y'"):
        datasets.load_help_networks(folder, ("en", "it"))
    with pytest.raises(ValueError, match=r"languages: expected different ones.*\['en', 'en'\]"):
        datasets.load_help_networks(folder, ("en", "en"))


@pytest.mark.parametrize(
    "name", ["newsgroups_halves", "movielens_networks", "help_networks", "glass"]
)
def test_files_must_be_there(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=r"no file '.*\.npz' in the folder .*test_files"):
        getattr(datasets, f"load_{name}")(tmp_path)


@pytest.fixture
def real_folder():
    folder = os.environ.get("PM_MATCH_DATA")
    if not folder:
        pytest.skip("PM_MATCH_DATA, a folder with the real data sets, is not set")
    return folder


def test_real_glass(real_folder):
    domains = datasets.load_glass(real_folder)
    assert {table.shape for table in domains.values()} == {(214, 5), (214, 4)}
    assert set(datasets.true_labels(domains)["b"]) == {1, 2, 3, 5, 6, 7}
    as_domains(domains)


def test_real_newsgroups(real_folder):
    loaded = datasets.load_newsgroups_halves(real_folder, 0)
    check(loaded)
    assert {network.shape for network in loaded.networks.values()} == {(1000, 100)}
    assert np.bincount(loaded.labels["a"]).tolist() == [250] * 4
    # What documents are about shows in their words.
    network, words = loaded.networks["a"], loaded.objects["a"][1].tolist()
    windows = loaded.labels["a"][network[:, [words.index("windows")]].toarray()[:, 0] == 1]
    assert loaded.label_names[np.bincount(windows).argmax()].startswith("comp")


def test_real_movielens(real_folder):
    loaded = datasets.load_movielens_networks(real_folder, 0)
    for name, network in loaded.networks.items():
        assert network.shape[0] > 3000
        assert network.shape[1] in (192, 193)
        assert len(np.unique(loaded.labels[name])) == 18


@pytest.mark.parametrize("languages", [("en", "de"), ("en", "it"), ("en", "de", "it")])
def test_real_help(real_folder, languages):
    loaded = datasets.load_help_networks(real_folder, languages, 0)
    check(loaded)
    assert {network.shape for network in loaded.networks.values()} == {(150, 1000)}
    assert all(np.bincount(labels).tolist() == [30] * 5 for labels in loaded.labels.values())
    assert all(network.sum(axis=0).min() > 0 for network in loaded.networks.values())
