import sys

import numpy as np
import pytest

from pm_match import plots
from pm_match.matching import match_probability, partition_estimate
from pm_match.plots import match_matrix
from tests.plots.made_up import panels


def test_match_matrix_shows_every_pair_by_cluster(idata):
    figure = plots.plot_match_matrix(idata)
    figure.canvas.draw()
    axes = panels(figure)
    assert [axis.get_ylabel()[0] + axis.get_xlabel()[0] for axis in axes] == ["ab", "ac", "bc"]
    shown = axes[0].images[0].get_array()
    match = match_probability(idata, "cluster_a", "cluster_b").to_numpy()
    np.testing.assert_allclose(np.sort(shown, axis=None), np.sort(match, axis=None))
    # Ten objects of each cluster in each domain: likely matches lie in the diagonal blocks.
    labels = partition_estimate(idata)
    first = int((labels["cluster_a"] == 0).sum()), int((labels["cluster_b"] == 0).sum())
    assert shown[: first[0], : first[1]].mean() > 0.6
    assert shown[: first[0], first[1] :].mean() < 0.2
    # The most certain of a cluster come first.
    assert (np.diff(shown[: first[0], : first[1]].mean(axis=1)) <= 1e-12).all()


def test_match_matrix_of_one_pair(idata):
    figure = plots.plot_match_matrix(idata, "cluster_c", "cluster_c")
    (axis,) = panels(figure)
    assert axis.get_xlabel() == "c: 30 objects, by cluster"
    with pytest.raises(ValueError, match="expected both assignment variables, or neither"):
        plots.plot_match_matrix(idata, "cluster_a")
    labels = partition_estimate(idata)
    with pytest.raises(KeyError, match="no labels of 'cluster_b'"):
        plots.plot_match_matrix(idata, labels=labels[["cluster_a"]])
    with pytest.raises(ValueError, match="'cluster_a': expected 30 whole numbers"):
        plots.plot_match_matrix(idata, labels={name: [0] for name in labels})
    with pytest.raises(KeyError, match="expected two assignments of one set of clusters"):
        plots.plot_match_matrix(idata["posterior"].to_dataset()[[]])


def test_what_cannot_be_drawn_is_refused_before_labels_are_estimated(idata, monkeypatch):
    monkeypatch.setattr(match_matrix, "partition_estimate", lambda *_, **__: pytest.fail("late"))
    posterior = idata["posterior"].to_dataset().copy(deep=True)
    posterior["cluster_a"].attrs["clusters"] = "documents"
    with pytest.raises(ValueError, match="expected clusters of one set; found those of 'doc"):
        plots.plot_match_matrix(posterior, "a", "b")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="figures need matplotlib"):
        plots.plot_match_matrix(idata)


def test_domains_and_labels_may_be_called_by_name(idata):
    labels = partition_estimate(idata)
    by_domain = {name.removeprefix("cluster_"): labels[name].to_numpy() for name in labels}
    shown = [
        panels(plots.plot_match_matrix(idata, *names, labels=own))[0].images[0].get_array()
        for names in (("cluster_a", "cluster_b"), ("a", "b"))
        for own in (labels, by_domain)
    ]
    assert all((own == shown[0]).all() for own in shown)


def test_of_many_objects_neighbours_are_averaged(idata, monkeypatch):
    whole = panels(plots.plot_match_matrix(idata, "a", "b"))[0]
    monkeypatch.setattr(match_matrix, "_MOST", 8)  # runs of 4 of 30
    monkeypatch.setenv("PM_MATCH_MEMORY", str(29 * 30 * 8 / 2**30))  # no matrix of all pairs
    figure = plots.plot_match_matrix(idata, "a", "b")
    (axis,) = panels(figure)
    shown, every = axis.images[0].get_array(), whole.images[0].get_array()
    assert shown.shape == (8, 8)
    np.testing.assert_allclose(shown[1, 7], every[4:8, 28:].mean())
    # Borders and names are where they were, and so is the picture.
    assert axis.images[0].get_extent() == [-0.5, 31.5, 31.5, -0.5]
    for one in (figure, whole.figure):
        one.canvas.draw()
    assert (axis.get_xlim(), axis.get_ylim()) == (whole.get_xlim(), whole.get_ylim())
    assert [own.get_xydata().tolist() for own in axis.lines] == [
        own.get_xydata().tolist() for own in whole.lines
    ]


def test_objects_of_many_pairs_have_no_names(idata, monkeypatch):
    posterior = idata["posterior"].to_dataset()
    named = posterior.assign_coords(a_object=[f"a{i}" for i in range(30)])

    def marks():
        axes = panels(plots.plot_match_matrix(named))
        return [own.get_text() for axis in axes for own in axis.get_yticklabels()]

    assert "a0" in marks()
    monkeypatch.setattr(match_matrix, "_NAMED", 2)
    assert set(marks()) <= set("01234")


def test_what_is_too_long_for_an_axis_has_two_lines(idata):
    posterior = idata["posterior"].to_dataset()
    name = "cluster_" + "long_" * 5
    long = posterior.rename({"cluster_a": name})
    (axis,) = panels(plots.plot_match_matrix(long, name, "cluster_b"))
    assert axis.get_ylabel().endswith(":\n30 objects, by cluster")
    assert "\n" not in axis.get_xlabel()


def test_match_matrix_pairs_clusters_of_one_set_and_puts_irrelevant_objects_last(idata):
    posterior = idata["posterior"].to_dataset()
    relevance = np.ones((2, 20, 30), dtype=int)
    relevance[..., :6] = 0
    posterior["relevance_a"] = (posterior["cluster_a"].dims, relevance)
    for name, kind in {"a": "documents", "b": "documents", "c": "words"}.items():
        posterior[f"cluster_{name}"].attrs["clusters"] = kind
    figure = plots.plot_match_matrix(posterior)
    figure.canvas.draw()
    pair, single = panels(figure)
    assert [axis.get_ylabel()[0] + axis.get_xlabel()[0] for axis in (pair, single)] == ["ab", "cc"]
    shown = pair.images[0].get_array()
    assert (shown[-6:] == 0).all()
    assert (shown[:-6].max(axis=1) > 0.5).all()
    assert pair.get_yticklabels()[-1].get_text() == "irr."
