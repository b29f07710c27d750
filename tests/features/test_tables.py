"""Proposals for tables: clusters of one table alone, matched by shape and sizes, and judged."""

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import ortho_group

import pm_match as pmm
from pm_match.features.parts import Features
from pm_match.features.search.match_shapes import _climb_maps, _pair, common_shape, match_shapes
from pm_match.features.search.mixture_path import (
    Mixture,
    fit_mixture,
    merge_nearest,
    mixture_path,
)
from pm_match.features.search.tables import _numbers, completed, propose, turned
from pm_match.metrics import adjusted_rand_index
from pm_match.numerics.masked import MaskedTable
from pm_match.search.chain import Chain


def blobs(seed, n_clusters=3, n_features=3, n=40, spread=6.0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_clusters, n_features)) * spread
    label = rng.integers(n_clusters, size=n)
    within = np.array([[1.0, 0.8, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, 1.0]])[:n_features, :n_features]
    return centres[label] + rng.normal(size=(n, n_features)) @ within, label


def test_the_path_passes_through_the_true_clusters():
    x, label = blobs(0, n=120)
    path = mixture_path(np.random.default_rng(1), x, 7)
    assert list(path) == sorted(path)
    assert {2, 3, 4} <= set(path)
    assert all(set(own.labels) == set(range(n)) for n, own in path.items())
    assert adjusted_rand_index({"x": label}, {"x": path[3].labels}) > 0.95
    # What many clusters gain is less than what they cost.
    assert max(path, key=lambda n: path[n].worth) == 3


def test_one_row_or_two_have_no_path():
    for n in (1, 2):
        assert mixture_path(np.random.default_rng(1), np.ones((n, 2)), 3) == {}


def test_a_fit_does_not_depend_on_units():
    x, label = blobs(1)
    start = np.random.default_rng(2).permutation(label)
    one, value = fit_mixture(x, start)
    other, scaled = fit_mixture(x * np.array([1.0, 100.0, 0.01]), start)
    np.testing.assert_array_equal(one, other)
    # A change of units moves the density of every object and of the covariance by a constant.
    again, _ = fit_mixture(x, one)
    np.testing.assert_array_equal(one, again)
    assert np.isfinite([value, scaled]).all()


def test_the_nearest_clusters_merge():
    x = np.array([[0.0, 0], [0.1, 0], [1.0, 0], [1.1, 0.1], [9.0, 9], [9.1, 9.2]])
    assert merge_nearest(x, np.array([0, 0, 1, 1, 2, 2])).tolist() == [0, 0, 0, 0, 1, 1]


def test_clusters_of_equal_rows_are_merged():
    """Of few distinct values there may be no noise: the search went on for ever."""
    x, labels = np.array([[0.0], [0.0], [5.0], [5.0], [6.0], [6.0]]), np.array([0, 0, 1, 1, 2, 2])
    assert merge_nearest(x, labels).tolist() == [0, 0, 1, 1, 1, 1]
    far = np.concatenate([1e155 * x, np.zeros((1, 1))])
    assert merge_nearest(far, np.append(labels, 0)).max() == 1


def shapes(seed, n=5, noise=0.0, n_domains=2):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    means, sizes, orders = [], [], []
    for d in range(n_domains):
        order = rng.permutation(n)
        turned_ = (z @ ortho_group.rvs(4, random_state=seed + d)[:3] * (d + 0.5) + d)[order]
        means.append(turned_ + noise * rng.normal(size=turned_.shape))
        sizes.append(rng.integers(5, 40, size=n).astype(float))
        orders.append(order)
    return means, sizes, orders


@pytest.mark.parametrize(("n", "n_domains"), [(5, 2), (7, 2), (5, 3)])
def test_the_same_shape_is_found_whatever_its_turn_scale_and_place(n, n_domains):
    means, sizes, orders = shapes(3, n, 0.01, n_domains)
    (maps,) = match_shapes(np.random.default_rng(0), means, sizes, 3)
    matched = np.array([order[m] for order, m in zip(orders, maps, strict=True)])
    assert (matched == matched[0]).all()


