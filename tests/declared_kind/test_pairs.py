"""Likelihoods of pairs of objects: what is read of them, and the chain's law."""

from functools import partial
from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

import pm_match as pmm
from pm_match import testing
from pm_match.declared import pair_state, pairs
from pm_match.declared.parts import PairLikelihoods
from pm_match.reading import label_tables, read
from tests.declared.pairs import (
    COUNTS,
    COVARIATE,
    EDGES,
    VALUES,
    WAYS,
    M,
    N,
    T,
    assortative,
    block,
    declared,
    effects,
    labels,
    logit,
    rows_and_columns,
    states,
    transposed,
)


def evidence(model) -> PairLikelihoods:
    structure = read(model)
    assert not structure.refusals, structure.refusals
    (found,) = structure.of(PairLikelihoods)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_exactness(way):
    model = declared(WAYS[way])
    evidence(model)
    testing.check_scores(model, n_points=2)
    testing.check_running_state(model)
    testing.check_declared_density(model)
    testing.check_law(model, n_sweeps=20_000)


def test_scores_of_large_tables(monkeypatch):
    monkeypatch.setattr(pair_state, "LARGE", 0)
    monkeypatch.setattr(pairs, "LARGE", 0)
    testing.check_scores(declared(logit), n_points=2)


def test_scores_are_the_plain_formula():
    model, rng = declared(logit), np.random.default_rng(0)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, rng, state)
    state.load(point, state.labels(point))
    z = point["z"]
    for unit in range(N):
        expected = []
        for label in range(T):
            own = np.where(np.arange(N) == unit, label, z)
            level = point["b"][own[:, None], own] + COVARIATE
            expected.append(np.sum(EDGES * level - np.logaddexp(0.0, level)))
        found = state.scores(0, unit)[:-1]
        np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-9)


def both_ways():
    """As many clusters of rows as of columns, in tables one of which is the other way round."""
    a, b = labels("row", t=2), labels("column", M, 2)
    pm.Normal("x", block(shape=(2, 2))[a[:, None], b], 1.0, observed=VALUES)
    pm.Normal("y", block("c", (2, 2))[b[:, None], a], 1.0, observed=VALUES.T)


@pytest.mark.parametrize(
    ("way", "axes"),
    [
        (logit, {"b": {0: 0, 1: 0}}),
        (rows_and_columns, {"b": {0: 0, 1: 1}}),
        (transposed, {"b": {0: 1, 1: 0}}),
        (both_ways, {"b": {0: 0, 1: 1}, "c": {0: 1, 1: 0}}),
        (assortative, {}),
        (states, {"p": {0: 0, 1: 0}, "mu": {0: 0}}),
        (effects, {"level": {0: 0}, "other": {0: 1}, "b": {0: 0, 1: 1}}),
    ],
)
def test_what_labels_number(way, axes):
    assert evidence(declared(way)).axes == axes


def test_what_would_be_faster_is_told_of_edges_alone():
    assert "'x': expected edges all of whose parameters" in read(declared(logit)).notes["z"]
    assert "edges" not in read(declared(states)).notes.get("z", "")


def coarse_network():
    z = labels()
    pm.Bernoulli("x", pm.Beta("b", 1.0, 1.0, shape=(T, T))[z[:, None], z], observed=EDGES)
    pmm.coarsen("c", "x", 0.5)


def no_conjugate_prior():
    z = labels()
    pm.Bernoulli("x", pm.Uniform("b", 0.0, 0.5, shape=(T, T))[z[:, None], z], observed=EDGES)


def beside_noises():
    logit()
    z = pm.modelcontext(None)["z"]
    pm.Normal("own", block("mu", T)[z], pm.HalfNormal("s", shape=T)[z], observed=VALUES[:, 0])


