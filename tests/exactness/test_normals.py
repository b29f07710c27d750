"""Normal clusters: against the declared model, numerical integrals, and every assignment."""

from functools import partial

import numpy as np
import pytest
from numba import njit
from scipy import stats

from pm_match.clusters import protocol
from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import log_joint, new_partition, place, reassign, rename, sweep
from pm_match.clusters.units import units
from pm_match.normal.conjugate import log_marginal, posterior
from pm_match.normal.normal_rows import NormalRows, NormalWishartPrior
from pm_match.normal.normal_wishart import NormalWishartEvidence
from pm_match.normal.parts import Normals
from pm_match.normal.shared_normal import SharedNormalEvidence
from pm_match.numerics.wishart import draw_wishart
from tests.declared.normals import (
    CASES,
    CENTER,
    DEGREES,
    STRENGTH,
    TRUNCATION,
    cluster_step,
    collapsed_log_joint,
    exact_law,
    inside,
    loaded,
    natural,
    normals_model,
    random_point,
    scale_matrix,
)
from tests.declared.plain import plain_log_prior, sampling_noise, total_variation
from tests.exactness.simulate import ModelSimulator

KINDS = {
    "own": (NormalWishartEvidence, partial(log_marginal, shared=False)),
    "shared": (SharedNormalEvidence, partial(log_marginal, shared=True)),
}
STATES = {kind: make for kind, (make, _) in KINDS.items()} | {
    "coarsened": partial(NormalWishartEvidence, power=0.6)
}
# With a factor of every precision.
STATES |= {f"{kind} with factors": make for kind, make in STATES.items()}


def some_prior(d):
    return NormalWishartPrior(np.linspace(-0.5, 0.4, d), 0.3, d + 1.5, 0.6 * np.eye(d) + 0.2)


# -- plain formulas ------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [None, np.array([0.3, 2.0, 1.1, 0.6])])
@pytest.mark.parametrize("kind", KINDS)
def test_log_marginal_is_an_integral_over_means_and_precisions(kind, factors):
    # In one dimension: the mean by its normal integral, the precision by quadrature.
    u = np.ones(4) if factors is None else factors
    prior = NormalWishartPrior(np.array([0.3]), 0.7, 2.5, np.array([[1.2]]))
    x, labels = np.array([0.1, -0.9, 1.4, 2.0]), np.array([0, 2, 0, 2])
    logs_of_grid = np.linspace(-12.0, 6.0, 2_001)
    grid = np.exp(logs_of_grid)
    log_prior = stats.gamma.logpdf(grid, 0.5 * prior.degrees, scale=2.0 / 1.2) + logs_of_grid

    def log_given(j, precision):
        own = labels == j
        covariance = (np.diag(1.0 / u[own]) + 1.0 / prior.strength) / precision
        return stats.multivariate_normal.logpdf(x[own], np.full(own.sum(), 0.3), covariance)

    logs = [np.array([log_given(j, t) for t in grid]) for j in (0, 2)]
    if kind == "own":
        expected = sum(np.log(np.trapezoid(np.exp(own + log_prior), logs_of_grid)) for own in logs)
    else:
        expected = np.log(np.trapezoid(np.exp(sum(logs) + log_prior), logs_of_grid))
    found = KINDS[kind][1](x[:, None], labels, prior, factors=factors)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_log_marginal_by_predictive_distributions(kind):
    # In several dimensions: one vector after the other, each a multivariate t.
    rng = np.random.default_rng(0)
    d, prior = 3, some_prior(3)
    x, labels = rng.normal(size=(9, d)), rng.integers(3, size=9)
    total = 0.0
    for n in range(9):
        shared = kind == "shared"
        _, _, counts, means, all_degrees, scales = posterior(x[:n], labels[:n], 3, prior, shared)
        degrees, psi = (own[0 if shared else labels[n]] for own in (all_degrees, scales))
        k, df = prior.strength + counts[labels[n]], degrees - d + 1
        shape = psi * (k + 1.0) / (k * df)
        total += stats.multivariate_t.logpdf(x[n], means[labels[n]], shape, df)
    assert KINDS[kind][1](x, labels, prior) == pytest.approx(total, rel=1e-10)


