"""Features carried to another domain, and missing values."""

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

import pm_match as pmm
from pm_match.reading import read
from pm_match.reading.probe import natural_function
from tests.declared import features as tiny_features
from tests.declared import networks as tiny_networks
from tests.declared.features import Kind
from tests.declared.plain import random_point, tiny_data, tiny_model
from tests.prediction.made_up import model_of, tree_of

LEVELS = (0.1, 0.9)


@pytest.fixture(scope="module")
def holed():
    """A tiny model with missing values, some draws, and their parameters."""
    model = tiny_model(missing=True)
    rng = np.random.default_rng(8)
    points = [random_point(model, rng) for _ in range(3)]
    natural = natural_function(model, ["precision", "projection_a", "projection_b"])
    return model, points, [natural(point) for point in points]


def one_draw(parameters, point, given=None, cluster=None):
    """Posterior mean and covariance of the latent vectors, by plain regression.

    With values `given` of a new object of domain a in a cluster.
    """
    alpha, *w = parameters
    tables = list(tiny_data(True).values())
    labels = [np.asarray(point[f"cluster_{name}"]) for name in "ab"]
    if given is not None:
        tables[0] = np.vstack([tables[0], given])
        labels[0] = np.append(labels[0], cluster)
    found = []
    for j in range(3):
        precision, linear = 0.6 * alpha * np.eye(2), np.zeros(2)
        for table, label, projection in zip(tables, labels, w, strict=True):
            for row in table[label == j]:
                seen = ~np.isnan(row)
                precision = precision + alpha * projection[seen].T @ projection[seen]
                linear = linear + alpha * projection[seen].T @ row[seen]
        found.append((np.linalg.solve(precision, linear), np.linalg.inv(precision)))
    return alpha, w, labels, found


def mixture(weight, mean, sd):
    weight = np.asarray(weight) / np.sum(weight)
    grid = np.linspace(-30, 30, 200_001)
    cdf = sum(p * stats.norm.cdf(grid, m, s) for p, m, s in zip(weight, mean, sd, strict=True))
    return [weight @ np.asarray(mean), *np.interp(LEVELS, cdf, grid)]


def test_missing_values_of_the_data(holed):
    model, points, parameters = holed
    found = pmm.impute(tree_of(model, points), model, ci_prob=0.8, progressbar=False)
    for d, (name, table) in enumerate(tiny_data(True).items()):
        for n, m in np.ndindex(table.shape):
            values = [float(found[f"{name}{end}"][n, m]) for end in ("", "_lower", "_upper")]
            if not np.isnan(table[n, m]):
                assert values == [table[n, m]] * 3
                continue
            mean, sd = [], []
            for own, point in zip(parameters, points, strict=True):
                alpha, w, labels, latent = one_draw(own, point)
                z, covariance = latent[labels[d][n]]
                mean.append(w[d][m] @ z)
                sd.append(np.sqrt(1 / alpha + w[d][m] @ covariance @ w[d][m]))
            np.testing.assert_allclose(values, mixture(np.ones(3), mean, sd), atol=1e-4)
    only = pmm.impute(tree_of(model, points), model, var_names=["b"], progressbar=False)
    assert sorted(only) == ["b", "b_lower", "b_upper"]


@pytest.mark.parametrize(
    "kind",
    [
        Kind(missing=True, noise="wishart", deviations="one"),
        Kind(missing=True, noise="vector", relevance="all"),
        Kind(missing=True, noise="wishart", relevance="all", sizes=((3, 2), (2, 3))),
    ],
    ids=["dependent noise", "relevance", "both"],
)
def test_missing_values_of_the_data_in_any_noise(kind):
    """Each is normal given the cluster, as ratios of dense densities at several places have it."""
    model = model_of(kind)
    rng = np.random.default_rng(3)
    for _ in range(3):
        point = tiny_features.random_point(model, rng)
        found = pmm.impute(tree_of(model, [point]), model, ci_prob=0.8, progressbar=False)
        whole = tiny_features.Plain(kind, model, point)
        for d, domain in enumerate(whole.domains):
            name = kind.names[d]
            for n, m in np.argwhere(~domain.seen):
                ends = [float(found[f"{name}{end}"][n, m]) for end in ("", "_lower", "_upper")]
                mean, low, high = ends
                sd = (high - low) / (2.0 * stats.norm.ppf(0.9))
                assert mean == pytest.approx(0.5 * (low + high), abs=1e-6)
                logs = []
                for y in (mean, mean + sd, mean - 2.0 * sd):
                    domain.x[n, m] = y
                    logs.append(whole.log_normals(whole.labels()))
                domain.x[n, m] = np.nan
                np.testing.assert_allclose(np.array(logs[1:]) - logs[0], [-0.5, -2.0], rtol=1e-5)


