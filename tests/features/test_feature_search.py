"""The search for feature vectors: its score is the model's, and it finds what enumeration finds."""

import warnings
from itertools import permutations, product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import ImputationWarning
from scipy.optimize import minimize

import pm_match as pmm
from pm_match.clusters.units import units
from pm_match.features.emission import Emission
from pm_match.features.feature_sums import ClusterSums
from pm_match.features.parts import Features
from pm_match.features.projected_normal import log_marginal
from pm_match.features.projection import ProjectionObjective
from pm_match.features.search.feature_problem import FeatureProblem
from pm_match.features.search.group_moves import merges, moves, permute, swaps
from pm_match.features.search.one_domain import clusters_alone
from pm_match.features.search.plain import find_mode, problem_of, search, spread_evenly
from pm_match.numerics.masked import MaskedTable
from pm_match.numerics.stick_breaking import known_sticks
from pm_match.reading import read
from pm_match.search.chain import Chain
from tests.declared.plain import plain_log_prior, tiny_data, tiny_model
from tests.features.objective import depth

NO_LINKS = np.zeros((0, 2), np.int64)


def as_data(table):
    values = np.asarray(table, float)
    known = ~np.isnan(values)
    return MaskedTable(np.where(known, values, 0.0), None if known.all() else known)


def problem_about(tables, n_factors=2, truncation=4, links=NO_LINKS, sticks=None):
    domains = tuple(map(as_data, tables))
    n_objects = sum(len(domain.values) for domain in domains)
    a, b = sticks or (np.ones(truncation - 1), np.full(truncation - 1, 1.4))
    return FeatureProblem(domains, units(n_objects, links), n_factors, 2.0, 1.5, 0.6, a, b)


def clustered(rng, missing=0.0, sizes=(12, 9), n_features=(4, 5), n_clusters=3, noise=0.4):
    latent = rng.normal(size=(n_clusters, 2))
    tables, labels = [], []
    for n, m in zip(sizes, n_features, strict=True):
        label = np.arange(n) % n_clusters
        table = latent[label] @ rng.normal(size=(2, m)) + noise * rng.normal(size=(n, m))
        table[rng.random(table.shape) < missing] = np.nan
        table[:, 0] = np.nan_to_num(table[:, 0])
        tables.append(table)
        labels.append(label)
    return tables, np.concatenate(labels)


def best_projection(problem, labels, rng, starts=8):
    """The maximum by a general optimiser from random starts, over all features."""
    sums = [
        ClusterSums.of(data, own, problem.truncation)
        for data, own in zip(
            problem.domains, problem.split(labels[problem.units.of_object]), strict=True
        )
    ]
    widths = [domain.values.shape[1] for domain in problem.domains]
    objective = ProjectionObjective(
        sums,
        [Emission.of_projection(np.zeros((m, problem.n_factors))) for m in widths],
        problem.latent_precision,
        problem.n_factors,
        (problem.shape, problem.rate),
    )
    n_features = sum(widths)
    ends = np.cumsum([domain.values.shape[1] for domain in problem.domains])[:-1]
    found = []
    for _ in range(starts):
        start = 0.3 * rng.normal(size=n_features * problem.n_factors)
        end = minimize(depth(objective), start, jac=True, method="BFGS", options={"gtol": 1e-7})
        w = np.split(end.x.reshape(n_features, -1), ends)
        found.append(problem.log_evidence(labels, w))
    return max(found)


def best_prior(problem, labels):
    """Log p(s) by the plain formula, in the best order of labels."""
    counts = np.bincount(labels, problem.units.size, minlength=problem.truncation)
    orders = permutations(counts.tolist())
    return max(plain_log_prior(problem.a, problem.b, np.array(order)) for order in orders)


@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_log_evidence_is_the_plain_formula(missing):
    rng = np.random.default_rng(1)
    tables, labels = clustered(rng, missing)
    problem = problem_about(tables)
    w = [rng.normal(size=(m, 2)) for m in (4, 5)]
    emissions = [Emission.of_projection(own) for own in w]
    plain = log_marginal(problem.domains, emissions, labels, 0.6, (2.0, 1.5))
    np.testing.assert_allclose(problem.log_evidence(labels, w), plain, rtol=1e-12)


@pytest.mark.parametrize("n_factors", [1, 2, 3])
@pytest.mark.parametrize("missing", [0.0, 0.25])
def test_score_is_the_maximum_over_projections(missing, n_factors):
    rng = np.random.default_rng([2, n_factors])
    tables, labels = clustered(rng, missing)
    problem = problem_about(tables, n_factors)
    value, projections = problem.fit(labels)
    # The value is that of the projections that come with it, ...
    np.testing.assert_allclose(
        value, problem.log_evidence(labels, projections) + best_prior(problem, labels), rtol=1e-10
    )
    # ... and none are better.
    best = best_projection(problem, labels, rng)
    np.testing.assert_allclose(problem.log_evidence(labels, projections), best, atol=5e-3)


