"""Running state against the plain formula, after thousands of random moves."""

import numpy as np
import pytest
from numba import njit

from pm_match.clusters import protocol
from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import log_joint, place, reassign, rename, sweep
from pm_match.numerics.stick_breaking import known_sticks, log_prior, predictive
from tests.declared.plain import (
    cluster_step,
    inside,
    plain_log_prior,
    random_point,
    tiny_data,
    tiny_model,
)

N_MOVES = 10_000


def move_about(partition, terms, units, labels):
    for unit, label in zip(units, labels, strict=True):
        if partition.label[unit] != label:
            reassign(partition, terms, unit, label)


@njit
def scores(partition, term, unit, out):
    own = partition.slot_of[partition.label[unit]]
    protocol.score(term, unit, own, partition.n_slots[0], out)


@njit
def prior_weights(a, b, counts, label, size, out):
    predictive(a, b, counts, label, size, out)


def at(unit, label):
    return np.array([unit]), np.array([label])


def medium(missing, linked):
    data = tiny_data(n_objects=(20, 15), n_features=(4, 6))
    if missing:
        holes = np.random.default_rng(2)
        data = {name: np.where(holes.random(x.shape) < 0.2, np.nan, x) for name, x in data.items()}
    return tiny_model(data=data, linked=linked, n_clusters=9, n_factors=3)


def loaded(model, seed=0):
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(seed))
    hyper = inside(step).hyper(point)
    place(inside(step).state, np.concatenate(inside(step).labels(point))[inside(step).units.first])
    inside(step).load(point)
    return step, point, hyper


def plain(step, point, hyper, units):
    labels = units[inside(step).units.of_object]
    counts = np.bincount(labels, minlength=inside(step).truncation)
    return plain_log_prior(hyper.a, hyper.b, counts) + inside(step).log_marginal(point, labels)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_state_after_random_moves(missing, linked):
    step, point, hyper = loaded(medium(missing, linked))
    rng = np.random.default_rng(8)
    state, terms = inside(step).state, collect([inside(step).evidence.term])
    n_units, truncation = len(inside(step).units.size), inside(step).truncation
    for _ in range(10):
        units = rng.integers(n_units, size=N_MOVES // 10)
        # Few labels at times, so that clusters are born and die.
        labels = rng.integers(rng.integers(1, truncation + 1), size=len(units))
        move_about(state, terms, units, labels)
        found = log_joint(hyper.a, hyper.b, state, terms)
        assert found == pytest.approx(plain(step, point, hyper, state.label), rel=1e-9)
        occupied = np.flatnonzero(np.bincount(state.label, minlength=truncation))
        assert set(state.label_of[1 : state.n_slots[0]]) == set(occupied)
        np.testing.assert_array_equal(
            state.counts, np.bincount(state.label, state.size, truncation).astype(int)
        )


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_scores_are_differences_of_the_plain_formula(missing, linked):
    step, point, hyper = loaded(medium(missing, linked), seed=3)
    state, term = inside(step).state, inside(step).evidence.term
    rng = np.random.default_rng(9)
    for unit in range(0, len(inside(step).units.size), 4):
        # Make some units the only ones of their cluster.
        if unit % 3 == 0:
            for other in np.flatnonzero(state.label == state.label[unit]):
                if other != unit:
                    move_about(state, collect([term]), *at(other, (state.label[other] + 1) % 8))
        out = np.zeros(len(state.scores))
        scores(state, term, unit, out)
        weights = np.zeros(inside(step).truncation)
        size = inside(step).units.size[unit]
        prior_weights(hyper.a, hyper.b, state.counts, state.label[unit], size, weights)
        found, expected = [], []
        for label in range(inside(step).truncation):
            moved = state.label.copy()
            moved[unit] = label
            expected.append(plain(step, point, hyper, moved))
            found.append(np.log(weights[label]) + out[state.slot_of[label]])
        np.testing.assert_allclose(
            np.array(found) - found[0], np.array(expected) - expected[0], atol=1e-9, rtol=1e-9
        )
        move_about(state, collect([term]), *at(unit, rng.integers(inside(step).truncation)))


def test_known_weights_are_exact():
    weights = np.array([0.7, 0.2, 0.1])
    a, b = known_sticks(weights)
    for size in (1, 8, 9, 40):
        found = np.zeros(3)
        prior_weights(a, b, np.array([5 + size, 3, 0]), 0, size, found)
        np.testing.assert_allclose(found / found[0], (weights / weights[0]) ** size, rtol=1e-9)
    counts = np.array([5, 3, 2])
    assert log_prior(a, b, counts) == pytest.approx(counts @ np.log(weights), rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 8, 9, 40])
def test_prior_weights_of_groups(size):
    a, b = np.array([1.0, 0.7, 2.0]), np.array([1.4, 1.4, 0.3])
    counts = np.array([size + 2, 0, 5, 1])
    weights = np.zeros(4)
    prior_weights(a, b, counts, 0, size, weights)
    expected = []
    for label in range(4):
        moved = counts.copy()
        moved[0] -= size
        moved[label] += size
        expected.append(plain_log_prior(a, b, moved))
    found = np.log(weights)
    np.testing.assert_allclose(found - found[0], np.array(expected) - expected[0], atol=1e-10)


def test_kept_prior_weights_are_those_of_the_present_counts():
    """Rows that a sweep would look up instead of computing them, after sweeps and label swaps."""
    data = {"a": np.repeat(20.0 * np.eye(4), 5, axis=0)}
    model = tiny_model(data=data, n_clusters=6, n_factors=3)
    step, point, hyper = loaded(model)
    # Projections with which the clusters are far apart: nothing moves but names.
    projection = np.random.default_rng(1).normal(size=(4, 3))
    state, rng = inside(step).state, np.random.default_rng(2)
    terms = collect([inside(step).evidence.term])
    place(state, np.repeat([4, 1, 0, 3], 5))
    inside(step).load(point, [projection])
    looked_up = swapped = 0
    for _ in range(200):
        sweep(rng, hyper.a, hyper.b, state, terms)
        swapped += rename(rng, hyper.a, hyper.b, state, inside(step).renamed, 1)[0]
        for slot in range(1, state.n_slots[0]):
            if state.prior_stamp[slot] != state.version[0]:
                continue
            looked_up += 1
            weights = np.zeros(6)
            own = state.label_of[slot]
            prior_weights(hyper.a, hyper.b, state.counts, own, 1, weights)
            expected = weights[state.label_of[: state.n_slots[0]]]
            expected[0] = weights[state.slot_of == 0].sum()
            np.testing.assert_allclose(state.prior[slot, : state.n_slots[0]], expected)
    assert looked_up > 100
    assert swapped > 20
