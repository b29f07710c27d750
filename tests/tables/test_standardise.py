"""Standardised columns, and principal components."""

import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.tables.standardise import _Components


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


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (
            np.column_stack([table()[:, 0], np.ones(30)]),
            None,
            "column 1: expected values that differ",
        ),
        (table(), 0, "n_components: expected a whole number of at least 1; found 0"),
    ],
    ids=["constant", "none"],
)
def test_bad_tables(x, n, message):
    with pytest.raises(ValueError, match=message):
        pmm.standardise({"a": x}, n_components=n)


def factors(seed=0, missing=0.2):
    """Values of twelve columns that three factors make, and the same with holes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12)) * 3.0
    x = x + 0.5 * rng.normal(size=(200, 12)) + 4.0
    return x, np.where(rng.random(x.shape) < missing, np.nan, x)


def test_components_of_what_has_holes_are_those_of_the_whole():
    x, holed = factors()
    whole, found = (pmm.standardise({"a": own}, 3)["a"].to_numpy() for own in (x, holed))
    assert np.isfinite(found).all()
    middle = pmm.standardise({"a": np.where(np.isnan(holed), np.nanmean(holed, 0), holed)}, 3)["a"]
    alike = [
        np.abs(np.corrcoef(own.T, whole.T)[:3, 3:]).diagonal().min()
        for own in (found, middle.to_numpy())
    ]
    assert alike[0] > 0.995 > alike[1] + 0.02  # means for holes do worse


def test_holes_are_filled_by_the_conditional_mean():
    """Against the regression that the covariance of the whole table says."""
    _, holed = factors(1)
    x = holed - np.nanmean(holed, axis=0)
    found = _Components.of(x, 3)
    covariance = found.axes.T @ np.diag(found.lengths**2) @ found.axes
    covariance += found.noise**2 * np.eye(12)
    filled = found.filled(x)
    for row, own in zip(x, filled, strict=True):
        seen = ~np.isnan(row)
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, ~seen)])
        np.testing.assert_allclose(own[~seen], row[seen] @ weights, atol=1e-9)
        np.testing.assert_array_equal(own[seen], row[seen])


def test_new_objects_with_holes_are_like_the_old():
    _, holed = factors(2)
    old = pmm.standardise({"a": holed}, 3)["a"]
    new = pmm.standardise({"a": holed[:7]}, 3, like={"a": holed})["a"]
    np.testing.assert_allclose(new, old[:7])
