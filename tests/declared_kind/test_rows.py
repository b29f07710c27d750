"""Parameters of clusters that enter more than their own clusters' data, in places only."""

import itertools

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.special import betaln

import pm_match as pmm
from pm_match import testing
from pm_match.declared.parts import PairLikelihoods
from pm_match.declared.rows import Redraw
from pm_match.reading import read
from pm_match.reading.context import Context
from tests.declared.few_draws import few_draws

# Of means: far wider than what models are read at.
SCALE = 10.0
GRID = SCALE * np.linspace(-6.0, 6.0, 121)


def mixture(means, n=6, seed=1, prior=None, also=lambda mu: None, free=None):
    """Declare Student data of two clusters around `means` of two numbers.

    `free`: the mean of one more number, which is no object's.
    """
    x = SCALE * (np.random.default_rng(seed).normal(size=n) + np.resize([-1.0, 1.0], n))
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=n)
        mu = pm.Normal("mu", 0.0, 2.0 * SCALE, shape=2) if prior is None else prior()
        own = means(mu)[cluster]
        if free is not None:
            own, x = pt.concatenate([own, [free(mu)]]), np.append(x, 0.0)
        pm.StudentT("x", nu=5, mu=own, sigma=SCALE, observed=x)
        also(mu)
    return model


def evidence(model):
    (component,) = read(model).components
    return component.evidence[0]


@pytest.mark.parametrize("n", range(5, 45))
def test_sorted_means_are_nobodys_own(n):
    assert evidence(mixture(pt.sort, n, seed=n)).sliced == ()


def test_separate_sorted_means_are_nobodys_own():
    def prior():
        return pt.stack([pm.Normal("low", 0.0, 2.0), pm.Normal("high", 0.0, 2.0)])

    assert evidence(mixture(pt.sort, prior=prior)).sliced == ()


def test_means_are_a_clusters_own():
    assert [rows.names for rows in evidence(mixture(lambda mu: mu)).sliced] == [("mu",)]


# A cluster's mean is at least the other's, less the gap.
def apart(gap):
    return lambda mu: pt.stack([mu[0], pt.maximum(mu[1], mu[0] - gap)])


def law(model, gap, penalty):
    """Enumerate labels, with means on a grid: log probabilities (2^n, M, M) of what is declared."""
    x = model.rvs_to_values[model["x"]].eval()[:5]
    first, second = np.meshgrid(GRID, GRID, indexing="ij")
    prior = stats.norm.logpdf(first, 0, 2 * SCALE) + stats.norm.logpdf(second, 0, 2 * SCALE)
    means = first, np.maximum(second, first - gap)
    ones, twos = (np.array([stats.t.logpdf((v - own) / SCALE, 5) for v in x]) for own in means)
    labels = np.array([*itertools.product([0, 1], repeat=len(x))])
    k = labels.sum(axis=1)
    sums = np.tensordot(1 - labels, ones, 1) + np.tensordot(labels, twos, 1)
    whole = sums + prior + betaln(1 + k, 1 + len(x) - k)[:, None, None]
    return labels, whole + penalty(first)


PENALTY = {"also": lambda mu: pm.Potential("low", -pt.maximum(mu[0] - 12.0, 0.0))}
FREE = {"free": lambda mu: pt.maximum(mu[0], 12.0)}
LAWS = {
    "gap": (5.0, {}, lambda first: 0.0),
    "wide gap": (20.0, {}, lambda first: 0.0),
    "penalty": (90.0, PENALTY, lambda first: -np.maximum(first - 12.0, 0.0)),
    "free": (90.0, FREE, lambda first: stats.t.logpdf(np.maximum(first, 12.0) / SCALE, 5)),
}


@pytest.mark.parametrize("case", LAWS)
@pytest.mark.parametrize("step", ["ClusterGibbs", "ClusterSlice"])
def test_an_update_leaves_the_law_alone(step, case, monkeypatch):
    """Empty clusters' means are drawn, and means swapped, where that is nothing to the rest."""
    monkeypatch.setattr("pm_match.clusters.collapsed.ANCHORED_SWAPS", 1.0)
    gap, options, penalty = LAWS[case]
    model = mixture(apart(gap), n=5, **options)
    own = evidence(model).sliced
    if step == "ClusterSlice" and not own:
        pytest.skip("NUTS draws these means")
    labels, logs = law(model, gap, penalty)
    p = np.exp(logs - logs.max()).ravel()
    rng, n_draws = np.random.default_rng(2), 3200
    draws = rng.choice(p.size, n_draws, p=p / p.sum())
    of, one, two = np.unravel_index(draws, logs.shape)
    names = ["mu"] if step == "ClusterSlice" else ["cluster", "weights"]
    step = getattr(pmm, step)([model[name] for name in names], model=model, rng=3)
    point, after = model.initial_point(0), []
    # Means beside the grid's.
    grid = np.column_stack([GRID[one], GRID[two]])
    grid = grid + rng.uniform(-0.5, 0.5, grid.shape) * (GRID[1] - GRID[0])
    for place, means in zip(labels[of], grid, strict=True):
        new, _ = step.step(point | {"cluster": place, "mu": means})
        after.append([*new["mu"], *new["cluster"]])
    before, after = np.column_stack([grid, labels[of]]), np.array(after)
    assert (before != after).any(axis=1).mean() > 0.5

    def told(draws):
        a, b, *z = draws.T
        z = np.array(z)
        same = (z[:, None] == z[None]).mean(axis=(0, 1))
        return np.array([a, b, a * a, b * b, b < a - gap, a > 12.0, z.mean(axis=0), same])

    # Each draw beside the one that it was made of: their difference varies least.
    changes = told(after) - told(before)
    error = np.maximum(changes.std(axis=1) / np.sqrt(n_draws), 1e-9)
    z = changes.mean(axis=1) / error
    assert (abs(z) < 4.0).all(), z


