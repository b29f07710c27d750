"""Logs in vector instructions: those of the C library, to the last bits."""

import numpy as np
import pytest

from pm_match.numerics.kernels import entry
from pm_match.numerics.logs import log_of_one_and


@entry
def fill(x, out):
    for i in range(x.shape[0]):
        out[i] = log_of_one_and(x[i])


def found(x):
    out = np.empty(len(x))
    fill(x, out)
    return out


@pytest.mark.parametrize(("low", "high"), [(-300, -17), (-17, 0), (-1, 1), (0, 20), (20, 300)])
def test_logs_of_one_and_something(low, high):
    x = 10.0 ** np.random.default_rng(0).uniform(low, high, 10_000)
    np.testing.assert_allclose(found(x), np.log1p(x), rtol=1e-15)


def test_where_the_mantissa_turns_over():
    x = np.array([np.sqrt(2.0) - 1.0, 2.0 * np.sqrt(2.0) - 1.0, 1.0, 3.0, 2.0**52, 1e17])
    near = np.concatenate([x, np.nextafter(x, 0.0), np.nextafter(x, np.inf)])
    np.testing.assert_allclose(found(near), np.log1p(near), rtol=1e-15)


def test_nothing_and_what_is_no_number():
    assert found(np.zeros(1))[0] == 0.0
    assert found(np.array([np.inf]))[0] > 700.0
    assert np.isnan(found(np.array([np.nan]))[0])
