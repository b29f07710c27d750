"""Clusters and matches of new objects."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import logsumexp

import pm_match as pmm
from pm_match.prediction.new_objects import find_place, read_new_objects
from pm_match.prediction.predictive import Predictive
from pm_match.reading import read
from tests.declared import features as tiny_features
from tests.declared import networks as tiny_networks
from tests.declared.features import Kind, Plain, feature_data, feature_model
from tests.prediction.made_up import model_of, tree_of

FLAGGED = Kind(relevance="all", noise="vector")


def points_of(model, n, seed=0, module=tiny_features):
    rng = np.random.default_rng(seed)
    return [module.random_point(model, rng) for _ in range(n)]


@pytest.fixture(scope="module")
def flagged():
    return model_of(FLAGGED)


@pytest.fixture(scope="module")
def uniform():
    """A model in which clusters are alike, so that labels mean nothing."""
    rng = np.random.default_rng(1)
    tables = {"a": rng.normal(size=(5, 3)), "b": rng.normal(size=(4, 2))}
    return pmm.models.projected_clusters(tables, 2, 3, projection="normal", weights="dirichlet")


def uniform_points(model, n, seed=0):
    rng = np.random.default_rng(seed)
    start = {name: np.asarray(value) for name, value in model.initial_point(0).items()}
    points = []
    for _ in range(n):
        point = {}
        for name, value in start.items():
            drawn = rng.normal(0.0, 0.7, value.shape)
            if name.startswith("cluster_"):
                drawn = rng.integers(0, 3, value.shape)
            point[name] = np.asarray(drawn, value.dtype)
        points.append(point)
    return points


def test_average_over_draws_weighted_by_their_predictive(flagged):
    points = points_of(flagged, 6)
    x = np.random.default_rng(3).normal(size=(2, 2))
    for reweight in (True, False):
        found = pmm.assign(tree_of(flagged, points, chains=2), flagged, {"a": x},
                           reweight=reweight, progressbar=False)  # fmt: skip
        structure = read(flagged)
        place = find_place(structure, "a")
        predictive = Predictive(flagged, place.component)
        new = read_new_objects(flagged, predictive, place, x)
        log_joint, labels = [], []
        for point in points:
            predictive.load(point)
            log_joint.append(predictive.log_joint(new))
            labels.append(predictive.labels[0])
        log_joint, labels = np.stack(log_joint), np.stack(labels)
        u = np.exp(logsumexp(log_joint, axis=2)) if reweight else np.ones(log_joint.shape[:2])
        p = np.exp(log_joint - logsumexp(log_joint, axis=2, keepdims=True))
        own = found["prediction/a"]
        match = np.concatenate([own["match_a"], own["match_b"]], axis=1)
        for i, m in np.ndindex(match.shape):
            same = [p[t, i, labels[t, m]] if labels[t, m] >= 0 else 0.0 for t in range(6)]
            np.testing.assert_allclose(match[i, m], np.average(same, weights=u[:, i]), atol=1e-12)
        np.testing.assert_allclose(own["irrelevant"], (u * p[:, :, -1]).sum(axis=0) / u.sum(axis=0))
        total = own["probability"].sum("cluster") + own["unseen"] + own["irrelevant"]
        np.testing.assert_allclose(total, 1.0)
        np.testing.assert_allclose(
            own["log_predictive"], logsumexp(log_joint, axis=(0, 2)) - np.log(6)
        )
        np.testing.assert_allclose(own["effective_draws"], u.sum(axis=0) ** 2 / (u**2).sum(axis=0))


def test_agrees_with_the_posterior_of_all_objects_together():
    # All parameters fixed: every state of the training objects, as often as it is probable.
    kind = Kind(relevance="all", noise="vector", sizes=((2, 2), (2, 3)), truncation=2)
    model = feature_model(kind)
    point = points_of(model, 1, seed=5)[0]
    plain, step = Plain(kind, model, point), tiny_features.cluster_step(model)
    law, states = tiny_features.exact_law(step, plain), tiny_features.all_states(step)
    n = 400
    # Evenly spread over the law, so that frequencies are right to one draw in each state.
    chosen = np.searchsorted(np.cumsum(law), (np.arange(n) + 0.5) / n)
    points = []
    for state in states[np.minimum(chosen, len(states) - 1)]:
        own = dict(point)
        for name, label in zip("ab", np.split(state, [2]), strict=True):
            own[f"cluster_{name}"] = np.maximum(label, 0)
            own[f"relevance_{name}"] = (label >= 0).astype(point[f"relevance_{name}"].dtype)
        points.append(own)
    # Far enough from the rest to say something about the others' clusters.
    x = np.array([[1.5, -2.0]])
    found = pmm.assign(tree_of(model, points), model, {"a": x}, progressbar=False)
    grown = Plain(kind, model, point)
    grown.domains[0] = type(grown.domains[0])(
        **(vars(grown.domains[0]) | {"x": np.vstack([feature_data(kind)["a"], x])})
    )
    match, irrelevant, whole = np.zeros(4), 0.0, 0.0
    for state in states:
        for j in (-1, 0, 1):
            label = np.insert(state, 2, j)
            p = np.exp(grown.log_prior(label) + grown.log_normals(label))
            whole += p
            irrelevant += p * (j < 0)
            match += p * ((state == j) & (j >= 0))
    own = found["prediction/a"]
    together = np.concatenate([own["match_a"], own["match_b"]], axis=1)[0]
    # The rounding of frequencies: at most one draw of 400 in each of 81 states.
    np.testing.assert_allclose(together, match / whole, atol=0.02)
    np.testing.assert_allclose(own["irrelevant"][0], irrelevant / whole, atol=0.02)
    # It takes the weights to get there: without them it is another law.
    plainly = pmm.assign(tree_of(model, points), model, {"a": x}, reweight=False,
                         progressbar=False)["prediction/a"]  # fmt: skip
    apart = np.concatenate([plainly["match_a"], plainly["match_b"]], axis=1)[0]
    assert np.abs(apart - match / whole).max() > 0.03


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_numbering_and_order_of_draws_do_not_matter(uniform, seed):
    rng = np.random.default_rng(seed)
    points = uniform_points(uniform, 6, seed)
    x = rng.normal(size=(3, 3))
    x[0, 1] = np.nan
    labels = xr.Dataset(
        {f"cluster_{k}": (k, rng.integers(-1, 2, n)) for k, n in (("a", 5), ("b", 4))}
    )
    other = []
    for place in rng.permutation(6):
        numbers = rng.permutation(3)
        own = dict(points[place])
        for name in ("cluster_a", "cluster_b"):
            own[name] = numbers[own[name]]
        other.append(own)
    first, second = (
        pmm.assign(tree_of(uniform, p, chains), uniform, {"a": x}, labels=labels,
                   progressbar=False)["prediction/a"].to_dataset()
        for p, chains in ((points, 1), (other, 3))
    )  # fmt: skip
    xr.testing.assert_allclose(first.drop_vars("weight"), second.drop_vars("weight"))
    for name in ("match_a", "match_b", "probability", "unseen"):
        assert ((first[name] >= 0) & (first[name] <= 1)).all()
    np.testing.assert_allclose(first["probability"].sum("cluster") + first["unseen"], 1.0)


def test_irrelevant_objects_are_never_matched(flagged):
    points = points_of(flagged, 4)
    for point in points:
        point["relevance_b"][0] = 0
    found = pmm.assign(tree_of(flagged, points), flagged, {"a": np.zeros((2, 2))},
                       random_seed=1, progressbar=False)  # fmt: skip
    own = found["prediction/a"]
    np.testing.assert_array_equal(own["match_b"][:, 0], 0.0)
    assert (own["match_b"][:, 1:] > 0.0).any()
    # The draws are for the summaries: an irrelevant one matches nothing there either.
    match = pmm.match_probability(found, "cluster_a_new", "cluster_b")
    np.testing.assert_array_equal(match[:, 0], 0.0)
    estimate = pmm.partition_estimate(found)
    assert estimate["cluster_a_new"].dims == ("cluster_a_dim_0_new",)
    assert isinstance(estimate.attrs["expected_loss"], float)  # one set, as the draws name none
    pmm.unmatched_probability(found, "cluster_a_new")


def test_draws_of_new_objects_have_the_probabilities(flagged):
    points = points_of(flagged, 1) * 300
    x = np.array([[0.3, 0.1], [-1.0, 2.0]])
    found = pmm.assign(tree_of(flagged, points), flagged, {"b": np.pad(x, ((0, 0), (0, 1)))},
                       random_seed=0, progressbar=False)  # fmt: skip
    own = found["prediction/b"]
    relevant = found["posterior/relevance_b_new"].mean(("chain", "draw"))
    noise = 4.0 * np.sqrt(0.25 / 300)
    np.testing.assert_allclose(1.0 - relevant, own["irrelevant"], atol=noise)
    match = pmm.match_probability(found, "cluster_b_new", "cluster_a")
    np.testing.assert_allclose(match, own["match_a"], atol=noise)
    # Of different draws, by their weights.
    points = points_of(flagged, 5) * 400
    for reweight in (True, False):
        found = pmm.assign(tree_of(flagged, points), flagged, {"b": np.pad(x, ((0, 0), (0, 1)))},
                           random_seed=0, progressbar=False, reweight=reweight)  # fmt: skip
        own, drawn = found["prediction/b"], found["posterior"]
        weight = own["weight"]
        np.testing.assert_allclose(weight.sum(("chain", "draw")), 1.0)
        assert reweight == (float(weight.std()) > 1e-5)
        # Kish's number, by the weights of five different draws.
        five = weight[0, :5] / weight[0, :5].sum("draw")
        expected = 400.0 / np.square(five).sum("draw")
        np.testing.assert_allclose(own["effective_draws"], expected)
        same = drawn["cluster_b_new"] == drawn["cluster_a"]
        known = drawn["relevance_a"].rename(relevance_a_dim_0="cluster_a_dim_0")
        both = same & (drawn["relevance_b_new"] == 1) & (known == 1)
        share = (weight * both).sum(("chain", "draw")).transpose(*own["match_a"].dims)
        spread = np.sqrt(0.25 * np.square(weight).sum(("chain", "draw")).max())
        np.testing.assert_allclose(share, own["match_a"], atol=4.0 * float(spread))
    again = pmm.assign(tree_of(flagged, points[:5]), flagged, {"b": np.zeros((1, 3))},
                       random_seed=3, progressbar=False)  # fmt: skip
    same = pmm.assign(tree_of(flagged, points[:5]), flagged, {"b": np.zeros((1, 3))},
                      random_seed=3, progressbar=False)  # fmt: skip
    xr.testing.assert_identical(again["posterior"].to_dataset(), same["posterior"].to_dataset())


@pytest.fixture(scope="module")
def labelled():
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(5, 3)), columns=["x", "y", "z"], index=list("pqrst"))
    other = pd.DataFrame(rng.normal(size=(4, 2)), columns=["u", "v"])
    return pmm.models.projected_clusters({"a": frame, "b": other}, 2, 3, projection="normal")


def test_tables_are_matched_by_label_and_keep_theirs(labelled):
    points = uniform_points(labelled, 5)
    tree = tree_of(labelled, points)
    frame = pd.DataFrame({"z": [1.0, 2.0], "x": [0.5, np.nan], "y": [0.0, 3.0]}, index=["n1", "n2"])
    found = pmm.assign(tree, labelled, {"a": frame}, progressbar=False)["prediction/a"]
    assert found["a_object_new"].to_numpy().tolist() == ["n1", "n2"]
    assert found["match_a"].dims == ("a_object_new", "a_object")
    assert found["a_object"].to_numpy().tolist() == list("pqrst")
    values = np.ma.masked_invalid(frame[["x", "y", "z"]].to_numpy())
    plain = pmm.assign(tree, labelled, {"a": values}, progressbar=False)["prediction/a"]
    np.testing.assert_array_equal(found["match_b"], plain["match_b"])
    best = pmm.assign(tree, labelled, {"a": frame}, top=2, progressbar=False)["prediction/a"]
    assert best["match_a"].dims == ("a_object_new", "a_rank")
    for i in range(2):
        row = found["match_a"][i]
        np.testing.assert_allclose(best["match_a"][i], np.sort(row)[::-1][:2])
        np.testing.assert_allclose(row.sel(a_object=best["partner_a"][i].to_numpy()),
                                   best["match_a"][i])  # fmt: skip


def test_known_classes_may_be_the_clusters(labelled):
    points = uniform_points(labelled, 5)
    classes = xr.Dataset({"cluster_a": ("a_object", [7, 7, 9, 9, 9]),
                          "cluster_b": ("b_object", [9, -1, 7, 7])})  # fmt: skip
    found = pmm.assign(tree_of(labelled, points), labelled, {"b": np.zeros((1, 2))},
                       labels=classes, progressbar=False)["prediction/b"]  # fmt: skip
    assert found["cluster"].to_numpy().tolist() == [7, 9]
    plain = {name: classes[name].to_numpy() - 2 * (classes[name].to_numpy() < 0)
             for name in classes}  # fmt: skip
    same = pmm.assign(tree_of(labelled, points), labelled, {"b": np.zeros((1, 2))},
                      labels=plain, progressbar=False)["prediction/b"]  # fmt: skip
    xr.testing.assert_identical(same["probability"], found["probability"])
    known = tree_of(labelled, points)
    known["posterior"] = known["posterior"].to_dataset().assign_coords(b_object=range(4))
    others = classes.assign_coords(b_object=[3, 2, 1, 7])
    with pytest.raises(ValueError, match="expected the objects of the draws, such as 0; found"):
        pmm.assign(known, labelled, {"b": np.zeros((1, 2))}, labels=others, progressbar=False)
    with pytest.raises(KeyError, match="no labels of 'cluster_b'"):
        pmm.assign(tree_of(labelled, points), labelled, {"b": np.zeros((1, 2))},
                   labels=classes[["cluster_a"]], progressbar=False)  # fmt: skip


def test_fewer_draws_and_only_what_is_needed(labelled):
    points = uniform_points(labelled, 8)
    tree = tree_of(labelled, points, chains=2)
    x = {"a": np.zeros((1, 3))}
    few = pmm.assign(tree, labelled, x, num_draws=2, progressbar=False)
    assert few["posterior"].sizes["draw"] == 2
    kept = [points[i] for i in (0, 3, 4, 7)]
    same = pmm.assign(tree_of(labelled, kept, chains=2), labelled, x, progressbar=False)
    np.testing.assert_array_equal(few["prediction/a/match_b"], same["prediction/a/match_b"])
    # Weights and latent vectors are integrated out: their draws are not asked for.
    whole = pmm.assign(tree, labelled, x, progressbar=False)
    bare = tree["posterior"].to_dataset().drop_vars(["weights", "latent"])
    without = pmm.assign(bare, labelled, x, progressbar=False)
    np.testing.assert_array_equal(whole["prediction/a/match_b"], without["prediction/a/match_b"])
    with pytest.raises(KeyError, match="no variable 'projection_a' among the draws"):
        pmm.assign(bare.drop_vars("projection_a"), labelled, x, progressbar=False)


def test_networks():
    rng = np.random.default_rng(0)
    x = rng.random((6, 5)) < 0.5
    frame = pd.DataFrame(x.astype(int), index=list("pqrstu"), columns=list("vwxyz"))
    model = pmm.models.relational_clusters({"a": frame, "b": frame.iloc[:4]}, n_clusters=3)
    points = []
    for _ in range(4):
        point = tiny_networks.random_point(model, rng)
        points.append(point)
    tree = tree_of(model, points)
    rows = frame.iloc[:2, ::-1].set_axis(["n1", "n2"])
    found = pmm.assign(tree, model, {"a_row": rows}, progressbar=False)["prediction/a_row"]
    dense = pmm.assign(tree, model, {"a_row": x[:2].astype(float)}, progressbar=False)
    other = pmm.assign(
        tree, model, {"a_row": sparse.csr_array(x[:2].astype(float))}, progressbar=False
    )
    for same in (dense, other):
        np.testing.assert_allclose(found["match_b_row"], same["prediction/a_row/match_b_row"])
    # Rows are compared with rows alone.
    assert {n for n in found if n.startswith("match_")} == {"match_a_row", "match_b_row"}
    assert found["a_row_object_new"].to_numpy().tolist() == ["n1", "n2"]
    columns = pmm.assign(tree, model, {"b_column": x[:4, :3].T.astype(float)}, progressbar=False)
    assert columns["prediction/b_column/match_a_column"].shape == (3, 5)
    with pytest.raises(
        ValueError,
        match="expected the objects of the network, such as 'v'; found others, such as 'o'",
    ):
        pmm.assign(tree, model, {"a_row": rows.rename(columns={"v": "o"})}, progressbar=False)
    with pytest.raises(ValueError, match="expected 2 × 5 objects"):
        pmm.assign(tree, model, {"a_row": x[:2, :4].astype(float)}, progressbar=False)
    with pytest.raises(ValueError, match="expected 0 or 1"):
        pmm.assign(tree, model, {"a_row": 2.0 * x[:2]}, progressbar=False)


def test_directed_networks_take_both_directions():
    model = tiny_networks.network_model("directed")
    tree = tree_of(model, points_of(model, 2, module=tiny_networks))
    row = np.array([[1.0, 0.0, 1.0, 1.0]])
    for pair in ((row, None), (None, row), (row, 1.0 - row)):
        found = pmm.assign(tree, model, {"a_0": pair}, progressbar=False)
        assert found["prediction/a_0/match_b_0"].shape == (1, 3)
    with pytest.raises(TypeError, match="'a': it is directed; expected a pair"):
        pmm.assign(tree, model, {"a_0": row}, progressbar=False)
    with pytest.raises(ValueError, match="'a': expected cells; found none"):
        pmm.assign(tree, model, {"a_0": (None, None)}, progressbar=False)


@pytest.mark.parametrize(
    ("new", "error", "message"),
    [
        ({}, TypeError, "new_data: expected a mapping"),
        ([[1.0]], TypeError, "new_data: expected a mapping"),
        ({"c": [[1.0]]}, KeyError, r"no domain 'c' in the model; there are \['a', 'b'\]"),
        ({"a": np.zeros((2, 2))}, ValueError, "domain 'a': expected 3 features; found 2"),
        ({"a": np.full((2, 3), np.inf)}, ValueError, "domain 'a': .*; found 6 infinite values"),
        ({"a": pd.DataFrame(np.zeros((1, 3)), columns=list("xyw"))}, ValueError,
         "expected the features of the domain; found no column 'z'"),
        ({"a": pd.DataFrame(np.zeros((1, 2)), columns=list("xy"))}, ValueError,
         "expected the features of the domain; found no column 'z'"),
        ({"a": pd.DataFrame(np.zeros((1, 5)), columns=list("wxyzv"))}, ValueError,
         r"expected 3 features; found 5 \('w', 'v' too\)"),
        ({"a": {"b": np.zeros((1, 2))}}, KeyError, r"expected some of \['a'\]"),
        ({"a": np.zeros((1, 3)), "cluster_a": np.zeros((1, 3))}, ValueError, "found 'a' twice"),
    ],
)  # fmt: skip
def test_new_data_are_checked(labelled, new, error, message):
    tree = tree_of(labelled, uniform_points(labelled, 2))
    with pytest.raises(error, match=message):
        pmm.assign(tree, labelled, new, progressbar=False)


def test_other_sample_dims_and_groups(labelled):
    tree, x = tree_of(labelled, uniform_points(labelled, 6), chains=2), {"b": np.ones((2, 2))}
    flat = tree["posterior"].to_dataset().stack(sample=("chain", "draw")).reset_index("sample")
    other = xr.DataTree.from_dict({"kept": flat.drop_vars(["chain", "draw"])})
    found = pmm.assign(other, labelled, x, group="kept", sample_dims=["sample"], random_seed=1,
                       progressbar=False)  # fmt: skip
    same = pmm.assign(tree, labelled, x, random_seed=1, progressbar=False)
    np.testing.assert_allclose(found["prediction/b/match_a"], same["prediction/b/match_a"])
    drawn = found["posterior/cluster_b_new"]
    assert drawn.dims == ("sample", "b_object_new")
    np.testing.assert_array_equal(
        drawn, same["posterior/cluster_b_new"].to_numpy().reshape(drawn.shape)
    )


def test_other_arguments_are_checked(labelled):
    points = uniform_points(labelled, 2)
    tree, x = tree_of(labelled, points), {"a": np.zeros((1, 3))}
    with pytest.raises(ValueError, match="top: expected a whole number of at least 1; found 0"):
        pmm.assign(tree, labelled, x, top=0)
    with pytest.raises(ValueError, match=r"num_draws: expected a whole number .* 1; found 0"):
        pmm.assign(tree, labelled, x, num_draws=0)
    with pytest.raises(ValueError, match="sample_dims: no dim 'sample' among the draws"):
        pmm.assign(tree, labelled, x, sample_dims=["sample"])
    with pytest.raises(TypeError, match=r"sample_dims: .* such as \['draw'\]; found 'draw'"):
        pmm.assign(tree, labelled, x, sample_dims="draw")
    once = pmm.assign(tree, labelled, x, progressbar=False)
    merged = tree["posterior"].to_dataset().assign(once["posterior"].to_dataset().data_vars)
    with pytest.raises(ValueError, match="found 'a' with new objects in them already"):
        pmm.assign(merged, labelled, x)
    short = tree["posterior"].to_dataset().isel(a_object=slice(4))
    with pytest.raises(ValueError, match=r"variable 'cluster_a': expected draws of the model's"):
        pmm.assign(short, labelled, x)


def test_with_few_partners_not_all_pairs_are_held(labelled, monkeypatch):
    tree = tree_of(labelled, uniform_points(labelled, 6))
    rng = np.random.default_rng(0)
    x = {"a": rng.normal(size=(7, 3)), "b": rng.normal(size=(3, 2))}
    options = {"top": 2, "random_seed": 1, "progressbar": False}
    whole = pmm.assign(tree, labelled, x, **options)
    monkeypatch.setenv("PM_MATCH_MEMORY", str(8 * 2 * 9 / 2**30))  # two new objects with all nine
    parts = pmm.assign(tree, labelled, x, **options)
    for name in "ab":
        xr.testing.assert_allclose(
            parts[f"prediction/{name}"].to_dataset(), whole[f"prediction/{name}"].to_dataset()
        )
        drawn = parts[f"posterior/cluster_{name}_new"]
        assert drawn.sizes == whole[f"posterior/cluster_{name}_new"].sizes
    with pytest.raises(MemoryError, match="match probabilities of new objects of 'a'"):
        pmm.assign(tree, labelled, x, progressbar=False)


def test_raw_units_are_suspected_before_draws_are_asked_for(labelled):
    points = uniform_points(labelled, 60)
    for number, point in enumerate(points):
        point["precision_log__"] = np.asarray(np.log(1.0 if number else 400.0))
    raw = 170.0 + np.random.default_rng(0).normal(size=(4, 3))  # in centimetres, say
    with pytest.warns(UserWarning, match="prediction/a: .* of 4 new objects .*in the same units"):
        pmm.assign(tree_of(labelled, points), labelled, {"a": raw}, progressbar=False)


def test_a_warning_if_few_draws_have_all_the_weight(labelled):
    points = uniform_points(labelled, 60)
    for number, point in enumerate(points):
        point["precision_log__"] = np.asarray(np.log(1.0 if number else 400.0))
    x = np.zeros((1, 3))
    with pytest.warns(UserWarning, match="prediction/a: fewer than 10 of 60 draws") as said:
        pmm.assign(tree_of(labelled, points), labelled, {"a": x}, progressbar=False)
    assert "units" not in str(said[0].message)
