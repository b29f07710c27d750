"""The partition with the least expected loss, held against brute force."""

import threading
import tracemalloc

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import pm_match as pmm
from pm_match.matching import least_loss as search
from pm_match.matching.losses import ESTIMATED, LOSSES, whole_terms
from pm_match.matching.pooled import draw_keys, pool
from pm_match.matching.reallocate import OUT, put, reallocate, take_out
from tests.declared.draws import stacked, tree, typed, with_relevance


def partitions(n):
    """All partitions of n objects, as labels."""
    if n == 0:
        yield []
        return
    for rest in partitions(n - 1):
        for label in range(max(rest, default=-1) + 2):
            yield [*rest, label]


def expected_losses(candidates, draws, loss):
    """Expected losses by pairs, or by the shares of clusters (VI), written out plainly."""
    n = draws.shape[1]
    pairs = np.triu_indices(n, 1)
    alone = np.where(draws < 0, draws.max() + 1 + np.arange(n), draws)
    if loss == "ari":
        return 1.0 - expected_indices(candidates, alone)
    result = []
    for c in np.asarray(candidates):
        total = 0.0
        for d in alone:
            if loss == "binder":
                total += np.mean(((c[:, None] == c) != (d[:, None] == d))[pairs])
            else:
                mine, theirs = c[:, None] == c, d[:, None] == d
                # Of each object: log2 of the sizes of its clusters, and of what these share.
                sizes = mine.sum(1) * theirs.sum(1) / (mine & theirs).sum(1) ** 2
                total += np.mean(np.log2(sizes))
        result.append(total / len(alone))
    return np.array(result)


def expected_indices(candidates, draws):
    """Adjusted Rand indices, the probabilities of pairs in the place of a second partition."""
    pairs = np.triu_indices(draws.shape[1], 1)
    p = np.mean([(d[:, None] == d)[pairs] for d in draws], axis=0)
    result = []
    for c in np.asarray(candidates):
        together = (c[:, None] == c)[pairs]
        by_chance = together.sum() * p.sum() / len(p)
        most = (together.sum() + p.sum()) / 2 - by_chance
        result.append((p[together].sum() - by_chance) / most if most > 0 else 1.0)
    return np.array(result)


def pooled_draws(idata):
    """Labels of all objects, -1 for irrelevant ones."""
    labels = np.concatenate([stacked(idata, f"cluster_{k}") for k in "ab"], axis=1).copy()
    if "relevance_a" in idata["posterior"]:
        flags = np.concatenate([stacked(idata, f"relevance_{k}") for k in "ab"], axis=1)
        labels[flags == 0] = -1
    return labels


def pooled_estimate(estimate):
    return np.concatenate([estimate["cluster_a"], estimate["cluster_b"]])


def thinned(idata, n):
    return xr.DataTree.from_dict({"posterior": idata["posterior"].to_dataset().isel(draw=slice(n))})


ALL = np.array(list(partitions(6)))


@pytest.mark.parametrize("relevance", [None, 0.7, 0.5])
@pytest.mark.parametrize("loss", ESTIMATED)
@pytest.mark.parametrize("seed", range(6))
def test_no_partition_has_a_lower_expected_loss(seed, loss, relevance):
    n_clusters = 2 + seed % 3
    idata = thinned(tree(n_clusters, (("a", 4), ("b", 2)), seed), 2 + seed)
    values = idata["posterior"]["cluster_a"].to_numpy()
    if seed % 2:  # objects that are always together are one unit
        values[..., 1:3] = values[..., [0]]
    if relevance is not None:
        idata = with_relevance(idata, relevance, seed)
    draws = pooled_draws(idata)
    out = 2 * np.sum(draws >= 0, axis=0) < len(draws)
    losses = expected_losses(served(ALL, draws, loss), draws, loss)

    estimate = pmm.partition_estimate(idata, loss=loss)
    found = pooled_estimate(estimate)
    assert estimate.attrs["loss"] == loss
    assert estimate.attrs["expected_loss"] == pytest.approx(losses.min(), abs=1e-9)
    alone = np.where(found < 0, 10 + np.arange(6), found)
    assert expected_losses([alone], draws, loss)[0] == pytest.approx(losses.min(), abs=1e-9)
    np.testing.assert_array_equal(found == -1, out)
    assert (np.diff(np.bincount(found[found >= 0])) <= 0).all()
    if loss == "ari":
        return
    mean = float(pmm.partition_loss(idata, estimate, loss=loss).mean())
    assert mean == pytest.approx(losses.min(), abs=1e-9)


