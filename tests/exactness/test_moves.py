"""Moves of many labels at once: their law against every assignment there is."""

import numpy as np
import pytest

from tests import tiny, tiny_networks
from tests.tiny import sampling_noise, tiny_data, tiny_model, total_variation
from tests.tiny_networks import all_states, network_data, network_model, of_objects, plain_log_joint

FEATURES = {
    "plain": {},
    "linked": {"linked": True},
    "missing": {"missing": True},
    "dirichlet": {"weights": "dirichlet"},
    "known weights": {"weights": "uniform"},
}
NETWORKS = {
    "bipartite": {},
    "all relevant": {"relevance": False},
    "unknown cells": {"unknown": True},
    "links": {"relevance": False, "linked": True},
    "known weights of networks": {"weights": "known", "relevance": False},
    "poisson": {"family": "poisson", "exposure": True, "relevance": False},
    "three-way": {"kind": "three-way", "relevance": "rows"},
    "directed": {"kind": "directed"},
    "undirected": {"kind": "undirected", "loops": True, "relevance": False},
    "clusters of both axes": {"kind": "shared clusters", "relevance": False},
    "features": {
        "relevance": False,
        "features": {"a": np.random.default_rng(5).normal(size=(2, 2))},
    },
}
CASES = FEATURES | NETWORKS


def tiny_case(case):
    """The step of a tiny model, loaded at a random point, and the point."""
    if case in FEATURES:
        model = tiny_model(**FEATURES[case])
        step, point = (
            tiny.cluster_step(model),
            tiny.random_point(model, np.random.default_rng(5)),
        )
    else:
        options = NETWORKS[case]
        kind = options.get("kind", "bipartite")
        data = network_data(
            kind,
            options.get("family", "bernoulli"),
            options.get("unknown", False),
            options.get("loops", False),
        )
        if kind not in ("directed", "undirected", "three-way"):
            # Few enough states that each is visited often.
            data = {"a": data["a"][:2], "b": data["b"][:, :1]}
        model = network_model(**options, data=data)
        step, point = (
            tiny_networks.cluster_step(model),
            tiny_networks.random_point(model, np.random.default_rng(5)),
        )
    step._collapsed.load(point, step._collapsed.labels(point))
    return step, point


def law_of(step, point):
    """Every state, and its probability by the plain formulas."""
    states = all_states(step)
    logs = np.array([plain_log_joint(step, point, of_objects(step, s)) for s in states])
    law = np.exp(logs - logs.max())
    return states, law / law.sum()


def visits(step, states, move, n, seed=2):
    """How often a chain of `move` is in each state."""
    widths = np.max(states, axis=0) + 2
    powers = np.append(np.cumprod(widths[::-1])[::-1][1:], 1)
    place = np.full(int(np.prod(widths)), -1)
    place[[int((s + 1) @ powers) for s in states]] = np.arange(len(states))
    counts = np.zeros(len(states))
    rng = np.random.default_rng(seed)
    for _ in range(n):
        move(step._collapsed, rng)
        state = np.concatenate([partition.label for partition in step._collapsed.partitions])
        counts[place[(state + 1) @ powers]] += 1
    return counts


def split_and_merge(collapsed, rng):
    """Splits and merges, with the few sweeps that change what they cannot: relevance."""
    collapsed.split_or_merge(rng, 5)
    if any((p.relevance.group >= 0).any() for p in collapsed.partitions) and rng.random() < 0.5:
        collapsed.sweep(rng)


def exchange(collapsed, rng):
    """Exchanges, with a few sweeps: they leave every assignment's clusters as they are."""
    collapsed.exchange(rng, 3)
    if rng.random() < 0.5:
        collapsed.sweep(rng)


def everything(collapsed, rng):
    collapsed.sweep(rng)
    collapsed.split_or_merge(rng, 1)
    collapsed.exchange(rng, 1)
    collapsed.rename(rng)


MOVES = {"split and merge": split_and_merge, "exchange": exchange, "everything": everything}
# What a move alone cannot leave, or takes long to: see the law of everything.
N_DRAWS = 60_000


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("case", CASES)
def test_law_of_labels(case, move):
    step, point = tiny_case(case)
    states, law = law_of(step, point)
    counts = visits(step, states, MOVES[move], N_DRAWS)
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, N_DRAWS)
