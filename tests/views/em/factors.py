"""Made-up views that share factors, and their log likelihood by the plain formula."""

import numpy as np
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from pm_match.views.em.shared_factors import (
    SharedFactors,
)


def made_up(n=60, d=(3, 2), seed=0, missing=False):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, 1))
    views = [
        z @ rng.standard_normal((1, k))
        + rng.standard_normal((n, 1)) @ rng.standard_normal((1, k))
        + 0.5 * rng.standard_normal((n, k))
        + 3.0
        for k in d
    ]
    if missing:
        views[0][:5] = np.nan
        views[1][3:9, 0] = np.nan
        views[0][20:24, 1] = np.nan
    return views


def covariance(p: SharedFactors):
    w = np.concatenate(p.projections)
    own = [b @ b.T + s * np.eye(len(b)) for b, s in zip(p.privates, p.variances, strict=True)]
    return w @ w.T + block_diag(*own)


def plain(views, p: SharedFactors) -> float:
    """Log likelihood: every sample's seen values are normal, with a part of the covariance."""
    x, mean, whole = np.concatenate(views, axis=1), np.concatenate(p.intercepts), covariance(p)
    total = 0.0
    for row in x:
        seen = ~np.isnan(row)
        if seen.any():
            total += multivariate_normal.logpdf(row[seen], mean[seen], whole[np.ix_(seen, seen)])
    return float(total)
