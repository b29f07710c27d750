"""Draws whose clusters, and latent spaces, are aligned."""

import arviz as az
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

import pm_match as pmm
from pm_match.matching.relabel import numbers_like
from tests.declared.draws import tree, typed, with_relevance

T, K, F = 6, 4, 2
BASE = {"a": np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 3]), "b": np.array([3, 3, 2, 2, 2, 1, 0, 0])}


def switched(seed=0, draws=50, rotate=True, n_factors=F):
    """Draws of one matching, with small noise, all labels and rotations at random."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(T, n_factors))
    w = {k: rng.normal(size=(5, n_factors)) for k in "ab"}
    weights = np.array([0.3, 0.25, 0.2, 0.15, 0.06, 0.04])
    names = ["weights", "latent", "deviation_a", "cluster_a", "cluster_b"]
    out = {name: [] for name in [*names, "projection_a", "projection_b"]}
    for _ in range(2 * draws):
        number = rng.permutation(T)  # of the true clusters
        turn = ortho_group.rvs(n_factors, random_state=rng) if rotate else np.eye(n_factors)
        old = np.argsort(number)
        noisy = z + 0.01 * rng.normal(size=z.shape)
        noisy[K:] = rng.normal(size=(T - K, n_factors))  # empty clusters are from the prior
        out["weights"].append(weights[old])
        out["latent"].append((noisy @ turn)[old])
        out["deviation_a"].append((np.arange(T)[:, None] + np.zeros(5))[old])
        for k in "ab":
            out[f"projection_{k}"].append((w[k] + 0.01 * rng.normal(size=w[k].shape)) @ turn)
            out[f"cluster_{k}"].append(number[BASE[k]])
    dims = {
        "weights": ("cluster",),
        "latent": ("cluster", "factor"),
        "deviation_a": ("cluster", "a_feature"),
        "cluster_a": ("a_object",),
        "cluster_b": ("b_object",),
        "projection_a": ("a_feature", "factor"),
        "projection_b": ("b_feature", "factor"),
    }
    posterior = xr.Dataset(
        {
            name: (
                ("chain", "draw", *dims[name]),
                np.reshape(values, (2, draws, *np.shape(values)[1:])),
            )
            for name, values in out.items()
        },
        coords={"cluster": range(T)},
    )
    for k in "ab":
        posterior[f"cluster_{k}"].attrs["clusters"] = "weights"
    return xr.DataTree.from_dict({"posterior": posterior})


def means(posterior, k):
    """The means of all objects of a domain, in every draw."""
    z, w, c = (posterior[name].to_numpy() for name in ("latent", f"projection_{k}", f"cluster_{k}"))
    own = np.take_along_axis(z, c[..., None], axis=2)
    return own @ np.swapaxes(w, 2, 3)


def test_means_of_objects_stay_and_latent_vectors_agree():
    idata = switched()
    estimate = pmm.partition_estimate(idata)
    aligned = pmm.relabel(idata, estimate)
    assert isinstance(aligned, xr.DataTree)
    before, after = idata["posterior"].to_dataset(), aligned["posterior"].to_dataset()
    for k in "ab":
        np.testing.assert_allclose(means(after, k), means(before, k), atol=1e-12)
        expected = np.broadcast_to(estimate[f"cluster_{k}"], after[f"cluster_{k}"].shape)
        np.testing.assert_array_equal(after[f"cluster_{k}"], expected)
    for name in before.data_vars:
        assert after[name].dims == before[name].dims
        assert after[name].dtype == before[name].dtype
        told = {"renumbered": "as in an estimate"} if name.startswith("cluster_") else {}
        assert after[name].attrs == before[name].attrs | told
    occupied = after.isel(cluster=slice(K))
    rhat = az.rhat(xr.DataTree.from_dict({"posterior": occupied[["latent", "projection_a"]]}))
    assert float(rhat["latent"].max()) < 1.1
    assert float(rhat["projection_a"].max()) < 1.1
    assert float(occupied["latent"].std(("chain", "draw")).max()) < 0.05
    assert float(before["latent"].std(("chain", "draw")).max()) > 0.3
    assert float(occupied["weights"].std(("chain", "draw")).max()) < 1e-12
    np.testing.assert_allclose(after["weights"].sum("cluster"), 1)
    assert float(occupied["deviation_a"].std(("chain", "draw")).max()) == 0
    # What was there is as it was.
    xr.testing.assert_identical(
        idata["posterior"].to_dataset(), switched()["posterior"].to_dataset()
    )


def test_without_rotation_latent_vectors_are_only_permuted():
    idata = switched()
    aligned = pmm.relabel(
        idata["posterior"].to_dataset(), pmm.partition_estimate(idata), rotate=False
    )
    assert isinstance(aligned, xr.Dataset)
    before = idata["posterior"].to_dataset()
    xr.testing.assert_identical(aligned["projection_a"], before["projection_a"])
    np.testing.assert_array_equal(
        np.sort(aligned["latent"], axis=2), np.sort(before["latent"], axis=2)
    )


def test_factors_with_precisions_of_their_own_are_only_permuted():
    idata = switched(rotate=False)
    posterior = idata["posterior"].to_dataset()
    rng = np.random.default_rng(3)
    size = np.array([1.0, 9.0])
    for name in ("latent", "projection_a", "projection_b"):
        for where in np.ndindex(2, 50):
            local = np.random.default_rng([*where, 7])
            turn = np.eye(2)[local.permutation(2)] * local.choice([-1, 1], 2)[:, None]
            posterior[name].to_numpy()[where] = posterior[name].to_numpy()[where] @ turn
    precision = np.array(
        [
            [size[np.random.default_rng([c, d, 7]).permutation(2)] for d in range(50)]
            for c in range(2)
        ]
    )
    posterior["factor_precision"] = (
        ("chain", "draw", "factor"),
        precision + 1e-3 * rng.random((2, 50, 2)),
    )
    aligned = pmm.relabel(posterior, pmm.partition_estimate(posterior))
    np.testing.assert_allclose(means(aligned, "a"), means(posterior, "a"), atol=1e-12)
    assert float(aligned["factor_precision"].std(("chain", "draw")).max()) < 0.01
    assert float(aligned["latent"].isel(cluster=slice(K)).std(("chain", "draw")).max()) < 0.05


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_numbers_of_clusters_mean_nothing(seed):
    rng = np.random.default_rng(seed)
    posterior = tree(4, seed=seed)["posterior"].to_dataset()
    posterior = posterior.drop_vars(["projection_a", "projection_b"])
    weights = rng.random((2, 30, 4))
    posterior["weights"] = (("chain", "draw", "cluster"), weights)
    to = pmm.partition_estimate(posterior, n_starts=1, max_clusters=4)
    other = posterior.copy(deep=True)
    for where in np.ndindex(2, 30):
        number = rng.permutation(4)
        other["weights"].to_numpy()[where][number] = weights[where]
        for name in ("cluster_a", "cluster_b"):
            other[name].to_numpy()[where] = number[other[name].to_numpy()[where]]
    first, second = pmm.relabel(posterior, to), pmm.relabel(other, to)
    for name in ("cluster_a", "cluster_b"):
        xr.testing.assert_identical(first[name], second[name])
    for draw in np.ndindex(2, 30):  # weights of occupied clusters are those of their labels
        labels = np.concatenate([first[n].to_numpy()[draw] for n in ("cluster_a", "cluster_b")])
        old = np.concatenate([posterior[n].to_numpy()[draw] for n in ("cluster_a", "cluster_b")])
        np.testing.assert_array_equal(first["weights"].to_numpy()[draw][labels], weights[draw][old])
        kept = sorted(set(labels))
        np.testing.assert_array_equal(
            first["weights"].to_numpy()[draw][kept], second["weights"].to_numpy()[draw][kept]
        )
    pair = ("cluster_a", "cluster_b")
    xr.testing.assert_identical(
        pmm.match_probability(first, *pair), pmm.match_probability(posterior, *pair)
    )


def test_numbers_by_hand():
    labels = np.array([5, 5, 5, 1, 1, 0, -1])
    target = np.array([1, 1, 0, 0, 0, 2, 2])
    # 5 with 1, 1 with 0, 0 with 2; the empty ones come after.
    np.testing.assert_array_equal(numbers_like(labels, target, 6), [2, 0, 3, 4, 5, 1])
    # More clusters than the target has: those without a match by decreasing size.
    labels = np.array([0, 1, 1, 2, 2, 2])
    np.testing.assert_array_equal(numbers_like(labels, np.zeros(6, int), 4), [2, 1, 0, 3])
    np.testing.assert_array_equal(numbers_like(labels, np.full(6, -1), 4), [2, 1, 0, 3])


def network(seed=0, kind="object"):
    """One-mode networks whose densities have two dims of the same clusters."""
    rng = np.random.default_rng(seed)
    base = np.array([0, 0, 0, 1, 1, 2])
    density = np.arange(16.0).reshape(4, 4)
    clusters, densities = [], []
    for _ in range(20):
        number = rng.permutation(4)
        old = np.argsort(number)
        clusters.append(number[base])
        densities.append(density[np.ix_(old, old)])
    dim = f"{kind}_cluster"
    return xr.Dataset(
        {
            f"cluster_x_{kind}": (("chain", "draw", "o"), [clusters], {"clusters": "known"}),
            "density": (("chain", "draw", dim, f"{dim}_other"), [densities]),
        }
    ), density


def test_labels_that_are_not_known_are_renumbered_with_all():
    posterior, _ = network()
    name = "cluster_x_object_unobserved"
    drawn = posterior["cluster_x_object"][..., 2:].rename(o="unknown").transpose("unknown", ...)
    aligned = pmm.relabel(
        posterior.assign({name: drawn}), {"cluster_x_object": np.array([0, 0, 0, 1, 1, 2])}
    )
    assert aligned[name].dims == drawn.dims
    expected = np.broadcast_to([0, 1, 1, 2], (1, 20, 4))
    np.testing.assert_array_equal(aligned[name].transpose(..., "unknown"), expected)


def test_densities_are_permuted_along_both_axes():
    posterior, density = network()
    aligned = pmm.relabel(posterior, {"cluster_x_object": np.array([0, 0, 0, 1, 1, 2])})
    assert (aligned["density"].to_numpy() == density).all()


def test_densities_of_symmetric_networks_are_completed_first():
    posterior, density = network()
    values = posterior["density"].to_numpy()
    even = np.triu(density) + np.triu(density, 1).T
    for where in np.ndindex(1, 20):
        clusters = posterior["cluster_x_object"].to_numpy()[where]
        number = np.empty(4, int)
        number[:3] = clusters[[0, 3, 5]]
        number[3] = (set(range(4)) - set(number[:3].tolist())).pop()
        old = np.argsort(number)
        values[where] = np.triu(even[np.ix_(old, old)]) - np.tril(np.ones((4, 4)), -1)
    to = {"cluster_x_object": np.array([0, 0, 0, 1, 1, 2])}
    aligned = pmm.relabel(posterior, to, symmetric=["density"])
    assert (aligned["density"].to_numpy() == even).all()
    posterior["density"].attrs["symmetric"] = 1  # as the sampler records it
    xr.testing.assert_identical(
        pmm.relabel(posterior, to)["density"].drop_attrs(), aligned["density"].drop_attrs()
    )


def test_several_sets_each_by_its_own_dim():
    idata = typed()
    posterior = idata["posterior"].to_dataset()
    posterior = posterior.drop_vars([n for n in posterior.data_vars if "projection" in n])
    rng = np.random.default_rng(0)
    for name in pmm.matching.assignment_names(posterior):
        posterior[name].to_numpy()[:] = posterior[name].to_numpy().clip(0, 2)
    shape = {"document": 3, "word": 4}
    for kind, n in shape.items():
        posterior[f"{kind}_weights"] = (
            ("chain", "draw", f"{kind}_cluster"),
            rng.random((2, 30, n)),
        )
    posterior["density"] = (
        ("chain", "draw", "document_cluster", "word_cluster"),
        rng.random((2, 30, 3, 4)),
    )
    to = pmm.partition_estimate(posterior, max_clusters=3)
    aligned = pmm.relabel(posterior, to)
    for c, d in np.ndindex(2, 30):
        before, after = (p.isel(chain=c, draw=d) for p in (posterior, aligned))
        for i, j in np.ndindex(6, 8):
            cells = [
                float(p["density"][int(p["cluster_A_document"][i]), int(p["cluster_A_word"][j])])
                for p in (before, after)
            ]
            assert cells[0] == cells[1]


def test_irrelevant_objects_do_not_vote():
    posterior = switched()["posterior"].to_dataset()
    rng = np.random.default_rng(0)
    for k in "ab":
        values = posterior[f"cluster_{k}"].to_numpy()
        flags = np.ones(values.shape, dtype=np.int8)
        flags[..., -2:] = 0
        values[..., -2:] = rng.integers(0, T, values[..., -2:].shape)
        posterior[f"relevance_{k}"] = (posterior[f"cluster_{k}"].dims, flags)
    estimate = pmm.partition_estimate(posterior)
    assert (estimate["cluster_a"][-2:] == -1).all()
    aligned = pmm.relabel(posterior, estimate)
    for k in "ab":
        shown = aligned[f"cluster_{k}"].to_numpy()[..., :-2]
        expected = np.broadcast_to(estimate[f"cluster_{k}"].to_numpy()[:-2], shown.shape)
        np.testing.assert_array_equal(shown, expected)
        np.testing.assert_allclose(means(aligned, k), means(posterior, k), atol=1e-12)


def test_draws_of_labels_alone():
    idata = with_relevance(tree().copy(deep=True))
    aligned = pmm.relabel(idata, pmm.partition_estimate(idata))
    pair = ("cluster_a", "cluster_b")
    xr.testing.assert_identical(
        pmm.match_probability(aligned, *pair), pmm.match_probability(idata, *pair)
    )


def test_what_cannot_be_told_is_refused():
    idata = switched()
    posterior = idata["posterior"].to_dataset()
    to = pmm.partition_estimate(idata)
    unnamed = posterior.rename(cluster="latent_dim_0").drop_vars("weights")
    with pytest.raises(
        ValueError, match=r"expected dims with names; found 'latent_dim_0' of variable 'lat"
    ):
        pmm.relabel(unnamed, to)
    told = pmm.relabel(unnamed, to, dims={"cluster_a": "latent_dim_0"})
    expected = pmm.relabel(posterior, to)["latent"]
    np.testing.assert_array_equal(told["latent"], expected)
    with pytest.raises(KeyError, match="dims: no dim 'slot'"):
        pmm.relabel(posterior, to, dims={"weights": "slot"})
    with pytest.raises(KeyError, match="dims: no set of clusters or assignment 'cluster_c'"):
        pmm.relabel(posterior, to, dims={"cluster_c": "cluster"})
    with pytest.raises(ValueError, match="'projection_a': expected a dim of factors"):
        pmm.relabel(posterior.assign(projection_a=posterior["projection_a"].rename(factor="f")), to)
    many = {"cluster_a": np.arange(10), "cluster_b": np.arange(8)}
    with pytest.raises(ValueError, match=r"at most the 6 that the draws have room for; found 10"):
        pmm.relabel(posterior, many)
    with pytest.raises(ValueError, match="symmetric: variable 'weights': expected two dims"):
        pmm.relabel(posterior, to, symmetric=["weights"])
    with pytest.raises(KeyError, match="symmetric: no variable 'nope'"):
        pmm.relabel(posterior, to, symmetric="nope")
    with pytest.raises(ValueError, match="expected a dim of theirs in variable 'latent'"):
        pmm.relabel(posterior.rename(cluster="topic").drop_vars("weights"), to)


def test_data_with_missing_values_are_of_no_cluster():
    labels = [[[0, 1, 1], [1, 0, 0]]]
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "object"), labels),
            "y": (("chain", "draw", "object", "y_dim_1"), np.zeros((1, 2, 3, 2))),
            "y_unobserved": (("chain", "draw", "y_unobserved_dim_0"), np.zeros((1, 2, 1))),
        }
    )
    estimate = {"cluster_a": np.array([0, 1, 1])}
    with pytest.raises(ValueError, match="found 'y_dim_1' of variable 'y'"):
        pmm.relabel(posterior.drop_vars("y_unobserved"), estimate)
    found = pmm.relabel(posterior, estimate)["cluster_a"].values
    np.testing.assert_array_equal(found, [[[0, 1, 1], [0, 1, 1]]])


def test_some_sets_can_be_left_as_they_are():
    idata = typed()
    labels = pmm.partition_estimate(idata)
    found = pmm.relabel(idata, labels, var_names=["cluster_A_word", "cluster_B_word"])
    whole = pmm.relabel(idata, labels)
    for name in ("cluster_A_word", "cluster_B_word"):
        xr.testing.assert_equal(found["posterior"][name], whole["posterior"][name])
    for name in ("cluster_A_document", "cluster_B_document"):
        xr.testing.assert_equal(found["posterior"][name], idata["posterior"][name])
    assert not whole["posterior"]["cluster_A_document"].equals(
        idata["posterior"]["cluster_A_document"]
    )
