import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
from case_studies import dependency
from pm_match import datasets
from pm_match.views import em


@pytest.fixture
def views():
    return dependency._arrays(datasets.correlated_views(200, random_seed=3))


def test_canonical_variates_are_those_of_scikit_learn(views):
    from sklearn.cross_decomposition import CCA

    to_x, to_y, correlations = dependency.canonical_variates(*views)
    x, y = ((view - view.mean(axis=0)) @ to for view, to in zip(views, (to_x, to_y), strict=True))
    np.testing.assert_allclose(x.T @ x / len(x), np.eye(6), atol=1e-10)
    np.testing.assert_allclose(x.T @ y / len(x), np.diag(correlations), atol=1e-10)
    theirs = CCA(3, max_iter=10_000, tol=1e-12).fit_transform(*views)
    apart = [np.corrcoef(a, b)[0, 1] for a, b in zip(theirs[0].T, theirs[1].T, strict=True)]
    np.testing.assert_allclose(correlations[:3], apart, atol=1e-6)


def test_constant_feature_has_no_variate(views):
    x = np.column_stack([views[0], np.ones(len(views[0]))])
    to_x, _, correlations = dependency.canonical_variates(x, views[1])
    assert to_x.shape == (7, 6)
    np.testing.assert_allclose(correlations, dependency.canonical_variates(*views)[2])


def test_shared_correlation_of_less_capacity_is_less(views):
    few, all_ = (
        em.fit_shared_factors(views, 3, [n, n], starts=2, random_seed=0).parameters for n in (1, 6)
    )
    classical = np.sum(dependency.canonical_variates(*views)[2][:3] ** 2)
    assert dependency.shared_correlation(views, all_) == pytest.approx(classical, abs=1e-3)
    assert dependency.shared_correlation(views, few) < 0.8 * classical


def test_purity():
    classes = np.array([0, 0, 1, 1, 1, 0])
    assert dependency.purity(np.array([2, 2, 0, 0, 0, 0]), classes) == pytest.approx(5 / 6)
    assert dependency.purity(np.zeros(6, dtype=int), classes) == 0.5


def test_spread_is_one_where_every_object_is_a_cluster(views):
    assert dependency.spread(np.eye(200), views) == pytest.approx(1.0)
    assert dependency.spread(np.full((200, 2), 0.5), views) == pytest.approx(0.0, abs=1e-12)
    # Two halves along one of the six variates: a normal's halves are at ±sqrt(2/π).
    to_x, _, _ = dependency.canonical_variates(*views)
    variate = (views[0] - views[0].mean(axis=0)) @ to_x[:, 0]
    halves = np.eye(2)[(variate > 0).astype(int)]
    own = np.mean([variate[variate > 0].mean() ** 2, variate[variate <= 0].mean() ** 2])
    assert dependency.spread(halves, views) > own / 6 * 0.95


def test_compare():
    found = pd.DataFrame(
        [
            {"seed": seed, "method": method, "purity": value + 0.001 * seed**2 * (method != "a")}
            for seed in range(6)
            for method, value in {"a": 0.2, dependency.CLUSTERS: 0.3, "c": 0.25}.items()
        ]
    )
    found.loc[found.query("seed == 2 and method == 'c'").index, "purity"] = 0.9
    table = dependency.compare(found, "purity")
    assert list(table.index) == ["a", dependency.CLUSTERS, "c"]
    assert list(table[f"{dependency.CLUSTERS} below"]) == [0, 0, 1]
    assert table.loc["a", "p"] == pytest.approx(2 / 2**6)
    assert np.isnan(table.loc[dependency.CLUSTERS, "p"])
    assert table.loc["a", "mean"] == pytest.approx(0.2)


def test_a_free_number_of_clusters(tmp_path, monkeypatch):
    monkeypatch.setattr(dependency, "_FLAT", (dependency.CLUSTERS,))
    monkeypatch.setattr(dependency, "DRAWS", 30)
    monkeypatch.setattr(dependency, "TUNE", 30)
    dependency.main(["--only", "correlated-free", "--sets", "1", "--out", str(tmp_path)])
    (row,) = pd.read_csv(tmp_path / "correlated-free_sets.csv").to_dict("records")
    # There are no true clusters, but what depends takes several.
    assert 3 <= row["clusters"] <= dependency.MOST
    assert row["spread"] > 0.3
    table = pd.read_csv(tmp_path / "correlated-free.csv", index_col=["score", "method"])
    assert set(table.index.get_level_values("score")) == {"spread", "clusters"}


def test_what_a_free_number_of_clusters_is_measured_by(monkeypatch):
    """Every model is asked, and purity does not hide that one cluster is found for each object."""
    classes = np.repeat([0, 1], 3)
    found = dict(
        zip(dependency.MODELS, ([0] * 6, [0] * 3 + [1] * 3, range(6), classes), strict=True)
    )
    monkeypatch.setattr(
        dependency, "free_clusters", lambda views, name, seed: np.array(found[name])
    )
    rows = dependency._free_rows([], classes, dependency.MODELS, 0)
    assert [row["method"] for row in rows] == list(dependency.METHODS)
    assert [row["clusters"] for row in rows] == [1, 2, 6, 2]
    assert [row["purity"] for row in rows] == [0.5, 1.0, 1.0, 1.0]
    assert [row["adjusted Rand"] for row in rows] == [0.0, 1.0, 0.0, 1.0]


def test_main_prints_writes_and_skips(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(dependency, "STARTS", 2)
    only = ["correlated", "yeast", "digits"]
    dependency.main(["--only", *only, "--sets", "1", "--first", "4", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "yeast: skipped" in printed
    assert "digits: skipped" in printed
    table = pd.read_csv(tmp_path / "correlated.csv", index_col=["score", "method"])
    spread = table["mean"]["spread"]
    assert spread[dependency.CLUSTERS] > 2 * spread[dependency.MIXTURE]
    assert {path.name for path in tmp_path.iterdir()} == {"correlated.csv", "correlated_sets.csv"}


@pytest.mark.slow
def test_other_studies(tmp_path, capsys):
    folder = [os.environ["PM_MATCH_DATA"]] if os.environ.get("PM_MATCH_DATA") else []
    only = ["cca", "rank", "toys", "correlated-free"]
    only += ["yeast", "digits", "digits-free"] if folder else []
    dependency.main([*folder, "--only", *only, "--sets", "1", "--out", str(tmp_path)])
    assert pd.read_csv(tmp_path / "cca_sets.csv")["apart"].max() < 1e-3
    rank = pd.read_csv(tmp_path / "rank.csv", index_col="shared")
    assert (rank["0"] < 0.5 * rank["6"]).all()
    assert {path.name for path in Path(tmp_path).glob("*.png")} == {"rank.png", "toys.png"}
    free = pd.read_csv(tmp_path / "correlated-free.csv", index_col=["score", "method"])["mean"]
    # What is normal in all is one cluster, of which the views share nothing.
    assert free["clusters", dependency.MIXTURE] == 1
    assert free["spread", dependency.CLUSTERS] > 0.3
    if folder:
        purity = pd.read_csv(tmp_path / "digits.csv", index_col=["score", "method"])["mean"]
        assert purity["purity", dependency.HIERARCHY] > purity["purity", dependency.CLUSTERS]
