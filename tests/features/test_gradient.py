"""The MAP step's objective: value against the plain formula, gradient against differences."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from pm_match.clusters.units import units
from pm_match.features.projected_normal import DomainData, ProjectedNormalEvidence
from pm_match.features.projection import ClusterSums, ProjectionObjective

SHAPE, RATE, R, T = 2.0, 1.5, 0.7, 6


def case(missing, n_factors, seed=0):
    rng = np.random.default_rng(seed)
    domains, labels = [], []
    for n, m in ((12, 4), (9, 5)):
        x = rng.normal(size=(n, m)) * 1.3
        if missing:
            seen = rng.random((n, m)) > 0.3
            domains.append(DomainData(np.where(seen, x, 0.0), seen))
        else:
            domains.append(DomainData(x))
        labels.append(rng.choice([0, 2, 3, 5], size=n))
    w = rng.normal(size=(9, n_factors))
    n_values = sum(d.n_values for d in domains)
    squares = sum(np.vdot(d.values, d.values) for d in domains)
    objective = ProjectionObjective(
        ClusterSums.of(domains, labels, T),
        SHAPE + 0.5 * n_values,
        RATE + 0.5 * squares,
        R,
        n_factors,
    )
    return domains, labels, w, objective


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n_factors", [1, 3])
def test_gradient(missing, n_factors):
    *_, w, objective = case(missing, n_factors)
    _, gradient = objective(w.ravel())
    found = approx_fprime(w.ravel(), lambda flat: objective(flat)[0], 1e-6)
    np.testing.assert_allclose(gradient, found, rtol=2e-5, atol=2e-4)


def test_counting_objects_instead_of_observed_values_is_wrong():
    """The printed gradient for missing values, eq. (27): the check above would see it."""
    domains, labels, w, objective = case(missing=True, n_factors=3)
    right = objective(w.ravel())[1]
    clusters = ClusterSums.of(domains, labels, T)
    counts = np.bincount(np.concatenate(labels[:1]), minlength=T)[clusters.occupied]
    objective._counts[:, :4] = counts[:, None]
    wrong = objective(w.ravel())[1]
    assert np.abs(wrong - right).max() > 0.05 * np.abs(right).max()


@pytest.mark.parametrize("missing", [False, True])
def test_value_differs_from_the_log_marginal_by_a_constant(missing):
    domains, labels, w, objective = case(missing, 3)
    evidence = ProjectedNormalEvidence(domains, units(21, np.empty((0, 2), int)), T, 3)
    rng = np.random.default_rng(1)
    differences = []
    for _ in range(4):
        w = w + rng.normal(size=w.shape)
        plain = evidence.log_marginal([w[:4], w[4:]], np.concatenate(labels), SHAPE, RATE, R)
        differences.append(plain + objective(w.ravel())[0])
    np.testing.assert_allclose(differences, differences[0], rtol=1e-10)
