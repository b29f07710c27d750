import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pm_match as pmm

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
pytest.importorskip("ot")
search = pytest.importorskip("case_studies.search")
search_data = pytest.importorskip("case_studies.search_data")
truth_start = pytest.importorskip("case_studies.truth_start").truth_start


@pytest.mark.slow
def test_search_prints_and_writes(tmp_path, capsys):
    out = tmp_path / "out"
    options = ["--only", "iris", "glass", "--sets", "1", "--first", "5", "--starts", "1"]
    search.main([*options, "--out", str(out)])
    printed = capsys.readouterr().out
    assert "glass: skipped" in printed
    assert "iris, seed 5: index" in printed
    assert {path.name for path in out.iterdir()} == {"sets.csv", "table.csv", "index.png"}
    table = pd.read_csv(out / "table.csv", index_col="data")
    assert list(table.index) == ["iris"]
    # The petals' clusters are plain, and this split has a petal's measure in each domain.
    assert table.loc["iris", "index"] > 0.7
    assert table.loc["iris", list(search.PEERS)].between(-1, 1).all()


def test_missing_files_are_skipped(tmp_path, capsys):
    search.main([str(tmp_path), "--only", "glass", "--out", str(tmp_path / "out")])
    assert "glass: skipped" in capsys.readouterr().out


def test_summary():
    found = pd.DataFrame(
        [
            {"data": name, "seed": seed, "index": index, "over truth": over, "clusters": 3}
            | {"CPU s": 2.0, "k-means + GW": 0.5, "object GW": np.nan}
            for name, seed, index, over in [
                ("wine", 0, 0.2, -1.0),
                ("wine", 1, 0.4, 3.0),
                ("synth5", 0, 1.0, 0.0),
            ]
        ]
    )
    table = search.summary(found)
    assert list(table.index) == ["synth5", "wine"]
    wine = table.loc["wine"]
    assert wine["index"] == pytest.approx(0.3)
    assert wine["index s.e."] == pytest.approx(0.1)  # 0.2 / sqrt 2, over sqrt 2
    assert wine["lowest over truth"] == -1.0
    assert wine["sets"] == 2
    assert np.isnan(wine["object GW"])
    assert search.plot_index(table).axes


@pytest.mark.parametrize("name", [n for n, row in search_data.ROWS.items() if not row.needs_folder])
def test_truth_has_index_one(name):
    problem = search_data.ROWS[name].make(None, 1)
    assert problem.index(problem.truth) == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    broken = {n: rng.permutation(own) for n, own in problem.truth.items()}
    assert problem.index(broken) < 0.2


@pytest.mark.slow
def test_truth_start_stays_where_clusters_are_plain():
    domains = pmm.datasets.synthetic(
        n_objects=60, n_features=6, n_factors=2, n_clusters=3, noise_precision=100.0, random_seed=2
    )
    for model in (
        pmm.models.projected_clusters(domains, n_factors=2),
        pmm.models.table_clusters(domains, 4),
    ):
        problem = search_data.of_domains(domains, lambda _, model=model: model, domains)
        labels, log_joint = truth_start(model, problem.truth, 0)
        assert problem.index(labels) > 0.95
        again, same = truth_start(model, problem.truth, 0)
        assert same == log_joint
        assert all(np.array_equal(labels[n], again[n]) for n in labels)


def test_truth_start_wants_one_component():
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        for name in ("a", "b"):
            weights = pm.Dirichlet(f"weights_{name}", np.ones(2))
            precision = pm.Gamma(f"precision_{name}", 1.0, 1.0)
            latent = pm.Normal(f"latent_{name}", 0.0, tau=precision, shape=(2, 1))
            cluster = pm.Categorical(f"cluster_{name}", p=weights, shape=10)
            w = pm.Flat(f"projection_{name}", shape=(3, 1))
            pm.Normal(name, latent[cluster] @ w.T, tau=precision, observed=rng.normal(size=(10, 3)))
    with pytest.raises(ValueError, match="expected one component, found 2"):
        truth_start(model, {}, 0)
