"""Made-up views, and log likelihoods of mixtures by the plain formulas."""

from itertools import product

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pm_match.views.em import (
    DependencyMixture,
)


def made_up(n=60, seed=0, unseen=False):
    """Two views that share three clusters; one of them splits every cluster in two."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    x = np.stack([3.0 * z, rng.choice([-3.0, 3.0], size=n)], axis=1)
    y = np.array([0.0, 4.0, 9.0])[z][:, None]
    x = 50.0 + x + 0.7 * rng.standard_normal(x.shape)
    y = y + 0.7 * rng.standard_normal(y.shape)
    if unseen:
        x[:6], y[6:10] = np.nan, np.nan
    return z, {"x": x, "y": y}


def log_densities(x, means, covariance):
    """(N, T), 0 where a sample is not seen."""
    seen = ~np.isnan(x).any(axis=1)
    found = np.zeros((len(x), len(means)))
    for t, mean in enumerate(means):
        found[seen, t] = multivariate_normal.logpdf(x[seen], mean, covariance)
    return found


def plain_clusters(views, p: DependencyMixture):
    logs = np.log(p.weights) + sum(
        log_densities(*parts) for parts in zip(views.values(), p.means, p.covariances, strict=True)
    )
    return float(logsumexp(logs, axis=1).sum()), logs


def plain_hierarchy(views, p: DependencyMixture):
    """Sum over all of z, w_x and w_y."""
    own = [
        log_densities(*parts) for parts in zip(views.values(), p.means, p.covariances, strict=True)
    ]
    terms, states = [], list(product(*(range(n) for n in (len(p.weights), *map(len, p.means)))))
    with np.errstate(divide="ignore"):
        for z, a, b in states:
            prior = np.log(p.weights[z]) + np.log(p.links[0][z, a]) + np.log(p.links[1][z, b])
            terms.append(prior + own[0][:, a] + own[1][:, b])
    logs = np.stack(terms, axis=1)
    total = logsumexp(logs, axis=1)
    return float(total.sum()), states, np.exp(logs - total[:, None])