def test_wishart_draws():
    rng = np.random.default_rng(1)
    inverse_scale = np.array([[2.0, 0.6], [0.6, 1.0]])
    n, degrees = 40_000, 4.5
    drawn, root = draw_wishart(rng, np.full(n, degrees), np.tile(inverse_scale, (n, 1, 1)))
    np.testing.assert_allclose(root @ root.transpose(0, 2, 1), drawn, rtol=1e-10)
    scale = np.linalg.inv(inverse_scale)
    known = stats.wishart(degrees, scale)
    error = np.sqrt(known.var() / n)
    assert (np.abs(drawn.mean(axis=0) - known.mean()) < 4.0 * error).all()
    # The determinant over that of the scale is a product of independent chi squares.
    logs = np.log(np.linalg.det(drawn) / np.linalg.det(scale))
    other = np.log(stats.chi2.rvs(degrees, size=n, random_state=rng))
    other += np.log(stats.chi2.rvs(degrees - 1, size=n, random_state=rng))
    assert stats.ks_2samp(logs, other).pvalue > 1e-3


# -- the running state -----------------------------------------------------------------------------


def medium(kind, d=3, n=40, truncation=9, grouped=True):
    """Evidence of objects some of which have no vector, several, or are linked."""
    rng = np.random.default_rng(3)
    links = np.array([[2, 5], [5, 9], [1, 20], [30, 31]]) if grouped else np.zeros((0, 2), int)
    own = units(n, links)
    objects = rng.permutation(np.concatenate([np.setdiff1d(np.arange(n), [3, 4, 9]), [7, 7, 8]]))
    values = rng.normal(size=(len(objects), d)) * 3.0 + 5.0
    evidence = STATES[kind](NormalRows(objects, own, d), truncation)
    if kind.endswith("with factors"):
        evidence.load = partial(evidence.load, factors=rng.gamma(2.0, 0.5, len(objects)))
    return own, evidence, values, some_prior(d)


STICKS = np.ones(8), np.full(8, 1.3)


@pytest.mark.parametrize("kind", STATES)
def test_state_after_random_moves(kind):
    own, evidence, values, prior = medium(kind)
    state, terms = new_partition(own.size, 9), collect([evidence.term])
    rng = np.random.default_rng(4)
    place(state, rng.integers(9, size=len(own.size)))
    evidence.load(values, state.slot.astype(np.int64), prior)
    for _ in range(10):
        for _ in range(1_000):
            # Few labels at times, so that clusters are born and die.
            unit, label = rng.integers(len(own.size)), rng.integers(rng.integers(1, 10))
            if state.label[unit] != label:
                reassign(state, terms, unit, label)
        expected = evidence.log_marginal(state.label[own.of_object])
        expected += plain_log_prior(*STICKS, state.counts)
        assert log_joint(*STICKS, state, terms) == pytest.approx(expected, rel=1e-10)


@njit
def scores(term, unit, own, n_slots, out):
    protocol.score(term, unit, own, n_slots, out)


@pytest.mark.parametrize("kind", STATES)
def test_scores_are_differences_of_log_marginal(kind):
    own, evidence, values, prior = medium(kind)
    state, terms = new_partition(own.size, 9), collect([evidence.term])
    rng = np.random.default_rng(5)
    for number in range(60):
        place(state, rng.integers(1 + number % 9, size=len(own.size)))
        evidence.load(values, state.slot.astype(np.int64), prior)
        # Scores see what the evidence of the whole does not: all that moves keep of clusters.
        for mover, label in zip(
            rng.permutation(len(own.size))[:8], rng.integers(9, size=8), strict=True
        ):
            if state.label[mover] != label:
                reassign(state, terms, mover, label)
        unit, out = number % len(own.size), np.zeros(len(state.scores))
        scores(evidence.term, unit, state.slot[unit], state.n_slots[0], out)
        found, expected = [], []
        for label in range(9):
            moved = state.label.copy()
            moved[unit] = label
            found.append(out[state.slot_of[label]])
            expected.append(evidence.log_marginal(moved[own.of_object]))
        np.testing.assert_allclose(np.diff(found), np.diff(expected), atol=1e-9)


@njit
def tabulate(term, slots, start, stop, n_slots, worth, shared):
    protocol.tabulate(term, slots, start, stop, n_slots, worth, shared)


