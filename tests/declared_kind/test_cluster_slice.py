"""Slices of clusters' parameters: whose they are, and from which density."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pm_match as pmm
from pm_match.declared.state import LikelihoodState

T = 3


def rows_model(width: int) -> pm.Model:
    """Declare Student-t data in several columns, each cluster with centres of its own."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("w", np.ones(T)), shape=6)
        centre = pm.Normal("centre", 0.0, 2.0, shape=(width, T))
        scale = pm.HalfNormal("scale", 1.0, shape=T)
        nu, x = pm.HalfNormal("nu", 4.0), rng.normal(size=(6, width))
        pm.StudentT("x", nu=nu, mu=centre.T[c], sigma=scale[c][:, None], observed=x)
    return model


def stacked_model() -> pm.Model:
    """Declare a centre for each label one by one, and scales whose priors depend on them."""
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("w", np.ones(2)), shape=5)
        centres = pt.stack([pm.Normal(f"centre_{t}", 0.0, 2.0) for t in range(2)])
        scale = pm.LogNormal("scale", 0.3 * centres, 0.5, shape=2)
        pm.StudentT("x", nu=4.0, mu=centres[c], sigma=scale[c], observed=np.arange(5.0))
    return model


def two_columns(n=9) -> pm.Model:
    """Rows enter the first column, the second, both or, through others, neither."""
    rng = np.random.default_rng(3)
    with pm.Model() as model:
        weights = pm.Dirichlet("w", np.ones(3))
        c = pm.Categorical("c", p=weights, shape=n)
        above = pm.Normal("above", 0.0, 1.0, shape=3)
        middle = pm.Normal("middle", above, 1.0, shape=3)
        scale = pm.LogNormal("scale", 0.0, 0.5, shape=3)
        rate = pm.Normal("rate", 0.0, 1.0, shape=3)
        pm.StudentT("x", nu=4.0, mu=middle[c], sigma=scale[c], observed=rng.normal(size=n))
        pm.Poisson("k", pm.math.exp(rate + 0.3 * scale)[c[::-1]], observed=rng.poisson(2.0, size=n))
    return model


def slice_of(model: pm.Model) -> pmm.ClusterSlice:
    (step,) = [step for step in pmm.steps(model) if isinstance(step, pmm.ClusterSlice)]
    return step


@pytest.mark.parametrize(
    "declare",
    [lambda: rows_model(2), stacked_model, two_columns],
    ids=["rows", "stacked", "two columns"],
)
def test_density_is_the_declared_one(declare):
    """Of every number: what it changes of the log joint, label by label."""
    model = declare()
    step, rng = slice_of(model), np.random.default_rng(1)
    point = model.initial_point(0)
    for name in {value.name for value in step.vars}:
        point[name] = point[name] + 0.3 * rng.normal(size=np.shape(point[name]))

    point["c"] = rng.integers(step.part.clusterings[0].truncation, size=point["c"].shape)
    labels = [point["c"]]
    joint = model.compile_logp()
    (block,) = step._blocks
    for some, worth in block.groups:

        def density(table, worth=worth):
            there = {**point, **block.numbers.written(point, table)}
            each, rest = worth(there, labels[0])
            assert not rest.any()
            return each, joint(there)

        here = block.numbers.table(point)
        before, joint_before = density(here)
        for label, number in np.ndindex(before.shape):
            moved = here.copy()
            moved[label, some[number]] += 0.7
            after, joint_after = density(moved)
            changed = (after - before).ravel()
            place = label * len(some) + number
            np.testing.assert_allclose(changed[place], joint_after - joint_before, atol=1e-8)
            np.testing.assert_allclose(np.delete(changed, place), 0.0, atol=1e-9)


@pytest.mark.parametrize(
    ("declare", "together"),
    [
        # The centres of a column enter it alone; scales enter both.
        (lambda: rows_model(2), [["centre", "centre"], ["scale"]]),
        # What is above enters the priors of the middle.
        (two_columns, [["middle", "rate"], ["scale", "above"]]),
    ],
    ids=["columns", "variables"],
)
def test_numbers_that_enter_no_log_density_together_are_drawn_together(declare, together):
    model = declare()
    (block,) = slice_of(model)._blocks
    start = model.initial_point()
    names = [n for rows in block.numbers.rows for n in rows.names * rows.table(start).shape[1]]
    assert [[names[number] for number in some] for some, _ in block.groups] == together


