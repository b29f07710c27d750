"""Every figure of few and of many objects: without a warning, and with nothing cut off."""

import re
import warnings

import numpy as np
import pytest
import xarray as xr
from matplotlib.text import Text

from pm_match import datasets, plots
from pm_match.matching import partition_estimate
from tests.plots import made_up

FIGURES = {
    "match": lambda r: plots.plot_match_matrix(r["idata"], labels=r["labels"]),
    "data": lambda r: plots.plot_matched_data(r["labels"], r["tables"]),
    "clusters": lambda r: plots.plot_clusters(r["labels"], r["tables"]),
    "confusion": lambda r: plots.plot_confusion(r["labels"], r["true"]),
    "alluvial": lambda r: plots.plot_alluvial(r["labels"]),
    "latent": lambda r: plots.plot_latent(r["idata"]),
    "trace": lambda r: plots.plot_trace(r["idata"]),
    "log joint": lambda r: plots.plot_log_joint(r["idata"]),
    "calibration": lambda r: plots.plot_calibration(r["probability"], r["probability"] > 0.5),
    "networks": lambda r: plots.plot_networks(*r["networks"]),
}


@pytest.fixture(scope="module", params=[10, 2000])
def drawn(request):
    n = request.param
    n_clusters = 4 if n < 100 else 24
    idata = made_up.result(n, n_clusters)
    idata["starts"] = xr.DataTree(made_up.starts(4 if n < 100 else 100))
    network = datasets.synthetic_networks(
        n_relevant=n * 4 // 5, n_irrelevant=n // 5, n_clusters=3, random_seed=0
    )
    return {
        "idata": idata,
        "true": made_up.true_labels(n, n_clusters),
        "labels": partition_estimate(idata),
        "tables": {name: idata["observed_data"][name] for name in "abc"},
        "probability": np.random.default_rng(0).random(n),
        "networks": (network.clusters, network.networks),
        "figures": {},
    }


def figure_of(drawn, name):
    """Draw a figure without a warning, once for all tests that look at it."""
    figures = drawn["figures"]
    if name not in figures:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figures[name] = FIGURES[name](drawn)
            figures[name].canvas.draw()
    return figures[name]


@pytest.mark.parametrize("name", FIGURES)
def test_it_is_drawn_without_warnings_and_within_the_figure(drawn, name):
    figure = figure_of(drawn, name)
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 > -0.02
    assert box.y0 > -0.02
    assert box.x1 < width + 0.02
    assert box.y1 < height + 0.02
    assert all(axis.get_label() for axis in figure.axes)


@pytest.mark.parametrize("name", FIGURES)
def test_tick_labels_do_not_overlap(drawn, name):
    figure = figure_of(drawn, name)
    for parent in figure.axes:
        for axis in (parent, *parent.child_axes):
            for side in (axis.xaxis, axis.yaxis):
                boxes = [
                    label.get_window_extent()
                    for label in side.get_ticklabels()
                    if label.get_text() and label.get_visible()
                ]
                for i, one in enumerate(boxes):
                    assert not any(one.overlaps(other) for other in boxes[:i]), (parent, side)


def shown_texts(figure):
    return [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("name", FIGURES)
def test_all_text_is_large_enough_to_be_read(drawn, name):
    figure = figure_of(drawn, name)
    assert {text.get_text() for text in shown_texts(figure) if text.get_fontsize() < 5.5} == set()


@pytest.mark.parametrize("n", [40, 60])
def test_names_of_objects_are_readable_or_left_out(n):
    idata = made_up.result(n)
    labels = partition_estimate(idata)
    tables = {name: idata["observed_data"][name] for name in "abc"}
    for figure in (
        plots.plot_match_matrix(idata, "a", "b", labels=labels),
        plots.plot_matched_data(labels, tables),
    ):
        names = [t for t in shown_texts(figure) if re.fullmatch(r"[abc]\d+", t.get_text())]
        assert bool(names) == (n <= 40)
        assert all(text.get_fontsize() >= 5.5 for text in names)


@pytest.mark.parametrize("name", FIGURES)
def test_nothing_is_called_by_the_name_of_a_variable(drawn, name):
    idata = drawn["idata"]
    variables = {*idata["posterior"].data_vars, *idata["sample_stats"].data_vars} - {"latent"}
    said = {
        word for text in shown_texts(figure_of(drawn, name)) for word in text.get_text().split()
    }
    assert not said & variables
    assert not [word for word in said if re.match(r"(cluster|relevance|projection)_", word)]


def heights(figure):
    """Where the numbers of clusters are that stand one above the other, by panel."""
    for axis in made_up.panels(figure):
        above = [child for child in axis.child_axes if child.yaxis.get_ticklabels()]
        ticks = [label for own in above or [axis] for label in own.yaxis.get_ticklabels()]
        numbered = [text for text in [*ticks, *axis.texts] if re.match(r"\d+\b", text.get_text())]
        yield {
            int(re.match(r"\d+", text.get_text())[0]): text.get_window_extent().y0
            for text in numbered
        }


@pytest.mark.parametrize("name", ["match", "data", "clusters"])
def test_the_first_cluster_is_on_top(drawn, name):
    found = [own for own in heights(figure_of(drawn, name)) if len(own) > 1]
    assert found
    for own in found:
        clusters = sorted(own)
        assert [own[k] for k in clusters] == sorted(own.values(), reverse=True), own


@pytest.mark.parametrize("name", FIGURES)
def test_labels_of_a_panel_are_in_no_other(drawn, name):
    """Those of colour bars too."""
    figure = figure_of(drawn, name)
    for owner in figure.axes:
        for text in (owner.title, owner.xaxis.label, owner.yaxis.label):
            if not (text.get_text() and text.get_visible()):
                continue
            box = text.get_window_extent()
            for other in figure.axes:
                inside = other is not owner and box.overlaps(other.get_window_extent())
                assert not inside, (text.get_text(), other.get_label())