@pytest.mark.parametrize("kind", ["own", "coarsened", "own with factors", "coarsened with factors"])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_tables_of_an_assignments_clusters_are_differences_of_log_marginal(kind, far):
    own, evidence, values, prior = medium(kind)
    rng = np.random.default_rng(7)
    label = rng.integers(4, size=len(own.size))
    # The others have nothing in one of its clusters, nor it in one of theirs.
    start, stop = 10, 25
    label[start:stop] %= 3
    label[:start][label[:start] == 1] = 3
    label[stop:][label[stop:] == 1] = 3
    # Where clusters are far from the centre, nothing is lost to cancellation.
    values += far * label[own.of_object[evidence.rows.object]][:, None]
    state = new_partition(own.size, 9)
    place(state, label)
    evidence.load(values, state.slot.astype(np.int64), prior)
    n_slots = state.n_slots[0]
    worth, shared = np.ones((2, n_slots, n_slots))
    tabulate(evidence.term, state.slot, start, stop, n_slots, worth, shared)
    assert (shared == 1.0).all()
    inside = (np.arange(len(label)) >= start) & (np.arange(len(label)) < stop)

    def plain(units):
        """Log evidence of some units in one cluster, no others there being any."""
        rows = np.isin(own.of_object[evidence.rows.object], units)
        factors = None if evidence.factors is None else evidence.factors[rows]
        given = prior, False, evidence.power, factors
        return log_marginal(values[rows], np.zeros(rows.sum(), int), *given)

    for group in np.unique(label[inside]):
        for target in [*range(4), 8]:
            others = np.flatnonzero(~inside & (label == target))
            both = np.concatenate([others, np.flatnonzero(inside & (label == group))])
            expected = plain(both) - plain(others)
            # What does not depend on the slot is the same for all of a cluster's.
            found = worth[state.slot_of[group], state.slot_of[target]] - 1.0
            alone = plain(np.flatnonzero(inside & (label == group)))
            at_none = worth[state.slot_of[group], state.slot_of[8]] - 1.0
            assert found - at_none == pytest.approx(expected - alone, rel=1e-8, abs=1e-7)


@pytest.mark.parametrize("kind", STATES)
def test_scores_far_from_the_centre(kind):
    # A wide prior, and clusters far apart: nothing is lost to cancellation.
    own, evidence, values, prior = medium(kind, grouped=False)
    rng = np.random.default_rng(6)
    labels = rng.integers(3, size=len(own.size))
    values += 1e4 * labels[evidence.rows.object][:, None]
    prior = prior._replace(strength=1e-6)
    state = new_partition(own.size, 9)
    place(state, labels)
    evidence.load(values, state.slot.astype(np.int64), prior)
    for unit in range(len(own.size)):
        out = np.zeros(len(state.scores))
        scores(evidence.term, unit, state.slot[unit], state.n_slots[0], out)
        moved = labels.copy()
        moved[unit] = (labels[unit] + 1) % 3
        difference = out[state.slot_of[moved[unit]]] - out[state.slot[unit]]
        expected = evidence.log_marginal(moved) - evidence.log_marginal(labels)
        assert difference == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", [*KINDS, "own with factors", "shared with factors"])
def test_draws_given_the_labels(kind):
    # Vectors are of objects in any order: each cluster's parameters follow those of its own.
    own, evidence, values, prior = medium(kind, d=2, truncation=4)
    rng = np.random.default_rng(8)
    labels = rng.integers(3, size=len(own.size))[own.of_object]
    evidence.load(values, np.ones(len(own.size), np.int64), prior)
    n_draws, d = 4_000, 2
    u = np.ones(len(values)) if evidence.factors is None else evidence.factors
    own_posterior = evidence.posterior(labels)
    drawn = [own_posterior.draw(rng) for _ in range(n_draws)]
    means, precisions = (np.array(part) for part in zip(*drawn, strict=True))
    inverse_scales = []
    for j in range(4):
        members = [n for n, i in enumerate(evidence.rows.object) if labels[i] == j]
        x = np.concatenate([np.tile(prior.center, (1, 1)), values[members]])
        w = np.append(prior.strength, u[members])
        middle = w @ x / w.sum()
        error = means[:, j].std(axis=0) / np.sqrt(n_draws)
        assert (np.abs(means[:, j].mean(axis=0) - middle) < 4.5 * error).all()
        away = x - middle
        inverse_scales.append((len(members), prior.inverse_scale + (away.T * w) @ away))
    if kind.startswith("shared"):
        total = sum(psi - prior.inverse_scale for _, psi in inverse_scales)
        inverse_scales = [(len(values), prior.inverse_scale + total)]
        precisions = precisions[:, None]
    for j, (n, psi) in enumerate(inverse_scales):
        known = stats.wishart(prior.degrees + n, np.linalg.inv(psi))
        error = np.sqrt(known.var() / n_draws)
        assert (np.abs(precisions[:, j].mean(axis=0) - known.mean()) < 4.5 * error).all()
    # Away from their centres the means vary as the precisions say.
    chosen = precisions if kind.startswith("own") else np.repeat(precisions, 4, axis=1)
    for j in range(4):
        members = u[labels[evidence.rows.object] == j].sum()
        away = means[:, j] - means[:, j].mean(axis=0)
        squares = np.einsum("ni,nij,nj->n", away, chosen[:, j], away) * (prior.strength + members)
        assert squares.mean() == pytest.approx(d, abs=5.0 * np.sqrt(2.0 * d / n_draws))


