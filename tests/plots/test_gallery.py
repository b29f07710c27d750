import numpy as np
import pytest

from pm_match import datasets, plots


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
