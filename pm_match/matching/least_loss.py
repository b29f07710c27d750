"""The partition with the least expected loss: a greedy search from many starts.

After SALSO (Dahl, Johnson & Müller 2022): objects are allocated one by one in random order, then
moved one by one until nothing improves ("sweetening"); then whole clusters are destroyed and their
objects allocated anew ("zealous updates"). Some of the searches start at the best of the draws.

Two facts make the problem smaller without changing the least loss by variation of information or
Binder's. Δf and Δ²f are the first and second differences of f (see `losses`); f is convex, and Δ²f
does not grow with n.

1. *An object that is relevant in at most half of the draws may be alone.* Taking it out of a
   cluster of n others changes S times the loss by -S Δf(n) + 2 Σ_t Δf(n_jl), over the draws in
   which it is relevant. As n_jl <= n, that is at most (2q - 1) S Δf(n), with q the share of those
   draws.
2. *Objects that are relevant in the same half of the draws or more, and together in all of these,
   may be together.* What a second one adds by joining a cluster, less what the first one added, is
   S Δ²f(n) - 2 Σ_t Δ²f(n_jl) <= (1 - 2q) S Δ²f(n) <= 0. So if one of two such objects is in the
   cluster where it costs less, the other one costs no more there than where it is.

The adjusted Rand index is maximised by Binder's loss with other costs (`_adjusted_rand`). A pair of
objects is then worth being together if it is so in a share λ of the draws, and the second fact
holds for objects that are relevant in that share. That those which are relevant in less than half
of the draws are alone is a convention there.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pm_match.matching.losses import Estimated, Loss, scale, whole_terms
from pm_match.matching.pair_counts import groups
from pm_match.matching.pooled import draw_keys
from pm_match.matching.reallocate import OUT, CandidatePartition, put, reallocate, take_out
from pm_match.progress import PATIENCE, SearchProgress

# Steps that may be spent on finding the best draws: a step is one object in two draws.
_BUDGET = 10**9
# Draws that are scored in full, for each that is a start, if not all can be.
_SHORTLIST = 4
# Free slots to begin with.
_SPARE = 4


class LeastLoss(NamedTuple):
    """What the search found."""

    labels: NDArray[np.int64]  # (N,): numbers of clusters from 0; -1 for irrelevant objects
    loss: float  # its expected loss
    n_at_best: int  # starts that ended with this loss


class _Found(NamedTuple):
    """What one of several searches found: the units' clusters, what the loss depends on."""

    slots: NDArray[np.int64]  # (U,)
    total: int
    n_at_best: int  # searches that ended with this total


class _Problem(NamedTuple):
    """What all candidates share: see `reallocate.CandidatePartition`."""

    labels: NDArray[np.unsignedinteger]
    weight: NDArray[np.int64]
    relevant: NDArray[np.int64]
    row: NDArray[np.uint64]
    n_rows: int
    f: NDArray[np.int64]
    # The loss is a sum over draws of cost Σ_j f(n_j) - worth Σ_jl f(n_jl).
    cost: int
    worth: int

    def candidate(self, n_slots: int) -> CandidatePartition:
        """Make a candidate that all units are out of, with room for the scores of one."""
        n_objects = len(self.f) - 1
        return CandidatePartition(
            labels=self.labels,
            weight=self.weight,
            relevant=self.relevant,
            row=self.row,
            f=self.f,
            counts=np.zeros((n_slots, self.n_rows), np.uint16 if n_objects < 2**16 else np.uint32),
            size=np.zeros(n_slots, np.int64),
            version=np.zeros(n_slots, np.int64),
            slot=np.full(len(self.weight), OUT),
            score=np.zeros((1, n_slots), np.int64),
            seen=np.zeros((1, n_slots), np.int64),
            totals=np.zeros(3, np.int64),
            cost=self.cost * self.labels.shape[1],
            worth=self.worth,
        )


