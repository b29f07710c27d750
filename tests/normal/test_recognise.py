"""Which declared normal clusters are recognised, and why others are not."""

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.clusters.protocol import collected
from pm_match.normal.parts import Normals
from pm_match.normal.points import packed_cholesky
from pm_match.reading import read
from pm_match.reading.probe import evaluate
from tests.declared.normals import cluster_step, normals_model, random_point

pytestmark = pytest.mark.usefixtures("only_collapsed")

T, D, N = 3, 2, 5
DATA = np.random.default_rng(0).normal(size=(N, D))


def declared(change=None, **parts):
    """Declare a model of five objects, with some of its parts in another way."""
    with pm.Model() as model:
        weights = pm.StickBreakingWeights("weights", np.float64(1.0), T - 1)
        cluster = pm.Categorical("cluster_a", p=weights, shape=N)
        kinds = {
            "precision": lambda: pm.Wishart("precision", nu=4, V=np.eye(D)),
            "mean": lambda precision: pm.MvNormal(
                "mean", np.zeros(D), tau=0.5 * precision, shape=(T, D)
            ),
            "x": lambda mean, cluster, precision: pm.MvNormal(
                "x", mean[cluster], tau=precision, observed=DATA
            ),
        } | parts
        precision = kinds["precision"]()
        mean = kinds["mean"](precision)
        kinds["x"](mean, cluster, precision)
        if change is not None:
            change(mean, precision, cluster)
    return model


def only(model):
    structure = read(model)
    assert not structure.refusals, structure.refusals
    (found,) = structure.components[0].of(Normals)
    return found


def test_what_is_read():
    found = only(declared())
    assert (found.mean, found.precision, found.shared) == ("mean", "precision", True)
    assert (found.truncation, found.n_features, found.searchable) == (T, D, True)
    (values,) = found.values
    assert (values.name, values.assignment) == ("x", "cluster_a")
    np.testing.assert_array_equal(values.objects, np.arange(N))
    np.testing.assert_array_equal(values.data, DATA)
    prior = found.prior(read_point(declared()))
    assert prior.strength == pytest.approx(0.5)
    assert prior.degrees == 4.0
    np.testing.assert_allclose(prior.inverse_scale, np.eye(D))


def read_point(model):
    return random_point(model, np.random.default_rng(1))


