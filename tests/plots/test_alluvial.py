from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from pm_match import plots


def patches(axis, kind):
    """Patches by what they are of."""
    found = {patch.get_gid(): patch for patch in axis.patches}
    return {gid.removeprefix(f"{kind} "): p for gid, p in found.items() if gid.startswith(kind)}


def ends(ribbon):
    """Bottoms and tops of a ribbon's left and right ends."""
    (_, low0), *_, (_, high0), _ = ribbon.get_path().vertices
    (_, low1), (_, high1) = ribbon.get_path().vertices[3:5]
    return (low0, high0), (low1, high1)


@pytest.fixture
def labels():
    return {
        "cluster_a": np.array([0, 0, 0, 1, 2, 4, -1]),
        "cluster_b": np.array([0, 1, 1, 3, 3]),
        "cluster_c": np.array([0, 0, 2, -1, -1, 4]),
    }


def test_bars_and_ribbons_are_as_high_as_the_counts(labels):
    (axis,) = plots.plot_alluvial(labels).axes
    bars = {gid: bar.get_height() for gid, bar in patches(axis, "bar").items()}
    assert bars == {
        **{"a 0": 3, "a 1": 1, "a 2": 1, "a 4": 1, "a irrelevant": 1},
        **{"b 0": 1, "b 1": 2, "b 3": 2},
        **{"c 0": 2, "c 2": 1, "c 4": 1, "c irrelevant": 2},
    }
    heights = {
        gid: tuple(high - low for low, high in ends(ribbon))
        for gid, ribbon in patches(axis, "ribbon").items()
    }
    # Clusters 2 and 4 pass behind the second domain; 3 is in one domain only.
    assert heights == {
        "a b 0": (3, 1),
        "b c 0": (1, 2),
        "a b 1": (1, 2),
        "a c 2": (1, 1),
        "a c 4": (1, 1),
    }
    assert patches(axis, "ribbon")["a c 2"].get_linestyle() == "--"
    assert [tick.get_text() for tick in axis.get_xticklabels()] == [
        "a\n7 objects",
        "b\n5 objects",
        "c\n6 objects",
    ]


def test_clusters_of_one_domain_are_hatched_and_irrelevant_objects_grey(labels):
    (axis,) = plots.plot_alluvial(labels).axes
    bars = patches(axis, "bar")
    assert {gid for gid, bar in bars.items() if bar.get_hatch() == "////"} == {"b 3"}
    red, green, blue, _ = bars["a irrelevant"].get_facecolor()
    assert red == green == blue
    legend = [text.get_text() for text in axis.get_legend().get_texts()]
    assert legend == ["irrelevant", "in one domain only"]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_bars_stack_to_the_objects_and_ribbons_end_at_their_bars(data):
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    vectors = [data.draw(st.lists(st.integers(-1, 5), min_size=n, max_size=n)) for n in sizes]
    labels = {f"d{i}": np.array(vector) for i, vector in enumerate(vectors)}
    n_clusters, share = data.draw(st.integers(1, 6)), data.draw(st.booleans())
    (axis,) = plots.plot_alluvial(labels, n_clusters=n_clusters, share=share).axes
    bars = patches(axis, "bar")
    for name, own in labels.items():
        heights = [bar.get_height() for gid, bar in bars.items() if gid.startswith(f"{name} ")]
        np.testing.assert_allclose(sum(heights), 1 if share else len(own))
    for gid, ribbon in patches(axis, "ribbon").items():
        left, right, cluster = gid.split()
        for (low, high), name in zip(ends(ribbon), (left, right), strict=True):
            bar = bars[f"{name} {cluster}"]
            np.testing.assert_allclose((low, high - low), (bar.get_y(), bar.get_height()))
    plt.close(axis.figure)


def test_the_first_cluster_is_on_top(labels):
    (axis,) = plots.plot_alluvial(labels).axes
    axis.figure.canvas.draw()
    bars = patches(axis, "bar")
    height = {gid: bars[gid].get_window_extent().y0 for gid in ("b 0", "b 1", "b 3")}
    assert height["b 0"] > height["b 1"] > height["b 3"]


def test_every_cluster_has_its_number_and_no_two_overlap():
    labels = {
        "a": np.repeat([0, 1, 2, 3, 4], [200, 150, 2, 2, 1]),
        "b": np.repeat([0, 1, 2, 4, 5], [100, 150, 1, 2, 1]),
    }
    (axis,) = plots.plot_alluvial(labels).axes
    axis.figure.canvas.draw()
    for place, expected in enumerate(("01234", "01245")):
        own = [text for text in axis.texts if abs(text.get_position()[0] - place) < 0.3]
        assert sorted(text.get_text() for text in own) == sorted(expected)
        boxes = sorted((text.get_window_extent() for text in own), key=lambda box: box.y0)
        assert all(one.y1 < other.y0 + 1 for one, other in pairwise(boxes))
        bar = patches(axis, "bar")[f"{'ab'[place]} 4"].get_window_extent()
        (four,) = [text.get_window_extent() for text in own if text.get_text() == "4"]
        assert four.x1 < bar.x0 or four.x0 > bar.x1  # beside the bar, which it would cover


