"""What a column is taken for, and what is refused, with the remedy."""

from datetime import date, time
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.front.columns import LEFT_OUT, Column, look_at_column

N = 40
RNG = np.random.default_rng(0)
WHOLE = RNG.permutation(np.arange(0, 5 * N, 5))
REPEATED = RNG.integers(3, size=N)


def column(values, name="x"):
    return pd.Series(values, name=name)


def look(values, name="x", told=None):
    return look_at_column("domain 'a'", column(values, name), told)


USED = {
    "number": RNG.normal(size=N),
    "positive": np.exp(3 * RNG.normal(size=N)),
    "count": RNG.poisson(4, N),
    "boolean": REPEATED > 0,
    "category": np.array(["u", "v", "w"])[REPEATED],
}


@pytest.mark.parametrize("use", USED)
def test_kinds_are_seen(use):
    found = look(USED[use])
    assert (found.use, found.note, found.warn) == (use, "", False)


SAME = {
    "a hole in numbers": (np.where(REPEATED > 1, np.nan, USED["number"]), "number"),
    "a hole in counts": (np.where(REPEATED > 1, np.nan, USED["count"]), "count"),
    "nullable integers": (pd.array([1, 2, None, 2] * 10, dtype="Int64"), "count"),
    "nullable numbers": (pd.array([1.5, 2, None, 2.5] * 10, dtype="Float64"), "number"),
    "nullable booleans": (pd.array([True, None, False, True] * 10, dtype="boolean"), "boolean"),
    "booleans and None": (pd.Series([True, None, False, True] * 10, dtype=object), "boolean"),
    "zeros and ones": (REPEATED % 2, "boolean"),
    "codes of categories": (pd.Categorical(REPEATED), "category"),
    "strings": (pd.array(["u", None, "v", "u"] * 10, dtype="string"), "category"),
    "sparse": (pd.arrays.SparseArray(USED["number"].round(0) + 0.5), "number"),
    "objects that are counts": (pd.Series([2, None, 1, 0] * 10, dtype=object), "count"),
    "objects that are numbers": (pd.Series(USED["number"], dtype=object), "number"),
    "below zero": (USED["count"] - 10, "number"),
    "large": (WHOLE % 17 * 50, "number"),
    "huge": (1e30 * RNG.normal(size=N), "number"),
}


def test_whole_numbers_that_repeat_may_be_codes():
    codes = [10115, 20095, 80331]
    note = "3 different ones; if they are codes, say columns={'x': 'category'}"
    assert look(codes * 5) == Column("number", note)
    assert look([*codes * 5, None]).note == f"1 missing; {note}"
    assert look([*codes * 4, *codes[1:]]).note == ""
    assert look(np.array(codes * 5) + 0.5).note == ""


@pytest.mark.parametrize("case", SAME)
def test_types_as_people_have_them(case):
    values, use = SAME[case]
    found = look(values)
    assert found.use == use
    holes = int(pd.Series(values).isna().sum())
    assert found.note == (f"{holes} missing" if holes else "")


def test_what_names_objects_is_offered_and_never_used_silently():
    assert look([f"n{i}" for i in range(N)]) == Column(
        LEFT_OUT,
        "a text of its own for every object; if it names them, say id='x'",
        True,
    )
    assert look([f"030 {i} 456" for i in range(100, 100 + N)]).use == LEFT_OUT  # of telephones
    assert look(np.arange(7, 7 + N)).use == LEFT_OUT  # 7, 8, 9, …
    for name in ("id", "ID", "user_id", "SKU", "Unnamed: 0", "order no", "index"):
        assert look(WHOLE, name) == Column(
            LEFT_OUT,
            f"a number of its own for every object; if it names them, say id={name!r}",
            True,
        )
    found = look(WHOLE, "paid")
    assert (found.use, found.warn) == ("number", True)
    assert found.note == "distinct whole numbers; if they only name objects, say id='paid'"
    assert look(WHOLE, "idle").use == "number"
    assert look(REPEATED + 40, "id").use == "number"  # which repeats
    assert look(WHOLE, "id", told="number") == Column("number", "", False)


def test_what_says_nothing_is_left_out():
    assert look([2.5] * N) == Column(LEFT_OUT, "one value only (2.5)", True)
    assert look(["tea"] * N) == Column(LEFT_OUT, "one value only (tea)", True)
    assert look([np.nan] * N) == Column(LEFT_OUT, "no value in it", True)
    assert look([None, "tea"] * 5).use == LEFT_OUT


