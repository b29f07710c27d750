"""What is read of a likelihood, and what is refused."""

import tracemalloc

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.declared import recognise as declared_reading
from pm_match.declared.parts import Likelihoods, PairLikelihoods
from pm_match.reading import label_tables, read
from pm_match.reading.context import Context
from pm_match.reading.label_tables import LabelDensities
from pm_match.reading.owners import Owned
from tests.declared.any_likelihood import (
    COUNTS,
    FAMILIES,
    OWNERS,
    N,
    T,
    X,
    beside_features,
    declared,
    positive,
    rows,
    two_domains,
)

# By family: what labels have rows of (and of which axis), what of it is redrawn when they are
# empty, and whether labels can be swapped.
READ = {
    "normal": ({"mu": 0, "sigma": 0}, {"mu", "sigma"}, True),
    "full": (
        {"mu": 0, "chol_0": None, "chol_1": None, "chol_2": None},
        {"mu", "chol_0", "chol_1", "chol_2"},
        True,
    ),
    "mixture": ({"share": 0, "mu": 0}, {"share", "mu"}, True),
    "transposed": ({"mu": 1}, {"mu"}, True),
    "nonlinear map": ({"z": 0}, {"z"}, True),
    "potential": ({"mu": 0}, {"mu"}, True),
    "outliers": ({"mu": 0, "sigma": 0}, {"mu", "sigma"}, False),
    "missing": ({"mu": 0, "sigma": 0}, {"mu", "sigma"}, True),
    "hierarchy": ({"scale": 0, "mu": 0}, {"scale", "mu"}, True),
}


def evidence(model) -> Likelihoods:
    structure = read(model)
    assert not structure.refusals, structure.refusals
    (found,) = structure.of(Likelihoods)
    return found


@pytest.mark.parametrize("family", READ)
def test_rows_of_labels(family):
    found = evidence(declared(FAMILIES[family]))
    expected, redrawn, swapped = READ[family]
    assert {name: own.axis for own in found.rows for name in own.names} == expected
    assert {name for own in found.redrawn for name in own.names} == redrawn
    assert found.exchangeable is swapped
    assert found.batch > 1
    assert found.conditions


def test_owners_of_entries():
    np.testing.assert_array_equal(evidence(declared(FAMILIES["long"])).owner, OWNERS)
    owner = evidence(declared(FAMILIES["normal"])).owner
    np.testing.assert_array_equal(owner, np.repeat(np.arange(N), 2))

    def masked(c):
        inside = np.array([True, False] * 3)
        pm.Potential("x", pt.switch(inside, pm.logp(pm.Normal.dist(rows(shape=T)[c]), X[:, 0]), 0))

    np.testing.assert_array_equal(evidence(declared(masked)).owner, [0, -1, 2, -1, 4, -1])


def test_sums_over_owners():
    owners = [
        *([0, 0, 1, 3, 3], [3, 0, -1, 1, 0], [-1, -1, -1, -1, -1], [-1, 0, 1, 2, 3]),
        # As many of each: side by side, one factor after another, and in any order.
        *([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 2, 3, 0, 1, 2, 3], [3, 1, 0, 2, 2, 1, 3, 0]),
        *([2, 2, -1, 0, 0], [3, -1, 1, 0], [2, -1, -1]),
    ]
    for owner in owners:
        owned, owner = Owned(np.array(owner), 4), np.array(owner)
        entries = np.arange(2.0 * len(owner)).reshape(2, -1) ** 2
        expected = [[row[owner == u].sum() for row in entries] for u in range(4)]
        np.testing.assert_array_equal(owned.total(entries), expected)
        np.testing.assert_array_equal(owned.free, np.flatnonzero(owner < 0))


def ordered(c):
    mu = pm.Normal(
        "mu", shape=T, transform=pm.distributions.transforms.ordered, initval=np.arange(T)
    )
    pm.Normal("x", mu[c], observed=X[:, 0])


def shared_prior(c):
    mu = pm.MvNormal("mu", np.zeros(T), 0.5 * np.eye(T) + 0.5)
    pm.Normal("x", mu[c], observed=X[:, 0])


def special(c):
    pm.Normal("x", (rows(shape=T) * np.array([1.0, 1.0, 2.0]))[c], observed=X[:, 0])


