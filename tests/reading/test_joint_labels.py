"""Assignments that data depend on together: what is read is the declared density."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import Competence
from scipy import stats
from scipy.special import logsumexp

import pm_match as pmm
from pm_match import testing
from pm_match.declared.parts import PairLikelihoods
from pm_match.reading import UnservedModelError, as_read, read
from tests.declared.few_draws import declared, few_draws

N, T, S = 5, 2, 3
RNG = np.random.default_rng(7)
VALUES = RNG.normal(0.0, 2.0, size=N)
COUNTS = RNG.poisson(3.0, size=N)
COVARIATE = RNG.normal(size=N)


def cluster_and_part(n=N, name=""):
    """Declare labels of clusters, and of their parts, each with parts of its own."""
    weights = pm.Dirichlet(f"weights{name}", np.ones(T))
    within = pm.Dirichlet(f"within{name}", np.ones(S), shape=(T, S))
    cluster = pm.Categorical(f"cluster{name}", p=weights, shape=n)
    return cluster, pm.Categorical(f"part{name}", p=within[cluster])


def alive():
    """Zeros and ones that depend on those before them, and are seen at all times but the first."""
    survival = pm.Beta("survival", 2.0, 1.0)
    label = 1
    for t in range(3):
        label = pm.Bernoulli(f"alive_{t}", 0.1 + 0.8 * survival * label, shape=N)
        pm.Bernoulli(f"seen_{t}", 0.1 + 0.6 * label, observed=t < COUNTS)


def parts_of_clusters():
    cluster, part = cluster_and_part()
    mean = pm.Normal("mean", 0.0, 2.0, shape=(T, S))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


def crossed():
    """Two clusterings of the same objects, whose effects add up."""
    rows = pm.Categorical("row", p=pm.Dirichlet("rows", np.ones(T)), shape=N)
    columns = pm.Categorical("column", p=pm.StickBreakingWeights("columns", 2.0, S - 1), shape=N)
    effect = pm.Normal("effect", shape=T)
    other = pm.Normal("other", shape=S)
    pm.Poisson("x", pm.math.exp(effect[rows] + other[columns]), observed=COUNTS)


def shared_parts():
    """Clusters of clusters: data depend on the lower ones alone."""
    _, part = cluster_and_part()
    mean = pm.Normal("mean", 0.0, 2.0, shape=S)
    pm.Normal("x", mean[part], 1.0, observed=VALUES)


def seen_on_both_levels():
    cluster, part = cluster_and_part()
    pm.Normal("x", pm.Normal("mean", 0.0, 2.0, shape=S)[part], 1.0, observed=VALUES)
    pm.Poisson("counts", pm.Gamma("rate", 2.0, 1.0, shape=T)[cluster], observed=COUNTS)


def three():
    labels = [
        pm.Categorical(name, p=pm.Dirichlet(f"weights_{name}", np.ones(2)), shape=N)
        for name in ("one", "two", "three")
    ]
    effects = pm.Normal("effects", shape=(3, 2))
    mean = sum(effects[number][label] for number, label in enumerate(labels))
    pm.Normal("x", mean, 1.0, observed=VALUES)


def zeros_and_ones():
    """Two attributes of an object, each of which it has or not."""
    one = pm.Bernoulli("one", pm.Beta("share", 2.0, 1.0), shape=N)
    two = pm.Bernoulli("two", 0.3, shape=N)
    effect = pm.Normal("effect", 1.0, 1.0, shape=2)
    pm.Normal("x", effect[0] * one + effect[1] * two - 1.0, 0.7, observed=VALUES)


def regression_above():
    """Weights of clusters by a covariate, which cannot be integrated out anyway."""
    slope = pm.Normal("slope", shape=T)
    cluster = pm.Categorical("cluster", p=pm.math.softmax(COVARIATE[:, None] * slope, axis=1))
    part = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(S), shape=(T, S))[cluster])
    mean = pm.Normal("mean", 0.0, 2.0, shape=(T, S))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


def constant():
    """Where nothing but labels is free."""
    cluster = pm.Categorical("cluster", p=[0.3, 0.7], shape=N)
    part = pm.Categorical("part", p=pt.constant([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])[cluster])
    mean = pt.constant([[-2.0, 0.0, 1.0], [0.5, 2.0, 3.0]])
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


def over_rows_of_weights():
    weights = pm.Dirichlet("weights", np.ones(T), shape=(2, T))
    a, b = (pm.Categorical(name, p=weights[n], shape=N) for n, name in enumerate("ab"))
    mean = pm.Normal("mean", shape=T)[a] + pm.Normal("other", shape=T)[b]
    pm.Normal("x", mean, 1.0, observed=VALUES)


def over_constants():
    """Two domains over known weights, with parameters in common."""
    effect, other = pm.Normal("effect", shape=S), pm.Normal("other", shape=S)
    for name in "ab":
        z, s = (pm.Categorical(f"{own}_{name}", p=np.full(S, 1 / S), shape=N) for own in "zs")
        pm.Normal(f"x_{name}", effect[z] + other[s], 1.0, observed=VALUES)


def over_sums_of_weights():
    weights = pm.Dirichlet("weights", np.ones(S))
    a = pm.Categorical("a", p=weights, shape=N)
    b = pm.Categorical("b", p=pt.stack([weights[0] + weights[1], weights[2]]), shape=N)
    mean = pm.Normal("mean", shape=S)[a] + pm.Normal("other", shape=2)[b]
    pm.Normal("x", mean, 1.0, observed=VALUES)


def over_known_weights():
    """Weights that are data, beside labels that are drawn."""
    within = pm.Dirichlet("within", np.ones(S), shape=(T, S), observed=np.full((T, S), 1 / S))
    cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
    part = pm.Categorical("part", p=within[cluster])
    mean = pm.Normal("mean", 0.0, 2.0, shape=(T, S))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


SERVED = [
    parts_of_clusters,
    crossed,
    shared_parts,
    seen_on_both_levels,
    three,
    alive,
    regression_above,
    constant,
    over_rows_of_weights,
    over_sums_of_weights,
    over_known_weights,
    zeros_and_ones,
]


@pytest.mark.parametrize("write", SERVED)
def test_what_is_read_is_the_declared_density(write, declared_once):
    model = declared_once(write)
    structure = read(model)
    assert not structure.refusals
    seen, rng = as_read(model), np.random.default_rng(0)
    one, other = model.compile_logp(), seen.compile_logp()
    assignments = {a.name: a for c in structure.clusterings for a in c.assignments}
    for _ in range(20):
        there = {
            name: rng.normal(size=np.shape(value))
            if np.asarray(value).dtype.kind == "f"
            else rng.integers(structure.clusterings[0].truncation, size=N)
            for name, value in seen.initial_point().items()
        }
        here = {v.name: there[v.name] for v in model.value_vars if v.name in there}
        for name, assignment in assignments.items():
            here |= assignment.by_variable(there[name])
        np.testing.assert_allclose(other(there), one(here), rtol=1e-10)


@pytest.mark.parametrize("write", SERVED)
def test_scores_and_running_state(write, declared_once):
    model = declared_once(write)
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=200)


def test_law_of_all_labels():
    """Draws of a chain against enumeration by plain formulas."""
    data = few_draws(declared(constant), draws=1500, tune=0)
    drawn = [data.posterior[name].to_numpy()[0].astype(int) for name in ("cluster", "part")]
    weights, within = np.array([0.3, 0.7]), np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    mean = np.array([[-2.0, 0.0, 1.0], [0.5, 2.0, 3.0]])
    for n in range(N):
        law = weights[:, None] * within * stats.norm.pdf(VALUES[n], mean, 1.0)
        found = np.zeros((T, S))
        np.add.at(found, (drawn[0][:, n], drawn[1][:, n]), 1.0 / len(drawn[0]))
        np.testing.assert_allclose(found, law / law.sum(), atol=0.05)


@pytest.mark.parametrize("binary", [False, True])
def test_law_of_labels_and_a_parameter(binary):
    """Where clusterings cross, against quadrature over what is shared by all objects."""

    def write():
        family = pm.Bernoulli if binary else pm.Categorical
        one = family("one", p=0.6 if binary else [0.4, 0.6], shape=N)
        two = family("two", p=0.5 if binary else [0.5, 0.5], shape=N)
        size = pm.Normal("size", 0.0, 2.0)
        pm.Normal("x", size * one + 1.5 * two, 0.8, observed=VALUES)

    data = few_draws(declared(write), draws=1500, tune=200)
    grid = np.linspace(-10.0, 10.0, 4001)
    each = np.array(
        [
            np.log(0.4 if one == 0 else 0.6)
            + np.log(0.5)
            + stats.norm.logpdf(VALUES[:, None], grid * one + 1.5 * two, 0.8)
            for one, two in product(range(2), repeat=2)
        ]
    )
    log_density = stats.norm.logpdf(grid, 0.0, 2.0) + logsumexp(each, axis=0).sum(axis=0)
    law = np.exp(log_density - logsumexp(log_density))
    given = np.exp(each - logsumexp(each, axis=0))
    one = data.posterior["one"].mean(("chain", "draw"))
    np.testing.assert_allclose(one, (given[2] + given[3]) @ law, atol=0.06)
    two = data.posterior["two"].mean(("chain", "draw"))
    np.testing.assert_allclose(two, (given[1] + given[3]) @ law, atol=0.06)
    assert abs(float(data.posterior["size"].mean()) - grid @ law) < 0.15


def two_domains(n=4):
    weights = pm.Dirichlet("weights", np.ones(T))
    for name, size in (("a", n), ("b", n + 2)):
        cluster = pm.Categorical(f"cluster_{name}", p=weights, shape=size)
        within = pm.Dirichlet(f"within_{name}", np.ones(S), shape=(T, S))
        part = pm.Categorical(f"part_{name}", p=within[cluster])
        mean = pm.Normal(f"mean_{name}", 0.0, 2.0, shape=(T, S))
        pm.Normal(f"x_{name}", mean[cluster, part], 1.0, observed=RNG.normal(size=size))


def one_without_parts(n=4):
    two_domains(n)
    weights = pm.modelcontext(None)["weights"]
    cluster = pm.Categorical("cluster_c", p=weights, shape=n)
    pm.Normal("x_c", pm.Normal("mean_c", shape=T)[cluster], 1.0, observed=RNG.normal(size=n))


@pytest.mark.parametrize("write", [two_domains, one_without_parts])
def test_clusters_are_one_set_in_all_domains(write):
    model = declared(write)
    structure = read(model)
    assert not structure.refusals
    domains = "ab" if write is two_domains else "abc"
    assert structure.sets["weights"] == [f"cluster_{name}" for name in domains]
    # Parts are numbered anew in every cluster.
    assert [*structure.sets] == ["weights"]
    data = few_draws(model)
    shape = data.posterior.sizes["chain"], data.posterior.sizes["draw"]
    assert pmm.match_probability(data, "a", "b").shape == (4, 6)
    for name in (*(f"cluster_{name}" for name in domains), "part_a", "part_b"):
        own = data.posterior[name]
        assert own.dtype == np.int16
        assert own.shape[:2] == shape
    assert data.posterior["cluster_b"].attrs["clusters"] == "weights"
    assert "clusters" not in data.posterior["part_b"].attrs
    # Nothing that another name of a cluster changes is judged.
    judged = {*map(str, pmm.invariants(data, model))} & {*map(str, data.posterior)}
    assert judged == set()


@pytest.mark.parametrize(
    ("write", "sets"),
    [
        (parts_of_clusters, {"weights": ["cluster"]}),
        (shared_parts, {"weights": ["cluster"], "clusters of part": ["part"]}),
        (seen_on_both_levels, {"weights": ["cluster"], "clusters of part": ["part"]}),
        (crossed, {"rows": ["row"], "columns": ["column"]}),
        (regression_above, {"clusters of cluster": ["cluster"]}),
        (over_rows_of_weights, {"clusters of a": ["a"], "clusters of b": ["b"]}),
        (over_constants, {"clusters of z_a": ["z_a", "z_b"], "clusters of s_a": ["s_a", "s_b"]}),
        (over_sums_of_weights, {"weights": ["a"], "clusters of b": ["b"]}),
    ],
)
def test_parts_have_names_if_they_have_parameters_of_their_own(write, sets, declared_once):
    assert read(declared_once(write)).sets == sets


def test_parameters_go_with_the_clusters_that_they_are_of(declared_once):
    data = few_draws(declared_once(crossed)).posterior
    assert data["effect"].attrs == {"clusters_of_effect_dim_0": "rows"}
    assert data["other"].attrs == {"clusters_of_other_dim_0": "columns"}
    # The parts' axis would be left as it is.
    for write, name in ((parts_of_clusters, "mean"), (shared_parts, "within")):
        attrs = few_draws(declared_once(write)).posterior[name].attrs
        assert not any(key.startswith("clusters_of") for key in attrs)
    # However many labels there are of the others.
    (evidence,) = read(declared_once(over_constants)).evidence
    assert evidence.of_parts == {"effect": "clusters of z_a", "other": "clusters of s_a"}


COORDS = {"c": range(T), "s": range(S), "cells": range(T * S)}


def named_parts():
    weights = pm.Dirichlet("weights", np.ones(T), dims="c")
    within = pm.Dirichlet("within", np.ones(S), dims=("c", "s"))
    cluster = pm.Categorical("cluster", p=weights, shape=N)
    part = pm.Categorical("part", p=within[cluster])
    mean = pm.Normal("mean", 0.0, 3.0, dims=("c", "s"))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


def named_clusters_of_clusters():
    weights = pm.Dirichlet("weights", np.ones(T), dims="c")
    within = pm.Dirichlet("within", np.ones(S), dims=("c", "s"))
    cluster = pm.Categorical("cluster", p=weights, shape=N)
    part = pm.Categorical("part", p=within[cluster])
    pm.Normal("x", pm.Normal("mean", 0.0, 3.0, dims="s")[part], 1.0, observed=VALUES)


def named_and_crossed():
    cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T), dims="c"), shape=N)
    part = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(S), dims="s"), shape=N)
    mean = pm.Normal("mean", 0.0, 3.0, dims=("c", "s"))[cluster, part]
    pm.Normal("x", mean + pm.Normal("other", dims="s")[part], 1.0, observed=VALUES)


@pytest.mark.parametrize("write", [named_parts, named_clusters_of_clusters, named_and_crossed])
def test_other_names_of_clusters_leave_the_density_alone(write):
    model = declared(write, coords=COORDS)
    data = few_draws(model, draws=10)
    labels = pmm.partition_estimate(data)
    # All clusters get other names.
    labels = {name: int(own.max()) - own for name, own in labels.data_vars.items()}
    dims = {"part": "s"} if "part" in labels else {}
    moved = pmm.relabel(data, labels, dims={"cluster": "c"} | dims)["posterior"]
    density = model.compile_logp()
    n_changed = 0
    for draw in range(10):
        points = []
        for own in (data.posterior, moved):
            values = {rv.name: own[rv.name].to_numpy()[0, draw] for rv in model.free_RVs}
            points.append(
                {
                    value.name: values[rv.name]
                    if model.rvs_to_transforms[rv] is None
                    else model.rvs_to_transforms[rv].forward(values[rv.name]).eval()
                    for rv, value in model.rvs_to_values.items()
                    if rv.name in values
                }
            )
        before, after = map(density, points)
        np.testing.assert_allclose(after, before, rtol=1e-8)
        n_changed += not np.array_equal(points[0]["cluster"], points[1]["cluster"])
    assert n_changed


@pytest.mark.parametrize("options", [{}, {"name": "named"}])
def test_rows_of_combinations_cannot_be_given_other_names(options):
    def flat():
        cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
        part = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(S)), shape=N)
        mean = pm.Normal("mean", shape=T * S)[cluster * S + part]
        pm.StudentT("x", nu=5.0, mu=mean, sigma=1.0, observed=VALUES)

    data = few_draws(declared(flat, **options))
    labels = pmm.partition_estimate(data)
    with pytest.raises(ValueError, match=r"found 'mean', whose rows are of combinations of labels"):
        pmm.relabel(data, labels)


def test_search_finds_clusters_and_parts():
    rng = np.random.default_rng(0)
    cluster, part = rng.integers(T, size=120), rng.integers(S, size=120)
    mean = np.array([[-9.0, -7.0, -5.0], [5.0, 7.0, 9.0]])
    values = mean[cluster, part] + rng.normal(0.0, 0.3, 120)

    def write():
        cluster, part = cluster_and_part(120)
        middle = pm.Normal("middle", 0.0, 7.0, shape=T)
        mean = pm.Normal("mean", middle[:, None], 1.5, shape=(T, S))
        pm.Normal("x", mean[cluster, part], 0.3, observed=values)

    found = pmm.find_matching(declared(write), starts=4, random_seed=1, progressbar=False)
    labels = {name: found["posterior"][name].to_numpy()[0, 0] for name in ("cluster", "part")}
    both = labels["cluster"] * S + labels["part"]
    index = pmm.metrics.adjusted_rand_index({"x": cluster * S + part}, {"x": both})
    assert index == 1.0
    index = pmm.metrics.adjusted_rand_index({"x": cluster}, {"x": labels["cluster"]})
    assert index == 1.0
    assert set(found["starts"]["part"].to_numpy().ravel()) == {0, 1, 2}


def test_draws_are_the_same_wherever_chains_run():
    one, other = (few_draws(declared(crossed), chains=2, cores=n) for n in (1, 2))
    for name in ("row", "column", "effect"):
        np.testing.assert_array_equal(one.posterior[name], other.posterior[name])


def shifted():
    """The part of one object, and the cluster of another."""
    cluster, part = cluster_and_part()
    mean = pm.Normal("mean", shape=(T, S))
    pm.Normal("x", mean[cluster, pt.roll(part, 1)], 1.0, observed=VALUES)


def of_another():
    """One object's part depends on the cluster of another."""
    cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=N)
    within = pm.Dirichlet("within", np.ones(S), shape=(T, S))
    part = pm.Categorical("part", p=within[cluster[::-1]])
    pm.Normal("x", pm.Normal("mean", shape=(T, S))[cluster, part], 1.0, observed=VALUES)


