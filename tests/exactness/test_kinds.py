"""The package's own kinds, held to be exact by what it offers for those of others."""

import pytest

from pm_match import testing
from tests.declared.features import Kind, feature_model
from tests.declared.networks import network_model
from tests.declared.normals import normals_model
from tests.declared.plain import tiny_model

MODELS = {
    "plain features": tiny_model,
    "features": lambda: feature_model(Kind(noise="wishart", deviations="one", missing=True)),
    "networks": lambda: network_model(kind="undirected"),
    "linked networks": lambda: network_model(relevance=False, linked=True),
    "hyperparameters of networks": lambda: network_model(
        kind="directed", family="poisson", hyperpriors=True
    ),
    "negative binomial networks": lambda: network_model(
        kind="undirected", family="negative-binomial", exposure=True, hyperpriors=True
    ),
    "normal clusters": lambda: normals_model("own"),
    "normal clusters of one covariance": lambda: normals_model("shared"),
    "normal clusters with tails": lambda: normals_model("tails"),
    "normal clusters of several domains": lambda: normals_model("matched"),
}
# The others compile kernels' terms that these do too.
QUICK = ("features", "linked networks", "normal clusters of several domains")
CASES = [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in MODELS]


@pytest.mark.parametrize("case", CASES)
def test_scores_running_state_draws_and_hyperparameters(case):
    model = MODELS[case]()
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=500)
    testing.check_draws(model, n_draws=2000)
    testing.check_hyperparameters(model)


@pytest.mark.parametrize("case", CASES)
def test_law_of_assignments(case):
    testing.check_law(MODELS[case](), n_sweeps=60_000 if case in QUICK else 300_000)