def next_to_one_another(c):
    scale = positive()
    mu = pm.Normal("mu", pt.roll(scale, 1), 1.0, shape=T)
    pm.Normal("x", mu[c], scale[c], observed=X[:, 0])


@pytest.mark.parametrize(
    ("factors", "n_rows", "redrawn", "swapped"),
    [
        (ordered, 0, 0, False),
        (shared_prior, 1, 0, True),
        (special, 1, 1, False),
        (next_to_one_another, 2, 1, False),
    ],
)
def test_what_cannot_be_swapped_or_redrawn(factors, n_rows, redrawn, swapped):
    found = evidence(declared(factors))
    assert (len(found.rows), len(found.redrawn)) == (n_rows, redrawn)
    assert found.exchangeable is swapped


def test_rows_with_other_uses_are_not_redrawn():
    model = declared(FAMILIES["normal"])
    with model:
        pm.Potential("near", -((model["mu"][0] - 1.0) ** 2).sum())
    found = evidence(model)
    assert {name for own in found.redrawn for name in own.names} == {"sigma"}
    assert not found.exchangeable


@pytest.mark.parametrize("copy", [[0, 0], [0, 1]])
def test_labels_that_a_copy_names_have_roles(copy):
    """Of one of the two, as many objects go with their labels as without, whatever these are."""
    with pm.Model() as model:
        z = pm.Categorical("z", pm.Dirichlet("w", np.ones(2)), shape=2)
        error = pm.Beta("error", 1.0, 4.0)
        pm.Bernoulli("copy", pt.switch(z, 1.0 - error, error), observed=copy)
    assert not evidence(model).exchangeable


def test_kinds_keep_what_they_serve():
    structure = read(beside_features())
    (component,) = structure.components
    assert [own.kind for own in component.evidence] == ["declared", "features"] or [
        own.kind for own in component.evidence
    ] == ["features", "declared"]
    assert structure.notes == {}
    model = beside_features()
    with model:
        pm.Normal(
            "more",
            pt.tanh(rows("other")[model["cluster"]]),
            0.7,
            observed=X[:5],
        )
    structure = read(model)
    assert {own.kind for own in structure.components[0].evidence} == {"declared", "features"}
    assert "'features', 'more' all depend on 'cluster'" in structure.remarks()


def test_what_keeps_a_model_from_being_collapsed_is_said():
    structure = read(declared(FAMILIES["normal"]))
    assert "'mu' does not depend on 'sigma'; expected the conjugate prior" in structure.remarks()
    assert read(declared(FAMILIES["student"])).notes == {}


def test_two_domains_share_a_table():
    found = evidence(two_domains())
    np.testing.assert_array_equal(found.owner, [0, 0, 1, 1, 2, 2, *np.repeat([3, 4, 5], 4)])


def chain_of_states(c):
    p = pm.Dirichlet("p", np.ones(T), shape=(T, T))
    pm.Potential("moves", pt.log(p[c[:-1], c[1:]]))
    pm.Normal("x", rows(shape=T)[c], observed=X[:, 0])


def summed(c):
    pm.Potential("x", -pt.sqr(rows(shape=T)[c].sum() - 1.0))


def neighbours(c):
    pm.Normal("x", rows(shape=T)[pt.roll(c, 1)] + rows("nu", shape=T)[c], observed=X[:, 0])


def too_few(c):
    pm.Normal("x", rows(shape=T - 1)[c], observed=X[:, 0])


def too_short(c):
    pm.StudentT("x", nu=4.0, mu=rows()[c], observed=X[:-1])


def fractions(c):
    data = pm.Data("data", COUNTS[:, 0] + 0.5)
    pm.NegativeBinomial("x", mu=positive()[c], alpha=2.0, observed=data)


def too_long(c):
    pm.StudentT("x", nu=4.0, mu=rows(shape=T)[c], observed=pm.Data("data", X[:-1, 0]))


def improper(c):
    pm.Uniform("x", 100.0 + pt.exp(rows(shape=T))[c], 200.0, observed=X[:, 0])


def simulated(c):
    def draw(rng, mean, size=None):
        return rng.normal(mean, 1.0)

    pm.Simulator("x", draw, rows(shape=T)[c], epsilon=1.0, observed=COUNTS[:, 0])


