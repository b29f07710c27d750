r"""Split and merge: many units change their cluster at once, accepted by Metropolis and Hastings.

For clusters that have labels, and for any evidence: splits like Jain & Neal's (2004, JCGS 13(1)),
by sequential allocation (Dahl 2005, "Sequentially-allocated merge-split sampler for conjugate and
nonconjugate Dirichlet process mixture models"), of clusters chosen by what their data are worth.

A relevant unit :math:`u` is drawn, and with probability 1/2 either is proposed; the *members* are
the other units of the clusters of :math:`u` and of a second unit :math:`v`.

- A *split* of the cluster :math:`j` of `u`: `v` is another of its :math:`n_j` units. An empty label
  :math:`k` is drawn for it with probability :math:`p_k`, in proportion to the prior weights of the
  empty labels for one object more; `u` stays in `j`. In a random order, each member chooses between
  `j`, where all that have not chosen yet still are, and `k`: by the evidence, and by the numbers of
  objects that have chosen either. :math:`q(s')` is the probability of all their choices.
- A *merge*: another cluster :math:`k` is drawn with probability :math:`g_k`, half by the evidence
  of `u` (softmax of scores), half uniformly; `v` is one of its :math:`n_k` units. All of `k`
  joins `j`. The reverse split would draw `k` among the labels that are empty then, and the members'
  present places :math:`s` in a random order.

.. math::
    \text{split: } \frac{p(X, s')}{p(X, s)}\,
    \frac{(n_j - 1)\, g'_k / n'_k}{p_k\, q(s')}, \qquad
    \text{merge: } \frac{p(X, s')}{p(X, s)}\, \frac{p_k\, q(s)}{(n'_j - 1)\, g_k / n_k}

with primes after the move. The order is drawn alike either way, and so is `u`, since relevance does
not change. A merge is refused before the members' choices if already :math:`q \le 1` does not save
it, which decides nothing else than they would. The ratio of the collapsed joints is the sum of the
log odds of the single moves that lead from one state to the other: all that is asked of a term is
`score` and `move`.

Units whose label is known are neither drawn nor members, and no count of units has them. Clusters
that hold one are merged with others, which take their label, and never given up.
"""

from math import exp, log, log1p

import numpy as np

from pm_match.clusters.sweep import draw_empty_label, reassign, score_unit
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.stick_breaking import predictive


@part
def log_odds(a, b, partition, terms, unit, source, target):
    """Log of p(X, s with `unit` in the cluster `target`) / p(X, s with it in `source`)."""
    scores = partition.scores
    score_unit(partition, terms, unit, scores)
    size, weights = partition.size[unit], partition.prior_by_label
    predictive(a, b, partition.counts, partition.label[unit], size, weights)
    found = scores[partition.slot_of[target]] - scores[partition.slot_of[source]]
    return found + log(weights[target]) - log(weights[source])


@part
def log_chosen(odds):
    """Log probability of what has log odds `odds`."""
    return -log1p(exp(-odds)) if odds > 0.0 else odds - log1p(exp(odds))


@part
def draw_unit(rng, partition, cluster, but):
    """Draw a unit of a cluster (any, if -1) that is not `but`; -1 if there is none."""
    n = 0
    for unit in range(partition.label.shape[0]):
        n += int(belongs(partition, unit, cluster) and unit != but)
    left = int(rng.random() * n)
    for unit in range(partition.label.shape[0]):
        if belongs(partition, unit, cluster) and unit != but:
            if left == 0:
                return unit
            left -= 1
    return -1


@part
def belongs(partition, unit, cluster):
    """Whether a unit is relevant, may move, and is of the cluster if that is not -1."""
    label = partition.label[unit]
    return label >= 0 and (cluster < 0 or label == cluster) and partition.fixed[unit] == 0