def least_loss(
    pooled: NDArray[np.unsignedinteger],
    loss: Estimated,
    n_starts: int,
    max_clusters: int | None,
    rng: np.random.Generator,
    progressbar: bool,
) -> LeastLoss:
    """Search for the partition of N objects with the least expected loss over S draws.

    `pooled` (N, S): from `pooled.pool`; `loss`, {"vi", "binder", "ari"}; `n_starts`: half of them,
    or one more, are at the best draws; the others begin with nothing; `max_clusters`: the most
    clusters, irrelevant objects not counted.
    """
    n_objects, n_draws = pooled.shape
    n_relevant = np.count_nonzero(pooled, axis=1)
    # Twice the relevant draws: half of them is enough.
    inside = np.flatnonzero(2 * n_relevant >= n_draws)
    alike: Loss = "binder" if loss == "ari" else loss
    f, unit = whole_terms(n_objects, n_draws, alike)
    constant = sum(int(f[np.bincount(draw)[1:]].sum()) for draw in pooled.T)
    _, group = groups(pooled[inside].T)
    if loss == "ari":
        # λ is at most one half, or the share of all pairs that are together, if that is more.
        rare = np.flatnonzero(n_relevant[inside] * int(f[-1]) < constant)
        group[rare] = n_objects + rare
    # By the first object, whatever the order of draws.
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(first)
    unit_of = np.empty(len(order), np.int64)
    unit_of[order] = np.arange(len(order))
    unit_of = unit_of[group]
    problem = _problem(pooled[inside[first[order]]], np.bincount(unit_of), f)
    most = n_objects if max_clusters is None else max_clusters
    n_recorded, keys = (n_starts + 1) // 2, draw_keys(pooled)

    def searched(problem: _Problem, known: NDArray | None = None) -> _Found:
        """Search from all starts, the first of them at what is known."""
        if not inside.size:
            return _Found(np.empty(0, np.int64), 0, n_starts)
        starts: list[Any] = [*_best_draws(problem, keys, n_recorded, most)]
        starts = [problem.labels[:, draw] for draw in starts] + [None] * (n_starts - len(starts))
        if known is not None:
            starts[0] = known + 1
        results = _in_threads(problem, starts, rng.spawn(n_starts), most, progress)
        totals = [total for _, total in results]
        least = min(totals)
        return _Found(results[totals.index(least)][0], least, totals.count(least))

    # How many rounds the index takes is not known.
    total = None if loss == "ari" else n_starts
    with SearchProgress(total, progressbar, after=PATIENCE) as progress:
        if loss == "ari":
            slots, expected, n_at_best = _adjusted_rand(problem, searched, constant)
        else:
            slots, least, n_at_best = searched(problem)
            expected = (constant + least) * (unit / n_draws / scale(n_objects, alike))
    labels = np.full(n_objects, -1, dtype=np.int64)
    labels[inside] = slots[unit_of]
    # Rounding could leave less than nothing.
    return LeastLoss(labels, max(expected, 0.0), n_at_best)


def _adjusted_rand(
    problem: _Problem, searched: Callable[..., _Found], constant: int
) -> tuple[NDArray[np.int64], float, int]:
    r"""Search for the greatest adjusted Rand index, its parts replaced by their posterior means.

    With f(n) = n (n - 1), R = Σ_j f(n_j) of the estimate, P that of a draw on average (`constant`,
    summed over draws), Q that of what they share, and M = f(N), the index is (Fritsch & Ickstadt
    2009)

    .. math:: \frac{Q - R P / M}{(R + P) / 2 - R P / M}.

    A partition with the index :math:`\theta` has the greatest one if it maximises :math:`Q -
    \lambda R`, which is Binder's loss with other costs, for :math:`\lambda = P / M + \theta (1 /
    2 - P / M)` (Dinkelbach 1967). So it is maximised for the index that was found last, until that
    rises no more. Return the units' clusters, one minus the index, and how many of the last
    searches ended with them.
    """
    n_draws, pairs = problem.labels.shape[1], max(int(problem.f[-1]), 1)
    # The finest costs with which no sum in the search can overflow.
    fine = 2 ** max(57 - (4 * n_draws * pairs).bit_length(), 0)
    drawn = constant / n_draws
    base = drawn / pairs
    index = 0.0
    best: NDArray[np.int64] | None = None
    while True:
        cost = max(round((base + index * (0.5 - base)) * 2 * fine), 1)
        found = searched(problem._replace(cost=cost, worth=2 * fine), best)
        sizes = np.bincount(found.slots, problem.weight).astype(np.int64)
        together = int(problem.f[sizes].sum())
        shared = (cost * n_draws * together - found.total) / (2 * fine * n_draws)
        below = (together + drawn) / 2.0 - together * base
        new = (shared - together * base) / below if below > 0.0 else 1.0
        if best is not None and new <= index:
            return best, 1.0 - index, found.n_at_best
        index, best = new, found.slots


def _problem(labels, weight, f, cost: int = 1, worth: int = 2) -> _Problem:
    n_rows = labels.max(axis=0, initial=0).astype(np.int64) + 1
    ends = np.cumsum(n_rows)
    relevant = np.count_nonzero(labels, axis=1)
    row = (ends - n_rows).astype(np.uint64)
    return _Problem(labels, weight, relevant, row, int(ends[-1]), f, cost, worth)


