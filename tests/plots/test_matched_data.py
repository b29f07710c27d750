import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import plots
from pm_match.plots.canvas import centred
from tests.plots.made_up import panels


@pytest.fixture
def tables():
    rng = np.random.default_rng(0)
    names = {"a_object": [f"a{i}" for i in range(6)]}
    return {
        "a": xr.DataArray(rng.normal(size=(6, 3)), names, dims=("a_object", "a_feature")),
        "b": rng.normal(size=(4, 2)),
    }


LABELS = {"a": np.array([1, 0, 0, -1, 2, 0]), "b": np.array([0, 1, 1, 0])}


def test_a_cluster_is_a_band_at_the_same_height(tables):
    a, b = panels(plots.plot_matched_data(LABELS, tables))
    # Shares of clusters 0, 1, 2 and of irrelevant objects: 3, 1, 1, 1 of 6 and 2, 2, 0, 0 of 4.
    # What one domain lacks is as high as the other has it.
    heights = np.array([1 / 2, 1 / 3, 1 / 6, 1 / 6])
    edges = np.cumsum([0, *heights / heights.sum()])
    for axis, name, bands in ((a, "a", [0, 1, 2, 3]), (b, "b", [0, 1])):
        values = np.asarray(tables[name])
        standard = (values - values.mean(axis=0)) / values.std(axis=0)
        assert len(axis.images) == len(bands)
        for image, band in zip(axis.images, bands, strict=True):
            _, _, bottom, top = image.get_extent()
            np.testing.assert_allclose((top, bottom), edges[band : band + 2])
            cluster = [0, 1, 2, -1][band]
            np.testing.assert_allclose(image.get_array(), standard[LABELS[name] == cluster])
    hatched = [patch for patch in b.patches if patch.get_hatch()]
    assert len(hatched) == 2
    assert not [patch for patch in a.patches if patch.get_hatch()]


def test_objects_are_named_where_they_are(tables):
    a, _ = panels(plots.plot_matched_data(LABELS, tables))
    places = {tick.get_text(): y for tick, y in zip(a.get_yticklabels(), a.get_yticks())}  # noqa: B905
    assert sorted(places, key=places.get) == ["a1", "a2", "a5", "a0", "a4", "a3"]
    total = 1 / 2 + 1 / 3 + 2 / 6
    np.testing.assert_allclose(places["a1"], 1 / 12 / total)
    np.testing.assert_allclose(places["a0"], 2 / 3 / total)


def test_clusters_left_out_and_missing_values(tables):
    tables["b"][0, 0] = np.nan
    figure = plots.plot_matched_data(LABELS, tables, n_clusters=1, cmap="Greys")
    a, b = panels(figure)
    assert "the 1 largest of 3" in figure.get_suptitle()
    assert len(a.images) == 2
    assert b.images[0].get_array().mask[0, 0]
    assert b.patch.get_hatch()  # which shows there: white would be the page
    assert a.images[0].get_cmap().name == "Greys"


def test_bad_input(tables):
    with pytest.raises(ValueError, match=r"n_clusters: expected a whole number .* 1; found -1"):
        plots.plot_matched_data(LABELS, tables, n_clusters=-1)
    with pytest.raises(ValueError, match="domain 'b': no labels"):
        plots.plot_matched_data({"a": LABELS["a"]}, tables)
    with pytest.raises(ValueError, match="found irrelevant objects only"):
        plots.plot_matched_data({"a": [-1] * 6, "b": [-1] * 4}, tables)


def test_values_about_a_mean_keep_their_order_in_grey_and_their_sign_in_colour():
    colours = centred()(np.linspace(0, 1, 21))[:, :3]
    grey = colours @ (0.299, 0.587, 0.114)
    assert (np.diff(grey) > 0).all()
    blue_less_red = colours[:, 2] - colours[:, 0]
    assert (blue_less_red[:8] > 0.1).all()
    assert (blue_less_red[13:] < -0.08).all()
    np.testing.assert_allclose(colours[10], colours[10, 0], atol=0.01)


def test_names_of_objects_have_room_beside_panels_of_many_domains():
    names = [f"domain {k}" for k in range(12)]
    values = np.random.default_rng(0).normal(size=(15, 4))
    tables = {
        name: pd.DataFrame(values, [f"{name} has object {i}" for i in range(15)]) for name in names
    }
    labels = {name: np.arange(15) % 4 for name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plots.plot_matched_data(labels, tables)
        figure.canvas.draw()
    shown = sorted(panels(figure), key=lambda axis: axis.get_position().x0)
    for one, other in itertools.pairwise(shown):
        names = [own.get_window_extent() for own in other.get_yticklabels()]
        assert min(own.x0 for own in names) > one.get_window_extent().x1
