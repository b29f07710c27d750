import itertools
import time

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import matching

CHAINS, DRAWS = 2, 30


def tree(n_clusters=4, sizes=(("a", 7), ("b", 5)), seed=0):
    """Draws of labels and projections as the models record them."""
    rng = np.random.default_rng(seed)
    posterior = {}
    for name, n in sizes:
        objects, features = f"{name}_object", f"{name}_feature"
        posterior[f"cluster_{name}"] = xr.DataArray(
            rng.integers(0, n_clusters, (CHAINS, DRAWS, n)),
            dims=("chain", "draw", objects),
            coords={objects: [f"{name}{i}" for i in range(n)]},
        )
        posterior[f"projection_{name}"] = xr.DataArray(
            rng.normal(size=(CHAINS, DRAWS, n + 1, 2)),
            dims=("chain", "draw", features, "factor"),
            coords={features: [f"{name}_{i}" for i in range(n + 1)]},
        )
    dataset = xr.Dataset(posterior).assign_coords(chain=[3, 5], draw=range(DRAWS))
    stats = xr.Dataset({"log_joint": (("chain", "draw"), rng.normal(size=(CHAINS, DRAWS)))})
    return xr.DataTree.from_dict({"posterior": dataset, "sample_stats": stats})


def stacked(idata, name):
    values = idata["posterior"][name].to_numpy()
    return values.reshape(-1, *values.shape[2:])


def test_match_probability_is_the_mean_of_equality():
    idata = tree()
    match = matching.match_probability(idata, "cluster_a", "cluster_b")
    a, b = stacked(idata, "cluster_a"), stacked(idata, "cluster_b")
    np.testing.assert_allclose(match, (a[:, :, None] == b[:, None, :]).mean(axis=0))
    assert match.dims == ("a_object", "b_object")
    assert match["a_object"].to_numpy().tolist() == [f"a{i}" for i in range(7)]
    assert match.sel(a_object="a2", b_object="b4") == (a[:, 2] == b[:, 4]).mean()


def test_match_probability_within_a_domain():
    match = matching.match_probability(tree(), "cluster_a", "cluster_a")
    assert match.dims == ("a_object", "a_object_other")
    np.testing.assert_array_equal(np.diag(match), 1)
    np.testing.assert_array_equal(match, match.T)


def test_match_probability_does_not_depend_on_the_numbering():
    idata = tree()
    relabelled = idata.copy(deep=True)
    rng = np.random.default_rng(1)
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        numbers = rng.permutation(1000)[:4] - 500  # any whole numbers, even negative ones
        for name in ("cluster_a", "cluster_b"):
            values = relabelled["posterior"][name].to_numpy()
            values[chain, draw] = numbers[values[chain, draw]]
    names = ("cluster_a", "cluster_b")
    xr.testing.assert_identical(
        matching.match_probability(idata, *names), matching.match_probability(relabelled, *names)
    )
    first, second = matching.point_estimate(idata), matching.point_estimate(relabelled)
    assert first.attrs == second.attrs


def test_match_probability_of_more_draws_than_a_byte_counts():
    labels = np.zeros((1, 1000, 2), dtype=np.int64)
    labels[0, :300, 1] = 1
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "a_object"), labels)})
    match = matching.match_probability(posterior, "cluster_a", "cluster_a")
    np.testing.assert_allclose(match, [[1, 0.7], [0.7, 1]])


def test_match_probability_is_fast():
    rng = np.random.default_rng(0)
    posterior = xr.Dataset(
        {f"cluster_{k}": (("chain", "draw", k), rng.integers(0, 25, (4, 1000, 200))) for k in "ab"}
    )
    start = time.process_time()
    matching.match_probability(posterior, "cluster_a", "cluster_b")
    assert time.process_time() - start < 1


def test_coordinates_along_the_objects_are_kept():
    idata = tree()
    posterior = idata["posterior"].to_dataset().assign_coords(label=("a_object", range(7)))
    match = matching.match_probability(posterior, "cluster_a", "cluster_b")
    np.testing.assert_array_equal(match["label"], range(7))
    assert "chain" not in match.coords


def test_other_sample_dims_and_groups():
    idata = tree()
    flat = idata["posterior"].to_dataset().stack(sample=("chain", "draw")).reset_index("sample")
    other = xr.DataTree.from_dict({"prior": flat.drop_vars(["chain", "draw"])})
    np.testing.assert_array_equal(
        matching.match_probability(
            other, "cluster_a", "cluster_b", group="prior", sample_dims=["sample"]
        ),
        matching.match_probability(idata, "cluster_a", "cluster_b"),
    )
    labels = matching.point_estimate(other, group="prior", sample_dims=["sample"])
    np.testing.assert_array_equal(labels["cluster_a"], matching.point_estimate(idata)["cluster_a"])
    assert 0 <= labels.attrs["sample"] < CHAINS * DRAWS