@part
def may_join(partition, slot, own):
    """Whether the cluster of a slot may be given up for that of the slot `own`."""
    if slot == 0 or slot == own or partition.held[slot] == 0:
        return False
    return partition.named[partition.label_of[slot]] == 0


@part
def weigh_others(partition, terms, unit):
    """Fill `partition.weights` with the probabilities of all slots for a merge with a unit's own.

    Half by the unit's evidence, half uniform, over the clusters that may be given up.

    Return how many there are.
    """
    scores, weights, own = partition.scores, partition.weights, partition.slot[unit]
    score_unit(partition, terms, unit, scores)
    n, top, total = 0, -np.inf, 0.0
    for slot in range(1, partition.n_slots[0]):
        if may_join(partition, slot, own):
            n += 1
            top = max(top, scores[slot])
    for slot in range(partition.n_slots[0]):
        weights[slot] = exp(scores[slot] - top) if may_join(partition, slot, own) else 0.0
        total += weights[slot]
    for slot in range(1, partition.n_slots[0]):
        if may_join(partition, slot, own):
            weights[slot] = 0.5 * weights[slot] / total + 0.5 / n
    return n


@part
def draw_other(rng, partition, terms, unit):
    """Draw another cluster than that of a unit, by `weigh_others`; -1 if there is none."""
    weigh_others(partition, terms, unit)
    threshold = rng.random()
    chosen = -1
    for slot in range(1, partition.n_slots[0]):
        if partition.weights[slot] > 0.0:
            chosen = partition.label_of[slot]
            threshold -= partition.weights[slot]
            if threshold < 0.0:
                break
    return chosen


@part
def log_choice(partition, k, n_merged):
    """Log probability that a merge draws `v` for `u`, over that a split of `n_merged` units does.

    Given that `u` is in another cluster than `k`, and clusters are weighed for it.
    """
    slot = partition.slot_of[k]
    return log(partition.weights[slot] * (n_merged - 1) / partition.held[slot])


@part
def list_members(partition, u, v, members):
    """List the units of the clusters of `u` and `v` that may move, but for these; count them."""
    j, k = partition.label[u], partition.label[v]
    n = 0
    for unit in range(partition.label.shape[0]):
        label = partition.label[unit]
        if label in (j, k) and unit != u and unit != v and partition.fixed[unit] == 0:
            members[n] = unit
            n += 1
    return n


@part
def shuffle(rng, members):
    """Put the members into a random order."""
    for i in range(members.shape[0] - 1, 0, -1):
        other = int(rng.random() * (i + 1))
        members[i], members[other] = members[other], members[i]


@part
def allocate(rng, a, b, partition, terms, members, u, v, wanted):
    """Let the members, all in the cluster of `u`, choose between that and the cluster of `v`.

    `members` (M,) are put into a random order, in which they choose; `wanted` (U,): the labels that
    they are made to choose, by unit, or empty. Return `change`, `log_q`: of the log joint; log
    probability of what was chosen.
    """
    j, k = partition.label[u], partition.label[v]
    n_j, n_k = partition.size[u], partition.size[v]
    weights = partition.prior_by_label
    forced = wanted.shape[0] > 0
    change, log_q = 0.0, 0.0
    shuffle(rng, members)
    for i in range(members.shape[0]):
        unit = members[i]
        odds = log_odds(a, b, partition, terms, unit, j, k)
        # Those who have not chosen yet count as evidence, but not as numbers.
        preferred = odds + log(weights[j] / weights[k]) + log(n_k / n_j)
        joins = wanted[unit] == k if forced else rng.random() < 1.0 / (1.0 + exp(-preferred))
        if joins:
            change += odds
            log_q += log_chosen(preferred)
            n_k += partition.size[unit]
            reassign(partition, terms, unit, k)
        else:
            log_q += log_chosen(-preferred)
            n_j += partition.size[unit]
    return change, log_q


