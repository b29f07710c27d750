"""Factors of precisions, which make normal vectors Student's t: from reading to prediction."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import logsumexp

import pm_match as pmm
from pm_match import testing
from pm_match.normal.parts import Normals
from pm_match.normal.sharded import ShardedNormals
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import read
from pm_match.reading.probe import natural_function
from pm_match.views.hinge.frequency_metropolis import _mixture
from tests.declared.normals import loaded, normals_model, random_point
from tests.prediction.made_up import tree_of

T, D, N = 3, 2, 6
DATA = np.random.default_rng(0).normal(size=(N, D))


def declared(observe, shape=N, more=None):
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), T - 1)
        cluster = pm.Categorical("cluster_a", p=weights, shape=N)
        precision = pm.Wishart("precision", nu=6, V=0.3 * np.eye(D), shape=(T, D, D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        factor = pm.Gamma("factor", 4.0, 4.0, shape=shape)
        observe(mean[cluster], cov[cluster], factor)
        if more is not None:
            more(factor)
    return model


WAYS = {
    "covariance": lambda m, c, u: pm.MvNormal("x", m, cov=c / u[:, None, None], observed=DATA),
    "cholesky": lambda m, c, u: pm.MvNormal(
        "x", m, chol=pt.linalg.cholesky(c) / pt.sqrt(u)[:, None, None], observed=DATA
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_writing_it(way):
    model = declared(WAYS[way])
    (normals,) = read(model).of(Normals)
    (factor,) = normals.factors
    assert factor.name == "factor"
    assert normals.conditioned_on == ["mean", "precision"]
    served = {v.name for step in pmm.steps(model) for v in step.vars}
    assert served == {v.name for v in model.value_vars}
    point = random_point(model, np.random.default_rng(1))
    np.testing.assert_allclose(factor.read(point), np.exp(point["factor_log__"]))


def other(name):
    return lambda m, c, u: pm.MvNormal(
        "x", m, cov=c / (u * pm.Gamma(name, 2.0, 2.0, shape=N))[:, None, None], observed=DATA
    )


REFUSED = {
    "one factor for all": (
        lambda m, c, u: pm.MvNormal("x", m, cov=c / u, observed=DATA),
        {"shape": ()},
        "'factor' has shape (); expected a factor for each of the 6 vectors of 'x'",
    ),
    "two factors": (other("more"), {}, "expected one factor of precisions"),
    "squared": (
        lambda m, c, u: pm.MvNormal("x", m, cov=c / (u**2)[:, None, None], observed=DATA),
        {},
        "the declared density of 'x' is not normal around 'mean'",
    ),
    "of other objects": (
        lambda m, c, u: pm.MvNormal("x", m, cov=c / u[::-1][:, None, None], observed=DATA),
        {},
        "the declared density of 'x' is not normal around 'mean'",
    ),
    "of two variables": (
        lambda m, c, u: [
            pm.MvNormal(name, m, cov=c / u[:, None, None], observed=DATA) for name in "xy"
        ],
        {},
        "'y' depends on 'factor' too",
    ),
    "seen elsewhere": (
        WAYS["covariance"],
        {"more": lambda u: pm.Normal("y", u[0], 1.0, observed=0.4)},
        "'y' depends on 'factor' too",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_only_looks_like_it_is_refused(what):
    observe, options, message = REFUSED[what]
    structure = read(declared(observe, **options))
    assert message in {**structure.refusals, **structure.notes}["cluster_a"]


def test_a_factor_without_a_transform_is_refused():
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), T - 1)
        cluster = pm.Categorical("cluster_a", p=weights, shape=N)
        precision = pm.Wishart("precision", nu=6, V=np.eye(D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        factor = pm.Gamma("factor", 4.0, 4.0, shape=N, default_transform=None)
        pm.MvNormal("x", mean[cluster], cov=cov / factor[:, None, None], observed=DATA)
    structure = read(model)
    assert not structure.of(Normals)
    assert "cluster_a" in {**structure.refusals, **structure.notes}


def test_hierarchies_do_without():
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), T - 1)
        z = pm.Categorical("cluster_object", p=weights, shape=N)
        link = pm.Dirichlet("link", np.ones((T, T)))
        own = pm.Categorical("cluster_x", p=link[z], shape=N)
        precision = pm.Wishart("precision", nu=6, V=np.eye(D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        factor = pm.Gamma("factor", 4.0, 4.0, shape=N)
        pm.MvNormal("x", mean[own], cov=cov / factor[:, None, None], observed=DATA)
    structure = read(model)
    assert not [p for p in structure.parts if type(p).__name__ == "Hierarchy"]
    found = {**structure.refusals, **structure.notes}
    assert any("'factor' multiplies precisions of 'x'" in why for why in found.values())


@pytest.mark.parametrize("tails", [False, True])
def test_frequencies_with_factors_are_drawn_as_declared(tails):
    """Clusters of frequencies are integrated out only where they have no factors."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), T - 1)
        cluster = pm.Categorical("cluster_a", p=weights, shape=N)
        precision = pm.Wishart("precision", nu=6, V=np.eye(D), shape=(T, D, D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        spread = cov[cluster]
        if tails:
            spread = spread / pm.Gamma("factor", 4.0, 4.0, shape=N)[:, None, None]
        omega = pm.MvNormal("omega", mean[cluster], cov=spread, shape=(N, D))
        pm.Normal("seen", omega, 1.0, observed=DATA)
    structure = read(model)
    assert structure.of(Normals)
    assert (_mixture(structure, "omega") is None) == tails


def test_em_and_shards_do_without():
    model = declared(WAYS["covariance"])
    (component,) = read(model).components
    with pytest.raises(pmm.UnservedModelError, match="factors of their precisions"):
        ShardedNormals(model, component.evidence[0], component)
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(T))
        cluster = pm.Categorical("cluster_object", p=weights, shape=N)
        precision = pm.Wishart("precision_x", nu=6, V=np.eye(D))
        cov = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean_x", np.zeros(D), cov=cov / 0.5, shape=(T, D))
        factor = pm.Gamma("factor", 4.0, 4.0, shape=N)
        pm.MvNormal("x", mean[cluster], cov=cov / factor[:, None, None], observed=DATA)
    with pytest.raises(pmm.UnservedModelError, match="the precisions of 'x' have factors"):
        pmm.fit_em(model, progressbar=False)


# -- the model -------------------------------------------------------------------------------------


def test_normal_clusters_declares_it():
    """Of a domain, given labels, parameters and factors; by SciPy."""
    model = pmm.models.normal_clusters({"a": DATA}, 3, tails=5.0)
    rng = np.random.default_rng(2)
    point = random_point(model, rng)
    names = ["precision_a", "precision_factor_a"]
    precision, factor = natural_function(model, names)(point)
    x = (DATA - DATA.mean(axis=0)) / DATA.std(axis=0)
    expected = stats.gamma.logpdf(factor, 2.5, scale=1.0 / 2.5).sum()
    for row, j, u in zip(x, point["cluster_a"], factor, strict=True):
        covariance = np.linalg.inv(u * precision[j])
        expected += stats.multivariate_normal.logpdf(row, point["mean_a"][j], covariance)
    variables = [model["a"], model["precision_factor_a"]]
    found = model.compile_logp(vars=variables, jacobian=False)(point)
    assert found == pytest.approx(expected, rel=1e-9)


def test_bad_tails():
    with pytest.raises(ValueError, match="tails: expected a positive"):
        pmm.models.normal_clusters({"a": DATA}, 3, tails=0.0)


# -- searches and chains ---------------------------------------------------------------------------


def heavy_tailed(seed=3):
    """Two domains of two clusters of different sizes, t with two degrees of freedom."""
    rng = np.random.default_rng(seed)
    label = np.repeat([0, 1], (90, 40))
    tables = {}
    for name, d in (("a", 2), ("b", 3)):
        x = stats.multivariate_t(np.zeros(d), np.eye(d), df=2, seed=rng).rvs(len(label))
        tables[name] = x + 14.0 * label[:, None] / np.sqrt(d)
    return tables, label


def index_of(found, label):
    estimate = pmm.partition_estimate(found, progressbar=False)
    labels = {name: estimate[f"cluster_{name}"].to_numpy() for name in "ab"}
    return pmm.metrics.adjusted_rand_index({"a": label, "b": label}, labels)


def test_far_objects_do_not_cost_a_cluster():
    tables, label = heavy_tailed()
    indices, sizes = [], []
    for tails in (None, 2.0):
        model = pmm.models.normal_clusters(tables, tails=tails)
        found = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)
        indices.append(index_of(found, label))
        sizes.append(int(found["starts"]["n_occupied"].values[0]))
    assert indices[1] > 0.9
    assert indices[0] < 0.85
    assert sizes[1] < sizes[0]
    idata = pmm.sample(
        60, tune=60, chains=1, cores=1, random_seed=2, model=model, quiet=True, progressbar=False
    )
    assert index_of(idata, label) > 0.9
    # The farthest objects have the least factors.
    own = idata["posterior"]["precision_factor_a"].mean(("chain", "draw")).to_numpy()
    centres = np.stack([np.median(tables["a"][label == j], axis=0) for j in (0, 1)])
    far = np.linalg.norm(tables["a"] - centres[label], axis=1)
    assert stats.spearmanr(own, far).statistic < -0.9


