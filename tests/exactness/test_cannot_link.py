"""Objects that cannot be linked: the law of labels against every assignment that keeps them apart.

The pairs are those that the tests declare, held against enumerated labels: nothing is known of what
has been read.
"""

from itertools import product

import numpy as np
import pandas as pd
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

import pm_match as pmm
from pm_match import testing
from pm_match.reading import read
from tests.declared import any_likelihood, columns
from tests.declared.features import Kind, feature_model
from tests.declared.networks import network_data, network_model
from tests.declared.plain import sampling_noise, tiny_model, total_variation
from tests.exactness.moves import MOVES

FEW = {"a": network_data()["a"][:2], "b": network_data()["b"][:, :1]}
NUMBERS = {
    name: pd.DataFrame(np.random.default_rng(seed).normal(size=(2, 2)), columns=["u", "v"])
    for seed, name in enumerate("ab")
}
# A model, what is declared apart, and the same as pairs of (clustering, object, object).
MODELS = {
    "features": (
        tiny_model,
        [{"cluster_a": [0, 1], "cluster_b": [1, 0]}],
        [(0, 0, 4), (0, 1, 3)],
    ),
    "networks": (
        lambda: network_model(relevance=False, data=FEW),
        [{"cluster_a_0": [0], "cluster_b_0": [1]}, {"cluster_a_1": [[0, 1]]}],
        None,
    ),
    "columns": (
        lambda: columns.declared("poisson", n=(3, 3), links=True),
        [{"cluster_a": [2], "cluster_b": [1]}, {"cluster_a": [[0, 2]]}],
        [(0, 2, 4), (0, 0, 2)],
    ),
    "within and across": (
        lambda: columns.declared("normal, known noise", n=(3, 2)),
        [{"cluster_b": [[0, 1]]}, {"cluster_a": [2], "cluster_b": [0]}],
        [(0, 3, 4), (0, 2, 3)],
    ),
    "any likelihood": (
        lambda: any_likelihood.two_domains(linked=False),
        [{"cluster_a": [0], "cluster_b": [0]}],
        None,
    ),
    "correlated": (
        lambda: pmm.models.mixture(NUMBERS, n_clusters=3, correlated=True),
        [{"cluster_a": [[0, 1]]}, {"cluster_b": [[0, 1]]}],
        None,
    ),
    "correlated, across too": (
        lambda: pmm.models.mixture(NUMBERS, n_clusters=3, correlated=True),
        [
            {"cluster_a": [[0, 1]]},
            {"cluster_b": [[0, 1]]},
            {"cluster_a": [0], "cluster_b": [0]},
        ],
        None,
    ),
}
QUICK = (("within and across", "everything"), ("features", "exchange"))
# Moves of one sort do not lead to all assignments; of two labels and two objects, only swaps do.
ONLY_EVERYTHING = ("networks", "correlated", "correlated, across too")
# Alone, it cannot part two objects that are kept from two others: the law is that of the rest.
OF_A_PART = {("features", "split and merge")}


def declared(case):
    declare, constraints, _ = MODELS[case]
    model = declare()
    with model:
        for number, own in enumerate(constraints):
            pmm.cannot_link(f"apart_{number}", own)
    return model


def pairs_of(case, state):
    """What is apart, by clustering and object: as written, or found by the assignments' names."""
    _, constraints, pairs = MODELS[case]
    if pairs is not None:
        return pairs
    found = []
    for number, clustering in enumerate(state.component.clusterings):
        for own in constraints:
            if not set(own) <= set(clustering.slices):
                continue
            if len(own) == 1:
                ((name, groups),) = own.items()
                start = clustering.slices[name].start
                found += [(number, start + one, start + two) for one, two in groups]
            else:
                (a, one), (b, two) = own.items()
                start = clustering.slices[a].start, clustering.slices[b].start
                found += [
                    (number, start[0] + i, start[1] + j) for i, j in zip(one, two, strict=True)
                ]
    return found


def law_of(case, state, point):
    """Every assignment of units that keeps apart what is to be, and its probability."""
    pairs = pairs_of(case, state)
    ends = np.cumsum([len(own.size) for own in state.units])[:-1]
    choices = [range(len(p.counts)) for p in state.partitions for _ in p.label]
    states, logs = [], []
    for units in product(*choices):
        parts = np.split(np.array(units), ends)
        labels = [part[own.of_object] for part, own in zip(parts, state.units, strict=True)]
        if all(labels[number][i] != labels[number][j] for number, i, j in pairs):
            states.append(np.array(units))
            logs.append(testing.plain_log_joint(state, point, labels))
    return states, np.exp(np.array(logs) - logsumexp(logs))


def visits(state, states, move, n):
    place = {units.tobytes(): k for k, units in enumerate(states)}
    counts, rng = np.zeros(len(states)), np.random.default_rng(2)
    for _ in range(n):
        move(state, rng)
        units = np.concatenate([partition.label for partition in state.partitions])
        counts[place[units.tobytes()]] += 1
    return counts


def sweeps(state, rng):
    state.sweep(rng)