@part
def gather_in(partition, terms, members, v, j):
    """Put the members and `v` into the cluster `j`."""
    for i in range(members.shape[0]):
        if partition.label[members[i]] != j:
            reassign(partition, terms, members[i], j)
    if partition.label[v] != j:
        reassign(partition, terms, v, j)


@part
def empty_share(a, b, partition, label):
    """Fill the prior weights for one object more; return an empty label's share of the empty."""
    weights = partition.prior_by_label
    predictive(a, b, partition.counts, -1, 1, weights)
    total = 0.0
    for other in range(partition.counts.shape[0]):
        if partition.counts[other] == 0:
            total += weights[other]
    return weights[label] / total


@part
def split(rng, a, b, partition, terms, members, u, v):
    """Propose to part `v` and some of the members from `u`; return whether it was accepted."""
    j = partition.label[u]
    predictive(a, b, partition.counts, -1, 1, partition.prior_by_label)
    k = draw_empty_label(rng, partition)
    if k < 0:
        return False
    log_label = log(empty_share(a, b, partition, k))
    change = log_odds(a, b, partition, terms, v, j, k)
    reassign(partition, terms, v, k)
    allocated, log_q = allocate(rng, a, b, partition, terms, members, u, v, members[:0])
    weigh_others(partition, terms, u)
    change += allocated + log_choice(partition, k, members.shape[0] + 2)
    if log(rng.random()) < change - log_label - log_q:
        return True
    gather_in(partition, terms, members, v, j)
    return False


@part
def merge(rng, a, b, partition, terms, members, before, u, v):
    """Propose to put the cluster of `v` into that of `u`; return whether it was accepted.

    `v` has been drawn by `draw_other`, whose weights are still there. `before` (U,) is scratch for
    labels.
    """
    j, k = partition.label[u], partition.label[v]
    change = -log_choice(partition, k, members.shape[0] + 2)
    for i in range(members.shape[0]):
        unit = members[i]
        before[unit] = partition.label[unit]
        if before[unit] == k:
            change += log_odds(a, b, partition, terms, unit, k, j)
            reassign(partition, terms, unit, j)
    change += log_odds(a, b, partition, terms, v, k, j)
    reassign(partition, terms, v, j)
    change += log(empty_share(a, b, partition, k))
    height = log(rng.random())
    reassign(partition, terms, v, k)
    if height >= change:
        # No log_q, which is negative, can help any more.
        for i in range(members.shape[0]):
            if before[members[i]] == k:
                reassign(partition, terms, members[i], k)
        return False
    _, log_q = allocate(rng, a, b, partition, terms, members, u, v, before)
    if height >= change + log_q:
        return False
    gather_in(partition, terms, members, v, j)
    return True


@entry
def split_or_merge(rng, a, b, partition, terms, scratch, n_proposals):
    """Propose `n_proposals` splits or merges.

    `a`, `b` (T - 1,): Beta parameters of the sticks (see `stick_breaking`); `terms` (n_terms, 8):
    the terms of evidence (see `protocol.collect`), in the partition's present state; `scratch`
    (2, U). Return `accepted`, `proposed`: nothing is proposed where no unit is relevant and may
    move.
    """
    accepted = 0
    proposed = 0
    for _ in range(n_proposals):
        u = draw_unit(rng, partition, -1, -1)
        if u < 0:
            break
        proposed += 1
        splits = rng.random() < 0.5
        cluster = partition.label[u] if splits else draw_other(rng, partition, terms, u)
        v = draw_unit(rng, partition, cluster, u) if cluster >= 0 else -1
        if v < 0:
            continue
        members = scratch[0, : list_members(partition, u, v, scratch[0])]
        if splits:
            accepted += split(rng, a, b, partition, terms, members, u, v)
        else:
            accepted += merge(rng, a, b, partition, terms, members, scratch[1], u, v)
    return accepted, proposed


def new_scratch(n_units: int) -> np.ndarray:
    """Allocate the scratch of `split_or_merge`."""
    return np.zeros((2, n_units), np.int64)
