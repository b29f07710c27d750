"""Which models with independent columns are read, and what is said of the others."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match import testing
from pm_match.reading import read
from tests.declared.columns import M, N, T, declared

X = np.random.default_rng(0).poisson(2.0, (5, M))
TABLE = np.array([[0, 1], [1, 1], [0, 0], [1, 0], [1, 1]])


def one(declare, *, n=5, truncation=T):
    """A model of one assignment, over which `declare` says what is seen."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", alpha=1.4, K=truncation - 1)
        declare(pm.Categorical("cluster", p=weights, shape=n))
    return model


def rates(**kwargs):
    return pm.Gamma("rate", 1.5, 0.5, **({"shape": (T, M)} | kwargs))


def chances(**kwargs):
    return pm.Beta("chance", 1.5, 0.5, **({"shape": (T, M)} | kwargs))


def evidence_of(model):
    structure = read(model)
    assert not structure.refusals, structure.refusals
    (found,) = structure.components[0].evidence
    assert found.kind == "columns"
    return found


WAYS = {
    "rows": lambda c: pm.Poisson("x", rates()[c], observed=X),
    "rows and columns": lambda c: pm.Poisson("x", rates()[c, :], observed=X),
    "one hot": lambda c: pm.Poisson(
        "x", pt.eq(c[:, None], np.arange(T)).astype("float64") @ rates(), observed=X
    ),
    "columns in another order": lambda c: pm.Poisson("x", rates()[c][:, ::-1], observed=X),
    "by numbers of columns": lambda c: pm.Poisson(
        "x", rates()[c[:, None], np.arange(M)], observed=X
    ),
    "one parameter for all columns": lambda c: pm.Poisson(
        "x", rates(shape=T)[c][:, None], observed=X
    ),
    "transposed": lambda c: pm.Poisson("x", rates()[c].T, observed=X.T),
    "a vector": lambda c: pm.Poisson("x", rates(shape=T)[c], observed=X[:, 0]),
    "exposures": lambda c: pm.Poisson("x", 0.5 * (1.0 + X) * rates()[c], observed=X),
    "several of an object": lambda c: pm.Poisson(
        "x", rates(shape=T)[c[[0, 0, 2, 4, 1]]], observed=X[:, 0]
    ),
    "logits": lambda c: pm.Bernoulli("x", logit_p=pm.math.logit(chances()[c]), observed=TABLE),
    "mean and dispersion": lambda c: negative_binomial(c),
    "scales": lambda c: pm.Exponential("x", scale=1.0 / rates()[c], observed=1.0 + X),
    "a layer of axes": lambda c: pm.Poisson(
        "x", rates(shape=(T, M, 2))[c], observed=np.stack([X, X], axis=2)
    ),
}


def negative_binomial(cluster):
    p = chances()[cluster]
    return pm.NegativeBinomial("x", mu=3.0 * (1.0 - p) / p, alpha=3.0, observed=X)


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_writing_it(way):
    evidence_of(one(WAYS[way]))


def test_what_is_found_of_cells():
    order = np.array([3, 0, 0, 4, 1])
    found = evidence_of(
        one(lambda c: pm.Poisson("x", 2.0 * rates()[c[order]][:, ::-1], observed=X))
    )
    (cells,) = found.cells
    np.testing.assert_array_equal(cells.object, np.repeat(order, M))
    np.testing.assert_array_equal(cells.column, np.tile([1, 0], 5))
    np.testing.assert_array_equal(cells.known, 2.0)
    assert cells.layout is None


def test_hyperparameters_may_be_free():
    def declare(cluster):
        shape, rate = pm.Gamma("shape", 2.0, 1.0), pm.HalfNormal("rate_rate", shape=M)
        rate = pm.Gamma("rate", shape, rate, shape=(T, M))
        pm.Poisson("x", rate[cluster], observed=X)

    model = one(declare)
    (component,) = read(model).components
    assert component.hyperparameters == ("shape", "rate_rate")
    point = model.initial_point(0)
    hyper = evidence_of(model).hyper(point)
    np.testing.assert_allclose(hyper[:, 0], np.exp(point["shape_log__"]))
    np.testing.assert_allclose(hyper[:, 1], np.exp(point["rate_rate_log__"]))


