"""Declared conditional densities of what a network model integrates out."""

import numpy as np
from scipy import stats

from pm_match.networks.parts import Relation
from pm_match.reading.probe import evaluate
from tests.declared.networks import relation_evidence


def natural(model, point, name):
    rv = model[name]
    value, transform = model.rvs_to_values[rv], model.rvs_to_transforms[rv]
    found = point[value.name]
    return found if transform is None else np.asarray(evaluate(transform.backward(found)))


def log_conditional(step, point, labels):
    """Log density of all that was integrated out, given data, labels and relevance."""
    model, total = step.model, 0.0
    slot_of = []
    for number, clustering in enumerate(step.part.clusterings):
        label = labels[number]
        counts = np.bincount(label[label >= 0], minlength=clustering.truncation)
        logs = np.full(clustering.truncation, -np.log(clustering.truncation))
        if clustering.weights:
            a, b = clustering.prior(point)
            weights = natural(model, point, clustering.weights)
            left = np.concatenate([[1.0], 1.0 - np.cumsum(weights)])[: len(weights) - 1]
            after = counts[::-1].cumsum()[::-1][1:]
            sticks = stats.beta.logpdf(weights[:-1] / left, a + counts[:-1], b + after)
            total += sticks.sum() - np.log(left).sum()
            logs = np.log(weights)
        declared = np.concatenate([point[a.name] for a in clustering.assignments])
        total += logs[declared[label < 0]].sum()
        flags = np.concatenate([np.full(a.n_objects, a.group) for a in clustering.assignments])
        for group, name in enumerate(clustering.probabilities):
            e, f, _ = clustering.relevance_prior(point)[group]
            yes, no = (
                ((flags == group) & (label >= 0)).sum(),
                ((flags == group) & (label < 0)).sum(),
            )
            total += stats.beta.logpdf(natural(model, point, name), e + yes, f + no)
        slot_of.append(step._collapsed.partitions[number].slot_of)
    for evidence, relation in zip(relation_evidence(step), step.part.of(Relation), strict=True):
        density, noise = relation.prior(point)
        sums = evidence.by_label([slot_of[axis] for axis in relation.axes])
        cases = [(relation.density, density, sums)]
        if noise:
            cases.append((relation.noise, noise, evidence.relation.noise))
        for names, prior, (s, c, q) in cases:
            # Sums of the normal family are about an origin of their own.
            o = evidence.origin
            plain = s + o * c, c, q + 2.0 * o * s + o**2 * c
            total += _log_parameters(model, point, relation.family, names, prior, plain)
    return total


def _log_parameters(model, point, family, names, prior, sums):
    s, c, q = sums
    first = natural(model, point, names[0])
    if family == "bernoulli":
        return stats.beta.logpdf(first, prior[0] + s, prior[1] + c - s).sum()
    if family == "negative-binomial":
        return stats.beta.logpdf(first, prior[0] + c, prior[1] + s).sum()
    if family == "poisson":
        return stats.gamma.logpdf(first, prior[0] + s, scale=1.0 / (prior[1] + c)).sum()
    m, kappa, a, b = prior
    tau = natural(model, point, names[1])
    mean = (kappa * m + s) / (kappa + c)
    rate = b + 0.5 * (q + kappa * m**2 - (kappa + c) * mean**2)
    return (
        stats.gamma.logpdf(tau, a + c / 2, scale=1.0 / rate).sum()
        + stats.norm.logpdf(first, mean, ((kappa + c) * tau) ** -0.5).sum()
    )
