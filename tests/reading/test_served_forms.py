"""Forms that users write, each served by the kind that integrates most out."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.reading import read

T, N, M = 3, 4, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, M))
EDGES = RNG.binomial(1, 0.4, (N, N))


def features(mean=None, sigma=lambda: 0.8, shape=(M, 2), x=X):
    """Declare projected latent vectors, with some edit."""
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(T))
        c = pm.Categorical("c", p=weights, shape=len(x))
        z, w = pm.Normal("z", shape=(T, 2)), pm.Normal("w", shape=shape)
        pm.Normal("x", z[c] @ w.T if mean is None else mean(z, c, w), sigma(), observed=x)
    return model


def one_array_of_projections():
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(T))
        z, w = pm.Normal("z", shape=(T, 2)), pm.Normal("w", shape=(2, M, 2))
        for d in range(2):
            c = pm.Categorical(f"c_{d}", p=weights, shape=3)
            pm.Normal(f"x_{d}", z[c] @ w[d].T, 0.8, observed=X[:3] + d)
    return model


def network(density=lambda d: d, **options):
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        if options.pop("flags", False):
            options["relevance"] = [pm.Bernoulli("relevant", 0.6, shape=N)] * 2
        d = density(pm.Beta("d", 1.0, 1.0, shape=(T, T)))
        pmm.BlockNetwork("net", [c, c], d, observed=EDGES, self_loops=True, **options)
    return model


def vectors_of_some():
    with features(shape=(2, 2), x=X[:, :2]) as model:
        beside = model["z"][model["c"]] @ pm.Normal("v", shape=(2, 2))
        pm.Normal("y", beside[:-1], 0.8, observed=X[1:, 1:])
    return model


def column(prior, observe, n=N):
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=n)
        observe(prior()[c])
    return model


def flags(p):
    pm.Bernoulli("x", p, observed=EDGES[:, :M])


SERVED = {
    "constant intercepts": (
        "features",
        lambda: features(lambda z, c, w: z[c] @ w.T + np.arange(M)),
    ),
    "a number times the vectors": ("features", lambda: features(lambda z, c, w: 2 * z[c] @ w.T)),
    "exponential of the projection": (
        "features",
        lambda: features(lambda z, c, w: z[c] @ pt.exp(w).T),
    ),
    "known scales": ("features", lambda: features(sigma=lambda: np.arange(1.0, M + 1.0))),
    "exponential noise": ("features", lambda: features(sigma=lambda: pm.Exponential("s", 1.0))),
    "inverse gamma noise": (
        "features",
        lambda: features(sigma=lambda: pt.sqrt(pm.InverseGamma("s", 2.0, 1.0))),
    ),
    "noise without its transform": (
        "declared",
        lambda: features(sigma=lambda: pm.HalfNormal("s", default_transform=None)),
    ),
    "noise of shape 1": ("features", lambda: features(sigma=lambda: pm.HalfNormal("s", shape=1))),
    "one feature": (
        "declared",
        lambda: features(lambda z, c, w: z[c] @ w, shape=2, x=X[:, 0]),
    ),
    "one array of projections": ("features", one_array_of_projections),
    "vectors of some objects beside others": ("declared", vectors_of_some),
    "uniform probabilities": (
        "columns",
        lambda: column(lambda: pm.Uniform("p", shape=(T, M)), flags),
    ),
    "known noise of a network": ("networks", lambda: network(flags=True, noise=0.1)),
    "density by another name": (
        "networks",
        lambda: network(lambda d: pm.Deterministic("named", d)),
    ),
    "labels given by pm.observe": ("features", lambda: pm.observe(features(), {"c": [0, 2, 1, 1]})),
    "vectors given by pm.observe": ("declared", lambda: pm.observe(features(), {"z": X[:T, :2]})),
}


@pytest.mark.parametrize("form", SERVED)
def test_forms_are_served_and_scored_as_declared(form):
    kind, declare = SERVED[form]
    model = declare()
    structure = read(model)
    assert not structure.refusals, structure.explain()
    assert [own.kind for c in structure.components for own in c.evidence] == [kind]
    if form != "noise without its transform":  # random points would have negative noise
        testing.check_scores(model, n_points=2)
    point = model.initial_point(0)
    (step,) = (own for own in pmm.steps(model) if isinstance(own, pmm.ClusterGibbs))
    new, _ = step.step(point)
    assert all(np.isfinite(value).all() for value in new.values())


def test_an_unobserved_network_is_named_as_one():
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        pmm.BlockNetwork("net", [c, c], pm.Beta("d", 1.0, 1.0, shape=(T, T)))
    (why,) = read(model).refusals.values()
    assert why == "no observed variable depends on 'c': 'net' is free"


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_known_noise_under_which_cells_are_impossible_is_refused(noise):
    assert f"the noise of 'net' is {noise}" in read(network(flags=True, noise=noise)).explain()


@pytest.mark.parametrize("offset", [1e9, 1e12])
def test_columns_far_from_zero_are_drawn_near_their_data(offset):
    x = np.repeat([[0.0], [8.0]], 10, axis=0) + RNG.normal(size=(20, 1)) + offset
    with pm.Model() as model:
        c = pm.Categorical("cluster_x", p=pm.Dirichlet("weights", np.ones(2)), shape=20)
        mu = pm.Normal("mu", offset, 10.0, shape=(2, 1))
        pm.Normal("x", mu[c], 1.0, observed=x)
    idata = pmm.sample(
        50, tune=20, chains=1, cores=1, model=model, random_seed=0, progressbar=False, quiet=True
    )
    labels = idata["posterior"]["cluster_x"].to_numpy()[0]
    assert len(set(labels[-1, :10])) == len(set(labels[-1, 10:])) == 1
    assert labels[-1, 0] != labels[-1, -1]
    means = idata["posterior"]["mu"].to_numpy()[0, np.arange(50), labels[:, -1], 0]
    np.testing.assert_allclose(means.mean() - offset, 8.0, atol=1.0)


def test_values_beyond_all_units_are_refused():
    observed = {"observed": X[:, :1] * 1e300}
    model = column(lambda: pm.Normal("mu", shape=(T, 1)), lambda mu: pm.Normal("x", mu, **observed))
    assert "expected numbers of at most 1e+100 in size" in read(model).explain()


@pytest.mark.parametrize("shape", [(8, 3), pytest.param((20, 3), marks=pytest.mark.slow)])
def test_repeated_and_binary_rows_are_searched(shape):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 3)) if shape[0] == 8 else rng.binomial(1, 0.5, (20, 3))
    tables = {name: rows[np.arange(shape[0]) % len(rows)].astype(float) for name in "ab"}
    found = pmm.find_matching(
        pmm.models.table_clusters(tables), starts=1, random_seed=0, progressbar=False
    )
    assert np.isfinite(found["sample_stats"]["log_joint"]).all()