REFUSED = {
    "dates": (pd.date_range("2024-01-01", periods=N), "dates or times. Make a number of it"),
    "zoned": (pd.date_range("2024-01-01", periods=N, tz="UTC"), "dates or times"),
    "periods": (pd.period_range("2024-01", periods=N, freq="M"), "dates or times"),
    "durations": (
        pd.to_timedelta(np.arange(N), "D"),
        r"durations. Make a number of it \(pd.to_timedelta\(frame\['x'\]\).dt.total_seconds\(\)\)",
    ),
    "dates as text": ([f"2024-01-{i % 28 + 1}" for i in range(N)], r"dates as text \('2024-01-1'"),
    "local dates": ([f"{i % 28 + 1}.3.2024" for i in range(N)], "dates as text"),
    "numbers as text": ([f"{i % 7}.5" for i in range(N)], r"numbers as text. Convert it \(pd.to_n"),
    "decimal commas": ([f"{i % 7},5" for i in range(N)], "numbers as text, for example '0,5'. Wri"),
    "currencies": ([f"€ 1,{i % 7}00.50" for i in range(N)], r"numbers as text, .* '€ 1,000.50'"),
    "shares": ([f"{i % 7}%" for i in range(N)], "numbers as text, for example '0%'"),
    "thousands apart": ([f"{i} 000,5" for i in range(N)], "numbers as text, for example '0 000,5'"),
    "some numbers": (
        [*map(str, range(N - 1)), "high"],
        "numbers and text, for example 'high' in row 39",
    ),
    "repeated numbers": (
        [*"12" * 15, "high", "low", "mid", "none"],
        "numbers and text, for example 'high' in row 30",
    ),
    "repeated sentences": (["a good tea for the evening"] * 30 + ["none", "?"], "free text"),
    "sentences": (["a good tea for the long evenings", "nothing but the sea"] * 20, "free text"),
    "many texts": (
        [f"t{i // 1.5:.0f}" for i in range(90)],
        r"free text \(6\d different texts",
    ),
    "days": ([date(2024, 1, i % 28 + 1) for i in range(N)], "dates or times. Make a number"),
    "lists": ([[1], [2]] * 20, r"values of dtype object, for example \[1\]$"),
    "decimals": (
        [Decimal(i % 7) / 2 for i in range(N)],
        r"dtype object, for example Decimal\('0'\). If .* convert them: frame\['x'\].astype\(fl",
    ),
    "mixed objects": (
        [1, 2, "a", 3] * 10,
        r"numbers and text, for example 1 and 'a'. Say columns=\{'x': 'category'\} if",
    ),
    "truth and numbers": ([True, 2] * 20, r"for example True. If .* frame\['x'\].astype\(float"),
    "complex": (np.arange(N) * 1j, "values of dtype complex"),
}


DAYS = pd.Series(pd.date_range("2000-02-01", periods=N))
DATES = {
    "iso": DAYS.dt.strftime("%Y-%m-%d"),
    "days first": DAYS.dt.strftime("%d.%m.%Y"),
    "days first, undecided": DAYS[:9].dt.strftime("%d.%m.%y"),
    "days first, slashes": DAYS.dt.strftime("%d/%m/%Y"),
    "months first": DAYS.dt.strftime("%m/%d/%Y"),
    "dates": DAYS.dt.date,
    "times": DAYS,
    "zone": DAYS.dt.tz_localize("UTC"),
    "zone as text": DAYS.dt.strftime("%Y-%m-%dT%H:%MZ"),
    "other zones": DAYS.dt.strftime("%Y-%m-%d %H:%M:%S.0+0000"),
    "periods": DAYS.dt.to_period("D"),
}


@pytest.mark.parametrize("case", DATES)
def test_dates_are_counted_from_one_day_in_all_tables(case):
    """From the first of each table, they would not be comparable."""
    values = DATES[case]
    with pytest.raises(TypeError, match="one day for all tables") as refused:
        look(values)
    remedy = str(refused.value).partition("tables: ")[2].partition(") or a category")[0]
    found = eval(remedy, {"pd": pd, "frame": pd.DataFrame({"x": values})})
    assert found.tolist() == list(range(31, 31 + len(values)))


@pytest.mark.parametrize("other", ["2024-02-30", "2024-02-01 or later", "unknown"])
def test_dates_beside_what_is_none_are_refused_as_such(other):
    days = DAYS.dt.date if other == "unknown" else DAYS.dt.strftime("%Y-%m-%d")
    with pytest.raises(TypeError, match=r"column 'x': .*found dates .* one day for all tables"):
        look([other, *days])


def test_what_dates_and_times_mean_is_asked_where_it_is_not_told():
    with pytest.raises(TypeError, match=r"dayfirst=True.*; leave out dayfirst if months come f"):
        look(DAYS[:9].dt.strftime("%d/%m/%Y"))
    frame = pd.DataFrame({"x": [time(1, 0, k) for k in range(9)]})
    with pytest.raises(TypeError, match=r"dates or times\. Make a number of it") as refused:
        look(frame["x"])
    remedy = str(refused.value).partition("of it (")[2].partition(") or a category")[0]
    assert eval(remedy, {"pd": pd, "frame": frame}).tolist() == list(range(3600, 3609))


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_with_the_remedy(case):
    values, message = REFUSED[case]
    with pytest.raises(TypeError, match="domain 'a': column 'x': expected .*; found .*" + message):
        look(values)


def test_columns_of_arrow():
    pa = pytest.importorskip("pyarrow")
    texts, holes = np.array(["u", "v", "w"])[REPEATED].tolist(), f"{N} missing"
    text = pd.arrays.ArrowExtensionArray(pa.array(texts + [None] * N))
    assert look(text) == Column("category", holes, False)
    coded = pd.arrays.ArrowExtensionArray(pa.array(texts + [None] * N).dictionary_encode())
    assert look(coded) == Column("category", holes, False)
    plain = pd.DataFrame({"kind": np.array(texts + [None] * N, dtype=object)})
    for own in (text, coded):
        tables = {"a": pd.DataFrame({"kind": own}), "b": plain}
        model = pmm.prepare(tables).declare()
        a, b = (model.rvs_to_values[model[f"{name}_kind_observed"]].eval() for name in "ab")
        assert a.tolist() == b.tolist()
    with pytest.raises(TypeError, match="numbers as text"):
        look(pd.arrays.ArrowExtensionArray(pa.array(["1", "2"] * N)))


def test_what_the_user_says_settles_it():
    texts = [f"t{i // 1.5:.0f}" for i in range(90)]
    assert look(texts, told="category").use == "category"
    assert look(USED["count"], told="number").use == "number"
