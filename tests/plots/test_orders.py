"""Tables and labels whose objects are in another order than those of the labels or draws."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import plots
from tests.plots import made_up
from tests.plots.made_up import panels

ORDER = np.random.default_rng(0).permutation(12)
NAMES = [f"o{i}" for i in range(12)]


@pytest.fixture
def labels():
    rng = np.random.default_rng(1)
    return xr.Dataset(
        {f"cluster_{name}": (f"{name}_object", rng.integers(-1, 3, 12)) for name in "ab"},
        coords={f"{name}_object": NAMES for name in "ab"},
    )


@pytest.fixture
def tables():
    rng = np.random.default_rng(2)
    return {name: pd.DataFrame(rng.normal(size=(12, 3)), NAMES, list("xyz")) for name in "ab"}


def shuffled(tables):
    return {name: own.iloc[ORDER] for name, own in tables.items()}


def images(figure):
    return [
        [np.ma.filled(image.get_array(), np.nan) for image in axis.images]
        for axis in panels(figure)
    ]


def as_series(labels):
    return {name: labels[f"cluster_{name}"].to_series() for name in "ab"}


def test_profiles_are_those_of_the_clusters_objects(labels, tables):
    expected = images(plots.plot_clusters(labels, tables))
    mixed = [
        (labels, shuffled(tables)),
        (labels.isel(a_object=ORDER, b_object=ORDER), tables),
        (shuffled(as_series(labels)), tables),
        (as_series(labels), {name: xr.DataArray(own) for name, own in shuffled(tables).items()}),
    ]
    for own, given in mixed:
        np.testing.assert_allclose(images(plots.plot_clusters(own, given)), expected)


def test_rows_of_matched_data_are_in_their_clusters_bands(labels, tables):
    one, other = (
        images(plots.plot_matched_data(labels, own)) for own in (tables, shuffled(tables))
    )
    for panel, same in zip(one, other, strict=True):
        for bands in zip(panel, same, strict=True):
            a, b = (band[np.lexsort(band.T)] for band in bands)
            np.testing.assert_allclose(a, b)


def test_classes_are_those_of_the_objects(labels):
    true = {name: pd.Series(np.arange(12) % 4, NAMES) for name in "ab"}
    expected = images(plots.plot_confusion(labels, true))
    np.testing.assert_allclose(images(plots.plot_confusion(labels, shuffled(true))), expected)
    by_place = {name: own.to_numpy() for name, own in true.items()}
    np.testing.assert_allclose(images(plots.plot_confusion(labels, by_place)), expected)


def test_tables_of_other_objects_are_refused(labels, tables):
    tables["b"] = tables["b"].rename({"o3": "p3"})
    message = "labels of 'cluster_b': expected the objects of domain 'b', such as 'p3'; found oth"
    for draw in (plots.plot_clusters, plots.plot_matched_data):
        with pytest.raises(ValueError, match=message):
            draw(labels, tables)


def test_latent_vectors_are_those_of_the_objects():
    idata = made_up.result(12)
    tables = {name: idata["observed_data"][name].to_pandas() for name in "abc"}
    one, other = (
        plots.plot_latent(idata, own).axes[0].collections[:3] for own in (tables, shuffled(tables))
    )
    for own, same in zip(one, other, strict=True):
        assert own.get_label() == same.get_label()
        np.testing.assert_allclose(own.get_offsets(), same.get_offsets())
        np.testing.assert_allclose(own.get_facecolor(), same.get_facecolor())
    tables["a"] = tables["a"].rename({"a3": "p3"})
    with pytest.raises(ValueError, match="domain 'a': expected the objects of the draws, such as "):
        plots.plot_latent(idata, tables)


def test_edges_are_those_of_the_objects():
    cluster = np.repeat([0, 1, 2], 4)
    block = pd.DataFrame(cluster[:, None] == cluster, NAMES, NAMES).astype(int)
    labels = {"n": pd.Series(cluster, NAMES)}
    for network in (block, block.iloc[ORDER, ORDER], block.iloc[ORDER], block.iloc[:, ORDER]):
        ((found,),) = images(plots.plot_networks(labels, {"n": network}))
        np.testing.assert_array_equal(found, block)
    given = xr.Dataset({"cluster_n_person": ("person", cluster)}, {"person": NAMES})
    figure = plots.plot_networks(given, {"n": block.iloc[ORDER, ORDER]})
    assert "undirected" in panels(figure)[0].get_title()
    with pytest.raises(ValueError, match="labels of network 'n': expected the objects of its colu"):
        plots.plot_networks(given, {"n": block.rename(columns={"o3": "p3"})})
