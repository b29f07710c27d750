"""What every fit must be: a climb that ends where the plain log likelihood has no slope."""

import numpy as np
from scipy.optimize import minimize


def check_ascent(fit, plain: float):
    """The trace never falls, and ends at the plain log likelihood of the parameters."""
    assert np.diff(fit.log_likelihoods).min() > -1e-8
    assert np.ptp(fit.log_likelihoods) > 0.0
    assert np.isclose(fit.log_likelihood, plain, rtol=1e-9)
    assert fit.converged
    assert fit.log_likelihood >= fit.starts.max() - 1e-9


def gain_by_climbing(log_likelihood, parameters) -> float:
    """How much a general optimiser gains from the parameters, given as one free vector."""
    found = minimize(lambda p: -log_likelihood(p), parameters, method="BFGS", tol=1e-7)
    return -found.fun - log_likelihood(parameters)


def best_of_random(log_likelihood, rng, n_parameters: int, n_starts: int) -> float:
    """The best log likelihood that a general optimiser finds from random starts."""
    best = -np.inf
    for _ in range(n_starts):
        start = rng.standard_normal(n_parameters)
        found = minimize(lambda p: -log_likelihood(p), start, method="BFGS", tol=1e-7)
        best = max(best, -found.fun)
    return best


def covariance_of(free, d: int):
    """A covariance (d, d) from d (d + 1) / 2 free numbers; and back by `free_of`."""
    lower = np.zeros((d, d))
    lower[np.tril_indices(d)] = free
    diagonal = np.arange(d)
    lower[diagonal, diagonal] = np.exp(lower[diagonal, diagonal])
    return lower @ lower.T


def free_of(covariance):
    lower = np.linalg.cholesky(covariance)
    diagonal = np.arange(len(lower))
    lower[diagonal, diagonal] = np.log(lower[diagonal, diagonal])
    return lower[np.tril_indices(len(lower))]


def softmax(free):
    """Rows of probabilities from free numbers, the last of each row being 0."""
    free = np.concatenate([free, np.zeros((*free.shape[:-1], 1))], axis=-1)
    shares = np.exp(free - free.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def free_of_weights(weights):
    logs = np.log(np.maximum(weights, 1e-12))
    return (logs - logs[..., -1:])[..., :-1]
