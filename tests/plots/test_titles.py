"""Domains and networks by the names that users gave them, which are no identifiers."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from pm_match import plots
from tests.plots import made_up
from tests.plots.made_up import panels

NAMES = ["my shop", "2nd"]


@pytest.fixture
def labels():
    return xr.Dataset(
        {f"cluster_{name}": (f"{name}_object", [0, 0, 1, 1]) for name in ("my_shop", "_2nd")}
    )


@pytest.fixture
def tables():
    values = np.random.default_rng(0).normal(size=(4, 4))
    return {name: pd.DataFrame(values) for name in NAMES}


def test_tables_may_be_named_as_users_do(labels, tables):
    for draw in (plots.plot_clusters, plots.plot_matched_data):
        assert [axis.get_label() for axis in panels(draw(labels, tables))] == NAMES
    figure = plots.plot_confusion(labels, {name: [0, 0, 1, 1] for name in NAMES})
    assert [axis.get_label() for axis in panels(figure)] == NAMES
    figure = plots.plot_gallery(labels, tables, image_of=lambda t: t.to_numpy().reshape(-1, 2, 2))
    assert [axis.get_title(loc="left") for axis in panels(figure)[:2]] == NAMES
    with pytest.raises(ValueError, match="domain 'her shop': no labels; there are"):
        plots.plot_clusters(labels, {"her shop": tables["2nd"]})


def test_networks_may_be_named_as_users_do(labels, tables):
    typed = labels.rename({name: f"{name}_person" for name in labels})
    figure = plots.plot_networks(typed, tables)
    assert [axis.get_label() for axis in panels(figure)] == NAMES
    assert panels(figure)[0].get_xlabel() == "person: 4 objects, 2 clusters"


def test_domains_of_a_latent_space_may_be_named_as_users_do():
    idata = made_up.result(9)
    data = {"my shop": idata["observed_data"]["a"], "b": idata["observed_data"]["b"]}
    posterior = idata["posterior"].to_dataset()
    kinds = ("cluster", "relevance", "projection", "intercept")
    names = {f"{kind}_a": f"{kind}_my_shop" for kind in kinds}
    (axis,) = plots.plot_latent(posterior.rename(names), data).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["my shop", "b"]
