"""Starts, draws and what is said of them, for likelihoods of any kind."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.metrics import adjusted_rand_index
from pm_match.reading import read
from pm_match.search.recipe import nothing, recipe
from tests.declared.any_likelihood import FAMILIES, counts_and_vectors, declared, effects


def test_search_finds_the_clusters():
    model, truth = counts_and_vectors()
    best = pmm.find_matching(model, starts=1, random_seed=1, progressbar=False)
    labels = best["posterior"]["cluster"].values[0, 0]
    assert adjusted_rand_index({"c": labels}, {"c": truth}) > 0.9
    # Labels and parameters go together.
    mean = best["posterior"]["mu"].values[0, 0][labels[truth == 2][0]]
    np.testing.assert_allclose(mean, [0.0, 5.0], atol=0.6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_a_start(family):
    model = declared(FAMILIES[family])
    (component,) = read(model).components
    assert recipe(component).__module__ == "pm_match.declared.search"
    (point,) = pmm.initial_points(model, 1, random_seed=1, progressbar=False)
    initial = pm.initial_point.make_initial_point_fn(model=model, overrides=point)(0)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(initial))


def test_a_start_is_found_where_the_density_is_zero_at_first():
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        pm.Potential("apart", pm.math.log1p(-pm.math.exp(-((mu[0] - mu[1]) ** 2))))
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=6)
        pm.Normal("y", mu[cluster], 0.5, observed=[-1.2, -0.8, 0.1, 0.9, 1.4, 1.1])
    (point,) = pmm.initial_points(model, 1, random_seed=1, progressbar=False)
    assert np.abs(np.diff(point["mu"])) > 1.0


def test_a_start_is_found_from_which_nothing_climbs():
    with pm.Model() as model:
        shift = pm.Flat("shift", shape=2)
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=6)
        pm.Potential("away", pt.switch(pt.eq(shift[cluster], 0.0), -np.inf, 0.0))
        pm.Poisson("y", pt.constant([1.0, 9.0])[cluster], observed=[1, 0, 2, 9, 11, 8])
    (point,) = pmm.initial_points(model, 1, random_seed=1, progressbar=False)
    assert (point["shift"] != 0.0).all()


def test_what_is_free_has_no_search():
    model = declared(effects)
    (component,) = read(model).components
    assert recipe(component) is nothing
    (point,) = pmm.initial_points(model, 1, random_seed=1, progressbar=False)
    assert len(point["cluster"]) == 6


@pytest.mark.compiled
def test_sampled_with_nuts(caplog):
    model, truth = counts_and_vectors(45)
    idata = pmm.sample(
        60, tune=100, chains=1, cores=1, model=model, random_seed=2, progressbar=False,
        compute_convergence_checks=False,
    )  # fmt: skip
    labels = idata["posterior"]["cluster"].values[0, -1]
    assert adjusted_rand_index({"c": labels}, {"c": truth}) > 0.8
    occupied = [len(np.unique(own)) for own in idata["posterior"]["cluster"].values[0]]
    np.testing.assert_array_equal(idata["sample_stats"]["n_occupied"].values.ravel(), occupied)
    assert set(pmm.invariants(idata, model)) == {"log_joint", "n_occupied"}


def test_what_takes_longer_is_said(caplog, monkeypatch):
    logger = logging.getLogger("pymc")
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setattr(pm, "sample", lambda *args, **kwargs: None)
    with caplog.at_level(logging.INFO, logger="pymc"):
        pmm.sample(
            2, model=declared(FAMILIES["nonlinear map"]), init="dispersed", progressbar=False
        )
    assert (
        "By tables of log densities, which takes longer: cluster: 'x': its declared" in caplog.text
    )
