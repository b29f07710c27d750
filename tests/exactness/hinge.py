"""A tiny hinge on Fourier features, chains of its steps, and the law of one frequency."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats import ess
from scipy import stats

import pm_match as pmm
from tests.exactness.chains import run

FIXED = np.array([[0.8]])
X = np.array([[0.4, -1.0], [1.2, 0.3], [-0.7, 0.9], [0.1, 1.5]])


def z_score(found, expected):
    """Standardised difference of a chain's mean from a number."""
    found = np.asarray(found, float)
    return (found.mean() - expected) / np.sqrt(found.var() / float(ess(found[None])))


def kernel_model(prior="normal", labels=(1, -1, 1), n_frequencies=1, m=1, v=None, weights=None):
    """Make a tiny model of Fourier features of constant vectors."""
    vectors = 1.5 * X[: len(labels), :m]
    with pm.Model() as model:
        if prior == "mixture":
            if weights is None:
                weights = pm.StickBreakingWeights("weights", alpha=1.0, K=1)
            component = pm.Categorical("component", p=weights, shape=n_frequencies)
            precision = pm.Wishart("precision", nu=m + 3, V=np.eye(m) / 2.0, shape=(2, m, m))
            covariance = pt.linalg.inv(precision)
            mean = pm.MvNormal(
                "mean", np.full(m, 0.5), chol=pt.linalg.cholesky(covariance / 0.8), shape=(2, m)
            )
            frequencies = pm.MvNormal(
                "frequencies",
                mean[component],
                chol=pt.linalg.cholesky(covariance)[component],
                shape=(n_frequencies, m),
            )
        elif prior == "fixed":
            frequencies = FIXED
        else:
            frequencies = pm.Normal("frequencies", 0.3, 1.2, shape=(n_frequencies, m))
        v = pm.Gamma("v", 3.0, 2.0) if v is None else v
        classes = max(labels) > 1
        shape = (2 * n_frequencies + 1, *((max(labels) + 1,) if classes else ()))
        beta = pm.Normal("coefficients", 0.0, tau=v, shape=shape)
        score = pmm.fourier_features(vectors, frequencies) @ beta
        pmm.Hinge("label", score, 0.9, observed=np.array(labels))
    return model, vectors


def frequency_scores(model, vectors, steps):
    """Score how often a chain's frequency is below some values, against quadrature of the law."""
    grid, beta = np.linspace(-4.5, 5.1, 97), np.linspace(-5.5, 5.5, 45)
    log_p = stats.norm(0.3, 1.2).logpdf(grid)[:, None, None, None]
    a, b, c = np.meshgrid(beta, beta, beta, indexing="ij", sparse=True)
    log_p = log_p - 0.35 * (a**2 + b**2 + c**2)
    for x, y in zip(vectors[:, 0], (1, -1, 1), strict=True):
        cosine, sine = (wave(grid * x)[:, None, None, None] for wave in (np.cos, np.sin))
        log_p = log_p - 1.8 * np.maximum(0.0, 1.0 - y * (cosine * a + sine * b + c))
    p = np.exp(log_p - log_p.max()).sum(axis=(1, 2, 3))
    p /= p.sum()
    # Hamiltonian moves of a size that some are refused.
    chain = run(steps, model.initial_point(), 6_000, n_tune=200)
    draws = [float(point["frequencies"][0, 0]) for point in chain]
    draws = np.array(draws)[200:]
    return [
        # The grid's cells end between its points.
        z_score(draws < at, p[grid < at].sum())
        for at in grid[30:71:5] + 0.05
    ]
