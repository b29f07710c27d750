import re
import time
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pm_match as pmm
from pm_match import matching
from pm_match.matching import partners
from tests.declared.draws import CHAINS, DRAWS, stacked, tree, typed, with_relevance


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
    first, second = matching.partition_estimate(idata), matching.partition_estimate(relabelled)
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
    labels = matching.partition_estimate(other, group="prior", sample_dims=["sample"])
    np.testing.assert_array_equal(
        labels["cluster_a"], matching.partition_estimate(idata)["cluster_a"]
    )


def test_unknown_names_list_those_there_are():
    idata = tree()
    with pytest.raises(KeyError, match=r"no variable 'cluster_c'.*'cluster_a', 'cluster_b'"):
        matching.match_probability(idata, "cluster_a", "cluster_c")
    with pytest.raises(KeyError, match=r"no group 'prior'; there are \['posterior', 'sample_stats"):
        matching.match_probability(idata, "cluster_a", "cluster_b", group="prior")
    with pytest.raises(KeyError, match=r"'projection_c'.*'projection_a', 'projection_b'"):
        matching.map_objects(idata, np.ones((1, 8)), source="a", target="c")
    with pytest.raises(KeyError, match=r"no assignment variable .*'projection_a'"):
        matching.partition_estimate(idata["posterior"].to_dataset()[["projection_a"]])
    with pytest.raises(TypeError, match=r"expected a DataTree.*found an object of type dict"):
        matching.partition_estimate({})
    result = SimpleNamespace(idata=idata)
    for summary in (matching.partition_estimate, matching.best_chain):
        with pytest.raises(TypeError, match=r"Namespace, whose draws are its idata$"):
            summary(result)


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


@pytest.mark.parametrize("shifted", ["", "a", "ab"])
def test_map_objects_is_exact_on_noiseless_objects_whatever_the_rotation(shifted):
    rng = np.random.default_rng(3)
    w, v, z = rng.normal(size=(8, 2)), rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    idata = tree()
    intercepts = {"a": np.zeros(8), "b": np.zeros(6)}
    for name in shifted:
        intercepts[name] = rng.normal(size=len(intercepts[name]))
        values = np.tile(intercepts[name], (CHAINS, DRAWS, 1))
        dims = ("chain", "draw", f"{name}_feature")
        idata["posterior"][f"intercept_{name}"] = xr.DataArray(values, dims=dims)
    for chain, draw in np.ndindex(CHAINS, DRAWS):
        turn = np.linalg.qr(rng.normal(size=(2, 2)))[0]
        idata["posterior"]["projection_a"].to_numpy()[chain, draw] = w @ turn
        idata["posterior"]["projection_b"].to_numpy()[chain, draw] = v @ turn
    x, y = z @ w.T + intercepts["a"], z @ v.T + intercepts["b"]
    carried = matching.map_objects(idata, x, source="a", target="b")
    np.testing.assert_allclose(carried, y)
    back = matching.map_objects(idata, x, source="a", target="a")
    np.testing.assert_allclose(back, x)
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
        (np.ma.masked_equal(np.eye(2, 8), 1.0), "expected finite values"),
        (pd.DataFrame(np.ones((2, 8))), r"features of the domain, each.*found \[0, 1, 2, 3, 4\]"),
        (pd.DataFrame(np.ones((2, 8)), columns=["a_0"] * 8), "each once; found one more than once"),
    ],
    ids=["vector", "features", "nan", "masked", "labels", "duplicates"],
)
def test_map_objects_bad_input(x, message):
    with pytest.raises(ValueError, match=message):
        matching.map_objects(tree(), x, source="a", target="b")


def test_map_objects_needs_the_same_factors():
    posterior = tree()["posterior"].to_dataset()
    posterior["projection_b"] = posterior["projection_b"].isel(factor=[0]).rename(factor="other")
    with pytest.raises(ValueError, match="as many factors; found 2 of 'a' and 1 of 'b'"):
        matching.map_objects(posterior, np.ones((1, 8)), source="a", target="b")


def test_cluster_sizes():
    labels = xr.Dataset(
        {"cluster_a": ("a_object", [0, 0, 0, 1]), "cluster_b": ("b_object", [0, 2])}
    )
    table = matching.cluster_sizes(labels)
    assert table.columns.tolist() == ["a", "b", "total"]
    assert table.to_numpy().tolist() == [[3, 1, 4], [1, 0, 1], [0, 1, 1]]
    assert table.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize("of", [matching.cluster_sizes, pmm.plots.plot_alluvial])
