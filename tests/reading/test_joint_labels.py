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
from pm_match.reading import UnservedModelError, as_read, read

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


SERVED = [
    parts_of_clusters,
    crossed,
    shared_parts,
    seen_on_both_levels,
    three,
    regression_above,
    constant,
]


def declared(write, **options) -> pm.Model:
    with pm.Model(**options) as model:
        write()
    return model


def few_draws(model, draws=6, tune=4, chains=1, **options):
    """Sample without a word, and not to be judged."""
    return pmm.sample(
        draws,
        tune=tune,
        chains=chains,
        model=model,
        random_seed=0,
        progressbar=False,
        quiet=True,
        compute_convergence_checks=False,
        **options,
    )


@pytest.mark.parametrize("write", SERVED)
def test_what_is_read_is_the_declared_density(write):
    model = declared(write)
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
            here |= assignment.named(there[name])
        np.testing.assert_allclose(other(there), one(here), rtol=1e-10)


@pytest.mark.parametrize("write", SERVED)
def test_scores_and_running_state(write):
    model = declared(write)
    testing.check_scores(model, n_points=3)
    testing.check_running_state(model, n_moves=200)


@pytest.mark.parametrize("init", ["search", "dispersed"])
def test_law_of_all_labels(init):
    """Draws of a chain against enumeration by plain formulas."""
    data = few_draws(declared(constant), draws=6000, tune=0, init=init)
    drawn = [data.posterior[name].to_numpy()[0].astype(int) for name in ("cluster", "part")]
    weights, within = np.array([0.3, 0.7]), np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    mean = np.array([[-2.0, 0.0, 1.0], [0.5, 2.0, 3.0]])
    for n in range(N):
        law = weights[:, None] * within * stats.norm.pdf(VALUES[n], mean, 1.0)
        found = np.zeros((T, S))
        np.add.at(found, (drawn[0][:, n], drawn[1][:, n]), 1.0 / len(drawn[0]))
        np.testing.assert_allclose(found, law / law.sum(), atol=0.025)


def test_law_of_labels_and_a_parameter():
    """Where clusterings cross, against quadrature over what is shared by all objects."""

    def write():
        one = pm.Categorical("one", p=[0.4, 0.6], shape=N)
        two = pm.Categorical("two", p=[0.5, 0.5], shape=N)
        size = pm.Normal("size", 0.0, 2.0)
        pm.Normal("x", size * one + 1.5 * two, 0.8, observed=VALUES)

    data = few_draws(declared(write), draws=2500, tune=300, chains=2)
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
    np.testing.assert_allclose(one, (given[2] + given[3]) @ law, atol=0.04)
    two = data.posterior["two"].mean(("chain", "draw"))
    np.testing.assert_allclose(two, (given[1] + given[3]) @ law, atol=0.04)
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
    ],
)
def test_parts_have_names_if_they_have_parameters_of_their_own(write, sets):
    assert read(declared(write)).sets == sets


def test_parameters_go_with_the_clusters_that_they_are_of():
    model = declared(crossed)
    data = few_draws(model)
    attrs = {name: data.posterior[name].attrs for name in ("effect", "other")}
    assert attrs["effect"]["clusters_of"] == "rows"
    assert attrs["other"]["clusters_of"] == "columns"
    coords = {"r": range(T), "c": range(S)}

    def named():
        rows = pm.Categorical("row", p=pm.Dirichlet("rows", np.ones(T), dims="r"), shape=N)
        columns = pm.Dirichlet("columns", np.ones(S), dims="c")
        column = pm.Categorical("column", p=columns, shape=N)
        mean = pm.Normal("mean", 0.0, 3.0, dims="r")[rows] + pm.Normal("other", dims="c")[column]
        pm.Normal("x", mean, 1.0, observed=VALUES)

    data = few_draws(declared(named, coords=coords))
    labels = pmm.partition_estimate(data, max_clusters=2)
    found = pmm.relabel(data, labels)["posterior"]
    before, after = (own["mean"].to_numpy().ravel() for own in (data.posterior, found))
    assert sorted(before) == sorted(after)
    row = data.posterior["row"].to_numpy().astype(int)
    moved = found["row"].to_numpy().astype(int)
    mean, new = data.posterior["mean"].to_numpy(), found["mean"].to_numpy()
    np.testing.assert_array_equal(
        np.take_along_axis(mean, row, axis=2), np.take_along_axis(new, moved, axis=2)
    )


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


def in_one_place():
    """Where only one of the parameters lets the part of another object in."""
    cluster, part = cluster_and_part()
    mean = pm.Normal("mean", shape=(T, S))[cluster, part]
    pm.Normal("x", mean + 0.1 * pt.eq(part[0], 2) * pt.eq(cluster, 1), 1.0, observed=VALUES)


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


@pytest.mark.parametrize(
    "write", [shifted, of_another, in_one_place, of_other_sizes, of_too_many, linked]
)
def test_what_is_of_several_objects_is_refused(write):
    model = declared(write)
    assert not read(model).components
    with pytest.raises(UnservedModelError, match=r"row|cluster"):
        pmm.steps(model)


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
def test_known_labels_are_refused():
    def write():
        known = np.ma.masked_equal([0, -1, 1, -1, -1], -1)
        cluster = pm.Categorical(
            "cluster", p=pm.Dirichlet("weights", np.ones(T)), shape=N, observed=known
        )
        part = pm.Categorical("part", p=pm.Dirichlet("within", np.ones(S)), shape=N)
        pm.Normal("x", pm.Normal("mean", shape=(T, S))[cluster, part], 1.0, observed=VALUES)

    with pytest.raises(UnservedModelError, match="cluster"):
        pmm.steps(declared(write))


@pytest.mark.parametrize("write", [parts_of_clusters, crossed, constant])
def test_plain_sampling_chooses_the_steps_where_weights_are_drawn(write):
    """As of other likelihoods whose parameters are not integrated out."""
    model = declared(write)
    with model:
        for own in read(model).clusterings[0].assignments[0].drawn:
            found = pmm.ClusterGibbs.competence(model[own], True)
            assert found == (Competence.INCOMPATIBLE if write is constant else Competence.IDEAL)


def test_what_is_not_served_is_refused():
    model = declared(parts_of_clusters)
    data = few_draws(model)
    message = "'cluster', 'part': expected labels that are drawn by themselves"
    for call in (
        lambda: pmm.assign(data, model, {"cluster": VALUES[:2]}),
        lambda: pmm.assign(data, model, {"part": VALUES[:2]}),
        lambda: pmm.sample_sharded(model, {"x": VALUES}),
        lambda: few_draws(model, record=2),
    ):
        with pytest.raises(UnservedModelError, match=message):
            call()


@pytest.mark.parametrize("write", [parts_of_clusters, seen_on_both_levels, one_without_parts])
def test_log_likelihoods_are_sums_over_all_combinations(write):
    model = declared(write)
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


def test_starts_of_ones_own_are_checked():
    model = declared(parts_of_clusters)
    labels = np.array([0, 1, 2, 0, 1])
    with pytest.raises(ValueError, match=r"'cluster': expected labels in 0 ... 1; found 0 to 2"):
        few_draws(model, initvals={"cluster": labels})
    few_draws(model, draws=2, tune=0, initvals={"cluster": labels % 2, "part": labels})