def test_values_of_new_objects(holed):
    model, points, parameters = holed
    tree = tree_of(model, points)
    x = np.array([[np.nan, 1.2], [0.4, -0.8]])
    weight, mean, sd, carried = [], [], [], []
    # The weights are those of the cluster probabilities, which have tests of their own.
    for own, point in zip(parameters, points, strict=True):
        one = pmm.assign(tree_of(model, [point]), model, {"a": x}, progressbar=False)
        labels = np.concatenate([point["cluster_a"], point["cluster_b"]])
        group = one["prediction/a"]
        match = np.concatenate([group["match_a"], group["match_b"]], axis=1)[0]
        u = np.exp(group["log_predictive"].to_numpy()[0])
        p = np.array([match[labels == j][0] if (labels == j).any() else np.nan for j in range(3)])
        p[np.isnan(p)] = (1.0 - np.nansum(p)) / max(np.isnan(p).sum(), 1)
        for j in range(3):
            alpha, w, _, latent = one_draw(own, point, x[0], j)
            z, covariance = latent[j]
            weight.append(u * p[j])
            mean.append(w[0][0] @ z)
            sd.append(np.sqrt(1 / alpha + w[0][0] @ covariance @ w[0][0]))
            carried.append((w[1][2] @ z, np.sqrt(1 / alpha + w[1][2] @ covariance @ w[1][2])))
    found = pmm.impute(tree, model, {"a": x}, ci_prob=0.8, progressbar=False)
    assert found["a"].dims == ("a_object_new", "a_feature")
    values = [float(found[f"a{end}"][0, 0]) for end in ("", "_lower", "_upper")]
    np.testing.assert_allclose(values, mixture(weight, mean, sd), atol=1e-4)
    np.testing.assert_array_equal(found["a_upper"][1], x[1])
    found = pmm.translate(tree, model, x, source="a", target="b", ci_prob=0.8, progressbar=False)
    values = [float(found[f"b{end}"][0, 2]) for end in ("", "_lower", "_upper")]
    np.testing.assert_allclose(values, mixture(weight, *zip(*carried, strict=True)), atol=1e-4)


def test_objects_of_the_data_are_carried_by_their_clusters(holed):
    model, points, parameters = holed
    found = pmm.translate(tree_of(model, points), model, source="b", target="a", ci_prob=0.8,
                      progressbar=False)  # fmt: skip
    assert found["a"].dims == ("b_object", "a_feature")
    mean, sd = [], []
    for own, point in zip(parameters, points, strict=True):
        alpha, w, labels, latent = one_draw(own, point)
        z, covariance = latent[labels[1][1]]
        mean.append(w[0][0] @ z)
        sd.append(np.sqrt(1 / alpha + w[0][0] @ covariance @ w[0][0]))
    values = [float(found[f"a{end}"][1, 0]) for end in ("", "_lower", "_upper")]
    np.testing.assert_allclose(values, mixture(np.ones(3), mean, sd), atol=1e-4)


def test_blocks_of_objects_make_no_difference(holed, monkeypatch):
    model, points, _ = holed
    tree = tree_of(model, points)
    x = np.random.default_rng(0).normal(size=(5, 2))
    x[[0, 3], 1] = x[2, 0] = np.nan

    def everything():
        return xr.merge(
            [
                pmm.impute(tree, model, {"a": x}, progressbar=False),
                pmm.impute(tree, model, progressbar=False).drop_vars(
                    ["a", "a_lower", "a_upper", "a_object"]
                ),
                pmm.translate(tree, model, x, source="a", target="b", progressbar=False).rename(
                    b="c", b_lower="c_lower", b_upper="c_upper"
                ),
            ]
        )

    whole = everything()
    monkeypatch.setattr("pm_match.prediction.components._MOST_HELD", 12)
    xr.testing.assert_allclose(whole, everything())


def test_irrelevant_objects():
    model = model_of(Kind(relevance="all", noise="vector"))
    rng = np.random.default_rng(2)
    points = [tiny_features.random_point(model, rng) for _ in range(3)]
    for point in points:
        point["relevance_a"][:] = [0, 1, 1]
    tree = tree_of(model, points)
    found = pmm.translate(tree, model, source="a", target="b", progressbar=False)
    # An object that never is relevant has no match to look like.
    assert np.isnan(found["b"][0]).all()
    assert not np.isnan(found["b"][1:]).any()
    # Far out, a new object is irrelevant, and its missing value is like those of such objects,
    # whether there is an empty cluster or not.
    x, occupied = np.array([[20.0, np.nan]]), dict(points[0])
    occupied |= {"relevance_a": np.ones(3, np.int64), "cluster_a": np.arange(3)}
    for point in (points[0], occupied):
        one = tree_of(model, [point])
        irrelevant = pmm.assign(one, model, {"a": x}, progressbar=False)["prediction/a/irrelevant"]
        assert irrelevant[0] > 0.999999
        imputed = pmm.impute(one, model, {"a": x}, ci_prob=0.8, progressbar=False)
        other, noise = natural_function(model, ["other_a", "background_a"])(point)
        expected = stats.norm.ppf([0.5, *LEVELS], other[1], noise)
        values = [float(imputed[f"a{end}"][0, 1]) for end in ("", "_lower", "_upper")]
        np.testing.assert_allclose(values, expected, atol=1e-3)


