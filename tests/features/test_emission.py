"""Emissions with missing values in any noise, against dense normal distributions."""

from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats

from pm_match.clusters.protocol import collect
from pm_match.clusters.relevance import log_flags, new_relevance
from pm_match.clusters.sweep import log_joint, new_partition, place, reassign
from pm_match.clusters.units import units
from pm_match.features.emission import Emission, draw_missing
from pm_match.features.feature_sums import ClusterSums, Contributions, log_evidence
from pm_match.features.projected_normal import ProjectedNormalEvidence, log_marginal
from pm_match.numerics.masked import MaskedTable
from tests.declared.plain import plain_log_prior
from tests.exactness.dense import dense, moments

N, M, K, T = (4, 3), (3, 2), 2, 3
R, GAMMA = 0.7, (2.0, 1.5)
CASES = list(product((False, True), (False, True)))


def problem(full, missing, seed=0):
    rng = np.random.default_rng(seed)
    data, emissions = [], []
    for n, m in zip(N, M, strict=True):
        x, observed = rng.normal(size=(n, m)) + 1.0, None
        if missing:
            observed = rng.random((n, m)) > 0.4
            observed[1] = observed[0]
            x = np.where(observed, x, 0.0)
        data.append(MaskedTable(x, observed))
        root = np.tril(rng.normal(size=(m, m)), -1) + np.diag(rng.uniform(1.0, 2.0, m))
        root = root if full else rng.uniform(0.7, 1.5, m)
        emissions.append(Emission(rng.normal(size=(m, K)), rng.normal(size=m), root))
    return data, emissions, rng


def log_dense(data, labels, emissions, alpha=1.0):
    """Log density of the data of relevant objects, as one normal vector."""
    values, loading, _, covariance = dense(data, np.split(labels, [N[0]]), emissions, T)
    covariance = (covariance + loading @ loading.T / R) / alpha
    return stats.multivariate_normal.logpdf(values, np.zeros(len(values)), covariance)


@pytest.mark.parametrize(("full", "missing"), CASES)
def test_the_plain_formula_is_dense(full, missing):
    data, emissions, rng = problem(full, missing)
    labels = rng.integers(-1, T, sum(N))
    found = log_marginal(data, emissions, labels, R)
    assert found == pytest.approx(log_dense(data, labels, emissions), rel=1e-10)
    background = rng.normal(size=sum(N))
    found = log_marginal(data, emissions, labels, R, None, background) - found
    assert found == pytest.approx(background[labels < 0].sum())


def test_a_shared_precision_is_integrated_out():
    data, emissions, rng = problem(True, True)
    labels = rng.integers(T, size=sum(N))
    top = log_dense(data, labels, emissions)

    def density(alpha):
        prior = stats.gamma.pdf(alpha, GAMMA[0], scale=1.0 / GAMMA[1])
        return prior * np.exp(log_dense(data, labels, emissions, alpha) - top)

    expected = top + np.log(integrate.quad(density, 0.0, 10.0, epsabs=0.0, limit=200)[0])
    assert log_marginal(data, emissions, labels, R, GAMMA) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("gamma", [None, GAMMA])
