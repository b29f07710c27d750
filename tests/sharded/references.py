"""Log evidence of the tiny models by the densities of SciPy, parameters integrated out."""

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import halfnorm, multivariate_normal, multivariate_t, norm, poisson, t


def of_columns(family, data, power=1.0):
    """Return log p(data | labels) of `models.columns`."""
    values = np.concatenate(list(data.values()))

    def log_evidence(labels):
        return sum(
            column(family, values[labels == j, m], m, power)
            for j in np.unique(labels)
            for m in range(values.shape[1])
        )

    return log_evidence


def column(family, x, m, power):
    """Log density of one column of one cluster, up to what no label enters."""
    n = len(x)
    if family == "Poisson":
        total, exposure = power * x.sum(), power * n
        return (
            gammaln(2.0 + total) - gammaln(2.0) + 2.0 * np.log(0.5)
            - (2.0 + total) * np.log(0.5 + exposure)
        )  # fmt: skip
    if family == "Bernoulli":
        return betaln(0.7 + x.sum(), 1.2 + n - x.sum()) - betaln(0.7, 1.2)
    if family == "Categorical":
        prior = np.array([0.6, 0.8, 0.5])
        after = prior + np.bincount(x, minlength=3)
        total = gammaln(after).sum() - gammaln(after.sum())
        return total - gammaln(prior).sum() + gammaln(prior.sum())
    if family == "Normal":
        return multivariate_normal.logpdf(x, np.full(n, 0.3), 0.64 / power * np.eye(n) + 4.0)
    # The mean is normal with half the precision, which is Gamma(2, 1).
    return multivariate_t.logpdf(x, np.full(n, 0.3), 0.5 * (np.eye(n) + 2.0), df=4.0)


def of_features(data, parts, precision_prior=None):
    """Return log p(data | labels) of `models.features`.

    `parts` are, for every domain, its projection, the covariance of its noise and the standard
    deviation of its deviations; with a prior of a shared precision, that multiplies it all.
    """
    x = np.concatenate([own.ravel() for own in data.values()]) - 0.4
    domain = np.repeat(np.arange(len(data)), [len(own) for own in data.values()])

    def log_evidence(labels):
        n, m = len(labels), 3
        covariance = np.zeros((n, m, n, m))
        for i in range(n):
            for j in range(n):
                (w, noise, deviation), (v, *_) = parts[domain[i]], parts[domain[j]]
                if labels[i] == labels[j]:
                    covariance[i, :, j] += 2.0 * w @ v.T
                    if domain[i] == domain[j]:
                        covariance[i, :, j] += deviation**2 * np.eye(m)
                if i == j:
                    covariance[i, :, j] += noise
        covariance = covariance.reshape(n * m, n * m)
        if precision_prior is None:
            return multivariate_normal.logpdf(x, np.zeros(n * m), covariance)
        shape, rate = precision_prior
        return multivariate_t.logpdf(x, np.zeros(n * m), rate / shape * covariance, df=2.0 * shape)

    return log_evidence


def of_normals(data, shared):
    """Return log p(data | labels) of `models.normals`, by each vector given those before it."""
    values = np.concatenate(list(data.values()))

    def log_evidence(labels):
        strengths, centres = np.full(len(values), 0.3), np.tile([0.2, 0.1], (len(values), 1))
        degrees, inverse = np.full(len(values), 5.0), np.tile(4.0 * np.eye(2), (len(values), 1, 1))
        total = 0.0
        for x, j in zip(values, labels, strict=True):
            # One precision of all, or one for each cluster.
            own = 0 if shared else j
            scale = (strengths[j] + 1.0) / strengths[j] * inverse[own] / (degrees[own] - 1.0)
            total += multivariate_t.logpdf(x, centres[j], scale, df=degrees[own] - 1.0)
            away = x - centres[j]
            inverse[own] += strengths[j] / (strengths[j] + 1.0) * np.outer(away, away)
            degrees[own] += 1.0
            centres[j] += away / (strengths[j] + 1.0)
            strengths[j] += 1.0
        return total

    return log_evidence


def of_likelihoods(data, shared):
    """Return log p(data | labels) of `models.likelihoods`, by quadrature."""
    centres = np.linspace(-7.0, 7.0, 561)
    sigmas = np.linspace(0.01, 5.0, 120) if shared else np.array([0.8])
    weights = halfnorm.logpdf(sigmas) if shared else np.zeros(1)
    prior = norm.logpdf(centres, 0.2, 1.2)
    # Log densities of every cell, (sigma, object, column, centre).
    near = t.logpdf(data["a"][None, :, :, None], 4.0, centres, sigmas[:, None, None, None])
    counts = poisson.logpmf(data["b"][None, :, :, None], np.exp(centres))
    cells = np.concatenate([near, np.broadcast_to(counts, (len(sigmas), *counts.shape[1:]))], 1)

    def log_evidence(labels):
        total = weights - np.logaddexp.reduce(weights)
        for j in np.unique(labels):
            joint = prior + cells[:, labels == j].sum(axis=1)
            total = total + (np.logaddexp.reduce(joint, axis=2) + np.log(0.025)).sum(axis=1)
        return np.logaddexp.reduce(total)

    return log_evidence