WAYS = {
    "covariance": {
        "mean": lambda p: pm.MvNormal("mean", 0.0, cov=pt.linalg.inv(p) / 0.5, shape=(T, D)),
        "x": lambda m, c, p: pm.MvNormal("x", m[c], cov=pt.linalg.inv(p), observed=DATA),
    },
    "cholesky": {
        "x": lambda m, c, p: pm.MvNormal(
            "x", m[c], chol=pt.linalg.cholesky(pt.linalg.inv(p)), observed=DATA
        ),
    },
    "one hot": {
        "x": lambda m, c, p: pm.MvNormal(
            "x", pt.eq(c[:, None], np.arange(T)).astype("float64") @ m, tau=p, observed=DATA
        ),
    },
    "own precisions": {
        "precision": lambda: pm.Wishart("precision", nu=4, V=np.eye(D), shape=(T, D, D)),
        "mean": lambda p: pm.MvNormal("mean", 0.0, cov=2.0 * pt.linalg.inv(p), shape=(T, D)),
        "x": lambda m, c, p: pm.MvNormal("x", m[c], cov=pt.linalg.inv(p)[c], observed=DATA),
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_writing_it(way):
    found = only(declared(**WAYS[way]))
    assert found.prior(read_point(declared(**WAYS[way]))).strength == pytest.approx(0.5)


def test_objects_in_any_order():
    order = np.array([3, 0, 0, 4])
    found = only(
        declared(
            x=lambda m, c, p: pm.MvNormal("x", m[c[order]], tau=p, observed=DATA[order]),
        )
    )
    np.testing.assert_array_equal(found.values[0].objects, order)


def test_priors_may_depend_on_free_variables():
    def scaled(precision):
        width = pm.LogNormal("width")
        centre = pm.Normal("centre", shape=D)
        return pm.MvNormal("mean", centre, tau=precision / width, shape=(T, D))

    model = declared(mean=scaled)
    point = read_point(model)
    prior = only(model).prior(point)
    assert prior.strength == pytest.approx(np.exp(-point["width_log__"]))
    np.testing.assert_allclose(prior.center, point["centre"])


def ladder(p):
    return pm.MvNormal("mean", np.arange(T)[:, None] * np.ones(D), tau=0.5 * p, shape=(T, D))


def rungs(p):
    """The same where their distance is 0, as it is at a start."""
    centres = pm.Normal("step") * np.arange(T)[:, None] * np.ones(D)
    return pm.MvNormal("mean", centres, tau=0.5 * p, shape=(T, D))


def of_depth(p):
    """Strengths that are the same but where the rate is that of a depth in metres."""
    strength = 1.0 - pt.exp(-pm.HalfNormal("rate", 5e-4) * 1000.0 * (1.0 + np.arange(T)))
    covariance = pt.linalg.inv(p) / strength[:, None, None]
    return pm.MvNormal("mean", np.zeros(D), cov=covariance, shape=(T, D))


def reached():
    """What is 1 for all clusters but where the rate is tiny."""
    return 1.0 - pt.exp(-pm.HalfNormal("rate", 1.0) * 1e6 * (1.0 + np.arange(T)))


def centres(p):
    return pm.MvNormal("mean", reached()[:, None] * np.ones(D), tau=0.5 * p, shape=(T, D))


def strengths(p):
    covariance = pt.linalg.inv(p) / reached()[:, None, None]
    return pm.MvNormal("mean", np.zeros(D), cov=covariance, shape=(T, D))


@pytest.mark.parametrize("mean", [centres, strengths])
def test_priors_that_differ_at_a_draw_stop_the_chain(mean):
    model = declared(mean=mean)
    point, prior = read_point(model), only(model).prior
    prior(point)
    with pytest.raises(pmm.UnservedModelError, match=r"'mean': .* a draw at which it differs"):
        prior(point | {"rate_log__": np.log(1e-6)})


REFUSED = {
    "strengths differ": ({"mean": of_depth}, "'mean' differs between clusters"),
    "centres differ but for a start": ({"mean": rungs}, "'mean' differs between clusters"),
    "centres differ": ({"mean": ladder}, "'mean' differs between clusters"),
    "scales differ": (
        {
            "precision": lambda: pm.Wishart(
                "precision", nu=4, V=np.stack([np.eye(D)] * 2 + [2 * np.eye(D)])
            ),
            "mean": lambda p: pm.MvNormal("mean", 0.0, cov=2.0 * pt.linalg.inv(p), shape=(T, D)),
            "x": lambda m, c, p: pm.MvNormal("x", m[c], cov=pt.linalg.inv(p)[c], observed=DATA),
        },
        "'precision' differs between clusters",
    ),
    "not a multiple": (
        {"mean": lambda p: pm.MvNormal("mean", np.zeros(D), tau=0.5 * p + np.eye(D), shape=(T, D))},
        "'mean' is not that of means whose precision is a multiple",
    ),
    "nearly a multiple": (
        {
            "mean": lambda p: pm.MvNormal(
                "mean", np.zeros(D), cov=2.0 * pt.linalg.inv(p) + 1e-9 * np.eye(D), shape=(T, D)
            )
        },
        "'mean' is not that of means whose precision is a multiple",
    ),
    "nearly the noise": (
        {
            "x": lambda m, c, p: pm.MvNormal(
                "x", m[c], cov=pt.linalg.inv(p) + 1e-9 * np.eye(D), observed=DATA
            )
        },
        "the declared density of 'x' is not normal around",
    ),
    "other noise": (
        {"x": lambda m, c, p: pm.MvNormal("x", m[c], tau=2.0 * p, observed=DATA)},
        "the declared density of 'x' is not normal around",
    ),
    "a shift": (
        {"x": lambda m, c, p: pm.MvNormal("x", m[c] + 1.0, tau=p, observed=DATA)},
        "the mean of 'x' is not 'mean' of the clusters",
    ),
    "means that are cut off": (
        {"x": lambda m, c, p: pm.MvNormal("x", m.clip(-50.0, 50.0)[c], tau=p, observed=DATA)},
        "'clip', which is not analytic",
    ),
    "another parent": (
        {"x": lambda m, c, p: pm.MvNormal("x", m[c] + pm.Normal("shift"), tau=p, observed=DATA)},
        "'x' depends on 'shift' too",
    ),
    "a shape": (
        {"mean": lambda p: pm.MvNormal("mean", np.zeros(D), tau=0.5 * p, shape=(T + 1, D))},
        "'mean' has shape",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    parts, message = REFUSED[why]
    structure = read(declared(**parts))
    assert not structure.components
    assert message in structure.refusals["cluster_a"]


def test_other_children_are_refused():
    def change(mean, precision, cluster):
        pm.Normal("y", mean[0, 0], observed=1.0)

    assert "'y' depends on 'mean' too" in read(declared(change)).refusals["cluster_a"]

    def change(mean, precision, cluster):
        pm.Normal("y", precision[0, 0], observed=1.0)

    assert "'y' depends on 'precision' too" in read(declared(change)).refusals["cluster_a"]

    def change(mean, precision, cluster):
        pm.Normal("y", cluster[0], observed=1.0)

    assert "'y'" in read(declared(change)).refusals["cluster_a"]


def test_one_cluster_is_refused():
    with pm.Model() as model:
        cluster = pm.Categorical("cluster_a", p=pm.Dirichlet("weights", np.ones(1)), shape=N)
        precision = pm.Wishart("precision", nu=D + 2, V=np.eye(D))
        mean = pm.MvNormal("mean", np.zeros(D), tau=precision, shape=(1, D))
        pm.MvNormal("x", mean[cluster], tau=precision, observed=DATA)
    assert "'mean' has one mean" in read(model).refusals["cluster_a"]


def test_infinite_data_are_refused():
    wrong = DATA.copy()
    wrong[2, 1] = np.inf
    model = declared(x=lambda m, c, p: pm.MvNormal("x", m[c], tau=p, observed=wrong))
    assert "'x'" in read(model).refusals["cluster_a"]


def network(cluster, **kwargs):
    density = pm.Beta("density", 1.0, 1.0, shape=(T, T))
    edges = np.triu(np.ones((N, N)), 2)
    pmm.BlockNetwork("edges", [cluster, cluster], density, observed=edges, **kwargs)


def test_relevance_is_refused():
    def change(mean, precision, cluster):
        flag = pm.Bernoulli("relevance_a", 0.5, shape=N)
        network(cluster, noise=pm.Beta("noise", 1.0, 1.0), relevance=[flag, flag])

    assert "does not enter" in read(declared(change)).refusals["cluster_a"]


def test_beside_a_network():
    model = declared(lambda mean, precision, cluster: network(cluster))
    step = cluster_step(model)
    (terms,) = step._collapsed.terms
    assert {type(term).__name__ for term in collected(terms)} == {"SharedNormal", "OneMode"}


def test_a_model_that_was_refused_has_no_step():
    model = declared(mean=ladder)
    with pytest.raises(pmm.UnservedModelError, match="differs between clusters"):
        pmm.ClusterGibbs([model["cluster_a"]], model=model)


@pytest.mark.parametrize("shape", [(2, 2), (4, 3, 3), (1, 1)])
def test_packed_cholesky_is_pymcs_scale(shape):
    rng = np.random.default_rng(2)
    with pm.Model() as model:
        rv = pm.Wishart("w", nu=5, V=np.eye(shape[-1]), shape=shape)
    root = rng.normal(size=shape)
    matrices = root @ np.swapaxes(root, -1, -2)
    transform = model.rvs_to_transforms[rv]
    back = transform.backward(pt.as_tensor(packed_cholesky(matrices)), *rv.owner.inputs)
    np.testing.assert_allclose(evaluate(back), matrices, rtol=1e-9, atol=1e-12)


def test_steps_pickle():
    model = normals_model("views")
    step = pmm.ClusterGibbs([model["cluster_a"]], model=model, n_split_merge=0, n_exchanges=0)
    point = random_point(model, np.random.default_rng(3))
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    results = []
    for own in (step, copy):
        own.setup_chain(np.random.default_rng(4), 0, 0)
        results.append(own.step(dict(point))[0])
    for name in results[0]:
        np.testing.assert_array_equal(results[0][name], results[1][name])
