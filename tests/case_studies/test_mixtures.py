import argparse
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

pytest.importorskip("matplotlib")
from case_studies import mixtures
from case_studies.k_modes import KModes
from pm_match import datasets


def arrays_of(name, matrix):
    matrix = sparse.csr_array(matrix)
    parts = ("data", "indices", "indptr")
    return {f"{name}_{part}": getattr(matrix, part) for part in parts} | {
        f"{name}_shape": np.array(matrix.shape)
    }


@pytest.fixture
def folder(tmp_path):
    """Files like the real ones: few objects of classes that are plain to see."""
    rng = np.random.default_rng(0)
    y = np.repeat([1, 2], 40)
    often = np.where(np.arange(12) // 6 == y[:, None] - 1, 0.7, 0.05)
    np.savez(
        tmp_path / "20news_w100.npz",
        words=np.array([f"word {i}" for i in range(12)]),
        y=y,
        label_names=np.array(["one", "two"]),
        **arrays_of("X", rng.random(often.shape) < often),
    )
    kind = rng.integers(2, size=120)
    often = np.where(np.arange(6) // 3 == kind[:, None], 0.95, 0.03)
    names = np.array(["A", "B", "C", "D", "E", "F", "IMAX"])
    films = np.column_stack([rng.random(often.shape) < often, np.ones(120)])
    np.savez(
        tmp_path / "movielens_latest_small.npz",
        genres=films.astype(np.uint8),
        genre_names=names,
        titles=np.array([f"film {i}" for i in range(120)]),
    )
    y = rng.integers(1, 3, 60)
    x = y[:, None] * 3.0 + 0.1 * rng.normal(size=(60, 9))
    columns = ["RI", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe"]
    x[:, 7:] = rng.random((60, 2)) < 0.5
    np.savez(tmp_path / "glass.npz", X=x, y=y, columns=np.array(columns))
    return tmp_path


def run(folder, *more):
    out = folder / "out"
    sizes = ["--documents", "15", "--films", "100", "--draws", "20", "--chains", "2"]
    mixtures.main([str(folder), "--out", str(out), "--splits", "2", *sizes, *more])
    return out


def read(out, study):
    return pd.read_csv(out / f"{study}.csv", index_col="model").map(
        lambda cell: float(str(cell).split(" ")[0])
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:only one of")
def test_classes_that_are_plain_are_found(folder, capsys):
    out = run(folder)
    words, classes, shared = (read(out, name) for name in mixtures.STUDIES)
    assert words.loc["bags, words known", "MARI"] > 0.8
    assert words.loc["bags, words known", "words alike"] == 1.0
    linked = words.loc[f"bags, words unknown, {mixtures.N_LINKS} links"]
    assert linked["MARI"] > 0.8
    score = classes["log score"]
    assert score["latent classes"] > score["shares of genres"] + 0.1
    assert score["latent classes"] > score["k-modes"] - 0.05
    assert shared.loc["all columns", "MARI"] > 0.8
    assert shared.loc["all columns", "pairs"] > 0.8
    assert "figure" in capsys.readouterr().out
    assert {path.suffix for path in out.iterdir()} == {".csv", ".png"}


def test_what_is_missing_is_skipped(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PM_MATCH_DATA", raising=False)
    mixtures.main(["--out", str(tmp_path / "a")])
    assert capsys.readouterr().out.count("skipped: no folder is given") == 3
    mixtures.main([str(tmp_path), "--out", str(tmp_path / "b"), "--only", "shared"])
    assert "shared: skipped: no file 'glass.npz'" in capsys.readouterr().out


def test_links_are_of_one_class_and_no_document_has_two(folder):
    loaded = datasets.load_newsgroups_halves(folder, 1, n_per_category=15)
    links = mixtures.some_links(loaded, 10, np.random.default_rng(0))
    a, b = (loaded.labels[name][links[name]] for name in "ab")
    np.testing.assert_array_equal(a, b)
    assert np.bincount(a).tolist() == [5, 5]
    assert all(len(set(own)) == 10 for own in links.values())


def test_bags_have_the_same_words_in_the_same_columns(folder):
    loaded = datasets.load_newsgroups_halves(folder, 1, n_per_category=15)
    bags = [mixtures.bag_of(loaded, name) for name in "ab"]
    assert list(bags[0].columns) == list(bags[1].columns) == sorted(bags[0].columns)
    for bag, (name, network) in zip(bags, loaded.networks.items(), strict=True):
        rows, words = loaded.objects[name]
        expected = pd.DataFrame(network.toarray(), index=rows, columns=words)
        pd.testing.assert_frame_equal(bag, expected[bag.columns])


def test_the_log_score_is_of_the_hidden_cells_alone():
    truth = np.array([[True, False], [True, True]])
    probability = np.array([[0.8, 0.4], [0.5, 0.1]])
    where = np.array([[True, True], [False, False]])
    expected = (np.log(0.8) + np.log(0.6)) / 2
    assert mixtures.log_score(probability, truth, where) == pytest.approx(expected)


def test_hidden_cells_are_missing_and_others_are_what_they_were():
    table = pd.DataFrame(np.random.default_rng(0).random((50, 4)) < 0.5, columns=list("abcd"))
    seen, hidden = mixtures.hide(table, 0.3, np.random.default_rng(1))
    np.testing.assert_array_equal(seen.isna(), hidden)
    assert 0.2 < hidden.mean() < 0.4
    known = ~hidden
    np.testing.assert_array_equal(
        seen.to_numpy(bool, na_value=False)[known], table.to_numpy()[known]
    )


def test_probabilities_of_cells_are_averages_over_draws(folder):
    table = mixtures.genres(folder, 40, np.random.default_rng(0))
    assert "IMAX" not in table
    options = argparse.Namespace(draws=6, chains=2)
    found = mixtures.fit(mixtures.pmm.models.mixture(table, n_clusters=4), options, 0)
    draws = found.best["posterior"].to_dataset()
    expected = np.zeros(table.shape)
    for draw, (i, row) in itertools.product(range(6), enumerate(expected)):
        own = draws.isel(chain=0, draw=draw)
        row += own["probability"].to_numpy()[int(own["cluster_table"][i])] / 6
    np.testing.assert_allclose(mixtures.class_probabilities(found), expected)


def test_k_modes_finds_modes_without_looking_at_hidden_cells():
    rng = np.random.default_rng(0)
    modes = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]], bool)
    label = rng.integers(2, size=200)
    x = modes[label] ^ (rng.random((200, 8)) < 0.05)
    known = rng.random(x.shape) > 0.2
    found = KModes.chosen(x, known, (1, 2), np.random.default_rng(1))
    assert sorted(found.modes.tolist()) == sorted(modes.tolist())
    again = KModes.chosen(x ^ ~known, known, (1, 2), np.random.default_rng(1))
    np.testing.assert_array_equal(again.share, found.share)
    p = found.probability(x, known)
    np.testing.assert_allclose(p[modes[label]].mean(), 0.95, atol=0.03)