REFUSED = {
    "a random density": (simulated, "the log density of 'x' is random, as with pm.Simulator"),
    "sum": (summed, "'x' depends on the labels of more than one object"),
    "too few rows": (
        too_few,
        "expected parameters for each of 3 labels of 'cluster'; found none for label 2",
    ),
    "another length": (too_long, "the log densities of 'x' cannot be evaluated"),
    "another constant length": (too_short, r"the log densities of 'x' cannot be evaluated: Inc"),
    "fractions": (fractions, r"'x'\[0\]: expected a whole number; found"),
    "nowhere defined": (
        improper,
        r"'x'\[0\] has no density at any of the points that were tried; expected values that are "
        "possible, and",
    ),
}


@pytest.mark.parametrize(
    ("labels", "objects", "message"),
    [
        (1, N, "'cluster': expected two labels or more; found one, which nothing depends on"),
        (T, 0, "'cluster' has no objects; expected one at least"),
    ],
)
@pytest.mark.parametrize("likelihood", [pm.Poisson, pm.Exponential])
def test_too_few_labels_or_objects(labels, objects, message, likelihood):
    with pm.Model() as model:
        c = pm.Categorical("cluster", p=pm.Dirichlet("weights", np.ones(labels)), shape=objects)
        likelihood("x", positive("rate", labels)[c], observed=COUNTS[:objects, 0])
    with pytest.raises(pmm.UnservedModelError, match=message):
        pmm.steps(model)


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(case):
    factors, message = REFUSED[case]
    with pytest.raises(pmm.UnservedModelError, match=message):
        pmm.steps(declared(factors))


@pytest.mark.parametrize("factors", [chain_of_states, neighbours])
def test_two_labels_are_those_of_pairs(factors):
    model = declared(factors)
    assert read(model).of(PairLikelihoods)
    testing.check_scores(model, n_points=2)


def minibatch_of_normals():
    values = np.random.default_rng(0).normal(size=(50, 2))
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(T)), shape=N)
        mean = pm.Normal("mean", 0.0, 3.0, shape=(T, 2))
        batch = pm.Minibatch(values, batch_size=N)
        pm.Normal("x", mean[cluster], 1.0, observed=batch, total_size=50)
    return model


def minibatch_of_factors():
    values = np.random.default_rng(0).normal(size=(50, 3))
    with pm.Model() as model:
        loadings, latent = pm.Normal("loadings", shape=(3, 1)), pm.Normal("latent", shape=(N, 1))
        batch = pm.Minibatch(values, batch_size=N)
        tau = pm.Gamma("tau", 1.0, 1.0)
        pm.Normal("x", latent @ loadings.T, tau=tau, observed=batch)
    return model


@pytest.mark.filterwarnings("ignore:total_size not provided")
@pytest.mark.parametrize("declare", [minibatch_of_normals, minibatch_of_factors])
def test_minibatches_are_refused(declare):
    with pytest.raises(pmm.UnservedModelError, match=r"'x' is random, as with .* pm.Minibatch"):
        pmm.steps(declare())


def test_what_is_random_elsewhere_does_not_matter():
    values = np.random.default_rng(0).normal(size=(N, 3))
    with pm.Model() as model:
        loadings, latent = pm.Normal("loadings", shape=(3, 1)), pm.Normal("latent", shape=(N, 1))
        pm.Normal("x", latent @ loadings.T, tau=pm.Gamma("tau", 1.0, 1.0), observed=values)
        pm.Simulator("y", lambda rng, m, size=None: rng.normal(m), pm.Normal("m"), observed=0.0)
    assert read(model).parts


def wide(n=40, inside=300):
    """Declare a table whose intermediate results are far larger than it is."""
    x = np.random.default_rng(0).normal(size=n)
    with pm.Model() as model:
        w = pm.StickBreakingWeights("weights", alpha=1.4, K=T - 1)
        c = pm.Categorical("cluster", p=w, shape=n)
        units = np.linspace(0.0, 1.0, inside)
        pm.Laplace("x", pt.tanh(rows(shape=T)[c][:, None] * units).mean(axis=1), 1.0, observed=x)
    return model


