import numpy as np
import pytest
import xarray as xr
from scipy.spatial.distance import pdist

from pm_match import plots
from tests.plots import made_up


def points(axis):
    """Places of objects by domain, and of the clusters by number."""
    found = {c.get_label(): np.asarray(c.get_offsets()) for c in axis.collections}
    clusters = {k: v[0] for k, v in found.items() if k.startswith("_cluster")}
    return {k: v for k, v in found.items() if k not in clusters}, clusters


@pytest.fixture
def idata():
    return made_up.result(12)


def test_objects_and_clusters_lie_in_the_plane_of_the_principal_axes(idata):
    (axis,) = plots.plot_latent(idata).axes
    objects, clusters = points(axis)
    best = idata["sample_stats"]["log_joint"].argmax(["chain", "draw"])
    point = idata["posterior"].to_dataset()[best]
    # The same by hand: eigenvectors of the scatter of the occupied clusters' vectors.
    relevant = np.concatenate([point[f"cluster_{n}"][point[f"relevance_{n}"] == 1] for n in "abc"])
    occupied, sizes = np.unique(relevant, return_counts=True)
    occupied = occupied[np.argsort(-sizes, kind="stable")]
    vectors = point["latent"].to_numpy()[occupied]
    centred = vectors - vectors.mean(axis=0)
    plane = np.linalg.eigh(centred.T @ centred)[1][:, [-1, -2]]
    expected, found = centred @ plane, np.array([clusters[f"_cluster {k}"] for k in range(4)])
    np.testing.assert_allclose(np.abs(found), np.abs(expected))
    for name in "abc":
        w, a = (point[f"{kind}_{name}"].to_numpy() for kind in ("projection", "intercept"))
        x = idata["observed_data"][name].to_numpy() - a
        z = np.linalg.solve(w.T @ w, w.T @ x.T).T
        np.testing.assert_allclose(
            np.abs(objects[name]), np.abs((z - vectors.mean(axis=0)) @ plane)
        )


def test_colours_say_the_cluster_and_irrelevant_objects_are_white(idata):
    sel = {"chain": 1, "draw": 7}
    (axis,) = plots.plot_latent(idata, sel=sel, alpha=None).axes
    point = idata["posterior"].to_dataset().sel(sel)
    marks = {c.get_label(): c for c in axis.collections}
    edges = {tuple(marks[f"_cluster {k}"].get_edgecolor()[0]): k for k in range(4)}
    colours, labels = [], []
    for name in "abc":
        own = [edges.get(tuple(colour), -1) for colour in marks[name].get_facecolor()]
        irrelevant = point[f"relevance_{name}"].to_numpy() == 0
        assert (np.array(own)[irrelevant] == -1).all()
        colours += np.array(own)[~irrelevant].tolist()
        labels += point[f"cluster_{name}"].to_numpy()[~irrelevant].tolist()
    # One colour a cluster, the first the largest.
    assert len(set(zip(colours, labels, strict=True))) == len(set(labels)) == len(set(colours))
    assert (np.diff(np.bincount(colours)) <= 0).all()


def test_renumbered_clusters_and_a_turned_space_look_the_same(idata):
    """Neither numbers of clusters nor the orientation of the latent space mean anything."""
    rng = np.random.default_rng(1)
    order, turn = rng.permutation(4), np.linalg.qr(rng.normal(size=(3, 3)))[0]
    posterior = idata["posterior"].to_dataset().copy(deep=True)
    posterior["latent"].data = posterior["latent"].to_numpy()[:, :, order] @ turn
    for name in "abc":
        inverse = np.argsort(order)
        posterior[f"cluster_{name}"].data = inverse[posterior[f"cluster_{name}"].to_numpy()]
        projection = posterior[f"projection_{name}"]
        posterior[f"projection_{name}"] = projection.copy(data=projection.to_numpy() @ turn)
    turned = idata.copy()
    turned["posterior"] = xr.DataTree(posterior)
    shown = [points(plots.plot_latent(tree).axes[0])[0] for tree in (idata, turned)]
    for name in "abc":
        np.testing.assert_allclose(pdist(shown[0][name]), pdist(shown[1][name]), atol=1e-9)


