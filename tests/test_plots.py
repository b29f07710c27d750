import builtins

import numpy as np
import pytest
import xarray as xr

from pm_match import datasets, plots
from pm_match.matching import match_probability, point_estimate

mpl = pytest.importorskip("matplotlib")
mpl.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


@pytest.fixture
def domains():
    return datasets.synthetic(30, 6, n_clusters=3, n_domains=3, missing=0.1, random_seed=1)


@pytest.fixture
def idata(domains):
    rng = np.random.default_rng(0)
    true = datasets.true_labels(domains)
    posterior = {}
    for name, label in true.items():
        draws = np.where(rng.random((2, 20, 30)) < 0.1, 5, label)
        posterior[f"cluster_{name}"] = (("chain", "draw", f"{name}_object"), draws)
    stats = {
        "log_joint": (("chain", "draw"), rng.normal(-1e5, 3, (2, 20))),
        "n_occupied": (("chain", "draw"), rng.integers(3, 5, (2, 20))),
    }
    chains = {"chain": [0, 1], "draw": range(20)}
    return xr.DataTree.from_dict(
        {"posterior": xr.Dataset(posterior, chains), "sample_stats": xr.Dataset(stats, chains)}
    )


def panels(figure):
    return [axis for axis in figure.axes if axis.get_label() != "<colorbar>"]


def test_match_matrix_shows_every_pair_by_cluster(idata):
    figure = plots.plot_match_matrix(idata)
    figure.canvas.draw()
    axes = panels(figure)
    assert [axis.get_ylabel()[0] + axis.get_xlabel()[0] for axis in axes] == ["ab", "ac", "bc"]
    shown = axes[0].images[0].get_array()
    match = match_probability(idata, "cluster_a", "cluster_b").to_numpy()
    np.testing.assert_allclose(np.sort(shown, axis=None), np.sort(match, axis=None))
    # Ten objects of each cluster in each domain: likely matches lie in the diagonal blocks.
    labels = point_estimate(idata)
    first = int((labels["cluster_a"] == 0).sum()), int((labels["cluster_b"] == 0).sum())
    assert shown[: first[0], : first[1]].mean() > 0.6
    assert shown[: first[0], first[1] :].mean() < 0.2


def test_match_matrix_of_one_pair(idata):
    figure = plots.plot_match_matrix(idata, "cluster_c", "cluster_c")
    (axis,) = panels(figure)
    assert axis.get_xlabel() == "c: 30 objects, by cluster"
    with pytest.raises(ValueError, match="give both assignment variables, or neither"):
        plots.plot_match_matrix(idata, "cluster_a")


def test_gallery_has_a_row_a_cluster_and_a_block_a_domain():
    pytest.importorskip("sklearn")
    digits = datasets.rotated_digits(40)
    figure = plots.plot_gallery(datasets.true_labels(digits), digits, n_images=3)
    figure.canvas.draw()
    assert len(figure.axes) == 4 * 3
    assert [axis.get_title(loc="left") for axis in figure.axes[:3]] == [
        "upright",
        "quarter",
        "half",
    ]
    zeros = digits["upright"][digits["upright"]["label"].to_numpy() == 0]
    strip = figure.axes[0].images[0].get_array()
    np.testing.assert_array_equal(strip[:, :8], datasets.images(zeros)[0])
    assert figure.axes[0].get_xlabel() == f"n = {len(zeros)}"


def test_gallery_keeps_the_largest_clusters_and_allows_empty_cells():
    tables = {"a": np.ones((4, 4)), "b": np.ones((3, 4))}
    labels = {"a": [0, 0, 0, 1], "b": [0, 2, 2]}
    figure = plots.plot_gallery(
        labels, tables, image_of=lambda x: x.reshape(-1, 2, 2), n_clusters=2
    )
    figure.canvas.draw()
    assert [axis.get_xlabel() for axis in figure.axes] == ["n = 3", "n = 1", "n = 0", "n = 2"]
    assert "the 2 largest of 3" in figure.get_suptitle()


def test_labels_must_fit_the_tables():
    tables = {"a": np.ones((4, 4))}
    with pytest.raises(ValueError, match=r"domain 'a': no labels; there are \['b'\]"):
        plots.plot_gallery({"b": [0]}, tables, image_of=lambda x: x.reshape(-1, 2, 2))
    with pytest.raises(ValueError, match=r"a label for each of its 4 objects; found shape \(3,\)"):
        plots.plot_gallery({"a": [0] * 3}, tables, image_of=lambda x: x.reshape(-1, 2, 2))


def test_clusters_shows_standardised_means(domains):
    figure = plots.plot_clusters(datasets.true_labels(domains), domains)
    figure.canvas.draw()
    axes = panels(figure)
    assert [axis.get_title() for axis in axes] == ["a", "b", "c"]
    x, label = domains["b"].to_numpy(), domains["b"]["label"].to_numpy()
    standard = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    expected = [np.nanmean(standard[label == j], axis=0) for j in range(3)]
    np.testing.assert_allclose(axes[1].images[0].get_array(), expected)


def test_clusters_leaves_absent_ones_blank(domains):
    labels = datasets.true_labels(domains)
    labels["a"] = np.where(labels["a"] == 2, 0, labels["a"])
    axis = panels(plots.plot_clusters(labels, domains))[0]
    assert axis.images[0].get_array().mask[2].all()


def test_mapped_images():
    pytest.importorskip("sklearn")
    digits = datasets.rotated_digits(40)
    rng = np.random.default_rng(0)
    posterior = {}
    for name, table in digits.items():
        features = f"{name}_feature"
        posterior[f"projection_{name}"] = xr.DataArray(
            rng.normal(size=(1, 3, table.shape[1], 2)),
            dims=("chain", "draw", features, "factor"),
            coords={features: table[features].to_numpy()},
        )
    x = digits["quarter"][:5]
    figure = plots.plot_mapped_images(
        xr.Dataset(posterior), x, source="quarter", targets=["upright", "half"]
    )
    figure.canvas.draw()
    assert len(figure.axes) == 3 * 5
    assert [axis.get_ylabel() for axis in figure.axes[::5]] == [
        "original\n(quarter)",
        "carried to\nupright",
        "carried to\nhalf",
    ]
    np.testing.assert_array_equal(figure.axes[2].images[0].get_array(), datasets.images(x)[2])


def test_trace_has_a_line_a_chain(idata):
    figure = plots.plot_trace(idata)
    figure.canvas.draw()
    log_joint, occupied = figure.axes
    assert len(log_joint.lines) == len(occupied.lines) == 2
    np.testing.assert_array_equal(
        log_joint.lines[1].get_ydata(), idata["sample_stats"]["log_joint"][1]
    )
    with pytest.raises(KeyError, match=r"no statistic 'energy'; there are \['log_joint', 'n_occ"):
        plots.plot_trace(idata, var_names=["energy"])
    with pytest.raises(KeyError, match="no group 'stats'"):
        plots.plot_trace(idata, group="stats")


def test_without_matplotlib(monkeypatch, idata):
    original = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "pm_match\[examples\]"'):
        plots.plot_trace(idata)