@pytest.mark.parametrize(
    ("way", "told"),
    [
        (coarse_network, "'c' depends on 'b' too, which could then not be integrated out"),
        (
            no_conjugate_prior,
            "'b', a parameter of 'x', is a Uniform; expected a Beta, the bernoulli family's "
            "conjugate prior",
        ),
        (
            beside_noises,
            "'x': expected edges all of whose parameters are entries, which two labels choose, of "
            "matrices with conjugate priors; the noise of 'own' depends on 's', 'z'; expected it "
            "to be known, or one Gamma precision for each cluster",
        ),
    ],
)
def test_what_would_be_faster_is_told_of_each_variable(way, told):
    assert read(declared(way)).notes["z"] == told


def test_whose_labels_entries_depend_on():
    found = evidence(declared(logit))
    one, two = np.divmod(np.arange(N * N), N)
    ends = np.sort(np.stack([one, two], axis=1), axis=1)
    alone = one == two
    assert np.array_equal(np.sort(found.owners[~alone], axis=1), ends[~alone])
    assert np.array_equal(found.owners[alone], np.stack([one, np.full(N * N, -1)], axis=1)[alone])


def test_two_labels_of_many_that_matter_together():
    def core():
        z = labels(t=12)
        both = pt.and_(pt.eq(z[:, None], 3), pt.eq(z, 7))
        pm.Normal("x", pt.switch(both, block(shape=()), 0.0), 1.0, observed=EDGES)

    found = evidence(declared(core))
    one, two = np.divmod(np.arange(N * N), N)
    assert np.array_equal(found.owners[one != two], np.stack([one, two], axis=1)[one != two])


def edges_of_many(n=300):
    """Three groups in a ring of edges, some of which are missing."""
    z, one = labels(n=n), np.arange(n)
    two = (one + 3) % n
    rate = pt.exp(block()[z[one], z[two]])
    pm.Poisson("x", rate, observed=np.random.default_rng(2).poisson(1.0 + 4.0 * (one % 3)))


def test_what_chains_start_from(monkeypatch):
    """The directions of the largest sums over pairs, without a table of all pairs of objects."""
    right, largest = np.linalg.svd, 0

    def svd(a, **kwargs):
        nonlocal largest
        largest = max(largest, min(np.shape(a)))
        return right(a, full_matrices=False)

    monkeypatch.setattr(pairs.scipy.linalg, "svd", svd)
    for way, n in ((logit, N), (edges_of_many, 300)):
        model = declared(way)
        found = evidence(model)
        (x,) = (model.rvs_to_values[rv].data.ravel() for rv in model.observed_RVs)
        own = found.owners[:, 1] >= 0
        sums = np.zeros((n, n))
        sums[tuple(found.owners[own].T)] = (x[own] - x[own].mean()) / x[own].std()
        _, sizes, _ = right(np.concatenate([sums, sums.T], axis=1))
        spread = np.linalg.norm(found.numbers[0], axis=0)
        np.testing.assert_allclose(spread, sizes[: len(spread)], rtol=0.1)
        assert len(spread) == min(n, 10)
    assert largest < 50


def three():
    z = labels()
    pm.Normal("x", block(shape=T)[z[:-2]] * z[1:-1] + z[2:], 1.0, observed=VALUES[:-2, 0])


def total():
    z = labels()
    pm.Normal("x", block()[z[:, None], z].sum(axis=1), 1.0, observed=VALUES[:, 0])


def two_of_each():
    """An edge between each two neighbours, whose order is another one for some."""
    z = labels()
    one, two = np.array([0, 1, 3, 4]), np.array([1, 2, 2, 3])
    level = pt.stack([block()[z[one], z[two]], block("c")[z[two], z[one]]])
    pm.Normal("x", level[np.array([0, 1, 0, 1]), np.arange(4)], 1.0, observed=VALUES[:4, 0])


def third_at_times():
    """A third object's label matters where the two others are certain ones."""
    z, one, two = labels(n=4, t=8), np.array([1, 1]), np.array([2, 3])
    at_times = pt.and_(pt.eq(z[one], 4), pt.eq(z[two], 4)) * z[0]
    pm.Normal("x", block(shape=(8, 8))[z[one], z[two]] + at_times, 1.0, observed=VALUES[:2, 0])


