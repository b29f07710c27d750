import gzip
import importlib
import os
import re
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import xarray as xr
from scipy import sparse

import pm_match as pmm
from pm_match import __main__ as cli
from pm_match import datasets
from pm_match.cli.arguments import arguments_of, as_options, make_parser
from pm_match.front.cells import InputError
from pm_match.front.files import read_table_file
from pm_match.front.new_objects import as_the_model_takes_them
from pm_match.front.prepare import prepare
from pm_match.front.write import write_draws, write_matches
from pm_match.matching import best_chain, match_probability
from tests.declared.draws import chains, tree


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_what_can_be_done_is_said_by_options():
    draws = {
        "modes": chains([0, 1], [0, -12]),
        "not mixed": chains([0, 0, 0], [0, 0, 9]),
        "alone": chains([0], [0], draws=50),
    }
    full = draws["not mixed"]["sample_stats"]["log_joint"] * 0 + 1
    draws["not mixed"]["sample_stats"]["filled"] = full
    said = {name: as_options(pmm.diagnose(own).words) for name, own in draws.items()}
    assert (
        "look for the best mode with more searches (--chains), tune for longer (--tune), or report "
        "the best chain alone (--best-chain)." in said["modes"]
    )
    assert "Sample longer, with more tune (--draws, --tune)." in said["not mixed"]
    assert "times as many draws (--draws)." in said["not mixed"]
    assert "allow more (--clusters); if they fill" in said["not mixed"]
    assert "Compare four (--chains)." in said["alone"]
    assert "take 100 or more (--draws)." in said["alone"]
    names = [name for own in said.values() for name in re.findall(r"\w+_\w+", own)]
    assert set(names) <= {"log_joint"}
    apart = "Draws often keep apart what is in one cluster here"
    assert as_options(f"{apart}: partition_estimate(loss='ari') divides more.") == f"{apart}."


@pytest.fixture
def files(tmp_path):
    """Two small tables that can be used, as files."""
    left = write(tmp_path / "left.csv", ",u,v\np,1.5,2\nq,3,5.5\nr,4,1\n")
    right = write(tmp_path / "right.csv", ",w,x,y\n1,1.5,2,0.5\n2,3,5.5,1\n")
    return left, right


def prepared(*argv):
    """What arguments make of their files."""
    options = make_parser().parse_args([str(argument) for argument in argv])
    return prepare(options.files, **arguments_of(options))


def read(tmp_path, text, name="data.csv", *argv):
    (frame,) = prepared(write(tmp_path / name, text), *argv).data.values()
    return frame


def test_first_column_without_header_is_labels_even_if_numbers(tmp_path):
    frame = read(tmp_path, ",u,v\n07,1.5,2\n8,3,5.5\n")
    assert frame.index.tolist() == ["07", "8"]
    assert frame.columns.tolist() == ["u", "v"]
    np.testing.assert_array_equal(frame, [[1.5, 2], [3, 5.5]])


def test_first_column_of_text_is_labels(tmp_path):
    frame = read(tmp_path, "name,u\nada,1.5\nbob,3\n")
    assert frame.index.tolist() == ["ada", "bob"]
    assert frame.columns.tolist() == ["u"]


def test_first_column_of_numbers_or_of_text_that_repeats_is_a_feature(tmp_path):
    frame = read(tmp_path, "u,v\n1.5,2.5\n3,5\n")
    assert frame.index.tolist() == [1, 2]
    assert frame.columns.tolist() == ["u", "v"]
    frame = read(tmp_path, "colour,v\nred,2.5\nblue,5\nred,7\n")
    assert frame.index.tolist() == [1, 2, 3]
    assert frame["colour"].tolist() == ["red", "blue", "red"]


def test_a_column_names_the_objects_if_it_is_said_to(tmp_path):
    text = "u,code,v\n1.5,7,2\n3,9,5.5\n"
    frame = read(tmp_path, text, "data.csv", "--id", "code")
    assert frame.index.tolist() == [7, 9]
    assert frame.columns.tolist() == ["u", "v"]
    with pytest.raises(ValueError, match=r"data.csv: .*no column 'Code'; .* did you mean 'code'"):
        read(tmp_path, text, "data.csv", "--id", "Code")


def test_numbers_that_name_objects_keep_their_digits(tmp_path):
    codes = ["003", "12345603", "100000000000189557"]
    table = pd.DataFrame({"code": codes, "u": [1.5, 3.0, 2.0], "v": [2.0, 5.5, 1.0]})
    a, b = tmp_path / "a.csv", tmp_path / "b.csv"
    table.to_csv(a, index=False)
    table[["code", "u"]].to_csv(b, index=False)
    links = write(tmp_path / "links.csv", "a,b\n003,12345603\n")
    found = prepared(a, b, "--id", "code", "--links", links)
    assert found.data["a"].index.tolist() == codes
    assert found.declare().potentials
    given = pd.Series([1, 1, 2], index=[100000000000189557, 12345603, 3])
    clusters = {"b": given.iloc[:2]}
    codes_of_b = prepare([a, b], id="code", clusters=clusters).clusters["b"][0]
    assert codes_of_b.tolist() == [-1, 0, 0]
    new = as_the_model_takes_them(found, "b", b)[1]["b_number"]
    assert new.index.tolist() == codes


def test_what_is_used_is_said(tmp_path):
    text = "code,kind,u,note\n7,a,1.5,x\n9,b,2.5,y\n11,a,3.5,z\n13,b,2,x\n"
    file = write(tmp_path / "data.csv", text)
    with pytest.warns(UserWarning, match="distinct whole numbers"):
        found = prepared(file, "--ignore", "note")
    assert found.model == "mixture"
    assert found.words()[0].startswith(
        "data: 4 objects (1, 2, 3, …); used are code (count: distinct"
    )
    assert "kind (category), u (number)." in found.words()[0]
    assert found.words()[1] == "data: left out are note (as you said)."