def test_long_vectors_of_hyperparameters_are_left_to_pymc():
    def declare(cluster):
        shape = pm.Gamma("shape", 2.0, 1.0, shape=40)
        rate = pm.Gamma("rate", shape, 1.0, shape=(T, 40))
        pm.Poisson("x", rate[cluster], observed=np.ones((5, 40), int))

    (component,) = read(one(declare)).components
    assert component.hyperparameters == ()


def special_label(cluster):
    """One label in forty that behaves differently."""
    rate = pm.Gamma("rate", 1.5, 0.5, shape=(40, M))[cluster]
    rate = pt.switch(pt.eq(cluster, 17)[:, None], 2.0 * rate, rate)
    pm.Poisson("x", rate, observed=X)


def special_object(cluster):
    rate = rates()[cluster]
    pm.Poisson("x", pt.set_subtensor(rate[3], 2.0 * rate[3] * (cluster[0] + 1)), observed=X)


def two_of_them(cluster):
    rate = rates()
    pm.Poisson("x", rate[cluster], observed=X)
    pm.Normal("y", rate[0, 0], observed=1.0)


def differing(cluster):
    rate = pm.Gamma("rate", 1.5, np.array([[0.5], [0.5], [0.9]]), shape=(T, M))
    pm.Poisson("x", rate[cluster], observed=X)


def free_means(cluster):
    mean = pm.Normal("mean", 0.0, 1.0, shape=(T, M))
    precision = pm.Gamma("precision", 2.0, 1.0, shape=(T, M))
    pm.Normal("x", mean[cluster], tau=precision[cluster], observed=X + 0.5)


def not_a_multiple(cluster):
    precision = pm.Gamma("precision", 2.0, 1.0, shape=(T, M))
    mean = pm.Normal("mean", 0.0, tau=1.0 + precision, shape=(T, M))
    pm.Normal("x", mean[cluster], tau=precision[cluster], observed=X + 0.5)


def poisson(make, data=X):
    return lambda c: pm.Poisson("x", make(rates(), c), observed=data)