@pytest.mark.parametrize("draws", [tree, lambda: tree()["posterior"].to_dataset()])
def test_draws_are_no_labels(of, draws):
    with pytest.raises(
        TypeError, match=r"labels: expected one label of each object, .*found draws"
    ):
        of(draws())


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


def test_the_best_chain_is_one_of_the_chains_that_the_log_joint_is_of():
    """Chains were taken by their places, whatever draws the posterior had of its own."""
    idata = tree()
    idata["sample_stats"]["log_joint"].to_numpy()[1] += 5
    posterior = idata["posterior"].to_dataset()
    stats = idata["sample_stats"].to_dataset().assign_coords(chain=[3, 5])
    idata["sample_stats"] = xr.DataTree(stats)
    for chains in ([5, 3], [5]):
        other = idata.copy()
        other["posterior"] = xr.DataTree(posterior.sel(chain=chains))
        message = f"group 'posterior': expected the chains of the log joint, [3, 5]; found {chains}"
        with pytest.raises(ValueError, match=re.escape(message)):
            matching.best_chain(other)
    # Runs that were put together repeat numbers of chains.
    twice = idata.map_over_datasets(
        lambda dataset: xr.concat([dataset, dataset], "chain") if dataset.sizes else dataset
    )
    assert matching.best_chain(twice)["posterior"]["chain"] == 5
    idata["prior"] = xr.Dataset({"mu": (("chain", "draw"), np.zeros((1, 9)))})
    assert matching.best_chain(idata)["prior"].sizes == {"chain": 1, "draw": 9}


def test_draws_without_the_flags_of_their_labels_are_refused():
    """All objects were taken for relevant, and labels that mean nothing for those of clusters."""
    idata = with_relevance(tree(), names=("b",))
    idata["posterior"]["cluster_b"].attrs["relevance"] = "relevance_b"
    matching.partition_estimate(idata)
    draws = idata["posterior"].to_dataset().drop_vars("relevance_b")
    with pytest.raises(KeyError, match="'cluster_b': expected 'relevance_b' beside it"):
        matching.partition_estimate(draws)
    assert matching.match_probability(draws, "a", "b", relevance=None).shape == (7, 5)


@pytest.mark.parametrize(
    "function", [matching.partition_estimate, matching.match_summary, matching.cluster_spans]
)
def test_one_dim_of_draws_is_listed(function):
    draws = tree()["posterior"].to_dataset().isel(chain=0)
    with pytest.raises(TypeError, match=r"sample_dims: .* such as \['draw'\]; found 'draw'"):
        function(draws, sample_dims="draw")


@pytest.mark.parametrize("function", [matching.best_chain, matching.log_joint_rhat])
def test_draws_alone_have_no_log_joint(function):
    with pytest.raises(TypeError, match="expected a DataTree, as sample returns it; found Dataset"):
        function(tree()["posterior"].to_dataset())


def matches(idata, a, b):
    """In which draws objects match, shape (draws, objects of a, objects of b)."""
    x, y = (stacked(idata, f"cluster_{name}") for name in (a, b))
    r, q = (
        stacked(idata, f"relevance_{name}") == 1
        if f"relevance_{name}" in idata["posterior"]
        else np.ones(values.shape, bool)
        for name, values in ((a, x), (b, y))
    )
    return (x[:, :, None] == y[:, None, :]) & r[:, :, None] & q[:, None, :]


@pytest.mark.parametrize("names", [("a", "b"), ("a",), ("b",)])
@pytest.mark.parametrize("pair", [("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")])
def test_an_irrelevant_object_matches_nothing(pair, names):
    idata = with_relevance(tree(), names=names)
    a, b = pair
    match = matching.match_probability(idata, f"cluster_{a}", f"cluster_{b}")
    np.testing.assert_allclose(match, matches(idata, a, b).mean(axis=0))
    if a == b and a in names:  # an object matches itself where it is relevant
        np.testing.assert_allclose(np.diag(match), stacked(idata, f"relevance_{a}").mean(axis=0))


