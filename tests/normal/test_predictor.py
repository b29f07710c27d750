"""New objects of normal clusters: their densities, and where they are assigned."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy.linalg import polar
from scipy.special import multigammaln
from scipy.stats import t, wishart

import pm_match as pmm
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import read
from pm_match.reading.probe import natural_function
from tests.prediction.made_up import tree_of

N_DRAWS = 400_000


def tables():
    rng = np.random.default_rng(0)
    return {"a": rng.normal(size=(5, 2)), "b": rng.normal(1.0, 2.0, size=(4, 2))}


def normal(x, mean, precision, scale=1.0):
    """Log density of a vector, draw by draw; the precision is over the square of the scale."""
    away = (x - mean) / scale
    squares = np.einsum("ni,nij,nj->n", away, precision, away)
    return 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * squares - np.log(2 * np.pi * scale**2)


@pytest.mark.parametrize("power", [1.0, 0.4])
def test_densities_are_means_over_the_parameters_posterior(power):
    model = pmm.models.aligned_clusters(tables(), n_clusters=3, power=power)
    data = {name: model.rvs_to_values[model[name]].data for name in "ab"}
    rng = np.random.default_rng(1)
    point = {name: np.array(value) for name, value in model.initial_point(0).items()}
    point |= {
        "orientation_b": rng.normal(size=(2, 2)),
        "intercept_b": rng.normal(size=2),
        "scale_b_log__": np.array(0.4),
        "cluster_a": np.array([0, 0, 1, 0, 0]),
        "cluster_b": np.array([0, 1, 0, 0]),
    }
    names = ["scale_matrix", "orientation_b", "scale_b", "intercept_b"]
    matrix, orientation, scale, intercept = natural_function(model, names)(point)
    q = polar(orientation)[0]
    # Draws from the prior as it is declared, weighted by the powers of the vectors' densities.
    own = wishart(13, np.linalg.inv(matrix), seed=2).rvs(N_DRAWS)
    noise = rng.standard_normal((N_DRAWS, 2))
    roots = np.linalg.cholesky(np.linalg.inv(own))
    mean = np.einsum("nij,nj->ni", roots, noise) / np.sqrt(0.05)
    moved = intercept + scale * mean @ q.T
    turned = np.einsum("ij,njk,lk->nil", q, own, q)

    def log_density(name, x):
        if name == "a":
            return normal(x, mean, own)
        return normal(x, moved, turned, scale)

    place = {name: find_place(read(model), name) for name in "ab"}
    predictive = Predictive(model, place["a"].component)
    predictive.load(point)
    (predictor,) = predictive.predictors
    for name in "ab":
        new = data[name][:2] + 0.2
        seen = read_new_objects(model, predictive, place[name], new).seen[0]
        found = predictor.log_predictive(place[name], seen)
        assert found.shape == (2, 4)
        for j in range(3):
            weight = np.zeros(N_DRAWS)
            for other, x in data.items():
                for row in x[point[f"cluster_{other}"] == j]:
                    weight += power * log_density(other, row)
            weight = np.exp(weight - weight.max())
            for i, x in enumerate(new):
                both = np.stack([weight * np.exp(log_density(name, x)), weight])
                expected = np.log(both.sum(axis=1)[0] / both.sum(axis=1)[1])
                parts = both.reshape(2, 40, -1).sum(axis=2)
                error = np.std(np.log(parts[0] / parts[1])) / np.sqrt(40)
                assert error < 0.1
                assert abs(found[i, j] - expected) < 4.5 * error, (name, i, j)


def marginal(x, labels, n_clusters, prior, shared):
    """Log marginal likelihood of vectors, by the normalising constants of the normal–Wishart."""
    d = x.shape[1]
    groups = [x] if shared else [x[labels == j] for j in range(n_clusters)]
    owners = [labels] if shared else [np.full(len(own), j) for j, own in enumerate(groups)]
    total = 0.0
    for own, owner in zip(groups, owners, strict=True):
        scale = np.array(prior.inverse_scale)
        for j in set(owner.tolist()):
            here = own[owner == j]
            strength = prior.strength + len(here)
            away = here.mean(axis=0) - prior.center
            scale += (here - here.mean(axis=0)).T @ (here - here.mean(axis=0))
            scale += prior.strength * len(here) / strength * np.outer(away, away)
            total += d / 2 * np.log(prior.strength / strength)
        after = prior.degrees + len(own)
        total += multigammaln(after / 2, d) - multigammaln(prior.degrees / 2, d)
        total += prior.degrees / 2 * np.linalg.slogdet(prior.inverse_scale)[1]
        total -= after / 2 * np.linalg.slogdet(scale)[1] + len(own) * d / 2 * np.log(np.pi)
    return total


@pytest.mark.parametrize("within", ["shared", "own"])
def test_densities_where_some_objects_are_seen_are_ratios_of_marginals(within):
    data = tables()
    data = {"x": np.vstack([data["a"], data["b"]]), "y": np.arange(9.0)[:, None] ** 2}
    data["x"][[1, 7]] = np.nan
    model = pmm.models.dependency_clusters(data, n_clusters=4, within=within)
    labels = np.array([0, 1, 2, 0, 0, 2, 2, 1, 0])
    point = model.initial_point(0) | {"cluster_object": labels}
    place = find_place(read(model), "object")
    predictive = Predictive(model, place.component)
    predictive.load(point)
    new = np.array([[0.3, -0.2], [2.0, 4.0], [np.nan, np.nan], [0.3, np.nan], [np.nan, -0.2]])
    seen = read_new_objects(model, predictive, place, {"x": new}).seen
    ((number, vectors),) = seen.items()
    found = predictive.predictors[number].log_predictive(place, vectors)
    prior = place.component.evidence[number].prior(point)
    there = np.delete(np.arange(9), [1, 7])
    known, own, shared = data["x"][there], labels[there], within == "shared"
    before = marginal(known, own, 4, prior, shared)
    np.testing.assert_array_equal(found[2], 0.0)  # not seen
    for i, x in enumerate(new[:2]):
        for j in range(4):
            after = marginal(np.vstack([known, x]), np.append(own, j), 4, prior, shared)
            assert abs(found[i, j] - (after - before)) < 1e-10, (i, j)
    # Of a row with a missing value, the integral over it.
    grid = np.sinh(np.linspace(-12.0, 12.0, 1_001))
    for i, hidden in ((3, 1), (4, 0)):
        rows = np.tile(new[i], (len(grid), 1))
        rows[:, hidden] = grid
        for j in range(4):
            added = [np.append(own, j), 4, prior, shared]
            logs = [marginal(np.vstack([known, x]), *added) - before for x in rows]
            expected = np.log(np.trapezoid(np.exp(logs), grid))
            assert found[i, j] == pytest.approx(expected, abs=1e-4), (i, j)


@pytest.mark.parametrize("row", [[0.4, np.nan], [np.nan, 1.5], [np.nan, np.nan]])
def test_missing_values_of_new_objects_by_quadrature(row):
    """Of one cluster and one draw: the law of what is missing given the rest of the row."""
    data = tables()
    model = pmm.models.normal_clusters(data, n_clusters=3, tails=None)
    x = model.rvs_to_values[model["a"]].data
    point = model.initial_point(0) | {"cluster_a": np.zeros(5, int)}
    place = find_place(read(model), "a")
    number = next(n for n, e in enumerate(place.component.evidence) if e.mean == "mean_a")
    prior = place.component.evidence[number].prior(point)
    predictive = Predictive(model, place.component)
    predictive.load(point)
    predictor = predictive.predictors[number]
    seen = read_new_objects(model, predictive, place, np.array([row, row])).seen[number]
    (holes,) = predictor.holes(place, seen)
    weight = np.log(np.full((2, 4), 0.25))
    ((members, hidden, _, given),) = predictor.of_new(None, place, seen, holes, weight)
    np.testing.assert_array_equal(members, [0, 1])
    np.testing.assert_array_equal(hidden, np.isnan(row))
    assert given.shape == (2, 3, hidden.sum(), 3)
    grid = np.sinh(np.linspace(-6.0, 6.0, 121))
    labels = np.zeros(6, int)
    for j in (0, 1):  # a full cluster, and an empty one
        known = x if j == 0 else x[:0]
        axes = np.meshgrid(
            *[grid if h else np.array([v]) for h, v in zip(hidden, row, strict=True)]
        )
        points = np.stack([axis.ravel() for axis in axes], axis=1)
        own = labels[: len(known) + 1]
        logs = [marginal(np.vstack([known, one]), own, 1, prior, False) for one in points]
        density = np.exp(np.array(logs) - max(logs)).reshape(axes[0].shape)
        law = holes.law(given[:, j])
        for place_of, column in enumerate(np.flatnonzero(hidden)):
            # The array's axes are y, x.
            others = [axis for axis in (0, 1) if axis != 1 - column]
            own = density
            for axis in sorted(others, reverse=True):
                size = own.shape[axis]
                own = np.trapezoid(own, grid, axis=axis) if size > 1 else own.sum(axis=axis)
            own = own / np.trapezoid(own, grid)
            for at in (40, 60, 75):
                below = np.trapezoid(own[: at + 1], grid[: at + 1])
                assert law.cdf(np.full(hidden.sum(), grid[at]))[0, place_of] == pytest.approx(
                    below, abs=5e-3
                )


def test_vectors_without_a_mean_get_medians():
    """New ones of a cluster that has none are t, and of one degree where precisions have two."""
    with pm.Model() as model:
        precision = pm.Wishart("precision", nu=2, V=np.eye(2), shape=(2, 2, 2))
        covariance = pt.linalg.inv(precision)
        mean = pm.MvNormal("mean", [0.3, -0.2], cov=covariance / 0.5, shape=(2, 2))
        z = pm.Categorical("z", np.full(2, 0.5), shape=5)
        pm.MvNormal("x", mean[z], cov=covariance[z], observed=tables()["a"] + 9.0)
    draws = tree_of(model, [model.initial_point(0) | {"z": np.zeros(5, int)}] * 3)
    new = {"z": np.full((1, 2), np.nan)}
    found = pmm.impute(draws, model, new, progressbar=False)["x"].values
    x, prior = tables()["a"] + 9.0, np.array([0.3, -0.2])
    away = x.mean(axis=0) - prior
    centre = prior + 5.0 / 5.5 * away
    spread = 1.0 + 5.0 * x.var(axis=0) + 0.5 * 5.0 / 5.5 * away**2
    seen = t(6.0, centre, np.sqrt(spread * 6.5 / (5.5 * 6.0)))
    unseen = t(1.0, prior, np.sqrt(3.0))
    np.testing.assert_allclose(0.5 * (seen.cdf(found[-1]) + unseen.cdf(found[-1])), 0.5, atol=1e-6)


def test_missing_values_of_the_data_are_imputed_as_the_steps_draw_them():
    rng = np.random.default_rng(8)
    labels = rng.integers(2, size=60)
    x = np.array([[0.0, 0.0], [8.0, -5.0]])[labels] + rng.normal(size=(60, 2))
    holed = x.copy()
    holed[[3, 7, 20], [0, 1, 1]] = np.nan
    tables = {"a": holed[:30], "b": holed[30:]}
    model = pmm.models.normal_clusters(tables, n_clusters=4, tails=None)
    idata = pmm.sample(
        400, tune=50, chains=1, model=model, random_seed=1, progressbar=False, quiet=True
    )
    found = pmm.impute(idata, model, ci_prob=0.8, random_seed=2, progressbar=False)
    assert set(found) == {"a", "a_lower", "a_upper"}
    holes = np.isnan(holed[:30])
    drawn = idata["posterior"]["a_unobserved"].values[0]
    spread = drawn.std(axis=0)
    assert (np.abs(found["a"].values[holes] - drawn.mean(axis=0)) < 0.35 * spread).all()
    for level, end in ((0.1, "lower"), (0.9, "upper")):
        below = (drawn < found[f"a_{end}"].values[holes]).mean(axis=0)
        assert (np.abs(below - level) < 0.08).all()
    seen = (holed[:30] - np.nanmean(holed[:30], axis=0)) / np.nanstd(holed[:30], axis=0)
    np.testing.assert_allclose(found["a"].values[~holes], seen[~holes])
    # Where new objects belong, and what they lack.
    new = np.array([[np.nan, seen[labels[:30] == 0][:, 1].mean()], [np.nan, np.nan]])
    assigned = pmm.assign(idata, model, {"a": new}, progressbar=False)["prediction/a"]
    same = labels[:30] == 0
    assert assigned["match_a"].values[0][same].min() > 0.8
    filled = pmm.impute(idata, model, {"a": new}, random_seed=2, progressbar=False)
    assert abs(filled["a"].values[0, 0] - np.nanmean(seen[same][:, 0])) < 0.3
    assert filled["a_upper"].values[1, 0] > filled["a_lower"].values[1, 0] + 1.0


def test_new_objects_of_aligned_domains_find_their_clusters():
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 9.0]])
    angle = 0.8
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    labels = {"a": rng.integers(3, size=40), "b": rng.integers(3, size=40)}
    data = {name: centres[own] + rng.normal(0, 0.5, (40, 2)) for name, own in labels.items()}
    data["b"] = data["b"] @ turn.T * 2.0 + 5.0
    model = pmm.models.aligned_clusters(data, n_clusters=5, n_components=2)
    idata = pmm.sample(
        30, tune=30, chains=1, model=model, random_seed=1, progressbar=False, quiet=True
    )
    new = pmm.principal_components({"b": centres @ turn.T * 2.0 + 5.0}, 2, like=data)
    found = pmm.assign(idata, model, new, progressbar=False)["prediction/b"]
    same = labels["a"] == np.arange(3)[:, None]
    assert found["match_a"].values[same].min() > 0.75
    assert found["match_a"].values[~same].max() < 0.1
    with pytest.raises(ValueError, match=r"'b: b', row 1, column 0: expected a finite number"):
        pmm.assign(idata, model, {"b": np.array([[0.0, 1.0], [np.nan, 1.0]])}, progressbar=False)


@pytest.mark.parametrize("n_components", [None, 2])
def test_components_of_new_objects_are_those_of_the_known(n_components):
    rng = np.random.default_rng(4)
    data = {
        name: rng.normal(size=(20, m)) @ rng.normal(size=(m, m)) for name, m in (("a", 4), ("b", 3))
    }
    model = pmm.models.aligned_clusters(data, n_components=n_components)
    for name, table in data.items():
        new = pmm.principal_components({name: table[3:7]}, n_components, like=data)[name]
        own = model.rvs_to_values[model[name]].data
        np.testing.assert_allclose(new.values, own[3:7], atol=1e-12)
    assert abs(np.square(own).mean() - 1.0) < 1e-12