def test_rows_that_others_depend_on_are_not_drawn_without_these():
    """Means of means of empty clusters matter to means of full ones, in places."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=3)
        nu = pm.Normal("nu", 0.0, 20.0, shape=2)
        mu = pm.Normal("mu", pt.stack([nu[0], pt.maximum(nu[1], nu[0] - 15.0)]), shape=2)
        pm.StudentT("x", nu=5, mu=mu[cluster], sigma=200.0, observed=np.array([-1.0, 0.0, 1.0]))
    assert {rows.names for rows in evidence(model).redrawn} == {("nu",), ("mu",)}
    step = pmm.ClusterGibbs([model["cluster"], model["weights"]], model=model, rng=0)
    point, rng = model.initial_point(0), np.random.default_rng(1)
    for _ in range(300):
        nu = rng.normal(0.0, 20.0, size=2)
        mu = rng.normal([nu[0], max(nu[1], nu[0] - 15.0)])
        labels = np.full(3, rng.integers(2))
        new, _ = step.step(point | {"nu": nu, "mu": mu, "cluster": labels})
        means = new["nu"][0], max(new["nu"][1], new["nu"][0] - 15.0)
        assert (abs(new["mu"] - means) < 6.0).all()


def test_a_variable_of_an_empty_cluster_is_drawn_given_that_of_a_full_one():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(3)), shape=4)
        one = pm.Normal("one", 0.0, 20.0)
        two = pm.Normal("two", pt.switch(one > 200.0, 100.0, 0.0), 20.0)
        means = pt.stack([one, two, pm.Normal("three", 0.0, 20.0)])
        pm.StudentT("x", nu=4, mu=means[cluster], sigma=2.0, observed=np.full(4, 30.0))
    redraw = Redraw(Context.of(model), evidence(model).redrawn)
    point = model.initial_point() | {"one": np.array(205.0)}
    rng, empty = np.random.default_rng(0), np.array([False, True, True])
    drawn = [redraw.proposed(rng, point, empty) for _ in range(400)]
    assert np.mean([own["two"] for own in drawn]) == pytest.approx(100.0, abs=5.0)
    assert {float(own["one"]) for own in drawn} == {205.0}
    # What a full cluster has depends on what this one has: most of its new values are none.
    drawn = [redraw.proposed(rng, point, np.array([True, False, False])) for _ in range(400)]
    assert all(own is None or own["one"] > 200.0 for own in drawn)


@pytest.mark.parametrize("n_sweeps", [1, 2, None])
def test_empty_clusters_get_new_rows_however_many_sweeps_there_are(n_sweeps):
    model = mixture(lambda mu: mu)
    both = [model["cluster"], model["weights"]]
    step = pmm.ClusterGibbs(both, model=model, rng=0, n_sweeps=n_sweeps)
    point, moved = model.initial_point() | {"mu": np.array([0.0, 1e6])}, 0
    for _ in range(20):
        new, _ = step.step(point | {"cluster": np.zeros(6, int)})
        moved += (new["mu"] != 1e6).all()
    assert moved > 10


def test_rows_stay_where_they_have_a_density():
    """Of what is drawn from its prior, some rounds to 1, whose log odds are not finite."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(4)), shape=6)
        rate = pm.Beta("rate", 0.1, 0.1, shape=4)
        pm.Binomial("y", 6, p=0.9 * rate[cluster], observed=np.arange(6))
    step = pmm.ClusterGibbs([model["cluster"], model["weights"]], model=model, rng=0)
    point, found = model.initial_point(0), []
    for _ in range(100):
        new, _ = step.step(point | {"cluster": np.zeros(6, int)})
        found.append(new["rate_logodds__"])
    assert np.isfinite(found).all()
    assert len(np.unique(found, axis=0)) > 80