def test_edges_alone_carry_to_features():
    rng = np.random.default_rng(0)
    features = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=(2, 2))}
    model = tiny_networks.network_model(relevance=False, features=features)
    tree = tree_of(model, [tiny_networks.random_point(model, rng) for _ in range(3)])
    row = {"a": np.array([[1.0, 0.0]])}
    found = pmm.translate(tree, model, row, source="a_0", target="b_0", progressbar=False)
    assert found["b_0"].shape == (1, 2)
    assert (found["b_0_lower"] < found["b_0"]).all()
    with pytest.raises(ValueError, match="expected domains of one set of clusters"):
        pmm.translate(tree, model, row, source="a_0", target="a_1", progressbar=False)
    with pytest.raises(ValueError, match="target 'b_1': expected a domain with feature vectors"):
        pmm.translate(tree, model, source="a_1", target="b_1", progressbar=False)
    with pytest.raises(ValueError, match="expected features or columns of domain 'a_0'"):
        pmm.impute(tree, model, {"a_0": row}, progressbar=False)


def test_what_is_asked_for_is_checked(holed):
    model, points, _ = holed
    tree = tree_of(model, points)
    with pytest.raises(ValueError, match=r"ci_prob: expected a number between 0 and 1; found 1\.2"):
        pmm.impute(tree, model, ci_prob=1.2)
    with pytest.raises(KeyError, match="no domain 'c' in the model"):
        pmm.translate(tree, model, source="a", target="c")
    with pytest.raises(ValueError, match="var_names: expected none with new_data"):
        pmm.impute(tree, model, {"a": np.zeros((1, 2))}, var_names=["a"])
    whole = tiny_model()
    tree = tree_of(whole, [random_point(whole, np.random.default_rng(0))])
    with pytest.raises(ValueError, match="that are integrated out; found none"):
        pmm.impute(tree, whole)
    with pytest.raises(ValueError, match="expected missing values in 'a'; found none"):
        pmm.impute(tree, whole, var_names=["a"])


def test_new_objects_on_the_scale_of_others():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(5.0, 3.0, (20, 3)), columns=list("xyz"))
    whole = pmm.standardise({"a": frame})["a"]
    new = frame.iloc[[4]][["z", "x", "y"]]
    np.testing.assert_allclose(pmm.standardise({"a": new}, like={"a": frame})["a"], whole[[4]])
    few = pmm.standardise({"a": frame}, 2)["a"]
    np.testing.assert_allclose(pmm.standardise({"a": new}, 2, like={"a": frame})["a"], few[[4]])
    with pytest.raises(KeyError, match="like: no domain 'a'"):
        pmm.standardise({"a": new}, like={"b": frame})


def test_normal_vectors_of_another_kind_carry_to_features():
    """Of new objects of a domain that has no feature vectors, clusters are told by what it has."""
    rng, far = np.random.default_rng(1), np.array([[-8.0, 8.0], [8.0, -8.0]])
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.ones(2))
        alpha = pm.Gamma("alpha", 50.0, 0.5)
        latent = pm.Normal("latent", 0.0, tau=0.01 * alpha, shape=(2, 2))
        precision = pm.Wishart("precision", nu=9, V=np.eye(2))
        mean = pm.MvNormal("mean", np.zeros(2), tau=0.01 * precision, shape=(2, 2))
        for name, n in (("a", 4), ("b", 4), ("c", 6)):
            label = pm.Categorical(f"cluster_{name}", weights, shape=n)
            x = far[np.arange(n) % 2] + 0.1 * rng.normal(size=(n, 2))
            if name == "c":
                pm.MvNormal("c", mean[label], tau=precision, observed=x)
            else:
                projection = pm.Normal(f"projection_{name}", 0.0, 1.0, shape=(2, 2))
                pm.Normal(name, latent[label] @ projection.T, tau=alpha, observed=x)
    kinds = {own.kind for own in read(model).components[0].evidence}
    assert kinds == {"features", "normal"}
    point = model.initial_point(0)
    for name, n in (("a", 4), ("b", 4), ("c", 6)):
        point[f"cluster_{name}"] = np.arange(n) % 2
    point |= {"projection_a": np.eye(2), "projection_b": np.eye(2)}
    tree = tree_of(model, [point])
    found = pmm.translate(tree, model, far, source="c", target="b", progressbar=False)
    np.testing.assert_allclose(found["b"], far, atol=1.0)
