"""The sampler over shards has the law of `ClusterGibbs` and its fellows on the same rows.

Of one domain: which clusters of two domains match changes seldom over shards, where nothing
exchanges labels with projections integrated out, and chains of this length disagree. That two
domains are drawn rightly is for `test_prior` to say.
"""

import numpy as np
import pytest

import pm_match as pmm
from pm_match.reading.probe import natural_function
from tests.sharded.chains import run

N_BATCHES = 25


VARIABLES = ["precision", "projection_a", "latent", "weights"]


def told(labels, values):
    """Numbers of a draw that no relabelling of all clusters at once changes, and of its names."""
    (label,) = labels
    precision, *others, weights = values
    sizes = np.bincount(label, minlength=len(weights))
    squares = [np.square(own).sum() for own in others]
    return [
        np.log(precision), (sizes > 0).sum(), sizes.max(), sizes[0], *squares, weights[0]
    ]  # fmt: skip


def of_chains(idata):
    """Numbers of all draws (draws, numbers) of `pmm.sample`, chain after chain."""
    draws = idata["posterior"].to_dataset().stack(all=("chain", "draw")).transpose("all", ...)
    columns = [draws[name].values for name in ("cluster_a", *VARIABLES)]
    return np.array([told(row[:1], row[1:]) for row in zip(*columns, strict=True)], float)


def of_shards(model, data, n):
    """The same, of two shards."""
    read = natural_function(model, VARIABLES)
    found = []
    for centre, labels in run(model, data, n, chunk_size=20, tune=500, moves=True):
        found.append(told(list(labels.values()), read(centre.point)))
    return np.array(found, float)


def moments(numbers):
    """Means of numbers and of their squares, with standard errors by batches."""
    both = np.concatenate([numbers, numbers**2], axis=1)
    both = both[: len(both) // N_BATCHES * N_BATCHES]
    batches = both.reshape(N_BATCHES, -1, both.shape[1]).mean(axis=1)
    return both.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(N_BATCHES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_draws_have_the_moments_of_cluster_gibbs():
    rng = np.random.default_rng(1)
    latent = np.array([[2.0], [-1.0], [0.3]])
    x = latent[rng.integers(3, size=20)] @ rng.normal(size=(1, 4)) + rng.normal(size=(20, 4))
    data = {"a": x}
    model = pmm.models.projected_clusters(data, n_factors=1, n_clusters=5, projection="normal")
    one = pmm.sample(
        2500, tune=500, chains=2, cores=1, model=model, random_seed=2, progressbar=False
    )
    (mean, error), (others, other_error) = map(
        moments, (of_chains(one), of_shards(model, data, 10000))
    )
    away = np.abs(mean - others) / np.hypot(error, other_error)
    assert (away < 4.0).all(), (away, mean, others)
