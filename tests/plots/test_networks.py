import inspect
import tracemalloc

import numpy as np
import pytest
import xarray as xr
from scipy import sparse

from pm_match import plots
from pm_match.plots.network_layout import apart
from tests.plots.made_up import panels


def shown_networks(figure):
    """Draw a figure of networks; give each panel and its matrix."""
    figure.canvas.draw()
    return [(axis, np.asarray(axis.images[0].get_array())) for axis in panels(figure)]


def by_hand(network, rows, columns, order_rows, order_columns):
    """Order a matrix by clusters in a given order, and within a cluster as they come."""
    place = [
        np.concatenate([np.flatnonzero(labels == k) for k in order])
        for labels, order in ((rows, order_rows), (columns, order_columns))
    ]
    return np.asarray(network)[place[0]][:, place[1]]


@pytest.fixture
def two_networks():
    rng = np.random.default_rng(0)
    networks = {"A": rng.random((9, 7)) < 0.4, "B": rng.random((5, 8)) < 0.4}
    labels = {
        "A": (np.array([2, 0, 2, -1, 2, 1, 0, 2, -1]), np.array([0, 1, 1, 1, -1, 0, 1])),
        "B": (np.array([0, 0, 0, 1, 0]), np.array([1, 0, 0, 0, 0, 0, 5, 0])),
    }
    # Over both networks: 6 of row cluster 0, 4 of 2, 2 of 1; 8 of column cluster 0, 5 of 1, 1 of 5.
    order = ([0, 2, 1, -1], [0, 1, 5, -1])
    return networks, labels, order


def test_networks_are_ordered_by_relevance_and_cluster(two_networks):
    networks, labels, order = two_networks
    figure = plots.plot_networks(labels, networks, types=("document", "word"))
    (a, shown_a), (b, shown_b) = shown_networks(figure)
    np.testing.assert_array_equal(shown_a, by_hand(networks["A"], *labels["A"], *order))
    np.testing.assert_array_equal(shown_b, by_hand(networks["B"], *labels["B"], *order))
    assert a.get_title() == f"A: {networks['A'].sum()} edges"
    assert a.get_ylabel() == "document: 9 objects, 3 clusters, 2 irrelevant"
    assert b.get_xlabel() == "word: 8 objects, 3 clusters"
    texts = [label.get_text() for label in a.get_yticklabels()]
    assert texts == ["0", "2", "1", "irr."]
    assert [label.get_text() for label in b.get_yticklabels()] == ["0", "1"]


def test_cells_that_are_wide_and_low_are_not_blurred():
    """Two columns, one full, of many rows: no pixel is in between but at the edge."""
    matrix = np.zeros((150, 2))
    matrix[:, 0] = 1
    labels = {"a": (np.arange(150) % 2, np.array([0, 1]))}
    figure = plots.plot_networks(labels, {"a": matrix}, types=("row", "column"))
    (axis, _), *_ = shown_networks(figure)
    shown = np.asarray(figure.canvas.buffer_rgba())[..., 0].astype(float)
    box = axis.get_window_extent()
    middle = shown[int(shown.shape[0] - box.y0 - 0.37 * box.height)]
    inside = middle[int(box.x0) + 3 : int(box.x1) - 3]
    far = np.abs(np.arange(len(inside)) - len(inside) / 2) > 0.05 * len(inside)
    assert np.ptp(np.unique(inside[far])[:-1]) <= 1.0  # but the white of the empty one


def test_lines_frame_the_clusters_and_leave_irrelevant_objects_out(two_networks):
    networks, labels, _ = two_networks
    axis = plots.plot_networks(labels, networks).axes[0]
    segments = {tuple(map(tuple, line)) for line in axis.collections[0].get_segments()}
    rows = {((0, y), (6, y)) for y in (0, 2, 6, 7)}
    columns = {((x, 0), (x, 7)) for x in (0, 2, 6)}
    assert segments == rows | columns


@pytest.mark.parametrize(
    "kind",
    [sparse.csr_array, sparse.coo_matrix, sparse.csc_array, np.asarray, np.ma.asarray],
    ids=["csr", "coo", "csc", "dense", "masked"],
)
def test_networks_may_be_sparse_or_dense(two_networks, kind):
    networks, labels, order = two_networks
    weighted = {name: kind(-2.5 * network) for name, network in networks.items()}
    (_, shown), _ = shown_networks(plots.plot_networks(labels, weighted))
    np.testing.assert_array_equal(shown, by_hand(networks["A"], *labels["A"], *order))