def test_relevance_may_be_ignored_or_named():
    idata = with_relevance(tree())
    pair = ("cluster_a", "cluster_b")
    plain = idata["posterior"].to_dataset().drop_vars(["relevance_a", "relevance_b"])
    xr.testing.assert_identical(
        matching.match_probability(idata, *pair, relevance=None),
        matching.match_probability(plain, *pair),
    )
    renamed = idata["posterior"].to_dataset().rename(relevance_a="in", cluster_b="words")
    renamed["in"] = renamed["in"].astype(bool).transpose("a_object", "chain", "draw")
    xr.testing.assert_allclose(
        matching.match_probability(renamed, "cluster_a", "words", relevance=("in", "relevance_b")),
        matching.match_probability(idata, *pair),
    )
    xr.testing.assert_allclose(
        matching.match_probability(renamed, "cluster_a", "words", relevance=(None, "relevance_b")),
        matching.match_probability(plain.assign(relevance_b=renamed["relevance_b"]), *pair),
    )


def test_relevance_of_a_model_without_dims():
    idata = with_relevance(tree())
    posterior = idata["posterior"].to_dataset()
    flags = posterior["relevance_a"].to_numpy()
    for dim, size in (("relevance_a_dim_0", 7), ("relevance_a_dim_0", 6), ("other", 7)):
        bare = posterior.drop_vars("relevance_a")
        bare["relevance_a"] = (("chain", "draw", dim), flags[..., :size])
        if size == 7 and dim != "other":
            xr.testing.assert_identical(
                matching.match_probability(bare, "cluster_a", "cluster_b"),
                matching.match_probability(idata, "cluster_a", "cluster_b"),
            )
        else:
            with pytest.raises(ValueError, match=r"'relevance_a': expected the dims of 'cluster_a"):
                matching.match_probability(bare, "cluster_a", "cluster_b")


def test_labels_of_a_small_dtype_leave_room_for_irrelevance():
    labels = np.arange(256, dtype=np.uint8)[None, None, :].repeat(2, axis=1)
    relevance = np.ones_like(labels)
    relevance[0, 0, 255] = 0
    dims = ("chain", "draw", "a_object")
    posterior = xr.Dataset({"cluster_a": (dims, labels), "relevance_a": (dims, relevance)})
    match = matching.match_probability(posterior, "cluster_a", "cluster_a")
    np.testing.assert_array_equal(match, np.diag([1.0] * 255 + [0.5]))
    signed = posterior.assign(cluster_a=(dims, (labels - 128).view(np.int8)))
    xr.testing.assert_identical(matching.match_probability(signed, "cluster_a", "cluster_a"), match)
    estimate = matching.partition_estimate(signed)  # both draws put nobody together
    np.testing.assert_array_equal(estimate["cluster_a"], range(256))


def test_unfit_relevance():
    idata = with_relevance(tree())
    pair = ("cluster_a", "cluster_b")
    with pytest.raises(ValueError, match=r"'relevance_b': expected the dims of 'cluster_a'"):
        matching.match_probability(idata, *pair, relevance=("relevance_b", None))
    with pytest.raises(KeyError, match=r"no variable 'relevant'.*'relevance_a', 'relevance_b'"):
        matching.match_probability(idata, *pair, relevance=("relevant", None))
    with pytest.raises(ValueError, match=r'expected "auto", None or the names .*relevance_a'):
        matching.match_probability(idata, *pair, relevance="relevance_a")
    idata["posterior"]["relevance_b"].to_numpy()[0, 3, 1] = 2
    with pytest.raises(ValueError, match=r"'relevance_b': expected 0 .* or 1 .* everywhere"):
        matching.match_probability(idata, *pair)
    with pytest.raises(ValueError, match=r"'relevance_b': expected 0 .* or 1 .* everywhere"):
        matching.partition_estimate(idata)


def best_by_sorting(idata, a, b, top):
    """Rows (object, partner, probability) from the full matrix."""
    match = matches(idata, a, b).mean(axis=0)
    if a == b:
        np.fill_diagonal(match, 0)
    objects, partners = (
        idata["posterior"][f"cluster_{name}"][f"{name}_object"].to_numpy() for name in (a, b)
    )
    return [
        (objects[i], partners[j], row[j])
        for i, row in enumerate(match)
        for j in sorted(range(len(row)), key=lambda j: (-row[j], j))[:top]
        if row[j] > 0
    ]