def test_factors_that_no_number_enters_are_not_evaluated():
    (state,) = slice_of(two_columns())._collapsed.of_kind(LikelihoodState)
    first = np.arange(18) < 9
    state.by_label(first[None])
    assert (True, False) in state.access._some
    each, _ = state.by_label(first[None])(state.access.model.initial_point(), np.zeros(9, int))
    assert (each[0] != 0.0).all()


def test_which_variables_are_drawn_by_slices():
    model = rows_model(2)
    assert {v.name for v in slice_of(model).vars} == {"centre", "scale_log__"}
    stacked = slice_of(stacked_model())
    assert {v.name for v in stacked.vars} == {"centre_0", "centre_1", "scale_log__"}
    # A step that moves all at once is better for many numbers.
    assert not [s for s in pmm.steps(rows_model(32)) if isinstance(s, pmm.ClusterSlice)]
    with model:
        given = pm.NUTS([model["centre"]])
    (step,) = [s for s in pmm.steps(model, given=[given]) if isinstance(s, pmm.ClusterSlice)]
    assert {v.name for v in step.vars} == {"scale_log__"}
    with pytest.raises(pmm.UnservedModelError, match="nu"):
        pmm.ClusterSlice([model["nu"]], model=model)


def test_priors_that_are_undefined_for_one_label_are_impossible_there_alone():
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("w", np.ones(T)), shape=5)
        # PyMC's scale lets it be negative, too, where it has no density.
        tau = pm.Truncated("tau", pm.Gamma.dist(2.0, 1.0), upper=9.0, shape=T)
        mean = pm.Normal("mean", 0.0, tau=tau, shape=T)
        pm.Normal("x", mean[c], tau=tau[c], observed=np.arange(5.0))
    point = model.initial_point()
    point["tau_interval__"] = np.log(9.0 - np.array([1.0, -1.0, 2.0]))
    (block,) = slice_of(model)._blocks
    for _, worth in block.groups:
        each, _ = worth(point, point["c"])
        assert np.isneginf(each).all(axis=1).tolist() == [False, True, False]


def test_widths_are_kept_after_the_warm_up():
    model = rows_model(2)
    step, point = slice_of(model), model.initial_point(0)
    step.setup_chain(np.random.default_rng(0), 10, 10)
    for _ in range(10):
        point, _ = step.step(point)
    learnt = step.scale.copy()
    assert (learnt != 1.0).all()
    step.stop_tuning()
    step.step(point)
    np.testing.assert_array_equal(step.scale, learnt)
    step.setup_chain(np.random.default_rng(0), 10, 10)
    np.testing.assert_array_equal(step.scale, 1.0)


def offset_rows(declare) -> pm.Model:
    """Declare data of clusters whose rows are part of what `declare` makes of them."""
    with pm.Model() as model:
        c = pm.Categorical("c", p=pm.Dirichlet("w", np.ones(2)), shape=9)
        middle, spread = pm.Normal("middle", 0.0, 2.0), pm.HalfNormal("spread", 1.0)
        own = declare(middle, spread, pm.Normal("own", 0.0, 1.0, shape=2))
        pm.StudentT("x", nu=4.0, mu=own[c], sigma=0.3, observed=np.arange(9.0))
    return model


@pytest.mark.parametrize(
    ("declare", "sliced"),
    [
        (lambda middle, spread, own: own, True),
        (lambda middle, spread, own: middle + own, False),
        (lambda middle, spread, own: spread * own, False),
        (lambda middle, spread, own: middle + spread * own, False),
        (lambda middle, spread, own: pt.stack([own[0], middle + own[1]]), True),
    ],
    ids=["none", "location", "scale", "both", "one label's"],
)
def test_rows_that_give_way_to_what_they_share_are_moved_with_it(declare, sliced):
    """Given a common location, offsets hardly move, nor does it given these."""
    steps = pmm.steps(offset_rows(declare))
    names = {v.name for s in steps if isinstance(s, pmm.ClusterSlice) for v in s.vars}
    assert names == ({"own"} if sliced else set())
