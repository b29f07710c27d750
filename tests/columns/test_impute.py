"""Missing values of independent columns, predicted."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

import pm_match as pmm
from pm_match import testing
from pm_match.prediction.predictive import log_prior
from tests.declared.columns import HOLED, K, T, data_of, declared, holed, observe, parameters
from tests.prediction.made_up import tree_of

LEVELS = (0.1, 0.9)
# What has moments enough for means of draws to be compared.
LIGHT = ("poisson", "bernoulli", "binomial", "normal, known noise")
# Of what may have no mean, the median is told.
WITHOUT_MEAN = ("lognormal", "lognormal, known noise", "exponential", "geometric")
WITHOUT_MEAN += ("negative binomial",)
N = 1500


def imputed(model, points, new=None, **kwargs):
    tree = tree_of(model, points)
    return pmm.impute(tree, model, new, ci_prob=0.8, random_seed=1, progressbar=False, **kwargs)


def check_quantiles(draws, lower, upper):
    """Quantiles are where draws from the same law have them."""
    for level, found in zip(LEVELS, (lower, upper), strict=True):
        noise = 5.0 * np.sqrt(level * (1.0 - level) * 2.0 / len(draws))
        assert np.mean(draws < found) < level + noise
        assert np.mean(draws <= found) > level - noise


@pytest.mark.parametrize("family", HOLED)
def test_as_the_steps_draw_them(family):
    """In one draw: the law that missing values are drawn from, parameters drawn too."""
    model, rng = declared(family, missing=True), np.random.default_rng(3)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    draws = []
    for _ in range(N):
        new = dict(point)
        state.draw(rng, point, new)
        (name,) = (name for name in new if name.startswith("a_unobserved"))
        draws.append(np.exp(new[name]) if name.endswith("log__") else new[name])
    draws = np.array(draws, float)
    found = imputed(model, [point] * N)
    values = found["a"].values
    for number, place in enumerate([(1, 0), (2, 1)]):
        own = draws[:, number]
        if family == "categorical":
            share = np.bincount(own.astype(int), minlength=K) / N
            noise = 5.0 * np.sqrt(0.5 / N)
            assert found["a_probability"].values[place] == pytest.approx(share.max(), abs=noise)
            assert share[int(values[place])] > share.max() - noise
            continue
        check_quantiles(own, found["a_lower"].values[place], found["a_upper"].values[place])
        if family in WITHOUT_MEAN:
            noise = 5.0 * np.sqrt(0.5 / N)
            assert np.mean(own < values[place]) - noise < 0.5
            assert np.mean(own <= values[place]) + noise > 0.5
        if family in LIGHT:
            assert values[place] == pytest.approx(own.mean(), abs=5.0 * own.std() / np.sqrt(N / 2))
    observed = np.ma.masked_invalid(pmm_values(model))
    np.testing.assert_allclose(values[~observed.mask], observed.compressed())


def pmm_values(model):
    """Return the values of `a`, NaN where they are missing."""
    mask = np.zeros((3, 2), bool)
    mask[1, 0] = mask[2, -1] = True
    whole = np.full((3, 2), np.nan)
    whole[~mask] = model.rvs_to_values[model["a_observed"]].data
    return whole


def law_of(state, point):
    """Enumerate the assignments of all objects, with their probabilities."""
    labels = [np.array(own) for own in product(range(T), repeat=6)]
    logs = np.array([testing.plain_log_joint(state, point, [own]) for own in labels])
    return labels, np.exp(logs - logsumexp(logs))


def predictive(family, seen):
    """Cdf and mean of a value of the first column, given others of its cluster, by formulas."""
    n = len(seen)
    if family == "poisson":
        a, b = 1.5 + seen.sum(), 0.5 + n
        return stats.nbinom(a, b / (b + 1.0))
    if family == "bernoulli":
        a, b = 1.2 + seen.sum(), 1.5 + n - seen.sum()
        return stats.bernoulli(a / (a + b))
    mean = seen.mean() if n else 0.0
    k, a = 0.3 + n, 2.0 + 0.5 * n
    b = 1.5 + 0.5 * ((seen - mean) ** 2).sum() + 0.5 * 0.3 * n / k * (mean - 0.2) ** 2
    return stats.t(2 * a, (0.3 * 0.2 + n * mean) / k, np.sqrt(b * (k + 1.0) / (a * k)))


def check_law(found, name, place, law, laws, n):
    """Hold a mean and an interval against a mixture of `laws`, whose draws are `n`."""
    mean = law @ [own.mean() for own in laws]
    spread = np.sqrt(law @ [own.var() + own.mean() ** 2 for own in laws] - mean**2)
    assert found[name].values[place] == pytest.approx(mean, abs=4.0 * spread / np.sqrt(n))
    for level, end in zip(LEVELS, ("lower", "upper"), strict=True):
        value = found[f"{name}_{end}"].values[place]
        at, before = (law @ [own.cdf(value - less) for own in laws] for less in (0.0, 1e-6))
        noise = 4.0 * np.sqrt(level * (1.0 - level) / n)
        assert before - noise < level < at + noise


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "normal"])
def test_against_enumerated_assignments(family):
    """Over draws from the posterior: the mixture of predictives over all assignments."""
    model, rng = declared(family, missing=True), np.random.default_rng(4)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    labels, law = law_of(state, point)
    chosen = rng.choice(len(labels), size=4000, p=law)
    points = [testing.at_labels(state, point, [labels[n]]) for n in chosen]
    found = imputed(model, points)
    column = np.append(pmm_values(model)[:, 0], model.rvs_to_values[model["b"]].data[:, 0])
    laws = [predictive(family, column[(own == own[1]) & ~np.isnan(column)]) for own in labels]
    check_law(found, "a", (1, 0), law, laws, len(chosen))


def one_parameter(family, a, b):
    """Two tables, the two columns of which have one parameter."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        theta = parameters(family, m=1)
        theta = tuple(own[:, [0, 0]] for own in theta) if family == "normal" else theta[:, [0, 0]]
        for name, values in (("a", a), ("b", b)):
            cluster = pm.Categorical(f"cluster_{name}", p=weights, shape=len(values))
            observe(family, name, cluster, theta, values)
    return model


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "normal"])
def test_new_objects_are_as_objects_of_the_data(family):
    """A mixture over clusters of predictives given what is seen of them, and of the object."""
    rng = np.random.default_rng(5)
    a, b = (data_of(family, 3, rng) for _ in range(2))
    b = np.ma.masked_array(b, np.zeros(b.shape, bool))
    # A value that is far from the others says much of its cluster.
    b[2, 0] = {"poisson": 9, "bernoulli": 1, "normal": 4.0}[family]
    b[2, 1] = np.ma.masked
    more, less = one_parameter(family, a, b), one_parameter(family, a, b[:2].data)
    state = testing.collapsed_of(more)
    point = testing.random_point(more, rng, state)
    logs, laws = [], []
    seen = np.ma.filled(np.ma.concatenate([a, b]).astype(float), np.nan)
    for label in range(T):
        labels = np.concatenate([point["cluster_a"], point["cluster_b"][:2], [label]])
        logs.append(testing.plain_log_joint(state, point, [labels]))
        own = seen[labels == label].ravel()
        laws.append(predictive(family, own[~np.isnan(own)]))
    law = np.exp(np.array(logs) - logsumexp(logs))
    base = {name: value for name, value in point.items() if not name.startswith("b_")}
    base["cluster_b"], n_draws = point["cluster_b"][:2], 4000
    new = np.array([[b[2, 0], np.nan]], float)
    found = imputed(less, [base] * n_draws, {"b": new})
    assert found["b_upper"].values[0, 0] == b[2, 0]
    check_law(found, "b", (0, 1), law, laws, n_draws)


