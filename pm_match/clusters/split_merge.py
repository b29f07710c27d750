r"""Split and merge: many units change their cluster at once, accepted by Metropolis and Hastings.

Jain & Neal (2004), "A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
mixture model", JCGS 13(1), for clusters that have labels, and for any evidence. Two distinct
relevant units :math:`u, v` are drawn, and the other units of their clusters are the *members*.

- Both in cluster :math:`j`: a *split*. An empty label :math:`k` is drawn for `v` with probability
  :math:`p_k`, in proportion to the prior weights of the empty labels for one object more; `u` stays
  in `j`. The launch state puts every member into `j` or `k` by the toss of a coin, and a few
  restricted Gibbs scans (`j` and `k` being the only candidates) follow. One last scan proposes
  :math:`s'`, with the probability :math:`q(s')` that it chooses what it does.
- In `j` and `k`: a *merge*, all of `k` joins `j`. The reverse split would draw `k` among the labels
  that are empty then, and the members' present places :math:`s` by a last scan from a launch state,
  which is made in the same way: it depends on nothing but who the members are.

.. math::
    \text{split: } \frac{p(X, s')}{p(X, s)}\,\frac{1}{p_k\, q(s')}, \qquad
    \text{merge: } \frac{p(X, s')}{p(X, s)}\; p_k\, q(s)

The ordered pair is drawn with the same probability either way, since relevance does not change.
Units whose label is known are neither drawn nor members, and stay where they are; a cluster that
holds one is never emptied, as no split would draw its label. A
merge is refused before its scans if already :math:`q \le 1` does not save it, which decides nothing
else than they would. The ratio of the collapsed joints is the sum of the log odds of the single
moves that lead from one state to the other: all that is asked of a term is `score` and `move`.
"""

from math import exp, log, log1p

import numpy as np

from pm_match.clusters.protocol import score
from pm_match.clusters.sweep import draw_empty_label, reassign
from pm_match.numerics.kernels import entry, part
from pm_match.numerics.stick_breaking import predictive


@part
def log_odds(a, b, partition, terms, unit, source, target):
    """Log of p(X, s with `unit` in the cluster `target`) / p(X, s with it in `source`)."""
    scores = partition.scores
    n_slots = partition.n_slots[0]
    for slot in range(n_slots + 1):
        scores[slot] = 0.0
    for i in range(terms.shape[0]):
        score(terms[i], unit, partition.slot[unit], n_slots, scores)
    size, weights = partition.size[unit], partition.prior_by_label
    predictive(a, b, partition.counts, partition.label[unit], size, weights)
    found = scores[partition.slot_of[target]] - scores[partition.slot_of[source]]
    return found + log(weights[target]) - log(weights[source])


@part
def log_chosen(odds):
    """Log probability of what has log odds `odds`."""
    return -log1p(exp(-odds)) if odds > 0.0 else odds - log1p(exp(odds))


@part
def draw_pair(rng, partition):
    """Draw two distinct relevant units that may move, in order; -1 and -1 if there are none."""
    n_relevant = 0
    for unit in range(partition.label.shape[0]):
        n_relevant += int(partition.label[unit] >= 0 and partition.fixed[unit] == 0)
    if n_relevant < 2:
        return -1, -1
    first = int(rng.random() * n_relevant)
    second = int(rng.random() * (n_relevant - 1))
    second += int(second >= first)
    u, v = -1, -1
    n = 0
    for unit in range(partition.label.shape[0]):
        if partition.label[unit] >= 0 and partition.fixed[unit] == 0:
            if n == first:
                u = unit
            elif n == second:
                v = unit
            n += 1
    return u, v


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
def scan(rng, a, b, partition, terms, members, j, k, wanted):
    """One restricted Gibbs scan, or one that is made to choose what is `wanted` (if not empty).

    Returns
    -------
    change, log_q : float
        Of the log joint; log probability of what was chosen.
    """
    change = 0.0
    log_q = 0.0
    forced = wanted.shape[0] > 0
    for i in range(members.shape[0]):
        unit = members[i]
        odds = log_odds(a, b, partition, terms, unit, j, k)
        chosen = wanted[i] if forced else -1
        if not forced:
            chosen = k if rng.random() < 1.0 / (1.0 + exp(-odds)) else j
        log_q += log_chosen(odds) if chosen == k else log_chosen(-odds)
        if chosen != partition.label[unit]:
            change += odds if chosen == k else -odds
            reassign(partition, terms, unit, chosen)
    return change, log_q


