"""Features with emissions of their own: collapsed formulas, draws and states, by plain formulas."""

import numpy as np
import pytest
from scipy import stats

from pm_match.clusters.sweep import log_joint, reassign
from pm_match.features.emission import Emission, split_deviations, with_deviations
from pm_match.features.feature_sums import (
    ClusterSums,
    Contributions,
    draw_factors,
    draw_intercepts,
    draw_projection,
    log_evidence,
)
from pm_match.numerics.masked import MaskedTable
from tests.declared.features import (
    Kind,
    Plain,
    all_states,
    cluster_step,
    exact_law,
    feature_model,
    random_point,
)
from tests.declared.plain import sampling_noise, total_variation
from tests.exactness.dense import check_moments, dense, moments
from tests.exactness.moves import visited

KINDS = {
    "one noise": Kind(),
    "no intercept": Kind(intercept=False, noise="vector"),
    "one domain": Kind(domains=1, projection="transposed", noise="vector", sizes=((4, 3),)),
    "three domains": Kind(
        domains=3, projection="ard", noise="covariance", sizes=((2, 2), (2, 3), (1, 2))
    ),
    "rigid": Kind(projection="rigid", noise="wishart", latent_scale=True),
    "lkj": Kind(noise="lkj", latent_scale=True),
    "deviations": Kind(deviations="one", noise="vector"),
    "deviations, full": Kind(deviations="vector", noise="wishart", projection="rigid"),
    "relevance": Kind(relevance="first"),
    "relevance, full": Kind(
        relevance="all", noise="wishart", deviations="one", sizes=((2, 2), (2, 3))
    ),
    "linked": Kind(linked=True, noise="wishart"),
    "tied": Kind(tied=True),
    "tied, vector": Kind(tied=True, noise="vector", projection="transposed", linked=True),
    "missing": Kind(missing=True, noise="vector", deviations="vector"),
    "missing, full": Kind(missing=True, noise="wishart", deviations="one", linked=True),
    "missing, rigid": Kind(missing=True, noise="covariance", projection="rigid"),
    "missing, relevance": Kind(missing=True, relevance="first"),
    "missing, relevance, full": Kind(
        missing=True, relevance="all", noise="wishart", sizes=((2, 2), (2, 3))
    ),
    "missing, tied": Kind(missing=True, tied=True, noise="vector"),
    "constant intercept": Kind(tied=True, noise="shared", intercept="constant"),
    "twice": Kind(tied=True, noise="shared", intercept=False, projection="twice"),
    "exp": Kind(tied=True, noise="shared", intercept=False, projection="exp", missing=True),
    "known scales": Kind(tied=True, noise="vector", intercept=False),
    "flat": Kind(projection="flat", noise="vector", missing=True),
    "flat, full": Kind(projection="flat", noise="wishart", deviations="one"),
    "flat, tied": Kind(projection="flat", tied=True, intercept="constant", noise="vector"),
    "coarsened, flat": Kind(powers=(0.4,), projection="flat", noise="wishart", deviations="one"),
    "coarsened, linked": Kind(powers=(0.5, 0.8), linked=True, noise="wishart"),
    "coarsened": Kind(powers=(0.6,), relevance="all", noise="vector"),
    "coarsened, full": Kind(
        powers=(0.5, 0.8), noise="wishart", projection="rigid", deviations="one"
    ),
}
QUICK = ("deviations, full", "relevance, full", "tied, vector", "missing, full")
QUICK += ("missing, relevance, full", "exp", "flat", "coarsened", "coarsened, full")
ALL = [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
_MODELS: dict = {}


def model_of(name):
    """A kind, and its model: made once, since reading one takes seconds."""
    if name not in _MODELS:
        _MODELS[name] = feature_model(KINDS[name])
    return KINDS[name], _MODELS[name]


def plain_at(kind, model, point) -> Plain:
    if kind.tied:
        point = point | {"alpha_log__": np.zeros(())}
    return Plain(kind, model, point)


def loaded(name, seed):
    """A step whose collapsed state is at a random point, and the plain formulas there."""
    kind, model = model_of(name)
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(seed))
    step._collapsed.load(point, step._collapsed.labels(point))
    return step, point, plain_at(kind, model, point)


