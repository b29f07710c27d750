"""Whole chains, all steps of a model together, against the model's own log density."""

import numpy as np
import pytest

import pm_match as pmm
from pm_match import testing
from tests.declared import any_likelihood
from tests.declared.features import Kind, feature_model, ratio_model
from tests.declared.networks import network_model
from tests.declared.views import tiny_views
from tests.exactness.chains import check_chain, run

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1))
B[1] = np.nan
LABELS = [1.0, -1.0, None, 1.0]


def hierarchy():
    """Both views' clusters, below those of the objects; one object is not seen in one view."""
    return pmm.models.dependency_hierarchy(
        {"a": A, "b": B}, 2, {"a": 2, "b": 3}, concentration=0.8, mean_strength=0.5
    )


SMALL = {"domains": 1, "sizes": ((3, 2),), "factors": 1, "truncation": 2}
MODELS = {
    "hierarchy": hierarchy,
    "max margin": lambda: tiny_views(LABELS, C=2.0, coefficient_prior=(3.0, 5.0)),
    "max margin, precision held": lambda: tiny_views(
        LABELS, C=2.0, coefficient_prior=(400.0, 600.0)
    ),
    "wishart noise": lambda: feature_model(Kind(noise="wishart", **SMALL)),
    "wishart noise, missing": lambda: feature_model(
        Kind(noise="wishart", missing=True, sizes=((2, 2), (2, 3)), factors=1, truncation=2)
    ),
    "semi-orthogonal": lambda: feature_model(Kind(projection="rigid", **SMALL | {"factors": 2})),
    "coarsened": lambda: feature_model(
        Kind(noise="wishart", powers=(0.4,), deviations="one", projection="rigid", **SMALL)
    ),
    "coarsened, relevance": lambda: feature_model(
        Kind(noise="vector", powers=(0.4,), relevance="all", **SMALL)
    ),
    "slices": lambda: feature_model(
        Kind(noise="lkj", deviations="vector", latent_scale=True, **SMALL)
    ),
    "ratio": lambda: ratio_model(A, 0.5 * A[:2]),
    "hyperparameters of densities": lambda: network_model(hyperpriors=True),
    "of rates": lambda: network_model("directed", family="poisson", hyperpriors=True),
    "any likelihood beside features": any_likelihood.beside_features,
    "any likelihood beside networks": any_likelihood.beside_networks,
    "any likelihood beside columns": any_likelihood.beside_columns,
}


def made(name):
    """Declare a model, and make the steps of its chain."""
    model = MODELS[name]()
    steps = pmm.steps(model)
    for number, step in enumerate(steps):
        if isinstance(step, pmm.FrequencyMetropolis):
            steps[number] = type(step)([model["frequencies"]], model=model, n_leapfrog=2)
    assert {v.name for step in steps for v in step.vars} == {v.name for v in model.value_vars}
    return model, steps


QUICK = ("hierarchy", "semi-orthogonal", "coarsened")


@pytest.mark.parametrize("name", QUICK)
def test_draws_are_of_the_declared_density(name):
    model, steps = made(name)
    check_chain(model, run(steps, model.initial_point(0), 1000, n_tune=200))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_many_draws_are_of_the_declared_density(name):
    model, steps = made(name)
    check_chain(model, run(steps, model.initial_point(0), 6000, seed=2, n_tune=200))


def test_a_variance_a_third_too_large_is_seen():
    model, steps = made("ratio")
    points = run(steps, model.initial_point(0), 1500, n_tune=200)
    check_chain(model, points)
    for name in ("latent", "factor_log__", "projection_a"):
        middle = np.mean([point[name] for point in points], axis=0)
        wrong = [p | {name: middle + 1.3**0.5 * (p[name] - middle)} for p in points]
        with pytest.raises(AssertionError, match="standard errors"):
            check_chain(model, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
def test_draws_keep_objects_apart(across):
    """Within a domain, whose projection is integrated out for exchanges of labels; and across."""
    model = feature_model(Kind(sizes=((3, 2), (2, 3)), factors=1, truncation=3, intercept=False))
    with model:
        pmm.cannot_link(
            "apart", {"cluster_a": [0], "cluster_b": [1]} if across else {"cluster_a": [[0, 1]]}
        )
    steps = pmm.steps(model)
    start = testing.random_point(model, np.random.default_rng(0))
    points = run(steps, start, 4000, seed=2, n_tune=200)
    for point in points:
        other = point["cluster_b"][1] if across else point["cluster_a"][1]
        assert point["cluster_a"][0] != other
    check_chain(model, points)