@part
def launch(rng, a, b, partition, terms, members, j, k, n_scans, counted):
    """Put the members, all in `j`, anywhere in `j` or `k`, and scan; return the change.

    Unless `counted`, the change of the log joint is not needed, and not what is returned.
    """
    change = 0.0
    for i in range(members.shape[0]):
        if rng.random() < 0.5:
            if counted:
                change += log_odds(a, b, partition, terms, members[i], j, k)
            reassign(partition, terms, members[i], k)
    for _ in range(n_scans):
        change += scan(rng, a, b, partition, terms, members, j, k, members[:0])[0]
    return change


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
def split(rng, a, b, partition, terms, members, u, v, n_scans):
    """Propose to part `v` and some of the members from `u`; return whether it was accepted."""
    j = partition.label[u]
    predictive(a, b, partition.counts, -1, 1, partition.prior_by_label)
    k = draw_empty_label(rng, partition)
    if k < 0:
        return False
    log_label = log(empty_share(a, b, partition, k))
    change = log_odds(a, b, partition, terms, v, j, k)
    reassign(partition, terms, v, k)
    change += launch(rng, a, b, partition, terms, members, j, k, n_scans, True)
    last, log_q = scan(rng, a, b, partition, terms, members, j, k, members[:0])
    if log(rng.random()) < change + last - log_label - log_q:
        return True
    gather_in(partition, terms, members, v, j)
    return False


@part
def merge(rng, a, b, partition, terms, members, wanted, u, v, n_scans):
    """Propose to put the cluster of `v` into that of `u`; return whether it was accepted."""
    j, k = partition.label[u], partition.label[v]
    if partition.named[k] > 0:
        return False
    change = 0.0
    for i in range(members.shape[0]):
        wanted[i] = partition.label[members[i]]
        if wanted[i] == k:
            change += log_odds(a, b, partition, terms, members[i], k, j)
            reassign(partition, terms, members[i], j)
    change += log_odds(a, b, partition, terms, v, k, j)
    reassign(partition, terms, v, j)
    change += log(empty_share(a, b, partition, k))
    height = log(rng.random())
    reassign(partition, terms, v, k)
    if height >= change:
        # No log_q, which is negative, can help any more.
        for i in range(members.shape[0]):
            if wanted[i] == k:
                reassign(partition, terms, members[i], k)
        return False
    launch(rng, a, b, partition, terms, members, j, k, n_scans, False)
    _, log_q = scan(rng, a, b, partition, terms, members, j, k, wanted)
    if height >= change + log_q:
        return False
    gather_in(partition, terms, members, v, j)
    return True


@entry
def split_or_merge(rng, a, b, partition, terms, scratch, n_proposals, n_scans):
    """Propose `n_proposals` splits or merges.

    Parameters
    ----------
    rng : numpy.random.Generator
    a, b : (T - 1,) array
        Beta parameters of the sticks (see `stick_breaking`).
    partition : Partition
    terms : (n_terms, 8) integer array
        The terms of evidence (see `protocol.collect`), in the partition's present state.
    scratch : (2, U) integer array
    n_proposals, n_scans : int
        Restricted scans that lead to the launch state, for each proposal.

    Returns
    -------
    accepted, proposed : int
        Nothing is proposed where there are not two relevant units.
    """
    accepted = 0
    proposed = 0
    for _ in range(n_proposals):
        u, v = draw_pair(rng, partition)
        if u < 0:
            break
        proposed += 1
        n = list_members(partition, u, v, scratch[0])
        members, wanted = scratch[0, :n], scratch[1, :n]
        if partition.label[u] == partition.label[v]:
            accepted += split(rng, a, b, partition, terms, members, u, v, n_scans)
        else:
            accepted += merge(rng, a, b, partition, terms, members, wanted, u, v, n_scans)
    return accepted, proposed


def new_scratch(n_units: int) -> np.ndarray:
    """Allocate the scratch of `split_or_merge`."""
    return np.zeros((2, n_units), np.int64)