def test_missing_cells_and_stored_zeros_are_no_edges():
    dense = np.array([[1.0, np.nan], [0.0, 2.0]])
    masked = np.ma.masked_array([[1, 3], [0, 2]], mask=[[False, True], [False, False]])
    stored = sparse.csr_array(dense)
    duplicates = sparse.coo_array(([1, 1, 1, -1], ([0, 1, 1, 1], [0, 1, 0, 0])), shape=(2, 2))
    networks = {"dense": dense, "masked": masked, "stored": stored, "duplicates": duplicates}
    labels = {name: ([0, 0], [0, 0]) for name in networks}
    panels_shown = shown_networks(plots.plot_networks(labels, networks))
    assert len(panels_shown) == 4
    for _, shown in panels_shown:
        np.testing.assert_array_equal(shown, np.eye(2))


def test_networks_of_one_type_have_one_order(two_networks):
    rng = np.random.default_rng(1)
    network = rng.random((9, 9)) < 0.3
    labels = two_networks[1]["A"][0]
    expected = by_hand(network, labels, labels, [2, 0, 1, -1], [2, 0, 1, -1])
    for form in (labels, [*labels.tolist()], (labels,)):
        ((axis, shown),) = shown_networks(plots.plot_networks({"A": form}, {"A": network}))
        np.testing.assert_array_equal(shown, expected)
        assert (
            axis.get_xlabel() == axis.get_ylabel() == "object: 9 objects, 3 clusters, 2 irrelevant"
        )
    ((axis, _),) = shown_networks(
        plots.plot_networks({"A": labels}, {"A": network}, types="person", title="Firm")
    )
    assert axis.get_xlabel().startswith("person: ")
    assert axis.figure.get_suptitle() == "Firm"


def test_labels_of_networks_from_a_point_estimate(two_networks):
    networks, labels, order = two_networks
    networks = {"A": networks["A"], "A_b": networks["B"]}  # one name begins with the other
    names = {"A": labels["A"], "A_b": labels["B"]}
    dataset = xr.Dataset(
        {
            f"cluster_{name}_{kind}": (f"{name}_{kind}_object", part)
            for name, pair in names.items()
            for kind, part in zip(("document", "word"), pair, strict=True)
        }
    )
    (axis, shown), _ = shown_networks(plots.plot_networks(dataset, networks))
    assert axis.get_ylabel().startswith("document: 9 objects")
    np.testing.assert_array_equal(shown, by_hand(networks["A"], *labels["A"], *order))
    turned = {name: network.T for name, network in networks.items()}
    figure = plots.plot_networks(dataset, turned, types=("word", "document"))
    np.testing.assert_array_equal(shown_networks(figure)[0][1], shown.T)
    more = dataset.assign(cluster_A_tag=("t", [0]))
    with pytest.raises(ValueError, match=r"network 'A': .*one or two types \(set types=\)"):
        plots.plot_networks(more, networks)
    with pytest.raises(ValueError, match=r"network 'A': expected labels \['cluster_A_film'\]"):
        plots.plot_networks(dataset, networks, types=["film"])


def test_an_axis_without_labels_keeps_its_order(two_networks):
    networks, labels, _ = two_networks
    figure = plots.plot_networks({"A": (labels["A"][0], None)}, {"A": networks["A"]})
    ((axis, shown),) = shown_networks(figure)
    rows = by_hand(networks["A"], labels["A"][0], np.zeros(7), [2, 0, 1, -1], [0])
    np.testing.assert_array_equal(shown, rows)
    assert axis.get_xlabel() == "column: 7 objects"
    assert len(axis.get_xticks()) == 0