def test_values_may_be_missing():
    tables, label = heavy_tailed()
    tables["b"][::7, 0] = np.nan
    model = pmm.models.normal_clusters(tables, tails=2.0)
    found = pmm.find_matching(model, starts=2, random_seed=1, progressbar=False)
    assert index_of(found, label) > 0.85


@pytest.mark.parametrize("holes", [False, True])
def test_log_joints_hardly_depend_on_factors(holes):
    """What modes are compared by is the evidence of vectors, as far as can be told."""
    tables, label = heavy_tailed()
    if holes:
        tables["a"][::2, 0] = np.nan
    model = pmm.models.normal_clusters(tables, 3, tails=4.0)
    rng, found = np.random.default_rng(5), []
    steps = pmm.steps(model)
    draws = [step for step in steps if not isinstance(step, pmm.ClusterGibbs)]
    (clusters,) = (step for step in steps if isinstance(step, pmm.ClusterGibbs))
    point = random_point(model, rng) | {"cluster_a": label, "cluster_b": label}
    for _ in range(120):
        for step in draws:
            step.started = False  # labels stay
            point, _ = step.step(point)
        own = loaded(clusters, point).collapsed
        found.append((own.log_joint(), own.log_joint() + own.log_prior(point)))
        new = dict(point)
        own.draw(rng, point, new)
        point = new
    # The first are far from the posterior.
    plain, corrected = np.std(found[20:], axis=0)
    assert corrected < 0.2 * plain


