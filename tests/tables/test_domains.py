import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr

from pm_match.tables.domains import Domain, as_domains


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(4, 3))


def one(table):
    return as_domains({"a": table})["a"]


def test_array_is_numbered_and_copied(x):
    domain = one(x)
    np.testing.assert_array_equal(domain.values, x)
    assert not isinstance(domain.values, np.ma.MaskedArray)
    assert domain.values is not x
    np.testing.assert_array_equal(domain.objects, range(4))
    np.testing.assert_array_equal(domain.features, range(3))
    assert (domain.n_objects, domain.n_features) == (4, 3)
    assert not domain.missing.any()


def test_labels_of_a_frame_are_kept(x):
    domain = one(pd.DataFrame(x, index=list("wxyz"), columns=["u", "v", "w"]))
    assert domain.objects.tolist() == ["w", "x", "y", "z"]
    assert domain.features.tolist() == ["u", "v", "w"]
    assert domain.objects.dtype.kind == "U"  # what netCDF can hold, unlike objects


def test_labels_of_a_dataarray_are_kept(x):
    domain = one(xr.DataArray(x, dims=("row", "column"), coords={"row": [7, 8, 9, 10]}))
    np.testing.assert_array_equal(domain.objects, [7, 8, 9, 10])
    np.testing.assert_array_equal(domain.features, range(3))


def test_mixed_and_nested_labels_become_text(x):
    rows = pd.MultiIndex.from_product([["p", "q"], [1, 2]])
    domain = one(pd.DataFrame(x, index=rows, columns=["u", 1, 2.5]))
    assert domain.objects.tolist() == ["p, 1", "p, 2", "q, 1", "q, 2"]
    assert domain.features.tolist() == ["u", "1", "2.5"]


@pytest.mark.parametrize("dtype", ["int16", "uint8", "bool", "float32"])
def test_all_real_numbers_are_accepted(dtype):
    table = np.array([[0, 1], [1, 1], [1, 0]], dtype=dtype)
    assert one(table).values.dtype == np.float64
    np.testing.assert_array_equal(one(table).values, table)


def test_sparse_is_made_dense():
    table = scipy.sparse.random_array((6, 4), density=0.5, rng=3)
    np.testing.assert_array_equal(one(table).values, table.toarray())


def test_nan_is_missing(x):
    x[1, 2] = np.nan
    for table in (x, pd.DataFrame(x), xr.DataArray(x)):
        domain = one(table)
        assert isinstance(domain.values, np.ma.MaskedArray)
        np.testing.assert_array_equal(domain.missing, np.isnan(x))
        np.testing.assert_array_equal(domain.values.compressed(), x[~np.isnan(x)])


def test_pandas_na_is_missing():
    table = pd.DataFrame({"u": pd.array([1, None, 3], dtype="Int64"), "v": [True, False, True]})
    np.testing.assert_array_equal(one(table).missing, [[False, False], [True, False], [False] * 2])


def test_a_mask_is_kept_whatever_lies_under_it(x):
    x[0, 0], x[1, 1] = np.inf, np.nan
    mask = ~np.isfinite(x)
    domain = one(np.ma.MaskedArray(x, mask))
    np.testing.assert_array_equal(domain.missing, mask)


def test_a_domain_passes_through_under_its_new_name(x):
    domain = as_domains({"b": one(x)})["b"]
    assert isinstance(domain, Domain)
    assert domain.name == "b"


def frame(**columns):
    return pd.DataFrame(columns)


def changed(row, column, value):
    table = np.arange(12.0).reshape(4, 3) ** 2
    table[row, column] = value
    return table