@pytest.mark.parametrize(("full", "missing"), CASES)
def test_the_term_and_the_sums_are_the_plain_formula(full, missing, gamma):
    """In every state that random moves lead to, irrelevant objects included if there may be any."""
    data, emissions, rng = problem(full, missing)
    own = units(sum(N), np.array([[0, 4]]) if gamma else np.empty((0, 2), int))
    evidence = ProjectedNormalEvidence(data, own, T, K, flagged=gamma is None)
    background = None if gamma else rng.normal(size=sum(N))
    flagged = None if gamma else new_relevance(np.zeros(len(own.size)))
    partition = new_partition(own.size, T, flagged)
    place(partition, rng.integers(T, size=len(own.size)))
    evidence.load(emissions, partition.slot.astype(np.int64), R, gamma, background)
    a, b, terms = np.ones(T - 1), np.ones(T - 1), collect([evidence.term])
    for _ in range(60):
        unit = rng.integers(len(own.size))
        label = rng.integers(0 if gamma else -1, T)
        if label != partition.label[unit]:
            reassign(partition, terms, unit, label)
        labels = partition.label[own.of_object]
        expected = log_marginal(data, emissions, labels, R, gamma, background)
        found = log_joint(a, b, partition, terms)
        prior = plain_log_prior(a, b, np.bincount(labels[labels >= 0], minlength=T))
        found -= prior + log_flags(partition.relevance)
        assert found == pytest.approx(expected, rel=1e-9)
        sums = [
            ClusterSums.of(d, label, T, full)
            for d, label in zip(data, np.split(labels, [N[0]]), strict=True)
        ]
        n_values = sum(d.n_values for d in data)
        found = log_evidence(Contributions(sums).of(emissions), R, gamma, n_values)
        if background is not None:
            found += background[labels < 0].sum()
        assert found == pytest.approx(expected, rel=1e-9)
        occupied = np.unique(labels[labels >= 0])
        names = rng.permutation(T)
        for one, d, label in zip(sums, data, np.split(labels, [N[0]]), strict=True):
            renamed = one.renamed(names)
            again = ClusterSums.of(d, np.where(label < 0, -1, names[label]), T, full)
            kept = renamed.kept(names[occupied])
            for e in emissions:
                if e.intercept.shape == one.observed.shape[1:]:
                    np.testing.assert_allclose(renamed.grams(e), again.grams(e), atol=1e-12)
                    np.testing.assert_allclose(
                        kept.weigh(e), again.weigh(e)[names[occupied]], atol=1e-12
                    )


@pytest.mark.parametrize("full", [False, True])
def test_missing_values_are_drawn_from_their_conditional(full):
    data, emissions, rng = problem(full, True, seed=3)
    for domain, emission in zip(data, emissions, strict=True):
        factors = rng.normal(size=(len(domain.values), K))
        means = emission.intercept + factors @ emission.projection.T
        hidden = ~domain.observed

        def draw(rng, data=domain, emission=emission, factors=factors):
            return data.filled(draw_missing(rng, emission, data, factors)).ravel()

        found, covariance = moments(draw, int(hidden.sum()))
        m = len(emission.intercept)
        expected = domain.filled(draw_missing(None, emission, domain, factors))
        np.testing.assert_allclose(found.reshape(-1, m), expected)
        covariance = covariance.reshape(*domain.values.shape, *domain.values.shape)
        for n, seen in enumerate(domain.observed):
            noise, x = emission.covariance, domain.values[n]
            gain = noise[np.ix_(~seen, seen)] @ np.linalg.inv(noise[np.ix_(seen, seen)])
            mean = means[n].copy()
            mean[~seen] += gain @ (x - means[n])[seen]
            np.testing.assert_allclose(found.reshape(-1, m)[n], np.where(seen, x, mean))
            left = np.zeros((m, m))
            own = noise[np.ix_(~seen, ~seen)] - gain @ noise[np.ix_(seen, ~seen)]
            left[np.ix_(~seen, ~seen)] = own
            np.testing.assert_allclose(covariance[n, :, n], left, atol=1e-12)
            covariance[n, :, n] = 0.0
        # Of several objects they are independent.
        assert not covariance.any()


@pytest.mark.parametrize(("full", "missing"), CASES)
def test_objects_one_by_one(full, missing):
    """What objects say of their factors, and as nothing but noise."""
    data, emissions, rng = problem(full, missing, seed=4)
    for domain, emission in zip(data, emissions, strict=True):
        found, z = emission.statistics(domain), rng.normal(size=K)
        for n, x in enumerate(domain.values):
            seen = np.ones(len(x), bool) if domain.observed is None else domain.observed[n]
            noise = emission.covariance[np.ix_(seen, seen)]
            for factors, value in (
                (np.zeros(K), emission.log_noise(domain)[n]),
                (z, _log_density(found, domain.index[n], n, z)),
            ):
                mean = (emission.intercept + emission.projection @ factors)[seen]
                expected = (
                    stats.multivariate_normal.logpdf(x[seen], mean, noise) if seen.any() else 0.0
                )
                assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)


def _log_density(found, pattern, n, z):
    quadratic = z @ found.gram[pattern] @ z - 2.0 * found.projected[n] @ z + found.squares[n]
    return found.constants[n] - 0.5 * quadratic