@pytest.mark.parametrize(("n_clusters", "tails"), [(1, 8.0), (1, 3.0), (2, 8.0)])
def test_log_joints_are_those_of_t_clusters(n_clusters, tails):
    """Of the labels, by Chib's identity: likelihood and prior over the posterior, at one place."""
    d, n = 6, 120
    rng = np.random.default_rng(4)
    x = stats.multivariate_t(np.zeros(d), np.eye(d), df=5, seed=rng).rvs(n)
    model = pmm.models.normal_clusters({"a": x}, 2, tails=tails)
    label, steps = np.arange(n) % n_clusters, pmm.steps(model)
    (factors,) = (step for step in steps if isinstance(step, pmm.PrecisionFactorGibbs))
    (clusters,) = (step for step in steps if isinstance(step, pmm.ClusterGibbs))
    factors.setup_chain(rng, 0, 0)
    point, found, drawn, prior = model.initial_point(0) | {"cluster_a": label}, [], [], None
    for _ in range(250):
        point, _ = factors.step(point)
        own = loaded(clusters, point)
        (evidence,) = own.evidence
        found.append(own.evidence[0].log_marginal(label) + own.collapsed.log_prior(point))
        drawn.append(evidence.factors)
        prior, vectors = evidence.prior, evidence.values
        new = dict(point)
        own.collapsed.draw(rng, point, new)
        point = new
    expected = 0.0
    for j in range(n_clusters):
        own, laws = vectors[label == j], []
        for u in np.array(drawn)[50:, label == j]:
            # One more vector, of weight `strength`, is at the centre.
            strength = prior.strength + u.sum()
            middle = (prior.strength * prior.center + u @ own) / strength
            away, off = own - middle, prior.center - middle
            scale = prior.inverse_scale + (u[:, None] * away).T @ away
            laws.append((strength, middle, scale + prior.strength * np.outer(off, off)))
        degrees = prior.degrees + len(own)
        mean = np.mean([law[1] for law in laws], axis=0)
        precision = np.mean([degrees * np.linalg.inv(law[2]) for law in laws], axis=0)

        def log_density(law, degrees, mean=mean, precision=precision):
            strength, middle, scale = law
            total = stats.wishart.logpdf(precision, degrees, np.linalg.inv(scale))
            covariance = np.linalg.inv(strength * precision)
            return total + stats.multivariate_normal.logpdf(mean, middle, covariance)

        first = (prior.strength, prior.center, prior.inverse_scale), prior.degrees
        after = [log_density(law, degrees) for law in laws]
        shape = np.linalg.inv(precision)
        expected += stats.multivariate_t(mean, shape, df=tails).logpdf(own).sum()
        expected += log_density(*first) - logsumexp(after) + np.log(len(after))
    # Without what is added back it is off by 4 nats or more for each cluster.
    assert np.mean(found[50:]) == pytest.approx(expected, abs=1.5)


