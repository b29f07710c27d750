"""Runs of the two halves of the sampler over shards, with the labels at hand."""

import numpy as np

from pm_match.reading import read
from pm_match.reading.probe import initial_point
from pm_match.sharded.centre import Centre
from pm_match.sharded.choose import draw_labels
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


def check_choices(monkeypatch, model, data):
    """Hold what labels are drawn from against the declared log density, object by object."""
    tables = []

    def recorded(rng, table, log_weights, *given):
        tables.append(table + log_weights)
        draw_labels(rng, table, log_weights, *given)

    monkeypatch.setattr("pm_match.sharded.shards.draw_labels", recorded)
    log_density = model.compile_logp()
    centre, shards, store = halves(model, data, chunk_size=2, seed=0)
    for iteration in range(3):
        drawn(centre, shards, iteration)
        centre.update(calls(shards), tuning=True)
    for setting in centre.settings(iteration):
        tables.clear()
        point = centre.point | store.whole()
        centre.load(calls(shards)("draw", setting, iteration))
        pieces = [piece for shard in shards for piece in shard._pieces(setting)]
        for piece, table in zip(pieces, tables, strict=True):
            for row, own in zip(range(piece.start, piece.stop), table, strict=True):
                labels = np.repeat(point[piece.assignment][None], len(own), axis=0)
                labels[:, row] = np.arange(len(own))
                declared = [log_density(point | {piece.assignment: one}) for one in labels]
                np.testing.assert_allclose(
                    own - own[0], np.subtract(declared, declared[0]), atol=1e-5
                )