def test_what_columns_hold_can_be_said(tmp_path, capsys):
    file = write(tmp_path / "data.csv", "code,a=b,u\n1,1,1.5\n1,2,2.5\n2,2,3.5\n2,3,x\n")
    found = prepared(file, "--columns", "code=category, a=b=positive,u=count", "--ignore", "u")
    assert found.uses() == {"code": "category", "a=b": "positive"}
    for bad in ("code", "code=kind", "=count"):
        error = refused(capsys, file, "--columns", f"u=count,{bad}")
        assert "such as COLUMN=number, with commas between them, of number, pos" in error
        assert f"found {bad!r}" in error


def test_a_model_can_be_chosen(files):
    assert prepared(*files).model == "table_clusters"
    found = prepared(*files, "--factors", "1", "--projection", "normal", "--clusters", "4")
    assert found.model == "projected_clusters"
    assert found.options == {"n_factors": 1, "projection": "normal", "n_clusters": 4}
    assert prepared(*files, "--model", "projected_clusters").model == "projected_clusters"
    with pytest.raises(
        ValueError, match=r"expected --model projected_clusters with .*; found mixture"
    ):
        prepared(*files, "--model", "mixture", "--standardize")


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"pm_match {pmm.__version__}\n"


def test_densities_can_count_to_a_power(files, capsys):
    assert prepared(*files, "--power", "0.5").options == {"power": 0.5}
    model = refused(capsys, *files, "--power", "0.5", "--model", "normal_clusters")
    assert "error: normal_clusters: no --power\n" in model
    assert "--power: expected a number in (0, 1]; found 2.0" in refused(
        capsys, *files, "--power", "2"
    )


def test_numbers_can_be_correlated(files, capsys):
    apart = prepared(*files, "--model", "mixture", "--no-correlated")
    assert apart.options == {"correlated": False}
    assert prepared(*files, "--model", "mixture", "--correlated").options == {"correlated": True}
    for own in ("--correlated", "--no-correlated"):
        said = refused(capsys, *files, "--model", "normal_clusters", own)
        assert "error: normal_clusters: no --correlated or --no-correlated\n" in said
    both = refused(capsys, *files, "--model", "mixture", "--correlated", "--power", ".5")
    assert "error: --power: expected 1 for correlated columns; found 0.5\n" in both
    ignored = ["--ignore", "v,w,x", "--correlated", "--model", "mixture"]
    none = refused(capsys, *files, *ignored)
    assert "error: --correlated: expected columns of numbers" in none
    assert "where --columns does not say" in none


def test_constant_columns_are_left_out_and_named(tmp_path):
    file = write(tmp_path / "data.csv", "u,v\n1.5,2\n3,2\n")
    with pytest.warns(UserWarning, match=r"'v' \(left out: one value only \(2\)\)"):
        found = prepared(file)
    assert found.data["data"].columns.tolist() == ["u"]
    assert "data: left out are v (one value only (2))." in found.words()


def test_empty_cells_are_missing(tmp_path):
    frame = read(tmp_path, "u,v,w\n1.5,,3\n 2 ,NA,4\n5, 6,nan\n7,8\n9,0,1e3\n")
    expected = [[1.5, np.nan, 3], [2, np.nan, 4], [5, 6, np.nan], [7, 8, np.nan], [9, 0, 1000]]
    np.testing.assert_array_equal(frame, expected)


def test_byte_order_mark_and_quotes_are_understood(tmp_path):
    file = tmp_path / "data.csv"
    file.write_bytes(b'\xef\xbb\xbf"u","v, w"\r\n1.5,2\r\n3,5.5\r\n')
    (frame,) = prepared(file).data.values()
    assert frame.columns.tolist() == ["u", "v, w"]


@pytest.mark.parametrize(
    ("stem", "name"), [("left", "left"), ("my-data 2", "my_data_2"), ("2024.v1", "_2024_v1")]
)
def test_domains_are_named_after_files(tmp_path, stem, name):
    found = prepared(write(tmp_path / f"{stem}.csv", "u,v\n1.5,2\n3,5.5\n"))
    assert found.titles == {name: stem}


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".ZIP"])
def test_compressed_files_are_named_as_what_is_in_them(tmp_path, ending):
    file = tmp_path / f"left.csv{ending}"
    pd.DataFrame({"u": [1.5, 3.0], "v": [2.0, 5.5]}).to_csv(file, index=False)
    assert prepared(file).titles == {"left": "left"}


def test_links_are_grouped_by_the_domains_that_they_link(tmp_path, files):
    third = write(tmp_path / "third.csv", "z\n1.5\n2\n3\n")
    links = write(tmp_path / "links.csv", "left,right,third\nq,1,\np,,3\nr,2,\n")
    found = prepared(*files, third, "--links", links)
    assert found.links == [
        {"left": ["q", "r"], "right": ["1", "2"]},
        {"left": ["p"], "third": ["3"]},
    ]
    assert [own.name for own in found.declare().potentials] == ["links", "links_1"]


BAD_FILES = {
    "decimal commas": (
        "id;u\np;1,5\nq;2,5\n",
        "found numbers as text, for example '1,5'. Write them as 1234.5 is",
    ),
    "an open quote": ('"u,v\np,1\n', "found another row (EOF inside string starting at row 0)"),
    "a remark": ("# of May\nu,v\n1,2\n", "found only '# of May' there, and another row (Expec"),
    "a remark with other marks": (
        "# May; June\nu,v\n1,2\n",
        "found only '# May; June' there, and a",
    ),
    "text": (
        ",u,v\np,1,2\nq,3,high\n",
        "found numbers and text, for example 'high' in row 'q'",
    ),
    "labels and numbers": (
        "id,u\n1,1\nq,3\n",
        "found numbers and text, for example 'q' in row 2",
    ),
    "duplicate rows": (",u\np,1\np,3\n", "unique row labels; found 'p' more than once"),
    "duplicate columns": (
        "u,v,u\n1,2,3\n3,1,2\n",
        "unique column labels; found 'u' more than once",
    ),
    "no label": (",u\np,1\n,3\n", "row 2: expected the object's label; found an"),
    "no header line": (
        "p,0.5,1\nq,2,3\nr,1,7\n",
        "expected names of columns in the first line; found numbers (0.5, 1)",
    ),
    "no header line, categories": (
        "p,0.5,red\nq,2,blue\nr,1,red\n",
        "expected names of columns in the first line; found 'red', which column number 3 holds",
    ),
    "no header": ("u,,w\n1,2,3\n3,1,2\n", "column number 2: expected its name"),
    "constant": ("u,v\n1,7\n1,7\n", "can be used; found none ('u': one value only (1); 'v': on"),
    "dates": (
        "u,v\n1,2024-01-01\n3,2024-02-01\n",
        "found dates as text ('2024-01-01'). Make a number of it (days since one day for all "
        "tables) or a category",
    ),
    "infinite": ("u,v\n1,2\n3,inf\n", "1 infinite value, the first (inf) in row 2, column 'v'"),
    "only a header": ("u,v\n", "found 0 objects"),
    "only labels": ("name\nada\nbob\n", "found 2 objects (rows) by 0 features"),
    "one object": ("u,v\n1,2\n", "expected at least two objects (rows); found one"),
    "nothing": ("", "expected a header line; found an empty file"),
    "ragged": ("u,v\n1,2\n3,5,6\n", "expected as many cells in every row"),
}