# -- predictions -----------------------------------------------------------------------------------


def test_new_objects_are_t():
    model = pmm.models.normal_clusters({"a": DATA, "b": DATA[:5] + 1.0}, 3, tails=5.0)
    assert [own.of_objects for own in read(model).of(Normals)] == [
        ["precision_factor_a"], ["precision_factor_b"]
    ]  # fmt: skip
    point = random_point(model, np.random.default_rng(3))
    mean, precision = natural_function(model, ["mean_b", "precision_b"])(point)
    place = find_place(read(model), "b")
    predictive = Predictive(model, place.component)
    predictive.load(point)
    new = np.array([[0.3, -0.2], [2.0, np.nan], [np.nan, 40.0]])
    ((number, vectors),) = read_new_objects(model, predictive, place, {"b": new}).seen.items()
    found = predictive.predictors[number].log_predictive(place, vectors)
    for i, x in enumerate(new):
        known = np.flatnonzero(~np.isnan(x))
        for j in range(3):
            shape = np.linalg.inv(precision[j])[np.ix_(known, known)]
            law = stats.multivariate_t(mean[j, known], shape, df=5.0)
            assert found[i, j] == pytest.approx(law.logpdf(x[known]), rel=1e-9)


def test_predictions_need_no_factors():
    tables, _ = heavy_tailed()
    model = pmm.models.normal_clusters(tables, 4, tails=2.0)
    given = {"random_seed": 1, "progressbar": False}
    idata = pmm.sample(
        5, tune=5, chains=1, cores=1, model=model, quiet=True, compute_convergence_checks=False,
        var_names=["cluster_a", "cluster_b", "mean_a", "mean_b", "precision_a", "precision_b"],
        **given,
    )  # fmt: skip
    new = np.asarray(pmm.standardise(tables)["a"])[::20]
    found = pmm.assign(idata, model, {"a": new}, **given)
    assert found["posterior"]["cluster_a_new"].shape == (1, 5, len(new))


def test_new_objects_need_one_prior_of_factors():
    model = normals_model("tails")
    place = find_place(read(model), "a")
    predictive = Predictive(model, place.component)
    predictive.load(random_point(model, np.random.default_rng(3)))
    ((number, seen),) = read_new_objects(model, predictive, place, {"x": DATA}).seen.items()
    with pytest.raises(pmm.UnservedModelError, match="the prior of 'factor_x' differs"):
        predictive.predictors[number].log_predictive(place, seen)


