"""Models with independent columns, from data to matches and predictions."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.metrics import adjusted_rand_index
from pm_match.reading import read
from tests.declared.columns import FAMILIES, M, declared


@pytest.fixture(scope="module")
def sampled():
    model = declared("poisson", n=(30, 20), hyperprior=True, missing=True, truncation=6)
    idata = pmm.sample(20, tune=20, chains=2, model=model, random_seed=1, progressbar=False)
    return model, idata


def test_a_declared_model_is_served(sampled):
    _, idata = sampled
    assert {"theta", "theta_hyper", "weights", "a_unobserved"} <= set(idata["posterior"])
    assert (idata["posterior"]["a_unobserved"] >= 0).all()
    assert pmm.match_probability(idata, "cluster_a", "cluster_b").shape == (30, 20)


def test_new_objects(sampled):
    model, idata = sampled
    new = np.array([[1.0, 2.0], [np.nan, 3.0]])
    found = pmm.assign(idata, model, {"b": new}, progressbar=False)
    total = found["prediction/b/probability"].sum("cluster") + found["prediction/b/unseen"]
    np.testing.assert_allclose(total, 1.0)
    with pytest.raises(ValueError, match=r"'b', row 1, column 0 of 'b': expected a whole"):
        pmm.assign(idata, model, {"b": np.array([[1.0, 2.0], [-1.0, 3.0]])}, progressbar=False)
    with pm.Model() as one:
        cluster = pm.Categorical("cluster_c", [0.5, 0.5], shape=4)
        rate = pm.Gamma("rate", 1.0, 1.0, shape=2)
        pm.Poisson("visits", rate[cluster], observed=[0, 1, 9, 8])
    draws = pmm.find_matching(one, starts=1, progressbar=False)
    with pytest.raises(ValueError, match=r"'c', row 1, column 'visits': expected a whole number"):
        pmm.assign(draws, one, {"c": np.array([1.0, 2.5])}, progressbar=False)
    with pytest.raises(ValueError, match=f"expected {M} columns; found 3"):
        pmm.assign(idata, model, {"b": np.ones((2, 3))}, progressbar=False)


def test_posterior_predictive(sampled):
    """Labels and rates of a draw go together: counts are replicated by their clusters' rates."""
    model, idata = sampled
    with model:
        found = pm.sample_posterior_predictive(idata, random_seed=2, progressbar=False)
    counts = found["posterior_predictive"]["b"].to_numpy()
    draws = idata["posterior"]
    rate = np.take_along_axis(
        draws["theta"].to_numpy(), draws["cluster_b"].to_numpy()[..., None], axis=2
    )
    assert counts.shape == rate.shape
    # Standardised by column: of right pairs, standard normal sums.
    z = (counts - rate).sum(axis=(0, 1, 2)) / np.sqrt(rate.sum(axis=(0, 1, 2)))
    assert np.abs(z).max() < 4.5
    share = np.square(counts - rate).sum() / rate.sum()
    assert share == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "binomial"])
def test_predictives_are_ratios_of_evidence(family):
    """A new object's predictive is what the evidence of the data rises by."""
    from pm_match.prediction.new_objects import find_place, read_new_objects
    from pm_match.prediction.predictive import Predictive
    from pm_match.testing import collapsed_of, random_point

    more, less = declared(family, n=(3, 3)), declared(family, n=(3, 2))
    values = more.rvs_to_values[more["b"]].data
    np.testing.assert_array_equal(values[:2], less.rvs_to_values[less["b"]].data)
    point = random_point(more, np.random.default_rng(1))
    labels = np.concatenate([point["cluster_a"], point["cluster_b"]])
    state, base = collapsed_of(more), collapsed_of(less)
    predictive = Predictive(less, read(less).components[0])
    predictive.load(point | {"cluster_b": point["cluster_b"][:2]})
    new = read_new_objects(less, predictive, find_place(read(less), "b"), values[2:])
    found = predictive.predictors[0].log_predictive(new.place, new.seen[0])[0, :-1]
    before = base.evidence[0].log_marginal(point, [labels[:5]])
    for label in range(3):
        labels[5] = label
        after = state.evidence[0].log_marginal(point, [labels])
        assert found[label] == pytest.approx(after - before, abs=1e-8)