@pytest.mark.parametrize("relevant", [False, True])
@pytest.mark.parametrize("top", [1, 3, 100])
@pytest.mark.parametrize("pair", [("a", "b"), ("a", "a")])
def test_best_partners_are_those_of_the_matrix(pair, top, relevant, monkeypatch):
    monkeypatch.setattr(partners, "_WIDTH", 4)  # several tiles
    idata = tree(n_clusters=3, sizes=(("a", 30), ("b", 23)))
    for name in "ab":  # objects that are always together, and so are equally likely partners
        values = idata["posterior"][f"cluster_{name}"].to_numpy()
        values[..., 10:15] = values[..., [10]]
        values[..., 3:5] = values[..., [3]]
    if relevant:
        with_relevance(idata)
        values = idata["posterior"]["relevance_a"].to_numpy()
        values[..., 20] = 0  # never relevant: no rows
        values[..., 10:15] = values[..., [10]]
    table = matching.match_probability(idata, f"cluster_{pair[0]}", f"cluster_{pair[1]}", top=top)
    assert table.columns.tolist() == ["object", "partner", "probability"]
    expected = best_by_sorting(idata, *pair, top)
    assert [tuple(row) for row in table.itertuples(index=False)] == expected
    assert ("a20" in set(table["object"])) is not relevant


def test_best_partners_of_objects_without_labels_and_many_draws():
    rng = np.random.default_rng(0)
    posterior = xr.Dataset(
        {f"cluster_{k}": (("chain", "draw", k), rng.integers(0, 900, (2, 400, 8))) for k in "ab"}
    )
    table = matching.match_probability(posterior, "cluster_a", "cluster_b", top=8)
    match = matching.match_probability(posterior, "cluster_a", "cluster_b").to_numpy()
    assert len(table) == np.count_nonzero(match)
    np.testing.assert_array_equal(table["probability"], match[table["object"], table["partner"]])


