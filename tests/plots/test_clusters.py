import numpy as np

from pm_match import datasets, plots
from tests.plots.made_up import panels


def test_clusters_shows_standardised_means(domains):
    figure = plots.plot_clusters(datasets.true_labels(domains), domains)
    figure.canvas.draw()
    axes = panels(figure)
    assert [axis.get_title() for axis in axes] == ["a", "b", "c"]
    x, label = domains["b"].to_numpy(), domains["b"]["label"].to_numpy()
    standard = (x - np.nanmean(x, axis=0)) / np.nanstd(x, axis=0)
    expected = [np.nanmean(standard[label == j], axis=0) for j in range(3)]
    np.testing.assert_allclose(axes[1].images[0].get_array(), expected)


def test_means_that_are_rounding_have_no_colour(domains):
    one = {name: np.zeros(len(own), int) for name, own in domains.items()}
    (image, *_) = panels(plots.plot_clusters(one, domains))[0].images
    colours = image.to_rgba(image.get_array())
    none = image.to_rgba(np.zeros(image.get_array().shape))
    np.testing.assert_allclose(colours, none, atol=0.02)


def test_objects_of_which_nothing_is_observed_count_in_no_mean(domains):
    labels, holed = datasets.true_labels(domains), dict(domains)
    holed["b"] = holed["b"].copy()
    holed["b"][1] = np.nan
    axis = panels(plots.plot_clusters(labels, holed))[1]
    assert np.isfinite(axis.images[0].get_array()).all()


def test_clusters_leaves_absent_ones_blank(domains):
    labels = datasets.true_labels(domains)
    labels["a"] = np.where(labels["a"] == 2, 0, labels["a"])
    axis = panels(plots.plot_clusters(labels, domains))[0]
    assert axis.images[0].get_array().mask[2].all()