# -- the law of the assignment --------------------------------------------------------------------


def visits(step, n_sweeps, seed=0):
    """How often a chain of sweeps and label swaps is in each state, all parameters held fixed."""
    rng, collapsed = np.random.default_rng(seed), step._collapsed
    states = all_states(step)
    size = int(np.ptp(states)) + 1
    powers = size ** np.arange(states.shape[1])[::-1]
    counts = np.zeros(size ** states.shape[1])
    labels = visited(collapsed, rng, n_sweeps)
    np.add.at(counts, (labels - states.min()) @ powers, 1)
    return counts[(states - states.min()) @ powers]


@pytest.mark.parametrize("name", ALL)
def test_law_of_the_assignment(name):
    step, _, plain = loaded(name, 5)
    law = exact_law(step, plain)
    n_sweeps = 60_000
    counts = visits(step, n_sweeps)
    assert counts.sum() == n_sweeps
    # Successive sweeps are correlated: the noise is that of fewer independent draws.
    assert total_variation(counts, law) < 2.5 * sampling_noise(law, n_sweeps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relevance", "deviations"])
def test_law_through_the_step(name):
    step, point, plain = loaded(name, 6)
    law = exact_law(step, plain)
    states = {tuple(state): n for n, state in enumerate(all_states(step).tolist())}
    counts = np.zeros(len(states))
    step.setup_chain(np.random.default_rng(1), 0, 0)
    n_steps = 15_000
    for _ in range(n_steps):
        point, _ = step.step(point)
        counts[states[tuple(np.concatenate(step._collapsed.labels(point)).tolist())]] += 1
    assert total_variation(counts, law) < 2.5 * sampling_noise(law, n_steps)


# -- declared density -----------------------------------------------------------------------------


def log_conditional(kind, model, point):
    """Log density of all that `ClusterGibbs` integrates out, but for the assignments, given these.

    Weights and the share of relevant objects, the shared precision, latent vectors, deviations and
    the labels of irrelevant objects.
    """
    plain = Plain(kind, model, point)
    v, t = plain.value, kind.truncation
    labels = plain.labels()
    counts = np.bincount(labels[labels >= 0], minlength=t)
    weights = v["weights"]
    left = np.concatenate([[1.0], 1.0 - np.cumsum(weights)])[: t - 1]
    after = counts[::-1].cumsum()[::-1][1:]
    total = stats.beta.logpdf(weights[:-1] / left, 1.0 + counts[:-1], 1.4 + after).sum()
    total -= np.log(left).sum()
    for d in plain.domains:
        total += np.log(weights[d.label[~d.relevant]]).sum()
    if kind.relevance:
        flags = np.concatenate(
            [d.relevant for n, d in zip(kind.names, plain.domains, strict=True) if kind.flagged(n)]
        )
        total += stats.beta.logpdf(v["share"], 2.0 + flags.sum(), 1.5 + (~flags).sum())
    if kind.tied:
        one = plain_at(kind, model, point)
        total += plain.log_normals(labels) + stats.gamma.logpdf(v["alpha"], 4.0, scale=1 / 3.0)
        total -= one.log_likelihood(labels)
    return total + plain.log_latent() + plain.log_missing()


@pytest.mark.parametrize("name", ALL)
def test_declared_equals_collapsed_times_conditional(name):
    """With the step's own log joint, the log density of its parameters included."""
    kind, model = model_of(name)
    step = cluster_step(model)
    log_density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    rng = np.random.default_rng(3)
    for _ in range(5):
        point = random_point(model, rng)
        step._collapsed.load(point, step._collapsed.labels(point))
        found = step._collapsed.log_joint() + step._collapsed.log_prior(point)
        plain = plain_at(kind, model, point)
        collapsed = plain.log_prior() + plain.log_likelihood()
        assert step._collapsed.log_joint() == pytest.approx(collapsed, rel=1e-9)
        expected = float(log_density(point)) - log_conditional(kind, model, point)
        assert found == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_step_reports_its_log_joint(name):
    kind, model = model_of(name)
    step = cluster_step(model)
    log_density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    point = random_point(model, np.random.default_rng(4))
    for _ in range(5):
        point, (found,) = step.step(point)
        expected = float(log_density(point)) - log_conditional(kind, model, point)
        assert found["log_joint"] == pytest.approx(expected, rel=1e-8)


# -- running state --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_state_after_random_moves(name):
    step, _, plain = loaded(name, 7)
    collapsed = step._collapsed
    (partition,), (terms,), (own,) = collapsed.partitions, collapsed.terms, collapsed.units
    (prior,) = collapsed.priors
    group = partition.relevance.group
    rng, truncation = np.random.default_rng(8), step.part.clusterings[0].truncation
    for _ in range(10):
        for unit in rng.integers(len(own.size), size=1_000):
            label = rng.integers(-1 if group[unit] >= 0 else 0, rng.integers(1, truncation + 1))
            if label != partition.label[unit]:
                reassign(partition, terms, unit, label)
        found = log_joint(*prior, partition, terms)
        labels = partition.label[own.of_object]
        expected = plain.log_prior(labels) + plain.log_likelihood(labels)
        assert found == pytest.approx(expected, rel=1e-9)


# -- sums and conditional draws -------------------------------------------------------------------

N, M, K, J = (5, 4), (2, 3), 2, 3
R = 0.7


def problem(full, missing=False, seed=0):
    """Two domains with irrelevant objects, their emissions, and the plain data."""
    rng = np.random.default_rng(seed)
    data, labels, emissions = [], [], []
    for n, m in zip(N, M, strict=True):
        x = rng.normal(size=(n, m)) + 1.0
        observed = None
        if missing:
            observed = rng.random((n, m)) > 0.3
            x = np.where(observed, x, 0.0)
        data.append(MaskedTable(x, observed))
        labels.append(rng.integers(-1, J, n))
        lower = np.tril(rng.normal(size=(m, m)))
        root = lower + 2.0 * np.eye(m) if full else rng.uniform(0.7, 1.5, m)
        emissions.append(Emission(rng.normal(size=(m, K)), rng.normal(size=m), root))
    sums = [
        ClusterSums.of(d, own, J, e.full) for d, own, e in zip(data, labels, emissions, strict=True)
    ]
    return data, labels, emissions, sums


CASES = {
    "diagonal": (False, False),
    "full": (True, False),
    "missing": (False, True),
    "full, missing": (True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_log_evidence_is_dense(case):
    data, labels, emissions, sums = problem(*CASES[case])
    values, loading, _, covariance = dense(data, labels, emissions, J)
    expected = stats.multivariate_normal.logpdf(
        values, np.zeros(len(values)), covariance + loading @ loading.T / R
    )
    kept = Contributions(sums)
    assert log_evidence(kept.of(emissions), R) == pytest.approx(expected, rel=1e-10)
    # What is kept is for the same marginal alone.
    other = [Emission(m.projection, m.intercept + 1.0, m.root) for m in emissions[:1]]
    mixed = [*other, *emissions[1:]]
    fresh = log_evidence(Contributions(sums).of(mixed), R)
    assert log_evidence(kept.of(mixed), R) == pytest.approx(fresh, rel=1e-12)
    assert fresh != pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_latent_vectors_are_drawn_from_their_conditional(case):
    data, labels, emissions, sums = problem(*CASES[case])
    values, loading, _, covariance = dense(data, labels, emissions, J)
    gain = loading.T @ np.linalg.inv(covariance)
    found = moments(
        lambda rng: draw_factors(rng, Contributions(sums).of(emissions), R).ravel(), J * K
    )
    check_moments(found, gain @ loading + R * np.eye(J * K), gain @ values)


@pytest.mark.parametrize("moving", [(0, 1), (1,)])
@pytest.mark.parametrize("case", CASES)
def test_intercepts_are_drawn_from_their_conditional(case, moving):
    data, labels, emissions, sums = problem(*CASES[case])
    rng = np.random.default_rng(4)
    priors = [
        (rng.normal(size=m), rng.uniform(0.5, 2.0, m)) if d in moving else None
        for d, m in enumerate(M)
    ]
    zero = [
        Emission(m.projection, np.zeros(len(m.intercept)), m.root) if d in moving else m
        for d, m in enumerate(emissions)
    ]
    values, loading, where, covariance = dense(data, labels, zero, J)
    places = [(d, feature) for d in moving for feature in range(M[d])]
    see = np.array([[float(place == at) for place in places] for at in where])
    gain = see.T @ np.linalg.inv(covariance + loading @ loading.T / R)
    mean, precision = (np.concatenate([priors[d][i] for d in moving]) for i in (0, 1))

    def draw(rng):
        drawn = draw_intercepts(rng, sums, emissions, R, priors)
        for d in set(range(2)) - set(moving):
            assert drawn[d] is emissions[d].intercept
        return np.concatenate([drawn[d] for d in moving])

    check_moments(
        moments(draw, len(places)),
        gain @ see + np.diag(precision),
        gain @ values + precision * mean,
    )


@pytest.mark.parametrize("case", CASES)
def test_projections_are_drawn_from_their_conditional(case):
    data, labels, emissions, sums = problem(*CASES[case])
    rng = np.random.default_rng(5)
    d, m = 1, M[1]
    latent, explained = rng.normal(size=(J, K)), rng.normal(size=(J, m))
    mean, precision = rng.normal(size=(m, K)), rng.uniform(0.5, 2.0, (m, K))
    own, label, marginal = data[d], labels[d], emissions[d]
    noise = np.linalg.inv(marginal.root @ marginal.root.T) if marginal.full else None
    a, b = np.diag(precision.ravel()), (precision * mean).ravel()
    for n in np.flatnonzero(label >= 0):
        seen = np.arange(m) if own.observed is None else np.flatnonzero(own.observed[n])
        see = np.kron(np.eye(m)[seen], latent[label[n]])
        block = np.diag(marginal.root**-2.0) if noise is None else noise
        gain = see.T @ np.linalg.inv(block[np.ix_(seen, seen)])
        a += gain @ see
        b += gain @ (own.values[n] - marginal.intercept - explained[label[n]])[seen]
    found = moments(
        lambda rng: draw_projection(
            rng, sums[d], marginal, latent, explained, mean, precision
        ).ravel(),
        m * K,
    )
    check_moments(found, a, b)


def test_deviations_are_factors():
    """Taken apart again, drawn factors say of each domain what its projection says of them all."""
    rng = np.random.default_rng(6)
    scales = [rng.uniform(0.5, 2.0, 2), None, rng.uniform(0.5, 2.0, 3)]
    projections = [rng.normal(size=(m, K)) for m in (2, 4, 3)]
    factors = rng.normal(size=(J, K + 5)) / np.sqrt(R)
    latent, deviations = split_deviations(factors, K, scales, R)
    assert deviations[1] is None
    for d, w in enumerate(projections):
        own = 0.0 if deviations[d] is None else deviations[d]
        whole = with_deviations(w, d, scales, R)
        np.testing.assert_allclose(factors @ whole.T, latent @ w.T + own)
        if scales[d] is not None:
            # A deviation has the declared scale if a factor has the precision r.
            loading = whole[:, K:]
            np.testing.assert_allclose(loading @ loading.T / R, np.diag(scales[d] ** 2))