def in_one_place(n=T * S):
    """Where two combinations of labels of two objects do something together."""
    one = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(n)), shape=N)
    two = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(2)), shape=N)
    mean = pt.constant(np.arange(2.0 * n).reshape(n, 2))[one, two]
    both = pt.eq(one[0], n - 1) * pt.eq(two[0], 1) * pt.eq(one[1], n - 2) * pt.eq(two[1], 1)
    pm.Normal("x", pt.set_subtensor(mean[1], mean[1] + 0.1 * both), 1.0, observed=VALUES)


def of_other_sizes():
    row = pm.Categorical("row", p=pm.Dirichlet("rows", np.ones(T)), shape=N)
    column = pm.Categorical("column", p=pm.Dirichlet("columns", np.ones(S)), shape=N - 1)
    mean = pm.Normal("mean", shape=T)[row][:-1] + pm.Normal("other", shape=S)[column]
    pm.Normal("x", mean, 1.0, observed=VALUES[:-1])


def of_too_many():
    row = pm.Categorical("row", p=pm.Dirichlet("rows", np.ones(33)), shape=N)
    column = pm.Categorical("column", p=pm.Dirichlet("columns", np.ones(32)), shape=N)
    mean = pm.Normal("mean", shape=33)[row] + pm.Normal("other", shape=32)[column]
    pm.Normal("x", mean, 1.0, observed=VALUES)


