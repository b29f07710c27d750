"""How clouds are turned against each other."""

import numpy as np

from pm_match.normal.turns import turns


def clouds(rng, d=4, n=80):
    """Three turned views of clusters, of other objects each; and how each is turned."""
    centres = rng.normal(size=(5, d)) * 2.0
    found = []
    for _ in range(3):
        q = np.linalg.qr(rng.normal(size=(d, d)))[0]
        x = centres[np.repeat(np.arange(5), n // 5)] + 0.1 * rng.normal(size=(n, d))
        found.append(((x - centres.mean(axis=0)) @ q.T, q))
    return [x for x, _ in found], [q for _, q in found]


def test_turns_of_all_pairs():
    rng = np.random.default_rng(0)
    views, true = clouds(rng)
    found = turns(rng, views)
    assert sorted(found) == [(0, 1), (0, 2), (1, 2)]
    for (i, j), own in found.items():
        costs = [cost for cost, _ in own]
        assert costs == sorted(costs)
        np.testing.assert_allclose(own[0][1], true[i] @ true[j].T, atol=0.1)


def test_nothing_is_found_between_domains_that_are_not_turned():
    rng = np.random.default_rng(1)
    views, _ = clouds(rng)
    assert sorted(turns(rng, views, still=[0, 2])) == [(0, 1), (1, 2)]


def test_domains_of_other_numbers_of_objects():
    rng = np.random.default_rng(2)
    views, true = clouds(rng)
    found = turns(rng, [views[0], views[1][::2], views[2]])
    for (i, j), own in found.items():
        np.testing.assert_allclose(own[0][1], true[i] @ true[j].T, atol=0.15)
