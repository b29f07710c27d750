"""Runs of the two halves of the sampler over shards, with the labels at hand."""

import numpy as np

from pm_match.reading import read
from pm_match.sharded.centre import Centre
from pm_match.sharded.data import Source, cut
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
    """Make the centre, the shards and the assignment of every chunk."""
    centre = Centre(model, read(model), np.random.default_rng(seed), model.initial_point())
    sources = {
        assignment: {
            name: Source(name, data[name], width)
            for scorer in own.values()
            for name, width in scorer.widths.items()
        }
        for assignment, own in centre.scorers.items()
    }
    pieces = cut(sources, chunk_size)
    store = Labels()
    half = len(pieces) // 2
    truncation = centre.clustering.truncation
    shards = [
        Shard(seed, own, sources, centre.scorers, truncation, store)
        for own in (pieces[:half], pieces[half:])
    ]
    assignments = [piece.assignment for piece in pieces]
    centre.begin(assignments, [found for shard in shards for found in shard.survey()])
    return centre, shards, assignments, store


def calls(shards):
    """Return what calls a method of all shards."""
    return lambda method, *given: [o for s in shards for o in getattr(s, method)(*given)]


def run(model, data, n, chunk_size=2, seed=0, tune=100, moves=False):
    """Yield the centre, at what labels were drawn given, and the labels, draw after draw."""
    centre, shards, assignments, store = halves(model, data, chunk_size, seed)
    for iteration in range(tune + n):
        setting = centre.setting(iteration)
        found = [own for shard in shards for own in shard.draw(setting, iteration)]
        centre.load(assignments, found)
        if iteration >= tune:
            yield centre, store.whole()
        if moves:
            split_or_merge(centre, calls(shards), assignments, setting)
        centre.update()