def test_models_of_such_means_are_searched_and_sampled():
    draws = few_draws(mixture(apart(20.0)), draws=50, tune=50, chains=2)
    assert draws.posterior.sizes["draw"] == 50


# -- what is added up -----------------------------------------------------------------------------


SUMS = [
    pt.sum,
    lambda own: own.sum(axis=1).sum(),
    lambda own: own,
    lambda own: -pt.sum(-own),
    lambda own: -0.5 * (-2.0 * own).sum(),
    lambda own: pm.HalfNormal("scale") * own.sum(),
]


@pytest.mark.parametrize("total", SUMS)
def test_potentials_may_be_sums(total):
    x = np.random.default_rng(0).normal(size=(8, 2))
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=8)
        mu = pm.Normal("mu", 0.0, 2.0, shape=(2, 2))
        pm.Potential("x", total(pm.logp(pm.Logistic.dist(mu[cluster], 1.0), x)))
    owner = evidence(model).owner
    np.testing.assert_array_equal(owner, np.repeat(np.arange(8), len(owner) // 8))
    point = testing.random_point(model, np.random.default_rng(1))
    state = testing.collapsed_of(model)
    labels = state.labels(point)
    state.load(point, labels)
    expected = stats.logistic.logpdf(x, point["mu"][point["cluster"]]).sum()
    expected *= np.exp(point.get("scale_log__", 0.0))
    assert state.evidence[0].log_marginal(point, labels) == pytest.approx(expected)
    assert testing.plain_log_joint(state, point, labels) == pytest.approx(state.log_joint())


def test_products_of_sums_are_no_sums():
    x = np.random.default_rng(0).normal(size=8)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=8)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        own = pm.logp(pm.Logistic.dist(mu[cluster], 1.0), x)
        pm.Potential("x", own.sum() * pt.sqr(own).sum())
    with pytest.raises(pmm.UnservedModelError, match="labels of more than one object"):
        pmm.steps(model)


# -- what is switched on and off ------------------------------------------------------------------


def switched(p, n=12, rate=0.3):
    y = np.random.default_rng(0).poisson(2.0, size=n)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=n)
        there = pm.Bernoulli("there", p, shape=n)
        mean = pm.LogNormal("mean", 0.5, 1.0, shape=2)
        pm.Poisson("y", there * mean[cluster] + rate, observed=y)
    return model


@pytest.mark.parametrize("p", [0.01, 0.5, 0.99])
def test_whose_an_entry_is_shows_where_a_switch_is_on(p):
    np.testing.assert_array_equal(evidence(switched(p)).owner, np.arange(12))


def test_rare_effects_of_neighbours_are_seen():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=6)
        spills = pm.Bernoulli("spills", 0.001)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        before = pt.concatenate([[0], cluster[:-1]])
        pm.StudentT("x", nu=5, mu=mu[cluster] + spills * before, sigma=0.5, observed=np.zeros(6))
    assert read(model).of(PairLikelihoods)


@pytest.mark.parametrize("which", ["uniform", "counts"])
def test_whose_an_entry_is_shows_beyond_a_change_point(which):
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=12)
        change = pm.Poisson("t", 6.0) if which == "counts" else pm.DiscreteUniform("t", 0, 12)
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)[cluster]
        pm.Normal("x", pt.switch(np.arange(12) < change, mu, 0.5), 0.7, observed=np.ones(12))
    np.testing.assert_array_equal(evidence(model).owner, np.arange(12))


@pytest.mark.parametrize("n_switches", [2, 3])
def test_several_switches(n_switches):
    y = np.random.default_rng(0).poisson(2.0, size=12)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=12)
        there = [pm.Bernoulli(f"there_{k}", 0.3, shape=12) for k in range(n_switches)]
        mean = pm.LogNormal("mean", 0.5, 1.0, shape=2)
        pm.Poisson("y", pt.prod(there, axis=0) * mean[cluster] + 0.3, observed=y)
    np.testing.assert_array_equal(evidence(model).owner, np.arange(12))


def test_labels_that_matter_where_they_did_not_are_refused_in_words():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=4)
        far = pm.Normal("far")
        mu = pm.Normal("mu", 0.0, 2.0, shape=2)
        pm.StudentT("x", nu=5, mu=mu[cluster], sigma=1.0, observed=np.zeros(4))
        pm.StudentT("y", nu=5, mu=pt.switch(far > 90.0, mu[cluster], 0.0), observed=np.zeros(4))
    step = pmm.ClusterGibbs([model["cluster"], model["weights"]], model=model, rng=0)
    point = model.initial_point(0)
    step.step(point)
    with pytest.raises(pmm.UnservedModelError, match=r"'x', 'y': .* they matter elsewhere"):
        step.step(point | {"far": np.array(99.0), "mu": np.array([-1.0, 1.0])})
