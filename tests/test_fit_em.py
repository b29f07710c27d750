"""`fit_em`: what it reads from declared models, and the form of what it finds."""

import numpy as np
import pymc as pm
import pytest

import pm_match as pmm
from pm_match.views.em import DependencyMixture, SharedFactors
from tests.declared.factor_ways import EQUAL, declare
from tests.declared.hierarchies import declared as hierarchy_of
from tests.views.em.factors import made_up as made_up_factors
from tests.views.em.factors import plain as plain_factors
from tests.views.em.mixtures import made_up, plain_clusters, plain_hierarchy

pytestmark = pytest.mark.usefixtures("only_collapsed")


def fitted(model, **options):
    options = {"starts": 3, "random_seed": 1, "progressbar": False} | options
    found = pmm.fit_em(model, **options)
    assert found["posterior"].sizes["chain"] == found["posterior"].sizes["draw"] == 1
    trace = found["em"]["log_likelihood"].to_numpy()
    assert np.diff(trace).min() > -1e-8
    assert len(trace) == found["sample_stats"]["n_iterations"].item()
    assert trace[-1] == found["sample_stats"]["log_likelihood"].item()
    assert found["sample_stats"]["converged"].item()
    assert found["starts"].sizes["start"] == options["starts"]
    return trace[-1], {
        name: variable.to_numpy()[0, 0] for name, variable in found["posterior"].items()
    }


def test_dependency_clusters():
    _, views = made_up(unseen=True)
    model = pmm.models.dependency_clusters(views, 3)
    found, values = fitted(model)
    assert (np.diff(values["weights"]) <= 0.0).all()
    p = DependencyMixture(
        values["weights"],
        (values["mean_x"], values["mean_y"]),
        tuple(np.linalg.inv(values[name]) for name in ("precision_x", "precision_y")),
    )
    total, logs = plain_clusters(views, p)
    assert found == pytest.approx(total, rel=1e-9)
    np.testing.assert_array_equal(values["cluster_object"], logs.argmax(axis=1))


@pytest.mark.parametrize("weights", ["stick-breaking", "dirichlet"])
def test_dependency_hierarchy(weights):
    _, views = made_up()
    model = pmm.models.dependency_hierarchy(views, 2, {"x": 4, "y": 3}, weights=weights)
    found, values = fitted(model)
    p = DependencyMixture(
        values["weights"],
        (values["mean_x"], values["mean_y"]),
        tuple(np.linalg.inv(values[name]) for name in ("precision_x", "precision_y")),
        (values["link_x"], values["link_y"]),
    )
    total, states, joint = plain_hierarchy(views, p)
    assert found == pytest.approx(total, rel=1e-9)
    z = np.array([s[0] for s in states])
    expected = [joint[:, z == t].sum(axis=1) for t in range(2)]
    np.testing.assert_array_equal(values["cluster_object"], np.argmax(expected, axis=0))


def test_shared_factors():
    x, y = made_up_factors(missing=True, d=(3, 2))
    x[0] = [1.0, np.nan, 2.0]
    model = pmm.models.shared_factors({"x": x, "y": y}, 1, 1)
    found, values = fitted(model)
    p = SharedFactors(
        tuple(values[f"intercept_{v}"] for v in "xy"),
        tuple(values[f"projection_{v}"] for v in "xy"),
        tuple(values[f"private_{v}"] for v in "xy"),
        np.array([1.0 / values[f"precision_{v}"] for v in "xy"]),
    )
    assert found == pytest.approx(plain_factors([x, y], p), rel=1e-9)
    for v, table in (("x", x), ("y", y)):
        mean = values[f"intercept_{v}"] + values["latent"] @ values[f"projection_{v}"].T
        mean += values[f"private_latent_{v}"] @ values[f"private_{v}"].T
        missing = np.isnan(table)
        np.testing.assert_allclose(values[f"{v}_unobserved"], mean[missing], atol=1e-9)
        np.testing.assert_allclose(values[v], np.where(missing, mean, table), atol=1e-9)


FITTED = [how for how in EQUAL if how != "noise of features"]


@pytest.mark.parametrize("how", FITTED)
def test_ways_of_writing_factors_are_fitted_alike(how):
    model = declare(**EQUAL[how])
    found, values = fitted(model)
    for rv in model.free_RVs:
        assert values[rv.name].shape == rv.type.shape
    z, w = values["latent"], values["loading"]
    if how == "transposed loading":
        w = w.T
    x = model.rvs_to_values[model["x"]].eval()
    tau = (4.0 if how == "noise in other units" else 1.0) * values["noise"]
    p = SharedFactors(
        (values["intercept"].reshape(-1),), (w,), (np.empty((len(w), 0)),), np.array([1.0 / tau])
    )
    assert found == pytest.approx(plain_factors([x], p), rel=1e-9)
    # Latents are at their posterior means.
    a = w.T * tau
    mean = np.linalg.solve(np.eye(w.shape[1]) + a @ w, a @ (x - values["intercept"].reshape(-1)).T)
    np.testing.assert_allclose(z if how == "transposed latent" else z.T, mean, atol=1e-9)


