"""The marginal likelihood of block networks by the plain formulas, slow and obvious."""

from math import lgamma, log, pi

import numpy as np

from pm_match.networks.families import BERNOULLI, POISSON


def log_block(family, prior, total, cells, squares=0.0):
    """Log marginal of one block, as `pm_match.networks.families` has it."""
    if family == BERNOULLI:
        c, d = prior[:2]
        return _log_beta(c + total, d + cells - total) - _log_beta(c, d)
    if family == POISSON:
        c, d = prior[:2]
        return c * log(d) - lgamma(c) + lgamma(c + total) - (c + total) * log(d + cells)
    m, kappa, a, b = prior
    new_kappa, new_a = kappa + cells, a + cells / 2
    new_b = b + (squares + kappa * m**2 - (kappa * m + total) ** 2 / new_kappa) / 2
    return (
        -cells / 2 * log(2 * pi)
        + log(kappa / new_kappa) / 2
        + (a * log(b) - lgamma(a))
        - (new_a * log(new_b) - lgamma(new_a))
    )


def _log_beta(a, b):
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def log_marginal(evidence, labels, density, noise):
    """Log p(X | assignments, relevance), eq. (6), under these priors.

    `labels` have for each partition of the board the cluster of every object, -1 if irrelevant.
    """
    sums = {}
    constant = 0.0
    for network in evidence.networks:
        values = {tuple(cell): x for cell, x in zip(network.index, network.values, strict=True)}
        unknown = set(map(tuple, network.unknown))
        for cell in np.ndindex(network.shape):
            if evidence.one_mode and (
                (evidence.symmetric and cell[0] > cell[1])
                or (not evidence.self_loops and cell[0] == cell[1])
            ):
                continue
            if cell in unknown or (not network.full and cell not in values):
                continue
            x = values.get(cell, 0.0)
            ends = [
                int(labels[p][first + i])
                for p, first, i in zip(evidence.partitions, network.first, cell, strict=True)
            ]
            if evidence.symmetric:
                ends.sort()
            block = None if min(ends) < 0 else tuple(ends)
            exposure = float(network.cell_exposures(np.array([cell]))[0])
            entry = sums.setdefault(block, np.zeros(3))
            entry += x, exposure, x * x
            if evidence.family == POISSON:
                constant -= lgamma(x + 1.0)
                constant += x * log(exposure) if x > 0 else 0.0
    for block, (total, cells, squares) in sums.items():
        prior = noise if block is None else density
        constant += log_block(evidence.family, prior, total, cells, squares)
    return constant