@pytest.mark.parametrize("way", [three, total, third_at_times])
def test_more_than_two_objects_are_refused(way):
    (why,) = read(declared(way)).refusals.values()
    assert "depends on the labels of more than one object" in why


def test_two_objects_may_be_taken_from_one_vector():
    def differences():
        position = block("mu", T)[labels()]
        pm.Normal("x", position[1:] - position[:-1], 1.0, observed=VALUES[:-1, 0])

    testing.check_scores(declared(differences), n_points=2)


sampled = partial(pmm.sample, draws=5, tune=5, chains=1, cores=1, random_seed=1, quiet=True)


def apart(n_labels=T):
    """Three objects have labels that differ."""
    z, one, two = labels(t=n_labels), np.array([0, 1, 0]), np.array([1, 2, 2])
    pm.Potential("apart", pt.switch(pt.eq(z[one], z[two]), -np.inf, 0.0))
    pm.Poisson("x", pm.Gamma("rate", 2.0, 1.0, shape=n_labels)[z], observed=COUNTS[:N])


def test_labels_that_must_differ():
    model = declared(partial(apart, T + 1))
    evidence(model)
    testing.check_law(model, n_sweeps=30_000)


def test_labels_that_must_be_the_same():
    """Merges of the two objects' cluster, one object after the other, were all accepted."""

    def linked():
        z = labels(t=2)
        pm.Potential("same", pt.switch(pt.eq(z[0], z[4]), 0.0, -np.inf))
        pm.Poisson("x", pm.Gamma("rate", 2.0, 1.0, shape=2)[z], observed=[0, 1, 3, 6, 4])

    model = declared(linked)
    draws = pmm.sample(
        draws=3000, tune=100, chains=1, cores=1, model=model, random_seed=1, quiet=True
    )
    found = draws["posterior"]["z"].to_numpy()[0]
    state = testing.collapsed_of(model)
    point = testing.random_point(model, np.random.default_rng(0), state)
    every = [np.array(own) for own in product(range(2), repeat=N)]
    logs = np.array([testing.plain_log_joint(state, point, [own]) for own in every])
    law = np.exp(logs - np.logaddexp.reduce(logs))
    expected = sum(p * len(np.unique(own)) for p, own in zip(law, every, strict=True))
    n_used = np.array([len(np.unique(own)) for own in found])
    np.testing.assert_allclose(n_used.mean(), expected, atol=0.04)


def test_no_draws_of_what_is_impossible():
    with pytest.raises(SamplingError, match="'weights_z': expected labels that are possible"):
        sampled(model=declared(partial(apart, 2)))
    with pytest.raises(SamplingError, match="expected a start that finds labels that are possible"):
        pmm.find_matching(declared(partial(apart, 2)), starts=1, progressbar=False)


def test_a_start_that_is_possible_is_kept():
    """All objects in one cluster, where chains are dispersed first if that says nothing."""

    def together():
        z = labels(n=len(COUNTS), t=2)
        pm.Potential("together", pt.switch(pt.eq(z[1:], z[:-1]), 0.0, -np.inf))
        pm.Poisson("x", pm.Gamma("rate", 2.0, 1.0, shape=2)[z], observed=COUNTS)

    sampled(model=declared(together), initvals={"z": np.ones(len(COUNTS), int)})


@pytest.mark.parametrize("init", ["search", "dispersed"])
def test_chains_get_to_labels_that_are_possible(init):
    """States that are never gone back to: one object's label alone may put two pairs in order."""
    true = np.repeat([0, 1, 2], 20)
    values = np.array([-2.0, 0.0, 2.0])
    moves = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])

    def left_to_right():
        z = pm.Categorical("z", np.ones(3) / 3, shape=len(true))
        pm.Potential("moves", pt.log(moves)[z[:-1], z[1:]])
        observed = values[true] + np.random.default_rng(0).normal(0.0, 0.7, len(true))
        pm.Normal("x", pt.as_tensor(values)[z], 0.7, observed=observed)

    draws = sampled(model=declared(left_to_right), tune=200, init=init)
    assert np.isin(np.diff(draws["posterior"]["z"]), [0, 1]).all()


