"""Independent columns are exact: every family, alone and with all that goes with it."""

import numpy as np
import pymc as pm
import pytest
from arviz_stats import ess
from pymc.step_methods.compound import BlockedStep
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_normal

import pm_match as pmm
from pm_match import testing
from pm_match.clusters.protocol import collected
from pm_match.reading import read
from tests.declared.columns import (
    FAMILIES,
    HOLED,
    T,
    data_of,
    declared,
    many_together,
    observe,
    parameters,
    shared_in_part,
    with_free_noise,
)
from tests.declared.few_draws import few_draws


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    testing.check_kind(declared(family), n_sweeps=60_000)


@pytest.mark.parametrize("family", FAMILIES)
def test_hyperparameters(family):
    model = declared(family, hyperprior=True)
    assert read(model).components[0].hyperparameters == ("theta_hyper",)
    testing.check_hyperparameters(model)
    testing.check_running_state(model, n_moves=300)


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "normal"])
def test_a_hyperparameter_for_each_column(family):
    """Each number is drawn with the others as they are: by quadrature on the declared density."""
    model, rng = declared(family, hyperprior="columns"), np.random.default_rng(2)
    assert read(model).components[0].hyperparameters == ("theta_hyper",)
    testing.check_hyperparameters(model)
    step = pmm.HyperparameterGibbs([model["theta_hyper"]], model=model, rng=3)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    labels, key, grid = state.labels(point), "theta_hyper_log__", np.linspace(-3.5, 3.0, 60)
    log_prior = model.compile_logp(vars=[model["theta_hyper"]])
    logs = np.empty((60, 60))
    for i, j in np.ndindex(logs.shape):
        at = point | {key: np.array([grid[i], grid[j]])}
        logs[i, j] = log_prior(at) + testing.plain_log_joint(state, at, labels)
    law = np.exp(logs - logs.max())
    draws, here = [], point
    for _ in range(4000):
        here, _ = step.step(here)
        draws.append(here[key])
    draws = np.array(draws)
    for column in range(2):
        margin = law.sum(axis=1 - column) / law.sum()
        mean = margin @ grid
        sd = np.sqrt(margin @ grid**2 - mean**2)
        own = draws[:, column]
        error = own.std() / np.sqrt(float(ess(own[None])))
        assert own.mean() == pytest.approx(mean, abs=4.5 * error)
        assert own.std() == pytest.approx(sd, rel=0.1)
    product = grid @ law @ grid / law.sum()
    each = draws.prod(axis=1)
    error = each.std() / np.sqrt(float(ess(each[None])))
    assert each.mean() == pytest.approx(product, abs=4.5 * error)


@pytest.mark.parametrize("family", ["poisson", "bernoulli"])
def test_tables_follow_the_priors_of_columns(family):
    """Scores of counts read from tables: each column has its own, of the present prior."""
    model = declared(family, hyperprior="columns")
    testing.check_scores(model)
    (evidence,) = testing.collapsed_of(model).evidence
    assert (evidence.term.first[:, 0] >= 0).all()


@pytest.mark.parametrize("family", HOLED)
def test_missing_values(family):
    model = declared(family, missing=True)
    (evidence,) = read(model).components[0].evidence
    assert evidence.names[-1] == "a_unobserved"
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=1000)
    testing.check_declared_density(model)
    testing.check_draws(model)


@pytest.mark.parametrize("family", HOLED)
def test_one_missing_value(family):
    values = data_of(family, 3, np.random.default_rng(0))
    values = np.ma.masked_array(values, np.arange(values.size).reshape(values.shape) == 2)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=np.ones(T) / T, shape=3)
        observe(family, "x", cluster, parameters(family), values)
    state, rng = testing.collapsed_of(model), np.random.default_rng(1)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    new = dict(point)
    state.draw(rng, point, new)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(new))


