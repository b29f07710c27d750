"""What a draw says of features, against dense normal distributions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pm_match.features.emission import Emission
from pm_match.features.parts import FeatureDomain
from pm_match.features.predictive import Clusters, Joined
from pm_match.features.values import Outlook
from pm_match.numerics.masked import MaskedTable
from tests.prediction.made_up import dense_log_density

R = 0.7


def problem(seed, full=True, holes=False, n_clusters=4):
    rng = np.random.default_rng(seed)
    sizes, k = ((5, 3), (4, 2)), 2
    tables = [rng.normal(size=size) * 1.5 for size in sizes]
    labels = [rng.integers(-1, 3, n) for n, _ in sizes]
    labels[0][0] = 0
    if holes:
        tables[0][1, 2] = tables[1][0, 0] = np.nan
    plain, emissions = [], []
    for _, m in sizes:
        root = np.tril(rng.normal(size=(m, m))) * 0.3 + np.eye(m)
        sigma = root @ root.T if full else np.diag(np.diagonal(root) ** 2)
        w, a = rng.normal(size=(m, k)), rng.normal(size=m)
        plain.append((w, a, sigma))
        lower = np.linalg.cholesky(sigma)
        own = np.linalg.inv(lower).T if full else 1.0 / np.diagonal(lower)
        emissions.append(Emission(w, a, own))
    data = [MaskedTable(np.nan_to_num(t), ~np.isnan(t) if holes else None) for t in tables]
    domains = [FeatureDomain("x", "cluster", own, full) for own in data]
    clusters = Clusters.of(domains, labels, emissions, R, n_clusters)
    return tables, labels, plain, clusters, rng


def extended(tables, labels, x, j, domain=0):
    own = [np.vstack([t, x]) if d == domain else t for d, t in enumerate(tables)]
    return own, [np.append(v, j) if d == domain else v for d, v in enumerate(labels)]


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_log_predictive_is_a_ratio_of_dense_densities(seed, full, seen):
    tables, labels, plain, clusters, rng = problem(seed, full, holes=not full)
    seen, x = np.array(seen), rng.normal(size=(2, 3))
    own = clusters.emissions[0].restricted(seen)
    found = Joined(clusters, own, x[:, seen]).log_density()
    assert found.shape == (2, 4)
    before = dense_log_density(tables, labels, plain, R)
    for i, j in np.ndindex(found.shape):
        row = np.where(seen, x[i], np.nan)
        after = dense_log_density(*extended(tables, labels, row, j), plain, R)
        np.testing.assert_allclose(found[i, j], after - before, rtol=1e-9, atol=1e-9)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.booleans())
def test_unseen_values_are_a_conditional_of_the_dense_normal(seed, full):
    # The density of y given the rest is p(rest, y) / p(rest): read off at several y.
    tables, labels, plain, clusters, rng = problem(seed, full)
    seen = np.array([True, False, True])
    x = rng.normal(size=(1, 2))
    joined = Joined(clusters, clusters.emissions[0].restricted(seen), x)
    outlook = Outlook.unseen(clusters.emissions[0], seen, x)
    factors, root = joined.factors()
    sd = outlook.deviations(root)
    for j in range(4):
        row = clusters.row[j]
        mean = outlook.means(factors[:, row])[0, 0]
        own = np.array([x[0, 0], np.nan, x[0, 1]])
        before = dense_log_density(*extended(tables, labels, own, j), plain, R)
        for y in (-1.0, 0.4, 2.0):
            own[1] = y
            after = dense_log_density(*extended(tables, labels, own, j), plain, R)
            z = (y - mean) / sd[row, 0]
            expected = -0.5 * z**2 - np.log(sd[row, 0] * np.sqrt(2 * np.pi))
            np.testing.assert_allclose(after - before, expected, rtol=1e-8, atol=1e-8)


def test_values_of_another_domain_are_a_conditional_of_the_dense_normal():
    tables, labels, plain, clusters, rng = problem(3)
    x = rng.normal(size=(1, 3))
    factors, root = Joined(clusters, clusters.emissions[0], x).factors()
    outlook = Outlook.fresh(clusters.emissions[1])
    sd = outlook.deviations(root)
    for j in range(4):
        row = clusters.row[j]
        mean = outlook.means(factors[:, row])[0]
        grown = extended(tables, labels, x, j)
        before = dense_log_density(*grown, plain, R)
        for y in (-1.0, 2.0):
            other = np.array([[np.nan, y]])
            after = dense_log_density(*extended(*grown, other, j, domain=1), plain, R)
            z = (y - mean[1]) / sd[row, 1]
            expected = -0.5 * z**2 - np.log(sd[row, 1] * np.sqrt(2 * np.pi))
            np.testing.assert_allclose(after - before, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("full", [True, False])
def test_marginal_of_some_features(full):
    _, _, plain, clusters, _ = problem(1, full)
    seen = np.array([True, False, True])
    found = clusters.emissions[0].restricted(seen)
    np.testing.assert_allclose(found.covariance, plain[0][2][np.ix_(seen, seen)], atol=1e-12)
    np.testing.assert_array_equal(found.projection, plain[0][0][seen])
