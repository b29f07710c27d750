"""Aligning clusters: its table of values is the log joint's, and it finds the best of all."""

from itertools import permutations, product

import numpy as np
import pytest

import pm_match as pmm
from pm_match.networks import search as networks
from pm_match.networks.align import ABSENT, Mobile, Sums, alignments
from pm_match.networks.alone import clusters_alone, objects_of, parts_of
from pm_match.reading import read
from pm_match.search.chain import Chain
from pm_match.search.coarse import groups_of
from tests.declared.networks import (
    cluster_step,
    network_data,
    network_model,
    plain_log_joint,
    random_point,
)

MODELS = {
    "bipartite": {},
    "counts": {"family": "poisson", "exposure": True},
    "overdispersed counts": {"family": "negative-binomial", "exposure": True},
    "weights of edges": {"family": "normal", "unknown": True},
    "three-way": {"kind": "three-way"},
    "known weights": {"weights": "known"},
    "dirichlet": {"weights": "dirichlet"},
    "all relevant": {"relevance": False},
    "shared clusters": {"kind": "shared clusters"},
}


def chain_of(model, seed=0):
    rng = np.random.default_rng(seed)
    return Chain(model, pmm.steps(model), random_point(model, rng), rng)


def sums_of(chain):
    grouped = groups_of(chain, 0)
    return Sums(chain.components[0], grouped, chain.point), [own.label for own in grouped]


def of_objects(sums, labels):
    return [own[g.units.of_object] for own, g in zip(labels, sums.grouped, strict=True)]


@pytest.mark.parametrize("name", [*MODELS, "directed", "undirected"])
def test_sums_by_groups_give_the_log_joint(name):
    """But for what irrelevant objects add, which no alignment changes."""
    options = MODELS.get(name, {"kind": name})
    # A prior that does not care for the clusters' names, in whose best order sums are taken.
    model = network_model(**({"truncation": 4, "weights": "dirichlet"} | options))
    step = cluster_step(model)
    rng = np.random.default_rng(0)
    chain = chain_of(model, 2)
    sums, labels = sums_of(chain)
    found, expected = [], []
    for _ in range(6):
        trial = [own.copy() for own in labels]
        for c, own in enumerate(sums.grouped):
            for kind in np.unique(own.kind):
                name_of = rng.permutation(chain.components[0].clusterings[c].truncation)
                moved = (own.kind == kind) & (labels[c] >= 0)
                trial[c][moved] = name_of[labels[c][moved]]
        found.append(sums.log_joint(trial))
        expected.append(plain_log_joint(step, chain.point, of_objects(sums, trial)))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-8)
    assert np.ptp(expected) > 1e-2


@pytest.mark.parametrize("name", MODELS)
def test_values_are_differences_of_the_log_joint(name):
    """Of the declared one, for priors that are additive; of the evidence for broken sticks."""
    model = network_model(**({"truncation": 4} | MODELS[name]))
    step = cluster_step(model)
    n_compared = 0
    for seed in range(8):
        chain = chain_of(model, seed)
        sums, labels = sums_of(chain)
        for c, own in enumerate(sums.grouped):
            for kind in np.unique(own.kind):
                mobile = Mobile(c, int(kind))
                chosen = sums.members(mobile, labels)
                truncation = chain.components[0].clusterings[c].truncation
                if len(chosen) < 2 or len(chosen) > truncation:
                    continue
                values = sums.values(mobile, labels)
                rest = labels[c].copy()
                rest[chosen] = ABSENT
                if not chain.components[0].clusterings[c].finite:
                    values = values - sums._prior_values(c, rest, chosen)
                added, differences = [], []
                for to in list(permutations(range(truncation), len(chosen)))[:30]:
                    trial = [x.copy() for x in labels]
                    trial[c][chosen] = to
                    added.append(values[np.arange(len(chosen)), to].sum())
                    whole = plain_log_joint(step, chain.point, of_objects(sums, trial))
                    if not chain.components[0].clusterings[c].finite:
                        whole -= _log_priors(chain, sums, trial)
                    differences.append(whole)
                np.testing.assert_allclose(np.diff(added), np.diff(differences), atol=1e-8)
                n_compared += len(added)
    assert n_compared > 100


def _log_priors(chain, sums, labels):
    from tests.declared.plain import plain_log_prior

    return sum(
        plain_log_prior(*prior, sums.counts(c, labels[c])) for c, prior in enumerate(sums.priors)
    )