def test_warnings_are_said_as_errors_are(tmp_path):
    one = write(tmp_path / "one.csv", "u,v,w\nx,1,2\ny,1,3\nz,1,5\n")
    two = write(tmp_path / "two.csv", "v\n3\n2\n4\n")
    command = [sys.executable, "-m", "pm_match", one, two, "--links", tmp_path / "none.csv"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    first, *_, error = found.stderr.splitlines()
    assert first.startswith("pm-match: warning: domain 'one': 'v' (left out: one value only (1))")
    assert error.startswith("pm-match: error: ")


@pytest.mark.parametrize("mark", [";", "\t", "|"])
@pytest.mark.parametrize("header", [",u,v", '"",u,"v"', ",u"])
def test_other_marks_than_commas_separate_cells(tmp_path, mark, header):
    text = f"{header}\na b,1,x\nc,2.5\n" if header.endswith("v") else f"{header}\na b,1\nc,2.5\n"
    table = read_table_file(write(tmp_path / "a.csv", text.replace(",", mark)))
    expected = read_table_file(write(tmp_path / "b.csv", text))
    assert expected.index.tolist() == ["a b", "c"]
    pd.testing.assert_frame_equal(table, expected)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_names_of_columns_may_have_commas_where_other_marks_separate_cells(tmp_path, mark):
    text = "name;size, cm;weight\np;1;2\nq;3;4\n".replace(";", mark)
    table = read_table_file(write(tmp_path / "a.csv", text))
    assert table.columns.tolist() == ["size, cm", "weight"]
    assert table["weight"].tolist() == [2, 4]
    text = "name;size, cm;weight\np;1,5;2\nq;3,0;4\n".replace(";", mark)
    table = read_table_file(write(tmp_path / "c.csv", text))
    assert table["size, cm"].tolist() == ["1,5", "3,0"]
    text = f"name,size{mark} cm\np,1\nq,3\n"
    table = read_table_file(write(tmp_path / "b.csv", text))
    assert table.columns.tolist() == [f"size{mark} cm"]


def test_pipes_are_read_once():
    end, into = os.pipe()
    os.write(into, b"u;v\n2;1\n3;5\n")
    os.close(into)
    with open(end):
        table = read_table_file(Path(f"/dev/fd/{end}"))
    assert table.columns.tolist() == ["u", "v"]


def test_a_mark_in_a_header_alone_separates_nothing(tmp_path):
    table = read_table_file(write(tmp_path / "a.csv", "price|eur\n1\n2\n"))
    assert table.columns.tolist() == ["price|eur"]


def test_warnings_are_said_once(tmp_path):
    files = [
        write(tmp_path / f"{name}.csv", "v,w\n" + f"{name},1\n{name * 2},5\n" * 4) for name in "ab"
    ]
    with pytest.warns(UserWarning, match="expected values in 'a' that others have") as found:
        cli.main([*map(str, files), "--seed", "1", "--search-only"])
    assert sum("expected values in 'a'" in str(own.message) for own in found) == 1


def test_what_settling_leaves_as_it_was_is_said_once(tmp_path):
    text = "u,v,w\n0.5,1.2,x\n2.1,0.3,y\n1.7,0.1,x\n"
    files = [write(tmp_path / "one.csv", text), write(tmp_path / "two.csv", text.replace("x", "X"))]
    with pytest.warns(UserWarning, match="expected one spelling") as warned:
        cli.main([*map(str, files), "--search-only"])
    assert len(warned) == 1


def test_commas_at_the_end_of_lines_are_no_columns(tmp_path):
    table = read_table_file(write(tmp_path / "a.csv", "u,v,,\n2,NULL,,\n3,1,,\n4,#N/A,,\n"))
    assert table.columns.tolist() == ["u", "v"]
    assert table["v"].isna().tolist() == [True, False, True]
    with pytest.raises(InputError, match="column number 2: expected its name"):
        read_table_file(write(tmp_path / "a.csv", "u,,\n2,1,\n3,1,\n"))
    with pytest.raises(InputError, match="expected"):
        read_table_file(write(tmp_path / "a.csv", ",,\n,,\n"))


def test_a_category_may_be_called_as_its_column(tmp_path):
    table = read_table_file(write(tmp_path / "a.csv", "u,red\n2,blue\n3,red\n4,red\n"))
    assert table.columns.tolist() == ["u", "red"]


def refused(capsys, *argv):
    """Run the command line, which is to exit with status 2, and give its message."""
    with pytest.raises(SystemExit) as exit_:
        cli.main([str(argument) for argument in argv])
    assert exit_.value.code == 2
    return capsys.readouterr().err


def test_what_is_wrong_is_not_lost_among_all_options(capsys):
    usage, error = refused(capsys, "a.csv", "--draws", "0").splitlines()
    assert usage == "usage: pm-match [options] FILE [FILE ...]"
    assert error == (
        "pm-match: error: argument --draws: expected a whole number, at least 1; found '0'"
    )


@pytest.mark.parametrize("ending", [".JSON", ".json.gz", ".pkl.xz"])
def test_files_of_other_kinds_are_named(tmp_path, files, capsys, ending):
    bad = write(tmp_path / f"bad{ending}", "{}")
    error = refused(capsys, files[0], bad)
    assert error.startswith(f"pm-match: error: {bad}: expected text with commas")
    assert f"found a file that ends in {ending!r}: read it with pandas, or save it as CSV" in error


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file(tmp_path, files, capsys, text, message):
    bad = write(tmp_path / "bad.csv", text)
    error = refused(capsys, files[0], bad)
    assert error.startswith(f"pm-match: error: {bad}: ")
    assert message in error


def test_messages_on_columns_say_what_a_file_or_an_option_can(tmp_path, capsys):
    a = write(tmp_path / "a.csv", "u,v\n1,x\n2,x\n1,y\n2,y\n")
    b = write(tmp_path / "b.csv", "u,v\n1,0\n2,1\n3,1\n")
    error = refused(capsys, a, b)
    assert "in domain 'b'. Say --columns 'v'=category if it holds cat" in error
    assert "both, leave it out: --ignore 'v', or rename one" in error
    mixed = write(tmp_path / "mixed.csv", "u,v\n1,3\n2,4\n1,y\n2,3\n")
    assert "row 3. Say --columns 'v'=category if these are cat" in refused(capsys, mixed)
    texts = "u,v\n" + "".join(f"{i % 3},text of many words {i // 2}\n" for i in range(70))
    error = refused(capsys, write(tmp_path / "free.csv", texts))
    assert (
        "say --columns 'v'=category if these are categories, or leave it out: --ignore 'v'."
        in error
    )
    error = refused(capsys, a, "--ignore", "w")
    assert error.startswith("pm-match: error: --ignore, --columns: no column 'w' in any table")
    quoted = write(tmp_path / "quoted.csv", texts.replace("u,v", "u,it's", 1))
    assert 'leave it out: --ignore "it\'s".' in refused(capsys, quoted)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ignore", "z"], "--ignore, --columns: expected none, as these are networks\n"),
        (["--id", "text"], "--id: expected none, as these are networks; found 'text'\n"),
        (["--factors", "2"], "expected --edges without --factors, --projection, --standardise and"),
        (["--model", "mixture"], "expected --edges without --factors, --projection, --standardise"),
    ],
)
def test_what_is_said_of_tables_is_refused_of_edges(tmp_path, capsys, options, message):
    file = write(tmp_path / "e.csv", EDGES)
    assert f"pm-match: error: {message}" in refused(capsys, file, "--edges", *options)


