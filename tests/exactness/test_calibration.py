"""Simulation-based calibration of the whole model, projections sampled.

S. Talts et al. (2018), "Validating Bayesian inference algorithms with simulation-based
calibration".
"""

import numpy as np
import pytest

from tests.declared.plain import tiny_data, tiny_model
from tests.exactness.simulate import Simulator, quantities, uniformity

N_SIMULATIONS = 240
N_DRAWS = 63
THIN = 8
# Label-invariant ones, and two that are not.
QUANTITIES = (
    "precision",
    "occupied",
    "same domain",
    "match",
    "first weight",
    "squared weights",
    "projection squared",
    "own latent squared",
    "fit",
)


def ranks(simulator, rng) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {name: [] for name in QUANTITIES}
    starts = simulator.prior(N_SIMULATIONS)
    for truth, start in zip(simulator.prior(N_SIMULATIONS), starts, strict=True):
        simulator.set_data([np.asarray(truth[d.name]) for d in simulator.partition.domains])
        point = simulator.point(start)
        for _ in range(10 * THIN):
            point = simulator.update(point)
        draws = []
        for _ in range(N_DRAWS):
            for _ in range(THIN):
                point = simulator.update(point)
            draws.append(quantities(simulator.natural(point)))
        reference = quantities(truth)
        for name in QUANTITIES:
            values = np.array([draw[name] for draw in draws])
            # Ties are broken at random, or ranks of integers would pile up.
            below = (values < reference[name]).sum()
            ties = (values == reference[name]).sum()
            found[name].append(int(below + rng.integers(ties + 1)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", [{}, {"missing": True}, {"linked": True}], ids=str)
def test_ranks_are_uniform(case):
    data = tiny_data(case.get("missing", False), n_objects=(5, 4), n_features=(2, 3))
    arguments = {"linked": case.get("linked", False), "data": data, "n_clusters": 4}
    simulator = Simulator(tiny_model(**arguments), seed=21)
    found = ranks(simulator, np.random.default_rng(22))
    p_values = uniformity(found, N_DRAWS)
    # Nine quantities, three cases: a right sampler falls below this once in about 40 such suites.
    assert min(p_values.values()) > 0.001, p_values
