"""Which steps a model gets, from us and from PyMC."""

import numpy as np
import pymc as pm
import pytest
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import STEP_METHODS

import pm_match as pmm
from pm_match import progress, serving
from pm_match.reading import kinds as registry

X = np.random.default_rng(0).normal(size=(12, 4))


def chosen(model) -> set[str]:
    """The rooms that the steps which PyMC chooses by itself are from."""
    with model:
        _, by_step = assign_step_methods(model)
    return {step.__module__.partition(".")[0] for step, values in by_step.items() if values}


def factors():
    with pm.Model() as model:
        latent = pm.Normal("latent", shape=(12, 2))
        loading = pm.Normal("loading", shape=(4, 2))
        noise = pm.Gamma("noise", 2.0, 2.0)
        pm.Normal("x", latent @ loading.T, tau=noise, observed=X)
    return model


def labels():
    """Discrete variables, and max-margin labels, of which none is an assignment over weights."""
    with pm.Model() as model:
        pm.Poisson("rate", 3.0)
        coefficients = pm.Normal("coefficients", shape=4)
        pmm.Hinge("y", X @ coefficients, observed=X[:, 0] > 0)
        switch = pm.Categorical("switch", np.ones(3) / 3.0, shape=12)
        pm.Normal("z", switch, 1.0, observed=X[:, 1])
    return model


@pytest.mark.parametrize("declared", [factors, labels])
def test_importing_changes_the_steps_of_no_model_without_an_assignment(declared):
    assert chosen(declared()) == {"pymc"}


def test_our_steps_are_chosen_where_there_is_an_assignment():
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=3)
        precision = pm.Gamma("precision", 1.0, 1.0)
        latent = pm.Normal("latent", 0.0, tau=precision, shape=(4, 2))
        cluster = pm.Categorical("cluster", p=weights, shape=12)
        projection = pm.Normal("projection", shape=(4, 2))
        pm.Normal("x", latent[cluster] @ projection.T, tau=precision, observed=X)
    assert chosen(model) == {"pm_match"}


def test_a_mixture_of_any_likelihood_is_shared_with_pymc():
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(3))
        centre = pm.Normal("centre", shape=3)
        scale = pm.HalfNormal("scale")
        cluster = pm.Categorical("cluster", p=weights, shape=12)
        pm.StudentT("x", nu=4.0, mu=centre[cluster], sigma=scale, observed=X[:, 0])
    ours = [{v.name for v in step.vars} for step in pmm.steps(model)]
    assert ours == [{"cluster", "weights_simplex__"}, {"centre"}]
    assert chosen(model) == {"pm_match", "pymc"}


def test_categories_of_known_weights_are_ours_where_we_are_asked():
    assert ["switch"] in [[v.name for v in step.vars] for step in pmm.steps(labels())]


def test_what_pymc_is_left_with_is_ours_where_we_are_asked():
    (step,) = pmm.steps(factors())
    assert isinstance(step, pmm.FactorGibbs)


def test_a_replaced_kind_takes_its_steps_with_it(monkeypatch):
    monkeypatch.setattr(registry, "_KINDS", list(registry._KINDS))
    before = list(STEP_METHODS)

    class Own(pmm.ClusterGibbs):
        """Steps of a kind from elsewhere."""

    class Elsewhere(registry.Kind):
        """A kind that recognises nothing."""

        name = "elsewhere"

    first, second = Elsewhere(), Elsewhere()
    first.steps = (Own,)
    registry.register_kind(first)
    assert Own in STEP_METHODS
    registry.register_kind(second)
    assert before == STEP_METHODS


def test_steps_are_silent_where_that_is_asked_for(monkeypatch):
    said = []
    monkeypatch.setattr(progress, "_Row", lambda what: said.append(what) or SilentRow())
    monkeypatch.setattr(serving, "_made", lambda *given: progress.say("Compiling"))
    model = factors()
    pmm.steps(model, progressbar=False)
    assert not said
    pmm.steps(model)
    assert said == ["Compiling"]


class SilentRow:
    def end(self, done):
        assert done