def test_missing_and_unreadable_files(tmp_path, files, capsys):
    assert "none.csv: No such file" in refused(capsys, files[0], tmp_path / "none.csv")
    assert "Is a directory" in refused(capsys, files[0], tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"u,v\n\xff\xfe,1\n")
    assert "expected text in UTF-8" in refused(capsys, binary)


def test_names_that_clash(tmp_path, files, capsys):
    (tmp_path / "more").mkdir()
    again = write(tmp_path / "more" / "left.csv", files[0].read_text())
    assert "expected files of different names" in refused(capsys, files[0], again)
    other = write(tmp_path / "cluster_left.csv", files[0].read_text())
    assert "a second 'cluster_left'" in refused(capsys, files[0], other)
    reserved = write(tmp_path / "weights.csv", files[0].read_text())
    assert "found 'weights', which it uses itself" in refused(capsys, reserved)


BAD_LINKS = {
    "domain": ("left,top\np,1\n", "links: no table 'top'; there are ['left', 'right']"),
    "object": ("left,right\np,1\nz,2\n", "'left' has no object 'z'"),
    "one": ("left,right\np,\n", "row 1: expected labels of at least two objects; found 1"),
    "twice": ("left,left\np,q\n", "expected one column for 'left'; found several"),
    "nothing": ("", "links.csv: expected a header line"),
}


@pytest.mark.parametrize(("text", "message"), BAD_LINKS.values(), ids=BAD_LINKS)
def test_bad_links(tmp_path, files, capsys, text, message):
    links = write(tmp_path / "links.csv", text)
    error = refused(capsys, *files, "--links", links)
    assert "links" in error
    assert message in error


def test_links_that_contradict_each_other(tmp_path, files, capsys):
    links = write(tmp_path / "links.csv", "left,right\np,1\n")
    error = refused(capsys, *files, "--links", links, "--cannot-link", links)
    assert error.startswith("pm-match: error: cluster_left['p'] and cluster_right[")
    one = write(tmp_path / "one.csv", "left,right\np,\n")
    assert "--cannot-link: row 1: expected" in refused(capsys, *files, "--cannot-link", one)


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
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = refused(capsys, *files, "--out", files[0].parent / "out")
    assert (
        'matplotlib, itables, h5netcdf with h5py not installed: pip install "pm_match[examples]"'
        in error
    )


def test_output_that_cannot_be_written(files, capsys):
    said = "pm-match: error: --out: expected a folder that can be made and written to; found "
    error = refused(capsys, *files, "--out", files[0] / "below")
    assert error.startswith(said)
    assert error.endswith("/below (Not a directory)\n")
    error = refused(capsys, *files, "--out", files[0])
    assert error == f"{said}{files[0]} (File exists)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc takes no files, whoever asks")
def test_output_where_no_file_can_be_made(files, capsys):
    error = refused(capsys, *files, "--out", "/proc")
    assert error.startswith("pm-match: error: --out: expected a folder that can be made and wri")


def test_an_id_that_no_file_has(files, capsys):
    error = refused(capsys, *files, "--id", "code")
    assert error.endswith("no column 'code'; there are ['u', 'v']\n")