def test_reduced_rows_lose_nothing():
    rng = np.random.default_rng(3)
    tables, labels = clustered(rng, n_features=(30, 40))
    problem = problem_about(tables)
    grouped = problem.grouped(labels)
    assert grouped.sums.shape[1] == 6
    # The same data with its patterns of missing values declared, so that no row is left out.
    whole = problem.with_data(
        [MaskedTable(d.values, np.ones(d.values.shape, bool)) for d in problem.domains]
    )
    assert whole.grouped(labels).sums.shape[1] == 70
    np.testing.assert_allclose(problem.fit(labels)[0], whole.fit(labels)[0], rtol=1e-9)


def test_scores_given_up_are_below_what_they_had_to_reach():
    rng = np.random.default_rng(4)
    tables, labels = clustered(rng)
    grouped = problem_about(tables).grouped(labels)
    proposals = np.concatenate(
        [
            grouped.label[None],
            swaps([grouped.home == 0, grouped.home == 1], grouped.label, 4),
            moves(grouped.label, 4),
            merges(grouped.label),
        ]
    )
    exact = grouped.score(proposals)
    quick = grouped.score(proposals, 0.0)
    assert (quick <= exact + 1e-9).all()
    # What beats all before it is scored in full, or nearly so.
    records = exact >= np.maximum.accumulate(exact)
    np.testing.assert_allclose(quick[records], exact[records], atol=1e-3)


def test_proposals_are_all_there():
    home, labels = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2])
    found = {tuple(row) for row in swaps([home == 1], labels, 5)}
    assert found == {
        (0, 1, 1, 2), (0, 1, 2, 0), (0, 1, 0, 1), (0, 1, 3, 2), (0, 1, 0, 3),
    }  # fmt: skip
    assert len(moves(labels, 5)) == 4 * 3
    assert {tuple(row) for row in merges(labels)} == {(0, 0, 0, 2), (0, 1, 0, 0), (0, 1, 0, 1)}
    # No label is free.
    assert swaps([home == 1], labels, 3).max() == 2


@pytest.mark.parametrize("n_clusters", [4, 8])
def test_permute_finds_the_matching(n_clusters):
    rng = np.random.default_rng(5)
    latent = rng.normal(size=(n_clusters, 3))
    label = np.arange(5 * n_clusters) % n_clusters
    tables = [
        latent[label] @ rng.normal(size=(3, 30)) + 0.1 * rng.normal(size=(len(label), 30))
        for _ in range(2)
    ]
    problem = problem_about(tables, 3, 12)
    shuffled = np.concatenate([label, rng.permutation(n_clusters)[label]])
    grouped = problem.grouped(shuffled)
    found, scores = permute(rng, grouped, grouped.home == 1, grouped.label, 12)
    together = found[0][grouped.of_unit]
    assert np.array_equal(together[: len(label)], together[len(label) :])
    np.testing.assert_allclose(scores[0], problem.fit(together)[0], atol=1e-6)


def every_partition(n_units, truncation):
    """Every assignment, one for each partition."""

    def grow(start):
        if len(start) == n_units:
            yield start
            return
        for label in range(min(max(start, default=-1) + 2, truncation)):
            yield from grow((*start, label))

    return [np.array(labels) for labels in grow(())]


@pytest.mark.parametrize("case", ["plain", "missing", "linked"])
def test_no_partition_of_a_tiny_problem_is_better(case):
    data = tiny_data(case == "missing", (4, 3), (3, 3), seed=2)
    links = np.array([[0, 4], [2, 5]]) if case == "linked" else NO_LINKS
    problem = problem_about(data.values(), 1, 3, links)
    best = max(problem.fit(labels)[0] for labels in every_partition(len(problem.units.size), 3))
    found = max(find_mode(problem, np.random.default_rng(seed)).log_joint for seed in range(3))
    np.testing.assert_allclose(found, best, atol=1e-2)


def test_no_permutations_of_three_domains_are_better():
    rng = np.random.default_rng(6)
    tables, labels = clustered(rng, sizes=(9, 9, 9), n_features=(4, 5, 6))
    problem = problem_about(tables, truncation=5)
    mode = find_mode(problem, rng)
    orders = [np.array(o) for o in product(range(3), repeat=3) if len(set(o)) == 3]
    first, second, third = problem.split(labels)
    best = max(
        problem.fit(np.concatenate([first, one[second], two[third]]))[0]
        for one in orders
        for two in orders
    )
    assert mode.log_joint >= best - 1e-3
    np.testing.assert_allclose(
        mode.log_joint, problem.fit(np.concatenate(mode.labels))[0], atol=1e-6
    )


