"""Whole models of features with emissions of their own: updates leave the prior alone; calibration.

After J. Geweke (2004), "Getting it right", JASA 99(467), but from many independent starts, as in A.
Gandy & J. Scott (2020), "Unit testing for MCMC and other Monte Carlo methods"; S. Talts et al.
(2018), "Validating Bayesian inference algorithms with simulation-based calibration".
"""

import dataclasses

import pytest

import pm_match as pmm
from tests.declared.features import Kind, feature_model
from tests.exactness.simulate import ModelSimulator, check_at_length, uniformity

KINDS = {
    "scaled": Kind(noise="vector"),
    "ard, three domains": Kind(
        domains=3, projection="ard", noise="covariance", sizes=((2, 2), (2, 3), (1, 2))
    ),
    "one domain": Kind(domains=1, projection="transposed", sizes=((4, 3),), intercept=False),
    "rigid, wishart": Kind(projection="rigid", noise="wishart", latent_scale=True),
    "lkj": Kind(noise="lkj"),
    "deviations": Kind(deviations="one", noise="wishart"),
    "deviations of their own": Kind(deviations="vector", latent_scale=True, linked=True),
    "relevance": Kind(relevance="first", deviations="one"),
    "relevance, wishart": Kind(relevance="all", noise="wishart", sizes=((3, 2), (2, 2))),
    "tied": Kind(tied=True, noise="vector", projection="ard"),
    "tied, linked": Kind(tied=True, projection="transposed", linked=True),
    "plain, ard": Kind(tied=True, noise="shared", projection="ard", intercept=False),
    "plain, scaled": Kind(tied=True, noise="shared", intercept=False),
    "constant intercept": Kind(tied=True, noise="shared", intercept="constant"),
    "twice, missing": Kind(tied=True, intercept=False, projection="twice", missing=True),
    "exp": Kind(tied=True, noise="shared", intercept=False, projection="exp"),
    "missing": Kind(missing=True, noise="vector", deviations="one"),
    "missing, wishart": Kind(missing=True, noise="wishart"),
    "missing, rigid": Kind(missing=True, noise="covariance", projection="rigid"),
    "missing, relevance": Kind(missing=True, relevance="first"),
    "missing, relevance, wishart": Kind(
        missing=True, relevance="all", noise="wishart", sizes=((3, 2), (2, 3))
    ),
}
QUICK = ("plain, ard", "missing, wishart")
N_LONG = 4_000


@pytest.mark.parametrize("name", QUICK)
def test_updates_leave_the_prior_alone(name):
    found = ModelSimulator(feature_model(KINDS[name]), seed=11).scores(800)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_updates_leave_the_prior_alone_at_length(name):
    simulator = ModelSimulator(feature_model(KINDS[name]), seed=12)
    if name in ("deviations", "tied"):
        # Each step must leave a whole point behind, whichever comes last.
        simulator.steps.reverse()
    check_at_length(simulator, N_LONG)


@pytest.mark.slow
def test_a_wrong_prior_is_caught():
    """A step that believes in another prior mean of intercepts than the declared one."""
    simulator = ModelSimulator(feature_model(Kind(noise="vector")), seed=13)
    (step,) = [s for s in simulator.steps if isinstance(s, pmm.FeatureGibbs)]
    right = step.part._priors["intercept_a"]

    def wrong(point):
        centre, precision = right(point)
        return centre + 0.3, precision

    step.part._priors["intercept_a"] = wrong
    found = simulator.scores(800)
    assert max(map(abs, found.values())) > 6.0, found


N_SIMULATIONS, N_DRAWS, THIN = 120, 31, 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relevance", "deviations of their own"])
def test_ranks_are_uniform(name):
    kind = dataclasses.replace(KINDS[name], sizes=((5, 2), (4, 3)))
    simulator = ModelSimulator(feature_model(kind), seed=21)
    found = simulator.ranks(N_SIMULATIONS, N_DRAWS, THIN)
    p_values = uniformity(found, N_DRAWS)
    # A hundred and fifty quantities: a right sampler falls below this once in some 60 such suites.
    assert min(p_values.values()) > 0.0001, p_values
