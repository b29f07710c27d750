"""Observed labels: known ones stay what they are, and the law of the others is the declared one."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln
from scipy.stats import norm

import pm_match as pmm
from pm_match import testing
from pm_match.reading import read
from tests.declared import any_likelihood, columns
from tests.declared.features import Kind, feature_model
from tests.declared.known_labels import labels_known
from tests.declared.networks import network_model
from tests.declared.normals import normals_model
from tests.declared.plain import sampling_noise, total_variation

# A model, and the labels that are observed of its assignments.
MODELS = {
    "features": (
        lambda: feature_model(Kind(linked=True)),
        {"cluster_a": [None, 0, None], "cluster_b": [None, 2]},
    ),
    "features of a known domain": (feature_model, {"cluster_a": [2, 0, 2]}),
    "networks": (
        lambda: network_model(relevance=False),
        {"cluster_a_0": [1, None, None], "cluster_b_1": [0, 2]},
    ),
    "undirected networks": (
        lambda: network_model(kind="undirected", relevance=False),
        {"cluster_a_0": [0, None, None, 1]},
    ),
    "normal clusters": (
        lambda: normals_model("matched"),
        {"cluster_a": [None, None, None, 1], "cluster_b": [0, None, None]},
    ),
    "columns": (
        lambda: columns.declared("poisson", n=(4, 3), links=True),
        {"cluster_a": [None, 2, None, None], "cluster_b": [0, None, None]},
    ),
    "known weights": (
        lambda: any_likelihood.declared(
            any_likelihood.FAMILIES["normal"], weights=np.array([0.5, 0.3, 0.2])
        ),
        {"cluster": [None, None, 2, None, 2, 0]},
    ),
    "any likelihood": (
        lambda: any_likelihood.two_domains(),
        {"cluster_a": [None, 1, None], "cluster_b": [None, 2, None]},
    ),
    "kinds together": (any_likelihood.beside_features, {"cluster": [None, None, 2, None, 0]}),
}
QUICK = ("features of a known domain", "networks", "columns", "any likelihood")


def model_of(case) -> pm.Model:
    declare, known = MODELS[case]
    with labels_known(known):
        return declare()


@pytest.mark.parametrize(
    "case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in MODELS]
)
def test_law_of_labels(case):
    model = model_of(case)
    (component,) = read(model).components
    for clustering in component.clusterings:
        for own in clustering.assignments:
            declared = MODELS[case][1].get(own.name, [None] * own.n_objects)
            found = np.full(own.n_objects, -1) if own.known is None else own.known
            assert found.tolist() == [-1 if label is None else label for label in declared]
    testing.check_scores(model, n_points=2)
    testing.check_law(model, n_sweeps=20_000 if case in QUICK else 100_000)


@pytest.mark.parametrize("case", ["features", "columns"])
def test_draws_given_known_labels(case):
    model = model_of(case)
    if case == "columns":
        testing.check_declared_density(model, n_points=2)
    testing.check_draws(model, n_draws=2000)


MEANS, X = np.array([-1.0, 0.0, 1.0]), np.array([0.3, -0.8, 0.2, 0.9, -0.4])
LABELS = [2, None, None, 0, None]


def known_means():
    with labels_known({"cluster_a": LABELS}), pm.Model() as model:
        weights = pm.Dirichlet("weights", np.array([0.5, 1.0, 2.0]))
        cluster = pm.Categorical("cluster_a", p=weights, shape=5)
        pm.Normal("x", pm.math.stack([*MEANS])[cluster], 0.9, observed=X)
    return model


def test_draws_of_sample_have_the_law_of_the_declared_model():
    # Written apart from all that the package reads: Dirichlet-multinomial, and normal densities.
    alpha, free = np.array([0.5, 1.0, 2.0]), [n for n, k in enumerate(LABELS) if k is None]
    states = [*product(range(3), repeat=len(free))]
    logs = []
    for state in states:
        labels = np.array([0 if k is None else k for k in LABELS])
        labels[free] = state
        counts = np.bincount(labels, minlength=3)
        logs.append(gammaln(alpha + counts).sum() + norm.logpdf(X, MEANS[labels], 0.9).sum())
    law = np.exp(logs - np.max(logs))
    law /= law.sum()
    model = known_means()
    with model:
        idata = pmm.sample(
            4_000, tune=100, chains=2, cores=1, random_seed=3, progressbar=False, quiet=True
        )
    draws = idata["posterior"]["cluster_a"].to_numpy().reshape(-1, 5)
    assert (draws[:, 0] == 2).all()
    assert (draws[:, 3] == 0).all()
    place = draws[:, free] @ [9, 3, 1]
    visits = np.bincount(place, minlength=27)
    assert total_variation(visits, law) < 2.0 * sampling_noise(law, len(draws))
    # It would be noticed if known labels were forgotten.
    assert (
        pmm.match_probability(idata, "cluster_a", "cluster_a")
        .sel(cluster_a_dim_0=0, cluster_a_dim_0_other=3)
        .item()
        == 0.0
    )
