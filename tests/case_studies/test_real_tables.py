import numpy as np
import pandas as pd
import pytest

from pm_match import datasets

pytest.importorskip("sklearn")
pytest.importorskip("ot")
real_tables = pytest.importorskip("case_studies.real_tables")
data = pytest.importorskip("case_studies.real_tables_data")


def sure(labels):
    return lambda a, b: (labels[a][:, None] == labels[b]).astype(float)


TRUE = {"a": np.array([0, 0, 1, 1, 1]), "b": np.array([1, 0, 0, 1])}


def test_what_is_right_scores_best():
    found = real_tables.measured(TRUE, TRUE, sure(TRUE))
    assert found["index"] == found["transfer"] == 1.0
    assert found["clusters"] == 2
    share = 10 / 20  # pairs of different domains that are of one class
    assert found["Brier"] == pytest.approx(-share * (1 - share))
    assert found["log score"] == pytest.approx(np.log(0.5) - np.log(1 - real_tables.LEAST))


def test_the_base_rate_scores_nothing():
    found = real_tables.scores(TRUE, lambda a, b: np.full((len(TRUE[a]), len(TRUE[b])), 0.5))
    assert found["Brier"] == pytest.approx(0.0)
    assert found["log score"] == pytest.approx(0.0)


def test_wrong_and_missing_partners_are_wrong():
    swapped = {"a": TRUE["a"], "b": 1 - TRUE["b"]}
    assert real_tables.transfer(TRUE, sure(swapped)) == 0.0
    alone = {"a": TRUE["a"], "b": TRUE["b"] + 7}
    assert real_tables.transfer(TRUE, sure(alone)) == 0.0


@pytest.mark.parametrize("name", [n for n, own in data.DATA.items() if not own.needs_folder])
def test_domains_have_classes_and_other_splits(name):
    one, again, other = (data.DATA[name].load(None, seed) for seed in (1, 1, 2))
    true = datasets.true_labels(one)
    assert len(true) >= 2
    assert [len(own) for own in one.values()] == [len(own) for own in true.values()]
    assert all(np.array_equal(one[k], again[k]) for k in one)
    assert any(one[k].shape != other[k].shape or not np.array_equal(one[k], other[k]) for k in one)


def test_halves_of_images_and_patients_are_disjoint():
    for name in ("breast-cancer", "image-halves"):
        first, second = data.DATA[name].load(None, 0).values()
        seen = [set(own[own.dims[0]].to_numpy()) for own in (first, second)]
        assert not seen[0] & seen[1]
    assert len(np.unique(datasets.true_labels(data.cluster_missing(3))["b"])) == 4


def test_tables_of_files_are_dealt_by_rows_and_columns(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(30, 5)), columns=list("uvwxy")).assign(same=1, text="t")
    table = table.assign(kind=np.array(["p", "q", "r"])[np.arange(30) % 3])
    table.loc[4, "w"] = np.nan
    table.to_csv(tmp_path / "own.csv", index=False)
    found = data.csv_table(tmp_path / "own.csv", 1, n_objects=20)
    assert [table.shape for table in found.values()] == [(10, 3), (10, 2)]
    rows, columns = (
        [set(own[own.dims[axis]].to_numpy()) for own in found.values()] for axis in (0, 1)
    )
    assert not rows[0] & rows[1]
    assert columns[0] | columns[1] == set("uvwxy")
    kinds = pd.Series(table["kind"].to_numpy(), table["u"])
    for name, own in found.items():
        if "u" in own[own.dims[1]]:
            true = kinds[own.sel({own.dims[1]: "u"}).to_numpy()]
            assert len({*zip(true, datasets.true_labels(found)[name], strict=True)}) == 3


def test_files_have_names_of_their_own_and_are_all_that_is_matched(tmp_path, capsys):
    one, other = (str(tmp_path / own / "glass.csv") for own in "ab")
    for options, said in (
        (["--csv", one, other], f"expected files of different names; found {one} and {other}"),
        (["--csv", one, "--only", "iris"], "--only: expected no --csv beside it; found both"),
    ):
        with pytest.raises(SystemExit):
            real_tables.main([*options, "--out", str(tmp_path / "out")])
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_features_of_digits_are_of_other_digits(tmp_path):
    rng = np.random.default_rng(0)
    y, fou, kar = np.repeat(np.arange(6), 3), rng.normal(size=(18, 4)), rng.normal(size=(18, 3))
    fou[:, 2] = 1.0
    np.savez(tmp_path / "mfeat.npz", y=y, fou=fou, kar=kar)
    found = data.digit_features(tmp_path, 1, ("fou", "kar"), n_objects=5)
    assert {name: table.shape for name, table in found.items()} == {"fou": (5, 3), "kar": (5, 3)}
    rows = {name: table[f"{name}_object"].to_numpy() for name, table in found.items()}
    assert not {*rows["fou"]} & {*rows["kar"]}
    for name, labels in datasets.true_labels(found).items():
        np.testing.assert_array_equal(labels, y[rows[name]])
        assert set(labels) <= {0, 1, 2, 3}
    np.testing.assert_array_equal(found["kar"], kar[rows["kar"]])


def test_reliability_counts_pairs_by_tenths():
    given = np.where(TRUE["a"][:, None] == TRUE["b"], 0.95, 0.12)
    found = real_tables.reliability(TRUE, lambda a, b: given)
    assert found["tenth"].tolist() == [1, 9]
    assert found["pairs"].sum() == given.size
    assert found["match"].tolist() == [0, found["pairs"][1]]
    np.testing.assert_allclose(found["probability"] / found["pairs"], [0.12, 0.95])


def test_peers_are_printed_and_written(tmp_path, capsys):
    options = ["--only", "iris", "--splits", "1", "--methods", "k-means + GW"]
    real_tables.main([*options, "--out", str(tmp_path)])
    assert "Means over splits" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "table.csv", index_col=["data", "method"])
    assert list(table.index) == [("iris", "k-means + GW, J"), ("iris", "k-means + GW, J by BIC")]
    assert table["index"].between(-1, 1).all()
    assert (tmp_path / "reliability.png").stat().st_size > 0
    bins = pd.read_csv(tmp_path / "reliability.csv").groupby("method")["pairs"].sum()
    # 150 flowers in each domain.
    assert (bins == 150 * 150).all()
