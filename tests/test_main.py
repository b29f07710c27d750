import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import __main__ as cli
from pm_match import datasets
from pm_match.matching import best_chain, match_probability


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path):
    """Two small tables that can be used, as files."""
    left = write(tmp_path / "left.csv", ",u,v\np,1,2\nq,3,5\nr,4,1\n")
    right = write(tmp_path / "right.csv", ",w,x,y\n1,1,2,0\n2,3,5,1\n")
    return left, right


def read(tmp_path, text, name="data.csv"):
    (domain,) = cli.read_domains([write(tmp_path / name, text)]).values()
    return domain


def test_first_column_without_header_is_labels_even_if_numbers(tmp_path):
    domain = read(tmp_path, ",u,v\n07,1,2\n8,3,5\n")
    assert domain.objects.tolist() == ["07", "8"]
    assert domain.features.tolist() == ["u", "v"]
    np.testing.assert_array_equal(domain.values, [[1, 2], [3, 5]])


def test_first_column_of_text_is_labels(tmp_path):
    domain = read(tmp_path, "name,u\nada,1\nbob,3\n")
    assert domain.objects.tolist() == ["ada", "bob"]
    assert domain.features.tolist() == ["u"]


def test_first_column_of_numbers_is_a_feature(tmp_path):
    domain = read(tmp_path, "u,v\n1,2\n3,5\n")
    assert domain.objects.tolist() == [1, 2]
    assert domain.features.tolist() == ["u", "v"]


def test_empty_cells_are_missing(tmp_path):
    domain = read(tmp_path, "u,v,w\n1,,3\n 2 ,NA,4\n5, 6,nan\n7,8\n9,0,1e3\n")
    expected = [[1, np.nan, 3], [2, np.nan, 4], [5, 6, np.nan], [7, 8, np.nan], [9, 0, 1000]]
    np.testing.assert_array_equal(np.ma.filled(domain.values, np.nan), expected)


def test_byte_order_mark_and_quotes_are_understood(tmp_path):
    file = tmp_path / "data.csv"
    file.write_bytes(b'\xef\xbb\xbf"u","v, w"\r\n1,2\r\n3,5\r\n')
    (domain,) = cli.read_domains([file]).values()
    assert domain.features.tolist() == ["u", "v, w"]


@pytest.mark.parametrize(
    ("stem", "name"), [("left", "left"), ("my-data 2", "my_data_2"), ("2024.v1", "_2024_v1")]
)
def test_domains_are_named_after_files(tmp_path, stem, name):
    assert read(tmp_path, "u,v\n1,2\n3,5\n", f"{stem}.csv").name == name


def test_links_are_positions_grouped_by_domains(tmp_path, files):
    domains = cli.read_domains(files)
    links = write(tmp_path / "links.csv", "right,left\n1,q\n2,p\n")
    assert cli.read_links(links, domains) == [{"right": [0, 1], "left": [1, 0]}]


def test_links_may_leave_domains_out(tmp_path, files):
    third = write(tmp_path / "third.csv", "z\n1\n2\n3\n")
    domains = cli.read_domains([*files, third])
    links = write(tmp_path / "links.csv", "left,right,third\nq,1,\np,,3\nr,2,\n")
    assert cli.read_links(links, domains) == [
        {"left": [1, 2], "right": [0, 1]},
        {"left": [0], "third": [2]},
    ]


BAD_FILES = {
    "text": (",u,v\np,1,2\nq,3,high\n", "column 'v' holds text, for example 'high' in row 'q'"),
    "labels and numbers": ("id,u\n1,1\nq,3\n", "column 'id' holds text, for example 'q' in row 2"),
    "duplicate rows": (",u\np,1\np,3\n", "row label 'p' appears more than once"),
    "duplicate columns": ("u,v,u\n1,2,3\n3,1,2\n", "column label 'u' appears more than once"),
    "no label": (",u\np,1\n,3\n", "row 2: the object has no label"),
    "no header": ("u,,w\n1,2,3\n3,1,2\n", "column number 2 has no header"),
    "constant": ("u,v\n1,2\n3,2\n", "column 'v' has one constant value (2)"),
    "infinite": ("u,v\n1,2\n3,inf\n", "1 infinite value, the first (inf) in row 2, column 'v'"),
    "only a header": ("u,v\n", "the table is empty: 0 objects"),
    "only labels": ("name\nada\nbob\n", "the table is empty: 2 objects (rows) by 0 features"),
    "one object": ("u,v\n1,2\n", "expected at least two objects (rows); found one"),
    "nothing": ("", "the file is empty"),
    "semicolons": ("u;v\n1;2\n3;5\n", "expected cells separated by commas; found 'u;v'"),
    "ragged": ("u,v\n1,2\n3,5,6\n", "rows differ in their number of cells"),
}


def refused(capsys, *argv):
    """Run the command line, which is to exit with status 2, and give its message."""
    with pytest.raises(SystemExit) as exit_:
        cli.main([str(argument) for argument in argv])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file(tmp_path, files, capsys, text, message):
    bad = write(tmp_path / "bad.csv", text)
    error = refused(capsys, files[0], bad)
    assert error.startswith(f"pm_match: error: {bad}: ")
    assert message in error


def test_missing_and_unreadable_files(tmp_path, files, capsys):
    assert "none.csv: No such file" in refused(capsys, files[0], tmp_path / "none.csv")
    assert "Is a directory" in refused(capsys, files[0], tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"u,v\n\xff\xfe,1\n")
    assert "not a text file in UTF-8" in refused(capsys, binary)


