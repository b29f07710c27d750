"""The chain's law, with parameters that belong to labels, against enumeration."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_match as pmm
from pm_match import testing
from pm_match.clusters import collapsed
from pm_match.declared import state as declared_state
from pm_match.declared.parts import Likelihoods
from pm_match.reading import read
from tests.declared.any_likelihood import (
    COUNTS,
    FAMILIES,
    LONG,
    OWNERS,
    T,
    beside_columns,
    beside_features,
    beside_networks,
    beside_normal,
    declared,
    effects,
    own_weights,
    two_domains,
)
from tests.declared.plain import plain_log_prior, sampling_noise, total_variation

BESIDE = {
    "features": beside_features,
    "networks": beside_networks,
    "normal": beside_normal,
    "columns": beside_columns,
    "own weights": own_weights,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_the_declared_densities(family):
    testing.check_scores(declared(FAMILIES[family]), n_points=2)


def test_scores_of_large_tables(monkeypatch):
    monkeypatch.setattr(declared_state, "LARGE", 0)
    testing.check_scores(declared(FAMILIES["mixture"]), n_points=2)


def test_scores_are_the_plain_formulas():
    model = declared(FAMILIES["long"])
    state, rng = testing.collapsed_of(model), np.random.default_rng(0)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    logs = stats.laplace.logpdf(LONG[:, None], point["mu"], 0.8)
    for unit in range(6):
        expected = logs[unit == OWNERS].sum(axis=0)
        np.testing.assert_allclose(state.scores(0, unit)[:-1], expected, rtol=1e-10)


ALONE = {
    "alone": lambda: declared(FAMILIES["normal"]),
    "linked": two_domains,
    "domains": lambda: two_domains(linked=False),
    "masked": lambda: declared(FAMILIES["masked"]),
    "effects": lambda: declared(effects),
    "known parameters": lambda: declared(lambda c: pm.Poisson("x", 1.0 + c, observed=COUNTS[:, 0])),
}


@pytest.mark.parametrize("case", [*ALONE, *BESIDE])
def test_law_of_the_labels(case):
    model = (ALONE | BESIDE)[case]()
    (component,) = read(model).components
    assert len({own.kind for own in component.evidence}) == 1 + (case in BESIDE)
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=1000)
    testing.check_law(model, n_sweeps=60_000)


@pytest.mark.parametrize("case", BESIDE)
def test_empty_clusters_are_worth_nothing(case):
    """Other terms say the same of anchored partitions as of those without empty slots."""
    model = BESIDE[case]()
    state, rng = testing.collapsed_of(model), np.random.default_rng(0)
    point = testing.random_point(model, rng, state)
    label = np.full(5, 2)
    state.load(point, [label])
    found = state.log_joint()
    np.testing.assert_allclose(found, testing.plain_log_joint(state, point, [label]), rtol=1e-10)
    assert state.board.n_slots[0] == T + 1


RATES = np.array([0.5, 2.0, 6.0])
Y = np.array([1, 2, 3])


def discrete() -> pm.Model:
    """Counts whose rate is one of three, by label: everything is enumerated."""
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=1)
        kind = pm.Binomial("kind", 2, 0.4, shape=2)
        c = pm.Categorical("cluster", p=w, shape=3)
        pm.Poisson("y", pt.constant(RATES)[kind[c]], observed=Y)
    return model


@pytest.mark.parametrize("n_sweeps", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_labels_and_parameters_together(n_sweeps, monkeypatch):
    """Sweeps, refreshed rows and swaps leave the joint of labels and rows alone."""
    monkeypatch.setattr(collapsed, "ANCHORED_SWAPS", 1.0)
    model = discrete()
    (evidence,) = read(model).of(Likelihoods)
    assert [rows.names for rows in evidence.redrawn] == [("kind",)]
    assert evidence.exchangeable
    step = pmm.ClusterGibbs([model["cluster"]], n_sweeps=n_sweeps, model=model, rng=0)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    rng = np.random.default_rng(2)
    logs = stats.poisson.logpmf(Y[:, None], RATES)  # (N, K)
    prior = stats.binom.logpmf(np.arange(3), 2, 0.4)
    states = [*product(product(range(2), repeat=3), product(range(3), repeat=2))]
    a, b = read(model).clusterings[0].prior(model.initial_point(0))
    law = np.array(
        [
            plain_log_prior(a, b, np.bincount(s, minlength=2))
            + prior[list(k)].sum()
            + sum(logs[i, k[s[i]]] for i in range(3))
            for s, k in states
        ]
    )
    law = np.exp(law - logsumexp(law))
    place = {state: n for n, state in enumerate(states)}
    visits, swapped, n_steps = np.zeros(len(states)), 0.0, 10_000
    point = model.initial_point(0)
    for _ in range(n_steps):
        point, (stats_of,) = step.step(point)
        swapped += stats_of["swap_accepted"]
        label = point["cluster"]
        assert stats_of["n_occupied"] == len(np.unique(label))
        # A draw of the rate of the first label alone: the second's comes by swaps and refreshing.
        log_p = prior + logs[label == 0].sum(axis=0)
        kind = point["kind"].copy()
        kind[0] = rng.choice(3, p=np.exp(log_p - logsumexp(log_p)))
        point = {**point, "kind": kind}
        visits[place[tuple(label), tuple(kind)]] += 1
    assert swapped > 50
    assert total_variation(visits, law) < 3.0 * sampling_noise(law, n_steps)


def test_densities_by_logits_do_not_underflow():
    """Where 1 - p is 0 in double precision, its logarithm is not."""
    with pm.Model() as model:
        logit = pm.Normal("logit", 0.0, 100.0, shape=2)
        c = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=2)
        pm.Bernoulli("x", logit_p=logit[c], observed=np.array([0, 1]))
    state = testing.collapsed_of(model)
    point = model.initial_point(0) | {"logit": np.array([50.0, 900.0])}
    state.load(point, [np.zeros(2, int)])
    (own,) = state.evidence
    np.testing.assert_allclose(own.term.worth[:, 1:3], [[-50.0, -900.0], [0.0, 0.0]], atol=1e-12)
