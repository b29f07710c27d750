"""Feature vectors as one dense normal vector, and the moments of draws, exactly."""

import numpy as np


def dense(data, labels, emissions, n_clusters):
    """Observed values of relevant objects, less intercepts; what they see of all latent vectors.

    Returns values (n,), loadings (n, J K), domain of each value, its feature, noise covariance.
    """
    values, loading, where, blocks = [], [], [], []
    for d, (own, label, m) in enumerate(zip(data, labels, emissions, strict=True)):
        noise = np.linalg.inv(m.root @ m.root.T) if m.full else np.diag(m.root**-2.0)
        for n in np.flatnonzero(label >= 0):
            seen = (
                np.arange(len(noise)) if own.observed is None else np.flatnonzero(own.observed[n])
            )
            values.append(own.values[n, seen] - m.intercept[seen])
            see = np.zeros((len(seen), n_clusters, m.projection.shape[1]))
            see[:, label[n]] = m.projection[seen]
            loading.append(see.reshape(len(seen), n_clusters * m.projection.shape[1]))
            where += [(d, feature) for feature in seen]
            blocks.append(noise[np.ix_(seen, seen)])
    covariance = np.zeros((len(where), len(where)))
    start = 0
    for block in blocks:
        covariance[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return np.concatenate(values), np.concatenate(loading), where, covariance


class _Fixed:
    """A generator whose normal variates are given: what is drawn is affine in them."""

    def __init__(self, values):
        self.values = list(values)

    def standard_normal(self, size):
        n = int(np.prod(size))
        taken, self.values = self.values[:n], self.values[n:]
        return np.reshape(taken, size).astype(float)


def moments(draw, n):
    """Mean and covariance of a draw that is affine in `n` normal variates, exactly."""
    mean = draw(_Fixed(np.zeros(n)))
    slopes = np.array([draw(_Fixed(row)) - mean for row in np.eye(n)])
    return mean, slopes.T @ slopes


def check_moments(found, precision, linear):
    mean, covariance = found
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(mean, np.linalg.solve(precision, linear), rtol=1e-8, atol=1e-10)
