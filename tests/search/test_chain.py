"""The chain that searches drive: it reads, writes and scores points as the model declares them."""

import numpy as np
import pytest

import pm_match as pmm
from pm_match.reading.probe import PLAIN
from pm_match.search.chain import Chain
from tests.declared.networks import cluster_step, network_model, plain_log_joint, random_point
from tests.declared.plain import tiny_model


def chain_of(model, seed=0):
    rng = np.random.default_rng(seed)
    return Chain(model, pmm.steps(model), random_point(model, rng), rng)


def random_labels(chain, rng):
    return [
        np.where(rng.random(c.n_objects) < 0.3, -1, rng.integers(c.truncation, size=c.n_objects))
        for c in chain.components[0].clusterings
    ]


def test_labels_that_are_placed_are_read():
    chain = chain_of(network_model())
    before = dict(chain.point)
    labels = random_labels(chain, np.random.default_rng(1))
    chain.place(0, labels)
    for placed, read in zip(labels, chain.labels(0), strict=True):
        np.testing.assert_array_equal(placed, read)
    assert list(chain.point) == list(before)
    assert all(chain.point[name].dtype == before[name].dtype for name in before)


def test_placing_leaves_the_old_point_as_it_is():
    chain = chain_of(network_model())
    old = chain.point
    kept = {name: value.copy() for name, value in old.items()}
    chain.place(0, random_labels(chain, np.random.default_rng(1)))
    chain.run(2)
    assert all(np.array_equal(old[name], kept[name]) for name in old)


def test_labels_that_cannot_be_are_refused():
    chain = chain_of(network_model(relevance=False))
    labels = chain.labels(0)
    with pytest.raises(
        ValueError, match=r"'cluster_a_0': expected labels from 0, all its objects being relevant"
    ):
        chain.place(0, [np.full_like(own, -1) for own in labels])
    with pytest.raises(ValueError, match=r"labels of 'weights_0': expected numbers in -1 ... 1"):
        chain.place(0, [own + 5 for own in labels])
    with pytest.raises(ValueError, match=r"one for each of 5 objects; found shape \(4,\)"):
        chain.place(0, [own[:-1] for own in labels])


@pytest.mark.parametrize("kind", ["bipartite", "undirected"])
def test_log_joint_is_that_of_the_plain_formulas(kind):
    model = network_model(kind, hyperpriors=True)
    chain = chain_of(model)
    step = cluster_step(model)
    declared = model.compile_logp(
        vars=[model[name] for name in chain.components[0].hyperparameters], sum=True, mode=PLAIN
    )
    rng = np.random.default_rng(2)
    for _ in range(5):
        chain.place(0, random_labels(chain, rng))
        expected = plain_log_joint(step, chain.point, chain.labels(0)) + declared(chain.point)
        assert chain.log_joint() == pytest.approx(expected, abs=1e-8)


def test_log_joint_has_the_prior_of_normal_projections():
    model = tiny_model()
    rng = np.random.default_rng(0)
    chain = Chain(model, pmm.steps(model), model.initial_point(0), rng)
    chain.run(3)
    before = chain.log_joint()
    stats = None
    for step in chain.steps:
        _, stats = step.step(chain.point)
    # One more step moves labels; its own log joint is that of the point it leads to.
    assert np.isfinite(before)
    projections = [rv for rv in model.free_RVs if rv.name.startswith("projection_")]
    prior = model.compile_logp(vars=projections, mode=PLAIN)(chain.point)
    state = chain.loaded(0)
    assert before == pytest.approx(state.log_joint() + prior, abs=1e-8)
    assert "log_joint" in stats[0]


def test_the_climb_of_hyperparameters_climbs_and_ends_where_it_is_level():
    model = network_model(hyperpriors=True)
    chain = chain_of(model)
    before = chain.log_joint()
    for _ in range(10):
        chain.maximise_hyperparameters(0)
    top = chain.log_joint()
    assert top > before
    for name in chain.components[0].hyperparameters:
        key = model.rvs_to_values[model[name]].name
        for shift in (-0.1, 0.1):
            moved = Chain(model, chain.steps, chain.point, np.random.default_rng(0))
            moved.point[key] = moved.point[key] + shift
            assert moved.log_joint() < top + 1e-3


def test_settling_leaves_labels_and_log_joint():
    chain = chain_of(network_model(hyperpriors=True))
    labels, before, point = chain.labels(0), chain.log_joint(), chain.point
    chain.settle()
    assert chain.log_joint() == pytest.approx(before, abs=1e-9)
    for one, other in zip(labels, chain.labels(0), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(point["density_logodds__"], chain.point["density_logodds__"])


def test_same_generator_same_points():
    model = network_model(hyperpriors=True)
    points = []
    for _ in range(2):
        chain = chain_of(model, seed=4)
        chain.run(3, n_sweeps=2)
        points.append(chain.point)
    assert all(np.array_equal(points[0][name], points[1][name]) for name in points[0])
    (step,) = [s for s in chain.steps if isinstance(s, pmm.ClusterGibbs)]
    assert step.n_sweeps is None