@pytest.mark.parametrize(
    ("n", "lacking"), [(5, (None, 1)), (6, (0, 4)), (8, (2, 5)), (7, (0, 4, 2))]
)
def test_a_cluster_that_a_domain_lacks_is_matched_to_nothing(n, lacking):
    means, _, orders = shapes(3, n, 0.01, len(lacking))
    sizes = [np.full(n, 20.0) for _ in lacking]
    for d, lost in enumerate(lacking):
        if lost is not None:
            kept = orders[d] != lost
            # In its place is what has no mean, anywhere but at the end elsewhere.
            means[d] = np.concatenate([means[d][kept], np.full((1, 4), 99.0)])
            sizes[d] = np.append(sizes[d][kept], 0.0)
            orders[d] = np.append(orders[d][kept], lost)
    (maps,) = match_shapes(np.random.default_rng(0), means, sizes, 3)
    matched = np.array([order[m] for order, m in zip(orders, maps, strict=True)])
    assert (matched == matched[0]).all()
    weights = [s[m] for s, m in zip(sizes, maps, strict=True)]
    placed = [m[own] for m, own in zip(means, maps, strict=True)]
    latent, projections = common_shape(placed, weights, 3)
    for m, s, w in zip(placed, weights, projections, strict=True):
        there = s > 0
        left = m[there] - latent[there] @ w.T
        left = left - np.average(left, axis=0, weights=s[there])
        spread = m[there] - m[there].mean(axis=0)
        assert np.linalg.norm(left) < 0.2 * np.linalg.norm(spread)


def test_pairs_of_domains_are_scored_by_what_both_have():
    means, _, orders = shapes(3, 6, 0.3)
    sizes = [np.array([9.0, 12, 0, 31, 7, 5]), np.array([5.0, 11, 14, 6, 0, 21])]
    absent = orders[1].tolist().index(orders[0][2])
    sizes[1][absent], sizes[1][4] = 0.0, 11.0
    order = np.argsort(orders[1])[orders[0]]
    there = sizes[0] > 0
    (score,) = _pair(means[0], sizes[0], means[1], sizes[1], order[None], 3)
    few = [means[0][there], sizes[0][there], means[1][order[there]], sizes[1][order[there]]]
    (expected,) = _pair(*few, np.arange(5)[None], 3)
    assert score == pytest.approx(expected, rel=1e-9)
    # One cluster in common has no shape.
    (nothing,) = _pair(means[0], np.eye(6)[2], means[1], np.eye(6)[order[2]], order[None], 3)
    assert nothing == 0.0


def test_numbers_of_clusters_are_those_that_are_worth_most():
    path = {n: Mixture(np.arange(n), -abs(n - 4.0)) for n in range(2, 12)}
    other = {n: Mixture(np.arange(n), -2.0 * abs(n - 3.1)) for n in range(2, 12)}
    found = _numbers([path, other], 12)
    assert found[:3] == [(3, (3, 3)), (4, (4, 4)), (2, (2, 2))]
    assert {n for n, _ in found[:8]} == set(range(2, 10))
    assert found[8:] == [(4, (4, 3)), (4, (3, 3)), (5, (4, 4)), (3, (2, 3))]
    # The truncation is of all clusters, and those of the domains have to be on their paths.
    assert all(n <= 4 for n, _ in _numbers([path, other], 4))
    assert _numbers([{2: path[2]}, {3: other[3]}], 4) == [(3, (2, 3))]
    # Alone, a domain lacks nothing.
    assert sorted(_numbers([path], 6)) == [(n, (n,)) for n in range(2, 7)]
    assert _numbers([{}, path], 6) == [(1, (1, 1))]


def test_climbing_agrees_with_enumeration():
    means, sizes, _ = shapes(4, 4, 0.6)
    identity = np.arange(4)
    scores = {}
    for p in permutations(range(4)):
        # From every start the climb ends at a local maximum; none is above the enumerated best.
        value, maps = _climb_maps(means, sizes, [identity, np.array(p)], 3)
        scores[tuple(maps[1])] = value
    best = max(scores, key=scores.__getitem__)
    (found,) = match_shapes(np.random.default_rng(0), means, sizes, 3)
    assert tuple(found[1]) == best


def test_the_common_shape_explains_the_means():
    means, sizes, orders = shapes(5, 6)
    matched = [m[np.argsort(order)] for m, order in zip(means, orders, strict=True)]
    weights = [s[np.argsort(order)] for s, order in zip(sizes, orders, strict=True)]
    latent, projections = common_shape(matched, weights, 3)
    for m, w in zip(matched, projections, strict=True):
        fitted = latent @ w.T
        fitted = fitted - fitted.mean(0)
        np.testing.assert_allclose(np.linalg.norm(m - m.mean(0) - fitted) / np.linalg.norm(m), 0,
                                   atol=0.15)  # fmt: skip
        gram = w.T @ w
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(3), atol=1e-8 * gram[0, 0])


def two_tables(seed=6):
    rng = np.random.default_rng(seed)
    # Of no other order are distances nearly these: one matching is right, by ten nats and more.
    z = np.array([[0.0, 0], [8, 0], [0, 6], [5, 9]])
    tables, labels = {}, {}
    for name in "ab":
        label = rng.permutation(np.repeat(np.arange(4), [30, 20, 14, 10]))
        q = ortho_group.rvs(3, random_state=rng.integers(100))[:2]
        tables[name] = z[label] @ q + 0.5 * rng.normal(size=(len(label), 3))
        labels[name] = label
    return tables, labels