REFUSED = {
    "a special label": (special_label, "'x' are not those entries of 'rate'"),
    "a special object": (special_object, "'x' are not those entries of 'rate'"),
    "another prior": (
        lambda c: pm.Poisson("x", pm.LogNormal("rate", shape=(T, M))[c], observed=X),
        "expected one assignment, and one Gamma variable, its conjugate prior",
    ),
    "two parameters": (
        poisson(lambda rate, c: rate[c] + pm.Gamma("more", 1.0, 1.0)),
        "'x' depends on 'cluster', 'more', 'rate'; expected one assignment, and one Gamma",
    ),
    "a power": (poisson(lambda rate, c: rate[c] ** 2), "'x' are not those entries of 'rate'"),
    "a shift": (poisson(lambda rate, c: rate[c] + 0.1), "'x' are not those entries of 'rate'"),
    "a sum": (poisson(lambda rate, c: rate[c] + rate[c[::-1]]), "are not those entries"),
    "rates that are cut off": (
        poisson(lambda rate, c: rate.clip(1e-5, 1e6)[c]),
        "'x' are not those entries of 'rate'",
    ),
    "chances that are cut off": (
        lambda c: pm.Bernoulli("x", chances().clip(1e-6, 1.0 - 1e-6)[c], observed=TABLE),
        "'x' are not those entries of 'chance'",
    ),
    "a weight that differs between labels": (
        poisson(lambda rate, c: rate[c] * pt.arange(1.0, T + 1)[:, None][c]),
        "'x' are not those entries of 'rate'",
    ),
    "other children": (two_of_them, "'y' depends on 'rate' too, which could then not be"),
    "priors that differ": (differing, "the prior of 'rate' differs between clusters"),
    "independent mean and precision": (
        free_means,
        "'mean' does not depend on 'precision'; expected the conjugate prior",
    ),
    "not a multiple of the precision": (not_a_multiple, "is not that of Normal(m, tau=kappa * pre"),
    "labels without parameters": (
        poisson(lambda rate, c: rate[:2][c]),
        "'x': expected parameters for every label of 'cluster'; found that they cannot be computed "
        "(index 2 is out of bounds",
    ),
    "parameters for fewer labels": (
        lambda c: pm.Poisson("x", rates(shape=(T - 1, M))[c], observed=X),
        "'rate' has shape (2, 2); expected a row for each of the 3 labels of 'cluster'",
    ),
    "an assignment of another length": (
        poisson(lambda rate, c: rate[c], X[:4]),
        "'x' has the shape (4, 2), and its parameters (5, 2); expected them to be the same",
    ),
    "a negative count": (
        poisson(lambda rate, c: rate[c], X - 20 * (np.arange(10).reshape(5, 2) == 3)),
        "'x', row 1, column 1: expected a whole number, 0 or more; found",
    ),
    "a category that is none": (
        lambda c: pm.Categorical(
            "x", p=pm.Dirichlet("p", np.ones(3), shape=(T, 3))[c], observed=[0, 1, 3, 2, 0]
        ),
        "'x', row 2: expected a category, a whole number from 0 to one less than their number; "
        "found 3",
    ),
    "a factor below zero": (
        poisson(lambda rate, c: -2.0 * rate[c]),
        "'x', row 0, column 0: expected a known factor, or number of trials, of 0 or more; found",
    ),
    "fewer trials than none": (
        lambda c: pm.Binomial("x", -1, chances(shape=T)[c], observed=[0, 1, 2, 3, 0]),
        "'x', row 0: expected a known factor, or number of trials, of 0 or more; found -1",
    ),
    "more successes than trials": (
        lambda c: pm.Binomial("x", 2, chances(shape=T)[c], observed=[0, 1, 2, 3, 0]),
        "'x', row 3: expected a whole number from 0 to the number of trials; found 3",
    ),
    "bags of another size": (
        lambda c: pm.Multinomial(
            "x", 4, pm.Dirichlet("p", np.ones(2), shape=(T, 2))[c], observed=TABLE
        ),
        "'x', row 0: expected whole numbers, 0 or more, that add up to the number of trials",
    ),
    "no binary": (
        lambda c: pm.Bernoulli("x", chances(shape=T)[c], observed=[0, 1, 2, 0, 0]),
        "'x', row 2: expected 0 or 1; found 2",
    ),
    "an infinite value": (
        lambda c: pm.Exponential("x", rates(shape=T)[c], observed=[1.0, np.inf, 1.0, 1.0, 1.0]),
        "'x' holds inf",
    ),
}


@pytest.mark.usefixtures("only_collapsed")
@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    declare, message = REFUSED[why]
    truncation = 40 if declare is special_label else T
    structure = read(one(declare, truncation=truncation))
    assert not structure.components
    assert message in structure.refusals["cluster"]


def test_fractions_are_refused_where_they_are_kept():
    def declare(cluster):
        data = pm.Data("data", X + 0.5 * (np.arange(10).reshape(5, 2) == 3))
        pm.Poisson("x", rates()[cluster], observed=data)

    structure = read(one(declare))
    assert "'x', row 1, column 1: expected a whole number" in structure.refusals["cluster"]


def test_a_row_and_a_column_are_named_where_values_are_missing():
    values = np.ma.masked_array(X.copy(), mask=np.zeros(X.shape, bool))
    values[0, 0] = np.ma.masked
    values[3, 1] = -1
    structure = read(one(poisson(lambda rate, c: rate[c], values)))
    assert "'x', row 3, column 1: expected a whole number" in structure.refusals["cluster"]


def test_missing_categories_are_no_assignment():
    model = declared("categorical", missing=True)
    structure = read(model)
    assert not structure.refusals
    (clustering,) = structure.clusterings
    assert [a.name for a in clustering.assignments] == ["cluster_a", "cluster_b"]


def test_rows_of_counts_may_be_missing():
    x = np.ma.masked_array(np.array([[2, 1], [1, 2], [3, 0], [0, 3], [3, 0]]))
    x[1] = np.ma.masked

    def declare(cluster):
        p = pm.Dirichlet("p", np.ones(2), shape=(T, 2))
        pm.Multinomial("x", 3, p[cluster], observed=x)

    found = evidence_of(one(declare))
    assert found.names == ["p", "x_unobserved"]
    np.testing.assert_array_equal(found.cells[0].missing.object, [1])


def test_steps_pickle():
    model = declared("poisson", n=N)
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    results = []
    for own in (step, copy):
        own.setup_chain(np.random.default_rng(4), 0, 0)
        results.append(own.step(model.initial_point(0))[0])
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])


