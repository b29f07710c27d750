import numpy as np
import pytest
from scipy import sparse

from case_studies.peers import network_gromov_wasserstein as peer
from case_studies.peers.network_coordinates import row_coordinates
from pm_match import metrics

METHODS = [peer.match_clusters, peer.match_objects]
# Blocks of different sizes, alike to different degrees: one matching is right.
DENSITY = np.array([[0.8, 0.05, 0.05, 0.3], [0.05, 0.8, 0.3, 0.05], [0.05, 0.5, 0.9, 0.6]])
SIZES = np.array([40, 25, 35])


def block_networks(seed=0):
    rng = np.random.default_rng(seed)
    networks, true = {}, {}
    for name in "ab":
        rows, columns = rng.permutation(np.repeat(np.arange(3), SIZES)), rng.integers(4, size=300)
        edges = rng.random((100, 300)) < DENSITY[np.ix_(rows, columns)]
        networks[name], true[name] = sparse.csr_array(edges.astype(float)), rows
    return networks, true


@pytest.mark.parametrize("match", METHODS)
def test_blocks_are_matched(match):
    pytest.importorskip("sklearn")
    pytest.importorskip("ot")
    networks, true = block_networks()
    found = match(networks, 3, random_seed=0)
    assert metrics.matching_adjusted_rand_index(true, found) > 0.95


def test_distances_are_those_of_profiles():
    """With all dimensions: the chi-square distances of correspondence analysis."""
    rng = np.random.default_rng(1)
    x = rng.integers(1, 5, size=(7, 5)).astype(float)
    (points,) = row_coordinates({"a": x}, 4).values()
    profile = x / x.sum(axis=1, keepdims=True) / np.sqrt(x.sum(axis=0))
    for own, expected in zip(points, profile, strict=True):
        np.testing.assert_allclose(
            ((points - own) ** 2).sum(axis=1), ((profile - expected) ** 2).sum(axis=1), atol=1e-12
        )


def test_directions_have_unit_length():
    x = np.random.default_rng(2).integers(1, 5, size=(7, 5)).astype(float)
    (points,) = row_coordinates({"a": x}, 3).values()
    (directions,) = row_coordinates({"a": x}, 3, unit_length=True).values()
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0)
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    np.testing.assert_allclose(directions * lengths, points)


def test_rows_without_edges_are_at_the_origin():
    x = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(float)
    x[2], x[:, 3] = 0.0, 0.0
    (points,) = row_coordinates({"a": x}, 2).values()
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points[2], 0.0)


@pytest.mark.parametrize(
    ("x", "n", "message"),
    [
        (np.ones((4, 3)), 3, r"network 'a': 3 dimensions need .* found shape \(4, 3\)"),
        (-np.ones((4, 3)), 2, "network 'a': expected entries that are finite and at least 0"),
        (np.ones((4, 3)), 0, "n_dimensions: expected a whole number of at least 1; found 0"),
    ],
)
def test_what_is_refused(x, n, message):
    with pytest.raises(ValueError, match=message):
        row_coordinates({"a": x}, n)


def test_networks_need_names():
    with pytest.raises(TypeError, match="found an object of type list"):
        row_coordinates([np.ones((3, 3))], 1)
