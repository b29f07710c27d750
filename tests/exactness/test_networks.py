"""Network evidence: running state, scores, law of the chain, and the declared density."""

import numpy as np
import pytest
from numba import njit

import pm_match as pmm
from pm_match.clusters import protocol
from pm_match.clusters.sweep import log_joint, reassign
from pm_match.networks.parts import Relation
from tests.declared.networks import (
    all_states,
    cluster_step,
    network_data,
    network_model,
    of_objects,
    plain_log_joint,
    plain_prior,
    random_point,
    relation_evidence,
)
from tests.declared.plain import sampling_noise, total_variation
from tests.exactness.moves import visited
from tests.exactness.network_conditional import log_conditional

CASES = {
    "bipartite": {},
    "all relevant": {"relevance": False},
    "relevant columns": {"relevance": "rows"},
    "unknown cells": {"unknown": True},
    "linked": {"relevance": False, "linked": True},
    "dirichlet": {"weights": "dirichlet"},
    "known weights": {"weights": "known"},
    "poisson": {"family": "poisson"},
    "exposures": {"family": "poisson", "exposure": True, "unknown": True},
    "negative binomial": {"family": "negative-binomial"},
    "negative binomial, exposures": {
        "family": "negative-binomial",
        "exposure": True,
        "unknown": True,
    },
    "negative binomial, undirected": {
        "kind": "undirected",
        "family": "negative-binomial",
        "exposure": True,
        "loops": True,
    },
    "negative binomial, directed": {"kind": "directed", "family": "negative-binomial"},
    "normal": {"family": "normal", "unknown": True},
    "two relations": {"relations": 2},
    "three-way": {"kind": "three-way"},
    "three-way poisson": {"kind": "three-way", "family": "poisson", "relevance": False},
    "directed": {"kind": "directed"},
    "directed, loops": {"kind": "directed", "loops": True, "unknown": True},
    "directed, linked": {"kind": "directed", "relevance": False, "linked": True, "loops": True},
    "undirected": {"kind": "undirected"},
    "undirected, loops": {"kind": "undirected", "loops": True, "family": "poisson"},
    "undirected, exposures": {
        "kind": "undirected",
        "family": "poisson",
        "exposure": True,
        "loops": True,
    },
    "undirected, linked": {"kind": "undirected", "relevance": False, "linked": True},
    "undirected normal": {"kind": "undirected", "family": "normal"},
    "clusters of both axes": {"kind": "shared clusters"},
    "features": {
        "relevance": False,
        "features": {"a": np.random.default_rng(5).normal(size=(3, 2))},
    },
}
N_MOVES = 10_000
# One of each kind of kernel; the others take long to compile and are run with the long tests.
QUICK = ("bipartite", "linked", "directed", "undirected")

DECLARED = (
    "bipartite",
    "relevant columns",
    "poisson",
    "negative binomial, exposures",
    "normal",
    "undirected, exposures",
)


def quick_or_slow(cases):
    """Parameters of which all but the quick ones are marked slow."""
    return [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in cases]


def move_about(partition, terms, units, labels):
    for unit, label in zip(units, labels, strict=True):
        if partition.label[unit] != label:
            reassign(partition, terms, unit, label)


@njit
def add_scores(partition, term, unit, out):
    protocol.score(term, unit, partition.slot[unit], partition.n_slots[0], out)


def loaded(model, seed=0):
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(seed))
    step._collapsed.load(point, step._collapsed.labels(point))
    return step, point


def labels_of(step):
    return [
        partition.label[own.of_object]
        for partition, own in zip(step._collapsed.partitions, step._collapsed.units, strict=True)
    ]


