"""Moves of whole groups of objects, each scored exactly with the projections fitted to it."""

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from pm_match.features.projection_fit import Groups
from pm_match.features.search import mean_matching

Labels = NDArray[np.int64]

# A move has to gain more than the fits' tolerance.
LEAST_GAIN = 1e-3
# 720 permutations of a domain's clusters can all be looked at; 5040 cost too much.
_ENUMERATED = 6
# How many nats worse than the best permutation one may be and still be told apart.
_MARGIN = 30.0
_CLIMBS = 2


def unused(labels: Labels, truncation: int) -> list[int]:
    """Give the first label that no group has, if there is one."""
    free = np.setdiff1d(np.arange(truncation), labels)
    return [int(free[0])] if len(free) else []


def swaps(homes: Sequence[NDArray[np.bool_]], labels: Labels, truncation: int) -> Labels:
    """Exchange two labels, one of which may be unused, within one home.

    `homes` (each G,): which groups are in each; `labels` (G,). Return (P, G): every row an
    assignment.
    """
    used = np.unique(labels).tolist()
    everywhere = [*used, *unused(labels, truncation)]
    found = []
    for own in homes:
        held = set(labels[own].tolist())
        for i, one in enumerate(everywhere):
            for other in everywhere[:i]:
                if one not in held and other not in held:
                    continue
                new = labels.copy()
                new[own & (labels == one)] = other
                new[own & (labels == other)] = one
                found.append(new)
    return _stack(found, labels)


def moves(labels: Labels, truncation: int) -> Labels:
    """Move one group to any other label, or to an unused one."""
    everywhere = [*np.unique(labels).tolist(), *unused(labels, truncation)]
    found = []
    for group in range(len(labels)):
        for label in everywhere:
            if label != labels[group]:
                new = labels.copy()
                new[group] = label
                found.append(new)
    return _stack(found, labels)


def merges(labels: Labels) -> Labels:
    """Merge two labels everywhere."""
    used = np.unique(labels).tolist()
    found = [
        np.where(labels == one, other, labels) for i, one in enumerate(used) for other in used[:i]
    ]
    return _stack(found, labels)


def _stack(found: list, labels: Labels) -> Labels:
    return np.array(found, np.int64).reshape(len(found), len(labels))


def climb_groups(
    groups: Groups, labels: Labels, propose: Callable[[Labels], Labels]
) -> tuple[Labels, float]:
    """Take the best of the proposals, as long as it is better.

    `labels` (G,); `propose`: from labels (G,) to proposals (P, G). Return `labels` (G,), and their
    score.
    """
    while True:
        proposals = propose(labels)
        # The present assignment first: what does not come near it is given up.
        scores = groups.score(np.concatenate([labels[None], proposals]), 0.0)
        value, scores = float(scores[0]), scores[1:]
        # Where many moves help, most still do after the best was made: each is tried in turn.
        gaining = np.argsort(-scores, kind="stable")
        gaining = gaining[scores[gaining] > value + LEAST_GAIN]
        if not len(gaining):
            return labels, value
        start = labels
        labels, value = proposals[gaining[0]], float(scores[gaining[0]])
        for number in gaining[1:]:
            changed = proposals[number] != start
            if (labels[changed] != start[changed]).any():
                continue
            both = np.where(changed, proposals[number], labels)
            score = float(groups.score(both[None])[0])
            if score > value + LEAST_GAIN:
                labels, value = both, score


def permute(
    rng: np.random.Generator,
    groups: Groups,
    own: NDArray[np.bool_],
    labels: Labels,
    truncation: int,
    keep: int = 1,
) -> tuple[Labels, NDArray[np.float64]]:
    """Find the best permutations of one home's labels among those that are used by any home.

    All of them if the labels are few; else by climbing in exchanges of two from the best of the
    present one and those that `mean_matching` proposes.

    `own` (G,): which groups are in the home; `labels` (G,); `keep`: how many permutations to return
    at most. Return `labels` (P, G): the best first; `scores` (P,).
    """
    used = np.unique(labels)
    place = np.searchsorted(used, labels[own])
    if len(used) <= _ENUMERATED:
        orders = np.array(list(permutations(used.tolist())), np.int64)
        proposals = np.repeat(labels[None], len(orders), 0)
        proposals[:, own] = orders[:, place]
        # Labels that the home does not hold may go anywhere: the same assignment many times.
        proposals = np.unique(proposals, axis=0)
        scores = groups.score(proposals, _MARGIN)
        best = np.argsort(-scores, kind="stable")[:keep]
        return proposals[best], scores[best]

    def exchanges(present):
        return swaps([own], present, truncation)

    codes = np.searchsorted(used, labels)
    given = mean_matching.propose(rng, groups, np.where(own, -1, codes), np.where(own, codes, -1))
    proposals = np.repeat(labels[None], 1 + len(given), 0)
    for number, target in enumerate(given):
        proposals[1 + number, own] = used[target[place]]
    proposals = np.unique(proposals, axis=0)
    scores = groups.score(proposals, _MARGIN)
    found = {}
    # To climb costs much more than to score: only from the best.
    for number in np.argsort(-scores, kind="stable")[:_CLIMBS]:
        end, value = climb_groups(groups, proposals[number], exchanges)
        found[end.tobytes()] = (value, end)
    best_found = sorted(found.values(), key=lambda pair: -pair[0])[:keep]
    return np.array([end for _, end in best_found]), np.array([value for value, _ in best_found])
