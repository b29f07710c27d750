"""Moves of many labels at once: their law against every assignment there is."""

from itertools import permutations

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pm_match as pmm
from pm_match.clusters import exchange as exchange_module
from pm_match.features.feature_sums import ClusterSums
from tests.declared import networks as tiny_networks
from tests.declared import plain as tiny
from tests.declared.networks import (
    all_states,
    network_data,
    network_model,
    of_objects,
    plain_log_joint,
)
from tests.declared.plain import sampling_noise, tiny_data, tiny_model, total_variation
from tests.exactness.moves import MOVES, parted

FEATURES = {
    "plain": {},
    "linked": {"linked": True},
    "missing": {"missing": True},
    "empty labels": {"n_clusters": 5, "data": tiny_data(n_objects=(2, 2))},
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


# What a move alone cannot leave, or takes long to: see the law of everything.
N_DRAWS = 60_000


# Kernels of the others are in common with these.
QUICK = ("plain", "empty labels", "bipartite")


@pytest.mark.parametrize(
    "move",
    ["everything", *(pytest.param(m, marks=pytest.mark.slow) for m in MOVES if m != "everything")],
)
@pytest.mark.parametrize(
    "case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in CASES]
)
def test_law_of_labels(case, move):
    step, point = tiny_case(case)
    states, law = law_of(step, point)
    counts = visits(step, states, MOVES[move], N_DRAWS)
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, N_DRAWS)


@pytest.mark.parametrize(
    "case",
    ["plain", *(pytest.param(c, marks=pytest.mark.slow) for c in ("linked", "empty labels"))],
)
def test_law_of_splits_and_merges(case):
    """Nothing else moves, and draws are many: small errors of their ratio show."""
    step, point = tiny_case(case)
    states, law = law_of(step, point)
    n = 1_000_000
    labels = parted(step._collapsed, np.random.default_rng(2), n)
    powers = (len(step._collapsed.partitions[0].counts) + 1) ** np.arange(labels.shape[1])
    codes, found = np.unique(labels @ powers, return_counts=True)
    places = dict(zip((np.array(states) @ powers).tolist(), range(len(states)), strict=True))
    counts = np.zeros(len(states))
    counts[[places[code] for code in codes.tolist()]] = found
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n)


LARGER = {
    "features": {},
    "networks": {},
    "networks of both axes": {"kind": "shared clusters", "relevance": False},
    "one mode": {"kind": "directed"},
}


@pytest.mark.parametrize(
    "case",
    ["features", "networks", *(pytest.param(c, marks=pytest.mark.slow) for c in list(LARGER)[2:])],
)
def test_state_after_many_moves(case):
    """The running state is that of a partition rebuilt from its labels, accepted or not."""
    if case == "features":
        data = tiny_data(n_objects=(20, 15), n_features=(4, 6))
        model = tiny_model(data=data, n_clusters=9, n_factors=3)
        step = tiny.cluster_step(model)
        point = tiny.random_point(model, np.random.default_rng(1))
    else:
        model = network_model(**LARGER[case], truncation=5)
        step = tiny_networks.cluster_step(model)
        point = tiny_networks.random_point(model, np.random.default_rng(1))
    collapsed = step._collapsed
    collapsed.load(point, collapsed.labels(point))
    rng = np.random.default_rng(2)
    made = np.zeros((2, 2), int)
    for number in range(2_500):
        made += collapsed.split_or_merge(rng, 2), collapsed.exchange(rng, 2)
        if number % 50 == 0:
            collapsed.sweep(rng)
        if number % 250 == 0:
            labels = [
                p.label[own.of_object]
                for p, own in zip(collapsed.partitions, collapsed.units, strict=True)
            ]
            found = collapsed.log_joint()
            assert found == pytest.approx(plain_log_joint(step, point, labels), rel=1e-9, abs=1e-9)
            for partition in collapsed.partitions:
                counts = np.bincount(
                    partition.label[partition.label >= 0],
                    partition.size[partition.label >= 0],
                    len(partition.counts),
                )
                np.testing.assert_array_equal(partition.counts, counts)
    assert (made[:, 0] > 50).all(), made
    assert (made[:, 0] < 0.95 * made[:, 1]).all(), made


# -- permutations with the projection integrated out ---------------------------------------------


def log_regression(x, z, alpha, mean, precision):
    """Log density of a domain's features, feature after feature, as a plain normal vector."""
    total = 0.0
    for m in range(x.shape[1]):
        seen = ~np.isnan(x[:, m])
        design = z[seen]
        cov = design @ np.diag(1.0 / precision[m]) @ design.T + np.eye(seen.sum()) / alpha
        total += stats.multivariate_normal.logpdf(x[seen, m], design @ mean[m], cov)
    return total