def served(candidates, draws, loss):
    """The partitions that are estimates: by "ari", irrelevant objects are alone.

    By the other losses, no partition is better that has them in clusters.
    """
    out = 2 * np.sum(draws >= 0, axis=0) < len(draws)
    return [c for c in candidates if loss != "ari" or not (np.bincount(c)[c[out]] > 1).any()]


@pytest.mark.parametrize("loss", ESTIMATED)
def test_of_eight_objects_too(loss):
    idata = with_relevance(thinned(tree(3, (("a", 5), ("b", 3)), 1), 2), 0.8)
    draws = pooled_draws(idata)
    candidates = served(map(np.array, partitions(8)), draws, loss)
    least = expected_losses(candidates, draws, loss).min()
    estimate = pmm.partition_estimate(idata, loss=loss)
    assert estimate.attrs["expected_loss"] == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("relevant", [False, True])
@pytest.mark.parametrize("loss", ESTIMATED)
@pytest.mark.parametrize("seed", range(3))
def test_never_worse_than_the_best_draw(seed, loss, relevant):
    idata = tree(5, (("a", 20), ("b", 15)), seed)
    if relevant:
        idata = with_relevance(idata)
    draws = pooled_draws(idata)
    alone = np.where(draws < 0, 100 + np.arange(35), draws)
    best = expected_losses(alone, draws, loss).min()
    estimate = pmm.partition_estimate(idata, loss=loss, n_starts=1)
    assert estimate.attrs["expected_loss"] <= best + 1e-9
    assert estimate.attrs["expected_loss"] < best  # here draws are far from each other


def test_best_draws_are_the_best_draws(monkeypatch):
    idata = tree(4, (("a", 12), ("b", 9)), 5)
    labels = pooled_draws(idata)
    pooled = pool([labels], [None])
    f, _ = whole_terms(21, len(labels), "vi")
    problem = search._problem(pooled, np.ones(21, np.int64), f)
    order = np.argsort(expected_losses(labels, labels, "vi"))
    found = search._best_draws(problem, draw_keys(pooled), 3, 21)
    assert found == order[:3].tolist()
    # If not all can be compared with all, the best is still among the shortlist here.
    monkeypatch.setattr(search, "_BUDGET", 21 * len(labels) * 30)
    assert search._best_draws(problem, draw_keys(pooled), 3, 21)[0] == order[0]


def mixed(n_draws, n_objects, n_clusters, seed, doubtful=0.3):
    """Draws around one partition; some objects are half the time elsewhere."""
    rng = np.random.default_rng(seed)
    base, other = rng.integers(0, n_clusters, (2, n_objects))
    swing = rng.random(n_objects) < doubtful
    return np.stack(
        [
            rng.permutation(n_clusters)[
                np.where(swing & (rng.random(n_objects) < 0.5), other, base)
            ]
            for _ in range(n_draws)
        ]
    ), base


@pytest.mark.parametrize("loss", ESTIMATED)
def test_well_separated_clusters_are_found(loss):
    labels, base = mixed(60, 150, 6, 0, doubtful=0.0)
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    estimate = pmm.partition_estimate(posterior, loss=loss)
    assert estimate.attrs["expected_loss"] == 0
    assert estimate.attrs["n_starts_at_best"] == estimate.attrs["n_starts"] == 16
    same = pmm.metrics.adjusted_rand_index({"a": base}, {"a": estimate["cluster_a"].to_numpy()})
    assert same == 1.0


def state_loss(state, cost, worth):
    """The running sum by the plain formula."""
    n_draws = state.labels.shape[1]
    total = sum(cost * n_draws * int(state.f[n]) for n in state.size)
    for t in range(n_draws):
        for j in range(len(state.size)):
            own = state.slot == j
            shared = np.bincount(state.labels[own, t], state.weight[own]).astype(int)[1:]
            total -= worth * int(state.f[shared].sum())
    return total