@pytest.mark.parametrize(("most", "batch"), [(2**20, 2**20 // 12_000), (30_000, 2), (11_000, 1)])
def test_rows_are_evaluated_in_batches_that_memory_allows(monkeypatch, most, batch):
    model = wide()
    point = model.initial_point(0) | {"mu": np.array([0.3, -1.0, 2.0])}
    labels = [np.repeat(np.arange(T), 3)[:, None].repeat(40, axis=1)]
    context = Context.of(model)
    densities = LabelDensities(model, [model["x"]], [model["cluster"]])
    expected = densities.compiled(1, True)(point, labels)
    monkeypatch.setattr(label_tables, "_MOST_CELLS", most)
    assert densities.batch(True, context.start, [labels[0][:2]]) == batch
    entries = densities.compiled(batch, True)
    tracemalloc.start()
    np.testing.assert_allclose(entries(point, labels), expected, rtol=1e-12)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Two intermediate results at a time, of numbers of eight bytes.
    assert peak < 2.5 * 8 * 12_000 * min(batch, 9)
    assert evidence(model).batch == batch


def test_intermediate_results_that_outgrow_the_rows_are_made_row_by_row():
    """All pairs of rows, as if vectorising had mixed them up."""
    model = wide()
    densities = LabelDensities(model, [model["x"]], [model["cluster"]])
    (rows_,) = densities._rows
    densities._all_rows = lambda conditions: [(rows_[:, None] * rows_[None]).sum(axis=1)]
    labels = [np.zeros((2, 40), int)]
    assert densities.batch(True, model.initial_point(0), labels) == 1


def test_tables_that_are_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(declared_reading, "MOST_CELLS", 100)
    with pytest.raises(
        pmm.UnservedModelError,
        match="'x': expected a table of at most 100 log densities, entries times labels; found 40 "
        "entries and 3 labels of 'cluster'",
    ):
        pmm.steps(wide())
    assert not read(wide(n=20)).refusals


def test_what_is_too_large_is_not_evaluated(monkeypatch):
    monkeypatch.setattr(declared_reading, "MOST_CELLS", 100)
    model = wide(inside=2_000_000)
    tracemalloc.start()
    assert "'x': expected a table of at most 100" in read(model).refusals["cluster"]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A row would be of 640 MB; the numbers that are in the declaration are 16 MB.
    assert peak < 100e6


def test_labels_of_two_objects_in_one_entry_are_those_of_pairs():
    with pm.Model() as model:
        a = pm.Categorical("a", p=pm.Dirichlet("v", np.ones(T)), shape=N)
        b = pm.Categorical("b", p=pm.Dirichlet("w", np.ones(T)), shape=N)
        pm.StudentT(
            "x", nu=4.0, mu=rows(shape=T)[a] + rows("nu", shape=T)[b[::-1]], observed=X[:, 0]
        )
    assert read(model).of(PairLikelihoods)
    testing.check_scores(model, n_points=2)


def test_conditions_are_asked_entry_by_entry():
    """A probability that is none under one label is impossible there, and nowhere else."""
    from pm_match import testing

    def factors(c):
        pm.Binomial("x", 3, pm.Normal("p", 0.5, 0.1, shape=T)[c], observed=np.full(N, 3))

    state = testing.collapsed_of(declared(factors))
    point = {**testing.random_point(declared(factors), np.random.default_rng(0), state)}
    point["p"] = np.array([0.5, 1.2, 0.9])
    state.load(point, [np.zeros(N, int)])
    found = state.scores(0, 0)[:-1]
    np.testing.assert_allclose(found, [3 * np.log(0.5), -np.inf, 3 * np.log(0.9)])


def test_conditions_on_vectors_are_asked_entry_by_entry():
    """A parameter that is negative under one label is impossible there, and nowhere else."""

    def factors(c):
        x = np.tile([0.2, 0.8], (N, 1))
        pm.Dirichlet("x", pm.Normal("a", 2.0, 0.1, shape=(T, 2))[c], observed=x)

    model = declared(factors)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, np.random.default_rng(0), state)
    point["a"] = np.array([[1.0, 1.0], [2.0, -0.5], [2.0, 1.0]])
    state.load(point, [np.zeros(N, int)])
    found = state.scores(0, 0)[:-1]
    np.testing.assert_allclose(found, [0.0, -np.inf, np.log(2 * 0.2)], atol=1e-12)


def test_draws_of_nothing_are_not_checked():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=3)
        pm.StudentT("x", 4.0, pm.Normal("mean", shape=2)[cluster], observed=[0.1, 1.0, 3.0])
    with pytest.raises(ValueError, match="expected parameters that are integrated out; found none"):
        testing.check_draws(model)
