"""Features with marginals of their own: collapsed formulas, draws and states, by plain formulas."""

import numpy as np
import pytest
from scipy import stats

from pm_match.partition.sweep import log_joint, reassign
from tests.tiny import sampling_noise, total_variation
from tests.tiny_features import (
    Kind,
    Plain,
    all_states,
    cluster_step,
    exact_law,
    feature_data,
    feature_model,
    random_point,
)

KINDS = {
    "one noise": Kind(),
    "no intercept": Kind(intercept=False, noise="vector"),
    "one domain": Kind(domains=1, projection="transposed", noise="vector", sizes=((4, 3),)),
    "three domains": Kind(domains=3, projection="ard", noise="covariance", sizes=((2, 2), (2, 3), (1, 2))),
    "rigid": Kind(projection="rigid", noise="wishart", latent_scale=True),
    "lkj": Kind(noise="lkj", latent_scale=True),
    "deviations": Kind(deviations="one", noise="vector"),
    "deviations, full": Kind(deviations="vector", noise="wishart", projection="rigid"),
    "relevance": Kind(relevance="first"),
    "relevance, full": Kind(relevance="all", noise="wishart", deviations="one", sizes=((2, 2), (2, 3))),
    "linked": Kind(linked=True, noise="wishart"),
    "tied": Kind(tied=True),
    "tied, vector": Kind(tied=True, noise="vector", projection="transposed", linked=True),
}  # fmt: skip


def moved_about(step, point, n_sweeps, seed=0):
    """How often a chain of sweeps and label swaps is in each state, all parameters held fixed."""
    rng, collapsed = np.random.default_rng(seed), step._collapsed
    collapsed.load(point, collapsed.labels(point))
    (partition,) = collapsed.partitions
    states = all_states(step)
    low, size = states.min(), int(np.ptp(states)) + 1
    powers = size ** np.arange(states.shape[1])[::-1]
    counts = np.zeros(size ** states.shape[1])
    for _ in range(n_sweeps):
        collapsed.sweep(rng)
        collapsed.rename(rng)
        counts[(partition.label - low) @ powers] += 1
    return counts[(states - low) @ powers]


@pytest.mark.parametrize("name", [k for k in KINDS if not k.startswith("tied")])
def test_law_of_the_assignment(name):
    kind = KINDS[name]
    model = feature_model(kind)
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(5))
    law = exact_law(step, Plain(kind, model, point))
    n_sweeps = 60_000
    counts = moved_about(step, point, n_sweeps)
    assert counts.sum() == n_sweeps
    limit = 2.5 * sampling_noise(law, n_sweeps)
    assert total_variation(counts, law) < limit
