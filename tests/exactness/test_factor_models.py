"""Whole linear factor models: updates leave the prior alone; calibration.

After J. Geweke (2004), "Getting it right", JASA 99(467), but from many independent starts, as in A.
Gandy & J. Scott (2020), "Unit testing for MCMC and other Monte Carlo methods"; S. Talts et al.
(2018), "Validating Bayesian inference algorithms with simulation-based calibration".
"""

import dataclasses

import pytest

from pm_match.views.factors import factor_gibbs
from tests.declared.factors import FactorKind, factor_kind_model
from tests.exactness.simulate import uniformity
from tests.exactness.simulate_factors import FactorSimulator

KINDS = {
    "two views, missing": FactorKind(),
    "precisions shared, transposed": FactorKind(
        columns="shared", private="gamma", transposed=True, intercept="first", n_shared=2
    ),
    "noise of features": FactorKind(noise="features", columns="constant", missing=""),
    "complete": FactorKind(missing="", intercept="", n_shared=2),
    "one view, known noise": FactorKind(sizes=((4, 0),), noise="known", n_shared=2),
    "given latent": FactorKind(seen=True),
    "three views": FactorKind(sizes=((2, 0), (3, 1), (2, 2)), private="gamma", noise="features"),
}
QUICK = ("two views, missing", "precisions shared, transposed")


def worst(found) -> float:
    return max(map(abs, found.values()))


@pytest.mark.parametrize("name", QUICK)
def test_updates_leave_the_prior_alone(name):
    found = FactorSimulator(factor_kind_model(KINDS[name]), seed=11).scores(700)
    assert worst(found) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_updates_leave_the_prior_alone_at_length(name):
    found = FactorSimulator(factor_kind_model(KINDS[name]), seed=12).scores(3_000)
    assert worst(found) < 4.5, found


@pytest.mark.slow
def test_wrong_draws_are_caught(monkeypatch):
    """Precisions that count half of the values that they are of."""
    right = factor_gibbs.draw_log_precision

    def wrong(rng, shape, rate, n, squares):
        return right(rng, shape, rate, 0.5 * n, squares)

    monkeypatch.setattr(factor_gibbs, "draw_log_precision", wrong)
    found = FactorSimulator(factor_kind_model(KINDS[QUICK[0]]), seed=13).scores(700)
    assert worst(found) > 6.0, found


# Thinned by as much as loadings and latent vectors take to trade their scale: by less, ranks pile
# up at both ends.
N_SIMULATIONS, N_DRAWS, THIN = 80, 31, 40


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two views, missing", "precisions shared, transposed"])
def test_ranks_are_uniform(name):
    kind = dataclasses.replace(KINDS[name], n_objects=8, sizes=((4, 1), (3, 1)))
    simulator = FactorSimulator(factor_kind_model(kind), seed=21)
    found = simulator.ranks(N_SIMULATIONS, N_DRAWS, THIN)
    p_values = uniformity(found, N_DRAWS)
    # A hundred and fifty quantities: a right sampler falls below this once in some 60 such suites.
    assert min(p_values.values()) > 0.0001, p_values