def linked():
    cluster, part = cluster_and_part()
    mean = pm.Normal("mean", shape=(T, S))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)
    pmm.must_link("links", {cluster: [0], part: [0]})


def summed():
    """The labels of all objects, beside what is seen of each."""
    cluster, part = cluster_and_part()
    pm.Normal("x", pm.Normal("mean", shape=(T, S))[cluster, part], 1.0, observed=VALUES)
    pm.Normal("total", cluster.sum(), 1.0, observed=2.0)


def known():
    cluster = pm.Categorical(
        "cluster",
        p=pm.Dirichlet("weights", np.ones(T)),
        shape=N,
        observed=np.ma.masked_equal([0, -1, 1, -1, -1], -1),
    )
    part = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(S)), shape=N)
    pm.Normal("x", pm.Normal("mean", shape=(T, S))[cluster, part], 1.0, observed=VALUES)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(
    ("write", "message"),
    [
        (in_one_place, "'x'.* depends on the labels of more than one object"),
        (summed, "'total' depends on the labels of more than one object"),
        (of_other_sizes, "'x' depends on 'column', 'row': it depends on the labels of more than"),
        (of_too_many, "'row', 'column' together, expected at most 256 .*; found 1,056"),
        (linked, "together, 'cluster', 'part': expected neither links nor observed labels"),
        (known, "together, 'cluster': expected neither links nor observed labels there"),
    ],
)
def test_what_is_not_of_one_object_is_refused(write, message):
    model = declared(write)
    assert not read(model).components
    with pytest.raises(UnservedModelError, match=message):
        pmm.steps(model)


