"""The law of the labels of tiny models, by enumeration."""

from itertools import product

import numpy as np
from scipy.special import betaln, gammaln

from tests.sharded import models


def log_sticks(alpha, counts):
    """Log p(s) under truncated stick-breaking, stick by stick."""
    after = np.sum(counts) - np.cumsum(counts)
    pairs = zip(counts[:-1], after[:-1], strict=True)
    return sum(betaln(1.0 + n, alpha + rest) - betaln(1.0, alpha) for n, rest in pairs)


def enumerated(log_evidence, alphas, weights, n=5):
    """Every assignment and its probability, the concentration summed over a grid."""
    states = np.array(list(product(range(models.T), repeat=n)))
    counts = [np.bincount(state, minlength=models.T) for state in states]
    # The prior depends on the sizes of clusters alone, and the evidence on who is together.
    of_sizes = {
        size: np.logaddexp.reduce([log_sticks(a, size) for a in alphas] + np.log(weights))
        for size in {tuple(own) for own in counts}
    }
    evidence = {}
    logs = np.empty(len(states))
    for number, (state, size) in enumerate(zip(states, counts, strict=True)):
        firsts = tuple(int(np.flatnonzero(state == own)[0]) for own in state)
        if firsts not in evidence:
            evidence[firsts] = log_evidence(np.array(firsts))
        logs[number] = of_sizes[tuple(size)] + evidence[firsts]
    return states, np.exp(logs - np.logaddexp.reduce(logs))


def enumerated_sizes(log_evidence, alpha, n):
    """A state for all sizes of clusters of objects that are alike, and the sizes' probability."""
    sizes = [own for own in product(range(n + 1), repeat=models.T) if sum(own) == n]
    states = np.array([np.repeat(range(models.T), own) for own in sizes])
    logs = np.empty(len(states))
    for number, (state, own) in enumerate(zip(states, sizes, strict=True)):
        logs[number] = log_sticks(alpha, own) - gammaln(np.add(own, 1)).sum()
        logs[number] += log_evidence(np.searchsorted(state, state))
    return states, np.exp(logs - np.logaddexp.reduce(logs))


CASES = {
    **{
        family: lambda family=family: models.columns(family)
        for family in ("Poisson", "Bernoulli", "Categorical", "Normal", "NormalGamma")
    },
    "features": models.features,
    "dependent noise": lambda: models.features(full=True),
    "deviations": lambda: models.features(deviations=True),
    "normals": models.normals,
    "normals of one precision": lambda: models.normals(shared=True),
    "any likelihood": models.likelihoods,
    "likelihoods of one scale": lambda: models.likelihoods(shared=True),
}