def test_unknown_names_list_those_there_are():
    idata = tree()
    with pytest.raises(KeyError, match=r"no variable 'cluster_c'.*'cluster_a', 'cluster_b'"):
        matching.match_probability(idata, "cluster_a", "cluster_c")
    with pytest.raises(KeyError, match=r"no group 'prior'; there are \['posterior', 'sample_stats"):
        matching.match_probability(idata, "cluster_a", "cluster_b", group="prior")
    with pytest.raises(KeyError, match=r"'projection_c'.*'projection_a', 'projection_b'"):
        matching.map_objects(idata, np.ones((1, 8)), source="a", target="c")
    with pytest.raises(KeyError, match=r"no assignment variable .*'projection_a'"):
        matching.point_estimate(idata["posterior"].to_dataset()[["projection_a"]])
    with pytest.raises(TypeError, match=r"expected a DataTree.*found an object of type dict"):
        matching.point_estimate({})


def test_other_variables_are_no_assignments():
    idata = tree()
    with pytest.raises(ValueError, match=r"'projection_a': expected dims .* and one dim beside"):
        matching.match_probability(idata, "cluster_a", "projection_a")
    fractions = idata["posterior"].to_dataset().astype(float)
    with pytest.raises(ValueError, match=r"'cluster_a': expected whole numbers.*float64"):
        matching.match_probability(fractions, "cluster_a", "cluster_b")


def test_map_objects_averages_the_maps():
    idata = tree()
    x = np.random.default_rng(2).normal(size=(3, 8))
    carried = matching.map_objects(idata, x, source="a", target="b")
    expected = np.mean(
        [
            x @ w @ np.linalg.inv(w.T @ w) @ v.T
            for w, v in zip(
                stacked(idata, "projection_a"), stacked(idata, "projection_b"), strict=True
            )
        ],
        axis=0,
    )
    np.testing.assert_allclose(carried, expected)
    assert carried.dims == ("a_object", "b_feature")
    assert carried["b_feature"].to_numpy().tolist() == [f"b_{i}" for i in range(6)]


def test_map_objects_is_exact_on_noiseless_objects_whatever_the_rotation():
    rng = np.random.default_rng(3)
    w, v, z = rng.normal(size=(8, 2)), rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    idata = tree()
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        idata["posterior"]["projection_a"].to_numpy()[chain, draw] = w @ turn
        idata["posterior"]["projection_b"].to_numpy()[chain, draw] = v @ turn
    carried = matching.map_objects(idata, z @ w.T, source="a", target="b")
    np.testing.assert_allclose(carried, z @ v.T)
    back = matching.map_objects(idata, z @ w.T, source="a", target="a")
    np.testing.assert_allclose(back, z @ w.T)
    assert back.dims == ("a_object", "a_feature")


def test_map_objects_survives_a_factor_that_a_domain_does_not_use():
    idata = tree()
    idata["posterior"]["projection_a"].to_numpy()[..., 1] *= 1e-11
    x = np.random.default_rng(2).normal(size=(3, 8))
    assert abs(matching.map_objects(idata, x, source="a", target="b")).max() < 100


def test_map_objects_matches_features_by_label():
    idata = tree()
    x = pd.DataFrame(
        np.random.default_rng(2).normal(size=(2, 8)),
        index=["new", "newer"],
        columns=[f"a_{i}" for i in range(8)],
    )
    expected = matching.map_objects(idata, x.to_numpy(), source="a", target="b")
    shuffled = x[x.columns[::-1]]
    carried = matching.map_objects(idata, shuffled, source="a", target="b")
    np.testing.assert_allclose(carried, expected)
    assert carried["a_object"].to_numpy().tolist() == ["new", "newer"]
    array = xr.DataArray(
        shuffled, dims=("which", "f"), coords={"digit": ("which", [4, 5]), "f": shuffled.columns}
    )
    carried = matching.map_objects(idata, array, source="a", target="b")
    np.testing.assert_allclose(carried, expected)
    assert carried.dims == ("which", "b_feature")
    assert carried["digit"].to_numpy().tolist() == [4, 5]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(8), r"objects of domain 'a': expected a 2-D table.*\(8,\)"),
        (np.ones((2, 7)), "expected 8 features; found 7"),
        (np.full((2, 8), np.nan), "expected finite values"),
        (pd.DataFrame(np.ones((2, 8))), r"its features are not those.*unknown: \[0, 1, 2, 3, 4\]"),
        (pd.DataFrame(np.ones((2, 8)), columns=["a_0"] * 8), "label appears more than once"),
    ],
    ids=["vector", "features", "nan", "labels", "duplicates"],
)
def test_map_objects_bad_input(x, message):
    with pytest.raises(ValueError, match=message):
        matching.map_objects(tree(), x, source="a", target="b")