@pytest.mark.parametrize("write", [shifted, of_another])
def test_joint_labels_of_two_objects_are_those_of_pairs(write):
    model = declared(write)
    assert read(model).of(PairLikelihoods)
    testing.check_scores(model, n_points=2)


def test_what_was_not_seen_when_it_was_read_stops_the_chain():
    """Of many combinations, two are not tried together on two objects: unless they are drawn."""
    model = declared(lambda: in_one_place(100))
    data = few_draws(model, init="dispersed")
    assert data.posterior["cluster"].sizes["draw"] == 6
    labels = {"cluster": np.array([99, 98, 0, 0, 0]), "part": np.ones(N, int)}
    state = testing.collapsed_of(model)
    point = model.initial_point() | labels
    state.load(point, state.labels(point))
    with pytest.raises(UnservedModelError, match=r"'x'.*found draws of labels where they depend"):
        state.draw(np.random.default_rng(0), point, dict(point))


def beside():
    """Another component, whose prior depends on a label."""
    a = pm.Categorical("a", p=pm.Dirichlet("wa", np.ones(T)), shape=N)
    b = pm.Categorical("b", p=pm.Dirichlet("wb", np.ones(S)), shape=N)
    pm.Normal("y", pm.Normal("nu", 0.0, 2.0, shape=(T, S))[a, b], 1.0, observed=VALUES)
    cluster = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(2)), shape=N)
    mean = pm.Normal("mean", pm.Normal("delta", shape=T)[a[0]], 2.0, shape=2)
    pm.Normal("x", mean[cluster], 1.0, observed=VALUES)