@pytest.mark.parametrize(
    ("case", "move"),
    [
        one if one in QUICK else pytest.param(*one, marks=pytest.mark.slow)
        for one in product(MODELS, (*MOVES, "sweeps"))
        if one[1] == "everything" or one[0] not in ONLY_EVERYTHING
    ],
)
def test_law_of_labels(case, move):
    if case == "any likelihood" and move == "everything":
        pytest.skip("a swap of labels takes their parameters along")
    model = declared(case)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, np.random.default_rng(5), state)
    state.load(point, state.labels(point))
    assert state.log_joint() > -np.inf
    states, law = law_of(case, state, point)
    assert len(states) < np.prod([float(len(p.counts)) for p in state.partitions for _ in p.label])
    n = 40_000
    counts = visits(state, states, (MOVES | {"sweeps": sweeps})[move], n)
    if (case, move) in OF_A_PART:
        reached = counts > 0
        assert 0.3 < law[reached].sum() < 0.7
        counts, law = counts[reached], law[reached] / law[reached].sum()
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n)


@pytest.mark.parametrize("case", ["correlated", "correlated, across too"])
def test_exchanges_alone_have_the_law_where_all_of_a_domain_are_apart(case):
    """Two units that exchange their labels meet on the way, where they are moved one by one.

    One exchange each, from independent draws of the law.
    """
    model = declared(case)
    state, rng = testing.collapsed_of(model), np.random.default_rng(2)
    point = testing.random_point(model, np.random.default_rng(5), state)
    state.load(point, [np.array([0, 1, 1, 0])])
    states, law = law_of(case, state, point)
    n = 20_000
    starts, exchanged = iter(rng.choice(len(states), n, p=law)), []

    def one_exchange(state, rng):
        before = states[next(starts)]
        state.load(point, [before])
        state.exchange(rng, 1)
        after = state.partitions[0].label
        exchanged.append((after != before).sum() == 2 and set(after) == set(before))

    counts = visits(state, states, one_exchange, n)
    assert np.mean(exchanged) > 0.005
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n)


def test_the_check_can_fail():
    """Without the constraint, a chain is soon where it must not be."""
    case = "within and across"
    model = declared(case)
    component = read(model).components[0]
    (clustering,) = component.clusterings
    object.__setattr__(clustering, "apart", clustering.apart[:0])
    state = testing.Collapsed(model, component)
    point = testing.random_point(model, np.random.default_rng(5), state)
    state.load(point, state.labels(point))
    states, _ = law_of(case, state, point)
    with pytest.raises(KeyError):
        visits(state, states, sweeps, 1000)


MEANS, X = np.array([-0.6, 0.0, 0.6]), np.array([0.3, -0.8, 0.2, 0.9])


def test_draws_of_sample_have_the_law_of_the_declared_model():
    # Written apart from all that the package reads: Dirichlet-multinomial, and normal densities.
    alpha, pairs = np.array([0.5, 1.0, 2.0]), [(0, 2), (1, 3), (0, 3)]
    states, logs = [], []
    for state in product(range(3), repeat=4):
        labels = np.array(state)
        if any(labels[i] == labels[j] for i, j in pairs):
            continue
        counts = np.bincount(labels, minlength=3)
        states.append(state)
        logs.append(gammaln(alpha + counts).sum() + norm.logpdf(X, MEANS[labels], 0.9).sum())
    law = np.exp(logs - np.max(logs))
    law /= law.sum()
    with pm.Model():
        weights = pm.Dirichlet("weights", alpha)
        a = pm.Categorical("cluster_a", p=weights, shape=2)
        b = pm.Categorical("cluster_b", p=weights, shape=2)
        mean = pm.math.stack([*MEANS])
        pm.Normal("x", mean[a], 0.9, observed=X[:2])
        pm.Normal("y", mean[b], 0.9, observed=X[2:])
        pmm.cannot_link("apart", {"cluster_a": [0, 1, 0], "cluster_b": [0, 1, 1]})
        idata = pmm.sample(
            5_000, tune=100, chains=2, cores=1, random_seed=3, progressbar=False, quiet=True
        )
    draws = [idata["posterior"][f"cluster_{name}"].to_numpy().reshape(-1, 2) for name in "ab"]
    place = {state: k for k, state in enumerate(states)}
    counts = np.zeros(len(states))
    for own in np.concatenate(draws, axis=1).tolist():
        counts[place[tuple(own)]] += 1
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, counts.sum())


def test_what_integrates_projections_out_exchanges_no_labels_of_what_is_apart():
    model = feature_model(Kind(intercept=False))
    before = pmm.FeatureGibbs([model["projection_a"]], model=model)
    assert before._exchanges.free == ["cluster_a", "cluster_b"]
    with model:
        pmm.cannot_link("inside", {"cluster_a": [[0, 1]]})
    inside = pmm.FeatureGibbs([model["projection_a"]], model=model)
    assert inside._exchanges.free == ["cluster_a", "cluster_b"]
    with model:
        pmm.cannot_link("across", {"cluster_a": [0], "cluster_b": [1]})
    after = pmm.FeatureGibbs([model["projection_a"]], model=model)
    assert after._exchanges.free == []
