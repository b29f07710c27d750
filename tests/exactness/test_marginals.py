"""Features with marginals of their own: collapsed formulas, draws and states, by plain formulas."""

import numpy as np
import pytest
from scipy import stats

from pm_match.clusters.sweep import log_joint, reassign
from pm_match.features.feature_sums import (
    Contributions,
    DomainSums,
    draw_intercepts,
    draw_latent,
    draw_projection,
    log_evidence,
)
from pm_match.features.marginals import Marginal, split_deviations, with_deviations
from pm_match.features.projected_normal import DomainData
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
}
QUICK = ("deviations, full", "relevance, full", "tied, vector")
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
    (partition,) = collapsed.partitions
    states = all_states(step)
    size = int(np.ptp(states)) + 1
    powers = size ** np.arange(states.shape[1])[::-1]
    counts = np.zeros(size ** states.shape[1])
    for _ in range(n_sweeps):
        collapsed.sweep(rng)
        collapsed.rename(rng)
        counts[(partition.label - states.min()) @ powers] += 1
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
    return total + plain.log_latent()


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
    """Two domains with irrelevant objects, their marginals, and the plain data."""
    rng = np.random.default_rng(seed)
    data, labels, marginals = [], [], []
    for n, m in zip(N, M, strict=True):
        x = rng.normal(size=(n, m)) + 1.0
        observed = None
        if missing:
            observed = rng.random((n, m)) > 0.3
            x = np.where(observed, x, 0.0)
        data.append(DomainData(x, observed))
        labels.append(rng.integers(-1, J, n))
        lower = np.tril(rng.normal(size=(m, m)))
        root = lower + 2.0 * np.eye(m) if full else rng.uniform(0.7, 1.5, m)
        marginals.append(Marginal(rng.normal(size=(m, K)), rng.normal(size=m), root))
    sums = [DomainSums.of(d, own, J) for d, own in zip(data, labels, strict=True)]
    return data, labels, marginals, sums


def dense(data, labels, marginals):
    """Observed values of relevant objects, less intercepts; what they see of all latent vectors.

    Returns values (n,), loadings (n, J K), domain of each value, its feature, noise covariance.
    """
    values, loading, where, blocks = [], [], [], []
    for d, (own, label, m) in enumerate(zip(data, labels, marginals, strict=True)):
        noise = np.linalg.inv(m.root @ m.root.T) if m.full else np.diag(m.root**-2.0)
        for n in np.flatnonzero(label >= 0):
            seen = (
                np.arange(len(noise)) if own.observed is None else np.flatnonzero(own.observed[n])
            )
            values.append(own.values[n, seen] - m.intercept[seen])
            see = np.zeros((len(seen), J, K))
            see[:, label[n]] = m.projection[seen]
            loading.append(see.reshape(len(seen), -1))
            where += [(d, feature) for feature in seen]
            blocks.append(noise[np.ix_(seen, seen)])
    covariance = np.zeros((len(where), len(where)))
    start = 0
    for block in blocks:
        covariance[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return np.concatenate(values), np.concatenate(loading), where, covariance


CASES = {"diagonal": (False, False), "full": (True, False), "missing": (False, True)}


@pytest.mark.parametrize("case", CASES)
def test_log_evidence_is_dense(case):
    data, labels, marginals, sums = problem(*CASES[case])
    values, loading, _, covariance = dense(data, labels, marginals)
    expected = stats.multivariate_normal.logpdf(
        values, np.zeros(len(values)), covariance + loading @ loading.T / R
    )
    kept = Contributions(sums)
    assert log_evidence(kept.of(marginals), R) == pytest.approx(expected, rel=1e-10)
    # What is kept is for the same marginal alone.
    other = [Marginal(m.projection, m.intercept + 1.0, m.root) for m in marginals[:1]]
    mixed = [*other, *marginals[1:]]
    fresh = log_evidence(Contributions(sums).of(mixed), R)
    assert log_evidence(kept.of(mixed), R) == pytest.approx(fresh, rel=1e-12)
    assert fresh != pytest.approx(expected, rel=1e-3)


class _Fixed:
    """A generator whose normal variates are given: what is drawn is affine in them."""

    def __init__(self, values):
        self.values = list(values)

    def standard_normal(self, size):
        n = int(np.prod(size))
        taken, self.values = self.values[:n], self.values[n:]
        return np.reshape(taken, size).astype(float)


def moments(draw, n):
    """Mean and covariance of a draw that is affine in `n` normal variates, exactly."""
    mean = draw(_Fixed(np.zeros(n)))
    slopes = np.array([draw(_Fixed(row)) - mean for row in np.eye(n)])
    return mean, slopes.T @ slopes


def check_moments(found, precision, linear):
    mean, covariance = found
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_latent_vectors_are_drawn_from_their_conditional(case):
    data, labels, marginals, sums = problem(*CASES[case])
    values, loading, _, covariance = dense(data, labels, marginals)
    gain = loading.T @ np.linalg.inv(covariance)
    found = moments(lambda rng: draw_latent(rng, sums, marginals, R).ravel(), J * K)
    check_moments(found, gain @ loading + R * np.eye(J * K), gain @ values)


@pytest.mark.parametrize("moving", [(0, 1), (1,)])
@pytest.mark.parametrize("case", CASES)
def test_intercepts_are_drawn_from_their_conditional(case, moving):
    data, labels, marginals, sums = problem(*CASES[case])
    rng = np.random.default_rng(4)
    priors = [
        (rng.normal(size=m), rng.uniform(0.5, 2.0, m)) if d in moving else None
        for d, m in enumerate(M)
    ]
    zero = [
        Marginal(m.projection, np.zeros(len(m.intercept)), m.root) if d in moving else m
        for d, m in enumerate(marginals)
    ]
    values, loading, where, covariance = dense(data, labels, zero)
    places = [(d, feature) for d in moving for feature in range(M[d])]
    see = np.array([[float(place == at) for place in places] for at in where])
    gain = see.T @ np.linalg.inv(covariance + loading @ loading.T / R)
    mean, precision = (np.concatenate([priors[d][i] for d in moving]) for i in (0, 1))

    def draw(rng):
        drawn = draw_intercepts(rng, sums, marginals, R, priors)
        for d in set(range(2)) - set(moving):
            assert drawn[d] is marginals[d].intercept
        return np.concatenate([drawn[d] for d in moving])

    check_moments(
        moments(draw, len(places)),
        gain @ see + np.diag(precision),
        gain @ values + precision * mean,
    )


@pytest.mark.parametrize("case", CASES)
def test_projections_are_drawn_from_their_conditional(case):
    data, labels, marginals, sums = problem(*CASES[case])
    rng = np.random.default_rng(5)
    d, m = 1, M[1]
    latent, explained = rng.normal(size=(J, K)), rng.normal(size=(J, m))
    mean, precision = rng.normal(size=(m, K)), rng.uniform(0.5, 2.0, (m, K))
    own, label, marginal = data[d], labels[d], marginals[d]
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
