"""Simulate from a declared model, and hand shards new data."""

import numpy as np

import pm_match as pmm
from pm_match.sharded.split_merge import split_or_merge
from tests.exactness.simulate import ModelSimulator
from tests.sharded import models
from tests.sharded.chains import calls, drawn, halves


class ShardSimulator(ModelSimulator):
    """The sampler over two shards."""

    def __init__(self, model, data, seed):
        self.values = {name: np.array(own, float) for name, own in data.items()}
        # Over shards, what has no step of ours is drawn by slices.
        served = {value for step in pmm.steps(model) for value in step.vars}
        others = [rv.name for rv in model.free_RVs if model.rvs_to_values[rv] not in served]
        super().__init__(model, seed, others)
        self.centre, self.shards, self.store = halves(model, self.values, 2, seed)
        self.iteration = 0

    missing = ()

    @property
    def observed(self):
        return list(self.values)

    def point(self, draw):
        # Of weights that round to zero there is no log.
        names = {own.weights for own in self.centre.clusterings}
        least = {name: np.maximum(draw[name], 1e-300) for name in names}
        return super().point(draw | {name: w / w.sum() for name, w in least.items()})

    def new_data(self, draw):
        for name, x in zip(self.observed, self.data(draw), strict=True):
            self.values[name][:] = x
        self.centre.begin(found for shard in self.shards for found in shard.survey())

    def own_quantities(self, draw, first, last):
        """How the data go with what clusters have, and with each other."""
        found = {}
        of_clusters = [name for name in self.names if len(np.shape(draw[name])) > 1]
        for (name, x), label in zip(self.values.items(), (first, last), strict=True):
            size = np.arcsinh(x).sum(axis=1)
            squares = np.log1p(np.square(x)).sum(axis=1)
            found[f"{name}: alike"] = np.arcsinh(x @ x.T)[label[:, None] == label].sum()
            w = draw.get(f"projection_{name}")
            if w is not None:
                fit = np.arcsinh((draw["latent"][label] @ w.T) * x).sum(axis=1)
                found |= {f"{name}: fit": fit.sum(), f"{name}: fit of the last": fit[-1]}
            if len(np.shape(draw.get("precision"))) == 3:
                away = x - draw["mean"][label]
                weighed = np.einsum("ni,nij,nj->n", away, draw["precision"][label], away)
                found[f"{name}: residuals"] = np.log(weighed).sum()
                found[f"{name}: precision by squares"] = np.log(weighed) @ squares
                own_size = np.linalg.slogdet(draw["precision"][label])[1]
                found[f"{name}: spread by precision"] = own_size @ np.log(np.square(away).sum(1))
            for own in of_clusters:
                if len(draw[own]) == models.T:
                    of_objects = np.arcsinh(draw[own][label]).reshape(len(label), -1).sum(axis=1)
                    found[f"{name}: by {own}"] = of_objects @ size
                    found[f"{name}: the last by {own}"] = of_objects[-1] * squares[-1]
        return found

    def labels(self):
        """Draw labels given all else; return in which setting."""
        self.iteration += 1
        return drawn(self.centre, self.shards, self.iteration)

    def update(self, point):
        self.centre.point = dict(point)
        setting = self.labels()
        split_or_merge(self.centre, calls(self.shards), setting)
        self.centre.update(calls(self.shards))
        self.labels()
        return self.centre.point | self.store.whole()
