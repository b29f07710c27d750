import numpy as np
import pytest
import xarray as xr

from pm_match import plots
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
    edges = np.cumsum([0, 1 / 2, 1 / 3, 1 / 12, 1 / 12])
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
    np.testing.assert_allclose(places["a1"], 1 / 12)
    np.testing.assert_allclose(places["a0"], 2 / 3)


def test_clusters_left_out_and_missing_values(tables):
    tables["b"][0, 0] = np.nan
    figure = plots.plot_matched_data(LABELS, tables, n_clusters=1, cmap="Greys")
    a, b = panels(figure)
    assert "the 1 largest of 3" in figure.get_suptitle()
    assert len(a.images) == 2
    assert b.images[0].get_array().mask[0, 0]
    assert a.images[0].get_cmap().name == "Greys"


def test_bad_input(tables):
    with pytest.raises(ValueError, match=r"n_clusters: expected a whole number .* 1; found -1"):
        plots.plot_matched_data(LABELS, tables, n_clusters=-1)
    with pytest.raises(ValueError, match="domain 'b': no labels"):
        plots.plot_matched_data({"a": LABELS["a"]}, tables)
    with pytest.raises(ValueError, match="found irrelevant objects only"):
        plots.plot_matched_data({"a": [-1] * 6, "b": [-1] * 4}, tables)