def pairs_beside_joint_ones():
    parts_of_clusters()
    a = pm.Categorical("a", p=pm.Dirichlet("wa", np.ones(T)), shape=N)
    b = pm.Categorical("b", p=pm.Dirichlet("wb", np.ones(S)), shape=N)
    pm.Normal("y", pm.Normal("nu", 0.0, 2.0, shape=(T, S))[a, b[::-1]], 1.0, observed=VALUES)


def pairs_below_joint_ones():
    """Where a prior of what joint labels have depends on a label of a pair."""
    a = pm.Categorical("a", p=pm.Dirichlet("wa", np.ones(T)), shape=N)
    b = pm.Categorical("b", p=pm.Dirichlet("wb", np.ones(S)), shape=N)
    pm.Normal("y", pm.Normal("nu", 0.0, 2.0, shape=(T, S))[a, b[::-1]], 1.0, observed=VALUES)
    cluster, part = cluster_and_part()
    mean = pm.Normal("mean", pm.Normal("delta", shape=T)[a[0]], 2.0, shape=(T, S))
    pm.Normal("x", mean[cluster, part], 1.0, observed=VALUES)


@pytest.mark.parametrize("write", [beside, pairs_beside_joint_ones, pairs_below_joint_ones])
@pytest.mark.parametrize("init", ["search", "dispersed"])
def test_labels_that_another_part_of_the_model_depends_on_are_not_joined(write, init):
    model = declared(write)
    structure = read(model)
    held = [name for c in structure.clusterings for a in c.assignments for name in a.held]
    if write is beside:
        assert {"a", "b"} == structure.refusals.keys()
        assert held == ["cluster"]
        with pytest.warns(UserWarning, match="a, b"):
            few_draws(model, init=init)
    else:
        assert not structure.refusals
        assert sorted(held) == ["a", "b", "cluster", "part"]
        few_draws(model, init=init)