def test_the_largest_cluster_has_the_heaviest_label():
    rng = np.random.default_rng(7)
    shrinking = problem_about(clustered(rng)[0], truncation=8)
    # Known weights that grow with the label.
    sticks = known_sticks(np.array([0.1, 0.2, 0.3, 0.4]))
    growing = problem_about(clustered(rng)[0], sticks=sticks)
    labels = np.repeat([2, 0, 1], [11, 7, 3])
    assert shrinking.in_order(labels).tolist() == np.repeat([0, 1, 2], [11, 7, 3]).tolist()
    assert growing.in_order(labels).tolist() == np.repeat([3, 2, 1], [11, 7, 3]).tolist()
    value, projections = growing.fit(labels)
    np.testing.assert_allclose(
        value - growing.log_evidence(labels, projections),
        11 * np.log(0.4) + 7 * np.log(0.3) + 3 * np.log(0.2),
        rtol=1e-9,
    )


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_synthetic_clusters_are_found_and_matched(missing):
    domains = pmm.datasets.synthetic(random_seed=11, missing=missing)
    truth = pmm.datasets.true_labels(domains)
    problem = problem_about(domains.values(), 5, 15)
    mode = find_mode(problem, np.random.default_rng(0))
    found = dict(zip(domains, mode.labels, strict=True))
    assert pmm.metrics.adjusted_rand_index(truth, found) > 0.98
    true = problem.fit(np.unique(np.concatenate(list(truth.values())), return_inverse=True)[1])[0]
    assert mode.log_joint > true - 1e-3


def test_links_are_kept_and_used():
    # Permuted copies of one cloud: nothing but the links says which cluster is which.
    rng = np.random.default_rng(8)
    label = np.repeat([0, 1, 2], 10)
    tables = [
        4 * np.eye(3)[order][label] + 0.2 * rng.normal(size=(30, 3))
        for order in (np.array([0, 1, 2]), np.array([1, 2, 0]))
    ]
    links = np.array([[0, 30 + 0], [1, 30 + 1], [10, 30 + 10], [20, 30 + 20], [29, 30 + 29]])
    problem = problem_about(tables, 3, 6, links)
    first, second = find_mode(problem, np.random.default_rng(0)).labels
    assert np.array_equal(first, second)
    assert len(np.unique(first)) == 3


def test_a_domain_with_more_clusters_than_the_first_guess():
    rng = np.random.default_rng(9)
    label = np.arange(120) % 15
    table = 10 * rng.normal(size=(15, 6))[label] + 0.1 * rng.normal(size=(120, 6))
    problem = problem_about([table], 6, 25)
    found = clusters_alone(problem, rng)
    assert pmm.metrics.adjusted_rand_index({"a": label}, {"a": found}) > 0.95


def test_the_seed_reproduces():
    problem = problem_about(clustered(np.random.default_rng(10))[0])
    one, two = (find_mode(problem, np.random.default_rng(3)) for _ in range(2))
    assert one.log_joint == two.log_joint
    for x, y in zip(one.projections + one.labels, two.projections + two.labels, strict=True):
        assert np.array_equal(x, y)


def chain_of(model):
    return Chain(model, pmm.steps(model), model.initial_point(0), np.random.default_rng(0))


@pytest.mark.parametrize("projection", ["map", "normal"])
def test_search_brings_a_chain_to_its_mode(projection):
    data = dict(zip("ab", clustered(np.random.default_rng(12), 0.1)[0], strict=True))
    chain = chain_of(tiny_model(data=data, n_clusters=5, projection=projection, linked=True))
    went_on = []
    run, chain.run = chain.run, went_on.append
    search(chain, 0, np.random.default_rng(0))
    (component,) = read(chain.model).components
    (clustering,), (features,) = component.clusterings, component.of(Features)
    problem, _, _ = problem_of(clustering, features, chain.point)
    mode = find_mode(problem, np.random.default_rng(0))
    (labels,) = chain.labels(0)
    assert np.array_equal(labels, np.concatenate(mode.labels))
    projections = mode.projections
    if projection == "normal":
        projections = spread_evenly(projections, [np.ones(w.shape) for w in projections])
    for name, w in zip("ab", projections, strict=True):
        np.testing.assert_allclose(chain.point[f"projection_{name}"], w)
    assert np.array_equal(labels[clustering.links[:, 0]], labels[clustering.links[:, 1]])
    # What was integrated out is drawn anew, by steps that take the point as it is.
    assert went_on == [1]
    run(1)
    assert np.isfinite(chain.log_joint())


