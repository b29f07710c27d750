"""One split or merge leaves the law of labels alone: it starts from exact draws of that."""

import numpy as np
import pytest

from pm_match.sharded.shards import ChunkResult
from pm_match.sharded.split_merge import split_or_merge
from tests.sharded.chains import calls, halves
from tests.sharded.enumeration import CASES, enumerated, enumerated_sizes
from tests.sharded.models import columns


def told(counts):
    """How many clusters there are, how large, and under which names."""
    occupied = np.count_nonzero(counts)
    return [occupied == 1, occupied == 3, *counts, np.square(counts).sum(), counts.max()]


@pytest.mark.parametrize(
    ("case", "n"),
    [
        ("Poisson", 2500),
        ("deviations", 2500),
        ("normals", 2500),
        # Few of these are accepted.
        pytest.param("Normal", 7500, marks=pytest.mark.slow),
    ],
)
def test_a_move_leaves_the_law_of_labels_alone(case, n):
    model, data, log_evidence = CASES[case]()
    states, p = enumerated(log_evidence, [1.3], [1.0])
    rng = np.random.default_rng(1)
    check_moves(model, data, states[rng.choice(len(states), n, p=p)], 2)


def test_a_move_of_many_objects_leaves_the_law_of_their_sizes_alone():
    """Many that are alike have divisions of small probability q, which then counts."""
    model, data, log_evidence = columns("Poisson", alike=(12, 7))
    states, p = enumerated_sizes(log_evidence, 1.3, 19)
    rng = np.random.default_rng(1)
    drawn = states[rng.choice(len(states), 1500, p=p)]
    check_moves(model, data, rng.permuted(drawn, axis=1), 8)


def check_moves(model, data, states, chunk_size):
    """Check that one move from each of some exact draws changes nothing on average."""
    centre, shards, _ = halves(model, data, chunk_size, 3)
    (setting,) = centre.settings(0)
    where = {"a": 0, "b": len(data["a"])}
    before, after = [], []
    accepted, known = 0, {}
    for state in states:
        found = []
        for shard in shards:
            for piece in shard.pieces:
                first = where[piece.assignment.removeprefix("cluster_")]
                labels = state[first + piece.start : first + piece.stop].astype(np.int16)
                shard._last[piece.number] = setting.iteration, labels
                key = piece.number, *labels
                if key not in known:
                    chunk = shard._scored(piece, shard._chunk(piece))
                    sums = shard._sums(piece, chunk, labels, 3, setting.parameters)
                    counts = np.bincount(labels, minlength=3)
                    known[key] = ChunkResult(piece.assignment, counts, sums, 0.0, None)
                found.append(known[key])
        centre.load(found)
        before.append(told(centre.counts))
        accepted += bool(split_or_merge(centre, calls(shards), setting))
        after.append(told(centre.counts))
        assert sum(own.sum() for own in centre.sizes.values()) == centre.counts.sum() == len(state)
    change = np.array(after, float) - np.array(before, float)
    error = change.std(axis=0, ddof=1) / np.sqrt(len(states))
    assert accepted > 100
    assert (np.abs(change.mean(axis=0)) < 4.0 * error + 1e-9).all(), change.mean(axis=0) / error