def test_values_for_broken_sticks_have_the_prior_of_the_process():
    """Adding groups one after the other multiplies the Dirichlet process' own factors."""
    from scipy.special import gammaln

    chain = chain_of(network_model(truncation=4, relevance=False), 1)
    sums, labels = sums_of(chain)
    chosen = sums.members(Mobile(0, 0), labels)
    rest = labels[0].copy()
    rest[chosen] = ABSENT
    counts, sizes = sums.counts(0, rest), sums.grouped[0].units.size[chosen]
    found = sums._prior_values(0, rest, chosen)
    for g, size in enumerate(sizes):
        for j, n in enumerate(counts):
            expected = gammaln(n + size) - gammaln(n) if n else np.log(1.4) + gammaln(size)
            assert found[g, j] == pytest.approx(expected)


def _exhaustive(sums, labels, mobile):
    """The best log joint of all labels of some kinds, no two of one kind the same."""
    choices = []
    for m in mobile:
        chosen = sums.members(m, labels)
        truncation = sums.component.clusterings[m.clustering].truncation
        choices.append([(m, chosen, to) for to in permutations(range(truncation), len(chosen))])
    best = -np.inf
    for combined in product(*choices):
        trial = [own.copy() for own in labels]
        for m, chosen, to in combined:
            trial[m.clustering][chosen] = to
        best = max(best, sums.log_joint(trial))
    return best


@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
@pytest.mark.parametrize("weights", ["stick-breaking", "dirichlet", "known"])
def test_aligning_reaches_the_best_of_all(kind, weights):
    rng = np.random.default_rng(0)
    data = {name: (rng.random((9, 9)) < 0.4).astype(float) for name in "ab"}
    if kind == "undirected":
        data = {name: np.triu(x, 1) + np.triu(x, 1).T for name, x in data.items()}
    elif kind == "directed":
        for x in data.values():
            np.fill_diagonal(x, 0.0)
    model = network_model(kind, data=data, truncation=4, weights=weights)
    parts = parts_of(read(model).components[0])
    assert len(parts) == 2
    mobile = networks._mobile(parts[1])
    for seed in range(4):
        chain = chain_of(model, seed)
        sums, labels = sums_of(chain)
        found, height = alignments(sums, labels, mobile, np.random.default_rng(seed), 400)[0]
        assert height == pytest.approx(sums.log_joint(found), abs=1e-9)
        assert height >= sums.log_joint(labels) - 1e-9
        if weights != "stick-breaking":
            # The prior of broken sticks is not additive: its best is aimed at, not promised.
            assert height == pytest.approx(_exhaustive(sums, labels, mobile), abs=1e-7)
        for c, own in enumerate(sums.grouped):
            fixed = (own.kind != 1) | (labels[c] == -1)
            np.testing.assert_array_equal(found[c][fixed], labels[c][fixed])


@pytest.mark.parametrize("kind", ["bipartite", "undirected"])
def test_networks_that_lack_clusters_are_aligned(kind):
    """Each lacks clusters that the other has: of all pairs, but few are right."""
    n_clusters, lacking = 8, 2
    for seed in range(3):
        rng = np.random.default_rng(seed)
        rates = rng.gamma(1.0, 1.0, (n_clusters, n_clusters))
        if kind == "undirected":
            rates = np.triu(rates) + np.triu(rates, 1).T
        data, truth = {}, {}
        for name, gone in (("a", range(lacking)), ("b", range(lacking, 2 * lacking))):
            present = np.setdiff1d(np.arange(n_clusters), gone)
            rows = rng.permutation(np.repeat(present, 12))
            columns = rows if kind == "undirected" else rng.permutation(np.repeat(present, 12))
            x = rng.poisson(rates[np.ix_(rows, columns)]).astype(float)
            if kind == "undirected":
                x = np.triu(x, 1) + np.triu(x, 1).T
            data[name], truth[name] = x, (rows, columns)
        model = network_model(kind, data=data, family="poisson", truncation=12, relevance=False)
        chain = chain_of(model, seed)
        n_types = len(chain.components[0].clusterings)
        chain.place(0, [np.concatenate([own[t] for own in truth.values()]) for t in range(n_types)])
        sums, labels = sums_of(chain)
        mobile = networks._mobile(parts_of(chain.components[0])[1])
        unknown = [
            np.where([Mobile(c, int(k)) in mobile for k in own.kind], ABSENT, own.label)
            for c, own in enumerate(sums.grouped)
        ]
        _, found = alignments(sums, unknown, mobile, rng, 300)[0]
        assert found > sums.log_joint(labels) - 1e-6


