"""Moves of whole clusters: each is scored as the log joint's difference, and climbs climb."""

import numba
import numpy as np
import pandas as pd
import pytest

import pm_match as pmm
from pm_match.clusters.climb import climb_merges, climb_pairs, climb_units, shift
from pm_match.numerics.stick_breaking import log_prior
from pm_match.search.chain import Chain
from pm_match.search.coarse import (
    LEAST,
    climb_objects,
    coarse_climb,
    groups_of,
    polish,
    renamed,
    shake,
)
from tests.declared.networks import cluster_step, network_model, plain_log_joint, random_point
from tests.declared.plain import tiny_model


@numba.njit
def moved(a, b, partition, terms, unit, label):
    return shift(a, b, partition, terms, unit, label)


MODELS = {
    "bipartite": {},
    "counts": {"family": "poisson", "exposure": True},
    "weights of edges": {"family": "normal", "unknown": True},
    "three-way": {"kind": "three-way"},
    "directed": {"kind": "directed", "loops": True},
    "undirected": {"kind": "undirected"},
    "shared clusters": {"kind": "shared clusters"},
    "all relevant, linked": {"relevance": False, "linked": True},
    "known weights": {"weights": "known"},
    "dirichlet": {"weights": "dirichlet"},
    "with features": {"features": "rows", "relevance": False},
}

# These kernels take longest to compile.
LONG = ("three-way", "shared clusters", "with features")
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in MODELS]


def chain_of(model, seed=0):
    rng = np.random.default_rng(seed)
    return Chain(model, pmm.steps(model), random_point(model, rng), rng)


def options(name):
    given = dict(MODELS[name])
    if given.pop("features", None):
        rng = np.random.default_rng(5)
        given["features"] = {"a": rng.normal(size=(3, 2)), "b": rng.normal(size=(2, 2))}
    return {"truncation": 3} | given


@pytest.mark.parametrize("name", NAMES)
def test_every_move_is_worth_the_difference_of_the_log_joint(name):
    model = network_model(**options(name))
    step = cluster_step(model)
    rng = np.random.default_rng(1)
    n_scored = 0
    for _ in range(3):
        chain = chain_of(model, int(rng.integers(100)))
        grouped = groups_of(chain, 0)
        state = chain.loaded(0, [own.units for own in grouped])
        for partition, terms, prior in zip(
            state.partitions, state.terms, state.priors, strict=True
        ):
            for unit in range(len(partition.label)):
                least = -1 if partition.relevance.group[unit] >= 0 else 0
                for label in rng.permutation(np.arange(least, len(partition.counts))):
                    before = plain_log_joint(step, chain.point, state.found())
                    gain = moved(*prior, partition, terms, unit, label)
                    after = plain_log_joint(step, chain.point, state.found())
                    assert gain == pytest.approx(after - before, abs=1e-8)
                    n_scored += 1
    assert n_scored > 30


@pytest.mark.parametrize("name", NAMES)
def test_climbs_rise_by_what_they_say_and_keep_links(name):
    model = network_model(**options(name))
    rose = 0
    for seed in range(6):
        chain = chain_of(model, seed)
        before = chain.log_joint()
        gain = coarse_climb(chain, 0)
        assert chain.log_joint() - before == pytest.approx(gain, abs=1e-7)
        before = chain.log_joint()
        gain += climb_objects(chain, 0)
        gain += shake(chain, 0, np.random.default_rng(seed), 3)
        rose += gain > 0.0
        assert gain >= 0.0
        assert chain.log_joint() >= before
        for own, labels in zip(chain.collapsed(0).units, chain.labels(0), strict=True):
            np.testing.assert_array_equal(labels, labels[own.first[own.of_object]])
    assert rose > 0


@pytest.mark.parametrize(
    "name", ["bipartite", "undirected", pytest.param("with features", marks=pytest.mark.slow)]
)
def test_where_the_climb_ends_no_move_is_worth_making(name):
    model = network_model(**options(name))
    for seed in range(4):
        chain = chain_of(model, seed)
        coarse_climb(chain, 0)
        grouped = groups_of(chain, 0)
        state = chain.loaded(0, [own.units for own in grouped])
        for number, (partition, terms, prior) in enumerate(
            zip(state.partitions, state.terms, state.priors, strict=True)
        ):
            assert climb_units(*prior, partition, terms, LEAST) == 0.0
            pairs = grouped[number].pairs()
            assert climb_pairs(*prior, partition, terms, 0, pairs, LEAST) == 0.0
            moved = np.zeros(len(partition.label), np.int64)
            assert climb_merges(*prior, partition, terms, moved, LEAST) == 0.0


@pytest.mark.parametrize("across", [False, True])
def test_clusters_that_are_apart_exchange_their_labels(across):
    tables = {name: pd.DataFrame({"u": [-3.0, 3.0], "v": [1.0, -1.0]}) for name in "ab"}
    model = pmm.models.mixture(tables, n_clusters=2)
    with model:
        pmm.cannot_link("apart", {"cluster_a": [[0, 1]]})
        pmm.cannot_link("also", {"cluster_b": [[0, 1]]})
        if across:
            pmm.cannot_link("across", {"cluster_a": [0], "cluster_b": [0]})
    chain = chain_of(model, 0)
    chain.place(0, [np.array([0, 1, 1, 0])])
    before = chain.log_joint()
    gain = coarse_climb(chain, 0)
    if across:
        # It would bring together what is to be apart.
        assert gain == 0.0
        return
    assert gain > 1.0
    assert chain.log_joint() - before == pytest.approx(gain, abs=1e-7)
    (labels,) = chain.labels(0)
    np.testing.assert_array_equal(labels[:2], labels[2:])