def wide(family, rng):
    """Declare columns whose prior tells next to nothing, and values of one cluster."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster_a", p=pm.Dirichlet("w", np.ones(T)), shape=40)
        if family == "negative binomial":
            p = pm.Beta("p", 0.01, 0.01, shape=T)
            x = rng.negative_binomial(3, 0.3, 40)
            pm.NegativeBinomial("a", n=3, p=p[cluster], observed=x)
            return model, x
        tau = pm.Gamma("tau", 0.01, 0.01, shape=T)
        mu = pm.Normal("mu", 0.0, tau=0.01 * tau, shape=T)
        x = rng.normal(size=40)
        if family == "lognormal":
            pm.LogNormal("a", mu[cluster], tau=tau[cluster], observed=np.exp(x))
        else:
            pm.Normal("a", mu[cluster], tau=tau[cluster], observed=x)
    return model, np.exp(x) if family == "lognormal" else x


@pytest.mark.parametrize("family", ["normal", "lognormal", "negative binomial"])
def test_quantiles_beside_empty_clusters_without_a_scale(family):
    """Their parameters may be anything: the others' quantiles were lost to them."""
    model, x = wide(family, np.random.default_rng(7))
    point = model.initial_point(0) | {"cluster_a": np.zeros(40, int)}
    found = imputed(model, [point] * 40, {"a": np.array([np.nan])})
    # Of 42 parts of the weight, 41 are the known objects' cluster's.
    for level, end in zip(LEVELS, ("a_lower", "a_upper"), strict=True):
        low, high = np.quantile(x, [max(level - 0.12, 0.0), min(level + 0.12, 1.0)])
        assert low <= found[end].values[0] <= high + 0.5 * (high - low)