def test_numbers_on_hatching_have_a_ground_of_their_own(labels):
    (axis,) = plots.plot_alluvial(labels).axes
    (three,) = [text for text in axis.texts if text.get_text() == "3"]
    assert three.get_bbox_patch().get_facecolor()[:3] == (1, 1, 1)


def test_small_clusters_share_a_segment(labels):
    (axis,) = plots.plot_alluvial(labels, n_clusters=2).axes
    bars = patches(axis, "bar")
    assert bars["a other clusters"].get_height() == 2
    assert not any("2" in gid for gid in patches(axis, "ribbon"))


def test_sets_have_panels_of_their_own():
    labels = xr.Dataset({f"cluster_{n}": (f"{n}_object", [0, 1]) for n in "abc"})
    for name, kind in zip("abc", ("documents", "documents", "words"), strict=True):
        labels[f"cluster_{name}"].attrs["clusters"] = kind
    documents, words = plots.plot_alluvial(labels).axes
    assert (documents.get_label(), words.get_label()) == ("documents", "words")
    assert len(patches(documents, "ribbon")) == 2
    assert not patches(words, "ribbon")
    with pytest.raises(ValueError, match=r"one set .* found the sets \['documents', 'words'\]"):
        plots.plot_alluvial(labels, ax=words)
    for names in (["cluster_b", "cluster_a"], ["b", "a"]):
        figure = plots.plot_alluvial(labels, var_names=names)
        assert figure.axes[0].get_xticklabels()[0].get_text() == "b\n2 objects"


def test_it_draws_into_given_axes(labels):
    figure, (_, axis) = plt.subplots(1, 2)
    assert plots.plot_alluvial(labels, ax=axis) is figure
    assert axis.patches


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ({}, {}, "labels: expected variables of at least one domain"),
        ({"a": [0]}, {"var_names": ["b"]}, r"expected variables \['b'\]; found \['a'\]"),
        ({"a": [0.5]}, {}, "labels of 'a': expected a vector of whole numbers.*float64"),
        ({"a": [[0]]}, {}, r"labels of 'a': .* found shape \(1, 1\)"),
        (
            {"a": [0]},
            {"n_clusters": 0},
            "n_clusters: expected a whole number .* 1; found 0",
        ),
    ],
)
def test_bad_input(labels, options, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_alluvial(labels, **options)


def test_numbers_of_many_small_clusters_stay_beside_their_segments():
    rng = np.random.default_rng(0)
    labels = {name: np.r_[np.zeros(60, int), 1 + rng.integers(0, 30, 60)] for name in "ab"}
    figure = plots.plot_alluvial(labels, n_clusters=40)
    figure.canvas.draw()
    (axis,) = figure.axes
    captions = [tick.get_window_extent() for tick in axis.get_xticklabels()]
    bars = {patch.get_gid(): patch.get_window_extent() for patch in axis.patches}
    for place, name in enumerate("ab"):
        own = [text for text in axis.texts if abs(text.get_position()[0] - place) < 0.3]
        assert len(own) > 15
        for text in own:
            box, bar = text.get_window_extent(), bars[f"bar {name} {text.get_text()}"]
            assert not any(box.overlaps(caption) for caption in captions)
            assert abs(box.y0 + box.y1 - bar.y0 - bar.y1) / 2 < 3 * box.height


def test_numbers_of_objects_are_whole():
    figure = plots.plot_alluvial({"a": [0, 1], "b": [0]})
    (axis,) = figure.axes
    assert all(tick == round(tick) for tick in axis.get_yticks())
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["a\n2 objects", "b\n1 object"]
    figure.canvas.draw()
    (axis,) = plots.plot_alluvial({"a": [0]}).axes
    assert 1 in axis.get_yticks()


def test_legend_and_title_are_within_a_figure_that_was_given():
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots()
    plots.plot_alluvial({"a": [0, 0, -1, 1], "b": [0, 0]}, ax=axis)
    figure.canvas.draw()
    legend, title = axis.get_legend().get_window_extent(), axis.title.get_window_extent()
    assert axis.get_title() == "Clusters across domains"
    for box in (legend, title):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert not legend.overlaps(title)