BAD_TABLES = {
    "list": ([[1, 2], [3, 4]], TypeError, "expected a 2-D NumPy array.*type list"),
    "vector": (np.arange(3.0), ValueError, r"expected a 2-D table.*found shape \(3,\)"),
    "cube": (xr.DataArray(np.ones((2, 2, 2))), ValueError, r"found shape \(2, 2, 2\)"),
    "no objects": (np.ones((0, 3)), ValueError, "found 0 objects .* by 3 features"),
    "no features": (np.ones((3, 0)), ValueError, "found 3 objects .* by 0 features"),
    "one object": (np.ones((1, 3)), ValueError, "at least two objects .*; found one"),
    "complex": (np.ones((2, 2)) * 1j, TypeError, "real numbers; found dtype complex128$"),
    "object": (np.ones((2, 2), object), TypeError, r"found dtype object \(.*astype\(float\)"),
    "text array": (np.array([["1", "2"]] * 2), TypeError, "in column 0; found text.*'1' in row 0"),
    "text in objects": (
        np.array([[1, 2], [3, "four"]], object),
        TypeError,
        "expected numbers in column 1; found text, for example 'four' in row 1",
    ),
    "text column": (
        pd.DataFrame({"u": [1, 2], "v": [3, "four"]}, index=["x", "y"]),
        TypeError,
        "expected numbers in column 'v'; found text, for example 'four' in row 'y'",
    ),
    "dates": (
        frame(u=[1, 2], v=pd.to_datetime(["2020-01-01", "2021-01-01"])),
        TypeError,
        "expected real numbers in column 'v'; found dtype datetime64",
    ),
    "complex column": (
        frame(u=[1, 2], v=[1j, 2]),
        TypeError,
        "expected real numbers in column 'v'; found dtype complex128",
    ),
    "infinite": (
        pd.DataFrame(changed(1, 2, -np.inf), index=list("wxyz"), columns=list("abc")),
        ValueError,
        r"1 infinite value, the first \(-inf\) in row 'x', column 'c'",
    ),
    "too large to be squared": (
        changed(1, 2, 1e155),
        ValueError,
        r"1 excessive value, the first \(1e\+155\) in row 1, column 2",
    ),
    "nan beside a mask": (
        np.ma.MaskedArray(changed(2, 0, np.nan), changed(0, 0, 0) > 100),
        ValueError,
        "a mask that covers every missing .*; found 1 NaN value, the first .* in row 2, column 0",
    ),
    "constant column": (
        np.c_[np.arange(4.0), np.full(4, 2.5), np.ones(4)],
        ValueError,
        r"column 1: expected values that differ.*; found 2.5 everywhere \(as in 1 other column\)",
    ),
    "constant but for missing": (
        np.array([[1, 2], [np.nan, 3], [1, 4]]),
        ValueError,
        "column 0: expected values that differ.*; found 1 everywhere",
    ),
    "missing column": (
        changed(slice(None), 1, np.nan),
        ValueError,
        "column 1: expected an observed",
    ),
    "missing row": (
        changed(3, slice(None), np.nan),
        ValueError,
        "row 3: expected an observed value; found none",
    ),
    "duplicate rows": (
        pd.DataFrame(changed(0, 0, 0), index=list("wxyx")),
        ValueError,
        "unique row labels; found 'x' more than once",
    ),
    "duplicate columns": (
        pd.DataFrame(changed(0, 0, 0), columns=list("uvu")),
        ValueError,
        "unique column labels; found 'u' more than once",
    ),
    "duplicate as text": (
        pd.DataFrame(changed(0, 0, 0), columns=["1", 1, "u"]),
        ValueError,
        "unique column labels; found '1' more than once",
    ),
    "no label": (
        pd.DataFrame(changed(0, 0, 0), index=["w", "x", None, "z"]),
        ValueError,
        r"expected a label of every row; found none of row number 2 \(from 0\)",
    ),
}


@pytest.mark.parametrize(("table", "error", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_bad_table(table, error, message):
    with pytest.raises(error, match=f"^domain 'left': .*{message}"):
        as_domains({"right": changed(0, 0, 0), "left": table})


BAD_NAMES = {
    "number": ([3], TypeError, "domain 3: expected a string"),
    "space": (["my data"], ValueError, "'my data'.*expected an identifier"),
    "digit": (["2024"], ValueError, "'2024'.*expected an identifier"),
    "empty": ([""], ValueError, "''.*expected an identifier"),
    "variable": (["weights"], ValueError, "found 'weights', which it uses itself"),
    "dim": (["factor"], ValueError, "found 'factor', which it uses itself"),
    "sampling dim": (["draw"], ValueError, "found 'draw', which it uses itself"),
    "links": (["links_2"], ValueError, "found 'links_2', which it uses itself"),
    "another's cluster": (["a", "cluster_a"], ValueError, "second 'cluster_a' .*domain 'a'"),
    "another's dim": (["a_object", "a"], ValueError, "second 'a_object' .*domain 'a_object'"),
    "another's missing": (["a", "a_unobserved"], ValueError, "second 'a_unobserved'"),
}


@pytest.mark.parametrize(("names", "error", "message"), BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_name(names, error, message, x):
    with pytest.raises(error, match=message):
        as_domains(dict.fromkeys(names, x))


def test_other_tables_are_to_be_made_dataframes():
    table = xr.Dataset({"p": ("row", [1.0, 2.0]), "q": ("row", [3.0, 1.0])})
    with pytest.raises(TypeError, match=r"type Dataset: say table.to_pandas\(\)$"):
        as_domains({"a": table})
    assert as_domains({"a": table.to_pandas()})["a"].n_features == 2


def test_tables_of_dask_are_to_be_computed():
    frames = pytest.importorskip("dask.dataframe")
    table = frames.from_pandas(pd.DataFrame({"p": [1.0, 2.0, 3.0], "q": [3.0, 1.0, 1.0]}))
    for own in (table, table.to_dask_array(lengths=True)):
        with pytest.raises(TypeError, match=r"(DataFrame|Array): say table.compute\(\)$"):
            as_domains({"a": own})


def test_domains_must_be_a_mapping_of_at_least_one(x):
    with pytest.raises(TypeError, match=r"expected a mapping .* found an object of type list"):
        as_domains([x])
    with pytest.raises(ValueError, match="expected at least one domain; found none"):
        as_domains({})