def test_projected_clusters():
    rng = np.random.default_rng(3)
    latent = 4.0 * rng.standard_normal((3, 2))
    truth = {"a": rng.integers(3, size=40), "b": rng.integers(3, size=30)}
    tables = {
        name: latent[s] @ rng.standard_normal((2, 4)) + 0.5 * rng.standard_normal((len(s), 4))
        for name, s in truth.items()
    }
    model = pmm.models.projected_clusters(tables, 2, 3)
    found, values = fitted(model, starts=2)
    total = 0.0
    for name, x in tables.items():
        means = values["latent"] @ values[f"projection_{name}"].T
        squares = ((x[:, None] - means) ** 2).sum(axis=2)
        alpha = values["precision"]
        logs = np.log(values["weights"]) - 0.5 * alpha * squares
        total += np.logaddexp.reduce(logs, axis=1).sum() + 0.5 * x.size * np.log(alpha / 2 / np.pi)
        np.testing.assert_array_equal(values[f"cluster_{name}"], logs.argmax(axis=1))
    assert found == pytest.approx(total, rel=1e-9)


def test_the_same_seed_gives_the_same_fit():
    _, views = made_up()
    model = pmm.models.dependency_clusters(views, 3)
    one, other = (fitted(model)[1] for _ in range(2))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])


def refused(model, match, **options):
    with pytest.raises(pmm.UnservedModelError, match=match):
        pmm.fit_em(model, progressbar=False, **options)


def test_what_is_not_served_is_refused():
    x, y = made_up_factors(d=(3, 2))
    with pm.Model() as plain:
        pm.Normal("x", pm.Normal("mu"), observed=x[:, 0])
    refused(plain, "fit_em does not serve this model")
    model = pmm.models.shared_factors({"x": x, "y": y}, 1, 1)
    with model:
        pm.Normal("other", pm.Normal("mu"), observed=x[:, 0])
    refused(model, "'other' is observed too")
    with model:
        pm.Normal("another", pm.Normal("its_mu"), observed=x[:, 0])
    refused(model, "'another', 'other' are observed too")
    with model:
        label = pm.Categorical("label", [0.5, 0.5], shape=len(x))
        pm.Normal("third", pm.Normal("means", shape=2)[label], observed=x[:, 0])
    refused(model, "expected one part that is independent of others; found 2")
    own = pmm.models.dependency_clusters({"x": x, "y": y}, 3, within="own")
    refused(own, "precisions of their own")
    unpaired = pmm.models.dependency_clusters({"x": x, "y": y}, 3, paired=False)
    refused(unpaired, "not paired")
    for uniform in (
        pmm.models.dependency_clusters({"x": x, "y": y}, 3, weights="uniform"),
        hierarchy_of(weights=lambda: np.array([0.2, 0.3, 0.5])),
    ):
        refused(uniform, "the weights of '.*' are constants, or not those of all objects")
    network = pmm.models.relational_clusters({"a": np.eye(6, dtype=int)})
    refused(network, "networks are not fitted by EM")
    isometric = pmm.models.projected_clusters({"x": x, "y": y}, 2, 3, projection="isometric")
    refused(isometric, "of their own")


def small_gamma():
    return pm.Gamma("noise", 2.0, 1.0)


LIKELIHOODS = {
    "known multiples": (
        {"noise": lambda: {"tau": small_gamma() * np.array([1.0, 9.0, 9.0])}},
        "the noise of 'x' is not the same for all features: .* found 'noise' times 1 to 9",
    ),
    "free multiples": (
        {"noise": lambda: {"tau": small_gamma() * pm.HalfNormal("s", shape=3)}},
        "the noise of 'x' depends on 's' too",
    ),
    "noise of features": (EQUAL["noise of features"], "no precision of its own that is one free"),
    "latents with a free mean": (
        {"latent": lambda: pm.Normal("latent", pm.Normal("centre"), 1.0, shape=(5, 2))},
        "the prior of 'latent' depends on 'centre'",
    ),
    "latents with another mean": (
        {"latent": lambda: pm.Normal("latent", 1.0, 1.0, shape=(5, 2))},
        "'latent' is not standard normal",
    ),
}


@pytest.mark.parametrize("how", LIKELIHOODS)
def test_other_likelihoods_of_factors_are_refused(how):
    given, match = LIKELIHOODS[how]
    refused(declare(**given), match)


def test_settings_are_checked_and_a_short_climb_is_told():
    _, views = made_up()
    model = pmm.models.dependency_clusters(views, 3)
    with pytest.raises(
        TypeError, match=r"model: expected a pm\.Model; found an object of type int"
    ):
        pmm.fit_em(3)
    with pytest.raises(ValueError, match="starts: expected a whole number"):
        pmm.fit_em(model, starts=0)
    with pytest.raises(ValueError, match="max_iterations: expected a whole number"):
        pmm.fit_em(model, max_iterations=1)
    with pytest.warns(UserWarning, match=r"still gained .* nats in the last of 3 iterations"):
        pmm.fit_em(model, max_iterations=3, starts=1, random_seed=1, progressbar=False)