def effect_of_both():
    """A free variable whose prior depends on labels, as what depends on it does."""
    cluster = pm.Categorical("cluster", p=[0.4, 0.6], shape=N)
    part = pm.Categorical("part", p=pt.constant([[0.3, 0.7], [0.8, 0.2]])[cluster])
    effect = pm.Normal("effect", pt.constant([[-1.0, 1.0], [3.0, 0.0]])[cluster, part], 1.0)
    pm.Normal("x", effect + 0.5 * cluster, 1.0, observed=VALUES)


def effect_of_one():
    cluster = pm.Categorical("cluster", p=[0.4, 0.6], shape=N)
    pm.Normal("x", pm.Normal("effect", 1.0 * cluster, 1.0) + cluster, 1.0, observed=VALUES)


@pytest.mark.parametrize("write", [effect_of_both, effect_of_one])
def test_what_depends_on_labels_and_says_more_of_them_is_counted_once(write):
    model = declared(write)
    few_draws(model)
    state, density = testing.collapsed_of(model), model.compile_logp()
    (clustering,) = state.component.clusterings
    rng = np.random.default_rng(0)
    for _ in range(5):
        label = rng.integers(clustering.truncation, size=N)
        point = {"effect": rng.normal(size=N)} | clustering.assignments[0].by_variable(label)
        state.load(point, [label])
        found = state.log_joint() + state.log_prior(point)
        np.testing.assert_allclose(found, density(point), rtol=1e-10)