def test_help_explains_files(capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for word in ("LINKS.csv", "--seed", "match_A_B.csv", "draws.nc", "missing values", "--edges"):
        assert word in text


def test_standardized_features_have_mean_0_and_variance_1(tmp_path):
    file = write(tmp_path / "d.csv", "u,v\n1.5,200\n3,\n8,100.5\n5,400\n")
    values = prepared(file, "--standardize").data["d"].to_numpy()
    np.testing.assert_allclose(np.nanmean(values, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(values, axis=0), 1)
    assert np.argwhere(np.isnan(values)).tolist() == [[1, 1]]


def test_attributes_that_netcdf_cannot_hold_are_changed(tmp_path):
    pytest.importorskip("h5netcdf")
    labels = xr.Dataset({"cluster_a": (("chain", "draw", "a_object"), np.ones((1, 2, 3), int))})
    labels.attrs = {
        "none": None,
        "true": True,
        "nested": {"a": 1},
        "list": ["chain", "draw"],
        "empty": [],
    }
    tree = xr.DataTree.from_dict({"posterior": labels})
    write_draws(tree, tmp_path / "draws.nc")
    with xr.open_datatree(tmp_path / "draws.nc") as again:
        attrs = again["posterior"].attrs
        assert (attrs["true"], attrs["nested"]) == (1, "{'a': 1}")
        assert list(attrs["list"]) == ["chain", "draw"]
        assert "none" not in attrs
        np.testing.assert_array_equal(again["posterior"]["cluster_a"], labels["cluster_a"])
    assert labels.attrs["true"] is True  # the user's own tree is left as it is


def test_end_to_end(tmp_path):
    pytest.importorskip("h5netcdf")
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
    assert "log_joint  " in run.stdout
    assert run.stdout.startswith("a: 24 objects (a0, a1, a2, …); used are f0 (number")
    assert {file.name for file in out.iterdir()} == {
        "match_a_b.csv",
        "clusters.csv",
        "cluster_sizes.csv",
        "draws.nc",
        "match_probability.png",
        "clusters.png",
        "trace.png",
        "log_joint.png",
        "alluvial.png",
        "report.html",
    }
    assert "Whether the chains agree" in (out / "report.html").read_text()
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


# -- networks --------------------------------------------------------------------------------------

MATRIX = np.array([[1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 0, 1]])
EDGES = "document,word\nd1,ball\nd1,goal\nd2,ball\n"
FILMS = "user,film,tag\nu1,f1,t1\nu2,f1,t2\n"


def market(path, matrix, symmetry="general"):
    scipy.io.mmwrite(path, sparse.coo_array(matrix), field="integer", symmetry=symmetry)
    return path


def dense(network):
    found = np.zeros(network.shape)
    found[tuple(network.index.T)] = network.values
    return found


def test_matrices_of_all_formats(tmp_path):
    plain = market(tmp_path / "plain.mtx", MATRIX)
    packed = tmp_path / "my packed.mtx.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    sparse.save_npz(tmp_path / "scipy.npz", sparse.csr_array(MATRIX))
    found = prepared(plain, packed, tmp_path / "scipy.npz")
    assert list(found.data) == ["plain", "my_packed", "scipy"]
    assert found.options["types"] == ("row", "column")
    for network in found.data.values():
        np.testing.assert_array_equal(dense(network), MATRIX)
    labels = [network.labels[1].tolist() for network in found.data.values()]
    assert labels == [[1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 2, 3]]
    model = found.declare()
    assert model.coords["plain_row_object"] == (1, 2, 3)
    assert {"relevance_scipy_column", "concentration_row"} <= {rv.name for rv in model.free_RVs}


def test_edge_lists_name_types_and_objects(tmp_path):
    file = write(tmp_path / "a.csv", "document, word\n2,ball\n10,goal\n2,goal\n")
    found = prepared(file, "--edges")
    assert found.options["types"] == ("document", "word")
    (network,) = found.data.values()
    assert [labels.tolist() for labels in network.labels] == [[2, 10], ["ball", "goal"]]
    np.testing.assert_array_equal(dense(network), [[1, 1], [0, 1]])
    other = write(tmp_path / "b.csv", "page,word\np,ball\n")
    assert prepared(file, other, "--edges").options["types"] == ("row", "column")
    found = prepared(file, other, "--edges", "--types", "text,word")
    assert found.options["types"] == ["text", "word"]


def test_values_of_edges(tmp_path):
    file = write(tmp_path / "a.csv", "document,word,count\nd1,ball,2\nd2,goal,3\nd1,goal,0\n")
    found = prepared(file, "--edges")
    assert found.options["family"] == "poisson"
    (network,) = found.data.values()
    np.testing.assert_array_equal(dense(network), [[2, 0], [0, 3]])
    unknown = prepared(file, "--edges", "--family", "poisson", "--absent", "unknown")
    assert len(unknown.data["a"].index) == 3


def test_types_of_three(tmp_path):
    file = write(tmp_path / "a.csv", FILMS)
    found = prepared(file, "--edges", "--types", "user,film,tag")
    assert found.data["a"].shape == (2, 1, 2)
    np.testing.assert_array_equal(found.data["a"].values, [1, 1])
    assert "cluster_a_tag" in {rv.name for rv in found.declare().free_RVs}


def test_one_mode_networks_have_one_set_of_objects(tmp_path):
    file = write(tmp_path / "a.csv", "boss,clerk\nann,bob\nann,cy\n")
    for arguments, symmetric in ((["--one-mode"], False), (["--types", "person"], False)):
        found = prepared(file, "--edges", *arguments)
        assert found.data["a"].labels[1].tolist() == ["ann", "bob", "cy"]
        assert bool(found.options.get("symmetric")) is symmetric
    assert prepared(file, "--edges", "--symmetric").options["types"] == ("object",)


def test_symmetry_in_headers(tmp_path):
    matrix = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    files = [market(tmp_path / f"{name}.mtx", matrix, "symmetric") for name in "ab"]
    for option in ("--one-mode", "--symmetric"):
        found = prepared(*files, option)
        assert found.options["symmetric"]
        np.testing.assert_array_equal(dense(found.data["a"]), np.triu(matrix))
        np.testing.assert_array_equal(found.drawable()["a"].toarray(), matrix)
    general = market(tmp_path / "general.mtx", matrix)
    assert "symmetric" not in prepared(general, "--one-mode").options
    assert prepared(general, files[0], "--symmetric").options["symmetric"]
    with pytest.raises(
        ValueError, match=r"a.mtx: expected rows .*'symmetric' in the header.*symmetric=True"
    ):
        prepared(*files)
    with pytest.raises(ValueError, match=r"general.mtx: expected 'symmetric' in the header"):
        prepared(*files, general, "--one-mode")


def test_options_reach_the_model(tmp_path):
    file = market(tmp_path / "a.mtx", MATRIX)
    model = prepared(
        *(file, "--types", "page,word", "--clusters", "3", "--no-relevance"),
        *("--degree-correction", "--weights", "uniform"),
    ).declare()
    names = {rv.name for rv in model.free_RVs}
    assert names == {"density", "density_alpha", "density_beta", "cluster_a_page", "cluster_a_word"}
    op = model["a"].owner.op
    assert (op.family, op.exposure) == ("poisson", (True, True))
    assert len(model.coords["page_cluster"]) == 3
    model = prepared(file, "--family", "negative-binomial", "--dispersion", "0.5").declare()
    op = model["a"].owner.op
    assert (op.family, op.exposure) == ("negative-binomial", (True, False))


def test_links_of_networks(tmp_path):
    files = [write(tmp_path / f"{name}.csv", EDGES) for name in "ab"]
    links = write(tmp_path / "links.csv", "a_word,b_word\ngoal,ball\n")
    found = prepared(*files, "--edges", "--links", links)
    assert found.links == [{"a_word": ["goal"], "b_word": ["ball"]}]
    model = found.declare()
    assert [p.name for p in model.potentials] == ["links"]
    assert not [name for name in model.named_vars if name.startswith("relevance")]
    unknown = write(tmp_path / "unknown.csv", "a_word,b_verb\ngoal,ball\n")
    with pytest.raises(ValueError, match=r"no set of objects 'b_verb'; there are \['a_d"):
        prepared(*files, "--edges", "--links", unknown)


BAD_EDGES = {
    "twice": ("d,w,n\nd1,u,1\nd1,u,1\n", "expected each cell once; found ('d1', 'u') more than"),
    "weights": ("d,w,n\nd1,u,.5\nd2,u,1\n", "found 0.5 at cell ('d1', 'u'). Bring weights"),
    "no edge": ("document,word\n", "expected at least one edge; found none"),
    "no label": (EDGES + ",goal\n", "row 4, column 1: expected a label; found"),
    "no value": (
        "d,w,n\nd1,ball,1\nd2,ball,\n",
        "row 2: expected the edge's value; found none; leave",
    ),
    "text": ("d,w,n\nd1,ball,1\nd2,ball,x\n", "row 2: expected a number as the edge's value; f"),
    "no header": ("d1,ball\nd1,goal\n", "expected a header line, such as row,column; found the"),
    "numbers": ("1,2\n3,4\n", "expected a header line, such as row,column; found the label '1'"),
    "no header, values": ("d1,w1,1\nd2,w2,1\n", "such as row,column,value; found '1'"),
    "one column": ("document\nd1\n", "expected 2 columns of labels, then perhaps one of values"),
    "four columns": ("a,b,c,d\n1,2,3,4\n", "found 4 columns (name all types of objects: --ty"),
    "nothing": ("", "expected a header line; found an empty file"),
}


@pytest.mark.parametrize(("text", "message"), BAD_EDGES.values(), ids=BAD_EDGES)
def test_bad_edge_list(tmp_path, capsys, text, message):
    bad = write(tmp_path / "bad.csv", text)
    error = refused(capsys, write(tmp_path / "good.csv", EDGES), bad, "--edges")
    assert error.startswith(f"pm-match: error: {bad}: ")
    assert message in error
    assert "=" not in error


def test_values_that_the_family_does_not_have(tmp_path, capsys):
    bad = write(tmp_path / "bad.csv", "d,w,n\nd1,u,2\nd2,u,1\n")
    error = refused(capsys, bad, "--edges", "--family", "bernoulli")
    assert error.startswith(f"pm-match: error: {bad}: ")
    assert "--family poisson" in error


def test_bad_matrices(tmp_path, capsys):
    good = market(tmp_path / "good.mtx", MATRIX)
    bad = write(tmp_path / "bad.mtx", "junk")
    assert f"{bad}: expected a MatrixMarket file that can be read; found" in refused(
        capsys, good, bad
    )
    packed = write(tmp_path / "bad.mtx.gz", "junk")
    assert f"{packed}: expected a MatrixMarket file that can be read; found" in refused(
        capsys, packed
    )
    table = tmp_path / "bad.npz"
    np.savez(table, x=np.ones(3))
    assert f"{table}: expected a sparse matrix as scipy.sparse.save_npz" in refused(capsys, table)
    for missing in (tmp_path / "none.mtx", tmp_path / "none.npz"):
        assert f"{missing}: No such file" in refused(capsys, missing)
    skew = write(
        tmp_path / "skew.mtx",
        "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n",
    )
    assert "expected a general or symmetric matrix; found skew-symm" in refused(capsys, skew)
    loops = market(tmp_path / "loops.mtx", np.eye(3, dtype=int))
    assert "If the diagonal is data, say --self-loops" in refused(capsys, loops, "--one-mode")
    assert "expected a square matrix" in refused(capsys, good, "--one-mode")
    again = market(tmp_path / "good.mtx.gz", MATRIX)
    assert "expected files of different names" in refused(capsys, good, again)
    reserved = market(tmp_path / "density.mtx", MATRIX)
    assert "found 'density', which it uses itself" in refused(capsys, reserved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--types", "a,b,c"], "expected two types of objects, as a matrix has; found 3"),
        (["--types", "row,2nd"], "expected names with commas between them"),
        (["--types", "row,row"], "types: expected different names"),
        (["--one-mode", "--types", "a,b"], "types: expected 1 name, for the objects of one-mode"),
        (
            ["--family", "normal", "--degree-correction"],
            "expected no exposure but with family 'poisson'",
        ),
        (
            ["--dispersion", "2"],
            "--dispersion: expected none but with --family negative-binomial; found 2.0",
        ),
        (["--standardize"], "expected one for networks; found 'projected_clusters'"),
        (["--factors", "2"], "expected one for networks; found 'projected_clusters'"),
        (["--projection", "map"], "expected one for networks; found 'projected_clusters'"),
    ],
)
def test_bad_options_of_networks(tmp_path, capsys, options, message):
    square = np.array([[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    assert message in refused(capsys, market(tmp_path / "a.mtx", square), *options)


@pytest.mark.parametrize("option", ["--one-mode", "--degree-correction"])
def test_tables_as_networks(files, capsys, option):
    assert "expected 2 columns of labels" in refused(capsys, files[1], option)


def drawn_files(tmp_path, **options):
    """Networks that have clusters, as files."""
    drawn = datasets.synthetic_networks(n_clusters=2, n_irrelevant=4, n_relevant=16, **options)
    return drawn, [
        market(tmp_path / f"{name}.mtx", x.toarray()) for name, x in drawn.networks.items()
    ]


SHORT = ("--seed", "1", "--draws", "12", "--tune", "30", "--chains", "2", "--cores", "1")


@pytest.mark.filterwarnings("ignore:the draws fill the truncation")
def test_networks_end_to_end(tmp_path, capsys):
    pytest.importorskip("h5netcdf")
    pytest.importorskip("matplotlib")
    _, files = drawn_files(tmp_path, random_seed=5)
    out = tmp_path / "result"
    arguments = [*map(str, files), "--out", str(out), *SHORT, "--types", "page,word"]
    assert cli.main([*arguments, "--top", "3", "--best-chain"]) == 0
    printed = capsys.readouterr().out
    assert {file.name for file in out.iterdir()} == {
        "match_a_b_page.csv",
        "match_a_b_word.csv",
        "clusters.csv",
        "cluster_sizes.csv",
        "draws.nc",
        "networks.png",
        "trace.png",
        "log_joint.png",
        "alluvial.png",
        "report.html",
    }
    with xr.open_datatree(out / "draws.nc") as idata:
        assert idata["posterior"]["cluster_a_page"].shape == (2, 12, 20)
        assert idata["posterior"]["cluster_a_page"].attrs["clusters"] == "weights_page"
        best = best_chain(idata.load())
    for t in ("page", "word"):
        expected = match_probability(best, f"cluster_a_{t}", f"cluster_b_{t}", top=3)
        found = pd.read_csv(out / f"match_a_b_{t}.csv")
        pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-5)
    clusters = pd.read_csv(out / "clusters.csv")
    assert clusters.columns.tolist()[:4] == ["network", "type", "object", "cluster"]
    for (network, t), rows in clusters.groupby(["network", "type"]):
        assert rows["object"].tolist() == list(range(1, 21))
        share = best["posterior"][f"relevance_{network}_{t}"].mean(("chain", "draw"))
        np.testing.assert_allclose(rows["relevance"], share, rtol=1e-5)
        irrelevant = (rows["cluster"] == -1).to_numpy()
        assert share.to_numpy()[irrelevant].mean() < share.to_numpy()[~irrelevant].mean()
    sizes = pd.read_csv(out / "cluster_sizes.csv", index_col=["type", "cluster"])
    assert sizes.columns.tolist() == ["a", "b", "total"]
    for t in ("page", "word"):
        assert sizes.loc[t].sum().tolist() == [20, 20, 40]
        rows = clusters[clusters["type"] == t]
        irrelevant = rows["cluster"] == -1
        assert sizes.loc[(t, "irrelevant"), "total"] == irrelevant.sum() > 0
        assert f"{t}: " in printed
    assert "chain" in printed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws fill the truncation")
def test_one_network_of_one_type_end_to_end(tmp_path, capsys):
    pytest.importorskip("h5netcdf")
    pytest.importorskip("matplotlib")
    _, files = drawn_files(tmp_path, n_types=1, n_networks=1, random_seed=5)
    out = tmp_path / "result"
    assert cli.main([str(files[0]), "--one-mode", "--no-relevance", "--out", str(out), *SHORT]) == 0
    assert {file.name for file in out.glob("*.csv")} == {
        "match_a_a_object.csv",
        "clusters.csv",
        "cluster_sizes.csv",
    }
    match = pd.read_csv(out / "match_a_a_object.csv")
    assert match.groupby("object").size().max() <= 10
    assert (match["object"] != match["partner"]).all()
    clusters = pd.read_csv(out / "clusters.csv")
    assert clusters.columns.tolist()[:4] == ["network", "type", "object", "cluster"]
    assert (clusters["cluster"] >= 0).all()
    assert "clusters" in capsys.readouterr().out


def test_tables_may_be_written_in_long_form(tmp_path):
    labels = np.array([[[0, 1, 0]], [[0, 0, 1]]])
    posterior = xr.Dataset(
        {f"cluster_{name}": (("chain", "draw", f"{name}_object"), labels) for name in "ab"}
    )
    idata = xr.DataTree.from_dict({"posterior": posterior})
    write_matches(idata, tmp_path / "match.csv", "cluster_a", "cluster_b", top=1)
    assert len(pd.read_csv(tmp_path / "match.csv")) == 3


def test_nothing_is_written_but_where_it_is_said(tmp_path, files, monkeypatch, capsys):
    pytest.importorskip("h5netcdf")
    pytest.importorskip("matplotlib")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    argv = [*map(str, files), "--search-only", "--seed", "1", "--clusters", "3"]
    assert cli.main(argv) == 0
    assert not list(Path().iterdir())
    said = capsys.readouterr().out
    assert "This is the best matching found" in said
    assert "Nothing is written: --out DIR names a folder." in said
    with monkeypatch.context() as patched:
        verdict = ["Without relevance, every object is in one."]
        patched.setattr(cli.MatchResult, "verdict", lambda result: verdict)
        assert cli.main([*argv, "--out", "there"]) == 0
    assert "With --no-relevance, every object is in one." in capsys.readouterr().out
    clusters = Path("there", "clusters.csv")
    before = clusters.read_text()
    clusters.write_text("mine")
    error = refused(capsys, *argv, "--out", "there")
    assert "there: there is another result (clusters.csv, cluster_sizes.csv, draws.nc" in error
    assert "say --force" in error
    assert clusters.read_text() == "mine"
    assert cli.main([*argv, "--out", "there", "--force"]) == 0
    assert clusters.read_text() == before


def test_what_searches_choose_is_said_and_done(tmp_path, monkeypatch, capsys):
    """Numbers go together: of two kinds, of any size, that differ in shape."""
    rng, argv, models = np.random.default_rng(0), ["--search-only", "--seed", "1"], []
    for name in ("left.csv", "right.csv"):
        size, kind = 3.0 * rng.normal(size=40), rng.integers(2, size=40)
        x = np.column_stack([size, size + 2.0 * kind]) + 0.3 * rng.normal(size=(40, 2))
        pd.DataFrame(x, columns=["u", "v"]).to_csv(tmp_path / name, index=False)
        argv.append(str(tmp_path / name))
    search = cli.find_matching
    monkeypatch.setattr(
        cli, "find_matching", lambda model, **own: models.append(model) or search(model, **own)
    )
    assert cli.main(argv) == 0
    assert re.search(
        r"The model is mixture\.\nNumbers have one covariance within clusters: the log joint of a "
        r"search is [\d.]+ higher so \(--correlated\)\.\n",
        capsys.readouterr().out,
    )
    assert "numbers" in models[0].coords
    assert as_options("(correlated=False)") == "(--no-correlated)"


def test_interrupted_in_a_search_it_says_so(files, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "find_matching", interrupted)
    with pytest.raises(SystemExit, match="130"):
        cli.main([*map(str, files), "--search-only"])
    assert "pm-match: interrupted: there are no draws yet\n" in capsys.readouterr().err


@pytest.mark.parametrize("after", [12, 3])
def test_interrupted_it_reports_what_it_has(tmp_path, files, monkeypatch, capsys, after):
    pytest.importorskip("h5netcdf")
    pytest.importorskip("matplotlib")

    def press(trace, draw):
        if draw.draw_idx == after:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cli, "sample", partial(cli.sample, callback=press))
    out = tmp_path / "result"
    argv = [*map(str, files), "--out", str(out), "--seed", "1", "--draws", "20", "--tune", "6"]
    argv += ["--chains", "2", "--cores", "1", "--clusters", "3", "--factors", "1"]
    if after < 6:
        with pytest.raises(SystemExit, match="130"):
            cli.main(argv)
        assert "interrupted: no chain has a draw after tuning" in capsys.readouterr().err
        return
    with pytest.warns(UserWarning, match="interrupted: chains have 7 and 0 of 20 draws"):
        assert cli.main(argv) == 0
    told = capsys.readouterr().out
    assert "log_joint" in told
    advice = told[told.index("- The number") :].splitlines()
    assert "take 100 or more (--draws)." in " ".join(map(str.strip, advice))
    assert max(map(len, advice[:-2])) < 80
    draws = xr.open_datatree(out / "draws.nc")
    assert draws["posterior"].sizes["draw"] == 7
    assert {"match_left_right.csv", "report.html"} <= {file.name for file in out.iterdir()}


def test_pickled_objects_are_refused(tmp_path, capsys):
    made = []

    class Payload:
        def __reduce__(self):
            return made.append, (1,)

    table = tmp_path / "objects.npz"
    np.savez(table, format=np.array([b"csr"]), data=np.array([Payload()], dtype=object))
    made.clear()
    message = refused(capsys, table)
    assert f"{table}: expected a sparse matrix" in message
    assert "allow_pickle" in message
    assert not made


def test_numbers_that_name_objects_are_written_in_full(tmp_path):
    labels = 12345600.0 + np.arange(7)
    idata = tree()
    posterior = idata["posterior"].to_dataset().assign_coords(a_object=labels)
    idata["posterior"] = xr.DataTree(posterior)
    for top in (None, 2):
        write_matches(idata, tmp_path / "match.csv", "cluster_a", "cluster_b", top)
        assert set(pd.read_csv(tmp_path / "match.csv").iloc[:, 0]) == set(labels)
        write_matches(idata, tmp_path / "match.csv", "cluster_b", "cluster_a", top)
        written = pd.read_csv(tmp_path / "match.csv", index_col=0)
        partners = written.columns if top is None else written["partner"]
        assert set(map(float, partners)) <= set(labels)


def test_csv_files_hold_no_formulas(tmp_path):
    idata = tree()
    labels = ["=HYPERLINK(1)", "+1+1", "@SUM(A1)", "d", "e", "f", "g"]
    posterior = idata["posterior"].to_dataset().assign_coords(a_object=labels)
    idata["posterior"] = xr.DataTree(posterior)
    for top in (None, 2):
        write_matches(idata, tmp_path / "match.csv", "cluster_a", "cluster_b", top)
        text = (tmp_path / "match.csv").read_text(encoding="utf-8")
        starts = {row.split(",")[0] for row in text.splitlines()}
        assert {"'=HYPERLINK(1)", "'+1+1", "'@SUM(A1)", "d"} <= starts
        assert not starts & set(labels[:3])


def run(folder, *command):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("model", ["projected_clusters", "table_clusters", "relational_clusters"])
def test_nothing_is_left_to_compile(model, tmp_path):
    found = run(tmp_path, "-m", "pm_match", "warm", model)
    assert found.startswith(model)
    before = sorted(path.name for path in tmp_path.rglob("*.nb[ic]"))
    assert before
    declared = {
        "projected_clusters": "models.projected_clusters(datasets.synthetic(40), 5)",
        "table_clusters": "models.table_clusters(datasets.synthetic(40, 6))",
        "relational_clusters": "models.relational_clusters(datasets.synthetic_networks().networks)",
    }[model]
    sampled = f"sample(draws=1, tune=1, chains=1, model={declared})"
    run(tmp_path, "-c", f"from pm_match import datasets, models, sample; {sampled}")
    assert sorted(path.name for path in tmp_path.rglob("*.nb[ic]")) == before


def test_the_script_is_the_command_line():
    project = tomllib.loads((Path(cli.__file__).parents[1] / "pyproject.toml").read_text())
    module, name = project["project"]["scripts"]["pm-match"].split(":")
    assert getattr(importlib.import_module(module), name) is cli.main


def test_unknown_models_are_not_warmed(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["warm", "everything"])
    assert stopped.value.code == 2
    assert "expected any of projected_clusters, " in capsys.readouterr().err
