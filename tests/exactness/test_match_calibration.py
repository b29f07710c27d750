"""Probabilities of matches are what they say they are."""

import numpy as np
import pytest

from tests.exactness.match_calibration import calibration, make_simulator, reliability

KINDS = ("match", "within", "unmatched")


@pytest.fixture(scope="module")
def table():
    return calibration(make_simulator(31), 200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_of_what_has_probability_p_a_fraction_p_is_true(table, kind):
    found = reliability(table[table["kind"] == kind], n_bins=5)
    found = found[found["simulations"] >= 20]
    assert len(found) >= 3
    # Five bins, three kinds: beyond 4 errors once in about a thousand such suites.
    assert found["z"].abs().max() < 4, found
    assert (found["frequency"].diff().dropna() > 0).all()


@pytest.mark.slow
def test_probabilities_that_are_too_sure_are_seen(table):
    match = table[table["kind"] == "match"].copy()
    odds = np.square(match["probability"] / (1 - match["probability"]).clip(1e-9))
    match["probability"] = odds / (1 + odds)
    assert reliability(match, n_bins=5)["z"].abs().max() > 4
