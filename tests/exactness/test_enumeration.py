"""The chain's law of the assignment, labels and all, against every assignment there is."""

from itertools import product

import numpy as np
import pytest

from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import place
from pm_match.features import projected_normal
from tests.declared.plain import (
    TRUNCATION,
    all_assignments,
    cluster_step,
    exact_law,
    inside,
    random_point,
    sampling_noise,
    tiny_model,
    total_variation,
)
from tests.exactness.moves import walked

CASES = {"plain": {}, "linked": {"linked": True}, "missing": {"missing": True}}
QUICK = (("plain", "sweep alone", 1), ("linked", "both", 100), ("missing", "both", 1))


def visits(step, point, n_sweeps, moves="both", seed=0):
    """How often a chain of sweeps and label swaps is in each assignment."""
    rng = np.random.default_rng(seed)
    hyper = inside(step).hyper(point)
    own = inside(step)
    state, evidence = own.state, own.evidence
    place(state, np.concatenate(inside(step).labels(point))[inside(step).units.first])
    own.load(point)
    powers = TRUNCATION ** np.arange(len(state.label))[::-1]
    counts = np.zeros(TRUNCATION ** len(state.label))
    terms = collect([evidence.term])
    swaps = TRUNCATION if moves == "both" else 0
    labels = walked(rng, (hyper.a, hyper.b), state, terms, n_sweeps, swaps)
    np.add.at(counts, labels @ powers, 1)
    return counts


@pytest.mark.parametrize(
    ("case", "moves", "common"),
    [
        one if one in QUICK else pytest.param(*one, marks=pytest.mark.slow)
        for one in product(CASES, ("both", "sweep alone"), (1, 100))
    ],
)
def test_law_of_the_assignment(case, moves, common, monkeypatch):
    """With coefficients kept for every pattern (`common` of 1) and computed afresh."""
    monkeypatch.setattr(projected_normal, "_COMMON", common)
    model = tiny_model(**CASES[case])
    step = cluster_step(model)
    assert (inside(step).evidence.term.kept >= 0).all() == (common == 1)
    point = random_point(model, np.random.default_rng(5))
    law = exact_law(step, point)
    n_sweeps = 200_000
    counts = visits(step, point, n_sweeps, moves)
    # Successive sweeps are correlated: the noise is that of fewer independent draws.
    limit = 2.0 * sampling_noise(law, n_sweeps)
    assert total_variation(counts, law) < limit
    # The check can fail: under the law at a slightly different concentration, it does.
    other = cluster_step(tiny_model(concentration=1.6, **CASES[case]))
    assert total_variation(counts, exact_law(other, point)) > limit


@pytest.mark.parametrize(
    ("case", "n_steps"),
    [("missing", 4_000), *(pytest.param(c, 20_000, marks=pytest.mark.slow) for c in CASES)],
)
def test_law_through_the_step(case, n_steps):
    model = tiny_model(**CASES[case])
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(6))
    law = exact_law(step, point)
    powers = TRUNCATION ** np.arange(len(inside(step).units.size))[::-1]
    counts = np.zeros(len(all_assignments(step)))
    step.setup_chain(np.random.default_rng(1), 0, 0)
    for _ in range(n_steps):
        point, _ = step.step(point)
        labels = np.concatenate([point["cluster_a"], point["cluster_b"]])
        counts[labels[inside(step).units.first] @ powers] += 1
    assert total_variation(counts, law) < 2.0 * sampling_noise(law, n_steps)


def test_linked_objects_never_part():
    model = tiny_model(linked=True)
    step = cluster_step(model)
    point = random_point(model, np.random.default_rng(7))
    for _ in range(200):
        point, _ = step.step(point)
        a, b = point["cluster_a"], point["cluster_b"]
        assert a[0] == a[2] == b[1]
