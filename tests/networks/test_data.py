"""Networks as users have them: every form reads the same, and every mistake is named."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import xarray as xr

from pm_match.networks.data import Network, as_network, cell_numbers, count_cells

DENSE = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0], [0.0, 3.0, 0.0], [4.0, 0.0, 0.0]])
ROWS, COLS, VALUES = [2, 0, 1, 3], [1, 1, 0, 0], [3, 2, 1, 4]
ROW_NAMES, COL_NAMES = ["a", "b", "c", "d"], ["x", "y", "z"]


def counts(observed, **kwargs):
    return as_network("net", observed, family="poisson", **kwargs)


@pytest.mark.parametrize(
    "observed",
    [
        sp.csr_array(DENSE),
        sp.csc_matrix(DENSE),
        sp.coo_matrix((VALUES, (ROWS, COLS)), shape=(4, 3)),
        # A stored zero says nothing when absent cells are zeros.
        sp.coo_array(([*VALUES, 0], ([*ROWS, 3], [*COLS, 2])), shape=(4, 3)),
        DENSE,
        DENSE.astype(np.int16),
        np.ma.MaskedArray(DENSE, np.zeros_like(DENSE, bool)),
        pd.DataFrame(DENSE),
        xr.DataArray(DENSE),
        (np.column_stack([ROWS, COLS]), VALUES),
        ((ROWS, COLS), np.array(VALUES, float)),
        (((*ROWS, 0), (*COLS, 0)), [*VALUES, 0]),
    ],
    ids=lambda observed: type(observed).__name__,
)
def test_every_form_reads_the_same(observed):
    network = counts(observed, shape=(4, 3))
    assert network.shape == (4, 3)
    assert network.absent == "zero"
    assert network.index.tolist() == [[0, 1], [1, 0], [2, 1], [3, 0]]
    assert network.values.tolist() == [2, 1, 3, 4]
    assert network.index.dtype == np.int64
    assert network.values.dtype == network.table.dtype == np.float64
    assert network.unknown.shape == (0, 2)
    assert network.table.tolist()[2] == [2, 1, 3]
    assert [list(label) for label in network.labels] == [[0, 1, 2, 3], [0, 1, 2]]
    again = counts(network, shape=(4, 3))
    assert np.array_equal(again.table, network.table)


def test_labels_are_kept():
    frame = pd.DataFrame(DENSE, index=ROW_NAMES, columns=COL_NAMES)
    array = xr.DataArray(DENSE, coords={"row": ROW_NAMES, "col": COL_NAMES}, dims=("row", "col"))
    for observed in (frame, array):
        network = counts(observed)
        assert [list(label) for label in network.labels] == [ROW_NAMES, COL_NAMES]


def test_a_table_without_values_lists_edges_and_needs_no_shape():
    network = as_network("net", ((ROWS, COLS), None))
    assert network.shape == (4, 2)
    assert network.values.tolist() == [1, 1, 1, 1]
    assert as_network("net", ((ROWS, COLS), None), one_mode=True).shape == (4, 4)


def test_three_axes():
    dense = np.zeros((2, 3, 4))
    dense[1, 0, 3] = dense[0, 2, 1] = 1
    dense[1, 2, 2] = np.nan
    network = as_network("net", dense)
    assert network.index.tolist() == [[0, 2, 1], [1, 0, 3]]
    assert network.unknown.tolist() == [[1, 2, 2]]
    table = as_network("net", (np.array([[1, 0, 3], [0, 2, 1]]), None), shape=dense.shape)
    assert np.array_equal(table.table, network.table)


def test_unknown_cells_are_nan_or_masked():
    nan = DENSE.copy()
    nan[[0, 2], [0, 1]] = np.nan
    masked = np.ma.MaskedArray(DENSE, np.isnan(nan))
    for observed in (nan, masked, pd.DataFrame(nan), xr.DataArray(nan)):
        network = counts(observed)
        assert network.unknown.tolist() == [[0, 0], [2, 1]]
        assert network.index.tolist() == [[0, 1], [1, 0], [3, 0]]


def test_what_a_mask_hides_is_not_looked_at():
    data = DENSE.copy()
    data[0, 0] = -1.5
    assert counts(np.ma.MaskedArray(data, data < 0)).unknown.tolist() == [[0, 0]]


def test_the_shorter_list_is_kept():
    mostly = np.full((3, 4), np.nan)
    mostly[0, 1], mostly[2, 2] = 1, 0
    network = as_network("net", mostly)
    assert network.absent == "unknown"
    assert network.index.tolist() == [[0, 1], [2, 2]]
    assert network.values.tolist() == [1, 0]
    assert len(network.unknown) == 0


def test_absent_cells_may_be_unknown():
    for observed in (
        sp.coo_array(([1, 0], ([0, 2], [1, 2])), shape=(3, 4)),
        (((0, 2), (1, 2)), [1, 0]),
    ):
        network = as_network("net", observed, shape=(3, 4), absent="unknown")
        assert network.absent == "unknown"
        assert network.values.tolist() == [1, 0]
    whole = as_network("net", np.eye(2), absent="unknown")
    assert whole.values.tolist() == [1, 0, 0, 1]


LONG = pd.DataFrame(
    {"user": ["bo", "al", "bo"], "tag": ["z", "z", "y"], "n": [1, 2, 3], "when": [0.1, 0.2, 0.3]}
)


def test_long_form():
    network = counts(LONG, columns=("user", "tag", "n"))
    assert [list(label) for label in network.labels] == [["al", "bo"], ["y", "z"]]
    assert network.table.tolist() == [[0, 1, 2], [1, 0, 3], [1, 1, 1]]
    edges = as_network("net", LONG, columns=("user", "tag"))
    assert edges.values.tolist() == [1, 1, 1]
    categories = LONG.astype({"user": "category"})
    assert counts(categories, columns=("user", "tag", "n")).table.tolist() == network.table.tolist()


def test_long_form_with_positions_and_with_labels_of_all_objects():
    places = LONG.assign(user=[1, 0, 1])
    network = counts(places, columns=("user", "tag", "n"), shape=(5, 3), labels=(None, list("xyz")))
    assert network.table.tolist() == [[0, 2, 2], [1, 1, 3], [1, 2, 1]]
    assert list(network.labels[1]) == ["x", "y", "z"]
    # Whole numbers are looked up among labels that are whole numbers.
    years = LONG.assign(user=[2002, 2001, 2002])
    network = counts(years, columns=("user", "tag", "n"), labels=([2003, 2002, 2001], None))
    assert network.index[:, 0].tolist() == [1, 1, 2]


def test_one_mode_labels_are_shared():
    frame = pd.DataFrame({"from": ["c", "a"], "to": ["a", "b"]})
    network = as_network("net", frame, columns=("from", "to"), one_mode=True)
    assert list(network.labels[0]) == list(network.labels[1]) == ["a", "b", "c"]
    assert network.index.tolist() == [[0, 1], [2, 0]]


SYMMETRIC = np.array([[0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 1], [0, 1, 1, 0]], float)


@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.coo_matrix, pd.DataFrame])
@pytest.mark.parametrize("triangle", [lambda x: x, np.triu, np.tril])
def test_symmetric_matrices_are_listed_once(form, triangle):
    network = as_network("net", form(triangle(SYMMETRIC)), symmetric=True)
    assert network.index.tolist() == [[0, 1], [1, 3], [2, 3]]
    assert network.values.tolist() == [1, 1, 1]


def test_symmetric_tables_list_each_cell_once_in_either_order():
    network = as_network("net", (((1, 3, 2), (0, 1, 3)), None), symmetric=True)
    assert network.index.tolist() == [[0, 1], [1, 3], [2, 3]]


def test_symmetric_unknown_cells():
    both = SYMMETRIC.copy()
    both[0, 2] = both[2, 0] = np.nan
    lower_not_given = SYMMETRIC.copy()
    lower_not_given[np.tril_indices(4, -1)] = np.nan
    lower_not_given[0, 2] = np.nan
    for observed in (both, lower_not_given, np.triu(both), np.tril(both)):
        network = as_network("net", observed, symmetric=True)
        assert network.unknown.tolist() == [[0, 2]]
        assert network.index.tolist() == [[0, 1], [1, 3], [2, 3]]


def test_the_diagonal_is_data_only_if_there_may_be_self_loops():
    loops = SYMMETRIC + np.diag([0, 1, 0, np.nan])
    network = as_network("net", loops, symmetric=True, self_loops=True)
    assert network.index.tolist() == [[0, 1], [1, 1], [1, 3], [2, 3]]
    assert network.unknown.tolist() == [[3, 3]]
    unknown = SYMMETRIC + np.diag([0, np.nan, 0, np.nan])
    assert len(as_network("net", unknown, one_mode=True).unknown) == 0
    sparse = sp.coo_array(([1, 0], ([0, 2], [1, 2])), shape=(3, 3))
    for absent in ("zero", "unknown"):
        assert len(as_network("net", sparse, one_mode=True, absent=absent).index) == 1


def test_a_network_without_edges_is_a_network():
    for observed in (np.zeros((2, 3)), sp.coo_array((2, 3)), (np.empty((0, 2), int), None)):
        network = as_network("net", observed, shape=(2, 3))
        assert network.table.shape == (0, 3)


def test_a_network_read_again_as_symmetric():
    directed = as_network("net", (((0, 2), (1, 0)), None), shape=(3, 3))
    with_unknown = Network(**{**vars(directed), "unknown": np.array([[1, 1], [2, 1]])})
    network = as_network("net", with_unknown, symmetric=True)
    assert network.index.tolist() == [[0, 1], [0, 2]]
    assert network.unknown.tolist() == [[1, 2]]


def test_cells_of_huge_arrays_are_numbered():
    shape = (2**31, 2**31, 2**31)
    first = np.array([[2**30, 5, 7], [0, 0, 1]])
    second = np.array([[0, 0, 1], [2**30, 5, 6]])
    here, there = cell_numbers(shape, first, second)
    assert (here[1] == there[0]) & (here[0] == there[1] + 1)
    network = as_network("net", (first, None), shape=shape)
    assert network.index.tolist() == [[0, 0, 1], [2**30, 5, 7]]


def test_cells_are_counted():
    assert count_cells((3, 4, 2)) == 24
    assert count_cells((3, 3), True) == 6
    assert count_cells((3, 3), True, False, True) == 9
    assert count_cells((3, 3), True, True) == 3
    assert count_cells((3, 3), True, True, True) == 6


def test_memory_is_linear_in_the_cells():
    rng = np.random.default_rng(1)
    n, n_edges = 100_000, 300_000
    edges = np.unique(rng.integers(n * n, size=n_edges))
    rng.shuffle(edges)
    rows, cols = np.divmod(edges, n)
    matrix = sp.coo_array((np.ones(len(edges)), (rows, cols)), shape=(n, n)).tocsr()
    for observed in (((rows, cols), None), matrix):
        tracemalloc.start()
        network = as_network("net", observed, shape=(n, n))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(network.index) == len(edges)
        assert peak < 120 * len(edges)


def bad(observed, error, message, **kwargs):
    return pytest.param(observed, kwargs, error, message, id=message)


UNEVEN = SYMMETRIC.copy()
UNEVEN[0, 3] = 1
WEIGHTED = SYMMETRIC * 2
WEIGHTED[1, 3] = 3
HALF_KNOWN = SYMMETRIC.copy()
HALF_KNOWN[3, 1] = np.nan


@pytest.mark.parametrize(
    ("observed", "kwargs", "error", "message"),
    [
        bad([[0, 1], [1, 0]], TypeError, "expected a SciPy sparse .* found an object of type list"),
        bad(DENSE, ValueError, r"expected 0 or 1 .*; found 2 at cell \(0, 1\) \(counts have fam"),
        bad(DENSE / 2, ValueError, r"found 0\.5 at cell \(1, 0\)", family="poisson"),
        bad(-DENSE, ValueError, r"whole numbers of at least 0 .* found -2 at", family="poisson"),
        bad(sp.csr_array(-DENSE), ValueError, r"found -2 at cell \(0, 1\)", family="poisson"),
        bad(DENSE / 2, ValueError, "whole numbers of at least 0", family="negative-binomial"),
        bad(np.full((2, 2), np.inf), ValueError, "finite numbers .*inf", family="normal"),
        bad(np.full((2, 2), 1e200), ValueError, r"at most 1e\+100 .*1e\+200", family="normal"),
        bad(
            pd.DataFrame(DENSE, ROW_NAMES, COL_NAMES),
            ValueError,
            r"found 2 at cell \('a', 'y'\)",
        ),
        bad(sp.csr_array([[0, np.nan]]), ValueError, r"found nan at cell \(0, 1\)\. Leave an unk"),
        bad(
            (((0,), (1,)), [np.nan]), ValueError, r"found nan .*absent=\"unknown\"", family="normal"
        ),
        bad((((0, 1), (1, 1)), np.ma.masked_equal([1, 0], 0)), ValueError, "found masked values"),
        bad(
            (((0, -1), (1, 1)), None),
            ValueError,
            r"positions of 2 objects .* on axis 0; found -1",
            shape=(2, 2),
        ),
        bad(
            (((0, 1), (1, 2)), None),
            ValueError,
            r"2 objects \(0 to 1\) on axis 1; found 2, in",
            shape=(2, 2),
        ),
        bad((((0.0, 1.0), (1, 2)), None), TypeError, "positions; found dtype float64"),
        bad((((0, 1), (1,)), None), ValueError, r"vectors of one length; found shapes \[\(2,\)"),
        bad((np.zeros(3, int), None), ValueError, r"index of shape .* found shape \(3,\)"),
        bad((np.zeros((3, 1), int), None), ValueError, r"two or more axes.* found shape \(3, 1\)"),
        bad((np.zeros((3, 2), int),), ValueError, "found a 1-tuple"),
        bad((((0, 1), (1, 0)), [1]), ValueError, r"each of 2 cells; found shape \(1,\)"),
        bad(np.eye(2, dtype=object), TypeError, r"dtype object \(if .*, convert it with astype\(f"),
        bad((((0, 1), (1, 0)), ["x", "y"]), TypeError, "real numbers; found dtype <U1"),
        bad(
            (np.empty((0, 2), int), None),
            ValueError,
            "expected a shape with a table that lists no cell",
        ),
        bad(
            (np.array([[0, 1, 2]]), None),
            ValueError,
            "expected 2 index columns.*found 3",
            shape=(3, 3),
        ),
        bad(
            (((1, 0, 1, 0), (1, 0, 1, 0)), None),
            ValueError,
            r"each cell once; found \(0, 0\) more than once \(and 1 other repetitions\)$",
        ),
        bad(
            (((1, 0), (0, 1)), None),
            ValueError,
            r"found \(0, 1\) more than once, counting",
            symmetric=True,
        ),
        bad(
            sp.coo_array(([1, 1], ([0, 0], [1, 1])), shape=(2, 2)),
            ValueError,
            r"each cell once; found \(0, 1\)",
        ),
        bad(DENSE, ValueError, r"expected 3 × 4 objects .* found shape \(4, 3\)", shape=(3, 4)),
        bad(np.zeros(3), ValueError, r"two or more axes; found shape \(3,\)"),
        bad(np.zeros((3, 0)), ValueError, r"found none on axis 1 \(shape \(3, 0\)\)"),
        bad(
            np.full((2, 2), np.nan), ValueError, "at least one known cell; found none .* 2 × 2 obj"
        ),
        bad(np.zeros((1, 1)), ValueError, "none .*its diagonal is not data", one_mode=True),
        bad(
            (np.empty((0, 2), int), None),
            ValueError,
            "at least one known cell",
            shape=(2, 2),
            absent="unknown",
        ),
        bad(DENSE, ValueError, r"a square matrix, .*; found shape \(4, 3\)", one_mode=True),
        bad(
            UNEVEN, ValueError, r"symmetric .*found 1 at \(0, 3\) and 0 at \(3, 0\)", symmetric=True
        ),
        bad(
            sp.csr_array(UNEVEN),
            ValueError,
            r"found 1 at \(0, 3\) and nothing at \(3, 0\)",
            symmetric=True,
        ),
        bad(
            sp.csr_array(UNEVEN.T),
            ValueError,
            r"found nothing at \(0, 3\) and 1 at \(3, 0\)",
            symmetric=True,
        ),
        bad(
            sp.csr_array(WEIGHTED),
            ValueError,
            r"found 3 at \(1, 3\) and 2 at \(3, 1\)",
            symmetric=True,
            family="poisson",
        ),
        bad(HALF_KNOWN, ValueError, r"found 1 at \(1, 3\) and nan at \(3, 1\)", symmetric=True),
        bad(np.eye(3), ValueError, r"no self-loops; found one \(1\) of object 0", one_mode=True),
        bad(
            pd.DataFrame(np.eye(2), list("ab"), list("ab")),
            ValueError,
            "of object 'a'",
            symmetric=True,
        ),
        bad(
            (((0, 2), (1, 2)), None), ValueError, "self-loops; found one .*object 2", one_mode=True
        ),
        bad(
            pd.DataFrame(np.eye(2), list("ab"), list("ba")),
            ValueError,
            "same order, .*; found 'a' and 'b' at position 0",
            one_mode=True,
        ),
        bad(np.array([["a", "b"]]), TypeError, "real numbers; found dtype <U1"),
        bad(
            pd.DataFrame({"a": [1], "b": ["x"]}),
            TypeError,
            "column 'b': expected numbers; found dtype .*long form",
        ),
        bad(
            np.zeros((2, 2)),
            TypeError,
            "with `columns`; found an object of type ndarray",
            columns=("a", "b"),
        ),
        bad(
            LONG,
            ValueError,
            "no column 'film'; there are",
            columns=("user", "film"),
        ),
        bad(
            LONG,
            ValueError,
            "each of 2 axes, then perhaps",
            columns=("user", "tag", "n", "when"),
            shape=(2, 2),
        ),
        bad(
            LONG,
            TypeError,
            "column 'when': expected positions .*; found dtype float64",
            columns=("user", "when"),
        ),
        bad(
            LONG,
            TypeError,
            "column 'tag': expected numbers; found dtype",
            columns=("user", "n", "tag"),
            shape=(2, 4),
        ),
        bad(
            LONG.assign(user=["bo", None, "al"]),
            ValueError,
            "'user', row 1: expected a label",
            columns=("user", "tag"),
        ),
        bad(
            LONG,
            ValueError,
            "all 3 objects in column 'user'; found 2",
            columns=("user", "tag"),
            shape=(3, 2),
        ),
        bad(
            LONG,
            ValueError,
            "labels of the 2 objects in column .* found 'al'",
            columns=("user", "tag"),
            labels=(["bo", "cy"], None),
        ),
        bad(
            LONG,
            ValueError,
            "different labels of objects; found 'bo' twice",
            columns=("user", "tag"),
            labels=(["bo", "bo"], None),
        ),
        bad(
            LONG,
            ValueError,
            "labels for 2 axes; found 1",
            columns=("user", "tag"),
            labels=(["bo"],),
        ),
        bad(
            LONG,
            ValueError,
            "labels for 2 axes; found 1",
            columns=("user", "tag"),
            labels=(["bo"],),
            shape=(2, 2),
        ),
        bad(
            LONG, TypeError, "positions in one of the columns", columns=("user", "n"), one_mode=True
        ),
        bad(LONG.assign(n=[1, np.nan, 2]), ValueError, "found nan", columns=("user", "tag", "n")),
        bad(DENSE, ValueError, "family: expected .* found 'gamma'", family="gamma"),
        bad(DENSE, ValueError, "absent: expected .* found 'one'", absent="one"),
    ],
)
def test_bad_networks(observed, kwargs, error, message):
    with pytest.raises(error, match=message) as raised:
        as_network("net", observed, **kwargs)
    assert str(raised.value).startswith("network 'net': ")
