"""Log likelihoods of objects, held against sums over clusters written out with SciPy."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats
from scipy.special import logsumexp

import pm_match as pmm
from pm_match.reading.parts import UnservedModelError

SHORT = {"tune": 20, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
RNG = np.random.default_rng(0)


def sampled(model, draws=6):
    return pmm.sample(draws, model=model, compute_convergence_checks=False, **SHORT)


def frame(n):
    kind = np.arange(n) % 2
    table = pd.DataFrame(
        {
            "u": RNG.normal(size=n) + 5.0 * kind,
            "sold": RNG.poisson(3 + 4 * kind),
            "colour": np.array(["red", "blue"])[kind],
        },
        index=[f"i{k}" for k in range(n)],
    )
    table.iloc[1, 0] = np.nan
    return table


def mixed(draw, table, columns):
    """The log likelihood of a mixture's objects, column by column."""
    terms = np.tile(np.log(draw["weights"].to_numpy()), (len(table), 1))
    codes = pd.Categorical(table["colour"], categories=columns).codes
    for k in range(terms.shape[1]):
        spread = draw["precision"].to_numpy()[k, 0] ** -0.5
        u = stats.norm.logpdf(table["u"], draw["mean"].to_numpy()[k, 0], spread)
        terms[:, k] += np.where(np.isnan(u), 0.0, u)
        terms[:, k] += stats.poisson.logpmf(table["sold"], draw["rate"].to_numpy()[k, 0])
        terms[:, k] += np.log(draw["probability_colour"].to_numpy()[k, codes])
    return logsumexp(terms, axis=1)


@pytest.fixture(scope="module")
def mixture():
    tables = {"a": frame(9), "b": frame(7)}
    model = pmm.models.mixture(tables, n_clusters=3)
    return tables, model, sampled(model, 40)


@pytest.mark.parametrize("dims", [1, 2])
def test_zeros_of_a_hurdle_are_of_the_objects_of_their_rows(dims):
    """No label enters them, as all clusters have one share of zeros."""
    amounts = np.array([[0.0, 1.3], [0.4, 0.2], [0.0, 0.0], [2.0, 0.0]])
    amounts = amounts if dims == 2 else amounts[:, 0]
    with pm.Model() as model:
        weights, share = pm.Dirichlet("weights", np.ones(3)), pm.Beta("share", 2.0, 1.0)
        rate = pm.Gamma("rate", 2.0, 2.0, shape=(3, 2)[:dims])
        cluster = pm.Categorical("cluster", weights, shape=4)
        pm.HurdleGamma("x", psi=share, alpha=2.0, beta=rate[cluster], observed=amounts)
    idata = sampled(model)
    found = pmm.log_predictive(idata, model, progressbar=False)["log_likelihood"]["objects"]
    for chain, number in np.ndindex(found.shape[:2]):
        draw = idata["posterior"].to_dataset().isel(chain=chain, draw=number)
        w, psi, b = (draw[name].to_numpy() for name in ("weights", "share", "rate"))
        x, b = amounts.reshape(4, 1, -1), b.reshape(3, -1)
        positive = np.log(psi) + stats.gamma.logpdf(np.where(x > 0, x, 1.0), 2.0, scale=1.0 / b)
        logs = np.where(x > 0, positive, np.log1p(-psi)).sum(axis=2)
        expected = logsumexp(np.log(w) + logs, axis=1)
        np.testing.assert_allclose(found[chain, number], expected, rtol=1e-9)


def test_runs_that_were_put_together_are_thinned_together(mixture):
    """Numbers of draws that are there twice ended in an error of pandas."""
    _, model, idata = mixture
    groups = {
        name: xr.concat([group.to_dataset()] * 2, "draw") if "draw" in group.dims else group
        for name, group in idata.children.items()
    }
    twice = xr.DataTree.from_dict(groups)
    found = pmm.log_predictive(twice, model, num_draws=5, progressbar=False)
    places = [0, 20, 40, 59, 79]
    xr.testing.assert_equal(
        found["sample_stats"]["log_joint"], twice["sample_stats"]["log_joint"][:, places]
    )
    whole = pmm.log_predictive(idata, model, progressbar=False)["log_likelihood"]["objects"]
    own = found["log_likelihood"]["objects"]
    np.testing.assert_array_equal(own, whole[:, [place % 40 for place in places]])


def test_columns_of_all_kinds(mixture):
    tables, model, idata = mixture
    found = pmm.log_predictive(idata, model, progressbar=False)
    told = found["log_likelihood"]["objects"]
    assert told.dims == ("chain", "draw", "all_objects")
    assert told["all_objects"].to_numpy()[[0, 9]].tolist() == ["a: i0", "b: i0"]
    posterior = idata["posterior"].to_dataset()
    colours = model.coords["category_colour"]
    for chain in range(2):
        for draw in (0, 7, 39):
            own = posterior.isel(chain=chain, draw=draw)
            expected = np.concatenate([mixed(own, table, colours) for table in tables.values()])
            np.testing.assert_allclose(told[chain, draw], expected, rtol=1e-6)
    assert "log_likelihood" not in idata.children


def test_arviz_takes_it(mixture):
    az = pytest.importorskip("arviz")
    _, model, idata = mixture
    found = pmm.log_predictive(idata, model, num_draws=30, progressbar=False)
    assert found["posterior"].sizes["draw"] == found["log_likelihood"].sizes["draw"] == 30
    elpd = az.loo(found)
    total = found["log_likelihood"]["objects"].mean(("chain", "draw")).sum()
    assert abs(elpd.elpd - float(total)) < 30


