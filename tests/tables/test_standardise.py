"""Standardised columns, and principal components."""

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm


def table(seed=0, n=30, m=4):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, m)) @ np.diag([1.0, 10.0, 0.1, 5.0][:m]) + 7.0


def test_columns_get_mean_zero_and_variance_one():
    frame = pd.DataFrame(table(), columns=list("wxyz"), index=[f"o{i}" for i in range(30)])
    frame.iloc[3, 1] = np.nan
    found = pmm.standardise({"a": frame})["a"]
    assert list(found["a_feature"].values) == list("wxyz")
    assert list(found["a_object"].values) == list(frame.index)
    assert np.isnan(found[3, 1])
    np.testing.assert_allclose(np.nanmean(found, axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(found, axis=0), 1.0)
    # Order and signs are kept: only scale and origin change.
    np.testing.assert_allclose(np.corrcoef(found[4:, 0], frame.iloc[4:, 0])[0, 1], 1.0)


def test_principal_components_keep_distances_up_to_one_scale():
    x = table()
    found = pmm.standardise({"a": x}, n_components=4)["a"].to_numpy()
    ratio = np.linalg.norm(found[0] - found[1]) / np.linalg.norm(x[0] - x[1])
    np.testing.assert_allclose(np.linalg.norm(found[2] - found[9]) / np.linalg.norm(x[2] - x[9]),
                               ratio)  # fmt: skip
    variances = found.var(axis=0)
    assert (np.diff(variances) < 0).all()
    np.testing.assert_allclose(variances.mean(), 1.0)
    np.testing.assert_allclose(np.corrcoef(found.T), np.eye(4), atol=1e-10)
    fewer = pmm.standardise({"a": x}, n_components=2)["a"].to_numpy()
    np.testing.assert_allclose(fewer, found[:, :2])


def test_no_more_components_than_the_table_has():
    x = table()
    x[:, 3] = x[:, 0] + x[:, 1]
    assert pmm.standardise({"a": x}, n_components=9)["a"].shape == (30, 3)


def holed():
    x = table()
    x[0, 1] = np.nan
    return x


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (np.column_stack([table()[:, 0], np.ones(30)]), None, "column 1 has one constant value"),
        (holed(), 2, "domain 'a': expected all values for principal components; found 1 missing"),
        (table(), 0, "n_components: expected a whole number of at least 1; found 0"),
    ],
    ids=["constant", "missing", "none"],
)
def test_bad_tables(x, n, message):
    with pytest.raises(ValueError, match=message):
        pmm.standardise({"a": x}, n_components=n)
