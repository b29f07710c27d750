"""Geweke's joint distribution test: updates alternated with new data must leave the prior alone.

J. Geweke (2004), "Getting it right", JASA 99(467).
"""

import dataclasses

import numpy as np
import pytest
from arviz_stats import ess

from pm_match.features import projected_normal
from tests.declared.plain import tiny_model
from tests.exactness.simulate import Simulator, quantities

CASES = {
    "plain": {},
    "linked": {"linked": True},
    "missing": {"missing": True},
    "both": {"linked": True, "missing": True},
}
N_PRIOR = 15_000
N_CHAIN = 20_000


def scores(simulator, share=1.0) -> dict[str, float]:
    """Standardised differences between the prior and the successive-conditional chain."""
    prior = [quantities(draw) for draw in simulator.prior(int(share * N_PRIOR))]
    start = simulator.prior(1)[0]
    point = simulator.point(start)
    simulator.set_data(simulator.data_given(start))
    chain = []
    for _ in range(int(share * N_CHAIN)):
        point = simulator.update(point)
        draw = simulator.natural(point)
        simulator.set_data(simulator.data_given(draw))
        chain.append(quantities(draw))
    found = {}
    for name in prior[0]:
        p = np.array([q[name] for q in prior], float)
        c = np.array([q[name] for q in chain], float)
        error = p.var() / len(p) + c.var() / float(ess(c[None]))
        found[name] = float((c.mean() - p.mean()) / np.sqrt(error))
    return found


@pytest.mark.parametrize(
    ("case", "share"),
    [("plain", 0.2), *(pytest.param(c, 1.0, marks=pytest.mark.slow) for c in CASES)],
)
def test_updates_leave_the_prior_alone(case, share, monkeypatch):
    if case in ("plain", "both"):
        # Keep coefficients for every pattern, as for larger data.
        monkeypatch.setattr(projected_normal, "_COMMON", 1)
    simulator = Simulator(tiny_model(**CASES[case]), seed=11)
    if case in ("linked", "both"):
        # Each step must leave a whole point behind, whichever comes last.
        simulator.steps.reverse()
    found = scores(simulator, share)
    assert max(map(abs, found.values())) < 4.0, found


@pytest.mark.slow
def test_a_wrong_update_is_caught(monkeypatch):
    simulator = Simulator(tiny_model(), seed=12)
    features = simulator.partition.features
    right = features._reader

    def wrong(point):
        return dataclasses.replace(right(point), latent_precision=0.8)

    wrong.background = right.background
    object.__setattr__(features, "_reader", wrong)
    found = scores(simulator)
    assert max(map(abs, found.values())) > 6.0, found
