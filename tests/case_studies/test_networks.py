import os

import pytest

pytest.importorskip("matplotlib")
real_networks = pytest.importorskip("case_studies.real_networks")


@pytest.fixture
def real_folder():
    folder = os.environ.get("PM_MATCH_DATA")
    if not folder:
        pytest.skip("PM_MATCH_DATA, a folder with the real data sets, is not set")
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws fill the truncation")
def test_real_networks(real_folder, tmp_path, capsys):
    out = tmp_path / "out"
    sizes = ["--splits", "1", "--starts", "2", "--draws", "10", "--clusters", "20"]
    real_networks.main(
        [real_folder, "--data", "newsgroups", "english-german", "--out", str(out), *sizes]
    )
    printed = capsys.readouterr().out
    assert "Matched word clusters: newsgroups, degree model" in printed
    assert "rows: irrelevant" in printed
    names = {path.name for path in out.iterdir()}
    for data in ("newsgroups", "english-german"):
        assert f"confusion_{data}.png" in names
        for model in ("subset", "rematch", "degree"):
            assert {f"adjacency_{data}_{model}.png", f"words_{data}_{model}.csv"} <= names
    assert {"log_joint.png", "log_joint.csv", "table.csv"} <= names
