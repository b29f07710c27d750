"""Doubting relevance: modes that single objects cannot leave, and that the gain is the joint's."""

import numpy as np
import pytest

import pm_match as pmm
from pm_match.search.chain import Chain
from pm_match.search.doubt import doubt
from tests.declared.networks import network_model, random_point


def noisy_networks(seed=0):
    """Three blocks of relevant columns, and far more columns of pure noise."""
    rng = np.random.default_rng(seed)
    density = np.array([[0.9, 0.1, 0.1], [0.1, 0.9, 0.4], [0.5, 0.1, 0.9]])
    rows, columns = np.repeat(np.arange(3), 12), np.repeat(np.arange(3), 10)
    found = {}
    for name in "ab":
        signal = rng.random((36, 30)) < density[np.ix_(rows, columns)]
        found[name] = np.hstack([signal, rng.random((36, 400)) < 0.35]).astype(float)
    return found


def stuck_chain(data, seed=0):
    """Columns that were all relevant for certain, until their clusters had taken in the noise."""
    model = network_model(data=data, truncation=6, weights="known")
    rng = np.random.default_rng(seed)
    chain = Chain(model, pmm.steps(model), random_point(model, rng), rng)
    labels = [rng.integers(6, size=len(own)) for own in chain.labels(0)]
    chain.place(0, labels)
    state = chain.loaded(0)
    for partition in state.partitions:
        partition.relevance.prior[:] = 1.0, 1e-300, 0.0
    for _ in range(30):
        state.sweep(rng)
    chain.place(0, state.found())
    return chain


@pytest.mark.parametrize("seed", range(3))
def test_the_rise_is_that_of_the_log_joint(seed):
    chain = stuck_chain(noisy_networks(), seed)
    before = chain.log_joint(0)
    gain = doubt(chain, 0, np.random.default_rng(seed))
    assert gain >= 0.0
    assert chain.log_joint(0) - before == pytest.approx(gain, abs=1e-8)


def test_noise_is_found_though_all_were_relevant():
    """Twenty sweeps alone do not."""
    chain = stuck_chain(noisy_networks())
    columns = next(n for n, own in enumerate(chain.labels(0)) if len(own) == 860)
    assert (chain.labels(0)[columns] < 0).mean() < 0.05
    doubt(chain, 0, np.random.default_rng(1))
    irrelevant = (chain.labels(0)[columns] < 0).reshape(2, 430)
    assert irrelevant[:, 30:].mean() > 0.9
    assert irrelevant[:, :30].mean() < 0.1


def test_without_flags_nothing_is_done():
    model = network_model(relevance=False)
    rng = np.random.default_rng(0)
    chain = Chain(model, pmm.steps(model), random_point(model, rng), rng)
    before = chain.point
    state = rng.bit_generator.state
    assert doubt(chain, 0, rng) == 0.0
    assert chain.point is before
    assert rng.bit_generator.state == state


def test_the_seed_decides():
    ends = []
    for _ in range(2):
        chain = stuck_chain(noisy_networks())
        doubt(chain, 0, np.random.default_rng(3))
        ends.append(chain.labels(0))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
