"""Runs of the two halves of the sampler over shards, with the labels at hand."""

import numpy as np

from pm_match.reading import read
from pm_match.reading.probe import initial_point
from pm_match.sharded.centre import Centre
from pm_match.sharded.data import cut
from pm_match.sharded.shards import Shard
from pm_match.sharded.split_merge import split_or_merge


class Labels:
    """What takes the place of a store: the labels of the present draw, by assignment."""

    def __init__(self):
        self.present = {}

    def write(self, piece, number, labels, certainty):
        """Keep the labels of a chunk."""
        self.present.setdefault(piece.assignment, {})[piece.start] = labels.copy()

    def whole(self):
        """Return the labels of every assignment."""
        return {
            name: np.concatenate([own[start] for start in sorted(own)])
            for name, own in self.present.items()
        }


def halves(model, data, chunk_size, seed):
    """Make the centre, two shards, and what takes the place of a store."""
    centre = Centre(model, read(model), np.random.default_rng(seed), initial_point(model))
    sources = {
        assignment: {
            name: scorer.source(name, data[name], None)
            for scorer in own.values()
            for name in scorer.widths
        }
        for assignment, own in centre.scorers.items()
    }
    pieces = cut(sources, chunk_size)
    store = Labels()
    half = len(pieces) // 2
    shards = [
        Shard(seed, own, sources, centre.scorers, store) for own in (pieces[:half], pieces[half:])
    ]
    centre.begin(found for shard in shards for found in shard.survey())
    n_rows = {piece.assignment: piece.stop for piece in pieces}
    centre.look({name: np.zeros(n_rows[name], np.int16) for name in centre.watched})
    return centre, shards, store


def calls(shards):
    """Return what calls a method of all shards."""
    return lambda method, *given: [o for s in shards for o in getattr(s, method)(*given)]


def run(model, data, n, chunk_size=2, seed=0, tune=100, moves=False):
    """Yield the centre, at what labels were drawn given, and the labels, draw after draw."""
    centre, shards, store = halves(model, data, chunk_size, seed)
    for iteration in range(tune + n):
        setting = drawn(centre, shards, iteration)
        if iteration >= tune:
            yield centre, store.whole()
        if moves:
            split_or_merge(centre, calls(shards), setting)
        centre.update(calls(shards), iteration < tune)


def drawn(centre, shards, iteration):
    """Draw all labels; return in which setting the last."""
    for setting in centre.settings(iteration):
        centre.load(calls(shards)("draw", setting, iteration))
    return setting