@pytest.mark.parametrize("family", ["poisson", "normal"])
def test_nothing_that_is_observed(family):
    """All of a table is missing: its labels have the law of their prior."""
    values = data_of(family, 3, np.random.default_rng(0))
    values = np.ma.masked_array(values, np.ones(values.shape, bool))
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=np.ones(T) / T, shape=3)
        observe(family, "x", cluster, parameters(family), values)
    assert not read(model).refusals
    testing.check_kind(model, n_sweeps=20_000)


@pytest.mark.parametrize("family", FAMILIES)
def test_links(family):
    model = declared(family, links=True)
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=1000)
    testing.check_law(model, n_sweeps=20_000)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("several", [True, False])
def test_several_values_of_every_object(family, several):
    """No value is an object's only one at its position; or one is, of one object."""
    rng = np.random.default_rng(4)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=4)
        theta = parameters(family)
        observe(family, "x", cluster, theta, data_of(family, 4, rng))
        rows = np.arange(4 if several else 3)
        observe(family, "y", cluster[rows], theta, data_of(family, len(rows), rng))
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=300)
    testing.check_law(model, n_sweeps=20_000)


def coarsened(model):
    """Let the densities of every table count to a power of its own."""
    observed = list(model.observed_RVs)
    with model:
        for rv, power in zip(observed, (0.4, 0.75), strict=False):
            # By the name that it was declared with, missing values or not.
            pmm.coarsen(f"coarsened_{rv.name}", rv.name.removesuffix("_observed"), power)
    structure = read(model)
    assert not structure.refusals
    assert [own.kind for own in structure.components[0].evidence] == ["columns"]
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_densities_to_a_power(family):
    testing.check_kind(coarsened(declared(family)), n_sweeps=60_000)


@pytest.mark.parametrize("family", HOLED)
def test_missing_values_beside_densities_to_a_power(family):
    model = coarsened(declared(family, missing=True))
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=1000)
    testing.check_declared_density(model)
    testing.check_draws(model)


def test_noise_that_is_free_beside_a_power():
    testing.check_kind(coarsened(with_free_noise()), n_sweeps=30_000)


def test_values_that_weigh_together_as_much_as_one():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=3)
        mean = pm.Normal("mean", 0.3, 2.0, shape=T)
        seen = mean[cluster[[0, 0, 0, 0, 1, 2]]]
        sigma = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 1.0])
        pm.Normal("x", seen, sigma, observed=[-1.0, 2.0, 5.0, 1.0, 0.4, 0.9])
    testing.check_scores(model)
    testing.check_law(model, n_sweeps=20_000)


@pytest.mark.parametrize("family", ["poisson", "categorical", "normal"])
def test_parameters_of_their_own(family):
    model = declared(family, own=True)
    assert len(read(model).components[0].evidence) == 2
    testing.check_kind(model, n_sweeps=60_000)


def test_noise_that_is_free():
    model = with_free_noise()
    assert not read(model).refusals
    testing.check_kind(model, n_sweeps=30_000)


@pytest.mark.parametrize("family", ["poisson", "normal"])
def test_together_with_features_and_networks(family):
    model = declared(family, beside=many_together)
    structure = read(model)
    assert not structure.refusals
    ((component),) = structure.components
    assert sorted(own.kind for own in component.evidence) == [
        "columns",
        "columns",
        "features",
        "networks",
    ]
    testing.check_scores(model)
    testing.check_running_state(model, n_moves=500)
    testing.check_law(model, n_sweeps=60_000)


def test_columns_that_domains_share_in_part():
    model = shared_in_part()
    structure = read(model)
    assert not structure.refusals
    ((component),) = structure.components
    assert [len(own.cells) for own in component.evidence] == [2, 3]
    testing.check_kind(model, n_sweeps=60_000)


def test_the_term_is_chosen_by_the_prior_alone():
    model = shared_in_part()
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model)
    (terms,) = step._collapsed.terms
    assert {type(term).__name__ for term in collected(terms)} == {"ColumnsTerm"}


