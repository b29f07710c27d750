"""Speed of sweeps over normal clusters, beside the naive formula and PyMC's own sampler.

CPU time, which other work on the machine changes least. Run from the repository:
`python -m benchmarks.normal_speed [--pymc]`.
"""

import sys
import time

import numpy as np
import pymc as pm

import pm_match as pmm
from pm_match.clusters.protocol import collect
from pm_match.clusters.sweep import new_partition, place, sweep
from pm_match.clusters.units import units
from pm_match.normal.conjugate import log_marginal
from pm_match.normal.normal_rows import NormalRows, NormalWishartPrior
from pm_match.normal.normal_wishart import NormalWishartEvidence
from pm_match.normal.shared_normal import SharedNormalEvidence

TRUNCATION = 10
SIZES = ((100, 20), (1_000, 6), (10_000, 6))


def data(n, d, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    return rng.normal(size=(5, d))[labels] * 1.5 + rng.normal(size=(n, d)), labels


def sweeps(kind, n, d, n_sweeps=200):
    """Microseconds an object of a sweep, and of loading all objects."""
    x, labels = data(n, d)
    own = units(n, np.zeros((0, 2), int))
    evidence = kind(NormalRows(np.arange(n), own, d), TRUNCATION)
    state = new_partition(own.size, TRUNCATION)
    prior = NormalWishartPrior(np.zeros(d), 0.1, d + 2.0, np.eye(d))
    place(state, labels)
    slots = state.slot.astype(np.int64)
    a, b = np.ones(TRUNCATION - 1), np.ones(TRUNCATION - 1)
    rng = np.random.default_rng(1)
    evidence.load(x, slots, prior)
    terms = collect([evidence.term])
    sweep(rng, a, b, state, terms)
    n_sweeps = max(n_sweeps * 100 // n, 5)
    begin = time.process_time()
    for _ in range(n_sweeps):
        sweep(rng, a, b, state, terms)
    swept = (time.process_time() - begin) / n_sweeps / n
    begin = time.process_time()
    for _ in range(n_sweeps):
        evidence.load(x, state.slot.astype(np.int64), prior)
    return 1e6 * swept, 1e6 * (time.process_time() - begin) / n_sweeps / n


def naive(n, d):
    """Microseconds an object of a sweep that asks the plain formula for every cluster."""
    x, labels = data(n, d)
    prior = NormalWishartPrior(np.zeros(d), 0.1, d + 2.0, np.eye(d))
    begin, n_objects = time.process_time(), 5
    for unit in range(n_objects):
        for label in range(TRUNCATION):
            moved = labels.copy()
            moved[unit] = label
            log_marginal(x, moved, prior, shared=False)
    return 1e6 * (time.process_time() - begin) / n_objects


def whole_step(n, d):
    """Milliseconds of a step of ClusterGibbs, draws of all parameters included."""
    x, _ = data(n, d)
    model = pmm.models.dependency_clusters({"x": x}, TRUNCATION, within="own")
    step = pmm.ClusterGibbs([model["cluster_object"]], model=model, rng=0)
    point = model.initial_point(0)
    for _ in range(20):
        point, _ = step.step(point)
    begin, n_steps = time.process_time(), 50
    for _ in range(n_steps):
        point, _ = step.step(point)
    return 1e3 * (time.process_time() - begin) / n_steps


def pymc(n, d):
    """Microseconds an object of PyMC's Metropolis of the labels, given all parameters."""
    x, _ = data(n, d)
    model = pmm.models.dependency_clusters({"x": x}, TRUNCATION, within="shared")
    with model:
        step = pm.CategoricalGibbsMetropolis([model["cluster_object"]], rng=0)
    point = model.initial_point(0)
    point, _ = step.step(point)
    begin, n_sweeps = time.process_time(), 3
    for _ in range(n_sweeps):
        point, _ = step.step(point)
    return 1e6 * (time.process_time() - begin) / n_sweeps / n


def main():
    kinds = (("own precisions", NormalWishartEvidence), ("shared precision", SharedNormalEvidence))
    for n, d in SIZES:
        for name, kind in kinds:
            swept, loaded = sweeps(kind, n, d)
            print(f"{n:6d} x {d:2d}, {name}: {swept:7.2f} us an object, loading {loaded:6.2f} us")
    print(f"   100 x 20, plain formula: {naive(100, 20):9.0f} us an object")
    print(f"   100 x 20, ClusterGibbs.step, own precisions: {whole_step(100, 20):.2f} ms")
    if "--pymc" in sys.argv:
        print(f"   100 x 20, PyMC's Metropolis, shared: {pymc(100, 20):9.0f} us an object")


if __name__ == "__main__":
    main()