def test_best_partners_need_no_matrix_of_all_pairs():
    rng = np.random.default_rng(0)
    n = 12_000
    posterior = xr.Dataset(
        {f"cluster_{k}": (("chain", "draw", k), rng.integers(0, 9, (1, 20, n))) for k in "ab"}
    )
    tracemalloc.start()
    table = matching.match_probability(posterior, "cluster_a", "cluster_b", top=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(table) == 3 * n
    assert peak < n * n / 3  # one byte a pair is more than there ever was


def test_best_partners_in_well_separated_clusters_need_no_pairs():
    rng = np.random.default_rng(0)
    n = 100_000
    states = rng.integers(0, 50, (1, 100, 300))  # 300 ways to be clustered over the draws
    posterior = xr.Dataset(
        {f"cluster_{k}": (("chain", "draw", k), states[..., rng.integers(0, 300, n)]) for k in "ab"}
    )
    tracemalloc.start()
    table = matching.match_probability(posterior, "cluster_a", "cluster_b", top=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30  # pairs of the 300 ways, not of the 100,000 objects
    assert len(table) == 5 * n
    assert (table["probability"] == 1).all()


@pytest.mark.parametrize("top", [0, 1.5])
def test_top_is_a_positive_whole_number(top):
    with pytest.raises(
        ValueError, match=f"top: expected a whole number of at least 1; found {top}"
    ):
        matching.match_probability(tree(), "cluster_a", "cluster_b", top=top)


def test_all_objects_irrelevant():
    idata = with_relevance(tree(), share=0.0)
    estimate = matching.partition_estimate(idata)
    assert (estimate["cluster_a"] == -1).all()
    assert estimate.attrs["expected_loss"] == 0
    assert matching.cluster_sizes(estimate).loc["irrelevant"].tolist() == [7, 5, 12]
    assert (matching.match_probability(idata, "cluster_a", "cluster_b") == 0).all()
    assert matching.match_probability(idata, "cluster_a", "cluster_b", top=2).empty


@pytest.mark.parametrize("seed", range(3))
def test_sets_of_clusters_are_estimated_one_by_one(seed):
    idata = typed(seed)
    assert matching.assignment_sets(idata) == {
        "document_weights": ["cluster_A_document", "cluster_B_document"],
        "word_weights": ["cluster_A_word", "cluster_B_word"],
    }
    estimate = matching.partition_estimate(idata)
    assert list(estimate.data_vars) == matching.assignment_names(idata)
    assert matching.assignment_sets(estimate) == matching.assignment_sets(idata)
    assert estimate.attrs["clusters"] == ["document_weights", "word_weights"]
    for place, kind in enumerate(("document", "word")):
        names = [f"cluster_A_{kind}", f"cluster_B_{kind}"]
        alone = matching.partition_estimate(idata, var_names=names)
        xr.testing.assert_identical(alone.drop_attrs(), estimate[names].drop_attrs())
        assert alone.attrs == {
            key: value[place] for key, value in estimate.attrs.items() if key != "clusters"
        }


def test_clusters_of_different_sets_cannot_be_compared():
    with pytest.raises(ValueError, match="one set; found those of 'document_weights' and of 'word"):
        matching.match_probability(typed(), "cluster_A_document", "cluster_A_word")
    matching.match_probability(typed(), "cluster_A_document", "cluster_B_document", top=1)


def test_without_the_attribute_all_variables_are_one_set():
    idata = tree()
    assert matching.assignment_sets(idata) == {None: ["cluster_a", "cluster_b"]}
    plain = matching.partition_estimate(idata)
    for name in ("cluster_a", "cluster_b"):
        idata["posterior"][name].attrs["clusters"] = "weights"
    named = matching.partition_estimate(idata)
    assert named.attrs == plain.attrs
    xr.testing.assert_equal(named, plain)


def test_sets_survive_a_file(tmp_path):
    pytest.importorskip("h5netcdf")
    typed().to_netcdf(tmp_path / "draws.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "draws.nc", engine="h5netcdf") as idata:
        assert matching.assignment_sets(idata) == matching.assignment_sets(typed())
    labels = matching.partition_estimate(typed())
    labels.to_netcdf(tmp_path / "labels.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "labels.nc", engine="h5netcdf") as again:
        assert list(again.attrs["clusters"]) == labels.attrs["clusters"]
        assert matching.cluster_sizes(again).equals(matching.cluster_sizes(labels))


def test_cluster_sizes_count_irrelevant_objects_last():
    labels = xr.Dataset(
        {"cluster_a": ("a_object", [0, -1, 2, 0]), "cluster_b": ("b_object", [2, 0, -1, -1])}
    )
    table = matching.cluster_sizes(labels)
    assert table.index.tolist() == [0, 2, "irrelevant"]
    assert table.to_numpy().tolist() == [[2, 1, 3], [1, 1, 2], [1, 2, 3]]
    assert table.columns.tolist() == ["a", "b", "total"]


def test_cluster_sizes_of_several_sets():
    labels = xr.Dataset(
        {
            "cluster_A_word": ("w", [0, 0, 1, -1], {"clusters": "words"}),
            "cluster_A_document": ("d", [0, 1, 1], {"clusters": "documents"}),
            "cluster_B_word": ("v", [1, 1], {"clusters": "words"}),
        }
    )
    table = matching.cluster_sizes(labels)
    assert table.columns.tolist() == ["A_word", "A_document", "B_word", "total"]
    assert table.index.names == ["clusters", "cluster"]
    assert table.index.tolist() == [
        ("words", 0),
        ("words", 1),
        ("words", "irrelevant"),
        ("documents", 0),
        ("documents", 1),
    ]
    assert table["total"].tolist() == [2, 3, 1, 1, 2]
    assert table["A_document"].tolist() == [0, 0, 0, 1, 2]
    assert set(table.dtypes) == {np.dtype(int)}


def test_all_that_is_along_a_dim_has_two_names_within_a_domain():
    levels = pd.MultiIndex.from_product([["x"], range(3)], names=["shop", "article"])
    draws = xr.Dataset(
        {"cluster_a": (("chain", "draw", "a"), [[[0, 0, 1]]])},
        xr.Coordinates.from_pandas_multiindex(levels, "a"),
    ).assign_coords(kind=("a", list("uvw")))
    found = matching.match_probability(draws, "a", "a")
    for name in ("a", "shop", "article", "kind"):
        assert found[name].dims == ("a",)
        assert found[f"{name}_other"].dims == ("a_other",)
        np.testing.assert_array_equal(found[name], found[f"{name}_other"])