def test_far_values_are_no_trouble():
    """Statistics far from zero: years, say, whose spread is small."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=5)
        precision = pm.Gamma("precision", 2.0, 1e-6, shape=T)
        mean = pm.Normal("mean", 1e6, tau=1e-3 * precision, shape=T)
        values = 1e6 + 1e-3 * rng.normal(size=5)
        pm.Normal("x", mean[cluster], tau=precision[cluster], observed=values)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    before = state.log_joint()
    labels = state.labels(point)
    for _ in range(2000):
        state.sweep(rng)
    moved = state.log_joint()
    found = state.found()
    state.load(point, found)
    assert state.log_joint() == pytest.approx(moved, abs=1e-7)
    state.load(point, labels)
    assert state.log_joint() == pytest.approx(before, abs=1e-7)


class Measured(BlockedStep):
    """Draws a missing value of `x` given its cluster's mean, and a second measurement."""

    def __init__(self, vars, model, again, sd, **kwargs):
        self.vars, self.again, self.sd = vars, again, sd

    def setup_chain(self, rng, tune, draws):
        self.rng = rng

    def step(self, point):
        precision = 1.0 + self.sd**-2.0
        mean = (point["mean"][point["cluster"][0]] + self.again / self.sd**2) / precision
        drawn = self.rng.normal(mean, precision**-0.5, 1)
        return point | {"x_unobserved": drawn}, [{}]


@pytest.mark.parametrize("kind", ["data", "potential"])
def test_missing_values_that_something_depends_on_are_no_part_of_the_columns(kind):
    """By enumeration: what depends on a missing value is another measurement of its object.

    They were integrated out, and chains stopped with an error.
    """
    seen, again, sd = np.array([np.nan, 0.0, 3.0]), np.array([2.6, 0.1, 2.9]), 0.5
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=3)
        mean = pm.Normal("mean", 0.0, 2.0, shape=2)
        x = pm.Normal("x", mean[cluster], 1.0, observed=np.ma.masked_invalid(seen))
        if kind == "data":
            pm.Normal("y", x, sd, observed=again)
        else:
            pm.Potential("y", pm.logp(pm.Normal.dist(again, sd), x))
    assert [own.kind for own in read(model).components[0].evidence] == ["declared"]
    values, noise = np.where(np.isnan(seen), again, seen), 1.0 + np.where(np.isnan(seen), sd**2, 0)
    pairs, logs = [], []
    for labels in np.ndindex(2, 2, 2):
        same = np.equal.outer(labels, labels)
        fit = multivariate_normal(cov=4.0 * same + np.diag(noise)).logpdf(values)
        logs.append(fit - gammaln(5) + sum(gammaln(1 + np.bincount(labels, minlength=2))))
        pairs.append(same[np.triu_indices(3, 1)])
    expected = np.exp(np.array(logs) - logsumexp(logs)) @ np.array(pairs)
    quiet = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    value = model.rvs_to_values[model["x_unobserved"]]
    step = Measured([value], model=model, again=again[0], sd=sd)
    idata = pmm.sample(2500, tune=200, chains=1, model=model, step=step, random_seed=1, **quiet)
    labels = idata["posterior"]["cluster"].values[0]
    for (i, j), p in zip(zip(*np.triu_indices(3, 1), strict=True), expected, strict=True):
        together = (labels[:, i] == labels[:, j]).astype(float)
        error = np.sqrt(p * (1.0 - p) / ess(together[None]))
        assert abs(together.mean() - p) < 4.0 * error, (i, j, together.mean(), p, error)
    with pytest.raises(ValueError, match="found 'x_unobserved', which draws have"):
        pmm.impute(idata, model)
    with model:
        rate = pm.Gamma("rate", 2.0, 1.0, shape=2)
        pm.Poisson("n", rate[cluster], observed=np.ma.masked_equal([0, -1, 3], -1))
    idata = few_draws(model)
    with pytest.warns(UserWarning, match="does not predict 'x_unobserved': only their draws"):
        found = pmm.impute(idata, model, ci_prob=0.5)
    assert {*found} == {"n", "n_lower", "n_upper"}