def test_names_that_clash(tmp_path, files, capsys):
    (tmp_path / "more").mkdir()
    again = write(tmp_path / "more" / "left.csv", files[0].read_text())
    assert "gives the domain name 'left'" in refused(capsys, files[0], again)
    other = write(tmp_path / "cluster_left.csv", files[0].read_text())
    assert "a second 'cluster_left'" in refused(capsys, files[0], other)
    reserved = write(tmp_path / "weights.csv", files[0].read_text())
    assert "the model uses the name 'weights' itself" in refused(capsys, reserved)


BAD_LINKS = {
    "domain": ("left,top\np,1\n", "unknown domain 'top'; there are ['left', 'right']"),
    "object": ("left,right\np,1\nz,2\n", "row 2: domain 'left' has no object 'z'"),
    "one": ("left,right\np,\n", "row 1: expected labels of at least two objects; found 1"),
    "twice": ("left,left\np,q\n", "domain 'left' has more than one column"),
    "nothing": ("", "the file is empty"),
}


@pytest.mark.parametrize(("text", "message"), BAD_LINKS.values(), ids=BAD_LINKS)
def test_bad_links(tmp_path, files, capsys, text, message):
    links = write(tmp_path / "links.csv", text)
    error = refused(capsys, *files, "--links", links)
    assert error.startswith(f"pm_match: error: {links}: ")
    assert message in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draws", "0"], "argument --draws: expected a whole number, at least 1; found '0'"),
        (["--clusters", "one"], "argument --clusters: expected a whole number, at least 2"),
        (["--projection", "flat"], "invalid choice: 'flat'"),
    ],
)
def test_bad_options(files, capsys, options, message):
    assert message in refused(capsys, *files, *options)


def test_without_the_extra(monkeypatch, files, capsys):
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None)
    error = refused(capsys, *files)
    assert (
        'matplotlib and h5netcdf with h5py not installed: pip install "pm_match[examples]"' in error
    )


def test_output_that_cannot_be_written(files, capsys):
    assert "pm_match: error: " in refused(capsys, *files, "--out", files[0] / "below")


def test_help_explains_files(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for word in ("LINKS.csv", "--seed", "match_A_B.csv", "draws.nc", "missing values"):
        assert word in text


def test_standardized_features_have_mean_0_and_variance_1(tmp_path):
    domain = read(tmp_path, "u,v\n1,200\n3,\n8,100\n5,400\n")
    values = cli._standardized(domain).values
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(values.std(axis=0), 1)
    assert values.mask[1, 1]


def test_attributes_that_netcdf_cannot_hold_are_changed(tmp_path):
    if cli._netcdf_engine() is None:
        pytest.skip("nothing to write netCDF with")
    labels = xr.Dataset({"cluster_a": (("chain", "draw", "a_object"), np.ones((1, 2, 3), int))})
    labels.attrs = {
        "none": None,
        "true": True,
        "nested": {"a": 1},
        "list": ["chain", "draw"],
        "empty": [],
    }
    tree = xr.DataTree.from_dict({"posterior": labels})
    cli.write_draws(tree, tmp_path / "draws.nc")
    with xr.open_datatree(tmp_path / "draws.nc") as again:
        attrs = again["posterior"].attrs
        assert (attrs["true"], attrs["nested"]) == (1, "{'a': 1}")
        assert list(attrs["list"]) == ["chain", "draw"]
        assert "none" not in attrs
        np.testing.assert_array_equal(again["posterior"]["cluster_a"], labels["cluster_a"])
    assert labels.attrs["true"] is True  # the user's own tree is left as it is


def test_end_to_end(tmp_path):
    if cli._netcdf_engine() is None:
        pytest.skip("nothing to write netCDF with")
    pytest.importorskip("matplotlib")
    domains = datasets.synthetic(24, 8, n_clusters=3, n_factors=2, missing=0.05, random_seed=2)
    files = []
    for name, table in domains.items():
        frame = pd.DataFrame(table.to_numpy(), index=[f"{name}{i}" for i in range(24)])
        frame.to_csv(tmp_path / f"{name}.csv", header=[f"f{i}" for i in range(8)])
        files.append(tmp_path / f"{name}.csv")
    links = write(tmp_path / "links.csv", "a,b\na3,b5\na4,b6\n")
    out = tmp_path / "result"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pm_match", *map(str, files), "--links", str(links)),
            *("--out", str(out), "--seed", "1", "--draws", "30", "--tune", "30", "--chains", "2"),
            *("--cores", "1", "--clusters", "8", "--factors", "2", "--standardize"),
            "--best-chain",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "R-hat of the log joint" in run.stdout
    assert {file.name for file in out.iterdir()} == {
        "match_a_b.csv",
        "clusters.csv",
        "cluster_sizes.csv",
        "draws.nc",
        "match_probability.png",
        "clusters.png",
        "trace.png",
    }
    match = pd.read_csv(out / "match_a_b.csv", index_col=0)
    assert match.shape == (24, 24)
    assert match.loc["a3", "b5"] == match.loc["a4", "b6"] == 1
    with xr.open_datatree(out / "draws.nc") as idata:
        assert idata["posterior"]["cluster_a"].shape == (2, 30, 24)
        expected = match_probability(best_chain(idata.load()), "cluster_a", "cluster_b")
    np.testing.assert_allclose(match, expected, atol=1e-5)
    clusters = pd.read_csv(out / "clusters.csv")
    assert clusters.groupby("domain").size().to_dict() == {"a": 24, "b": 24}
    sizes = pd.read_csv(out / "cluster_sizes.csv")
    assert sizes["total"].sum() == 48