def _best_draws(problem: _Problem, keys: NDArray, n_best: int, most: int) -> list[int]:
    """Find the draws with the least expected loss.

    All are scored against all draws if that takes long enough; otherwise against some draws, and
    then the best few against all.
    """
    n_units, n_draws = problem.labels.shape
    by_key = np.argsort(keys)
    candidates = np.unique(keys, return_index=True)[1]
    n_against = max(_BUDGET // max(n_units * len(candidates), 1), 1)
    if n_against < n_draws:
        against = by_key[:: -(-n_draws // n_against)]
        few = _problem(
            np.ascontiguousarray(problem.labels[:, against]),
            problem.weight,
            problem.f,
            problem.cost,
            problem.worth,
        )
        totals = _draw_totals(few, problem.labels, candidates, most)
        best = np.lexsort((keys[candidates], totals))[: _SHORTLIST * n_best]
        candidates = candidates[best]
    totals = _draw_totals(problem, problem.labels, candidates, most)
    return candidates[np.lexsort((keys[candidates], totals))[:n_best]].tolist()


def _draw_totals(problem: _Problem, labels, draws, most: int) -> NDArray[np.int64]:
    totals = np.empty(len(draws), np.int64)
    state = problem.candidate(max(int(labels.max(initial=0)), 1))
    for place, draw in enumerate(draws):
        for array in (state.counts, state.size, state.totals):
            array[:] = 0
        state.slot[:] = OUT
        _put_draw(state, labels[:, draw], most)
        totals[place] = state.totals[0]
    return totals


def _put_draw(state: CandidatePartition, labels, most: int) -> None:
    """Make a draw the candidate; who is irrelevant, or not in the largest clusters, stays out."""
    size = np.bincount(labels, state.weight)
    size[0] = 0
    kept = np.argsort(-size, kind="stable")[: min(most, np.count_nonzero(size))]
    slot = np.full(len(size), OUT)
    slot[kept] = np.arange(len(kept))
    units = np.flatnonzero(slot[labels] != OUT)
    put(state, units, slot[labels[units]])


def _in_threads(problem, starts, rngs, most, progress) -> list[tuple[NDArray, int]]:
    """Search from all starts. Each has its own generator: the threads change nothing."""
    workers = min(os.cpu_count() or 1, len(starts))
    with ThreadPoolExecutor(workers) as pool:
        futures = [
            pool.submit(_search, problem, start, rng, most)
            for start, rng in zip(starts, rngs, strict=True)
        ]
        for _ in as_completed(futures):
            progress.advance()
        return [future.result() for future in futures]


def _search(problem: _Problem, start: NDArray | None, rng, most: int) -> tuple[NDArray, int]:
    """Search from a partition, labels from 1; return the units' clusters, and the loss's total."""
    n_units = len(problem.weight)
    n_slots = int(problem.labels.max(initial=0)) + 1
    if start is not None:
        state = problem.candidate(max(n_slots, int(start.max())))
        _put_draw(state, start, most)
    else:
        state = problem.candidate(n_slots)
    order = rng.permutation(n_units)
    # At first no more clusters than any draw has: they only have to be good to begin with.
    n_first = min(most, max(int(problem.labels.max(initial=0)), 1))
    state, _ = _allocate(state, order[state.slot[order] == OUT], n_first)
    occupied = np.flatnonzero(state.size)
    state = _resized(state, occupied, len(occupied) + _SPARE, n_scores=n_units)
    while True:
        moved = True
        while moved:
            state, moved = _allocate(state, rng.permutation(n_units), most)
        state, improved = _destroy_each(state, rng, most)
        if not improved:
            return state.slot, int(state.totals[0])


def _allocate(state: CandidatePartition, order, most: int) -> tuple[CandidatePartition, bool]:
    """Put units where they cost least, with more slots as they are needed."""
    place, moved = 0, 0
    while True:
        place, more = reallocate(state, order, place, most)
        moved += more
        if place == len(order):
            return state, moved > 0
        state = _resized(state, np.arange(len(state.size)), 2 * len(state.size))


def _resized(
    state: CandidatePartition, kept, n_slots: int, *, n_scores: int = 0
) -> CandidatePartition:
    """Give a candidate another number of slots, of which the first are some of the present ones.

    With `n_scores`, that many units' scores are kept from now on.
    """
    more = (0, n_slots - len(kept))
    number = np.full(len(state.size) + 1, OUT)  # one more, for those that are out
    number[kept] = np.arange(len(kept))
    scores = np.zeros((n_scores, n_slots), np.int64)
    return state._replace(
        counts=np.pad(state.counts[kept], (more, (0, 0))),
        size=np.pad(state.size[kept], more),
        version=np.pad(state.version[kept], more),
        slot=number[state.slot],
        score=scores if n_scores else np.pad(state.score[:, kept], ((0, 0), more)),
        seen=scores.copy() if n_scores else np.pad(state.seen[:, kept], ((0, 0), more)),
    )


def _destroy_each(state: CandidatePartition, rng, most: int) -> tuple[CandidatePartition, bool]:
    """Destroy clusters in random order, allocate their units anew; undo what is no gain."""
    improved = False
    _, representatives, n_units = np.unique(state.slot, return_index=True, return_counts=True)
    # A single unit has been reallocated already.
    for representative in rng.permutation(representatives[n_units > 1]):
        own = state.slot[representative]
        members = np.flatnonzero(state.slot == own)
        before, versions = int(state.totals[0]), state.version.copy()
        take_out(state, members)
        state, _ = _allocate(state, rng.permutation(members), most)
        if state.totals[0] < before:
            improved = True
            continue
        take_out(state, members)
        put(state, members, np.full(len(members), own))
        # All is as it was, and so are the scores that were kept.
        state.version[: len(versions)] = versions
    return state, improved
