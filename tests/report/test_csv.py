import csv
import io

import numpy as np
import pandas as pd
import pytest

from pm_match.report import csv as written
from pm_match.report.csv import as_text, write_csv

FORMULAS = ['=HYPERLINK("http://x","y")', "+1+1", "@SUM(A1)", "-2+3", "\t=1", "\r=1"]


@pytest.mark.parametrize("label", FORMULAS)
def test_formulas_become_text_wherever_they_are(label):
    table = pd.DataFrame({"object": [label, "plain"], label: [1.5, -2.0]}, index=["i", label])
    table.index.name = label
    for form in (table, table.set_index("object", append=True)):
        text = io.StringIO(write_csv(form), newline="")
        cells = [cell for row in csv.reader(text) for cell in row]
        assert cells.count(f"'{label}") == 4  # name of the index, a column, a cell, a row
        assert not any(cell.startswith(("=", "+", "@", "\t", "\r")) for cell in cells)
        assert "-2.0" in cells  # numbers are no formulas


def test_names_of_objects_keep_their_digits():
    table = pd.DataFrame({"object": [12345678.0], 12345679.0: [1 / 3]}, index=[12345680.0])
    assert write_csv(table, float_format="%.3g") == (
        ",object,12345679.0\n12345680.0,12345678.0,0.333\n"
    )


def test_labels_that_are_numbers_or_plain_stay():
    for label in ("-12", "+3.5", "-1e-3", "a=b", "", 7, None):
        assert as_text(label) == label
    table = pd.DataFrame({"object": ["-12", "x"], "n": [1, 2]})
    assert write_csv(table, index=False) == table.to_csv(index=False)


@pytest.mark.parametrize("cells", [1, 7, 100])
def test_files_are_written_some_rows_at_a_time(cells, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(10, 3)), rng.permutation(10) / 2.0, ["=a", "b", "c"])
    table["partner"] = [f"é{i}" for i in range(10)]
    whole = write_csv(table, float_format="%.3g")
    monkeypatch.setattr(written, "_CELLS", cells)
    file = tmp_path / "table.csv"
    file.write_text("of before")
    for own, text in ((table, whole), (table[:0], write_csv(table[:0]))):
        assert write_csv(own, file, float_format="%.3g") is None
        assert file.read_text("utf-8") == text


def test_numbers_are_written_as_pandas_writes_them():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "probability": rng.integers(0, 8, 50) / 7,
            "log": np.append(rng.normal(0.0, 1e8, 48), [np.nan, np.inf]),
            "single": rng.normal(size=50).astype("float32"),
            "missing": pd.array([None, 1 / 3] * 25, dtype="Float64"),
            "count": rng.integers(-5, 5, 50),
            "seen": rng.random(50) < 0.5,
            "of objects": pd.Series([1 / 3, 2.0] * 25, dtype=object).to_numpy(),
        },
        index=rng.integers(0, 9, 50),  # labels that come twice
    )
    for options in ({}, {"float_format": "%.3g"}, {"float_format": "%.6g", "index": False}):
        assert write_csv(table, **options) == table.infer_objects().to_csv(**options)
    empty = table[:0]
    assert write_csv(empty, float_format="%.3g") == empty.to_csv()
    assert write_csv(table[[]], float_format="%.3g") == table[[]].to_csv()