@pytest.mark.parametrize("costs", [(1, 2), (3, 8)])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("heavy", [False, True])
def test_running_state_is_that_of_the_plain_formula(heavy, loss, costs):
    rng = np.random.default_rng(1)
    labels, _ = mixed(20, 40, 5, 2, doubtful=0.8)
    pooled = pool([labels], [rng.random(labels.shape) < 0.8])
    weight = rng.integers(1, 4, 40) if heavy else np.ones(40, np.int64)
    f, _ = whole_terms(int(weight.sum()), 20, loss)
    problem = search._problem(pooled, weight, f, *costs)
    state = search._resized(problem.candidate(12), np.arange(12), 12, n_scores=40)
    for round_ in range(4):
        if round_ == 0:
            put(state, np.arange(20), rng.integers(0, 6, 20))
        if round_ == 2:
            take_out(state, rng.permutation(40)[:15])
        order = rng.permutation(40)
        before = int(state.totals[0])
        _, moved = reallocate(state, order, 0, 9)
        assert state.totals[0] == state_loss(state, *costs)
        assert state.totals[1] == np.count_nonzero(state.size) <= 9
        assert (moved > 0) or state.totals[0] == before
        for unit, j in np.ndindex(40, 12):  # kept scores are what they would be
            if state.size[j] and state.seen[unit, j] == state.version[j]:
                n = [
                    np.sum(weight[(state.slot == j) & (pooled[:, t] == pooled[unit, t])])
                    - (weight[unit] if state.slot[unit] == j else 0)
                    for t in range(20)
                    if pooled[unit, t]
                ]
                w = weight[unit]
                assert state.score[unit, j] == sum(int(f[k + w] - f[k]) for k in n)
    assert (state.slot != OUT).all()


@pytest.mark.parametrize("n_relevant", [5, 6, 7])
def test_one_cluster_of_objects_that_are_irrelevant_at_times(n_relevant):
    """Most pairs are together: two that always are when relevant may be worth more apart."""
    relevant = np.ones((10, 6), int)
    relevant[n_relevant:, 4:] = 0
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "i"), np.zeros((1, 10, 6), int)),
            "relevance_a": (("chain", "draw", "i"), relevant[None]),
        }
    )
    draws = relevant - 1
    estimate = pmm.partition_estimate(posterior, loss="ari")
    least = expected_losses(served(ALL, draws, "ari"), draws, "ari").min()
    assert estimate.attrs["expected_loss"] == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 16, 25, 47])
@pytest.mark.parametrize("loss", ESTIMATED)
def test_a_partition_that_is_returned_cannot_be_improved_by_one_object(loss, seed):
    if seed:  # draws that have nothing in common
        labels = np.random.default_rng(seed).integers(0, 4, (30, 30))
    else:
        labels, _ = mixed(40, 30, 4, 3)
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    estimate = pmm.partition_estimate(posterior, loss=loss, n_starts=1)
    found = estimate["cluster_a"].to_numpy()
    moves = [found]
    for i in range(30):
        for j in range(found.max() + 2):
            moves.append(found.copy())
            moves[-1][i] = j
    losses = expected_losses(moves, labels, loss)
    assert losses.min() > losses[0] - 1e-9


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from(ESTIMATED), st.booleans())
def test_numbers_of_clusters_and_the_order_of_draws_mean_nothing(seed, loss, relevant):
    rng = np.random.default_rng(seed)
    idata = thinned(tree(4, (("a", 9), ("b", 6)), seed), 12)
    if relevant:
        idata = with_relevance(idata, 0.7, seed)
    estimate = pmm.partition_estimate(idata, loss=loss, n_starts=3)
    other = idata["posterior"].to_dataset().copy(deep=True)
    for chain, draw in np.ndindex(2, 12):
        numbers = rng.permutation(5000)[:20] - 2500
        for name in ("cluster_a", "cluster_b"):
            values = other[name].to_numpy()
            values[chain, draw] = numbers[values[chain, draw] + 5]
    other = other.isel(chain=[1, 0], draw=rng.permutation(12))
    xr.testing.assert_identical(pmm.partition_estimate(other, loss=loss, n_starts=3), estimate)
    assert estimate.attrs["expected_loss"] >= 0


