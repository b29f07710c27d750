"""Warnings point at the user's line."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.checks import warn


@pytest.mark.parametrize(
    "call",
    [
        pmm.prepare,
        partial(pmm.match, draws=2, tune=2, chains=1, random_seed=1, progressbar=False),
    ],
)
def test_warnings_are_of_the_line_that_called_us(call):
    """Whichever function warns, and whatever wraps it."""
    tables = {
        name: pd.DataFrame({"v": rng.normal(size=6), "number": range(6)})
        for name, rng in (("a", np.random.default_rng(0)), ("b", np.random.default_rng(1)))
    }
    with pytest.warns(UserWarning, match="'number'") as found:
        call(tables)
    assert {own.filename for own in found} == {__file__}


def test_warnings_of_threads_are_at_no_line():
    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("always")
        pool.submit(warn, "something").result()
    (own,) = caught
    assert str(own.message) == "something"
    assert own.filename == "pm_match"


@pytest.mark.parametrize("seed", [-1, 1.5, "one", np.random.RandomState(1)], ids=str)
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (pmm.match, [{}]),
        (pmm.sample, []),
        (pmm.sample_sharded, [None, {}]),
        (pmm.find_matching, []),
        (pmm.initial_points, []),
        (pmm.fit_em, []),
        (pmm.choose_n_factors, [pm.Model, [2]]),
        (pmm.compare_matchings, [{"one": None, "two": None}]),
        (pmm.partition_estimate, [None]),
        (pmm.assign, [None, None, {"a": None}]),
        (pmm.impute, [None, None]),
        (pmm.predict, [None, None]),
    ],
    ids=lambda own: getattr(own, "__name__", ""),
)
def test_bad_seeds_are_refused_before_all_else(function, given, seed):
    with (
        pm.Model(),
        pytest.raises(ValueError, match="random_seed: expected a whole number of at least 0, "),
    ):
        function(*given, random_seed=seed)


@pytest.mark.parametrize("function", [pmm.sample, pmm.find_matching, pmm.fit_em])
@pytest.mark.parametrize("name", ["chain", "draw", "::draw"])
def test_variables_that_are_called_as_dims_of_draws_are_refused(function, name):
    with pm.Model(name="shop" * name.startswith("::")):
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=4)
        rate = pm.Gamma(name.strip(":"), 1.0, 1.0, shape=3)
        pm.Poisson("counts", rate[cluster], observed=[0, 1, 9, 8])
        with pytest.raises(ValueError, match=rf"other than 'chain' and 'draw', .*{name}': rename"):
            function(random_seed=1)