def test_missing_values_leave_their_features_out(idata):
    tables = {name: idata["observed_data"][name].copy() for name in "abc"}
    tables["a"][0, 2] = np.nan
    sel = {"chain": 0, "draw": 0}
    with_all, without = (
        points(plots.plot_latent(idata, given, sel=sel).axes[0])[0] for given in (None, tables)
    )
    assert not np.allclose(with_all["a"][0], without["a"][0])
    np.testing.assert_allclose(with_all["a"][1:], without["a"][1:])
    # What the model says is missing would be found where it is without noise.
    point = idata["posterior"].to_dataset().sel(sel)
    w, a = point["projection_a"].to_numpy(), point["intercept_a"].to_numpy()
    exact = tables["a"].copy(data=np.arange(36).reshape(12, 3) % 7 @ w.T + a)
    holes = exact.where(np.random.default_rng(0).random(exact.shape) > 0.2)
    one, other = (
        points(plots.plot_latent(idata, tables | {"a": t}, sel=sel).axes[0])[0]["a"]
        for t in (exact, holes)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_tables_are_matched_by_their_features(idata):
    posterior = idata["posterior"].to_dataset().assign_coords(a_feature=list("uvwxyz"))
    tables = {name: idata["observed_data"][name] for name in "abc"}
    tables["a"] = tables["a"].assign_coords(a_feature=list("uvwxyz"))
    turned = tables | {"a": tables["a"][:, ::-1]}
    one, other = (points(plots.plot_latent(posterior, t).axes[0])[0]["a"] for t in (tables, turned))
    np.testing.assert_allclose(one, other)


def test_bad_input(idata):
    posterior = idata["posterior"].to_dataset()
    with pytest.raises(KeyError, match=r"no observed data of \['a', 'b', 'c'\]"):
        plots.plot_latent(posterior)
    with pytest.raises(ValueError, match=r"sel: expected one draw; found several along \['draw'\]"):
        plots.plot_latent(idata, sel={"chain": 0})
    with pytest.raises(TypeError, match=r"sample_dims: .* such as \['draw'\]; found 'draw'"):
        plots.plot_latent(idata, sample_dims="draw")
    irrelevant = idata.copy()
    for name in "abc":
        cluster = idata["posterior"][f"cluster_{name}"]
        irrelevant["posterior"][f"relevance_{name}"] = xr.zeros_like(cluster)
    with pytest.raises(ValueError, match="found irrelevant objects only"):
        plots.plot_latent(irrelevant)
    with pytest.raises(KeyError, match="no variable 'z'"):
        plots.plot_latent(idata, latent="z")
    tables = {name: idata["observed_data"][name] for name in "abc"}
    with pytest.raises(ValueError, match="'latent': expected vectors of two factors or more"):
        plots.plot_latent(posterior.isel(factor=[0]), tables)
    with pytest.raises(ValueError, match=r"domain 'a': expected 12 objects of 6 features; found"):
        plots.plot_latent(idata, {"a": np.random.default_rng(0).normal(size=(12, 5))})
    with pytest.raises(KeyError, match="no variable 'projection_d' among the draws"):
        plots.plot_latent(idata, {"d": np.random.default_rng(0).normal(size=(12, 5))})


def test_the_best_draw_of_runs_that_were_put_together(idata):
    stats, posterior = (idata[group].to_dataset() for group in ("sample_stats", "posterior"))
    other = made_up.result(12, seed=1)["posterior"].to_dataset()
    both = {
        "posterior": xr.concat([other, posterior], "chain"),
        "sample_stats": xr.concat([stats - 50, stats], "chain"),
    }
    data = {name: idata["observed_data"][name] for name in "abc"}
    (axis,) = plots.plot_latent(xr.DataTree.from_dict(both), data).axes
    (expected,) = plots.plot_latent(idata, data).axes
    for own, same in zip(axis.collections, expected.collections, strict=True):
        np.testing.assert_allclose(own.get_offsets(), same.get_offsets())
    last = plots.plot_latent(both["posterior"], data).axes[0].collections[0]
    (expected,) = plots.plot_latent(posterior, data).axes
    np.testing.assert_allclose(last.get_offsets(), expected.collections[0].get_offsets())


def test_the_legend_is_within_a_figure_that_was_given(idata):
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots()
    plots.plot_latent(idata, ax=axis)
    figure.canvas.draw()
    legend = axis.get_legend().get_window_extent()
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
