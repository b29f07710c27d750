"""The hinge as a function of latent vectors: its formula, and its gradient by differences."""

import numpy as np
import pytest

from pm_match.views.hinge.hinge_latent import HingeTerm


def made_up(n_scores, seed=0):
    rng = np.random.default_rng(seed)
    n, m, n_frequencies = 40, 3, 5
    frequencies = rng.normal(size=(n_frequencies, m))
    coefficients = rng.normal(0.0, 2.0, (2 * n_frequencies + 1, n_scores))
    labels = rng.integers(-1, 2, (n, n_scores)).astype(float)
    labels[0] = 0.0
    return rng.normal(size=(n, m)), frequencies, coefficients, labels


def plain(latent, frequencies, coefficients, labels, penalty):
    angles = latent @ frequencies.T
    features = np.hstack([np.cos(angles), np.sin(angles)]) / np.sqrt(len(frequencies))
    scores = np.hstack([features, np.ones((len(latent), 1))]) @ coefficients
    hinge = np.maximum(0.0, 1.0 - labels * scores)
    return -2.0 * penalty * np.where(labels == 0.0, 0.0, hinge).sum(axis=1)


@pytest.mark.parametrize("n_scores", [1, 3])
def test_is_the_formula(n_scores):
    latent, *rest, labels = made_up(n_scores)
    rows = np.array([5, 0, 17, 30])
    # Of a label and its opposite one is short of its margin: every score is compared.
    for own in (labels, -labels):
        term = HingeTerm(*rest, own, 1.7)
        expected = plain(latent, *rest, own, 1.7)
        np.testing.assert_allclose(term(rows, latent[rows])[0], expected[rows])
        np.testing.assert_allclose(term(np.arange(40), latent)[0], expected)
    assert not term.labelled[0]
    assert np.array_equal(term.labelled, (labels != 0).any(axis=1))


@pytest.mark.parametrize("n_scores", [1, 3])
def test_gradient(n_scores):
    latent, *rest = made_up(n_scores)
    term, rows, step = HingeTerm(*rest, 1.7), np.arange(len(latent)), 1e-6
    _, gradient = term(rows, latent)
    assert np.abs(gradient).max() > 0.1
    for k in range(latent.shape[1]):
        moved = step * np.eye(latent.shape[1])[k]
        above, below = term(rows, latent + moved)[0], term(rows, latent - moved)[0]
        np.testing.assert_allclose(gradient[:, k], (above - below) / (2.0 * step), atol=1e-6)