# -- priors that are the same in places only ------------------------------------------------------


def of_depth():
    rate = pm.HalfNormal("rate", 0.0005)
    return pm.Normal("most", 3.0, 1.0) * (1.0 - pt.exp(-rate * np.array([2000.0, 6000.0])))


def at_most(most):
    def means():
        mean = pm.Normal("middle", 50.0, 3.0)
        return pt.stack([mean, pt.minimum(mean, most)])

    return means


def with_means(means):
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", [1.0, 1.0]), shape=3)
        mean = pm.Normal("mean", means(), 1.0, shape=2)
        pm.Normal("x", mean[cluster], 0.5, observed=[-1.0, 0.0, 2.0])
    return model


@pytest.mark.parametrize("means", [of_depth, at_most(49.0)])
def test_priors_that_differ_where_the_model_lives_are_not_integrated_out(means):
    (component,) = read(with_means(means)).components
    assert component.evidence[0].kind == "declared"


def test_priors_that_differ_at_a_draw_stop_the_chain():
    model = with_means(at_most(70.0))
    assert evidence_of(model)
    state, point = testing.collapsed_of(model), model.initial_point()
    state.load(point, state.labels(point))
    with pytest.raises(pmm.UnservedModelError, match="found a draw at which it differs"):
        state.load(point | {"middle": np.array(80.0)}, state.labels(point))


def test_parameters_that_depend_on_how_many_objects_a_cluster_has_are_refused():
    def declare(cluster):
        few = pt.switch(pt.eq(pt.eq(cluster, 0).sum(), 3), 10.0, 1.0)
        pm.Poisson("x", few * rates()[cluster], observed=np.ones((10, M), int))

    refused = read(one(declare, n=10)).refusals["cluster"]
    assert "depends on the labels of more than one object" in refused


@pytest.mark.parametrize("more", [3e-9, 1e6])
def test_means_whose_precision_is_no_multiple_are_not_integrated_out(more):
    """What is added shows at precisions far from 1, or near it."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", [1.0, 1.0]), shape=3)
        tau = pm.Gamma("tau", 2.0, 1.0, shape=2)
        mean = pm.Normal("mean", 0.0, tau=tau + more, shape=2)
        pm.Normal("x", mean[cluster], tau=tau[cluster], observed=[-1.0, 0.0, 2.0])
    (component,) = read(model).components
    assert component.evidence[0].kind == "declared"


def test_an_observed_precision_is_no_parameter_of_clusters():
    """The model could not be read at all."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", [0.2, 0.3, 0.5], shape=5)
        precision = pm.Gamma("precision", 2.0, 2.0, shape=T)
        mean = pm.Normal("mean", 0.0, tau=2.0 * precision, shape=T)
        pm.Normal("x", mean[cluster], tau=precision[cluster], observed=X[:, 0])
    evidence_of(model)
    (found,) = read(pm.observe(model, {"precision": [0.5, 1.0, 2.0]})).components[0].evidence
    assert found.kind == "declared"


def test_what_is_refused_beside_what_is_not_takes_its_power_along():
    """The others' parameters were not integrated out, either."""
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", [0.2, 0.3, 0.5], shape=5)
        for name, rows in (("few", T - 1), ("right", T)):
            rate = pm.Gamma(f"rate_{name}", 2.0, 1.0, shape=rows)
            pm.Poisson(name, rate[cluster % rows], observed=np.arange(5))
            pmm.coarsen(f"coarsened_{name}", name, 0.5)
    structure = read(model)
    found = {own.kind: own for own in structure.components[0].evidence}
    assert found["declared"].factors == ("few", "coarsened_few")
    assert found["columns"].parameters == ("rate_right",)
    assert "claims it" not in structure.notes["cluster"]


def test_counts_of_which_pymc_loses_bits_are_refused_in_words():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster", pm.Dirichlet("weights", np.ones(2)), shape=3)
        rate = pm.Gamma("rate", 1.0, 1.0, shape=2)
        pm.Poisson("x", rate[cluster], observed=np.array([1, 2637841766, 4]))
    with pytest.raises(pmm.UnservedModelError, match=r"found -1657125530.*give larger ones"):
        pmm.steps(model)