def test_categories_of_new_objects():
    rng = np.random.default_rng(6)
    a, b = (data_of("categorical", 3, rng) for _ in range(2))
    model = one_parameter("categorical", a, b)
    point = testing.random_point(model, rng)
    labels = np.concatenate([point["cluster_a"], point["cluster_b"]])
    found = imputed(model, [point] * N, {"b": np.array([[2.0, np.nan]])})
    state = testing.collapsed_of(model)
    hyper = 1.5 * np.array([0.5, 1.0, 1.5])
    weight, p = [], []
    for label in range(T):
        own = np.concatenate([a, b])[labels == label].ravel()
        counts = np.bincount(own, minlength=K) + hyper
        weight.append(counts[2] / counts.sum())
        p.append((counts + (np.arange(K) == 2)) / (counts.sum() + 1))
    (clustering,) = state.component.clusterings
    prior = np.exp(log_prior(*clustering.prior(point), labels, T))
    q = prior * weight
    expected = q @ p / q.sum()
    assert found["b"].values[0, 1] == expected.argmax()
    assert found["b_probability"].values[0, 1] == pytest.approx(expected.max(), abs=0.02)
    assert found["b_probability"].values[0, 0] == 1.0


def test_rows_of_counts():
    x = np.ma.masked_array(np.array([[2, 1, 1], [1, 2, 1], [3, 0, 1], [0, 3, 1]]))
    x[1] = np.ma.masked
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=np.ones(2) / 2, shape=4)
        p = pm.Dirichlet("p", np.ones(3), shape=(2, 3))
        pm.Multinomial("x", 4, p[cluster], observed=x)
    point = model.initial_point(0) | {"cluster": np.array([0, 0, 0, 1])}
    found = imputed(model, [point] * N)
    # Of the two others of its cluster: 5, 1 and 2 of 8, and the prior.
    expected = 4.0 * np.array([6, 2, 3]) / 11
    np.testing.assert_allclose(found["x"].values[1], expected, atol=0.1)
    np.testing.assert_array_equal(found["x_lower"].values[0], x[0])


def test_long_tables_keep_their_shape():
    """Several values of an object, in any order: no table with a row for each object."""
    values = holed(np.arange(8).reshape(4, 2))
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=np.ones(T) / T, shape=3)
        rate = pm.Gamma("rate", 1.5, 0.5, shape=T)
        pm.Poisson("x", rate[cluster[[0, 0, 1, 2]]][:, None], observed=values)
    found = imputed(model, [model.initial_point(0)] * 3)
    assert found["x"].dims == ("x_dim_0", "x_dim_1")
    assert np.isfinite(found["x"].values).all()


def test_what_there_is_to_predict_is_named():
    model = declared("poisson", missing=True)
    point = testing.random_point(model, np.random.default_rng(0))
    assert sorted(imputed(model, [point], var_names=["a"])) == ["a", "a_lower", "a_upper"]
    with pytest.raises(ValueError, match="var_names: expected missing values in 'b'; found none"):
        imputed(model, [point], var_names=["b"])
    with pytest.raises(ValueError, match="expected features or columns of domain 'b', some"):
        imputed(model, [point], {"b": np.ones((1, 2))})
    whole = declared("poisson")
    with pytest.raises(ValueError, match="that are integrated out; found none"):
        imputed(whole, [testing.random_point(whole, np.random.default_rng(0))])


@pytest.mark.parametrize("new", [None, {"z": np.full((1, 2), np.nan)}])
def test_normal_columns_without_a_mean_get_medians(new):
    """In a cluster of which nothing else is seen, a value is t, with twice the shape."""
    with pm.Model() as model:
        tau = pm.Gamma("tau", 0.5, 1.0, shape=(2, 2))
        mean = pm.Normal("mean", 0.7, tau=tau, shape=(2, 2))
        z = pm.Categorical("z", np.full(2, 0.5), shape=3)
        x = np.ma.masked_invalid([[0.1, 0.3], [0.3, 0.4], [np.nan, 0.2]])
        observe("normal", "x", z, (mean, tau), x)
    point = testing.random_point(model, np.random.default_rng(0), testing.collapsed_of(model))
    labels = np.array([0, 0, 1]) if new is None else np.zeros(3, int)
    found = imputed(model, [point | {"z": labels}] * N, new)["x"].values[-1, 0]
    scale = np.sqrt((1.0 + 0.5 * 0.02 + (0.2 - 0.7) ** 2 / 3.0) * 4.0 / (1.5 * 3.0))
    laws = [stats.t(1.0, 0.7, 2.0), stats.t(3.0, 1.1 / 3.0, scale)]
    below = np.mean([law.cdf(found) for law in (laws if new else laws[:1])])
    assert below == pytest.approx(0.5, abs=5.0 * np.sqrt(0.5 / N))