@pytest.mark.parametrize("loss", ["vi", "ari"])
def test_one_progress_is_shown_of_all_rounds(loss, monkeypatch):
    shown = []

    class Progress(search.SearchProgress):
        def __init__(self, total, *given, **options):
            super().__init__(total, *given, **options)
            shown.append(self)

    monkeypatch.setattr(search, "SearchProgress", Progress)
    pmm.partition_estimate(tree(), n_starts=3, loss=loss)
    (progress,) = shown
    # How many rounds there are is not known before the last.
    assert progress.total == (3 if loss == "vi" else None)
    assert progress._done >= 6 if loss == "ari" else progress._done == 3


@pytest.mark.parametrize("loss", ["vi", "ari"])
def test_the_same_seed_gives_the_same_for_any_number_of_threads(loss, monkeypatch):
    labels, _ = mixed(40, 80, 6, 4, doubtful=0.9)
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    threads = set()
    original = search._search

    def watched(*args):
        threads.add(threading.get_ident())
        return original(*args)

    monkeypatch.setattr(search, "_search", watched)
    results = []
    for cores in (1, 3):
        monkeypatch.setattr(search.os, "cpu_count", lambda cores=cores: cores)
        results.append(pmm.partition_estimate(posterior, loss=loss, random_seed=5))
    xr.testing.assert_identical(*results)
    assert len(threads) >= 2


@pytest.mark.parametrize("loss", ESTIMATED)
def test_max_clusters(loss):
    labels, _ = mixed(40, 40, 6, 4)
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    losses = []
    for most in (1, 2, 4, 40):
        estimate = pmm.partition_estimate(posterior, loss=loss, max_clusters=most)
        assert estimate["cluster_a"].max() < most
        assert (estimate["cluster_a"] >= 0).all()
        losses.append(estimate.attrs["expected_loss"])
    assert (np.diff(losses) <= 0).all()
    if loss == "ari":
        assert losses[0] == 1.0
        return
    one = pmm.partition_loss(posterior, {"cluster_a": np.zeros(40, int)}, loss=loss)
    assert losses[0] == pytest.approx(float(one.mean()))


def test_more_clusters_than_slots_to_begin_with():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, (400, 40))  # no two objects are together in most draws
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    estimate = pmm.partition_estimate(posterior, loss="binder")
    assert estimate["cluster_a"].max() > 30


def test_nothing_in_common_and_nothing_apart():
    for labels in (np.arange(5)[None], np.zeros((1, 5), int), np.zeros((1, 1), int)):
        posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
        estimate = pmm.partition_estimate(posterior, loss="ari")
        np.testing.assert_array_equal(estimate["cluster_a"], labels[0])
        assert estimate.attrs["expected_loss"] == 0.0
    posterior["relevance_a"] = (("chain", "draw", "i"), np.zeros((1, 1, 1), int))
    estimate = pmm.partition_estimate(posterior, loss="ari")
    assert (estimate["cluster_a"] == -1).all()
    assert estimate.attrs["expected_loss"] == 0.0


def test_singles_some_of_them_irrelevant_are_not_put_together():
    relevant = np.array([[0, 1, 1, 1, 1], [1, 0, 1, 1, 1]])
    labels = np.broadcast_to(np.arange(5), (1, 2, 5))
    posterior = xr.Dataset(
        {
            "cluster_a": (("chain", "draw", "i"), labels),
            "relevance_a": (("chain", "draw", "i"), relevant[None]),
        }
    )
    estimate = pmm.partition_estimate(posterior, loss="ari")
    assert len(np.unique(estimate["cluster_a"])) == 5
    assert estimate.attrs["expected_loss"] == 0.0


def test_where_draws_disagree_much_it_finds_what_is_together_more_than_by_chance():
    """Of two clusters, objects are together in a sixth of the draws, and never across."""
    rng = np.random.default_rng(0)
    base = np.repeat([0, 6], 20)
    labels = base + rng.integers(0, 6, (600, 40))
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    assert pmm.partition_estimate(posterior, loss="binder")["cluster_a"].max() > 20
    found = pmm.partition_estimate(posterior, loss="ari")["cluster_a"].to_numpy()
    assert pmm.metrics.adjusted_rand_index({"a": base}, {"a": found}) == 1.0