def test_parts_are_what_networks_connect():
    component = read(network_model()).components[0]
    parts = parts_of(component)
    assert [part.networks for part in parts] == [[["a"]], [["b"]]]
    assert [[list(own) for own in part.assignments] for part in parts] == [
        [[0], [0]],
        [[1], [1]],
    ]
    rows, columns = objects_of(component, parts[1])
    np.testing.assert_array_equal(rows, [3, 4])
    np.testing.assert_array_equal(columns, [2, 3])


@pytest.mark.parametrize("kind", ["bipartite", "undirected", "three-way"])
def test_clusters_alone_are_found(kind):
    """Blocks that anyone can see, with the other network of no use."""
    rng = np.random.default_rng(1)
    density = np.array([[0.95, 0.05], [0.1, 0.9]])
    if kind == "three-way":
        density = np.stack([density, 1.0 - density])
    elif kind == "undirected":
        density = np.array([[0.95, 0.05], [0.05, 0.05]])
    truth = np.repeat([0, 1], 10)
    data = {}
    for name in "ab":
        x = (rng.random((20,) * density.ndim) < density[np.ix_(*[truth] * density.ndim)]) * 1.0
        if kind == "undirected":
            x = np.triu(x, 1) + np.triu(x, 1).T
        data[name] = x
    model = network_model(kind, data=data, truncation=4)
    component = read(model).components[0]
    (part, _) = parts_of(component)
    # A short run may end elsewhere; not one of three.
    agreed = [
        min(
            pmm.metrics.adjusted_rand_index({"a": truth}, {"a": labels})
            for labels in clusters_alone(model, component, part, model.initial_point(0), rng)
        )
        for _ in range(3)
    ]
    assert max(agreed) > 0.85


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "bipartite"},
        {"kind": "bipartite", "relevance": "rows"},
        {"kind": "bipartite", "relevance": False, "linked": True},
        {"kind": "bipartite", "weights": "known", "family": "poisson", "exposure": True},
        {"kind": "three-way", "family": "normal"},
        {"kind": "directed"},
        {"kind": "undirected", "unknown": True},
        pytest.param({"kind": "shared clusters", "weights": "dirichlet"}, marks=pytest.mark.slow),
        pytest.param({"kind": "bipartite", "relations": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_every_model_of_networks_is_searched(options):
    """Clusters that the networks have more of, each alone, than the truncation has."""
    model = network_model(**({"truncation": 2, "hyperpriors": True} | options))
    chain = chain_of(model)
    before = chain.log_joint()
    found = networks.search(chain, 0, np.random.default_rng(0))
    assert found == pytest.approx(chain.log_joint(), abs=1e-9)
    assert found > before - 1e-6
    for own, labels in zip(chain.collapsed(0).units, chain.labels(0), strict=True):
        np.testing.assert_array_equal(labels, labels[own.first[own.of_object]])


def planted(n_networks):
    """Networks of the same five clusters in another order, well apart, and these clusters."""
    rng = np.random.default_rng(0)
    density = rng.beta(0.5, 0.5, (5, 5))
    data, truth = {}, {}
    for name in "abc"[:n_networks]:
        rows, columns = (rng.permutation(np.repeat(np.arange(5), 12)) for _ in range(2))
        data[name] = (rng.random((60, 60)) < density[np.ix_(rows, columns)]).astype(float)
        truth[name] = rows, columns
    return data, truth


@pytest.mark.parametrize("kind", ["bipartite", "three-way"])
def test_alignments_are_listed_once_the_best_first(kind):
    chain = chain_of(network_model(kind=kind))
    sums, labels = sums_of(chain)
    (first, *_) = parts_of(chain.components[0])
    mobile = [Mobile(c, int(k)) for c, own in enumerate(first.assignments) for k in own]
    found = alignments(sums, labels, mobile, np.random.default_rng(0), 40)
    heights = [height for _, height in found]
    assert heights == sorted(heights, reverse=True)
    assert len({tuple(np.concatenate(own)) for own, _ in found}) == len(found) > 1
    assert sum(own is labels for own, _ in found) == 1
    for own, height in found:
        assert height == pytest.approx(sums.log_joint(own), abs=1e-9)


def test_objects_stay_apart_while_others_are_matched(monkeypatch):
    """The labels that are tried have objects together that cannot be: they are parted first."""
    data, truth = planted(2)
    rows = {name: [int(np.flatnonzero(truth[name][0] == k)[0]) for k in (0, 1)] for name in data}
    with pmm.models.relational_clusters(data, n_clusters=7, relevance=False) as model:
        pmm.cannot_link("apart", {f"cluster_{name}_row": own for name, own in rows.items()})
    chain = Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))
    tried = []
    together = [np.concatenate([truth[name][c] for name in data]) for c in range(2)]

    def others(sums, labels, *_):
        chain.place(0, [np.arange(len(own)) % 7 for own in together])
        tried.append([own[g.units.first] for own, g in zip(together, sums.grouped, strict=True)])
        return [(tried[-1], 0.0)]

    monkeypatch.setattr(networks, "alignments", others)
    parts = parts_of(chain.components[0])
    chain.place(0, together)
    networks.rematch(chain, 0, parts, np.random.default_rng(0))
    assert tried
    a, b = np.split(chain.labels(0)[0], 2)
    assert (a[rows["a"]] != b[rows["b"]]).all()