def test_draws_alone_are_refused(mixture):
    _, model, idata = mixture
    with pytest.raises(TypeError, match="expected a DataTree, as sample returns it; found Dataset"):
        pmm.log_predictive(idata["posterior"].to_dataset(), model, progressbar=False)


def test_vectors_and_projections():
    tables = {"a": RNG.normal(size=(8, 3)), "b": RNG.normal(size=(6, 2))}
    model = pmm.models.projected_clusters(
        tables, 2, 3, projection="normal", relevance=True, intercept=True
    )
    idata = sampled(model, 4)
    told = pmm.log_predictive(idata, model, progressbar=False)["log_likelihood"]["objects"]
    posterior = idata["posterior"].to_dataset()
    for chain in range(2):
        for draw in range(4):
            own = {k: v.to_numpy() for k, v in posterior.isel(chain=chain, draw=draw).items()}
            expected = []
            for name, x in tables.items():
                centre = own["latent"] @ own[f"projection_{name}"].T + own[f"intercept_{name}"]
                share = own["relevance_probability"]
                fit = stats.norm.logpdf(x[:, None], centre, own[f"noise_{name}"]).sum(-1)
                alone = stats.norm.logpdf(
                    x, own[f"intercept_{name}"], own[f"background_{name}"]
                ).sum(-1)
                inside = logsumexp(fit + np.log(own["weights"]), axis=1) + np.log(share)
                expected.append(np.logaddexp(inside, alone + np.log1p(-share)))
            np.testing.assert_allclose(told[chain, draw], np.concatenate(expected), rtol=1e-6)


def test_what_has_no_likelihood_of_its_own_is_refused():
    network = (RNG.random((8, 7)) < 0.5).astype(int)
    model = pmm.models.relational_clusters({"x": network}, n_clusters=3, relevance=False)
    with pytest.raises(UnservedModelError, match="depend on the clusters of several, as edges"):
        pmm.log_predictive(sampled(model, 4), model, progressbar=False)
    tables = {name: RNG.normal(size=(8, 2)) for name in "ab"}
    model = pmm.models.mixture(
        {name: pd.DataFrame(own, columns=["u", "v"]) for name, own in tables.items()},
        n_clusters=3,
        links={"a": [0], "b": [1]},
    )
    with pytest.raises(UnservedModelError, match="found links or known labels"):
        pmm.log_predictive(sampled(model, 4), model, progressbar=False)


def test_data_that_depend_on_labels_by_way_of_others_are_refused():
    labels = np.arange(8) % 2
    model = pmm.models.max_margin_views({"a": RNG.normal(size=(8, 2))}, labels, n_frequencies=4)
    with pytest.raises(UnservedModelError, match=r"'component': .* 'label', which depends on"):
        pmm.log_predictive(sampled(model, 4), model, progressbar=False)


@pytest.mark.parametrize("kind", ["prior", "data", "effects"])
def test_densities_that_are_no_observed_datas_are_refused(kind):
    """They were left out in silence: of "data", a log likelihood of `x` alone was told."""
    x, counts = RNG.normal(size=7), np.array([0, 2, 5, 0, 1, 7, 3])
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=len(x))
        centre = pm.Normal("centre", 0.0, 2.0, shape=2)
        effect = pm.Normal("effect", centre[cluster], 1.0) if kind == "effects" else 0.0
        pm.StudentT("x", nu=4.0, mu=centre[cluster] + effect, observed=x)
        if kind == "prior":
            pm.Potential("beside", -2.0 * pt.eq(cluster, 0))
        if kind == "data":
            rate = pm.Gamma("rate", 2.0, 1.0, shape=2)
            pm.Potential("beside", pm.logp(pm.Poisson.dist(rate[cluster]), counts))
    found = "the potential 'beside'" if kind != "effects" else "'x', which depends on 'effect'"
    with pytest.raises(UnservedModelError, match=f"'cluster': expected .*; found {found}"):
        pmm.log_predictive(sampled(model, 4), model, progressbar=False)


def test_conditions_on_other_axes_than_entries_are_left_out_in_silence(caplog):
    """Weights of a mixture within clusters: PyTensor logs what a rewriter raises, and goes on."""
    x = np.array([0, 2, 5, 0, 1, 7, 3])
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.0, K=2)
        cluster = pm.Categorical("cluster", p=weights, shape=len(x))
        rate = pm.Gamma("rate", 2.0, 1.0, shape=3)
        pm.ZeroInflatedPoisson("x", psi=0.7, mu=rate[cluster], observed=x)
    idata = sampled(model, 4)
    told = pmm.log_predictive(idata, model, progressbar=False)["log_likelihood"]["objects"]
    draws = idata["posterior"].isel(chain=0, draw=-1)
    own = 0.7 * stats.poisson.pmf(x[:, None], draws["rate"].to_numpy()) + 0.3 * (x[:, None] == 0)
    expected = np.log(own @ draws["weights"].to_numpy())
    np.testing.assert_allclose(told.isel(chain=0, draw=-1), expected, rtol=1e-9)
    assert not [record for record in caplog.records if "Rewrite failure" in record.getMessage()]