def test_possible_labels_score_what_they_are_worth_on_any_scale():
    """Such as numbers in the millions with a noise of 1, where chains start."""

    def far():
        z, (one, other) = labels(n=4, t=2), np.triu_indices(4, 1)
        mean = pt.as_tensor(np.array([[5e7, 0.0], [0.0, 9e7]]))
        pm.Normal("x", mean[z[one], z[other]], 1.0, observed=[5e7, 0.0, 0.0, 0.0, 0.0, 9e7])

    testing.check_scores(declared(far), n_points=2)


@pytest.mark.parametrize("of_two", [True, False])
def test_possible_labels_are_not_left_on_any_scale(of_two):
    """What data say of two objects, or of one, is less than that a pair is impossible."""

    def far():
        z = pm.Categorical("z", np.ones(2) / 2, shape=4)
        moves = pt.as_tensor(np.array([[0.0, -0.1], [-np.inf, -0.2]]))
        pm.Potential("moves", moves[z[:-1], z[1:]])
        if of_two:
            mean = pt.as_tensor(1e7 * np.array([[1.0, 1.1], [0.1, 1.2]]))
            pm.Normal("x", mean[z[:-1], z[1:]], 1.0, observed=np.zeros(3))
        else:
            mean = pt.as_tensor(np.array([0.0, 1e7]))
            pm.Normal("x", mean[z], 1.0, observed=np.array([1e7, 0.0, 1e7, 0.0]))

    model = declared(far)
    state, rng = testing.collapsed_of(model), np.random.default_rng(0)
    state.load(testing.random_point(model, rng, state), [np.array([0, 0, 1, 1])])
    for _ in range(20):
        state.sweep(rng)
        assert np.isfinite(state.log_joint())


def test_the_entry_that_three_objects_enter_is_named():
    def mixed():
        z, one = labels(), np.array([0, 1])
        third = np.array([0.0, 1.0]) * z[np.array([4, 4])]
        pm.Normal("x", block()[z[one], z[one + 1]] + third, 1.0, observed=VALUES[:2, 0])

    (why,) = read(declared(mixed)).refusals.values()
    assert "'x'[1] depends on the labels of more than one object" in why


def test_places_that_are_on_no_side_are_refused():
    def around():
        z, mu, nu = labels(), block(shape=T), block("c", T)
        places = ([0, 0, 1], [1, 2, 2], [2, 3, 3])
        one, two, three = (mu[z[np.array(own)]] * nu[z[np.array(own)]] for own in places)
        level = pt.stack([one - two, two - three, three - one])[[0, 1, 2], [0, 1, 2]]
        pm.Normal("x", level, 1.0, observed=VALUES[:3, 0])

    (why,) = read(declared(around)).refusals.values()
    assert why.endswith("for the first objects of all pairs, or for the second ones; found both")


def test_directions_may_be_mixed():
    model = declared(two_of_each)
    testing.check_scores(model, n_points=2)


def test_labels_of_one_object_each_are_joint():
    def together():
        a, b = labels("a", t=2), labels("b", t=2)
        pm.Normal("x", block("c", 2)[a] + block("d", 2)[b], 1.0, observed=VALUES[:, 0])

    model = declared(together)
    (component,) = read(model).components
    assert [own.name for own in component.clusterings[0].assignments[0].parts] == ["a", "b"]


def test_large_tables_are_refused(monkeypatch):
    monkeypatch.setattr(pairs, "MOST_CELLS", T * T * N * N - 1)
    (why,) = read(declared(logit)).refusals.values()
    assert why == (
        "'x': expected a table of at most 224 log densities, entries times pairs of labels; found "
        "225"
    )


