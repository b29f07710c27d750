"""Densities of the families' cells."""

import numpy as np
import pytest

from pm_match.clusters.conjugate import NormalPrior
from pm_match.columns.families import FAMILIES

P = np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4]])
# Values, some of which there are not; parameters; what is known.
CELLS = {
    "Poisson": ([0.0, 3.0, 1.5, 7.0], [[0.2, 2.0, 1.0, 9.0]], [1.0, 0.5, 1.0, 2.0]),
    "Exponential": ([0.3, 3.0, -1.0, 0.0], [[0.2, 2.0, 1.0, 9.0]], [1.0, 0.5, 1.0, 2.0]),
    "Bernoulli": ([0.0, 1.0, 2.0, 1.0], [[0.2, 0.9, 0.5, 1.0]], 1.0),
    "Binomial": ([0.0, 2.0, 9.0, 4.0], [[0.2, 0.9, 0.5, 1.0]], [3.0, 5.0, 4.0, 4.0]),
    "Geometric": ([1.0, 2.0, 0.0, 9.0], [[0.2, 0.9, 0.5, 0.1]], 1.0),
    "NegativeBinomial": ([0.0, 2.0, 1.5, 9.0], [[0.2, 0.9, 0.5, 0.1]], [3.0, 0.5, 4.0, 4.0]),
    "Normal": ([-1.0, 0.0, 2.0, 9.0], [[0.2, -3.0, 1.0, 8.0], [0.5, 1.0, 2.0, 9.0]], 3.0),
    "LogNormal": ([0.5, 1.0, -1.0, 9.0], [[0.2, -3.0, 1.0, 2.0], [0.5, 1.0, 2.0, 9.0]], 3.0),
}


def density(family, values, parameters, known):
    """SciPy's log densities."""
    law, *given = family.law(parameters, known)
    return (law.logpmf if hasattr(law, "logpmf") else law.logpdf)(values, *given)


@pytest.mark.parametrize(
    "family",
    [own for own in FAMILIES if own.name in CELLS],
    ids=lambda own: f"{own.name}-{type(own.prior).__name__}",
)
def test_densities_are_those_of_scipy(family):
    values, parameters, known = CELLS[family.name]
    values, known = np.array(values), np.broadcast_to(known, 4)
    parameters = [np.array(own) for own in parameters]
    if type(family.prior) is NormalPrior:
        parameters = parameters[:1]
    found = family.log_density(values, parameters, known)
    np.testing.assert_allclose(found, density(family, values, parameters, known), rtol=1e-12)


def test_densities_of_categories_and_counts():
    categories, counts = (
        next(f for f in FAMILIES if f.name == n) for n in ("Categorical", "Multinomial")
    )
    found = categories.log_density(np.array([0.0, 1.0, 2.0, 3.0]), [P], np.array(3.0))
    np.testing.assert_allclose(found, [*np.log([0.2, 0.8, 0.2]), -np.inf])
    rows = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 1.0], [2.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = counts.log_density(rows, [P], np.array([3.0, 1.0, 3.0, 3.0]))
    expected = [np.log(3 * 0.2 * 0.3**2), np.log(0.1), -np.inf, np.log(6 * 0.3 * 0.3 * 0.4)]
    np.testing.assert_allclose(found, expected)