@pytest.mark.parametrize("case", quick_or_slow(CASES))
def test_state_and_scores_after_random_moves(case):
    step, point = loaded(network_model(**CASES[case], truncation=3))
    collapsed = step._collapsed
    rng = np.random.default_rng(1)
    for _ in range(10):
        for number, partition in enumerate(collapsed.partitions):
            n_labels = step.part.clusterings[number].truncation
            units = rng.integers(len(partition.label), size=N_MOVES // 10)
            # Few labels at times, so that clusters are born and die.
            labels = rng.integers(rng.integers(1, n_labels + 1), size=len(units))
            flagged = partition.relevance.group[units] >= 0
            labels[flagged & (rng.random(len(units)) < 0.3)] = -1
            move_about(partition, collapsed.terms[number], units, labels)
        assert collapsed.log_joint() == pytest.approx(
            plain_log_joint(step, point, labels_of(step)), abs=1e-10, rel=1e-10
        )
    # Scores, with the prior of the sweep, are differences of the plain formula.
    for number, partition in enumerate(collapsed.partitions):
        prior = step.part.clusterings[number].prior(point)
        for unit in range(len(partition.label)):
            out = np.zeros(len(partition.scores))
            for term in collapsed.terms[number]:
                add_scores(partition, term, unit, out)
            old = partition.label[unit]
            here = log_joint(*prior, partition, collapsed.terms[number])
            found, expected = [], []
            truncation = step.part.clusterings[number].truncation
            for label in range(-1 if partition.relevance.group[unit] >= 0 else 0, truncation):
                slot = partition.n_slots[0] if label < 0 else partition.slot_of[label]
                found.append(out[slot])
                partition.label[unit] = label
                moved = labels_of(step)
                expected.append(
                    plain_log_joint(step, point, moved) - plain_prior(step, point, moved)
                )
                partition.label[unit] = old
            np.testing.assert_allclose(
                np.array(found) - found[0], np.array(expected) - expected[0], atol=1e-10
            )
            assert here == log_joint(*prior, partition, collapsed.terms[number])


ENUMERATED = {
    "bipartite": {},
    "all relevant": {"relevance": False},
    "unknown cells": {"unknown": True},
    "linked": {"relevance": False, "linked": True},
    "known weights": {"weights": "known", "relevance": False},
    "poisson": {"family": "poisson", "exposure": True, "relevance": False},
    "negative binomial": {"family": "negative-binomial", "exposure": True},
    "three-way": {"kind": "three-way", "relevance": "rows"},
    "directed": {"kind": "directed"},
    "undirected": {"kind": "undirected", "loops": True},
    "clusters of both axes": {"kind": "shared clusters", "relevance": False},
    "features": {
        "relevance": False,
        "features": {"a": np.random.default_rng(5).normal(size=(2, 2))},
    },
}


@pytest.mark.parametrize("case", quick_or_slow(ENUMERATED))
def test_law_of_assignment_and_relevance(case):
    options = ENUMERATED[case]
    data = network_data(
        options.get("kind", "bipartite"),
        options.get("family", "bernoulli"),
        options.get("unknown", False),
        options.get("loops", False),
    )
    if options.get("kind") not in ("directed", "undirected", "three-way"):
        # Few enough states that each is visited often.
        data = {"a": data["a"][:2], "b": data["b"][:, :1]}
    step, point = loaded(network_model(**options, data=data))
    collapsed = step._collapsed
    states = all_states(step)
    logs = np.array([plain_log_joint(step, point, of_objects(step, s)) for s in states])
    law = np.exp(logs - logs.max())
    law /= law.sum()
    widths = states[-1] + 2
    powers = np.append(np.cumprod(widths[::-1])[::-1][1:], 1)
    place = np.full(int(np.prod(widths)), -1)
    place[[int((s + 1) @ powers) for s in states]] = np.arange(len(states))
    counts = np.zeros(len(states))
    rng = np.random.default_rng(2)
    n_sweeps = 80_000
    labels = visited(collapsed, rng, n_sweeps)
    np.add.at(counts, place[(labels + 1) @ powers], 1)
    limit = 2.0 * sampling_noise(law, n_sweeps)
    assert total_variation(counts, law) < limit
    # The check can fail: under another prior of the densities, it does.
    priors = [r.prior for r in step.part.of(Relation)]
    for relation, prior in zip(step.part.of(Relation), priors, strict=True):
        density, noise = prior(point)
        other = (4.0 * density[1], 0.5 * density[0], *density[2:])
        object.__setattr__(relation, "prior", lambda _, o=other, n=noise: (o, n))
    logs = np.array([plain_log_joint(step, point, of_objects(step, s)) for s in states])
    wrong = np.exp(logs - logs.max())
    assert total_variation(counts, wrong / wrong.sum()) > limit


# -- against the declared density ----------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        # Declared densities take long to compile.
        c if c in DECLARED else pytest.param(c, marks=pytest.mark.slow)
        for c in CASES
        if c != "features"
    ],
)
def test_declared_equals_collapsed_times_conditional(case):
    model = network_model(**CASES[case], truncation=3)
    step = cluster_step(model)
    log_density = model.compile_fn(
        model.logp(jacobian=False), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    point = random_point(model, np.random.default_rng(3))
    step.setup_chain(np.random.default_rng(4), 0, 0)
    reported: list[float] = []
    stats_ = {"log_joint": np.nan}
    for number in range(6):
        labels = step._collapsed.labels(point)
        step._collapsed.load(point, labels)
        found = plain_log_joint(step, point, labels) + log_conditional(step, point, labels)
        declared = float(log_density(point))
        assert found == pytest.approx(declared, rel=1e-9)
        if number:
            reported.append(declared - log_conditional(step, point, labels) - stats_["log_joint"])
        point, (stats_,) = step.step(point)
    np.testing.assert_allclose(reported, 0.0, atol=1e-8)


@pytest.mark.slow
def test_neither_data_set_alone_finds_the_clusters_and_both_together_do():
    """Features tell clusters {0, 1} from {2, 3}, edges {0, 2} from {1, 3}."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 15)
    columns = np.repeat([0, 1], 30)
    features = np.where(truth < 2, 3.0, -3.0)[:, None] + rng.normal(size=(60, 4))
    density = np.where((truth % 2)[:, None] == columns, 0.7, 0.1)
    edges = (rng.random((60, 60)) < density).astype(float)
    found = {}
    for what in ("features", "edges", "both"):
        model = network_model(
            relevance=False,
            truncation=6,
            data={"a": edges if what != "features" else np.zeros_like(edges)},
            features={"a": features if what != "edges" else rng.normal(size=(60, 4))},
        )
        best = None
        for seed in range(4):
            steps = pmm.steps(model)
            point = model.initial_point(0) | _start(model, seed)
            for step in steps:
                step.setup_chain(np.random.default_rng(seed), 0, 0)
            for _ in range(60):
                for step in steps:
                    point, (stat,) = step.step(point)
            if best is None or stat["log_joint"] > best[0]:
                best = stat["log_joint"], point["cluster_a_0"].copy()
        found[what] = pmm.metrics.adjusted_rand_index({"a": truth}, {"a": best[1]})
    assert found["both"] > 0.85, found
    assert max(found["features"], found["edges"]) < 0.55, found


def _start(model, seed):
    (start,) = pmm.initial_points(model, chains=1, random_seed=seed, init="dispersed")
    return {name: value for name, value in start.items() if name in model.initial_point(0)}


def test_data_with_nothing_unknown_take_the_quick_way():
    step, _ = loaded(network_model())
    assert relation_evidence(step)[0].plain
    step, _ = loaded(network_model(data=network_data(unknown=True)))
    assert not relation_evidence(step)[0].plain