@pytest.mark.parametrize("whole", [False, True], ids=["objects", "groups"])
def test_units_take_their_best_labels_in_turn(whole):
    """Against all labels of every unit, tried one by one by the plain formula."""
    model = network_model(truncation=3)
    step = cluster_step(model)
    for seed in range(3):
        chain = chain_of(model, seed)
        state = chain.loaded(0, [own.units for own in groups_of(chain, 0)] if whole else None)
        for number in range(2):
            labels = state.found()
            for unit in range(len(state.units[number].size)):
                inside = state.units[number].of_object == unit
                tried = []
                for label in range(-1, state.partitions[number].counts.size):
                    trial = [own.copy() for own in labels]
                    trial[number][inside] = label
                    tried.append((plain_log_joint(step, chain.point, trial), trial))
                labels = max(tried, key=lambda pair: pair[0])[1]
            prior = state.priors[number]
            climb_units(*prior, state.partitions[number], state.terms[number], 1e-9)
            np.testing.assert_array_equal(state.found()[number], labels[number])


def test_groups_hold_what_is_of_one_assignment_and_cluster():
    chain = chain_of(network_model(relevance=False, linked=True))
    own = groups_of(chain, 0)[0]
    labels = chain.labels(0)[0]
    # The first of a's rows is linked to both of b's: a group of both assignments.
    of = own.units.of_object
    assert of[0] == of[3] == of[4]
    assert own.kind[of[0]] == 2
    assert own.kind[of[1]] == own.kind[of[2]] == 0
    np.testing.assert_array_equal(own.label[of], labels)
    np.testing.assert_array_equal(np.bincount(of), own.units.size)


def test_names_are_those_that_the_prior_likes_best():
    rng = np.random.default_rng(0)
    a, b = np.ones(4), np.full(4, 0.7)
    for prior in ((a, b), (rng.random(4) + 0.2, rng.random(4) + 0.2)):
        labels = rng.choice(5, 30, p=[0.05, 0.1, 0.15, 0.3, 0.4])
        labels[:3] = -1
        found, gain = renamed(prior, labels, 5)
        before, after = (np.bincount(x[x >= 0], minlength=5) for x in (labels, found))
        assert log_prior(*prior, after) - log_prior(*prior, before) == pytest.approx(gain)
        np.testing.assert_array_equal(found < 0, labels < 0)
        assert len(np.unique(labels * 9 + found)) == len(np.unique(labels))
        for j in range(5):
            for k in range(j):
                swapped = after.copy()
                swapped[[j, k]] = swapped[[k, j]]
                assert log_prior(*prior, swapped) <= log_prior(*prior, after) + LEAST


def test_features_alone_are_served():
    model = tiny_model(linked=True)
    chain = Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))
    chain.run(3)
    before = chain.log_joint()
    gain = coarse_climb(chain, 0)
    assert chain.log_joint() - before == pytest.approx(gain, abs=1e-8)


def test_polish_ends_at_a_mode():
    chain = chain_of(network_model(hyperpriors=True, truncation=3))
    polish(chain, 0)
    labels = chain.labels(0)
    assert climb_objects(chain, 0) <= 1e-5
    for one, other in zip(labels, chain.labels(0), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("relevance", [False, True], ids=["merged", "irrelevant"])
def test_a_cluster_is_given_up_for_one_that_is_worth_more(relevance):
    """All labels are in use, two clusters share one, and one is split or better in none."""
    rng = np.random.default_rng(0)
    rows, columns = np.repeat([0, 1, 2], 15), np.repeat([0, 1, 2], 10)
    last = [1.0, 1.0, 1.0 if relevance else 9.0]
    rates = np.array([[4.0, 0.5, 1.0], [0.5, 4.0, 1.0], last])
    data = {name: rng.poisson(rates[np.ix_(rows, columns)]).astype(float) for name in "ab"}
    rows, columns = np.tile(rows, 2), np.tile(columns, 2)
    model = network_model(
        data=data, family="poisson", weights="known", truncation=2 + (not relevance),
        relevance="rows" if relevance else False,
    )  # fmt: skip
    chain = chain_of(model)
    truth = np.where(rows < 2, rows, -1) if relevance else rows
    chain.place(0, [truth, columns])
    best = chain.log_joint()
    found = np.where(rows < 2, 0, 1)
    if not relevance:
        found += (rows == 2) & (np.arange(len(rows)) % 2 == 0)
    chain.place(0, [found, columns])
    before = chain.log_joint()
    climb_objects(chain, 0)
    coarse_climb(chain, 0)
    assert chain.log_joint() < best - 50.0
    shake(chain, 0, np.random.default_rng(0), 20)
    assert chain.log_joint() > best - 5.0 > before