@pytest.mark.parametrize("family", ["poisson", "categorical", "normal, known noise"])
def test_a_new_object_counts_in_full_among_coarsened_ones(family):
    """Its predictive is the density of its values, averaged over the parameters' conditional."""
    from pm_match.prediction.new_objects import find_place, read_new_objects
    from pm_match.prediction.predictive import Predictive
    from pm_match.testing import collapsed_of, random_point

    model, rng = declared(family), np.random.default_rng(1)
    with model:
        for rv in list(model.observed_RVs):
            pmm.coarsen(f"coarsened_{rv.name}", rv, 0.4)
    structure, point = read(model), random_point(model, rng)
    predictive, state = Predictive(model, structure.components[0]), collapsed_of(model)
    predictive.load(point)
    state.load(point, state.labels(point))
    x = np.asarray(model.rvs_to_values[model["b"]].data, np.float64)[:1]
    new = read_new_objects(model, predictive, find_place(structure, "b"), x)
    found = predictive.predictors[0].log_predictive(new.place, new.seen[0])[0, :-1]
    (evidence,) = state.evidence
    cells, prior = evidence.columns.cells[1], evidence.columns.prior
    posterior = prior.posterior(evidence.columns.hyper(point), evidence.held())
    logs = []
    for _ in range(20_000):
        natural = prior.natural(prior.draw(rng, posterior))
        known = np.broadcast_to(cells.known[:M], (len(posterior), M))
        values = np.broadcast_to(x, known.shape)
        each = [
            cells.family.log_density(values[k], [own[k] for own in natural], known[k])
            for k in range(len(posterior))
        ]
        logs.append(np.sum(each, axis=1))
    density = np.exp(logs)
    error = density.std(axis=0) / np.sqrt(len(density))
    assert (np.abs(density.mean(axis=0) - np.exp(found)) < 4.5 * error).all()


def planted(seed=0):
    """Two tables over the same clusters, with columns of four families, some values missing."""
    rng, n = np.random.default_rng(seed), {"a": 120, "b": 90}
    true, truncation = 5, 12
    truth = {name: rng.integers(true, size=size) for name, size in n.items()}
    rate, chance = rng.gamma(1.5, 4.0, (true, 6)), rng.beta(0.5, 0.5, (true, 6))
    mean, p = rng.normal(0.0, 3.0, (true, 2)), rng.dirichlet(np.full(4, 0.4), true)
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=truncation - 1)
        own_rate = pm.Gamma("rate", pm.Gamma("shape", 2.0, 1.0), 0.3, shape=(truncation, 6))
        own_chance = pm.Beta("chance", 0.5, 0.5, shape=(truncation, 6))
        precision = pm.Gamma("precision", 2.0, 2.0, shape=(truncation, 2))
        own_mean = pm.Normal("mean", 0.0, tau=0.1 * precision, shape=(truncation, 2))
        own_p = pm.Dirichlet("p", np.full(4, 0.5), shape=(truncation, 4))
        for name, t in truth.items():
            cluster = pm.Categorical(f"cluster_{name}", p=weights, shape=len(t))
            pm.Poisson(f"count_{name}", own_rate[cluster], observed=rng.poisson(rate[t]))
            pm.Bernoulli(f"yes_{name}", own_chance[cluster], observed=rng.binomial(1, chance[t]))
            x = mean[t] + rng.normal(size=(len(t), 2))
            x = np.ma.masked_array(x, rng.random(x.shape) < 0.1)
            pm.Normal(f"x_{name}", own_mean[cluster], tau=precision[cluster], observed=x)
            kinds = [rng.choice(4, p=p[label]) for label in t]
            pm.Categorical(f"kind_{name}", p=own_p[cluster], observed=kinds)
    return model, {f"cluster_{name}": t for name, t in truth.items()}


def test_a_search_finds_planted_clusters_of_two_tables():
    model, truth = planted()
    (component,) = read(model).components
    assert len(component.evidence) == 4
    best = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)
    found = {name: best["posterior"][name].values[0, 0] for name in truth}
    assert adjusted_rand_index(found, truth) > 0.98
    probability = pmm.match_probability(best, "cluster_a", "cluster_b")
    same = truth["cluster_a"][:, None] == truth["cluster_b"]
    assert np.mean((probability > 0.5) == same) > 0.98
    for point in pmm.initial_points(model, 2, random_seed=2, progressbar=False):
        assert adjusted_rand_index({name: point[name] for name in truth}, truth) > 0.98