def test_map_objects_needs_the_same_factors():
    posterior = tree()["posterior"].to_dataset()
    posterior["projection_b"] = posterior["projection_b"].isel(factor=[0]).rename(factor="other")
    with pytest.raises(ValueError, match="number of factors: 2 of 'a', 1 of 'b'"):
        matching.map_objects(posterior, np.ones((1, 8)), source="a", target="b")


@pytest.mark.parametrize("seed", range(5))
def test_point_estimate_minimises_binders_loss_by_brute_force(seed):
    idata = tree(n_clusters=3, seed=seed)
    labels = np.concatenate([stacked(idata, "cluster_a"), stacked(idata, "cluster_b")], axis=1)
    pairs = list(itertools.combinations(range(labels.shape[1]), 2))
    same = np.array([[c[i] == c[k] for i, k in pairs] for c in labels])
    losses = [np.mean([np.mean(s != t) for t in same]) for s in same]

    estimate = matching.point_estimate(idata)
    best = int(np.argmin(losses))
    assert estimate.attrs["binder_loss"] == pytest.approx(losses[best])
    assert estimate.attrs["chain"] == [3, 5][best // DRAWS]
    assert estimate.attrs["draw"] == best % DRAWS
    found = np.concatenate([estimate["cluster_a"], estimate["cluster_b"]])
    np.testing.assert_array_equal([found[i] == found[k] for i, k in pairs], same[best])
    sizes = np.bincount(found)
    assert sizes.min() > 0
    assert (np.diff(sizes) <= 0).all()


def test_point_estimate_of_many_blocks_of_draws():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (1, 20_000, 120))
    labels[0, 12_345] = np.arange(120) % 3
    # Draws that mostly agree with one draw make that draw the estimate.
    keep = rng.random(labels.shape) < 0.8
    labels = np.where(keep, labels[0, 12_345], labels)
    labels[0, 12_345] = np.arange(120) % 3
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "a_object"), labels)})
    estimate = matching.point_estimate(posterior)
    assert estimate.attrs["draw"] == 12_345
    np.testing.assert_array_equal(estimate["cluster_a"], np.arange(120) % 3)


def test_cluster_sizes():
    labels = xr.Dataset(
        {"cluster_a": ("a_object", [0, 0, 0, 1]), "cluster_b": ("b_object", [0, 2])}
    )
    table = matching.cluster_sizes(labels)
    assert table.columns.tolist() == ["a", "b", "total"]
    assert table.to_numpy().tolist() == [[3, 1, 4], [1, 0, 1], [0, 1, 1]]
    assert table.index.tolist() == [0, 1, 2]


def test_assignment_names():
    posterior = tree()["posterior"].to_dataset()
    posterior["cluster_means"] = posterior["projection_a"]
    assert matching.assignment_names(posterior) == ["cluster_a", "cluster_b"]


def test_rhat_of_the_log_joint():
    idata = tree()
    assert 0.9 < matching.log_joint_rhat(idata) < 1.2
    idata["sample_stats"]["log_joint"].to_numpy()[0] += 50
    assert matching.log_joint_rhat(idata) > 1.5
    assert np.isnan(matching.log_joint_rhat(idata.isel(chain=[0])))


def test_best_chain():
    idata = tree()
    idata["sample_stats"]["log_joint"].to_numpy()[1] += 5
    idata["observed_data"] = xr.Dataset({"a": ("a_object", range(7))})
    best = matching.best_chain(idata)
    assert best["posterior"]["chain"].to_numpy().tolist() == [5]
    assert best["sample_stats"].sizes == {"chain": 1, "draw": DRAWS}
    np.testing.assert_array_equal(best["observed_data"]["a"], range(7))
    np.testing.assert_array_equal(
        best["posterior"]["cluster_a"][0], idata["posterior"]["cluster_a"][1]
    )