def test_only_tables_of_millions_are_compiled_for_a_reading(monkeypatch):
    asked, compiled = [], label_tables.LabelDensities.compiled

    def recorded(self, batch, conditions, fast=False):
        asked.append(fast)
        return compiled(self, batch, conditions, fast)

    monkeypatch.setattr(label_tables.LabelDensities, "compiled", recorded)
    one, two = np.triu_indices(21, 1)
    for most in (2_000_000, 10_000):
        monkeypatch.setattr(pairs, "_LARGE_AT_ONCE", most)
        asked.clear()
        with pm.Model() as model:
            label = pm.Categorical("label", p=pm.Dirichlet("weights", np.ones(12)), shape=21)
            mean = pm.Normal("mean", shape=(12, 12))[label[one], label[two]]
            pm.StudentT("x", nu=4.0, mu=mean, sigma=1.0, observed=np.linspace(-2.0, 2.0, len(one)))
        assert evidence(model)
        assert any(asked) == (most == 10_000)


def test_labels_that_enter_in_many_places_are_refused(monkeypatch):
    monkeypatch.setattr(label_tables, "MOST_USES", 1)
    (why,) = read(declared(logit)).refusals.values()
    assert why == "'x': expected labels of 'z' to enter in at most 1 places; found 2"


def test_draws_of_another_density_are_refused():
    """Far from where the model is read, a third object's label matters."""

    def odd():
        z, far = labels(), pm.Normal("far", 0.0, 100.0)
        third = pt.switch(pt.gt(far, 50.0), z[0], 0)
        pm.Normal("x", block()[z[:, None], z] + third, 1.0, observed=np.zeros((N, N)))

    model = declared(odd)
    state, rng = testing.collapsed_of(model), np.random.default_rng(0)
    point = testing.random_point(model, rng, state)
    point["z"] = np.arange(N) % T
    state.load(point, state.labels(point))
    state.draw(rng, point, dict(point))
    point["far"] = np.array(60.0)
    point["z"] = (np.arange(N) + 2) % T
    state.load(point, state.labels(point))
    with pytest.raises(pmm.UnservedModelError, match="two objects at most"):
        state.draw(rng, point, dict(point))


def test_labels_that_matter_where_none_did_are_refused():
    def odd():
        z, far = labels(), pm.Normal("far", 0.0, 100.0)
        own = pt.switch(pt.gt(far, 50.0), z, 0)
        pm.Normal("x", pt.switch(np.eye(N), own, block()[z[:, None], z]), 1.0, observed=EDGES)

    model = declared(odd)
    state = testing.collapsed_of(model)
    point = testing.random_point(model, np.random.default_rng(0), state)
    state.load(point, state.labels(point))
    point["far"] = np.array(60.0)
    with pytest.raises(pmm.UnservedModelError, match="a draw where they matter elsewhere"):
        state.load(point, state.labels(point))


def test_blocks_are_found():
    rng = np.random.default_rng(1)
    row, column = np.arange(30) % 3, np.arange(24) % 2
    mean = np.array([[0.0, 3.0], [2.0, -1.0], [-3.0, 1.0]])
    x = mean[row[:, None], column] + rng.normal(size=(30, 24))
    with pm.Model() as model:
        a, b = labels("row", 30), labels("column", 24, 2)
        pm.Normal("x", block(shape=(T, 2))[a[:, None], b], pm.HalfNormal("scale"), observed=x)
    found = pmm.find_matching(model, starts=1, random_seed=0, progressbar=False)
    best = pmm.partition_estimate(found)
    for name, own in (("row", row), ("column", column)):
        assert pmm.metrics.adjusted_rand_index({name: own}, {name: best[name].to_numpy()}) == 1


def test_whole_chains():
    model = declared(rows_and_columns)
    posterior = pmm.sample(50, tune=50, chains=2, model=model, random_seed=1, progressbar=False)
    assert posterior["posterior"]["b"].shape == (2, 50, T, 2)
    assert [type(step).__name__ for step in pmm.steps(model)] == ["ClusterGibbs"]
    with pytest.raises(pmm.UnservedModelError, match="clusters of several, as edges"):
        pmm.log_predictive(posterior, model)