def test_likelihoods_to_a_power_have_the_factors_integrated_out():
    tables, power = {"a": DATA, "b": DATA[:5] + 1.0}, 0.6
    model = pmm.models.normal_clusters(tables, 2, tails=5.0)
    with model:
        pmm.coarsen("coarse", "a", power)
    point = testing.random_point(model, np.random.default_rng(2))
    idata = tree_of(model, [point])
    found = pmm.log_predictive(idata, model, coarsened=True, progressbar=False)
    plain = pmm.log_predictive(idata, model, progressbar=False)
    names = ["weights", "mean_a", "precision_a"]
    weights, mean, precision = natural_function(model, names)(point)
    told = found["log_likelihood"]["objects"].to_numpy()[0, 0]
    n = len(tables["a"])
    for x, own in zip(model.rvs_to_values[model["a"]].data, told[:n], strict=True):

        def density(u, x=x):
            laws = [
                stats.multivariate_normal(mean[j], np.linalg.inv(u * precision[j])) for j in (0, 1)
            ]
            each = [w * law.pdf(x) ** power for w, law in zip(weights, laws, strict=True)]
            return stats.gamma.pdf(u, 2.5, scale=1.0 / 2.5) * sum(each)

        assert own == pytest.approx(np.log(quad(density, 0.0, np.inf, epsabs=0.0)[0]), rel=1e-6)
    # What is not coarsened counts as it is.
    np.testing.assert_allclose(told[n:], plain["log_likelihood"]["objects"].to_numpy()[0, 0, n:])


def test_likelihoods_have_the_factors_integrated_out():
    tables = {"a": DATA, "b": DATA[:5] + 1.0}
    model = pmm.models.normal_clusters(tables, 3, tails=5.0)
    idata = pmm.sample(
        4, tune=4, chains=1, cores=1, random_seed=1, model=model, quiet=True, progressbar=False
    )
    found = pmm.log_predictive(idata, model, progressbar=False)
    told = found["log_likelihood"]["objects"].to_numpy()[0]
    for number in range(4):
        draw = idata["posterior"].to_dataset().isel(chain=0, draw=number)
        expected = []
        for name in "ab":
            x = model.rvs_to_values[model[name]].data
            logs = np.tile(np.log(draw["weights"].to_numpy()), (len(x), 1))
            for j in range(3):
                shape = np.linalg.inv(draw[f"precision_{name}"].to_numpy()[j])
                mean = draw[f"mean_{name}"].to_numpy()[j]
                logs[:, j] += stats.multivariate_t(mean, shape, df=5.0).logpdf(x)
            expected.append(logsumexp(logs, axis=1))
        np.testing.assert_allclose(told[number], np.concatenate(expected), rtol=1e-6)


def test_new_objects_are_assigned_and_filled_in():
    tables, _ = heavy_tailed()
    tables["a"][3, 1] = np.nan
    model = pmm.models.normal_clusters(tables, tails=2.0)
    idata = pmm.sample(
        30, tune=30, chains=1, cores=1, random_seed=1, model=model, quiet=True, progressbar=False
    )
    new = np.asarray(pmm.standardise(tables)["a"])[::10].copy()
    new[::3, 0] = np.nan
    given = {"random_seed": 1, "progressbar": False}
    found = pmm.assign(idata, model, {"a": new}, **given)
    posterior = found["posterior"].isel(chain=0)
    kept = posterior["cluster_a"].to_numpy()[:, ::10]
    assert np.mean(posterior["cluster_a_new"].to_numpy() == kept) > 0.9
    filled = pmm.impute(idata, model, {"a": new}, **given)["a"].to_numpy()
    np.testing.assert_array_equal(filled[~np.isnan(new)], new[~np.isnan(new)])
    assert np.isfinite(filled).all()
    own = pmm.impute(idata, model, **given)
    drawn = idata["posterior"]["a_unobserved"].to_numpy()
    assert abs(own["a"].to_numpy()[3, 1] - drawn.mean()) < 5.0 * drawn.std() / np.sqrt(10)