def test_missing_values_are_filled_in_by_what_goes_with_them():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 2))
    x = z @ rng.normal(size=(2, 6)) + 0.05 * rng.normal(size=(200, 6)) + 3.0
    seen = rng.random(x.shape) > 0.15
    found = completed(MaskedTable(np.where(seen, x, 0.0), seen))
    np.testing.assert_array_equal(found[seen], x[seen])
    left, spread = (found - x)[~seen], x.std(axis=0)[np.nonzero(~seen)[1]]
    # By column means nothing would be explained.
    assert np.mean(np.square(left / spread)) < 0.3


@pytest.mark.parametrize("lacking", [0, 3])
def test_a_domain_that_lacks_a_cluster_is_matched(lacking):
    rng = np.random.default_rng(8)
    z = 8.0 * rng.normal(size=(6, 3))
    tables, true = {}, {}
    for name in "ab":
        label = rng.permutation(np.repeat(np.arange(6), 20))
        true[name] = label if name == "a" else label[label != lacking]
        q = ortho_group.rvs(4, random_state=rng.integers(100))[:3]
        tables[name] = z[true[name]] @ q + 0.5 * rng.normal(size=(len(true[name]), 4))
    model = pmm.models.table_clusters(tables, 8, n_components=4)
    best = pmm.find_matching(model, starts=1, random_seed=2, progressbar=False)
    found = {name: best["posterior"][f"cluster_{name}"].to_numpy()[0, 0] for name in "ab"}
    assert adjusted_rand_index(true, found) == 1.0


@pytest.mark.parametrize("full", [True, False])
def test_the_matching_of_incomplete_tables_is_found(full):
    tables, true = two_tables()
    rng = np.random.default_rng(2)
    holed = {name: np.where(rng.random(x.shape) < 0.1, np.nan, x) for name, x in tables.items()}
    for x in holed.values():
        x[:, 0] = np.where(np.isnan(x).all(axis=1), 0.0, x[:, 0])
    if full:
        model = pmm.models.table_clusters(holed, 6)
    else:
        model = pmm.models.projected_clusters(
            holed, 2, 6, projection="isometric", intercept=True, noise="own", concentration=0.01
        )
    best = pmm.find_matching(model, starts=2, random_seed=2, progressbar=False)
    found = {name: best["posterior"][f"cluster_{name}"].to_numpy()[0, 0] for name in "ab"}
    assert adjusted_rand_index(true, found) > 0.85


def test_projections_are_turned_to_a_shape():
    tables, _ = two_tables()
    rng = np.random.default_rng(0)
    targets = [1.7 * ortho_group.rvs(3, random_state=d)[:, :2] for d in (1, 2)]
    for projection in ("isometric", "normal"):
        model = pmm.models.projected_clusters(
            tables, 2, 5, projection=projection, intercept=True, noise="own"
        )
        chain = Chain(model, pmm.steps(model), model.initial_point(0), rng)
        features = chain.components[0].of(Features)[0]
        setting = features.setting(turned(chain, features, targets))
        for emission, w in zip(setting.emissions, targets, strict=True):
            found = emission.projection[:, :2]
            scale = 1.0 if projection == "normal" else 1.7 / np.linalg.norm(found[:, 0])
            np.testing.assert_allclose(found * scale, w, atol=1e-9)


def test_proposals_hold_the_true_matching_and_it_is_found():
    tables, true = two_tables()
    model = pmm.models.table_clusters(tables, 6)
    chain = Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))
    features = chain.components[0].of(Features)[0]
    proposals = propose(chain, 0, features, np.random.default_rng(1))
    ends = chain.components[0].clusterings[0].ends
    scores = [
        adjusted_rand_index(true, dict(zip("ab", np.split(p.labels[0], ends), strict=True)))
        for p in proposals
    ]
    assert max(scores) > 0.95
    best = pmm.find_matching(model, starts=3, random_seed=2, progressbar=False)
    found = {name: best["posterior"][f"cluster_{name}"].to_numpy()[0, 0] for name in "ab"}
    assert adjusted_rand_index(true, found) > 0.9


@pytest.mark.slow
def test_linked_objects_stay_together():
    tables, _ = two_tables()
    links = {"a": [0, 1, 2], "b": [3, 4, 5]}
    model = pmm.models.table_clusters(tables, 5, links=links)
    best = pmm.find_matching(model, starts=1, random_seed=2, progressbar=False)["posterior"]
    a, b = (best[f"cluster_{name}"].to_numpy()[0, 0] for name in "ab")
    np.testing.assert_array_equal(a[links["a"]], b[links["b"]])