def test_large_networks_are_binned_and_stay_sparse():
    rng = np.random.default_rng(0)
    n, n_edges = 60_000, 300_000
    row, column = rng.integers(0, n, n_edges), rng.integers(0, n // 2, n_edges)  # a half is empty
    network = sparse.csr_array((np.ones(n_edges), (row, column)), shape=(n, n))
    labels = (rng.integers(-1, 4, n), np.repeat([0, 1], n // 2))
    tracemalloc.start()
    figure = plots.plot_networks({"a": labels}, {"a": network})
    ((axis, shown),) = shown_networks(figure)
    assert tracemalloc.get_traced_memory()[1] < n * n / 20
    tracemalloc.stop()
    assert shown.shape == (500, 500)
    np.testing.assert_allclose(shown.sum() * (n / 500) ** 2, network.nnz)
    assert shown[:, 250:].max() == 0
    assert any(axis.get_label() == "<colorbar>" for axis in figure.axes)
    # Borders are in objects, not in bins.
    assert axis.get_xlim() == (0, n)


def test_bins_of_unequal_size_show_shares():
    network = np.zeros((700, 3))
    network[:, 1] = 1
    ((_, shown),) = shown_networks(plots.plot_networks({"a": (None, None)}, {"a": network}))
    assert shown.shape == (500, 3 * 166)  # cells are not wider than they are high
    np.testing.assert_array_equal(shown[:, ::166], np.tile([0.0, 1.0, 0.0], (500, 1)))


def test_networks_without_edges_or_relevant_objects():
    networks = {"a": sparse.csr_array((4, 3)), "b": sparse.csr_array((600, 2))}
    labels = {"a": ([-1] * 4, [0, 0, 1]), "b": ([-1] * 600, [-1, -1])}
    (a, _), _ = shown_networks(plots.plot_networks(labels, networks))
    assert a.get_ylabel() == "row: 4 objects, 0 clusters, 4 irrelevant"


def test_names_as_labels():
    figure = plots.plot_networks({"a": (["y", "x", "y"], ["v", "v", "v"])}, {"a": np.eye(3)})
    ((axis, shown),) = shown_networks(figure)
    np.testing.assert_array_equal(shown, np.eye(3)[[0, 2, 1]])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["y", "x"]


@pytest.mark.parametrize(
    ("networks", "labels", "options", "message"),
    [
        ({}, {}, {}, "networks: expected at least one; found none"),
        ({"a": np.ones(3)}, {"a": [0]}, {}, r"network 'a': expected a matrix.*shape \(3,\)"),
        ({"a": np.ones((0, 3))}, {"a": [0]}, {}, r"network 'a': .* with rows.*shape \(0, 3\)"),
        ({"a": np.eye(3)}, {"b": [0]}, {}, r"network 'a': no labels; there are \['b'\]"),
        ({"a": np.eye(3)}, {"a": [0, 1]}, {}, r"for each of its 3 rows; found shape \(2,\)"),
        (
            {"a": np.ones((3, 2))},
            {"a": ([0, 1, 1], [0])},
            {},
            r"for each of its 2 columns; found shape \(1,\)",
        ),
        (
            {"a": np.eye(2)},
            {"a": ([0, 1], [0, 1])},
            {"types": ["person"]},
            r"network 'a': expected labels of the types \['person'\]; found 2 vectors",
        ),
        (
            {"a": np.eye(2)},
            {"a": ([0, 1], [0, 1], [0])},
            {},
            "network 'a': expected labels of one or two types; found 3 vectors",
        ),
        ({"a": np.eye(2)}, {"a": [0, 1]}, {"types": list("xyz")}, "types: expected one name or"),
        ({"a": [["u", "v"]]}, {"a": [0, 1]}, {}, "network 'a': expected a matrix of numbers"),
    ],
)
def test_networks_bad_input(networks, labels, options, message):
    with pytest.raises(ValueError, match=message):
        plots.plot_networks(labels, networks, **options)


def test_an_undirected_edge_counts_once():
    network = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 0]])
    figure = plots.plot_networks({"a": np.zeros(3, int)}, {"a": network})
    assert figure.axes[0].get_title() == "a: 3 undirected edges"
    network[0, 1] = 0
    figure = plots.plot_networks({"a": np.zeros(3, int)}, {"a": network})
    assert figure.axes[0].get_title() == "a: 4 edges"


def test_borders_of_tiny_clusters_do_not_make_a_band():
    kept = apart([300, 600, 996, 997, 998, 999], 1000)
    assert kept == [300, 600, 999]
    assert apart([3, 6, 8], 10) == [3, 6, 8]


def test_labels_come_first_and_then_data_in_all_figures():
    first = {
        name: list(inspect.signature(getattr(plots, name)).parameters)[:2]
        for name in plots.__all__
        if name.startswith("plot_")
    }
    of_labels = {name: own for name, own in first.items() if own[1] in ("domains", "networks")}
    assert {"plot_networks", "plot_clusters", "plot_matched_data", "plot_gallery"} <= set(of_labels)
    assert all(own[0] in ("labels", "idata") for own in of_labels.values())
    assert not {"networks", "domains"} & {own[0] for own in first.values()}