# -- the law ---------------------------------------------------------------------------------------


def quick(*cases):
    """All cases, of which only these are quick."""
    return [c if c in cases else pytest.param(c, marks=pytest.mark.slow) for c in CASES]


@pytest.mark.parametrize("case", quick("matched"))
def test_law_of_the_assignment(case):
    model = normals_model(case)
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(5))
    own, rng, n_sweeps = loaded(step, point), np.random.default_rng(0), 60_000
    law = exact_law(own, point)
    powers = TRUNCATION ** np.arange(len(own.units.size))[::-1]
    counts = np.zeros(len(law))
    sticks = own.clustering.prior(point)
    for _ in range(n_sweeps):
        sweep(rng, *sticks, own.partition, own.terms)
        rename(rng, *sticks, own.partition, own.renamed, TRUNCATION)
        counts[own.partition.label @ powers] += 1
    # Successive sweeps are correlated: the noise is that of fewer independent draws.
    limit = 2.0 * sampling_noise(law, n_sweeps)
    assert total_variation(counts, law) < limit
    # The check can fail: under the law at a slightly different concentration, it does.
    other = loaded(cluster_step(normals_model(case, concentration=1.7)), point)
    assert total_variation(counts, exact_law(other, point)) > limit


@pytest.mark.slow
@pytest.mark.parametrize("case", ["own", "views", "matched"])
def test_law_through_the_step(case):
    model = normals_model(case)
    step = cluster_step(model)
    step.n_split_merge, step.n_exchanges = 2.0, 2.0
    point = random_point(model, np.random.default_rng(6))
    own = loaded(step, point)
    law, units_of = exact_law(own, point), own.units
    powers = TRUNCATION ** np.arange(len(units_of.size))[::-1]
    counts, n_steps = np.zeros(len(law)), 10_000
    step.setup_chain(np.random.default_rng(1), 0, 0)
    for _ in range(n_steps):
        point, _ = step.step(point)
        labels = np.concatenate([point[a.name] for a in own.clustering.assignments])
        counts[labels[units_of.first] @ powers] += 1
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n_steps)


# -- the declared density -------------------------------------------------------------------------


def log_conditional(own, model, point):
    """Log density of weights, means and precisions given the assignment, by SciPy."""
    values = natural(model, point)
    labels = np.concatenate([point[a.name] for a in own.clustering.assignments])
    counts = np.bincount(labels, minlength=TRUNCATION)
    a, b = own.clustering.prior(point)
    weights = values["weights"]
    left = np.concatenate([[1.0], 1.0 - np.cumsum(weights)])[: TRUNCATION - 1]
    after = counts[::-1].cumsum()[::-1][1:]
    total = stats.beta.logpdf(weights[:-1] / left, a + counts[:-1], b + after).sum()
    total -= np.log(left).sum()
    for normals, evidence in zip(own.normals, own.evidence, strict=True):
        name = normals.mean.removeprefix("mean_")
        u = values.get(f"factor_{name}", np.ones(len(evidence.values)))
        d = normals.n_features
        strength = values.get("strength", STRENGTH[name])
        prior = NormalWishartPrior(
            np.array(CENTER[name]), strength, DEGREES[name], np.linalg.inv(scale_matrix(d))
        )
        x = evidence.values
        inside_labels = labels[evidence.rows.object]
        held = np.bincount(inside_labels, minlength=TRUNCATION)
        given = prior, False, 1.0, u
        _, _, n, means, _, psi = posterior(x, inside_labels, TRUNCATION, *given)
        precision, mean = values[normals.precision], values[normals.mean]
        if normals.shared:
            psi = psi.sum(axis=0) - (TRUNCATION - 1) * prior.inverse_scale
            total += stats.wishart.logpdf(precision, prior.degrees + len(x), np.linalg.inv(psi))
            precision = np.tile(precision, (TRUNCATION, 1, 1))
        else:
            total += sum(
                stats.wishart.logpdf(precision[j], prior.degrees + held[j], np.linalg.inv(psi[j]))
                for j in range(TRUNCATION)
            )
        total += sum(
            stats.multivariate_normal.logpdf(
                mean[j], means[j], np.linalg.inv(precision[j] * (strength + n[j]))
            )
            for j in range(TRUNCATION)
        )
    return total


