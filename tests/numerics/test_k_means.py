"""k-means over the coordinates that points have."""

import numpy as np
import pytest

from pm_match.numerics.k_means import cluster_numbers, k_means, settle, spread


def two_clusters(rng):
    labels = np.repeat([0, 1], 20)
    return np.stack([labels * 10.0, labels * -10.0], axis=1) + rng.normal(size=(40, 2))


@pytest.mark.parametrize("tries", [1, 3])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_over_what_is_seen(tries, offset):
    rng = np.random.default_rng(6)
    points = two_clusters(rng) + offset
    seen = np.ones((40, 2), bool)
    seen[::3, 0], seen[1::3, 1] = False, False
    found = k_means(rng, np.where(seen, points, 0.0), 2, seen, tries=tries)
    assert len(set(found[:20])) == len(set(found[20:])) == 1
    assert found[0] != found[-1]


def test_weights_count_values():
    # A mean of several values counts as they would one by one.
    rng = np.random.default_rng(7)
    points = two_clusters(rng)[:30]
    weight = rng.integers(1, 4, size=(30, 2)).astype(float)
    weight[:, 1] = weight[:, 0]
    labels = rng.integers(3, size=30)
    many = weight[:, 0].astype(int)
    repeated = settle(np.repeat(points, many, axis=0), np.repeat(labels, many))
    assert np.array_equal(np.repeat(settle(points, labels, weight), many), repeated)


def test_equal_points_are_one_cluster():
    points = np.repeat([[1.0, 2.0], [3.0, 4.0]], 5, axis=0)
    assert len(set(spread(np.random.default_rng(0), points, 6))) == 2
    assert len(set(k_means(np.random.default_rng(0), points, 6))) == 2


def test_numbers_of_clusters_to_begin_with():
    assert cluster_numbers(10, 100, 5) == [10]
    assert cluster_numbers(10, 30, 5) == [6]
    assert cluster_numbers(10, 100, 5, (2, 4, 8, 16)) == [2, 4, 8, 10]
    assert cluster_numbers(10, 12, 5, (2, 4, 8)) == [2]
    assert cluster_numbers(10, 3, 5, (2, 4, 8)) == [1]
