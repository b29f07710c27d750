"""The hinge as a distribution: density, gradient, draws, labels as users give them."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.optimize import approx_fprime

import pm_match as pmm
from pm_match.reading.probe import evaluate
from pm_match.views.hinge import fourier_values, read_hinge

X = np.random.default_rng(0).normal(size=(9, 3))
Y = np.array([1, -1, 1, np.nan, 1, -1, -1, np.nan, 1])
CODES = np.array([0, 1, 2, -1, 2, 2, 0, 1, -1])


def binary(observed=Y, C=0.7, **kwargs):
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=3)
        pmm.Hinge("label", X @ w, C, observed=observed, **kwargs)
    return model


def classes(observed=CODES, C=0.7):
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0, shape=(3, 3))
        pmm.Hinge("label", X @ w, C, observed=observed)
    return model


# Interpreted: compiling takes longer than all the rest.
PLAIN = "FAST_COMPILE"


def log_likelihood(model, w, mode=PLAIN):
    logp = model.logp(vars=[model["label"]], sum=False)[0]
    return model.compile_fn(logp, mode=mode)({"w": w})


@pytest.mark.compiled
def test_log_probability_is_the_formula():
    w = np.array([0.5, -1.2, 2.0])
    found = log_likelihood(binary(), w, mode=None)
    expected = -2.0 * 0.7 * np.maximum(0.0, 1.0 - Y * (X @ w))
    np.testing.assert_allclose(found, np.where(np.isnan(Y), 0.0, expected))
    assert (found < 0.0).sum() > 3


def test_log_probability_of_classes_is_one_against_the_rest():
    w = np.random.default_rng(1).normal(size=(3, 3))
    found = log_likelihood(classes(), w)
    expected = np.zeros(9)
    for n, code in enumerate(CODES):
        for k in range(3):
            if code >= 0:
                sign = 1.0 if k == code else -1.0
                expected[n] -= 1.4 * max(0.0, 1.0 - sign * (X @ w)[n, k])
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("make", [binary, classes])
def test_gradient(make):
    model = make()
    start = np.random.default_rng(2).normal(size=model.initial_point()["w"].shape)
    logp, dlogp = model.compile_logp(mode=PLAIN), model.compile_dlogp(mode=PLAIN)
    expected = approx_fprime(start.ravel(), lambda w: logp({"w": w.reshape(start.shape)}), 1e-7)
    np.testing.assert_allclose(dlogp({"w": start}), expected, atol=1e-5)


def test_c_may_be_random():
    with pm.Model() as model:
        C = pm.Gamma("C", 2.0, 2.0)
        pmm.Hinge("label", X[:, 0], C, observed=Y)
    gradient = model.compile_dlogp(mode=PLAIN)
    logp = model.compile_logp(mode=PLAIN)
    expected = (logp({"C_log__": 0.3 + 1e-6}) - logp({"C_log__": 0.3 - 1e-6})) / 2e-6
    np.testing.assert_allclose(gradient({"C_log__": np.array(0.3)}), expected, rtol=1e-6)


def test_draws_are_of_the_normalised_pseudo_likelihood():
    score = np.array([-2.0, -0.4, 0.0, 0.3, 3.0])
    drawn = pm.draw(pmm.Hinge.dist(score, 0.6), 20_000, random_seed=1)
    upper = np.exp(-1.2 * np.maximum(0.0, 1.0 - score))
    lower = np.exp(-1.2 * np.maximum(0.0, 1.0 + score))
    assert set(np.unique(drawn)) == {-1, 1}
    np.testing.assert_allclose((drawn > 0).mean(0), upper / (upper + lower), atol=0.015)


def test_draws_of_classes():
    score = np.array([[0.0, 0.5, -0.5], [3.0, -2.0, 0.2]])
    drawn = pm.draw(pmm.Hinge.dist(score, 0.6), 20_000, random_seed=1)
    for n in range(2):
        weights = np.empty(3)
        for k in range(3):
            sign = np.where(np.arange(3) == k, 1.0, -1.0)
            weights[k] = np.exp(-1.2 * np.maximum(0.0, 1.0 - sign * score[n]).sum())
        found = np.bincount(drawn[:, n], minlength=3) / len(drawn)
        np.testing.assert_allclose(found, weights / weights.sum(), atol=0.015)


@pytest.mark.parametrize(
    "observed",
    [
        list(Y),
        pd.Series(Y),
        np.ma.masked_invalid(Y),
        np.ma.MaskedArray(Y == 1, np.isnan(Y)),
        [None if np.isnan(y) else y == 1 for y in Y],
        [np.nan if np.isnan(y) else bool(y == 1) for y in Y],
        [None if np.isnan(y) else int(y) for y in Y],
        pd.Series(Y, dtype="Int64"),
        pd.Series([pd.NA if np.isnan(y) else y == 1 for y in Y], dtype="boolean"),
    ],
    ids=["list", "series", "masked", "masked booleans", "booleans and None", "booleans and NaN",
         "numbers and None", "numbers and NA", "booleans and NA"],
)  # fmt: skip
def test_labels_may_come_in_many_ways(observed):
    model = binary(observed)
    assert [rv.name for rv in model.free_RVs] == ["w"]
    value = model.rvs_to_values[model["label"]].data
    np.testing.assert_array_equal(value, np.nan_to_num(Y))


def test_labels_may_be_replaced():
    with pm.Model() as model:
        labels = pm.Data("labels", np.array([1, -1, 0, 1, 1, -1, 1, 1, 1]))
        pmm.Hinge("label", X[:, 0], observed=labels)
    logp = model.compile_logp(mode=PLAIN)
    before = logp({})
    with model:
        pm.set_data({"labels": -np.ones(9, np.int64)})
    assert logp({}) == pytest.approx(-2.0 * np.maximum(0.0, 1.0 + X[:, 0]).sum())
    assert logp({}) != before


def test_unlabelled_classes_as_nan():
    numbers = np.where(CODES < 0, np.nan, CODES)
    for observed in (numbers, pd.Series(numbers, dtype="Int64"), [*CODES[:3], None, *CODES[4:]]):
        model = classes(observed)
        np.testing.assert_array_equal(model.rvs_to_values[model["label"]].data, CODES)


def test_nobody_may_be_labelled():
    for observed in ([None] * 9, np.full(9, np.nan), np.ma.MaskedArray(np.ones(9), np.ones(9))):
        model = binary(observed)
        np.testing.assert_array_equal(model.rvs_to_values[model["label"]].data, np.zeros(9))


def test_it_is_read_from_a_copy():
    parts = read_hinge(classes().copy()["label"])
    assert parts is not None
    assert parts.classes
    assert read_hinge(binary()["label"]).classes is False
    assert read_hinge(binary()["w"]) is None


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: binary(np.array([0, 1] * 4 + [1])), ValueError, "found 0. Pass booleans"),
        (lambda: binary(np.array([1, -1] * 4 + [2])), ValueError, "labels -1 and \\+1; found 2"),
        (lambda: binary(np.array([1, -1] * 4 + [0.5])), ValueError, "whole numbers; found 0.5"),
        (lambda: binary(np.array([1, -1] * 4 + [np.inf])), ValueError, "found inf"),
        (lambda: binary(np.array(["a", "b", "a"] * 3)), TypeError, "or booleans; found dtype"),
        (lambda: binary(np.array(["1", "-1", "1"] * 3)), TypeError, "or booleans; found dtype"),
        (lambda: binary(np.ones((9, 1))), ValueError, "one label for each object"),
        (lambda: binary(np.ones(8)), ValueError, "expected 9 labels, one for each score; found 8"),
        (lambda: binary(C=0.0), ValueError, "C to be positive and finite; found 0"),
        (lambda: binary(C=np.inf), ValueError, "C to be positive and finite"),
        (lambda: binary(C=np.ones(2)), ValueError, "expected one C"),
        (lambda: classes(np.arange(9)), ValueError, "found 3"),
        (lambda: classes(np.array(["a"] * 9)), TypeError, "codes of classes"),
        (lambda: pmm.Hinge.dist(np.ones((2, 2, 2))), ValueError, "found 3 dimensions"),
        (lambda: pmm.Hinge.dist(np.ones((2, 1))), ValueError, r"score\[:, 0\]"),
        (lambda: pmm.fourier_features(np.ones(3), np.ones((2, 3))), ValueError, "latent to be a"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_fourier_features_are_waves_and_a_constant():
    rng = np.random.default_rng(3)
    latent, frequencies = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    angles = latent @ frequencies.T
    expected = np.column_stack(
        [np.cos(angles) / np.sqrt(3.0), np.sin(angles) / np.sqrt(3.0), np.ones(4)]
    )
    np.testing.assert_allclose(evaluate(pmm.fourier_features(latent, frequencies)), expected)
    np.testing.assert_allclose(fourier_values(latent, frequencies), expected, rtol=1e-14)
