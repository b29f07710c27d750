"""Priors under another name: what is the same law is read, and sampled, the same."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.reading.laws import BETA, GAMMA
from tests.declared.few_draws import few_draws

_CLUSTER = np.repeat([0, 1], 12)


def _blocks(prior):
    edges = (
        np.random.default_rng(1).random((24, 24))
        < np.where(np.eye(2), 0.8, 0.2)[_CLUSTER][:, _CLUSTER]
    )
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=24)
    density = prior("density", shape=(3, 3))
    pm.Bernoulli("edges", p=density[cluster[:, None], cluster], observed=edges.astype(int))


def _counts(prior):
    counts = np.random.default_rng(2).poisson(np.array([2.0, 9.0])[_CLUSTER])
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=24)
    pm.Poisson("counts", prior("rate", shape=3)[cluster], observed=counts)


def _normals(prior):
    values = np.random.default_rng(3).normal(np.array([-3.0, 3.0])[_CLUSTER])
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=24)
    precision = prior("precision", shape=3)
    mean = pm.Normal("mean", 0.0, tau=0.1 * precision, shape=3)
    pm.Normal("values", mean[cluster], tau=precision[cluster], observed=values)


def _items(prior):
    answers = np.random.default_rng(4).random((24, 4)) < np.array([[0.2], [0.8]])[_CLUSTER]
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=24)
    pm.Bernoulli("answers", prior("p", shape=(2, 4))[cluster], observed=answers.astype(int))


def _relevant(prior):
    edges = np.random.default_rng(5).random((12, 12)) < 0.3
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=12)
    flag = pm.Bernoulli("relevant", prior("share"), shape=12)
    density = pm.Beta("density", 1.0, 1.0, shape=(2, 2))
    pmm.BlockNetwork(
        "edges",
        axes=[cluster, cluster],
        self_loops=True,
        density=density,
        relevance=[flag, flag],
        noise=0.1,
        observed=edges.astype(int),
    )


def _factors(prior):
    values = np.random.default_rng(6).normal(size=(12, 3))
    loadings = pm.Normal("loadings", size=(3, 1))
    latent = pm.Normal("latent", size=(12, 1))
    pm.Normal("values", latent @ loadings.T, tau=prior("precision", shape=3), observed=values)


def _vectors(prior):
    values = np.random.default_rng(7).normal(size=(24, 3)) + 3.0 * _CLUSTER[:, None]
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=24)
    precision = prior("precision")
    latent = pm.Normal("latent", 0.0, tau=precision, shape=(3, 2))
    projection = pm.Normal("projection", shape=(3, 2))
    pm.Normal("values", latent[cluster] @ projection.T, tau=precision, observed=values)


def _uniform(name, **kwargs):
    return pm.Uniform(name, 0.0, 1.0, **kwargs)


def _beta(name, **kwargs):
    return pm.Beta(name, 1.0, 1.0, **kwargs)


def _exponential(name, **kwargs):
    return pm.Exponential(name, 0.25, **kwargs)


def _gamma(name, **kwargs):
    return pm.Gamma(name, 1.0, 0.25, **kwargs)


@pytest.mark.parametrize(
    ("declare", "laws"),
    [
        *((declare, (_uniform, _beta)) for declare in (_blocks, _items, _relevant)),
        *((declare, (_exponential, _gamma)) for declare in (_counts, _normals, _factors, _vectors)),
    ],
)
def test_the_same_law_gives_the_same_draws(declare, laws):
    found = []
    for prior in laws:
        with pm.Model() as model:
            declare(prior)
        found.append(few_draws(model))
    for name in found[0].posterior:
        np.testing.assert_array_equal(found[0].posterior[name], found[1].posterior[name])


def test_other_laws_are_none_of_it():
    with pm.Model():
        end = pm.HalfNormal("end")
        assert not BETA.has(pm.Uniform("wide", 0.0, 2.0))
        assert not BETA.has(pm.Uniform("narrow", 0.5, 1.0, shape=3))
        assert not BETA.has(pm.Uniform("free", 0.0, end))
        assert BETA.has(pm.Uniform("unit", np.zeros((1, 2)), np.ones(2), shape=(3, 2)))
        assert not GAMMA.has(end)


def test_an_exponential_is_a_gamma_of_its_rate():
    with pm.Model():
        rate = pm.HalfNormal("rate")
        one, own = GAMMA.arguments(pm.Exponential("by_rate", rate))
        assert one.eval() == 1.0
        assert own is rate
        scaled = GAMMA.arguments(pm.Exponential("by_scale", scale=np.array([2.0, 4.0])))
        np.testing.assert_allclose(scaled[1].eval(), [0.5, 0.25])