def test_projections_spread_evenly_fit_as_well():
    rng = np.random.default_rng(14)
    w = [rng.normal(size=(m, 3)) @ np.diag([3.0, 0.2, 0.0]) for m in (6, 9)]
    width = [0.5, 2.0]
    turned = spread_evenly(w, [np.full(x.shape, s**-2) for x, s in zip(w, width, strict=True)])
    whole, before = np.concatenate(turned), np.concatenate(w)
    linear = np.linalg.lstsq(before, whole, rcond=None)[0]
    np.testing.assert_allclose(before @ linear, whole, atol=1e-12)
    assert np.linalg.matrix_rank(whole) == 2
    scaled = np.concatenate([x / s for x, s in zip(turned, width, strict=True)])
    np.testing.assert_allclose(
        np.linalg.eigvalsh(scaled.T @ scaled / 15), [0.0, 1.0, 1.0], atol=1e-12
    )


@pytest.mark.parametrize("n_factors", [3, 5])
def test_chains_with_normal_projections_stay_where_they_were_searched_to(n_factors):
    """With as many factors as clusters, where another matching fits as well, they come back."""
    domains = pmm.datasets.synthetic(100, 40, n_factors=n_factors, random_seed=1)
    true = pmm.datasets.true_labels(domains)
    model = pmm.models.projected_clusters(domains, n_factors=n_factors, projection="normal")
    chain = chain_of(model)
    search(chain, 0, np.random.default_rng(0))
    found = []
    for _ in range(1 if n_factors == 3 else 4):
        chain.run(10)
        labels = dict(zip("ab", np.split(chain.labels(0)[0], 2), strict=True))
        found.append(pmm.metrics.matching_adjusted_rand_index(true, labels))
    assert max(found) > 0.8


def test_free_hyperparameters_follow():
    tables = clustered(np.random.default_rng(13))[0]
    with pm.Model() as model:
        concentration = pm.Gamma("concentration", 2.0, 2.0)
        weights = pm.StickBreakingWeights("weights", concentration, K=5)
        precision = pm.Gamma("precision", 1.0, 1.0)
        latent = pm.Normal("latent", 0.0, tau=precision, shape=(6, 2))
        for name, table in zip("ab", tables, strict=True):
            cluster = pm.Categorical(f"cluster_{name}", weights, shape=len(table))
            w = pm.Flat(f"w_{name}", shape=(table.shape[1], 2))
            pm.Normal(name, latent[cluster] @ w.T, tau=precision, observed=table)
    chain = chain_of(model)
    start = chain.point["concentration_log__"]
    search(chain, 0, np.random.default_rng(0))
    assert chain.point["concentration_log__"] != start
    assert len(np.unique(chain.labels(0)[0])) > 1


def test_constant_intercepts_and_scales_of_noise_are_taken_into_account():
    """The problem is that of whitened data, and projections are those of the data."""
    tables = clustered(np.random.default_rng(13), missing=0.1)[0]
    shift, scales = [2.0, -1.0], [np.linspace(0.5, 2.0, 4), np.linspace(1.0, 3.0, 5)]
    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), K=5)
        precision = pm.Gamma("precision", np.float64(1.0), np.float64(1.0))
        latent = pm.Normal("latent", 0.0, tau=precision, shape=(6, 2))
        for name, table, a, own in zip("ab", tables, shift, scales, strict=True):
            cluster = pm.Categorical(f"cluster_{name}", weights, shape=len(table))
            w = pm.Flat(f"w_{name}", shape=(table.shape[1], 2))
            mean, sigma = latent[cluster] @ w.T + a, own / pt.sqrt(precision)
            pm.Normal(name, mean, sigma, observed=table * own + a)
    component = read(model).components[0]
    (features,) = component.of(Features)
    assert features.only_projections
    assert not features.standard
    chain = chain_of(model)
    problem, _, _ = problem_of(component.clusterings[0], features, chain.point)
    for own, table in zip(problem.domains, tables, strict=True):
        np.testing.assert_allclose(own.values, np.nan_to_num(table), atol=1e-12)
    search(chain, 0, np.random.default_rng(0))
    labels = chain.labels(0)[0]
    emissions = features.setting(chain.point).emissions
    value, fitted = problem.fit(labels)
    assert value > find_mode(problem, np.random.default_rng(1)).log_joint - 2.0
    now = problem.log_evidence(labels, [e.whitened_projection() for e in emissions])
    assert now > problem.log_evidence(labels, fitted) - 1.0


def test_a_search_ends_where_rounding_leaves_nothing_of_a_fit():
    """Of a column far from zero that is missing in part: it went on for ever."""
    rng = np.random.default_rng(6)
    table = rng.normal(size=(8, 4))
    table[:, 3] = 1e12 + 3e9 * table[:, 3]
    table[:2, 3] = np.nan
    problem = problem_about([table], n_factors=4, truncation=24)
    groups = problem.grouped(np.arange(8))
    scores = groups.score(merges(groups.label))
    assert np.isneginf(scores).any()
    assert not np.isnan(scores).any()
    assert clusters_alone(problem, rng).shape == (8,)