def test_alignments_after_the_best_are_followed_too(monkeypatch):
    """The best of them is where the chain is; one that is worse as it stands settles higher."""
    data, truth = planted(2)
    model = network_model(data=data, truncation=9, hyperpriors=True)
    right = [np.concatenate([truth[name][c] for name in data]) for c in range(2)]
    # In the second network, rows of two true clusters are in one, and columns are turned.
    wrong = [own.copy() for own in right]
    wrong[1][60:] = np.roll(np.arange(5), 1)[wrong[1][60:]]
    wrong[0][60:][wrong[0][60:] == 3] = 2
    near = [wrong[0].copy(), right[1]]
    chain, reached = chain_of(model), []
    chain.place(0, wrong)

    def others(sums, labels, *_):
        units = [own.units for own in sums.grouped]
        reached.append([own[u.first] for own, u in zip(near, units, strict=True)])
        return [(labels, 0.0), (reached[-1], -1.0)]

    monkeypatch.setattr(networks, "alignments", others)
    before = chain.log_joint()
    networks.rematch(chain, 0, parts_of(chain.components[0]), np.random.default_rng(0))
    assert reached
    assert chain.log_joint() > before + 100.0
    found = dict(zip(data, np.split(chain.labels(0)[1], 2), strict=True))
    assert (
        pmm.metrics.matching_adjusted_rand_index(
            {name: own[1] for name, own in truth.items()}, found
        )
        > 0.9
    )
    # A worse one is not taken.
    best = chain.log_joint()
    near[:] = wrong
    monkeypatch.setattr(networks, "tried", lambda *_: -np.inf)
    networks.rematch(chain, 0, parts_of(chain.components[0]), np.random.default_rng(0))
    assert chain.log_joint() == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("n_networks", [2, 3])
def test_a_matching_is_found_that_chains_do_not_find(n_networks):
    data, truth = planted(n_networks)
    model = network_model(data=data, truncation=9, hyperpriors=True)
    best = max(
        (networks.search(chain, 0, chain.rng), seed, chain.labels(0))
        for seed in range(2)
        for chain in [chain_of(model, seed)]
    )[2]
    for number in range(2):
        found = dict(zip(data, np.split(best[number], n_networks), strict=True))
        own = {name: labels[number] for name, labels in truth.items()}
        assert pmm.metrics.matching_adjusted_rand_index(own, found) > 0.9


@pytest.mark.parametrize("rises", [[0.5], [40.0, 2.0, 0.0], [40.0] * 9])
def test_clusters_are_taken_apart_as_long_as_that_pays(rises, monkeypatch):
    chain, made = chain_of(network_model()), iter(rises)
    monkeypatch.setattr(networks, "shake", lambda *_: next(made))
    networks.search(chain, 0, np.random.default_rng(0))
    assert len(list(made)) == (len(rises) - networks._SHAKINGS if len(rises) > 3 else 0)


def test_the_truncation_is_kept_to():
    data = network_data(seed=3)
    model = network_model(data=data, truncation=2, relevance=False)
    chain = chain_of(model)
    labels = networks.first_matching(
        chain, 0, parts_of(chain.components[0]), np.random.default_rng(0)
    )
    for own, clustering in zip(labels, chain.components[0].clusterings, strict=True):
        assert own.min() >= 0
        assert own.max() < clustering.truncation