def test_two_pairs_of_labels():
    def write():
        parts_of_clusters()
        a = pm.Categorical("a", p=pm.Dirichlet("wa", np.ones(T)), shape=N + 1)
        b = pm.Categorical("b", p=pm.Dirichlet("wb", np.ones(S)), shape=N + 1)
        observed = np.arange(N + 1.0)
        pm.Normal("y", pm.Normal("nu", shape=(T, S))[a, b], 1.0, observed=observed)

    structure = read(declared(write))
    assert not structure.refusals
    assert [c.title for c in structure.clusterings] == [
        "clusters of cluster, part",
        "clusters of a, b",
    ]
    few_draws(declared(write))


def test_a_variable_may_have_the_name_that_joint_labels_would_get():
    def write():
        shift = pm.Normal("row, column")
        row = pm.Categorical("row", p=pm.Dirichlet("rows", np.ones(T)), shape=N)
        column = pm.Categorical("column", p=pm.Dirichlet("columns", np.ones(S)), shape=N)
        mean = shift + pm.Normal("mean", shape=(T, S))[row, column]
        pm.Normal("x", mean, 1.0, observed=VALUES)

    assert not read(declared(write)).refusals


@pytest.mark.parametrize("write", [parts_of_clusters, crossed, constant])
def test_plain_sampling_chooses_the_steps_where_weights_are_drawn(write):
    """As of other likelihoods whose parameters are not integrated out."""
    model = declared(write)
    with model:
        for own in read(model).clusterings[0].assignments[0].drawn:
            found = pmm.ClusterGibbs.competence(model[own], True)
            assert found == (Competence.INCOMPATIBLE if write is constant else Competence.IDEAL)


def test_what_is_not_served_is_refused(declared_once):
    model = declared_once(parts_of_clusters)
    data = few_draws(model)
    message = "'cluster', 'part': not served for labels that data depend on together"
    for call in (
        lambda: pmm.assign(data, model, {"cluster": VALUES[:2]}),
        lambda: pmm.assign(data, model, {"part": VALUES[:2]}),
        lambda: pmm.sample_sharded(model, {"x": VALUES}),
        lambda: few_draws(model, record=2),
    ):
        with pytest.raises(UnservedModelError, match=message):
            call()


@pytest.mark.parametrize("write", [parts_of_clusters, seen_on_both_levels, one_without_parts])
def test_log_likelihoods_are_sums_over_all_combinations(write, declared_once):
    model = declared_once(write)
    data = few_draws(model)
    found = pmm.log_predictive(data, model, progressbar=False)["log_likelihood"]["objects"]
    draw = {name: v.to_numpy()[0, 1] for name, v in data.posterior.data_vars.items()}
    if write is one_without_parts:
        assert found.sizes["all_objects"] == 4 + 6 + 4
        (values,) = (rv for rv in model.observed_RVs if rv.name == "x_c")
        x = model.rvs_to_values[values].eval()
        law = stats.norm.pdf(x[:, None], draw["mean_c"], 1.0) @ draw["weights"]
        np.testing.assert_allclose(found[0, 1, -4:], np.log(law), rtol=1e-8)
        return
    weights = draw["weights"][:, None] * draw["within"]
    law = weights * stats.norm.pdf(VALUES[:, None, None], draw["mean"], 1.0)
    if write is seen_on_both_levels:
        law *= stats.poisson.pmf(COUNTS[:, None, None], draw["rate"][:, None])
    np.testing.assert_allclose(found[0, 1], np.log(law.sum(axis=(1, 2))), rtol=1e-8)


def test_starts_of_ones_own_are_checked(declared_once):
    model = declared_once(parts_of_clusters)
    labels = np.array([0, 1, 2, 0, 1])
    with pytest.raises(ValueError, match=r"'cluster': expected labels in 0 ... 1; found 0 to 2"):
        few_draws(model, initvals={"cluster": labels})
    few_draws(model, draws=2, tune=0, initvals={"cluster": labels % 2, "part": labels})
