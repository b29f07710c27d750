"""Weights that are drawn given the labels: which are recognised, and their conditional."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.sampling import mcmc
from scipy import stats
from scipy.special import gammaln

import pm_match as pmm
from pm_match import testing
from pm_match.declared.parts import Likelihoods
from pm_match.declared.weights import Weights
from pm_match.matching.draws import SET
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import UnservedModelError, read
from pm_match.reading.probe import natural_function
from tests.declared.few_draws import declared, few_draws

N, T = 6, 3
RNG = np.random.default_rng(5)
COUNTS = RNG.poisson(4.0, size=N)
GROUP = np.array([0, 1, 1, 0, 2, 1])
RATES = np.array([1.0, 3.0, 8.0])


def counts(label, name="x"):
    pm.Poisson(name, pt.constant(RATES)[label], observed=COUNTS)


def by_group():
    counts(pm.Categorical("label", pm.Dirichlet("w", [0.5, 1.0, 2.0], shape=(3, T))[GROUP]))


def by_object():
    counts(pm.Categorical("label", pm.Dirichlet("w", np.linspace(0.5, 3.0, 18).reshape(N, T))))


def by_group_of_any_size():
    """A hierarchy: groups have weights around those of all."""
    concentration = pm.Gamma("concentration", 2.0, 1.0)
    base = pm.StickBreakingWeights("base", alpha=1.0, K=T - 1)
    counts(pm.Categorical("label", pm.Dirichlet("w", concentration * base, shape=(3, T))[GROUP]))


def of_other_orders():
    own = pm.Dirichlet("w", np.ones(T), shape=(2, 2, T))
    counts(pm.Categorical("label", own[GROUP % 2, GROUP // 2][:, [2, 0, 1]]))


def of_two_tables():
    own, rate = pm.Dirichlet("w", np.ones(T), shape=(2, T)), pm.Gamma("rate", 2.0, 0.5, shape=T)
    for name, row in {"label": [0] * N, "other": GROUP % 2}.items():
        pm.Poisson(f"x_{name}", rate[pm.Categorical(name, own[row])], observed=COUNTS)


def probabilities():
    label = pm.Bernoulli("label", pm.Beta("w", 2.0, np.array([1.0, 2.0, 3.0]))[GROUP])
    pm.Poisson("x", pt.constant(RATES[:2])[label], observed=COUNTS)


def one_probability():
    label = pm.Bernoulli("label", pm.Uniform("w"), shape=N)
    pm.Poisson("x", pt.constant(RATES[:2])[label], observed=COUNTS)


def some_known():
    own = pm.Dirichlet("w", np.ones(T), shape=(3, T))
    known = np.ma.masked_equal([0, -1, 2, -1, 1, -1], -1)
    counts(pm.Categorical("label", own[GROUP], observed=known))


def parts_of_clusters():
    cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=N)
    own = pm.Dirichlet("w", np.array([[1.0, 2.0, 3.0], [0.5, 0.5, 1.0]]))
    part = pm.Categorical("label", own[cluster])
    pm.Poisson(
        "x", (pt.constant(RATES) + 4.0 * cluster[:, None])[np.arange(N), part], observed=COUNTS
    )


def of_potentials():
    own = pm.Dirichlet("w", np.ones(4), shape=(T, 3, 4))
    label = pm.Categorical("label", pm.Dirichlet("weights", np.ones(T)), shape=N)
    pm.Potential("chosen", pt.log(own[label, GROUP, COUNTS % 4]))
    counts(label)


def of_their_own():
    """Two tables that have clusters in common, but weights each."""
    rate = pm.Gamma("rate", 2.0, 0.5, shape=T)
    for name, weights in {
        "label": pm.Dirichlet("w", [1.0, 2.0, 0.5]),
        "other": pm.StickBreakingWeights("other_w", alpha=1.5, K=T - 1),
    }.items():
        own = pm.Categorical(name, weights, shape=N)
        pm.Poisson(f"x_{name}", rate[own], observed=COUNTS)


SERVED = [
    by_group,
    by_object,
    by_group_of_any_size,
    of_other_orders,
    of_two_tables,
    probabilities,
    one_probability,
    some_known,
    parts_of_clusters,
    of_potentials,
    of_their_own,
]


def weights_of(model) -> list[Weights]:
    return [own for evidence in read(model).of(Likelihoods) for own in evidence.weights]


@pytest.mark.parametrize("write", SERVED)
@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_conditional_is_the_declared_density_as_far_as_weights_enter_it(write):
    model = declared(write)
    steps = pmm.steps(model)
    step = next(own for own in steps if isinstance(own, pmm.WeightsGibbs))
    held = [value.name for own in steps for value in own.vars]
    assert len(held) == len({*held}), "drawn twice"
    found = {own.name: own for own in weights_of(model)}
    assert "w" in found
    key = model.rvs_to_values[model["w"]].name
    density, rng = model.compile_logp(jacobian=False), np.random.default_rng(0)
    for own in found.values():
        key = model.rvs_to_values[model[own.name]].name
        natural = natural_function(model, [own.name])
        for _ in range(10):
            point = {}
            for name, value in model.initial_point().items():
                if np.asarray(value).dtype.kind == "f":
                    point[name] = rng.normal(size=np.shape(value))
                else:
                    few = name == "cluster" or own.cell.shape[1] == 2
                    point[name] = rng.integers(2 if few else T, size=np.shape(value))
            other = point | {key: 3.0 * rng.normal(size=point[key].shape)}
            labels = step._clustering.labels(point)
            here, there = (own.log_density(*natural(at), at, labels) for at in (point, other))
            expected = density(point) - density(other)
            np.testing.assert_allclose(here - there, expected, rtol=1e-9, atol=1e-9)


def bounded():
    p = pt.clip(pm.Dirichlet("w", np.ones(T), shape=(3, T))[GROUP], 1e-6, 1.0)
    counts(pm.Categorical("label", p / p.sum(axis=1, keepdims=True)))


def tempered():
    p = pm.Dirichlet("w", np.ones(T), shape=(3, T))[GROUP] ** 1.01
    counts(pm.Categorical("label", p / p.sum(axis=1, keepdims=True)))


def of_two():
    first, second = (pm.Dirichlet(name, np.ones(T), shape=(3, T)) for name in ("w", "other_w"))
    counts(pm.Categorical("label", (0.9 * first + 0.1 * second)[GROUP]))


def switched():
    own = pm.Dirichlet("w", np.ones(T), shape=(2, T))
    counts(pm.Categorical("label", pt.where(pm.Bernoulli("on", 0.5), own[0], own[1]), shape=N))


def switched_at_one_of_many():
    own = pm.Dirichlet("w", np.ones(T), shape=(2, T))
    at = pm.DiscreteUniform("at", 0, 9)
    counts(pm.Categorical("label", pt.where(pt.eq(at, 4), own[0], own[1]), shape=N))


def used_elsewhere():
    own = pm.Dirichlet("w", np.ones(T), shape=(3, T))
    counts(pm.Categorical("label", own[GROUP]))
    pm.Multinomial("votes", 6, own[0], observed=[1, 2, 3])


@pytest.mark.parametrize(
    "write", [bounded, tempered, of_two, switched, switched_at_one_of_many, used_elsewhere]
)
def test_other_weights_are_left_to_other_steps(write):
    model = declared(write)
    assert any(isinstance(own, pmm.ClusterGibbs) for own in pmm.steps(model))
    assert not weights_of(model)


def test_parameters_that_only_look_like_those_of_the_same_clusters():
    def write():
        noise = pm.Gamma("noise", 2.0, 2.0)
        for name in "ab":
            label = pm.Categorical(f"label_{name}", pm.Dirichlet(f"w_{name}", np.ones(2)), shape=N)
            mean = pm.Normal(f"mean_{name}", shape=2)
            pm.Normal(name, mean[label], noise, observed=COUNTS.astype(float))

    assert read(declared(write)).sets == {"w_a": ["label_a"], "w_b": ["label_b"]}


def log_beta_function(alphas) -> float:
    return gammaln(alphas).sum() - gammaln(np.sum(alphas))


def drawn(model):
    return few_draws(model, draws=2500, tune=200, chains=2).posterior


def test_law_of_groups_weights():
    """Labels and weights, against the sum over all labels with the weights integrated out."""
    alphas, group = np.array([0.6, 1.2]), np.array([0, 0, 1, 1, 1])
    seen = np.array([1, 6, 2, 7, 3])

    def write():
        own = pm.Dirichlet("w", alphas, shape=(2, 2))
        pm.Poisson("x", pt.constant([2.0, 5.0])[pm.Categorical("label", own[group])], observed=seen)

    labels = np.array([*product(range(2), repeat=5)])
    logs = stats.poisson.logpmf(seen, np.array([2.0, 5.0])[labels]).sum(axis=1)
    counts_of = np.array(
        [[np.bincount(s[group == g], minlength=2) for g in (0, 1)] for s in labels]
    )
    logs += [sum(log_beta_function(alphas + n) for n in own) for own in counts_of]
    p = np.exp(logs - np.logaddexp.reduce(logs))
    found = drawn(declared(write))
    means = found.mean(("chain", "draw"))
    np.testing.assert_allclose(means["label"], p @ labels, atol=0.03)
    weights = (counts_of + alphas) / (counts_of + alphas).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(means["w"], np.einsum("s,sgt->gt", p, weights), atol=0.03)


def test_law_of_clusters_of_tables_with_weights_each():
    """Pairs of objects of both tables, against the sum over all labels."""
    seen = {"a": np.array([1, 7, 2]), "b": np.array([0, 2, 5])}
    alphas = {"a": np.array([0.5, 2.0]), "b": np.array([1.0, 1.5])}

    def write():
        rate = pm.Gamma("rate", 2.0, 0.5, shape=2)
        for name, x in seen.items():
            label = pm.Categorical(
                f"label_{name}", pm.Dirichlet(f"w_{name}", alphas[name]), shape=3
            )
            pm.Poisson(name, rate[label], observed=x)

    labels, x = np.array([*product(range(2), repeat=6)]), np.concatenate([*seen.values()])
    logs = np.zeros(len(labels))
    for place, own in enumerate(labels):
        for n, table in enumerate("ab"):
            sizes = np.bincount(own[3 * n : 3 * n + 3], minlength=2)
            logs[place] += log_beta_function(alphas[table] + sizes)
        for t in range(2):
            total, n = x[own == t].sum(), (own == t).sum()
            logs[place] += gammaln(2.0 + total) - (2.0 + total) * np.log(0.5 + n)
    p = np.exp(logs - np.logaddexp.reduce(logs))
    expected = np.einsum("s,sij->ij", p, labels[:, :3, None] == labels[:, None, 3:])
    found = drawn(declared(write))
    same = found["label_a"].to_numpy()[..., :, None] == found["label_b"].to_numpy()[..., None, :]
    np.testing.assert_allclose(same.mean(axis=(0, 1)), expected, atol=0.03)
    assert len({found[f"label_{name}"].attrs[SET] for name in "ab"}) == 1


def test_plain_pymc_takes_the_steps_where_weights_are_drawn():
    model = declared(by_group)
    with model:
        _, chosen = mcmc.assign_step_methods(model)
    assert {pmm.ClusterGibbs, pmm.WeightsGibbs} == chosen.keys()


def test_a_chain_stops_where_the_weights_have_another_prior(monkeypatch):
    prior = Weights.__dict__["log_density"]
    monkeypatch.setattr(Weights, "log_density", lambda *given: prior(*given) + 0.1)
    with pytest.raises(UnservedModelError, match="'w': expected draws whose declared log density"):
        few_draws(declared(by_group))


def test_a_weight_too_small_for_a_float_is_said():
    model = declared(by_group_of_any_size)
    step = next(own for own in pmm.steps(model) if isinstance(own, pmm.WeightsGibbs))
    point = model.initial_point(0) | {"concentration_log__": np.array(-9.0)}
    with pytest.warns(UserWarning, match=r"a weight in 'w' is too small .*: give the prior larger"):
        step.step(point)


def test_weights_of_groups_are_named_with_the_clusters():
    found = few_draws(declared(by_group), draws=40)
    labels = pmm.partition_estimate(found)
    named = pmm.relabel(found, labels).posterior
    assert (named["w"].to_numpy() != found.posterior["w"].to_numpy()).any()
    np.testing.assert_allclose(named["w"].sum(axis=-1), 1.0)


def of_other_kinds():
    """As of tables, of weights that are not drawn by `WeightsGibbs`."""
    rate, first = pm.Gamma("rate", 2.0, 0.5, shape=T), pm.Beta("sticks", 1.0, 2.0, shape=T - 1)
    rests = pt.concatenate([[1.0], pt.cumprod(1.0 - first)])
    weights = {
        "label": pt.concatenate([first, [1.0]]) * rests,
        "other": pt.constant([0.2, 0.3, 0.5]),
    }
    for name, own in weights.items():
        own = pm.Categorical(name, pm.Deterministic(f"w_{name}", own), shape=N)
        pm.Poisson(f"x_{name}", rate[own], observed=COUNTS)


@pytest.mark.parametrize(
    ("write", "names"),
    [(of_their_own, ["w", "other_w"]), (of_other_kinds, ["w_label", "w_other"])],
)
def test_new_objects_have_the_weights_of_their_table(write, names):
    model = declared(write)
    for domain, name in zip(["label", "other"], names, strict=True):
        place = find_place(read(model), domain)
        predictive = Predictive(model, place.component)
        point = testing.random_point(model, np.random.default_rng(0), testing.collapsed_of(model))
        predictive.load(point)
        new = read_new_objects(model, predictive, place, {f"x_{domain}": np.array([[3], [0]])})
        (weights,) = natural_function(model, [name])(point)
        labels = np.concatenate(predictive.labels)
        both, n = np.tile(COUNTS, 2), np.bincount(labels, minlength=T)
        shape, rate = 2.0 + np.bincount(labels, both, T), 0.5 + n
        worth = stats.nbinom.logpmf([[3], [0]], shape, rate / (rate + 1.0))
        found = predictive.log_joint(new)[:, :-1]
        np.testing.assert_allclose(found, np.log(weights) + worth, rtol=1e-9)


def test_new_objects_of_groups_are_refused():
    model = declared(by_group)
    found = few_draws(model)
    with pytest.raises(UnservedModelError, match=r"weights of 'label'.*not known of new objects"):
        pmm.assign(found, model, {"label": np.array([[3]])})