def permutation_model(x, mean, scale, weights):
    with pm.Model() as model:
        if weights == "known":
            prior = np.array([0.1, 0.4, 0.3, 0.2])
        else:
            prior = pm.StickBreakingWeights("weights", np.float64(1.4), 3)
        precision = pm.Gamma("precision", np.float64(2.0), np.float64(1.5))
        latent = pm.Normal("latent", 0.0, tau=np.float64(0.6) * precision, shape=(4, 2))
        for name, values in x.items():
            cluster = pm.Categorical(f"cluster_{name}", p=prior, shape=len(values))
            w = pm.Normal(f"projection_{name}", mean[name], scale[name], shape=(values.shape[1], 2))
            pm.Normal(name, latent[cluster] @ w.T, tau=precision, observed=values)
    return model


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    "case",
    [
        "plain",
        "missing",
        *(pytest.param(c, marks=pytest.mark.slow) for c in ("means", "scales", "known")),
    ],
)
def test_law_of_permutations(case):
    """All else given and projection and weights integrated out, the labels of a domain permute."""
    rng = np.random.default_rng(4)
    x = {name: rng.normal(size=(n, 9)) for name, n in (("a", 5), ("b", 6))}
    shape = (9, 2)
    mean = {name: np.zeros(shape) for name in x}
    scale = {name: np.ones(shape) for name in x}
    if case == "means":
        mean = {name: rng.normal(size=shape) for name in x}
    elif case == "scales":
        scale = {name: rng.uniform(0.5, 2.0, shape) for name in x}
    elif case == "missing":
        x["b"][rng.random(x["b"].shape) < 0.3] = np.nan
    model = permutation_model(x, mean, scale, case)
    step = pmm.FeatureGibbs([model["projection_a"]], model=model, rng=3)
    exchanges = step._exchanges
    latent, alpha = rng.normal(size=(4, 2)), 0.7
    point = dict(model.initial_point(0))
    point["cluster_a"] = np.array([0, 0, 0, 1, 2])
    point["cluster_b"] = np.array([1, 1, 1, 3, 3, 0])
    exchanges.free = ["cluster_b"]
    (domain,) = [d for d in step.part.domains if d.name.startswith("b")]
    prior = step._exchanges._clustering.prior(point)
    states = list(permutations(range(4), 3))
    logs = []
    for state in states:
        own = np.array([*[state[0]] * 3, *[state[1]] * 2, state[2]])
        counts = np.bincount(np.concatenate([point["cluster_a"], own]), minlength=4)
        logs.append(
            tiny.plain_log_prior(*prior, counts)
            if case != "known"
            else counts @ np.log([0.1, 0.4, 0.3, 0.2])
        )
        logs[-1] += log_regression(x["b"], latent[own], alpha, mean["b"], scale["b"] ** -2.0)
    law = np.exp(np.array(logs) - max(logs))
    law /= law.sum()
    assert np.sort(law)[-4] > 0.02
    visited = dict.fromkeys(states, 0)
    n_draws = 20_000
    root, (centre, own) = np.sqrt(alpha), step.part.prior(step.part.projections[1], point)
    for number in range(n_draws):
        assert exchanges.load(rng, point) == "cluster_b"
        clusters = ClusterSums.of(domain.data, point["cluster_b"], 4)
        counts = np.broadcast_to(clusters.counts, clusters.sums.shape)
        renamed = exchanges.propose(
            rng, clusters.sums * root, counts, centre * root, own / alpha, latent
        )
        if renamed is not None:
            point["cluster_b"] = renamed[point["cluster_b"]]
            if number < 50:
                expected = ClusterSums.of(domain.data, point["cluster_b"], 4)
                np.testing.assert_array_equal(clusters.renamed(renamed).sums, expected.sums)
        visited[tuple(point["cluster_b"][[0, 3, 5]])] += 1
    counts = np.array([visited[state] for state in states])
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n_draws)


def test_linked_and_shared_assignments_keep_their_labels():
    step = tiny.cluster_step(tiny_model(linked=True))
    assert step._collapsed._free == []
    model = tiny_model(linked=True)
    step = pmm.FeatureGibbs([model["projection_a"]], model=model)
    assert step._exchanges.free == []
    # Where all links are within one domain, they move with it.
    ends = np.array([3])
    own = exchange_module.Units(np.array([0, 1, 0, 2, 3]), np.array([2, 1, 1, 1]), np.arange(4))
    fixed = np.zeros(4, bool)
    assert exchange_module.free_assignments(own, ends, fixed) == [(0, 2), (2, 4)]
    # Nor do those that hold a known label.
    fixed[1] = True
    assert exchange_module.free_assignments(own, ends, fixed) == [(2, 4)]


def test_a_matching_that_sweeps_do_not_leave_is_left():
    """Two ways to match are nearly as good: chains with permutations visit both."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 10)
    z = np.array([[2.0, 0.0], [0.0, 2.0]])
    data = {
        name: z[labels] @ rng.normal(size=(6, 2)).T + 0.3 * rng.normal(size=(20, 6))
        for name in "ab"
    }
    model = tiny_model(data=data, n_clusters=5)
    found = {}
    for permute in (False, True):
        steps = pmm.steps(model)
        for step in steps:
            if isinstance(step, pmm.FeatureGibbs) and not permute:
                step._exchanges.free = []
            elif isinstance(step, pmm.ClusterGibbs):
                step.n_split_merge = step.n_exchanges = 0
            step.setup_chain(np.random.default_rng(1), 0, 0)
            step.started = True
        point = dict(model.initial_point(0))
        point |= {"cluster_a": labels, "cluster_b": labels}
        matches = []
        for _ in range(600):
            for step in steps:
                point, _stats = step.step(point)
            matches.append(point["cluster_a"][0] == point["cluster_b"][0])
        found[permute] = np.abs(np.diff(np.array(matches, float))).sum()
    assert found[True] > 20, found
    assert found[False] < 0.2 * found[True], found