@pytest.mark.parametrize("case", CASES)
def test_declared_equals_collapsed_times_conditional(case):
    model = normals_model(case)
    step = cluster_step(model)
    # What is observed of a free variable, and priors of what is conditioned on, are no part of it.
    left = ("seen_f", "strength", "factor_x", "factor_y")
    variables = [rv for rv in model.basic_RVs if rv.name not in left]
    declared = model.compile_fn(
        model.logp(vars=variables, jacobian=False), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    rng = np.random.default_rng(3)
    for _ in range(4):
        point = random_point(model, rng)
        own = loaded(step, point)
        labels = np.concatenate([point[a.name] for a in own.clustering.assignments])
        found = collapsed_log_joint(own, point, labels) + log_conditional(own, model, point)
        assert found == pytest.approx(float(declared(point)), rel=1e-8)
        running = step._collapsed.log_joint()
        assert running == pytest.approx(collapsed_log_joint(own, point, labels), rel=1e-9)


# -- Geweke ----------------------------------------------------------------------------------------


class NormalsSimulator(ModelSimulator):
    """A tiny model, our step, and an exact draw of what our step conditions on."""

    def __init__(self, model, seed):
        left = {rv.name for rv in model.free_RVs} & {"f", "strength"}
        self._conditioned = left
        super().__init__(model, seed, left)

    @property
    def normals(self):
        return self.cluster.part.of(Normals)

    @property
    def observed(self):
        return [rv.name.removesuffix("_observed") for rv in self.model.observed_RVs]

    @property
    def missing(self):
        return [name for normals in self.normals for name in normals.missing]

    def new_data(self, draw):
        self._seen = dict(zip(self.observed, self.data(draw), strict=True))
        for normals in self.normals:
            for values in normals.values:
                if values.data is not None:
                    x, holes = self._seen[values.name], np.isnan(values.data)
                    values.data[:] = np.where(holes, np.nan, x)
                if values.missing:
                    draw[values.missing] = x[holes].reshape(np.shape(draw[values.missing]))

    def update(self, point):
        point = super().update(point)
        values = self.natural(point)
        if "f" in self._conditioned:
            label, mean, precision = point["cluster_a"], values["mean_f"], values["precision_f"]
            new = np.empty_like(point["f"])
            for n, j in enumerate(label):
                inverse = np.linalg.inv(precision[j] + np.eye(2))
                middle = inverse @ (precision[j] @ mean[j] + self._seen["seen_f"][n])
                new[n] = self.rng.multivariate_normal(middle, inverse)
            point = point | {"f": new}
        if "strength" in self._conditioned:
            away = values["mean_x"] - CENTER["x"]
            squares = np.einsum("ji,jik,jk->", away, values["precision_x"], away)
            rate = 6.0 + 0.5 * squares
            drawn = self.rng.gamma(4.0 + 0.5 * away.size) / rate
            point = point | {"strength_log__": np.asarray(np.log(drawn))}
        return point

    def own_quantities(self, draw, first, last):
        found = {}
        for normals in self.normals:
            mean, precision = draw[normals.mean], draw[normals.precision]
            own = precision if normals.shared else precision[first[0]]
            other = precision if normals.shared else precision[last[-1]]
            found |= {
                f"own {normals.mean}": np.arcsinh(mean[first[0]]).sum(),
                f"{normals.mean} of both": np.arcsinh(mean[first[0]] @ mean[last[-1]]),
                f"own {normals.precision}": np.linalg.slogdet(own)[1],
                f"other {normals.precision}": np.linalg.slogdet(other)[1],
                f"corner of {normals.precision}": own[0, -1] / np.trace(own),
            }
        return found


@pytest.mark.parametrize("case", quick("own"))
def test_updates_leave_the_prior_alone(case):
    simulator = NormalsSimulator(normals_model(case), seed=11)
    found = simulator.scores(4_000)
    assert max(map(abs, found.values())) < 4.2, found


@pytest.mark.slow
def test_a_wrong_prior_is_caught():
    simulator = NormalsSimulator(normals_model("own"), seed=12)
    (normals,) = simulator.normals
    right = normals.prior

    def wrong(point):
        prior = right(point)
        return prior._replace(strength=2.0 * prior.strength)

    object.__setattr__(normals, "prior", wrong)
    found = simulator.scores(400)
    assert max(map(abs, found.values())) > 6.0, found


def test_what_the_step_conditions_on_is_left_as_it_is():
    model = normals_model("free")
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(7))
    kept = {name: value.copy() for name, value in point.items()}
    new, _ = step.step(point)
    assert all(np.array_equal(point[name], kept[name]) for name in point)
    assert np.array_equal(new["f"], point["f"])
    assert list(new) == list(point)
    assert inside(step).normals[0].values[0].data is None