def test_many_labels_and_wide_labels():
    rng = np.random.default_rng(0)
    base = rng.integers(0, 100, 300)
    labels = np.stack([rng.permutation(300)[base] for _ in range(5)]) * 10**9
    labels[0] = np.arange(300)  # more clusters than a byte holds
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels[None])})
    estimate = pmm.partition_estimate(posterior)["cluster_a"].to_numpy()
    assert pmm.metrics.adjusted_rand_index({"a": base}, {"a": estimate}) == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_pooled_labels_are_numbered_by_first_object(seed):
    idata = with_relevance(tree(4, seed=seed), seed=seed)
    draws = pooled_draws(idata)
    pooled = pool([draws], [draws >= 0])
    assert pooled.dtype == np.uint8
    for draw, row in zip(draws, pooled.T, strict=True):
        numbers = {}
        expected = [0 if x < 0 else numbers.setdefault(x, len(numbers) + 1) for x in draw]
        assert row.tolist() == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "vii"}, 'loss: expected "vi", "binder" or "ari"; found \'vii\''),
        ({"n_starts": 0}, "n_starts: expected a whole number of at least 1; found 0"),
        ({"max_clusters": 1.5}, "max_clusters: expected a whole number of at least 1; found 1.5"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        pmm.partition_estimate(tree(), **options)


def test_many_objects_need_little_memory():
    n, s = 20_000, 100
    rng = np.random.default_rng(0)
    base = rng.integers(0, 8, n)
    labels = np.where(rng.random((1, s, n)) < 0.95, base, rng.integers(0, 8, (1, s, n)))
    posterior = xr.Dataset({"cluster_a": (("chain", "draw", "i"), labels)})
    pmm.partition_estimate(posterior.isel(draw=[0, 1], i=slice(20)))
    tracemalloc.start()
    estimate = pmm.partition_estimate(posterior, n_starts=2, progressbar=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A byte a label, some copies of them, and never a number for every pair.
    assert peak < 20 * n * s
    found = estimate["cluster_a"].to_numpy()
    assert pmm.metrics.adjusted_rand_index({"a": base}, {"a": found}) > 0.99


def test_losses_of_typed_sets():
    idata = typed()
    estimate = pmm.partition_estimate(idata)
    distance = pmm.partition_loss(idata, estimate)
    assert distance.dims == ("clusters", "chain", "draw")
    np.testing.assert_allclose(distance.mean(("chain", "draw")), estimate.attrs["expected_loss"])


@pytest.mark.parametrize("loss", LOSSES)
def test_partition_loss_by_draw(loss):
    idata = with_relevance(tree())
    draws = pooled_draws(idata)
    labels = {
        "cluster_a": np.array([0, 0, 1, -1, 2, 5, 5]),
        "cluster_b": np.array([0, 1, 1, -1, 9]),
    }
    distance = pmm.partition_loss(idata, labels, loss=loss)
    assert distance.dims == ("chain", "draw")
    assert distance["chain"].to_numpy().tolist() == [3, 5]
    joint = np.array([0, 0, 1, 11, 2, 5, 5, 0, 1, 1, 12, 9])
    expected = [expected_losses([joint], draw[None], loss)[0] for draw in draws]
    np.testing.assert_allclose(distance.to_numpy().ravel(), expected, atol=1e-12)
    only = pmm.partition_loss(idata, labels, loss=loss, var_names=["cluster_a"])
    expected = [expected_losses([joint[:7]], draw[None, :7], loss)[0] for draw in draws]
    np.testing.assert_allclose(only.to_numpy().ravel(), expected, atol=1e-12)


def test_labels_that_do_not_fit():
    idata = tree()
    with pytest.raises(
        ValueError, match=r"labels of 'cluster_a': expected 7 whole numbers.*\(6,\)"
    ):
        pmm.partition_loss(idata, {"cluster_a": np.zeros(6, int)})
    masked = np.ma.masked_equal([0, 0, 0, 0, 0, 0, 9], 9)
    with pytest.raises(ValueError, match="labels of 'cluster_a': expected all 7; found masked"):
        pmm.partition_loss(idata, {"cluster_a": masked}, var_names=["cluster_a"])
    with pytest.raises(KeyError, match=r"no labels of 'cluster_b'"):
        pmm.partition_loss(idata, {"cluster_a": np.zeros(7, int)}, var_names=["cluster_b"])
    others = pmm.partition_estimate(idata).assign_coords(a_object=list("qrstuvw"))
    with pytest.raises(ValueError, match="labels of 'cluster_a': expected the objects of the draw"):
        pmm.partition_loss(idata, others)
